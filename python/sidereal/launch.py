"""`sidereal launch`: a script on all tasks of a cluster, on this machine or on several."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import secrets
import selectors
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from . import _events, _native, _usage
from ._launch_kubernetes import manifests
from ._launch_places import (
    InAllocation,
    OverSsh,
    Place,
    PlaceError,
    ReservedPorts,
    Runner,
    Task,
    ThisMachine,
    script,
    voter,
)
from ._supervision import Hang, HangWatch, Restarts

__all__ = ["PROTOCOLS", "Launcher", "ReservedPorts", "Task", "main", "parser", "tf_config"]

#: Seconds beyond the grace that a task's runner, or ssh, gets to end in.
RUNNER_S = 5.0
LAST_LINES = 20
#: A line without an end is shown in pieces of this size, so that nobody's memory fills.
LINE_BYTES_MAX = 64 * 1024
COLORS = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)
USAGE_ERROR = 2
PROTOCOLS = ("grpc", "grpc++", "star_server", "star_server_lite")
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PLACES = ("local", "ssh", "slurm", "kubernetes", "ray")
#: How Ray lays tasks out over nodes: its placement groups have these words.
PLACEMENTS = ("SPREAD", "PACK", "STRICT_SPREAD", "STRICT_PACK")


def parser() -> argparse.ArgumentParser:
    out = _usage.Parser(
        prog="sidereal launch",
        description="Runs a Python script on every task of a cluster, with TF_CONFIG and a secret "
        "that only this cluster knows. Ends when all but the ps tasks have ended; when one "
        "fails, all are ended.",
        epilog="The exit code is that of the chief (worker 0 without one) or, when that ended "
        "well or was ended, that of the first task that failed; 128 and the number of the signal "
        "for a task that was killed; 130 after Ctrl-C.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    out.add_argument("--ps", type=int, default=1, metavar="N", help="parameter servers")
    out.add_argument("--workers", type=int, default=1, metavar="N", help="workers")
    out.add_argument("--chief", action="store_true", help="a chief besides the workers")
    out.add_argument("--evaluator", action="store_true", help="a task that only evaluates")
    out.add_argument(
        "--protocol",
        choices=PROTOCOLS,
        help="how steps travel between the servers of the cluster: the rpc_layer of TF_CONFIG",
    )
    out.add_argument(
        "--on",
        choices=PLACES,
        help="where tasks run: on this machine; on --hosts; on the nodes of an allocation of "
        "Slurm; as actors of a cluster of Ray; kubernetes: nothing is started, what "
        "`kubectl apply -f -` takes is printed (default: local, with --hosts ssh)",
    )
    out.add_argument("--module", action="store_true", help="SCRIPT is a module, as in python -m")
    out.add_argument(
        "--hosts",
        metavar="A,B",
        help="run tasks on these machines in turn, over ssh; the package and the script "
        "must be there at the same paths",
    )
    out.add_argument(
        "--ssh", default="ssh -o BatchMode=yes", metavar="COMMAND", help="how to reach a host"
    )
    out.add_argument(
        "--port", type=int, default=2222, metavar="N",
        help="the first port of tasks on --hosts and on nodes of Slurm; that of pods",
    )  # fmt: skip
    out.add_argument(
        "--cpus", type=float, default=1, metavar="N",
        help="processors of each task that Ray, Slurm or Kubernetes keeps for it",
    )  # fmt: skip
    out.add_argument("--memory", metavar="BYTES", help="kubernetes: of each task, as in 8Gi")
    out.add_argument(
        "--ray-address", metavar="HOST:PORT",
        help="ray: the cluster; without it that of RAY_ADDRESS or of this machine",
    )  # fmt: skip
    out.add_argument(
        "--placement", choices=PLACEMENTS, default="SPREAD",
        help="ray: how tasks lie on its nodes",
    )  # fmt: skip
    out.add_argument(
        "--start-timeout", type=float, default=300.0, metavar="SECONDS",
        help="ray: until there is room for all tasks",
    )  # fmt: skip
    out.add_argument("--image", metavar="IMAGE", help="kubernetes: with the package and SCRIPT")
    out.add_argument(
        "--name", default="sidereal", metavar="NAME", help="kubernetes: what names begin with"
    )
    out.add_argument("--namespace", metavar="NAME", help="kubernetes: where all is made")
    out.add_argument("--python", default=sys.executable, metavar="FILE", help="the interpreter")
    out.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="for the environment of all tasks; NAME alone takes the value from here; "
        "may be given again",
    )
    out.add_argument(
        "--log-dir",
        metavar="DIR",
        help="also write the output of each task to DIR/JOB-INDEX.log, and events for sidereal "
        "events --file DIR",
    )
    out.add_argument(
        "--grace",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="from SIGTERM to SIGKILL when tasks are ended",
    )
    out.add_argument(
        "--on-ps-loss",
        choices=("restore", "fail"),
        default="fail",
        help="restore: a parameter server that was killed is started again at its address; the "
        "program restores what it held (on_ps_loss of MonitoredTrainingSession, "
        "ClusterCoordinator and fit)",
    )
    out.add_argument(
        "--silence",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="--on-ps-loss restore: a parameter server that has answered, and then answers nothing "
        "for so long, hangs: it is killed, and started again; 0: it is not",
    )
    out.add_argument(
        "--on-worker-loss",
        choices=("restart", "fail"),
        default="fail",
        help="restart: a worker is started again when it was killed",
    )
    out.add_argument(
        "--on-chief-loss",
        choices=("restart", "fail"),
        default="fail",
        help="restart: the chief (worker 0 without one) is started again when it was killed",
    )
    out.add_argument(
        "--restarts", type=int, default=5, metavar="N", help="of one task, in --restart-window"
    )
    out.add_argument(
        "--restart-window",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="a task that is lost more often than --restarts within this time has failed",
    )
    out.add_argument(
        "--replicas",
        type=int,
        default=1,
        metavar="K",
        help="copies of the variables of each parameter server, with its own: the others are "
        "synchronous standbys in other parameter servers, and one that is started again takes from "
        "there what it had",
    )
    out.add_argument(
        "--min-insync-replicas",
        type=int,
        default=1,
        metavar="N",
        help="of these copies, how many must have a push before it is answered: with fewer in sync "
        "pushes wait",
    )
    out.add_argument(
        "--voters",
        type=int,
        default=0,
        metavar="N",
        help="tasks that run sidereal serve, the majority of which decides, with --replicas, which "
        "start of a parameter server counts: 1, or 3 so that one may be lost",
    )
    out.add_argument("script", metavar="SCRIPT", help="what every task runs")
    out.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="its arguments")
    return out


def check(options: argparse.Namespace) -> str | None:
    """What is wrong with the options, or None. Fills in where tasks run, if that is not given, and
    what follows of options for the environment of tasks."""
    least_of = {"ps": 0, "workers": 0, "grace": 0, "port": 1, "restarts": 0, "restart_window": 0,
                "silence": 0, "cpus": 0, "start_timeout": 0, "replicas": 1,
                "min_insync_replicas": 1, "voters": 0}  # fmt: skip
    for name, least in least_of.items():
        if getattr(options, name) < least:
            flag = name.replace("_", "-")
            return f"--{flag} is {getattr(options, name)}; it must be at least {least}"
    if options.ps + options.workers + options.chief + options.evaluator == 0:
        return "there is no task to run; give --workers or --ps"
    if options.on is None:
        options.on = "local" if options.hosts is None else "ssh"
    if (options.on == "ssh") != (options.hosts is not None):
        return f"--on is {options.on}; --on ssh and --hosts go together"
    if options.hosts is not None and not all(options.hosts.split(",")):
        return f"--hosts is '{options.hosts}'; write names with commas between them"
    if (options.on == "kubernetes") != (options.image is not None):
        return f"--on is {options.on}; --on kubernetes and --image go together"
    if options.on == "local" and not options.module and not os.path.isfile(options.script):
        return f"there is no file {options.script}"
    for setting in options.env:
        if "=" not in setting and setting not in os.environ:
            return f"--env: {setting} is not set here; give it as {setting}=VALUE"
    if options.replicas > max(options.ps, 1):
        return f"--replicas is {options.replicas}, and there are {options.ps} parameter servers"
    if options.min_insync_replicas > options.replicas:
        return (f"--min-insync-replicas is {options.min_insync_replicas}, and --replicas is "
                f"{options.replicas}")  # fmt: skip
    if options.voters and options.replicas == 1:
        return (f"--voters is {options.voters}, and there is nothing to decide with --replicas 1: "
                f"give --replicas 2")  # fmt: skip
    if options.replicas > 1:
        options.env = [
            *options.env,
            f"PS_REPLICAS={options.replicas}",
            f"PS_MIN_INSYNC_REPLICAS={options.min_insync_replicas}",
        ]
    return None


def place_of(options: argparse.Namespace) -> Place:
    """Where tasks run. PlaceError with what to do, where there is no place for them."""
    if options.on == "ray":
        # It needs a package that nothing else does.
        ray: Any = importlib.import_module("._launch_ray", __package__)
        place: Place = ray.OnRay(options)
        return place
    places: dict[str, Callable[[argparse.Namespace], Place]] = {
        "local": ThisMachine, "ssh": OverSsh, "slurm": InAllocation,
    }  # fmt: skip
    return places[options.on](options)


def tf_config(tasks: Sequence[Task], own: Task, protocol: str | None = None) -> str:
    """The cluster, the place of `own` in it, and the protocol. The evaluator is no member: nobody
    calls it."""
    cluster: dict[str, list[str]] = {}
    for task in tasks:
        if task.address:
            cluster.setdefault(task.job, []).append(task.address)
    out: dict[str, Any] = {"cluster": cluster, "task": {"type": own.job, "index": own.index}}
    if protocol is not None:
        out["rpc_layer"] = protocol
    return json.dumps(out)


def cluster_of(tasks: Sequence[Task]) -> str:
    """Its members, as `sidereal serve` takes them."""
    return json.dumps(json.loads(tf_config(tasks, tasks[0]))["cluster"])


@contextlib.contextmanager
def announced(tasks: Sequence[Task], secret: str) -> Iterator[None]:
    """Lets `sidereal top` of this user find the cluster meanwhile."""
    cluster = cluster_of(tasks)
    announcement = _native.announce_cluster(_native.ClusterSpec.from_json(cluster), secret)
    try:
        yield
    finally:
        del announcement


def was_killed(code: int) -> bool:
    """Whether a signal ended it: who ends with an exit code has said so himself."""
    return code < 0 or code > 128


def signal_of(code: int) -> int:
    """The number of the signal that ended it; 0: none has."""
    if not was_killed(code):
        return 0
    return -code if code < 0 else code - 128


def describe(code: int, kills_before: int) -> str:
    """ "exit code 3", or "killed by signal 9 (SIGKILL)". kills_before: of how many processes the
    kernel had done that for want of memory before."""
    number = signal_of(code)
    if was_killed(code):
        with contextlib.suppress(ValueError):
            text = f"killed by signal {number} ({signal.Signals(number).name})"
            is_of_kernel = number == signal.SIGKILL and _native.memory_kills() > kills_before
            return text + (", most likely as memory ran out" if is_of_kernel else "")
    return f"exit code {code}"


class Output:
    """Lines of all tasks on one stream, each whole and with its task in front."""

    def __init__(self, names: Sequence[str]) -> None:
        self._colored = (
            sys.stdout.isatty()
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM") != "dumb"
        )
        self._numbers = {name: number for number, name in enumerate(names)}

    def write(self, name: str, line: bytes) -> None:
        prefix = f"[{name}]"
        if self._colored:
            color = COLORS[self._numbers[name] % len(COLORS)]
            prefix = f"\x1b[{color}m{prefix}\x1b[0m"
        content = prefix.encode() + b" " + line + b"\n"
        while content:
            content = content[os.write(sys.stdout.fileno(), content) :]


@dataclass
class Running:
    """A task that runs, and what has come from it."""

    task: Task
    runner: Runner
    log: BinaryIO | None
    pending: bytes = b""
    last: deque[bytes] = field(default_factory=lambda: deque(maxlen=LAST_LINES))
    code: int | None = None  #: As subprocess has it: negative for a signal.
    asked_to_end: bool = False
    began: float = field(default_factory=time.monotonic)
    killed_by: float | None = None  #: When the runner is killed, which was to kill its task.

    def end(self, now: bool = False) -> None:
        """Asks the runner to end the task, with the grace or at once."""
        self.asked_to_end = True
        self.runner.tell(b"kill\n" if now else b"end\n")

    def kill(self) -> None:
        """Ends a task that hangs; it is lost then."""
        self.runner.tell(b"kill\n")
        self.killed_by = time.monotonic() + RUNNER_S


class Launcher:
    """Starts all tasks, shows what they say, and ends with them."""

    def __init__(self, options: argparse.Namespace, place: Place) -> None:
        self.options = options
        self._place = place
        self.tasks = place.tasks
        self.output = Output([task.name for task in self.tasks])
        self.running: list[Running] = []
        self.failed: Running | None = None  #: The first one.
        self.signal: int | None = None  #: What ended this program, if that is why.
        self._secret = secrets.token_hex(32)
        self._events = _native.write_events(self._event_file(_events.LAUNCHER))
        self._kills_before = _native.memory_kills()
        self._restarts = Restarts(options.restarts, options.restart_window, {
            "ps": options.on_ps_loss == "restore",
            "voter": True,
            "worker": options.on_worker_loss == "restart",
            "chief 0" if options.chief else "worker 0": options.on_chief_loss == "restart"
            or (not options.chief and options.on_worker_loss == "restart"),
        })  # fmt: skip
        self._watch: HangWatch | None = None
        self._deadline: float | None = None  #: When runners are killed that have not ended.
        self._selector = selectors.DefaultSelector()

    def run(self) -> int:
        """To the end of all tasks: the exit code."""
        wake = self._catch_signals()
        try:
            with announced(self.tasks, self._secret):
                for task in self.tasks:
                    self._start(task)
                self._watch_hangs()
                while any(one.code is None for one in self.running):
                    self._turn(wake)
        finally:
            self._kill_runners()
            self._place.close()
            if self._watch is not None:
                self._watch.close()
            # The exit code is known: one more Ctrl-C while Python ends must not change it.
            for number in ENDING_SIGNALS:
                signal.signal(number, signal.SIG_IGN)
        return self._exit_code()

    def _watch_hangs(self) -> None:
        ps = [task.address for task in self.tasks if task.job == "ps"]
        if not ps or self.options.on_ps_loss != "restore" or not self.options.silence:
            return
        self._watch = HangWatch("ps", ps, self._secret, self.options.silence)
        self._selector.register(self._watch.handle, selectors.EVENT_READ, self._watch)

    def _catch_signals(self) -> int:
        wake, woken = os.pipe()
        for end in (wake, woken):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        for number in ENDING_SIGNALS:
            signal.signal(number, lambda *_: None)
        self._selector.register(wake, selectors.EVENT_READ, None)
        return wake

    def _event_file(self, member: str) -> str:
        """ "": there is no folder for it."""
        folder = self.options.log_dir
        return "" if folder is None else _native.event_file(os.path.abspath(folder), member)

    def _environment(self, task: Task) -> dict[str, str]:
        out = {
            "TF_CONFIG": tf_config(self.tasks, task, self.options.protocol),
            "PYTHONUNBUFFERED": "1",
        }
        # Others may have no such folder.
        if self.options.on == "local" and self.options.log_dir is not None:
            out[_events.VARIABLE] = self._event_file(f"{task.job}-{task.index}")
        for setting in self.options.env:
            name, equals, value = setting.partition("=")
            out[name] = value if equals else os.environ[name]
        return out

    def _start(self, task: Task, is_again: bool = False) -> None:
        options = self.options
        environment = self._environment(task)
        if task.job == "voter":
            events = environment.get(_events.VARIABLE)
            more = [] if events is None else ["--event-log", events]
            argv = voter(str(task.index), cluster_of(self.tasks), *more)
        else:
            argv = script(options)
        config = {
            "argv": [options.python, *argv],
            "env": environment,
            "cwd": os.getcwd(),
            "secret": self._secret,
            "grace_s": options.grace,
        }
        runner = self._place.start(task, config)
        log: BinaryIO | None = None
        if options.log_dir is not None:
            path = Path(options.log_dir) / f"{task.job}-{task.index}.log"
            log = path.open("ab" if is_again else "wb")
        one = Running(task, runner, log)
        self.running = [other for other in self.running if other.task != task]
        self.running.append(one)
        self._selector.register(runner.output, selectors.EVENT_READ, one)
        self._selector.register(runner.handle, selectors.EVENT_READ, one)

    def _turn(self, wake: int) -> None:
        """Waits for whatever comes next and deals with it."""
        deadlines = [self._deadline, *(one.killed_by for one in self.running if one.code is None)]
        left = min((each for each in deadlines if each is not None), default=None)
        if left is not None:
            left = max(0.0, left - time.monotonic())
        ended: list[Running] = []
        for key, _ in self._selector.select(left):
            one: Any = key.data
            if key.fd == wake:
                self._interrupt(os.read(wake, 64)[0])
            elif self._watch is not None and one is self._watch:
                for hang in self._watch.take():
                    self._kill_hung(hang)
            elif key.fd == one.runner.handle:
                ended.append(one)
            else:
                self._read(one)
        for one in ended:
            self._finish(one)
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._kill_runners()
            self._deadline += RUNNER_S
        for one in self.running:
            if one.code is None and one.killed_by is not None and one.killed_by < time.monotonic():
                one.runner.kill()
                one.killed_by = None

    def _read(self, one: Running) -> bool:
        """Takes what the task has printed; False when there is no more now."""
        try:
            content = os.read(one.runner.output, LINE_BYTES_MAX)
        except BlockingIOError:
            return False
        if not content:
            with contextlib.suppress(KeyError):
                self._selector.unregister(one.runner.output)
            return False
        if one.log is not None:
            one.log.write(content)
            one.log.flush()
        *lines, one.pending = (one.pending + content).split(b"\n")
        if len(one.pending) > LINE_BYTES_MAX:
            lines, one.pending = [*lines, one.pending], b""
        for line in lines:
            self._show(one, line)
        return True

    def _show(self, one: Running, line: bytes) -> None:
        one.last.append(line)
        try:
            self.output.write(one.task.name, line)
        except OSError:  # Nobody reads any more: as if this program had been told to end.
            self._interrupt(signal.SIGPIPE)

    def _finish(self, one: Running) -> None:
        """A runner has ended: all its task printed is in the pipe."""
        while self._read(one):
            pass
        if one.pending:
            self._show(one, one.pending)
            one.pending = b""
        self._selector.unregister(one.runner.handle)
        with contextlib.suppress(KeyError):
            self._selector.unregister(one.runner.output)
        one.code = one.runner.wait()
        one.runner.close()
        if one.log is not None:
            one.log.close()
        number = signal_of(one.code)
        tell("task_down", one.task, why=self._end_of(one), signal=number)
        if self._is_started_again(one):
            return
        if one.code != 0 and not one.asked_to_end and self.failed is None:
            self.failed = one
            self._report(one)
            self._end_all()
        others = [other for other in self.running if other.task.job not in ("ps", "voter")]
        if others and all(other.code is not None for other in others):
            self._end_all()

    def _is_started_again(self, one: Running) -> bool:
        """Starts a task again that was lost, at its address, if that is asked for."""
        assert one.code is not None
        is_lost = was_killed(one.code) and not one.asked_to_end and self._deadline is None
        if not is_lost or not self._restarts.is_supervised(one.task.job, one.task.name):
            return False
        count = self._restarts.take(one.task.name, time.monotonic())
        options = self.options
        within = f"within {options.restart_window:g} s"
        if count is None:
            say(f"{one.task.name} was lost more than {options.restarts} times {within}")
            return False
        try:
            self._start(one.task, is_again=True)
        except PlaceError as error:
            say(f"{one.task.name} cannot be started again: {error}")
            return False
        tell("task_restarted", one.task, (
            f"{one.task.name} is lost ({self._end_of(one)}) and was started again at "
            f"{one.task.address}; restart {count} of at most {options.restarts} {within}"
        ), address=one.task.address)  # fmt: skip
        return True

    def _kill_hung(self, hang: Hang) -> None:
        """A task that hangs becomes one that has died; nothing else is started there before."""
        for one in self.running:
            is_meant = one.task.job == "ps" and one.task.index == hang.index
            if not is_meant or one.code is not None or one.asked_to_end:
                continue
            if one.began > hang.heard or one.killed_by is not None:
                continue  # It was a life before this one, or it dies already.
            tell("task_hung", one.task,
                 f"{one.task.name} has not answered for {hang.silent_s:.1f} s and is killed",
                 silent_s=hang.silent_s)  # fmt: skip
            one.kill()

    def _end_of(self, one: Running) -> str:
        """How a task has ended."""
        assert one.code is not None
        return describe(one.code, self._kills_before)

    def _report(self, one: Running) -> None:
        where = "" if one.task.host is None else f" on {one.task.host}"
        left = sum(other.code is None for other in self.running)
        say(f"{one.task.name}{where} failed first: {self._end_of(one)}; ending {left} others")
        if one.last:
            say(f"the last lines of {one.task.name}:")
            for line in one.last:
                say("  " + line.decode(errors="replace"))

    def _end_all(self, now: bool = False) -> None:
        """Asks all tasks that run to end. They have the grace, and their runners a little more."""
        for one in self.running:
            if one.code is None and (now or not one.asked_to_end):
                one.end(now)
        if self._deadline is None:
            self._deadline = time.monotonic() + self.options.grace + RUNNER_S

    def _interrupt(self, number: int) -> None:
        again = self.signal is not None
        if not again:
            self.signal = number
        self._end_all(now=again and number == signal.SIGINT)

    def _kill_runners(self) -> None:
        """Runners that did not end in time, and with them their tasks."""
        for one in self.running:
            if one.code is None:
                one.asked_to_end = True
                one.runner.kill()

    def _exit_code(self) -> int:
        if self.signal is not None:
            return 128 + self.signal
        leader = next(
            (one for one in self.running if one.task.name in ("chief 0", "worker 0")), None
        )
        for one in (leader, self.failed):
            if one is not None and one.code and not one.asked_to_end:
                return one.code if one.code > 0 else 128 - one.code
        return 0


def tell(event: str, task: Task, said: str = "", **fields: Any) -> None:
    """An event of a task, and the line that says the same."""
    if said:
        say(said)
    name = f"/job:{task.job}/task:{task.index}"
    _events.emit(event, by=_events.LAUNCHER, task=name, **fields)


def say(line: str) -> None:
    _usage.say("launch", line)


def main(arguments: Sequence[str]) -> int:
    """`sidereal launch ARGUMENTS`: the exit code."""
    options = parser().parse_args(arguments)
    wrong = check(options)
    if wrong is not None:
        say(f"error: {wrong}; see sidereal launch --help")
        return USAGE_ERROR
    if options.log_dir is not None:
        try:
            os.makedirs(options.log_dir, exist_ok=True)
        except OSError as error:
            say(f"error: --log-dir: {error}")
            return USAGE_ERROR
    if options.on == "kubernetes":
        print(json.dumps(manifests(options), indent=2))
        return 0
    try:
        place = place_of(options)
    except PlaceError as error:
        say(f"error: {error}")
        return 1
    return Launcher(options, place).run()
