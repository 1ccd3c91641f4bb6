"""What benchmarks that are Python programs share: servers, quiet windows, figures in documents."""

from __future__ import annotations

import argparse
import collections
import gc
import importlib.metadata
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import sidereal as sr
from sidereal.distribute.cluster_resolver import SimpleClusterResolver
from sidereal.launch import ReservedPorts

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(os.environ.get("SIDEREAL_BIN_DIR", ROOT / "build/release/bin"))
PEER_SERVER = ROOT / "bench/peers/tensorflow_task.py"
#: What other programs may use while something is measured, of one core.
FOREIGN_MAX = 0.10

T = TypeVar("T")

#: Options of servers. Tasks of other hosts would come over TCP, all of them.
OVER_TCP = ("--option", "shared_memory=0")
_reserved: list[ReservedPorts] = []


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens at, and nobody takes while this process runs."""
    _reserved.append(ReservedPorts(count))
    return _reserved[-1].ports


class Child:
    """A process that is measured, and what it says line by line."""

    def __init__(
        self, command: Sequence[str], stdin: int | None = None, stderr: int | None = None
    ) -> None:
        self._process = subprocess.Popen(
            command, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, text=True
        )

    def read_line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def write_line(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class Server(Child):
    """A task of a cluster, in a process of `sidereal serve`."""

    def __init__(
        self,
        cluster: dict[str, list[str]],
        job: str,
        task: int,
        protocol: str,
        cores: Iterable[int] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self.address = cluster[job][task]
        command = [str(BIN / "sidereal"), "serve", "--cluster", json.dumps(cluster), "--job", job]
        command += ["--task", str(task), "--protocol", protocol, *options]
        if cores is not None:
            command = ["taskset", "-c", ",".join(map(str, cores)), *command]
        super().__init__(command, stderr=subprocess.DEVNULL)
        line = self.read_line()
        if not line.rstrip().rpartition(":")[2].isdigit():
            self.close()
            raise RuntimeError(f"a server of {job} {task} with {protocol} did not start: {line}")


class Side:
    """An engine in processes of its own, which a benchmark has take turns with others. found: what
    its windows have shown, by what was measured."""

    #: What Sidereal's servers are started with.
    server_options: Sequence[str] = OVER_TCP

    def __init__(self, name: str) -> None:
        self.name = name
        self.processes: list[Child] = []
        self.found: dict[Any, list[dict[str, float]]] = collections.defaultdict(list)

    def busy_seconds(self) -> float:
        """Processor time so far of all that is a part of it."""
        return sum(process.cpu_seconds() for process in self.processes)

    def window(self, kind: Any, seconds: float) -> dict[str, float]:
        """What about so many seconds of a kind of work show."""
        raise NotImplementedError

    def measure(self, kind: Any, seconds: float, quiet: Quiet) -> None:
        """Adds to what is found, with the processor time of the window."""

        def window() -> dict[str, float]:
            busy = self.busy_seconds()
            figures = self.window(kind, seconds)
            return {**figures, "cpu_s": self.busy_seconds() - busy}

        self.found[kind].append(
            quiet.measure(lambda: Side.busy_seconds(self) + cpu_seconds(os.getpid()), window)
        )

    def serve(self, cluster: dict[str, list[str]], protocol: str) -> None:
        """Starts Sidereal's servers."""
        for job, task in tasks_of(cluster):
            self.processes.append(
                Server(cluster, job, task, protocol, options=self.server_options)
            )

    def close(self) -> None:
        for process in self.processes:
            process.close()


class Coordinating(Side):
    """Sidereal's servers with one protocol, and their coordinator, which is this process."""

    def __init__(
        self,
        name: str,
        cluster: dict[str, list[str]],
        protocol: str,
        begin: Callable[[Any, Any], Any],
        **options: Any,
    ) -> None:
        """begin(strategy, coordinator) makes what is measured; options are the coordinator's."""
        super().__init__(name)
        try:
            self.serve(cluster, protocol)
            strategy = sr.distribute.ParameterServerStrategy(
                SimpleClusterResolver(sr.train.ClusterSpec(cluster))
            )
            coordinator = sr.distribute.coordinator.ClusterCoordinator(strategy, **options)
            self.job = begin(strategy, coordinator)
        except BaseException:
            self.close()
            raise

    def busy_seconds(self) -> float:
        return super().busy_seconds() + cpu_seconds(os.getpid())

    def window(self, kind: Any, seconds: float) -> dict[str, float]:
        found: dict[str, float] = self.job.window(kind, seconds)
        return found

    def close(self) -> None:
        self.job = None
        # Its functions refer to it: the coordinator is to end before its servers.
        gc.collect()
        super().close()


class Peer(Side):
    """TensorFlow's servers, and a client of them: each says a line of JSON when it is up, and the
    client one for each line that it is told."""

    def __init__(
        self, cluster: dict[str, list[str]], program: Path, *arguments: str, to_worker: bool = False
    ) -> None:
        """The client is `program` with the arguments, the cluster, and, if it is to_worker, the
        target of the last worker."""
        super().__init__("TensorFlow, grpc")
        try:
            for job, task in tasks_of(cluster):
                self._start(PEER_SERVER, "serve", json.dumps(cluster), job, str(task))
            target = [self._hear(process)["target"] for process in self.processes][-1]
            more = [target] if to_worker else []
            self._client = self._start(program, *arguments, json.dumps(cluster), *more)
            #: What the client said when it was up.
            self.first = self._hear(self._client)
        except BaseException:
            self.close()
            raise

    def window(self, kind: Any, seconds: float) -> dict[str, float]:
        self._client.write_line(f"{kind} {seconds}")
        found: dict[str, float] = self._hear(self._client)
        return found

    def _start(self, program: Path, *arguments: str) -> Child:
        child = Child(
            [sys.executable, str(program), *arguments],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.processes.append(child)
        return child

    @staticmethod
    def _hear(child: Child) -> Any:
        line = child.read_line()
        if not line:
            raise RuntimeError("a process of TensorFlow ended before it said anything")
        return json.loads(line)


def tensorflow_version() -> str | None:
    """Of the package that is installed; None without one. Not asked of the module: here, that would
    be bench/tensorflow.py."""
    try:
        return importlib.metadata.version("tensorflow-cpu")
    except importlib.metadata.PackageNotFoundError:
        return None


def local_cluster(ps: int, workers: int) -> dict[str, list[str]]:
    """A cluster on loopback, nobody of which listens yet."""
    ports = [f"127.0.0.1:{port}" for port in free_ports(ps + workers)]
    return {"ps": ports[:ps], "worker": ports[ps:]}


def tasks_of(cluster: dict[str, list[str]]) -> list[tuple[str, int]]:
    return [(job, task) for job, hosts in cluster.items() for task in range(len(hosts))]


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    # The kernel's number of the clock of another process: clock_getcpuclockid(3).
    return time.clock_gettime((~pid << 3) | 2)


def machine_busy_seconds() -> float:
    """Processor time of everything on this machine so far, time stolen by the host included."""
    line = Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0]
    user, nice, system, _idle, _wait, irq, softirq, steal, *_ = map(int, line.split()[1:])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def congestion_control() -> str:
    """What TCP sockets of this machine use that are not told otherwise."""
    path = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    return path.read_text(encoding="utf-8").strip() if path.exists() else "unknown"


class Quiet:
    """Measures again what other programs disturbed, within limits."""

    def __init__(self, noisy_max: int) -> None:
        self._noisy_max = noisy_max
        self.windows = 0
        self.noisy = 0
        self.kept = 0
        self._foreign_s = 0.0
        self._seconds = 0.0

    def measure(self, own: Callable[[], float], window: Callable[[], T]) -> T:
        """What `window` says. own: processor time so far of all that is measured."""
        while True:
            began, busy, mine = time.monotonic(), machine_busy_seconds(), own()
            figures = window()
            seconds = time.monotonic() - began
            foreign = machine_busy_seconds() - busy - (own() - mine)
            self.windows += 1
            if foreign > FOREIGN_MAX * seconds:
                self.noisy += 1
                if self.noisy <= self._noisy_max:
                    continue
                self.kept += 1
            self._foreign_s += max(foreign, 0.0)
            self._seconds += seconds
            return figures

    def summary(self) -> str:
        share = self._foreign_s / max(self._seconds, 1e-9)
        return (
            f"{self.windows} windows, {self.noisy} disturbed by other programs (more than"
            f" {FOREIGN_MAX:.0%} of a core): {self.noisy - self.kept} measured again, {self.kept}"
            f" kept; others used {share:.1%} of a core in those that count"
        )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def write_figures(document: Path, name: str, text: str) -> None:
    """Puts text between the marks `figures:name:begin` and `figures:name:end` of a document."""
    begin, end = f"<!-- figures:{name}:begin -->\n", f"<!-- figures:{name}:end -->"
    old = document.read_text(encoding="utf-8")
    if begin not in old or end not in old:
        raise ValueError(f"{document} has no marks {begin.strip()} and {end}")
    head, rest = old.split(begin, 1)
    document.write_text(head + begin + text + end + rest.split(end, 1)[1], encoding="utf-8")


#: Colours of bars, for light and dark backgrounds.
_COLOURS = ("#8c8c8c", "#b5b5b5", "#5b8fd6", "#8fb4e6", "#d0743c", "#3f9b6c")


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """What make_report() looks at."""
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--write", type=Path, help="put the figures into this document")
    parser.add_argument("--take", type=Path, help="take the rows of this file; measure nothing")


def make_report(
    arguments: argparse.Namespace,
    measure: Callable[[argparse.Namespace], dict[str, Any]],
    write: Callable[[dict[str, Any], Path], None],
) -> None:
    """Measures, or takes what was measured before, and writes it where it is wanted."""
    if arguments.take is not None:
        figures = json.loads(arguments.take.read_text(encoding="utf-8"))
    else:
        figures = measure(arguments)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    if arguments.write is not None:
        write(figures, arguments.write)


def add_model_arguments(
    parser: argparse.ArgumentParser, names: Sequence[str], seconds: float
) -> None:
    """What measure_models() looks at, beside what reports do."""
    add_report_arguments(parser)
    parser.add_argument("--only", nargs="+", choices=names, default=list(names))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=seconds, help="of a window")
    parser.add_argument(
        "--noisy-max", type=int, default=40, help="disturbed windows measured again at most"
    )
    parser.add_argument("--quick", action="store_true", help="one short window: does it work?")


def parse_model_arguments(parser: argparse.ArgumentParser) -> argparse.Namespace:
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.seconds, arguments.noisy_max = 1, 0.05, 0
    return arguments


def model_conditions(arguments: argparse.Namespace) -> str:
    """How models on servers are measured, in words."""
    return (
        f"Medians of {arguments.rounds} windows of {arguments.seconds:g} s, taken in turns. All"
        f" processes on {os.cpu_count()} processors, loopback TCP; gRPC's sockets use"
        f" {congestion_control()}, the others cubic; our lanes spin as they choose (adaptive)"
        " before they sleep, gRPC does not poll; one step at a time."
    )


def measure_models(
    arguments: argparse.Namespace,
    conditions: str,
    models: Iterable[Any],
    run_model: Callable[[Any, Quiet], list[dict[str, Any]]],
    show: Callable[[list[dict[str, Any]]], None],
) -> dict[str, Any]:
    """A report of the models that are wanted, each printed when it is known."""
    print(conditions)
    quiet = Quiet(arguments.noisy_max)
    rows: list[dict[str, Any]] = []
    for model in models:
        if model.name not in arguments.only:
            continue
        print(f"\n{model.shown}, batch {model.batch}, {model.ps} ps")
        found = run_model(model, quiet)
        show(found)
        rows += found
    print("\n" + quiet.summary())
    return {"rows": rows, "conditions": conditions, "quiet": quiet.summary()}


def model_table(
    rows: Sequence[dict[str, Any]],
    head: Sequence[str],
    cells: Callable[[dict[str, Any]], list[str]],
) -> str:
    """Markdown: a line for each side of each model, whose name stands once. `cells`: what comes
    behind model, side, steps/s and their spread."""
    shown = [
        [
            one["shown"] if i == 0 or rows[i - 1]["model"] != one["model"] else "",
            one["side"],
            f"{one['ours']:,.1f}",
            f"{one['least']:,.1f} to {one['most']:,.1f}",
            *cells(one),
        ]
        for i, one in enumerate(rows)
    ]
    return table(["model", "side", "steps/s", "least to most", *head], shown)


def model_bars(title: str, models: Iterable[Any], rows: Sequence[dict[str, Any]]) -> str:
    """A plot of the steps per second of all sides, by model."""
    groups = []
    for model in models:
        said = [
            (one["side"], one["ours"], f"{one['ours']:,.0f} ({one['ratio']:.1f}x)")
            for one in rows
            if one["model"] == model.name
        ]
        if said:
            groups.append((f"{model.shown}, batch {model.batch}", said))
    return bars(title, groups)


def bars(title: str, groups: Sequence[tuple[str, Sequence[tuple[str, float, str]]]]) -> str:
    """A plot of horizontal bars, as SVG. groups: (name, [(side, length, what is written)]); bars of
    a group are as long as their part of its longest."""
    width, left, bar, gap = 760, 190, 15, 22
    lines, y = [], 44
    for name, sides in groups:
        longest = max((length for _, length, _ in sides), default=1.0) or 1.0
        lines.append(f'<text x="12" y="{y + 11}" font-weight="bold">{name}</text>')
        y += bar + 4
        for i, (side, length, said) in enumerate(sides):
            pixels = max(1.0, (width - left - 150) * length / longest)
            colour = _COLOURS[i % len(_COLOURS)]
            lines.append(f'<text x="{left - 8}" y="{y + 11}" text-anchor="end">{side}</text>')
            lines.append(
                f'<rect x="{left}" y="{y}" width="{pixels:.1f}" height="{bar - 3}"'
                f' fill="{colour}"/>'
            )
            lines.append(f'<text x="{left + pixels + 6:.1f}" y="{y + 11}">{said}</text>')
            y += bar
        y += gap - bar + 8
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}"'
        f' viewBox="0 0 {width} {y}" font-family="sans-serif" font-size="12">\n'
        f'<rect width="{width}" height="{y}" fill="#ffffff"/>\n'
        f'<text x="12" y="22" font-size="14" font-weight="bold">{title}</text>\n'
    )
    return head + "\n".join(lines) + "\n</svg>\n"


def lines(
    title: str,
    x_name: str,
    y_name: str,
    series: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    y_step: float | None = None,
    x_names: Mapping[float, str] | None = None,
) -> str:
    """A plot of lines with logarithmic axes, as SVG. series: (name, [(x, y)]). y_step: that upwards
    is not one, and has a tick at each multiple of it. x_names: what is written for an x."""
    width, height, left, top, right, bottom = 760, 420, 70, 44, 150, 50
    points = [point for _, line in series for point in line if point[1] > 0]
    if not points:
        return bars(title, ())
    x_ends = (min(p[0] for p in points), max(p[0] for p in points))
    least, most = min(p[1] for p in points), max(p[1] for p in points)
    if y_step is None:
        tens = range(math.floor(math.log10(least)), math.ceil(math.log10(most * 1.0001)) + 1)
        ticks = [10.0**ten for ten in tens]
    else:
        steps = range(math.floor(least / y_step), math.ceil(most / y_step) + 1)
        ticks = [step * y_step for step in steps]
    y_ends = (ticks[0], ticks[-1])

    def place(value: float, ends: tuple[float, float], begin: float, end: float) -> float:
        whole = math.log(ends[1] / ends[0]) or 1.0
        return begin + (end - begin) * math.log(value / ends[0]) / whole

    def at(point: tuple[float, float]) -> tuple[float, float]:
        x, y = point
        if y_step is None:
            upwards = place(y, y_ends, height - bottom, top)
        else:
            part = (y - y_ends[0]) / ((y_ends[1] - y_ends[0]) or 1.0)
            upwards = height - bottom + (top - height + bottom) * part
        return place(x, x_ends, left, width - right), upwards

    out = [f'<text x="12" y="22" font-size="14" font-weight="bold">{title}</text>']
    for tick in ticks:
        y = at((x_ends[0], tick))[1]
        said = f"{tick:,.0f}" if y_step is None else f"{tick:g}"
        out.append(f'<path d="M{left} {y:.1f}H{width - right}" stroke="#dddddd"/>')
        out.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{said}</text>')
    for x_value in sorted({p[0] for p in points}):
        x = at((x_value, y_ends[0]))[0]
        said = f"{x_value:g}" if x_names is None else x_names[x_value]
        out.append(
            f'<text x="{x:.1f}" y="{height - bottom + 18}" text-anchor="middle">{said}</text>'
        )
    out.append(f'<text x="{left}" y="{height - 12}">{x_name}; upwards: {y_name}</text>')
    for i, (name, line) in enumerate(series):
        colour = _COLOURS[(0, 2, 4, 5, 1)[i % 5]]
        path = [at(point) for point in line if point[1] > 0]
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in path)
        out.append(f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        x, y = width - right + 12, top + 14 + 20 * i
        out.append(f'<path d="M{x} {y}h18" stroke="{colour}" stroke-width="2.5"/>')
        out.append(f'<text x="{x + 24}" y="{y + 4}">{name}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">\n'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n'
        + "\n".join(out)
        + "\n</svg>\n"
    )
