"""Evaluation beside training, by a process of its own (keras.SidecarEvaluator)."""

from __future__ import annotations

import logging
import os
import re
import time
from typing import Any

from .. import errors
from ..checkpoint import Checkpoint, CheckpointOptions, CheckpointReader
from ..checkpoint_management import checkpoints_iterator

_log = logging.getLogger("sidereal")

#: Seconds without a new checkpoint after which that is said.
_PATIENCE_S = 30.0
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
#: Where the number of steps is: what a Checkpoint calls an optimizer, or a model has.
_STEPS = tuple(f"{path}iter{_VALUE}" for path in ("optimizer/", "model/optimizer/"))


def read_weights(model: Any, prefix: str) -> tuple[CheckpointReader, bool]:
    """Gives a model the weights of a checkpoint, of it or of a Checkpoint(model=...); what the
    checkpoint has, and whether it is of the latter."""
    reader = CheckpointReader(prefix)
    is_within = any(name.startswith("model/") for name in reader.get_variable_to_shape_map())
    made = Checkpoint(model=model) if is_within else Checkpoint(model)
    options = CheckpointOptions(experimental_skip_slot_variables=True)
    made.read(prefix, options).expect_partial().assert_nontrivial_match()
    return reader, is_within


class SidecarEvaluator:
    """Evaluates a model by each checkpoint that the training of another process writes
    (tf.keras.utils.SidecarEvaluator), in the task `evaluator` of a cluster for example:

        model = make_model()
        model.compile(metrics=["accuracy"], loss="binary_crossentropy")
        keras.SidecarEvaluator(model, test_data, "folder", max_evaluations=10).start()

    The model is one of this process, like the one that is trained, whose checkpoints are those of a
    Checkpoint(model=..., optimizer=...), or of ModelCheckpoint(save_weights_only=True). Only the
    newest one is looked at; one that is deleted while it is read is passed over.

    data, steps, callbacks: as evaluate() takes them.
    checkpoint_dir: the folder of the checkpoints.
    max_evaluations: it ends when it has evaluated a checkpoint of this number, NAME-NUMBER, or a
        later one; of names without numbers, so many.
    final_step: it ends when it has evaluated a checkpoint of so many steps of the optimizer.
    max_wait_secs: how long it waits for a checkpoint; None: for ever.
    """

    def __init__(
        self, model: Any, data: Any, checkpoint_dir: Any, steps: int | None = None,
        max_evaluations: int | None = None, callbacks: Any = None, *,
        final_step: int | None = None, max_wait_secs: float | None = 7200.0,
    ) -> None:  # fmt: skip
        self.model, self.data, self.steps = model, data, steps
        self.checkpoint_dir = os.fspath(checkpoint_dir)
        self.max_evaluations, self.final_step = max_evaluations, final_step
        self.callbacks, self.max_wait_secs = callbacks, max_wait_secs
        self._waits_since = time.monotonic()

    def start(self) -> dict[str, Any]:
        """Evaluates until it has come to the end, and gives what the last evaluation found.

        Errors: DeadlineExceededError when no checkpoint comes; RuntimeError when final_step is
        given and checkpoints do not have the number of steps.
        """
        self._waits_since = time.monotonic()
        seen = 0
        pause = _PATIENCE_S if self.max_wait_secs is None else min(_PATIENCE_S, self.max_wait_secs)
        for newest in checkpoints_iterator(
            self.checkpoint_dir, timeout=pause, timeout_fn=self._has_none
        ):
            try:
                step = self._restore(newest)
            except (errors.NotFoundError, errors.DataLossError, FileNotFoundError) as error:
                _log.warning("%s cannot be evaluated, and is passed over: %s", newest, error)
                continue
            seen += 1
            _log.info("%s is evaluated", newest)
            found: dict[str, Any] = self.model.evaluate(
                self.data, steps=self.steps, callbacks=self.callbacks, verbose=2, return_dict=True
            )
            _log.info("%s: %s", newest, found)
            self._waits_since = time.monotonic()
            if self._is_last(newest, seen, step):
                return found
        raise AssertionError("checkpoints_iterator() ends when _has_none() says so, which raises")

    def _restore(self, prefix: str) -> int | None:
        """Gives the model the weights of a checkpoint; the number of steps, if it is known."""
        reader, is_within = read_weights(self.model, prefix)
        for name in _STEPS if is_within else (f"optimizer/iter{_VALUE}",):
            if reader.has_tensor(name):
                step = int(reader.get_tensor(name))
                if getattr(self.model, "optimizer", None) is not None:
                    self.model.optimizer.iterations.assign(step)
                return step
        if self.final_step is not None:
            raise RuntimeError(
                f"{prefix} does not have the number of steps, by which final_step ends the "
                "evaluation: save Checkpoint(model=model, optimizer=model.optimizer)"
            )
        return None

    def _is_last(self, prefix: str, seen: int, step: int | None) -> bool:
        if self.final_step is not None and step is not None and step >= self.final_step:
            return True
        if not self.max_evaluations:
            return False
        number = re.search(r"-(\d+)$", prefix)
        return (seen if number is None else int(number[1])) >= self.max_evaluations

    def _has_none(self) -> bool:
        waited = time.monotonic() - self._waits_since
        if self.max_wait_secs is not None and waited >= self.max_wait_secs:
            raise errors.DeadlineExceededError(
                f"there was no new checkpoint in {self.checkpoint_dir} for {waited:.0f} s, while "
                "it is not known that training has ended: see whether it still runs, or say when "
                "it ends (max_evaluations, final_step)"
            )
        _log.info("no new checkpoint in %s for %.0f s", self.checkpoint_dir, waited)
        return False


__all__ = ["SidecarEvaluator"]
