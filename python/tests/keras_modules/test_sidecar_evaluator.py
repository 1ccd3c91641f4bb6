"""Evaluation beside training: which checkpoints are evaluated, which are passed over, and when it
ends."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import keras_models
import numpy as np
import pytest
from keras_models import MODELS
from keras_peer import parameters

import sidereal as sr
from sidereal import errors, keras, train
from sidereal.checkpoint_management import remove_checkpoint, update_checkpoint_state
from sidereal.keras import SidecarEvaluator
from sidereal.keras.callbacks import Callback, LambdaCallback, ModelCheckpoint

X, Y = MODELS["mlp"][1]()
FIT: dict[str, Any] = {"batch_size": 8, "verbose": 0, "shuffle": False}


def mlp() -> Any:
    model = keras_models.mlp(keras)
    model.compile(keras.optimizers.Adam(0.05), "binary_crossentropy", metrics=["accuracy"])
    return model


def data() -> Any:
    return sr.data.Dataset.from_tensor_slices((X, Y)).batch(8)


class Seen(Callback):
    """What each evaluation found, and the steps that were trained then."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[int] = []
        self.losses: list[float] = []
        self.more = threading.Semaphore(0)

    def on_test_end(self, logs: Any = None) -> None:
        self.steps.append(int(self.model.optimizer.iterations.numpy()))
        self.losses.append((logs or {})["loss"])
        self.more.release()


def test_arguments_are_those_of_tensorflow() -> None:
    names = [name for name, _ in parameters(SidecarEvaluator)]
    assert names[:6] == [
        "model", "data", "checkpoint_dir", "steps", "max_evaluations", "callbacks",
    ]  # fmt: skip
    assert keras.utils.SidecarEvaluator is SidecarEvaluator


def test_the_newest_is_evaluated_and_the_last_one_is_the_end(tmp_path: Path) -> None:
    model, seen = mlp(), Seen()
    wanted = []
    manager = train.CheckpointManager(
        train.Checkpoint(model=model, optimizer=model.optimizer), tmp_path, None
    )
    for _ in range(2):
        model.fit(X, Y, **FIT)
        manager.save()
        wanted.append(model.evaluate(X, Y, batch_size=8, verbose=0)[0])
    evaluator = SidecarEvaluator(mlp(), data(), tmp_path, max_evaluations=3, callbacks=[seen])
    running = threading.Thread(target=evaluator.start)
    running.start()
    assert seen.more.acquire(timeout=60)
    model.fit(X, Y, **FIT)
    manager.save()
    wanted.append(model.evaluate(X, Y, batch_size=8, verbose=0)[0])
    running.join(60)
    assert not running.is_alive()
    steps = -(-len(Y) // 8)
    assert seen.steps == [2 * steps, 3 * steps]
    np.testing.assert_allclose(seen.losses, wanted[1:], rtol=1e-5)


def test_a_step_may_be_the_end(tmp_path: Path) -> None:
    model, seen = mlp(), Seen()
    model.fit(X, Y, **FIT)
    train.Checkpoint(model=model, optimizer=model.optimizer).save(tmp_path / "ckpt")
    steps = -(-len(Y) // 8)
    other = mlp()
    found = SidecarEvaluator(
        other, data(), tmp_path, callbacks=[seen], final_step=steps, max_wait_secs=60
    ).start()
    assert seen.steps == [steps]
    assert set(found) == {"loss", "accuracy"}
    # What only training needs is not made.
    assert len(other.optimizer.variables) == 2


def test_weights_of_callbacks_are_evaluated(tmp_path: Path) -> None:
    model, seen = mlp(), Seen()
    told = ModelCheckpoint(tmp_path / "w-{epoch}", save_weights_only=True)
    model.fit(X, Y, epochs=2, callbacks=[told], **FIT)
    SidecarEvaluator(
        mlp(), data(), tmp_path, max_evaluations=2, callbacks=[seen], max_wait_secs=60
    ).start()
    assert seen.steps == [2 * -(-len(Y) // 8)]
    np.testing.assert_allclose(
        seen.losses, [model.evaluate(X, Y, batch_size=8, verbose=0)[0]], rtol=1e-5
    )


def test_names_without_numbers_are_counted(tmp_path: Path) -> None:
    mlp_ = mlp()
    mlp_.fit(X, Y, **FIT)
    mlp_.save_weights(tmp_path / "w")
    seen = Seen()
    SidecarEvaluator(
        mlp(), data(), tmp_path, steps=1, max_evaluations=1, callbacks=[seen], max_wait_secs=60
    ).start()
    assert len(seen.losses) == 1


def test_a_checkpoint_that_vanishes_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model, seen = mlp(), Seen()
    model.fit(X, Y, **FIT)
    checkpoint = train.Checkpoint(model=model, optimizer=model.optimizer)
    first = checkpoint.save(tmp_path / "ckpt")
    evaluator = SidecarEvaluator(
        mlp(), data(), tmp_path, max_evaluations=2, callbacks=[seen], max_wait_secs=60
    )
    restore = evaluator._restore

    def late(prefix: str) -> Any:
        if prefix == first:
            remove_checkpoint(first)
            try:
                return restore(prefix)
            finally:
                checkpoint.save(tmp_path / "ckpt")
        return restore(prefix)

    monkeypatch.setattr(evaluator, "_restore", late)
    evaluator.start()
    assert f"{first} cannot be evaluated" in caplog.text
    assert len(seen.losses) == 1


def test_waiting_has_an_end(tmp_path: Path) -> None:
    evaluator = SidecarEvaluator(mlp(), data(), tmp_path, max_wait_secs=0.1)
    with pytest.raises(errors.DeadlineExceededError, match=f"no new checkpoint in {tmp_path}"):
        evaluator.start()


def test_without_steps_a_step_cannot_be_the_end(tmp_path: Path) -> None:
    model = mlp()
    train.Checkpoint(model=model.layers[0]).save(tmp_path / "ckpt")
    other = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8)])
    update_checkpoint_state(tmp_path, str(tmp_path / "ckpt-1"))
    evaluator = SidecarEvaluator(other.layers[0], data(), tmp_path, final_step=3)
    with pytest.raises(RuntimeError, match="final_step"):
        evaluator.start()


def test_a_model_of_another_shape_is_an_error(tmp_path: Path) -> None:
    model = mlp()
    model.fit(X, Y, **FIT)
    model.save_weights(tmp_path / "w-1")
    other = keras.Sequential([keras.Input((X.shape[1],)), keras.layers.Dense(3)])
    other.compile(loss="mse")
    with pytest.raises(errors.InvalidArgumentError, match="made as it was saved"):
        SidecarEvaluator(other, data(), tmp_path, max_evaluations=1).start()


def test_callbacks_hear_of_each_batch(tmp_path: Path) -> None:
    model = mlp()
    model.fit(X, Y, **FIT)
    model.save_weights(tmp_path / "w-1")
    batches: list[int] = []
    told = LambdaCallback(on_test_batch_end=lambda batch, _: batches.append(batch))
    SidecarEvaluator(
        mlp(), data(), tmp_path, steps=3, max_evaluations=1, callbacks=[told]
    ).start()
    assert batches == [0, 1, 2]
