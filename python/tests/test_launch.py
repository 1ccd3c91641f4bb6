"""`sidereal launch` with real processes: what they are given, and how they all end."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from launches import Launch

from sidereal import _native
from sidereal.launch import Task, announced, describe

#: Seconds a loaded machine may take for what usually takes one.
PATIENCE_S = 60

#: Each task says who it is, then does what its first argument has under its name.
SCRIPT = r"""
import json, os, signal, subprocess, sys

config = json.loads(os.environ["TF_CONFIG"])
name = f"{config['task']['type']} {config['task']['index']}"
file = os.environ["SIDEREAL_SECRET_FILE"]
facts = {"pid": os.getpid(), "parent": os.getppid(), "config": config, "file": file,
         "mode": os.stat(file).st_mode & 0o777,
         "secret": open(file).read(), "arguments": sys.argv[2:], "extra": os.environ.get("EXTRA"),
         "cwd": os.getcwd()}
plan = json.loads(sys.argv[1])
what, *more = plan.get(name, plan.get("all", "exit 0")).split()
if what == "told":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
if what == "ignore":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if what == "child":
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
    facts["child"] = subprocess.Popen([sys.executable, "-S", "-c", code]).pid
print("facts", json.dumps(facts))
if what == "print":
    for i in range(int(more[0])):
        stream = sys.stderr if i % 3 == 0 else sys.stdout
        stream.write(f"line {i} " + "x" * (i % 300) + "\n")
        stream.flush()
elif what == "told":
    signal.sigwait({signal.SIGUSR1})
elif what == "half":
    print("first\nlast without an end", end="")
elif what == "exit":
    if more[0] != "0":
        print("about to fail")
    sys.exit(int(more[0]))
else:
    while True:
        signal.pause()
"""


Starter = Callable[..., Launch]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "task.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture
def launch(script: Path, tmp_path: Path) -> Iterator[Starter]:
    """launch(options, plan, arguments...): a Launch of the script."""
    started: list[Launch] = []
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    environment.pop("NO_COLOR", None)

    def start(
        options: str, plan: dict[str, str] | None = None, *arguments: str, **how: Any
    ) -> Launch:
        words = [*options.split(), str(script), json.dumps(plan or {}), *arguments]
        started.append(Launch(words, environment, **how))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.end()


def ended(pids: list[int]) -> bool:
    """Whether all these processes end in time; those of them that are nobody's children are waited
    for as well."""
    deadline = time.monotonic() + PATIENCE_S
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            if not select.select([handle], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return False
        finally:
            os.close(handle)
    return True


def test_every_task_knows_the_cluster_and_its_place_in_it(launch: Starter) -> None:
    plan = {"all": "told", "ps 0": "wait", "ps 1": "wait"}
    one = launch("--ps 2 --workers 2 --chief --evaluator", plan, "a b")
    assert one.end_when_told(6) == 0, one.errors
    assert set(one.facts) == {"chief 0", "ps 0", "ps 1", "worker 0", "worker 1", "evaluator 0"}
    cluster = one.facts["chief 0"]["config"]["cluster"]
    assert {job: len(tasks) for job, tasks in cluster.items()} == {"chief": 1, "ps": 2, "worker": 2}
    addresses = [address for addresses in cluster.values() for address in addresses]
    assert len(set(addresses)) == 5 and all(a.startswith("127.0.0.1:") for a in addresses)
    for name, fact in one.facts.items():
        job, index = name.split()
        assert fact["config"] == {"cluster": cluster, "task": {"type": job, "index": int(index)}}
        assert fact["arguments"] == ["a b"]


def test_the_cluster_has_a_secret_in_files_that_only_the_user_can_read(launch: Starter) -> None:
    one = launch("--ps 1 --workers 2", {"all": "wait"})
    one.wait_for(3)
    assert len({fact["secret"] for fact in one.facts.values()}) == 1
    secret = one.facts["worker 0"]["secret"].strip()
    assert len(secret) >= 32
    for fact in one.facts.values():
        assert fact["mode"] == 0o600
    # Nor is it where everybody on the machine can read: in the arguments of processes.
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                assert secret.encode() not in (entry / "cmdline").read_bytes()
            except OSError:
                continue
    one.process.send_signal(signal.SIGTERM)
    assert one.end() == 128 + signal.SIGTERM
    assert secret not in "\n".join(line for line in one.lines if " facts " not in line) + one.errors
    assert not any(os.path.exists(fact["file"]) for fact in one.facts.values())


def test_two_launches_have_different_secrets(launch: Starter) -> None:
    one, two = launch("--ps 0"), launch("--ps 0")
    assert (one.end(), two.end()) == (0, 0)
    assert one.facts["worker 0"]["secret"] != two.facts["worker 0"]["secret"]


def test_ps_tasks_are_ended_when_all_others_have_ended_well(launch: Starter) -> None:
    # One of them does not end when it is asked to.
    one = launch("--ps 2 --workers 2 --grace 0.2", {"ps 0": "wait", "ps 1": "ignore"})
    assert one.end() == 0, one.errors
    assert ended(one.pids())


def test_the_exit_code_is_that_of_the_chief(launch: Starter) -> None:
    one = launch("--ps 0 --workers 1 --chief", {"chief 0": "exit 7", "worker 0": "wait"})
    assert one.end() == 7
    assert "chief 0 failed first: exit code 7" in one.errors


def test_the_first_failure_is_named_with_its_last_lines_and_ends_all(launch: Starter) -> None:
    one = launch("--ps 1 --workers 3", {"all": "wait", "worker 1": "exit 3"})
    assert one.end() == 3
    assert "worker 1 failed first: exit code 3" in one.errors
    assert "sidereal launch:   about to fail" in one.errors
    assert one.errors.count("failed first") == 1
    assert ended(one.pids())


def test_a_killed_task_is_named_with_its_signal_and_ends_all(launch: Starter) -> None:
    one = launch("--ps 1 --workers 2", {"all": "wait"})
    one.wait_for(3)
    os.kill(one.facts["worker 1"]["pid"], signal.SIGKILL)
    assert one.end() == 128 + signal.SIGKILL
    assert "worker 1 failed first: killed by signal 9 (SIGKILL)" in one.errors
    assert ended(one.pids())


def test_a_task_that_the_kernel_killed_for_want_of_memory() -> None:
    now = _native.memory_kills()
    assert describe(-signal.SIGKILL, now) == "killed by signal 9 (SIGKILL)"
    # As if one had been killed since.
    said = describe(-signal.SIGKILL, now - 1)
    assert said.endswith("(SIGKILL), most likely as memory ran out")
    assert describe(-signal.SIGTERM, now - 1) == "killed by signal 15 (SIGTERM)"


def test_a_task_whose_runner_is_killed_ends_with_it(launch: Starter) -> None:
    one = launch("--ps 0 --workers 2 --grace 0.2", {"all": "ignore"})
    one.wait_for(2)
    os.kill(one.facts["worker 1"]["parent"], signal.SIGKILL)
    assert one.end() == 128 + signal.SIGKILL
    assert "worker 1 failed first: killed by signal 9 (SIGKILL)" in one.errors
    assert ended(one.pids())


#: With runners that get more time than a test has.
SLOW_RUNNERS = f"""
import sys
from sidereal import launch
launch.RUNNER_S = {2 * PATIENCE_S}
sys.exit(launch.main(sys.argv[1:]))
"""


def test_a_task_that_ignores_sigterm_is_killed_after_the_grace(launch: Starter) -> None:
    one = launch(
        "--ps 0 --workers 2 --grace 0.2", {"worker 0": "ignore", "worker 1": "wait"},
        program=["-c", SLOW_RUNNERS],
    )  # fmt: skip
    one.wait_for(2)
    os.kill(one.facts["worker 1"]["pid"], signal.SIGSEGV)
    started = time.monotonic()
    assert one.end() == 128 + signal.SIGSEGV
    assert time.monotonic() - started < PATIENCE_S  # The runner's own deadline would be later.
    assert ended(one.pids())


def test_a_ps_that_was_killed_is_started_again_at_its_address(
    launch: Starter, tmp_path: Path
) -> None:
    options = f"--ps 2 --workers 2 --on-ps-loss restore --log-dir {tmp_path}"
    one = launch(options, {"all": "told", "ps 0": "wait", "ps 1": "wait"})
    one.wait_for(4)
    first = dict(one.facts)
    for number in (1, 2):
        os.kill(one.facts["ps 1"]["pid"], signal.SIGKILL)
        again = one.next_life("ps 1")
        assert again["config"] == first["ps 1"]["config"], number
        assert again["secret"] == first["ps 1"]["secret"]
    # Nobody else was disturbed.
    assert {name: one.facts[name] for name in first if name != "ps 1"} == {
        name: fact for name, fact in first.items() if name != "ps 1"
    }
    assert one.end_when_told(4) == 0
    address = first["ps 1"]["config"]["cluster"]["ps"][1]
    for number in (1, 2):
        assert (
            "ps 1 is lost (killed by signal 9 (SIGKILL)) and was started again at "
            f"{address}; restart {number} of at most 5 within 600 s\n"
        ) in one.errors
    # The output of all its lives, and what the launcher has seen of it.
    assert (tmp_path / "ps-1.log").read_text().count("facts") == 3
    told = [json.loads(line) for line in (tmp_path / "launcher.events.jsonl").open()]
    events = [(event["event"], event["fields"].get("signal")) for event in told
              if event["fields"]["task"] == "/job:ps/replica:0/task:1"]  # fmt: skip
    assert events[:4] == [("task_down", signal.SIGKILL), ("task_restarted", None)] * 2
    assert ended(one.pids())


def test_a_worker_that_was_killed_is_started_again(launch: Starter) -> None:
    one = launch("--ps 0 --workers 2 --on-worker-loss restart", {"all": "told"})
    one.wait_for(2)
    for worker in ("worker 1", "worker 0"):
        os.kill(one.facts[worker]["pid"], signal.SIGKILL)
        one.next_life(worker)
    assert one.end_when_told(2) == 0
    assert "worker 1 is lost (killed by signal 9 (SIGKILL)) and was started again" in one.errors


def test_a_ps_that_is_lost_too_often_has_failed(launch: Starter) -> None:
    options = "--ps 1 --workers 1 --on-ps-loss restore --restarts 1 --restart-window 300"
    one = launch(options, {"all": "wait"})
    one.wait_for(2)
    os.kill(one.facts["ps 0"]["pid"], signal.SIGKILL)
    os.kill(one.next_life("ps 0")["pid"], signal.SIGKILL)
    assert one.end() == 128 + signal.SIGKILL
    assert "ps 0 was lost more than 1 times within 300 s" in one.errors
    assert "ps 0 failed first: killed by signal 9 (SIGKILL)" in one.errors
    assert ended(one.pids())


def test_losses_that_lie_long_ago_do_not_count(launch: Starter) -> None:
    options = "--ps 1 --workers 1 --on-ps-loss restore --restarts 1 --restart-window 0"
    one = launch(options, {"ps 0": "wait", "worker 0": "told"})
    one.wait_for(2)
    for _ in range(3):
        os.kill(one.facts["ps 0"]["pid"], signal.SIGKILL)
        one.next_life("ps 0")
    assert one.end_when_told(2) == 0


def test_a_ps_that_ends_with_an_exit_code_is_not_started_again(launch: Starter) -> None:
    one = launch("--ps 1 --workers 1 --on-ps-loss restore", {"ps 0": "exit 3", "all": "wait"})
    assert one.end() == 3
    assert "ps 0 failed first: exit code 3" in one.errors
    assert "started again" not in one.errors


@pytest.mark.parametrize("options, leader", [("", "worker 0"), ("--chief", "chief 0")])
def test_a_leader_that_was_killed_is_started_again(
    launch: Starter, options: str, leader: str
) -> None:
    one = launch(f"--ps 1 --workers 2 --on-chief-loss restart {options}",
                 {"all": "told", "ps 0": "wait"})  # fmt: skip
    tasks = 3 + len(options.split())
    one.wait_for(tasks)
    os.kill(one.facts[leader]["pid"], signal.SIGKILL)
    one.next_life(leader)
    assert one.end_when_told(tasks) == 0
    assert f"{leader} is lost (killed by signal 9 (SIGKILL)) and was started again" in one.errors


def test_a_worker_is_not_started_again(launch: Starter) -> None:
    options = "--ps 1 --workers 2 --on-chief-loss restart --on-ps-loss restore"
    one = launch(options, {"all": "wait"})
    one.wait_for(3)
    os.kill(one.facts["worker 1"]["pid"], signal.SIGKILL)
    assert one.end() == 128 + signal.SIGKILL
    assert "worker 1 failed first" in one.errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_all_and_is_the_exit_code(launch: Starter, number: signal.Signals) -> None:
    one = launch("--ps 1 --workers 2", {"all": "wait"})
    one.wait_for(3)
    one.process.send_signal(number)
    assert one.end() == 128 + number
    assert ended(one.pids())
    assert "failed" not in one.errors


def test_a_second_ctrl_c_leaves_out_the_grace(launch: Starter) -> None:
    one = launch("--ps 0 --workers 2 --grace 600", {"all": "ignore"})
    one.wait_for(2)
    one.process.send_signal(signal.SIGINT)
    handle = os.pidfd_open(one.process.pid)
    while not select.select([handle], [], [], 0.1)[0]:
        one.process.send_signal(signal.SIGINT)
    os.close(handle)
    assert one.end() == 130
    assert ended(one.pids())


def test_when_launch_is_killed_all_it_started_ends(launch: Starter) -> None:
    one = launch("--ps 1 --workers 2 --grace 0.2", {"all": "child", "worker 0": "ignore"})
    one.wait_for(3)
    assert len(one.pids()) == 5
    one.process.kill()
    assert ended(one.pids())
    one.end()


def test_what_a_task_leaves_behind_ends_with_it(launch: Starter) -> None:
    one = launch("--ps 0 --workers 1", {"worker 0": "child"})
    one.wait_for(1)
    os.kill(one.facts["worker 0"]["pid"], signal.SIGKILL)
    one.end()
    assert ended(one.pids())


def test_lines_stay_whole_and_in_order(launch: Starter) -> None:
    one = launch("--ps 0 --workers 4", {"all": "print 2000"})
    assert one.end() == 0
    for index in range(4):
        prefix = f"[worker {index}] line "
        lines = [line.removeprefix(prefix) for line in one.lines if line.startswith(prefix)]
        assert lines == [f"{i} " + "x" * (i % 300) for i in range(2000)]
    assert len(one.lines) == 4 * 2001


def test_when_nobody_reads_its_output_any_more_all_ends(launch: Starter) -> None:
    one = launch("--ps 0 --workers 2", {"worker 0": "print 100000", "worker 1": "wait"})
    one.wait_for(2)
    assert one.process.stdout is not None
    one.process.stdout.close()
    assert one.process.wait(PATIENCE_S) == 128 + signal.SIGPIPE
    assert ended(one.pids())


def test_a_last_line_without_an_end_is_shown(launch: Starter) -> None:
    one = launch("--ps 0 --workers 1", {"all": "half"})
    assert one.end() == 0
    assert one.lines[-2:] == ["[worker 0] first", "[worker 0] last without an end"]


def test_logs_and_variables_are_where_they_were_asked_for(launch: Starter, tmp_path: Path) -> None:
    logs = tmp_path / "logs" / "today"
    one = launch(f"--ps 0 --workers 2 --env EXTRA=5 --log-dir {logs}", {"all": "print 10"})
    assert one.end() == 0
    assert one.facts["worker 1"]["extra"] == "5"
    text = (logs / "worker-1.log").read_text().splitlines()
    assert len(text) == 11 and text[-1] == "line 9 xxxxxxxxx"


def test_a_module_is_run_by_its_name(launch: Starter, tmp_path: Path) -> None:
    (tmp_path / "small_module.py").write_text("print('as a module', __name__)")
    environment = os.environ | {"PYTHONPATH": f"{os.environ['PYTHONPATH']}:{tmp_path}"}
    one = Launch(["--ps", "0", "--module", "small_module"], environment)
    assert one.end() == 0, one.errors
    assert one.lines == ["[worker 0] as a module __main__"]


@pytest.mark.parametrize("words, said", [
    (["nowhere.py"], "there is no file nowhere.py"),
    (["--workers", "-1", "x.py"], "--workers is -1"),
    (["--ps", "0", "--workers", "0", __file__], "there is no task to run"),
    (["--env", "NOT_SET_HERE", __file__], "NOT_SET_HERE"),
    (["--hosts", "a,,b", __file__], "write names with commas"),
    (["--replicas", "2", "--min-insync-replicas", "3", "--ps", "2", __file__],
     "--min-insync-replicas is 3, and --replicas is 2"),
    (["--voters", "3", "--ps", "2", __file__],
     "--voters is 3, and there is nothing to decide with --replicas 1"),
    (["--voters", "-1", __file__], "--voters is -1; it must be at least 0"),
    (["--replicas", "3", "--ps", "2", __file__], "--replicas is 3, and there are 2 parameter"),
])  # fmt: skip
def test_wrong_usage_is_said_before_anything_starts(words: list[str], said: str) -> None:
    one = Launch(words, dict(os.environ))
    assert one.end() == 2
    assert said in one.errors and not one.lines


@pytest.mark.parametrize("no_color", [False, True])
def test_prefixes_have_colors_on_a_terminal_unless_they_are_unwanted(
    script: Path, no_color: bool
) -> None:
    ours, theirs = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")}
    environment |= {"TERM": "xterm"} | ({"NO_COLOR": "1"} if no_color else {})
    words = [sys.executable, "-m", "sidereal", "launch", "--ps", "0", str(script), "{}"]
    process = subprocess.Popen(words, stdout=theirs, stdin=subprocess.DEVNULL, env=environment)
    os.close(theirs)
    shown = b""
    while True:
        try:
            content = os.read(ours, 4096)
        except OSError:  # The other end is closed.
            break
        if not content:
            break
        shown += content
    assert process.wait(PATIENCE_S) == 0
    os.close(ours)
    assert shown.startswith(b"[worker 0] " if no_color else b"\x1b[36m[worker 0]\x1b[0m ")


@pytest.fixture
def ssh(tmp_path: Path) -> Path:
    """An ssh that runs the command here, and notes what it was asked for."""
    path = tmp_path / "fake_ssh"
    path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {tmp_path}/asked\nshift\nexec sh -c "$*"\n')
    path.chmod(0o755)
    return path


def test_hosts_take_tasks_in_turn_and_the_secret_is_not_in_arguments(
    launch: Starter, ssh: Path, tmp_path: Path
) -> None:
    one = launch(
        f"--ps 2 --workers 3 --hosts a,me@b --port 4000 --ssh {ssh}",
        {"all": "told", "ps 0": "wait", "ps 1": "wait"},
        "it's one word",
    )
    assert one.end_when_told(5) == 0, one.errors
    assert one.facts["worker 0"]["config"]["cluster"] == {
        "ps": ["a:4000", "b:4000"],
        "worker": ["a:4001", "b:4001", "a:4002"],
    }
    assert {fact["secret"] for fact in one.facts.values()} == {one.facts["worker 0"]["secret"]}
    assert one.facts["worker 2"]["arguments"] == ["it's one word"]
    assert one.facts["worker 2"]["cwd"] == os.getcwd()
    asked = (tmp_path / "asked").read_text()
    assert asked.count("\na ") + asked.startswith("a ") == 3 and asked.count("me@b ") == 2
    assert one.facts["worker 0"]["secret"].strip() not in asked
    assert not any(os.path.exists(fact["file"]) for fact in one.facts.values())


def test_a_failure_on_a_host_is_named_with_the_host(launch: Starter, ssh: Path) -> None:
    one = launch(f"--ps 1 --workers 2 --hosts a,b --ssh {ssh}", {"all": "wait"})
    one.wait_for(3)
    os.kill(one.facts["worker 0"]["pid"], signal.SIGKILL)
    assert one.end() == 128 + signal.SIGKILL
    assert "worker 0 on b failed first: killed by signal 9 (SIGKILL)" in one.errors
    assert ended(one.pids())


def test_tasks_on_hosts_end_when_launch_is_killed(launch: Starter, ssh: Path) -> None:
    one = launch(f"--ps 0 --workers 2 --grace 0.2 --hosts a --ssh {ssh}", {"all": "child"})
    one.wait_for(2)
    one.process.kill()
    assert ended(one.pids())


def test_a_host_that_cannot_be_reached_is_named(launch: Starter, tmp_path: Path) -> None:
    broken = tmp_path / "broken_ssh"
    broken.write_text("#!/bin/sh\necho no route to host >&2\nexit 255\n")
    broken.chmod(0o755)
    one = launch(f"--ps 0 --workers 1 --hosts far --ssh {broken}")
    assert one.end() == 255
    assert "worker 0 on far failed first: exit code 255" in one.errors
    assert "no route to host" in one.errors


def test_a_protocol_is_told_to_all_tasks(launch: Starter) -> None:
    one = launch("--ps 1 --workers 1 --protocol star_server")
    assert one.end() == 0
    assert {fact["config"]["rpc_layer"] for fact in one.facts.values()} == {"star_server"}
    assert launch("--protocol rdma").end() == 2


def test_a_cluster_is_announced_while_it_runs() -> None:
    def found() -> list[str]:
        """What this process announces, as `sidereal top` reads it."""
        out = []
        for link in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                if os.readlink(link).startswith("/memfd:sidereal-cluster"):
                    out.append(link.read_text())
        return out

    tasks = [
        Task("ps", 0, address="127.0.0.1:1"),
        Task("worker", 0, address="127.0.0.1:2"),
    ]
    before = found()  # What other tests have left for the collector.
    with announced(tasks, "secret"):
        (text,) = set(found()) - set(before)
        pid, _, _, secret, cluster = text.split("\n")
        assert (int(pid), secret) == (os.getpid(), "secret")
        assert json.loads(cluster) == {"ps": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"]}
    assert text not in found()
