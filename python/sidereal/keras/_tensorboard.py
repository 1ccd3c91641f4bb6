"""The callback that writes figures of training for TensorBoard."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import _tensorboard, profiler
from .._hot_rows import HottestRows
from .._pushes import Staleness
from ._callback import Callback, Logs

#: How often what is written is flushed: so long a page may lag behind.
_FLUSH_SECS = 5.0
#: Figures that may wait to be written, before training waits for the disk.
_MAX_QUEUE = 1000
#: How often servers are asked while batches end, at most.
_ASK_SECS = 1.0


class TensorBoard(Callback):
    """Writes what TensorBoard shows of fit() and evaluate() (keras.callbacks.TensorBoard): figures
    of training to `log_dir`/train, of validation to `log_dir`/validation. Needs the package
    tensorboard.

    histogram_freq: every so many epochs, histograms of all weights, which are read for it; 0:
        never. write_images: weights as images as well.
    write_graph: the layers of a model, unless it is a subclass.
    write_steps_per_second: how fast epochs are, and batches with `update_freq`.
    update_freq: "epoch", "batch", or every so many batches: figures of these as well. They are
        those that workers of a strategy sent when they had ended a step; nothing waits for them.
    profile_batch: the number of a batch from 1 on, or (first, last): what runs in this process
        meanwhile, as train/batch_FIRST.trace.json for Chrome's trace viewer. 0: none.
    write_staleness: on parameter servers, how many changes of other steps came between what steps
        pulled of a table and what they pushed, by worker: mean and histogram of what came since the
        last time, after each epoch, and with `update_freq` after batches, a second apart at least.
        Beside it, what share of what is pulled of a table is its hottest row.
    embeddings_freq: every so many epochs, the tables of Embedding layers for the projector;
        embeddings_metadata: the file with the names of their rows, or a dict of such files by the
        names of layers.

    Steps of batches are counted from the first fit() with this callback on.
    """

    def __init__(
        self, log_dir: Any = "logs", histogram_freq: int = 0, write_graph: bool = True,
        write_images: bool = False, write_steps_per_second: bool = False,
        update_freq: Any = "epoch", profile_batch: Any = 0, embeddings_freq: int = 0,
        embeddings_metadata: str | Mapping[str, str] | None = None, *,
        write_staleness: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if update_freq not in ("batch", "epoch") and not _is_count(update_freq):
            raise ValueError(
                f"TensorBoard: update_freq is {update_freq!r}; it must be 'epoch', 'batch' or a "
                "number of batches"
            )
        self.log_dir = os.fspath(log_dir)
        self.histogram_freq, self.embeddings_freq = histogram_freq, embeddings_freq
        self.write_graph, self.write_images = write_graph, write_images
        self.write_steps_per_second = write_steps_per_second
        self.write_staleness = write_staleness
        self._staleness: Staleness | None = None
        self._hottest: HottestRows | None = None
        self._asked = 0.0
        self.update_freq = 1 if update_freq == "batch" else update_freq
        self.embeddings_metadata = embeddings_metadata
        self._profiled = _batches(profile_batch)
        self._is_profiling = self._is_training = False
        self._writers: dict[str, _tensorboard.EventWriter] = {}
        self._seen = {"train": 0, "validation": 0}
        self._last = {"train": -1, "validation": -1}
        self._epoch_began = self._batch_began = 0.0
        self._epoch_first = 0

    # --- Writing.

    def _writer(self, run: str) -> _tensorboard.EventWriter:
        if run not in self._writers:
            self._writers[run] = _tensorboard.EventWriter(
                os.path.join(self.log_dir, run), _MAX_QUEUE, _FLUSH_SECS, ".v2"
            )
        return self._writers[run]

    def _write(self, run: str, figures: Mapping[str, Any], step: int) -> None:
        """Numbers by their tags; metrics of several numbers are left out."""
        for tag, value in figures.items():
            if np.ndim(value) == 0:
                self._writer(run).add_summary(_tensorboard.scalar(tag, value), step)

    def _close(self) -> None:
        writers, self._writers = self._writers, {}
        for writer in writers.values():
            writer.close()

    # --- What happens.

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        _tensorboard.modules()  # Says before the training that the package is not there.

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._is_training = True
        strategy = self.model.distribute_strategy
        self._staleness = self._hottest = None
        if self.write_staleness and strategy is not None:
            self._staleness = Staleness(strategy._target_of_status())
            self._hottest = HottestRows(strategy._target_of_status())
        layers = _layers_of(self.model) if self.write_graph else None
        if layers is not None:
            writer = self._writer("train")
            writer.add_summary(_tensorboard.keras_summary("keras", json.dumps(layers)), 0)
            # The page begins with a graph of ops, and fails where a run has none.
            writer.add_event(_tensorboard.graph_event(_tensorboard.keras_graph_def(layers)))
        if self.embeddings_freq:
            self._configure_projector()

    def on_train_end(self, logs: Logs | None = None) -> None:
        self._is_training = False
        if self._is_profiling:
            self._end_profile()
        self._close()

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._last["train"] = -1
        self._epoch_first, self._epoch_began = self._seen["train"], time.monotonic()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        given = dict(logs or {})
        of_validation = {
            f"epoch_{name.removeprefix('val_')}": value
            for name, value in given.items()
            if name.startswith("val_")
        }
        figures = {
            f"epoch_{name}": value for name, value in given.items() if not name.startswith("val_")
        }
        if hasattr(self.model.optimizer, "learning_rate"):
            figures["epoch_learning_rate"] = float(self.model.optimizer.learning_rate)
        if self.write_steps_per_second:
            seconds = time.monotonic() - self._epoch_began
            figures["epoch_steps_per_second"] = (self._seen["train"] - self._epoch_first) / seconds
        self._write("train", figures, epoch)
        self._write("validation", of_validation, epoch)
        self._write_staleness(epoch if self.update_freq == "epoch" else self._seen["train"])
        if self.histogram_freq and epoch % self.histogram_freq == 0:
            self._write_weights(epoch)
        if self.embeddings_freq and epoch % self.embeddings_freq == 0:
            self._write_embeddings()
        for writer in self._writers.values():
            writer.flush()

    def on_train_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        super().on_train_batch_begin(batch, logs)
        first, last = self._profiled
        if self._seen["train"] + 1 <= last and not self._is_profiling and (
            self._seen["train"] + 1 >= first > 0
        ):
            folder = Path(self.log_dir, "train")
            folder.mkdir(parents=True, exist_ok=True)
            profiler.start(folder / f"batch_{first}.trace.json")
            self._is_profiling = True
        self._batch_began = time.monotonic()

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        super().on_train_batch_end(batch, logs)
        is_due = self._count("train", batch)
        if is_due:
            figures = {f"batch_{name}": value for name, value in (logs or {}).items()}
            if self.write_steps_per_second:
                seconds = max(time.monotonic() - self._batch_began, 1e-9)
                figures["batch_steps_per_second"] = 1 / seconds
            self._write("train", figures, self._seen["train"])
            if time.monotonic() - self._asked >= _ASK_SECS:
                self._write_staleness(self._seen["train"])
        if self._is_profiling and self._seen["train"] >= self._profiled[1]:
            self._end_profile()

    def on_test_begin(self, logs: Logs | None = None) -> None:
        self._last["validation"] = -1

    def on_test_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        if self._count("validation", batch):
            figures = {f"batch_{name}": value for name, value in (logs or {}).items()}
            self._write("validation", figures, self._seen["validation"])

    def on_test_end(self, logs: Logs | None = None) -> None:
        iterations = getattr(self.model.optimizer, "iterations", None)
        if iterations is not None:
            figures = {
                f"evaluation_{name}_vs_iterations": value for name, value in (logs or {}).items()
            }
            self._write("validation", figures, int(iterations.numpy()))
        if not self._is_training:
            self._close()

    def _count(self, run: str, batch: int) -> bool:
        """Counts batches up to `batch`, of steps_per_execution the last one; whether figures of it
        are to be written."""
        before = self._seen[run]
        self._seen[run] += batch - self._last[run]
        self._last[run] = batch
        every = self.update_freq
        return every != "epoch" and self._seen[run] // every > before // every

    def _end_profile(self) -> None:
        self._is_profiling = False
        profiler.stop()

    def _write_staleness(self, step: int) -> None:
        self._asked = time.monotonic()
        for asked in (self._staleness, self._hottest):
            for summary in [] if asked is None else asked.summaries():
                self._writer("train").add_summary(summary, step)

    # --- Weights.

    def _write_weights(self, epoch: int) -> None:
        writer = self._writer("train")
        for weight, value in zip(self.model._wholes(), self.model.get_weights()):
            name = weight.name.replace(":", "_")
            numbers = np.asarray(value, "f8").reshape(-1)
            made = _tensorboard.histogram(f"{name}/histogram", numbers[np.isfinite(numbers)], None)
            writer.add_summary(made, epoch)
            picture = _picture(np.asarray(value, "f4")) if self.write_images else None
            if picture is not None:
                writer.add_summary(_tensorboard.image(f"{name}/image", picture, 3), epoch)

    def _tables(self) -> list[tuple[str, Any]]:
        """The tables of Embedding layers by the names of these."""
        return [
            (layer.name, layer.embeddings)
            for layer in self.model.layers
            if getattr(layer, "embeddings", None) is not None
        ]

    def _configure_projector(self) -> None:
        """The file that says where the projector finds tables."""
        names = self.embeddings_metadata
        tables = [name for name, _ in self._tables()]
        if isinstance(names, Mapping) and set(names) - set(tables):
            raise ValueError(
                f"TensorBoard: embeddings_metadata names {sorted(set(names) - set(tables))}; the "
                f"Embedding layers of the model are {tables}"
            )
        blocks = []
        for name in tables:
            lines = [f'tensor_name: "{name}"', f'tensor_path: "{_table_file(name)}"']
            metadata = names.get(name) if isinstance(names, Mapping) else names
            if metadata is not None:
                lines.append(f'metadata_path: "{metadata}"')
            blocks.append("embeddings {\n" + "".join(f"  {line}\n" for line in lines) + "}\n")
        folder = Path(self.log_dir, "train")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "projector_config.pbtxt").write_text("".join(blocks), encoding="utf-8")

    def _write_embeddings(self) -> None:
        for name, table in self._tables():
            file = Path(self.log_dir, "train", _table_file(name))
            np.savetxt(file, np.asarray(table.numpy(), "f4"), "%.6g", "\t")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _table_file(name: str) -> str:
    return f"{name.replace('/', '_')}.embeddings.tsv"


def _batches(profile_batch: Any) -> tuple[int, int]:
    """The first and the last batch to trace; (0, 0): none."""
    given = profile_batch
    if isinstance(given, str):
        given = [int(part) if part.strip().isdecimal() else -1 for part in given.split(",")]
    pair = [given, given] if isinstance(given, int) else list(given) if _is_pair(given) else given
    if _is_pair(pair) and all(isinstance(one, int) for one in pair) and 0 <= pair[0] <= pair[1]:
        return pair[0], pair[1]
    raise ValueError(
        "TensorBoard: profile_batch must be a non-negative integer or a pair (first, last) of "
        f"positive ones; it is {profile_batch!r}"
    )


def _is_pair(value: Any) -> bool:
    return isinstance(value, Sequence) and len(value) == 2


def _picture(weight: np.ndarray) -> np.ndarray | None:
    """A weight as images, from its least number, black, to its greatest; None: it has too many
    dimensions."""
    weight = weight.squeeze()
    if weight.ndim == 2 and weight.shape[0] > weight.shape[1]:
        weight = weight.T
    if not 1 <= weight.ndim <= 3 or not weight.size:
        return None
    low, high = weight.min(), weight.max()
    shown = (weight - low) / (high - low) if high > low else np.zeros_like(weight)
    if weight.ndim == 1:
        return shown.reshape(1, 1, -1, 1)
    # Of a kernel with three dimensions, an image for each of its last one.
    return (shown[None] if weight.ndim == 2 else shown.transpose(2, 0, 1))[..., None]


def _layers_of(model: Any) -> dict[str, Any] | None:
    """The layers of a model in the form that TensorBoard's page of graphs reads; None for one that
    is a class of its own, whose layers are in no order."""
    config = json.loads(model.to_json()) if _is_drawn(model) else None
    return None if config is None else _drawn(config)


def _is_drawn(model: Any) -> bool:
    return getattr(model, "_functional", None) is not None or type(model).__name__ == "Sequential"


def _drawn(layer: Mapping[str, Any]) -> dict[str, Any]:
    config = layer["config"]
    shown: dict[str, Any] = {"name": config.get("name") or layer.get("name")}
    if isinstance(config.get("dtype"), str):
        shown["dtype"] = config["dtype"]
    made: dict[str, Any] = {"class_name": layer["class_name"], "config": shown}
    if "inbound_nodes" in layer:  # Not in a Sequential: there one layer follows another.
        before = [{"config": {"keras_history": each}} for each in _tensors(layer["inbound_nodes"])]
        made["inbound_nodes"] = [{"args": [before]}] if before else []
    if "layers" in config:
        shown["layers"] = [_drawn(each) for each in config["layers"]]
    if "output_layers" in config:
        shown["input_layers"] = [name for name, *_ in _tensors(config["input_layers"])]
        shown["output_layers"] = [list(each) for each in _tensors(config["output_layers"])]
    return made


def _tensors(structure: Any) -> list[Sequence[Any]]:
    """The (layer, node, number) of all tensors in nested lists and dicts."""
    if isinstance(structure, Mapping):
        if structure.get("class_name") == "__keras_tensor__":
            return [structure["config"]]
        return [found for each in structure.values() for found in _tensors(each)]
    if not isinstance(structure, (list, tuple)):
        return []
    if len(structure) == 3 and isinstance(structure[0], str) and isinstance(structure[1], int):
        return [structure]
    return [found for each in structure for found in _tensors(each)]
