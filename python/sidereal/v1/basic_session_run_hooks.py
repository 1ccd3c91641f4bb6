"""Hooks for training (tf.estimator's and tf.compat.v1.train's): when to stop, what to log, what to
watch."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .. import errors
from .._hot_rows import HottestRows
from .._pushes import Staleness
from .._run_metadata import RunOptions, Timeline
from ..security import SecurityOptions
from . import summary as _summary
from .graph import get_default_graph
from .session_run_hook import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues
from .training import get_global_step

_log = logging.getLogger("sidereal")

#: After how many runs in a row without a step a StepCounterHook says so.
_RUNS_WITHOUT_STEP = 20


def step_of_default_graph(hook: Any) -> Any:
    """The global step of the default graph; RuntimeError when it has none."""
    found = get_global_step()
    if found is None:
        raise RuntimeError(f"Global step should be created to use {type(hook).__name__}.")
    return found


def writer_of(directory: str) -> Any:
    """What writes summaries to a folder. None, which is logged, without the package tensorboard:
    nobody asked for what is written then, or it is logged as well."""
    try:
        return _summary.FileWriterCache.get(directory)
    except errors.UnavailableError as error:
        _log.warning("nothing is written for TensorBoard to %s: %s", directory, error)
        return None


# --- When.


class SecondOrStepTimer(SessionRunHook):
    """Says when something is due that is done every so many seconds or steps
    (tf.estimator.SecondOrStepTimer)."""

    def __init__(self, every_secs: float | None = None, every_steps: int | None = None) -> None:
        if every_secs is not None and every_steps is not None:
            raise ValueError("Can not provide both every_secs and every_steps.")
        if every_secs is None and every_steps is None:
            raise ValueError("Either every_secs or every_steps should be provided.")
        self._every_secs = every_secs
        self._every_steps = every_steps
        self.reset()

    def reset(self) -> None:
        """Forgets what was."""
        self._last_step: int | None = None
        self._last_time: float | None = None

    def should_trigger_for_step(self, step: int) -> bool:
        """Whether it is due at this step: the first time always, never twice at one step."""
        if self._last_step is None:
            return True
        if self._last_step == step:
            return False
        if self._every_secs is not None:
            assert self._last_time is not None
            return time.monotonic() >= self._last_time + self._every_secs
        assert self._every_steps is not None
        return step >= self._last_step + self._every_steps

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Notes that it was done at this step: (seconds, steps) since it was the last time, None
        the first time."""
        now = time.monotonic()
        before = self._last_time, self._last_step
        self._last_time, self._last_step = now, step
        if before[0] is None or before[1] is None:
            return None, None
        return now - before[0], step - before[1]

    def last_triggered_step(self) -> int | None:
        """The step at which it was done the last time."""
        return self._last_step


class NeverTriggerTimer:
    """Says never (tf.estimator's)."""

    def reset(self) -> None:
        """Forgets nothing."""

    def should_trigger_for_step(self, step: int) -> bool:
        """No."""
        return False

    def update_last_triggered_step(self, step: int) -> tuple[None, None]:
        """Notes nothing."""
        return None, None

    def last_triggered_step(self) -> None:
        """None."""


# --- When to stop.


class StopAtStepHook(SessionRunHook):
    """Ends training at a step (tf.estimator.StopAtStepHook): `num_steps` after the one that it was
    at when the session was made, or `last_step`."""

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        if num_steps is None and last_step is None:
            raise ValueError("One of num_steps or last_step must be specified.")
        if num_steps is not None and last_step is not None:
            raise ValueError("Only one of num_steps or last_step can be specified.")
        self._num_steps = num_steps
        self._last_step = last_step
        self._seen: int | None = None

    def begin(self) -> None:
        self._step = step_of_default_graph(self)

    def after_create_session(self, session: Any, coord: Any) -> None:
        # After a recovery, the end is still where it was.
        if self._last_step is None:
            assert self._num_steps is not None
            self._last_step = int(session.run(self._step)) + self._num_steps

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._step)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        assert self._last_step is not None
        # It was read before the run counted, and others count: only near the end is that worth
        # asking again.
        stale = int(run_values.results)
        stride = 1 if self._seen is None else max(1, stale - self._seen)
        self._seen = stale
        if (
            stale + stride >= self._last_step
            and run_context.session.run(self._step) >= self._last_step
        ):
            run_context.request_stop()


class NanLossDuringTrainingError(RuntimeError):
    """The loss is not a number any more."""

    def __str__(self) -> str:
        return super().__str__() or "NaN loss during training."


class NanTensorHook(SessionRunHook):
    """Ends training when `loss_tensor` is NaN (tf.estimator.NanTensorHook): with a
    NanLossDuringTrainingError, or, with fail_on_nan_loss=False, as if it had come to its end."""

    def __init__(self, loss_tensor: Any, fail_on_nan_loss: bool = True) -> None:
        self._loss = loss_tensor
        self._fail_on_nan_loss = fail_on_nan_loss

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._loss)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if not np.isnan(run_values.results).any():
            return
        message = f"Model diverged with loss = NaN: {_name_of(self._loss)}"
        if self._fail_on_nan_loss:
            _log.error(message)
            raise NanLossDuringTrainingError(message)
        _log.warning("%s; training stops", message)
        run_context.request_stop()


# --- What to log.


class LoggingTensorHook(SessionRunHook):
    """Logs values (tf.estimator.LoggingTensorHook): every so many runs or seconds, or with `at_end`
    alone at the end.

    tensors: a dict of values by the tags that they are logged under, or a list of values or names.
    formatter: makes the text of a dict {tag: value}.
    """

    def __init__(
        self,
        tensors: Any,
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable[[dict[str, Any]], str] | None = None,
    ) -> None:
        only_at_end = at_end and every_n_iter is None and every_n_secs is None
        if not only_at_end and (every_n_iter is None) == (every_n_secs is None):
            raise ValueError(
                "either at_end and/or exactly one of every_n_iter and every_n_secs must be "
                "provided."
            )
        if every_n_iter is not None and every_n_iter <= 0:
            raise ValueError(f"invalid every_n_iter={every_n_iter}.")
        if every_n_secs is not None and every_n_secs <= 0:
            raise ValueError(f"invalid every_n_secs={every_n_secs}.")
        if isinstance(tensors, Mapping):
            self._tensors = dict(tensors)
        else:
            self._tensors = {_name_of(tensor): tensor for tensor in tensors}
        self._formatter = formatter
        self._at_end = at_end
        self._timer: Any = (
            NeverTriggerTimer() if only_at_end
            else SecondOrStepTimer(every_secs=every_n_secs, every_steps=every_n_iter)
        )  # fmt: skip

    def begin(self) -> None:
        self._timer.reset()
        self._runs = 0
        graph = get_default_graph()
        self._found = {tag: _in_graph(graph, value) for tag, value in self._tensors.items()}

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        self._is_due = self._timer.should_trigger_for_step(self._runs)
        return SessionRunArgs(list(self._found.values())) if self._is_due else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if self._is_due:
            self._say(run_values.results)
        self._runs += 1

    def end(self, session: Any) -> None:
        if self._at_end:
            self._say(session.run(list(self._found.values())))

    def _say(self, values: Sequence[Any]) -> None:
        seconds, _ = self._timer.update_last_triggered_step(self._runs)
        by_tag = dict(zip(self._found, values))
        if self._formatter is not None:
            _log.info(self._formatter(by_tag))
            return
        text = ", ".join(f"{tag} = {value}" for tag, value in by_tag.items())
        _log.info("%s%s", text, "" if seconds is None else f" ({seconds:.3f} sec)")


class StepCounterHook(SessionRunHook):
    """Logs the steps in a second (tf.estimator.StepCounterHook), and writes them as a summary to
    `output_dir`, or with `summary_writer`."""

    def __init__(
        self,
        every_n_steps: int | None = 100,
        every_n_secs: float | None = None,
        output_dir: str | None = None,
        summary_writer: Any = None,
    ) -> None:
        if (every_n_steps is None) == (every_n_secs is None):
            raise ValueError("exactly one of every_n_steps and every_n_secs should be provided.")
        self._timer = SecondOrStepTimer(every_secs=every_n_secs, every_steps=every_n_steps)
        self._output_dir = output_dir
        self._writer = summary_writer
        self._last_step: int | None = None
        self._unchanged = 0

    def begin(self) -> None:
        self._step = step_of_default_graph(self)
        if self._writer is None and self._output_dir:
            self._writer = writer_of(self._output_dir)
        self._tag = self._step.op.name + "/sec"

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._step)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        stale = int(run_values.results)
        if self._timer.should_trigger_for_step(stale + 1):
            step = int(run_context.session.run(self._step))
            if self._timer.should_trigger_for_step(step):
                seconds, steps = self._timer.update_last_triggered_step(step)
                if seconds is not None and steps is not None:
                    self._log_and_record(steps, seconds, step)
        self._unchanged = self._unchanged + 1 if stale == self._last_step else 0
        if self._unchanged == _RUNS_WITHOUT_STEP:
            self._unchanged = 0
            _log.warning(
                "global step %d has not changed in %d runs; give the global step to "
                "Optimizer.minimize() or apply_gradients(), which count with it",
                stale, _RUNS_WITHOUT_STEP,
            )  # fmt: skip
        self._last_step = stale

    def _log_and_record(self, steps: int, seconds: float, step: int) -> None:
        rate = steps / max(seconds, 1e-9)
        if self._writer is not None:
            value = _summary.Summary.Value(tag=self._tag, simple_value=rate)
            self._writer.add_summary(_summary.Summary(value=[value]), step)
        _log.info("%s: %g", self._tag, rate)


class StalenessHook(SessionRunHook):
    """Writes how old what steps compute with is, to `output_dir` or with `summary_writer`: of each
    table of parameter servers and each worker, how many changes of other steps came between what
    steps pulled and what they pushed; mean and histogram of what came since the last time. Beside
    it, what share of the rows that were pulled of a table lately is the one that was pulled most.

    target: of the server that is asked who is in the cluster, `server.target`. security: as that of
    the session.
    """

    def __init__(
        self,
        target: str,
        every_n_steps: int | None = 100,
        every_n_secs: float | None = None,
        output_dir: str | None = None,
        summary_writer: Any = None,
        security: SecurityOptions | None = None,
    ) -> None:
        if (every_n_steps is None) == (every_n_secs is None):
            raise ValueError("exactly one of every_n_steps and every_n_secs should be provided.")
        if (output_dir is None) == (summary_writer is None):
            raise ValueError("exactly one of output_dir and summary_writer should be provided.")
        self._timer = SecondOrStepTimer(every_secs=every_n_secs, every_steps=every_n_steps)
        self._output_dir = output_dir
        self._writer = summary_writer
        self._staleness = Staleness(target, security)
        self._hottest = HottestRows(target, security)

    def begin(self) -> None:
        self._step = step_of_default_graph(self)
        if self._writer is None and self._output_dir:
            self._writer = writer_of(self._output_dir)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._step)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = int(run_values.results) + 1
        if self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            self._write(step)

    def end(self, session: Any) -> None:
        self._write(int(session.run(self._step)))

    def _write(self, step: int) -> None:
        if self._writer is None:
            return
        for asked in (self._staleness, self._hottest):
            for summary in asked.summaries():
                self._writer.add_summary(summary, step)


class SummarySaverHook(SessionRunHook):
    """Writes summaries (tf.estimator.SummarySaverHook): at the first step, and every so many steps
    or seconds.

    output_dir, summary_writer: where they go. scaffold, summary_op: what has the summaries: the
    `summary_op` of a Scaffold, or serialized ones, one or a list.
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str | None = None,
        summary_writer: Any = None,
        scaffold: Any = None,
        summary_op: Any = None,
    ) -> None:
        if (scaffold is None) == (summary_op is None):
            raise ValueError("Exactly one of scaffold or summary_op must be provided.")
        self._timer = SecondOrStepTimer(every_secs=save_secs, every_steps=save_steps)
        self._output_dir = output_dir
        self._writer = summary_writer
        self._scaffold = scaffold
        self._summary_op = summary_op

    def begin(self) -> None:
        self._step = step_of_default_graph(self)
        if self._writer is None and self._output_dir:
            self._writer = writer_of(self._output_dir)
        self._next_step: int | None = None

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        self._is_due = self._next_step is None or self._timer.should_trigger_for_step(
            self._next_step
        )
        fetches: dict[str, Any] = {"global_step": self._step}
        summaries = self._summaries()
        if self._is_due and summaries is not None:
            if self._writer is None:
                raise errors.FailedPreconditionError(
                    "the graph has summaries, and there is nothing to write them with: give the "
                    "SummarySaverHook an output_dir, and install the package tensorboard; or save "
                    "none, with save_summaries_steps=0"
                )
            fetches["summary"] = summaries
        return SessionRunArgs(fetches)

    def _summaries(self) -> list[Any] | None:
        op = self._summary_op if self._scaffold is None else self._scaffold.summary_op
        if op is None:
            return None
        return list(op) if isinstance(op, (list, tuple)) else [op]

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = int(run_values.results["global_step"]) + 1
        if self._next_step is None or self._is_due:
            step = int(run_context.session.run(self._step))
        if self._writer is not None and self._next_step is None:
            log = _summary.SessionLog(status=_summary.SessionLog.START)
            self._writer.add_session_log(log, step)
        if self._is_due:
            self._timer.update_last_triggered_step(step)
            for summary in run_values.results.get("summary", ()):
                self._writer.add_summary(summary, step)
        self._next_step = step + 1

    def end(self, session: Any) -> None:
        if self._writer is not None:
            self._writer.flush()


# --- Others.


class GlobalStepWaiterHook(SessionRunHook):
    """Holds up a worker until the global step is `wait_until_step`
    (tf.estimator.GlobalStepWaiterHook), so that workers start one after the other.

    max_wait_secs: for how long it waits while the step does not change: then a DeadlineExceeded
        says that nobody trains.
    """

    def __init__(self, wait_until_step: int, *, max_wait_secs: float = 7200) -> None:
        self._wait_until_step = wait_until_step
        self._max_wait_secs = max_wait_secs

    def begin(self) -> None:
        self._is_done = False
        self._step = step_of_default_graph(self)

    def before_run(self, run_context: SessionRunContext) -> None:
        if self._is_done or self._wait_until_step <= 0:
            return
        seen, since = None, time.monotonic()
        while True:
            step = int(run_context.session.run(self._step))
            if step >= self._wait_until_step:
                self._is_done = True
                return
            now = time.monotonic()
            if step != seen:
                seen, since = step, now
                _log.info("waiting for global step %d before training; it is %d",
                          self._wait_until_step, step)  # fmt: skip
            elif now - since > self._max_wait_secs:
                raise errors.DeadlineExceededError(
                    f"global step {self._wait_until_step} is waited for; it has been {step} for "
                    f"{self._max_wait_secs:g} seconds: no other worker trains"
                )
            time.sleep(0.5)


class FinalOpsHook(SessionRunHook):
    """Runs `final_ops` at the end (tf.estimator.FinalOpsHook), fed with `final_ops_feed_dict`;
    `final_ops_values` is what they gave."""

    def __init__(
        self, final_ops: Any, final_ops_feed_dict: Mapping[Any, Any] | None = None
    ) -> None:
        self._final_ops = final_ops
        self._feed_dict = final_ops_feed_dict
        self._values: Any = None

    @property
    def final_ops_values(self) -> Any:
        """What the ops gave; None before the end."""
        return self._values

    def end(self, session: Any) -> None:
        if self._final_ops is None:
            return
        try:
            self._values = session.run(self._final_ops, self._feed_dict)
        except (errors.OutOfRangeError, StopIteration) as error:
            _log.warning(
                "final_ops read data that has ended; only ops that need none can run at the end: "
                "%s", error,
            )  # fmt: skip
            raise


class FeedFnHook(SessionRunHook):
    """Feeds each run with what `feed_fn()` gives, a dict (tf.estimator.FeedFnHook)."""

    def __init__(self, feed_fn: Callable[[], Mapping[Any, Any]]) -> None:
        self.feed_fn = feed_fn

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(None, feed_dict=self.feed_fn())


class ProfilerHook(SessionRunHook):
    """Writes what ran, and when, to `output_dir`/timeline-STEP.json for Chrome's trace viewer
    (tf.estimator.ProfilerHook), every so many steps or seconds."""

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str = "",
        show_dataflow: bool = True,
        show_memory: bool = False,
    ) -> None:
        self._output_dir = output_dir
        self._timer = SecondOrStepTimer(every_secs=save_secs, every_steps=save_steps)
        self._show = show_dataflow, show_memory

    def begin(self) -> None:
        self._next_step: int | None = None
        self._step = step_of_default_graph(self)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        self._is_due = self._next_step is not None and self._timer.should_trigger_for_step(
            self._next_step
        )
        options = RunOptions(trace_level=RunOptions.FULL_TRACE) if self._is_due else None
        return SessionRunArgs(self._step, options=options)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        stale = int(run_values.results)
        if self._next_step is None:
            # The first run plans; what is to be seen is how later ones go.
            self._timer.update_last_triggered_step(stale)
        step = stale + 1
        if self._is_due:
            step = int(run_context.session.run(self._step))
            self._timer.update_last_triggered_step(step)
            os.makedirs(self._output_dir or ".", exist_ok=True)
            path = os.path.join(self._output_dir, f"timeline-{step}.json")
            trace = Timeline(run_values.run_metadata.step_stats).generate_chrome_trace_format(
                *self._show
            )
            with open(path, "w") as file:
                file.write(trace)
        self._next_step = step + 1


def _name_of(tensor: Any) -> str:
    return tensor if isinstance(tensor, str) else str(getattr(tensor, "name", tensor))


def _in_graph(graph: Any, value: Any) -> Any:
    """A value of `graph`, from itself or its name ("loss" stands for "loss:0")."""
    if isinstance(value, str) and ":" not in value:
        value += ":0"
    return graph.as_graph_element(value)
