"""What a run of a sidereal.v1.Session tells of itself when it is asked to."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from ._native import Engine
from .device_spec import HERE
from .profiler import DEFAULT_BYTES


class RunOptions:
    """Options of one Session.run() (tf.compat.v1.RunOptions).

    trace_level: FULL_TRACE: what ran, and when, goes to the RunMetadata.
    timeout_in_ms: how long the run may wait for others; 0: as long as the session says.
    report_tensor_allocations_upon_oom: taken and not needed.
    waits_for_pushes: the run ends when all others see what it has changed; over star_server_lite
        runs end before.
    """

    NO_TRACE, SOFTWARE_TRACE, HARDWARE_TRACE, FULL_TRACE = 0, 1, 2, 3

    def __init__(
        self,
        trace_level: int = NO_TRACE,
        timeout_in_ms: int = 0,
        report_tensor_allocations_upon_oom: bool = False,
        waits_for_pushes: bool = False,
    ) -> None:
        if trace_level not in range(4):
            raise ValueError(f"trace_level is {trace_level!r}; it must be RunOptions.FULL_TRACE")
        if timeout_in_ms < 0:
            raise ValueError(f"timeout_in_ms is {timeout_in_ms!r}; it must not be below 0")
        self.trace_level = trace_level
        self.timeout_in_ms = int(timeout_in_ms)
        self.report_tensor_allocations_upon_oom = report_tensor_allocations_upon_oom
        self.waits_for_pushes = waits_for_pushes


@dataclass
class NodeExecStats:
    """One op that ran; times are microseconds."""

    node_name: str
    op: str
    all_start_micros: float
    op_end_rel_micros: float
    input_bytes: int
    output_bytes: int
    timeline_label: str

    @property
    def all_end_rel_micros(self) -> float:
        return self.op_end_rel_micros


@dataclass
class DeviceStepStats:
    """What ran on one device."""

    device: str
    node_stats: list[NodeExecStats] = field(default_factory=list)


@dataclass
class StepStats:
    """What ran in one run, by device."""

    dev_stats: list[DeviceStepStats] = field(default_factory=list)
    chrome_events: str = ""


@dataclass
class RunMetadata:
    """To be given to Session.run(), which fills it when the options ask for a trace."""

    step_stats: StepStats = field(default_factory=StepStats)


class Timeline:
    """Shows the statistics of a run (tensorflow.python.client.timeline.Timeline)."""

    def __init__(self, step_stats: StepStats, graph: Any = None) -> None:
        self._step_stats = step_stats

    def generate_chrome_trace_format(
        self, show_dataflow: bool = True, show_memory: bool = False
    ) -> str:
        """The run as the text of a file for Chrome's trace viewer."""
        return '{"traceEvents": [\n' + self._step_stats.chrome_events + "\n]}\n"


def is_traced(options: RunOptions | None) -> bool:
    """Whether `options` ask for a trace."""
    return options is not None and options.trace_level != RunOptions.NO_TRACE


def begin(engine: Engine) -> None:
    """Begins to write down what runs."""
    engine.start_trace(DEFAULT_BYTES)


def finish(engine: Engine, metadata: RunMetadata | None) -> None:
    """Ends what begin() began, and fills `metadata`."""
    ended = engine.stop_trace()
    if ended is not None and metadata is not None:
        fill(metadata, ended[0])


def fill(metadata: RunMetadata, text: str) -> None:
    """Fills `metadata` with what elements of Chrome's trace format tell: a device for each
    process."""
    devices: dict[int, DeviceStepStats] = {}
    for event in json.loads(f"[{text}]"):
        device = devices.setdefault(
            event["pid"], DeviceStepStats(HERE)
        )
        if event.get("name") == "process_name" and event["args"]["name"].startswith("/job:"):
            device.device = event["args"]["name"] + "/device:CPU:0"
        if event.get("cat") not in ("op", "control"):
            continue
        args = event["args"]
        device.node_stats.append(
            NodeExecStats(
                node_name=args["node"],
                op=event["name"],
                all_start_micros=event["ts"],
                op_end_rel_micros=event["dur"],
                input_bytes=args["input_bytes"],
                output_bytes=args["output_bytes"],
                timeline_label=f"{args['node']} = {event['name']}({args['inputs']})",
            )
        )
    metadata.step_stats = StepStats(list(devices.values()), text)
