"""Model: layers in, training and predictions out."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from . import _arrays, _exporting, _native, _objectives, _serving, onnx, optimizers, schedules
from ._arrays import Arrays
from ._data_spec import DataSpec
from ._description import ModelDescription, data_beside, save_vocabularies
from ._dispatch import convert
from ._files import check_writable
from ._graphs import Graph
from ._native import EvalResult, FitResult, Output, Progress, TaskStats
from ._progress import ProgressPrinter, table
from ._usage import explains, lacks, real, whole
from .cluster import Cluster, LocalCluster
from .dtypes import DType, as_dtype, float32, float64, name_of
from .errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from .function import ConcreteFunction
from .ops.basic import cast
from .server import job_user


@dataclass(frozen=True)
class VariableInfo:
    """What is known of a model's variable without asking the cluster."""

    name: str
    dtype: DType
    shape: tuple[int, ...]


def _parameters(variable: VariableInfo) -> int:
    return math.prod(variable.shape)


def _tell(text: str, is_warning: bool = True) -> None:
    """What people should know while fit() goes on, as the command line has it."""
    warning = "warning: " if is_warning else ""
    print(f"sidereal: {warning}{text}", file=sys.stderr, flush=True)


class _ModelGraph(Graph):
    """The graph of a model, while it is built."""

    def operation(self, value: Output) -> Output:
        return value


_KEPT = (
    "export(path) writes what the model predicts, for programs that serve it, and fit() with "
    "checkpoint_dir=... what it has learned, from which fit() goes on in another program too"
)
_READ = "get_variable(name) reads one of variables()"
_WRITTEN = (
    "variables begin as initializers of layers say (embeddings_initializer=...), or as a "
    "checkpoint has them: fit(checkpoint_dir=..., resume=...)"
)


@lacks(
    save=_KEPT,
    save_weights=_KEPT,
    load="sidereal.saved_model.load(path) loads what export(path) wrote; fit() with the "
    "checkpoint_dir=... of another fit() goes on from there",
    load_weights="fit(checkpoint_dir=..., resume=...) goes on from a checkpoint, the newest one "
    "there unless resume= names another",
    get_weights=_READ,
    weights=_READ,
    set_weights=_WRITTEN,
    set_variable=_WRITTEN,
)
class Model:
    """A model: inputs, layers, compile(), then fit(), evaluate() and predict() on a cluster.

        model = Model(seed=7)
        rows = keras.layers.Embedding(10_000, 16)(model.input("ids", int64, (8,)))
        model.compile(keras.layers.FM()(rows), optimizers.Adagrad(0.05))

    Its variables live on the cluster it is trained on. Another fit() there goes on from them; on
    another cluster it begins again. `seed` decides initial values, dropout and the order of rows.
    One thread at a time may train or evaluate a model.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._graph: _native.Model | None = _native.Model(seed)
        #: Its inputs by name.
        self._inputs: dict[str, Output] = {}
        self._compiled: _native.CompiledModel | None = None
        self._trainer: _native.Trainer | None = None
        self._cluster: Cluster | None = None
        #: What it is called there; "": it has a name of its own.
        self._job = ""
        #: Where fit() has taught it what it knows.
        self._taught_on: Cluster | None = None
        #: The first data it was trained on, with what is known of its numbers and its fields.
        self._known: DataSpec | None = None
        self._busy = threading.Lock()

    @classmethod
    def _from_compiled(cls, compiled: _native.CompiledModel, seed: int) -> Model:
        model = cls(seed)
        model._graph = None
        model._compiled = compiled
        return model

    def _open(self) -> _native.Model:
        if self._graph is None:
            raise FailedPreconditionError("this model is compiled: nothing can be added to it")
        return self._graph

    def input(self, name: str, dtype: Any, shape: Sequence[int] = ()) -> Output:
        """A value fed per row under the column name `name`; `shape` is that of one row, -1 for an
        extent that differs from batch to batch. sidereal.string: str or bytes, which a lookup
        table or a hash makes ids of."""
        made = self._open().input(name, name_of(dtype), list(shape))
        self._inputs[name] = made
        return made

    @contextlib.contextmanager
    def as_default(self) -> Iterator[None]:
        """What is made in this context becomes part of the model's graph, also without inputs of
        it: queues, accumulators and mutable tables, of which each worker then has its own.

            with model.as_default():
                seen = sr.lookup.experimental.MutableHashTable(sr.int64, sr.int64, 0)
                model.add_update(seen.insert(ids, ids))
        """
        with _ModelGraph(self._open()).building():
            yield

    def add_update(self, update: Output) -> None:
        """Before compile(): each step of training runs `update` too, which a method such as
        enqueue() gave back."""
        graph = self._open()
        if not isinstance(update, Output):
            raise InvalidArgumentError(
                f"{update!r} is nothing that a step could run: give what a method like enqueue() "
                "gave back, of a queue, accumulator or table made within model.as_default()"
            )
        graph.add_update(update)

    @explains(
        "a Model is compiled with its output: compile(output, optimizer)",
        metrics="evaluate() of a model of probabilities gives AUC and log loss; "
        "sidereal.keras.Model takes metrics",
    )
    def compile(
        self,
        output: Output | Mapping[str, Output],
        optimizer: optimizers.Optimizer | str = "adam",
        *,
        loss: Any = None,
        loss_weights: Mapping[str, float] | None = None,
    ) -> None:
        """Finishes the model. A model compiles once.

        output: a value, or several by the names of the columns that are their labels.
        loss: what is minimized. None: `output` ([batch, 1] or [batch]) is a logit, the loss its
        mean sigmoid cross entropy against the column "label", and predict() gives probabilities.
        A float32 scalar computed from `output` and inputs, such as the mean of squared differences,
        or the sum of several losses; predict() gives `output`. A name: "binary_crossentropy" of
        logits; "mse" and "mae" of numbers; "sparse_categorical_crossentropy" of logits
        [batch, classes]; "pairwise_logistic" of scores, for each two rows (of one value of the
        input "group", if there is one) of which one has the higher label. Or a function of labels
        [batch] and the output that gives the losses of rows. Of several outputs one for all, or a
        dict; predict() then has what they predict beside each other, [batch, n].
        loss_weights: what the losses of outputs are multiplied by before they are added up.

        Of a model with an input "sample_weight" (float32, per row) the losses of rows are
        multiplied by it.
        """
        if self._graph is None:
            raise FailedPreconditionError("this model is compiled already")
        if isinstance(output, Mapping) and (not output or loss is None):
            raise InvalidArgumentError(
                "compile(): several outputs come with a loss: a name for all, or a dict of them"
            )
        if loss_weights is not None and not isinstance(output, Mapping):
            raise InvalidArgumentError("compile(): loss_weights are of several outputs by name")
        if loss is not None and not isinstance(loss, (Output, str, Mapping)) and not callable(loss):
            raise TypeError(
                f"compile(): loss is {loss!r}; it is a value that is computed from the output and "
                "inputs, a name, a function, or None for sigmoid cross entropy"
            )
        if loss == "binary_crossentropy" and not isinstance(output, Mapping):
            loss = None
        if loss is not None and not isinstance(loss, Output):
            graph = _ModelGraph(self._graph)
            with graph.building():
                output, loss = _objectives.objective(
                    output, loss, loss_weights, lambda name: self.input(name, float32),
                    self._inputs,
                )  # fmt: skip
        by = optimizers.get(optimizer)
        update = by._of_model()
        rate = by._given_rate()
        if isinstance(rate, schedules.LearningRateSchedule):
            done = cast(self._graph.steps_done(), float64)
            self._graph.set_learning_rate(convert(rate.rate(done)))
        one: Any = output
        if loss is None:
            self._compiled = self._graph.compile(one, update)
        else:
            self._compiled = self._graph.compile_loss(one, loss, update)
        self._graph = None

    @property
    def inputs(self) -> list[VariableInfo]:
        """Columns the data must have; shapes begin with the batch, -1."""
        return [VariableInfo(n, as_dtype(d), tuple(s)) for n, d, s in self._need_compiled().inputs]

    def variables(self) -> list[VariableInfo]:
        """Names and shapes of all variables."""
        return [
            VariableInfo(n, as_dtype(d), tuple(s)) for n, d, s in self._need_compiled().variables
        ]

    def initialize(self, cluster: Cluster) -> None:
        """Creates the variables on `cluster` with their initial values. fit() does this by itself;
        here for looking at a model before it is trained."""
        with self._exclusively():
            self._place(cluster)

    @explains(
        "labels are the column 'label' of the data: fit({'ids': ids, 'label': labels})",
        y="labels are the column 'label' of the data",
        x="arrays go into the data by the names of the inputs: fit({'ids': ids, 'label': labels})",
        validation_data="write validation=",
        validation_split="write validation= and give the rows that are left out",
        callbacks="write on_progress=, which is called with a Progress; sidereal.keras.Model takes "
        "callbacks",
        sample_weight="weights of rows are the column 'sample_weight' of the data, of a model with "
        "the input model.input('sample_weight', sidereal.float32)",
    )
    def fit(
        self,
        data: DataSpec | Arrays,
        *,
        cluster: Cluster | None = None,
        validation: DataSpec | Arrays | None = None,
        epochs: int = 1,
        batch_size: int = 1024,
        shuffle: bool = True,
        steps_in_flight: int = 1,
        consistency: str = "async",
        compute_dtype: Any = "float32",
        learning_rate_decay: float = 1.0,
        patience: int = 0,
        restore_best_weights: bool | None = None,
        metrics_by: str | None = None,
        steps_max: int = 0,
        record_losses: bool = False,
        verbose: bool = True,
        on_progress: Callable[[Progress], None] | None = None,
        trace: str | os.PathLike[str] | None = None,
        trace_steps: tuple[int, int] = (10, 30),
        checkpoint_dir: str | os.PathLike[str] | None = None,
        save_every: str = "5m",
        keep: int = 5,
        resume: str | os.PathLike[str] = "auto",
        checkpoint_full_every: int = 1,
        on_ps_loss: str = "fail",
        on_worker_loss: str = "fail",
        restart_timeout_s: float = 120.0,
        name: str = "",
        take_over: bool = False,
        parts_per_lane: int | None = None,
        start_ps: int = 0,
        autoscale: str = "off",
    ) -> FitResult:
        """Trains on `data`: a dict of arrays by column name, or a spec of sidereal.data.

        cluster: needed the first time; then the one used last is meant.
        learning_rate_decay: the learning rate is multiplied by it after each epoch.
        validation: evaluated after each epoch. patience: stop after so many epochs without a better
        validation AUC, or loss where there is no AUC. restore_best_weights: after fit() the model
        is as it was after the best epoch (FitResult.best_epoch), and so is the last checkpoint;
        None: with `patience`. What is best is kept in checkpoint_dir/best, or without one in a
        temporary folder; running servers need checkpoint_dir for it. metrics_by: a column whose
        equal values make rows a group, such as users, for grouped AUC and NDCG of validation data:
        one of int64, or a categorical one of csv files.
        shuffle: the order of rows differs from epoch to epoch.
        steps_in_flight: 1: a step sees every push of its worker's step before; n: it may miss those
        of its n - 1 latest steps, and waits less. steps_max: per worker lane, 0: no limit.
        consistency: what the steps of a worker lane see of those of others. "async": each worker
        lane updates the model by itself, whatever the others do, and waits for none. "sync": worker
        lanes train in step: one update by the mean of a batch of each, as if by one lane with all
        their rows (FitResult.updates counts them), as with TensorFlow's SyncReplicasOptimizer.
        "sync(k of n)": the same; a step is over when k of the n worker lanes have given their
        gradients, and what slower ones found is dropped. "bounded(s)": each worker lane updates the
        model by itself, at most s + 1 steps ahead of the slowest: it may miss updates of the latest
        s steps of others; bounded(0) is sync. "hybrid": dense variables as with sync, tables as
        with bounded(1): each lane updates rows of tables by itself. "geo(k)": each worker lane
        trains a copy of the dense variables, adds what k steps changed in it to the model's, and
        goes on from what these are then; tables as with async. A lane whose data has ended is not
        waited for.
        compute_dtype: what products of matrices are computed in; bfloat16 is faster on workers
        whose processors have units for it (AMX, AVX512-BF16) and float32 on others. Variables and
        their updates are float32.
        record_losses: keep the loss of every step (first lane of the first worker).
        verbose: show progress on standard error. on_progress: called several times a second.
        trace: a file to write what some steps of all tasks did, for Chrome's trace viewer.
        trace_steps: which steps of each worker lane, from the first up to the second.
        checkpoint_dir: a directory, of the parameter servers too, where the training is saved, and
        from which it goes on: the same fit() after a kill trains each row once. `epochs` counts
        those done before. save_every: "90s", "5m", "2h", "1000steps" of all worker lanes together,
        or "epoch". keep: the newest checkpoints that stay, 0: all. resume: "auto": on from the
        newest checkpoint there that is good, if there is one; "never"; or the prefix of a
        checkpoint. checkpoint_full_every: one in so many is whole; those between have what has
        changed since the one before, which stays as long as they do. FitResult.checkpoints says
        what became of them.
        on_ps_loss: "restore": when a parameter server or worker is lost, fit() waits until it is
        there again, at most `restart_timeout_s`, restores all variables from the newest checkpoint
        and trains the rows since then again, each once for the variables. It ends after five losses
        without a checkpoint between them. Of a LocalCluster(on_ps_loss="restore"), or one whose
        tasks somebody else starts again. "fail": it raises.
        on_worker_loss: "continue": when a worker is lost the others go on with the rows that it had
        left, and variables stay as they are; the rows that it was just at may be trained twice
        (FitResult.rows_twice_max; FitResult.workers_lost). Where worker lanes train in step, fewer
        do. It needs no checkpoint. A worker that is there again trains again. "fail": it is lost
        as on_ps_loss says.
        name: what this job is called on the cluster. One of a name runs there at a time, as long as
        its model is there: if another program runs it, AlreadyExistsError says who, from where and
        since when. take_over: that one ends instead, with FailedPreconditionError, and changes
        nothing any more. "": the model is a job with a name of its own.
        parts_per_lane, start_ps: how the model is spread when it is first placed on the cluster.
        The parts of a table for each lane of each parameter server of the cluster, which move when
        `sidereal scale`, `drain` or `rebalance` says so; None: as many as are good. How many
        parameter servers it begins on, the first ones; 0: all. The others need not run before.
        autoscale: "2-8": the least and the most of them that it is on, as they are busy; the rules
        are those of `sidereal train --autoscale`. "off": it stays where it is.

        Ctrl-C ends the steps in progress and raises KeyboardInterrupt; the cluster stays usable.
        """
        epochs = whole("fit", "epochs", epochs)
        batch_size = whole("fit", "batch_size", batch_size)
        steps_in_flight = whole("fit", "steps_in_flight", steps_in_flight)
        patience = whole("fit", "patience", patience)
        steps_max = whole("fit", "steps_max", steps_max)
        keep = whole("fit", "keep", keep)
        learning_rate_decay = real("fit", "learning_rate_decay", learning_rate_decay)
        spread = {"start_ps": whole("fit", "start_ps", start_ps)}
        if parts_per_lane is not None:
            spread["parts_per_lane"] = whole("fit", "parts_per_lane", parts_per_lane)
        if patience > 0 and validation is None:
            raise InvalidArgumentError(
                f"patience is {patience} and there is no validation, whose figure it watches"
            )
        if restore_best_weights and validation is None:
            raise InvalidArgumentError(
                "restore_best_weights is True and there is no validation, which says what is best"
            )
        if trace is not None:
            check_writable(trace)
        if not 1 <= steps_in_flight <= 64:
            raise InvalidArgumentError(
                f"steps_in_flight is {steps_in_flight}; it must be from 1 to 64"
            )
        if on_ps_loss not in ("fail", "restore"):
            raise InvalidArgumentError(f"on_ps_loss is {on_ps_loss!r}; it is 'fail' or 'restore'")
        if on_worker_loss not in ("fail", "continue"):
            raise InvalidArgumentError(
                f"on_worker_loss is {on_worker_loss!r}; it is 'fail' or 'continue'"
            )
        if take_over and not name:
            raise InvalidArgumentError("take_over is True and there is no name: of which job?")
        resume = os.fspath(resume)
        if checkpoint_dir is None and resume not in ("auto", "never"):
            raise InvalidArgumentError(
                f"resume is {resume!r} and there is no checkpoint_dir, where the training is saved "
                "on: give one"
            )
        with self._exclusively(), contextlib.ExitStack() as files:
            compiled = self._need_compiled()
            inputs, binary = compiled.inputs, compiled.is_binary
            if checkpoint_dir is not None and resume != "never":
                self._known = self._known or data_beside(checkpoint_dir)
            data = self._known_data(data, is_training=True)
            validation = None if validation is None else self._known_data(validation)
            spec = files.enter_context(
                _arrays.as_spec(
                    inputs, data, binary=binary, shuffle=shuffle, seed=self._seed
                )
            )
            valid: Any = validation
            if validation is not None:
                valid = files.enter_context(
                    _arrays.as_spec(inputs, validation, binary=binary, group=metrics_by)
                )
            self._name_unread(data, metrics_by)
            if self._begins_anew(cluster, checkpoint_dir):
                _tell(
                    "the model begins anew: what it learned is on another cluster; fit() with "
                    "checkpoint_dir goes on from there"
                )
            trainer = self._place(cluster, name, take_over, spread)
            self._taught_on = self._cluster
            options = _native.FitOptions()
            options.batch_size = batch_size
            options.epochs = epochs
            options.steps_in_flight = steps_in_flight
            options.consistency = consistency
            options.autoscale = autoscale
            options.compute_dtype = name_of(compute_dtype)
            options.learning_rate_decay = learning_rate_decay
            options.patience = patience
            options.metrics_by = metrics_by or ""
            wanted = patience > 0 if restore_best_weights is None else restore_best_weights
            best = self._best_directory(wanted, checkpoint_dir, restore_best_weights is None)
            if best is not None:
                options.restore_best = True
                options.best_directory = files.enter_context(best)
            options.steps_max = steps_max
            options.record_losses = record_losses
            if checkpoint_dir is not None:
                options.checkpoint_dir = os.fspath(checkpoint_dir)
                self._describe_beside(options.checkpoint_dir, data)
            options.save_every, options.keep = save_every, keep
            options.full_every = checkpoint_full_every
            options.resume = resume
            options.restores = on_ps_loss == "restore"
            options.continues = on_worker_loss == "continue"
            options.restart_timeout_s = restart_timeout_s
            if trace is not None:
                options.trace_first, options.trace_end = trace_steps
            valid_json = None if valid is None else valid.to_json()
            with contextlib.ExitStack() as shown:
                printer = shown.enter_context(ProgressPrinter(epochs)) if verbose else None

                def show(progress: Progress) -> None:
                    if printer is not None:
                        printer(progress)
                    if on_progress is not None:
                        on_progress(progress)

                callback = on_progress if printer is None else show
                result = trainer.fit(spec.to_json(), options, valid_json, callback, _tell)
                if printer is not None:
                    printer.finish(result)
            if trace is not None:
                Path(trace).write_text(result.trace_file)
            return result

    def evaluate(
        self,
        data: DataSpec | Arrays,
        *,
        cluster: Cluster | None = None,
        batch_size: int = 4096,
        metrics_by: str | None = None,
    ) -> EvalResult:
        """The loss on `data`, and AUC (exact), log loss and others of a model of probabilities,
        computed by all workers. metrics_by: as in fit()."""
        compiled = self._need_compiled()
        data = self._known_data(data)
        columns = _arrays.as_spec(
            compiled.inputs, data, binary=compiled.is_binary, group=metrics_by
        )
        with self._exclusively(), columns as spec:
            found = self._place(cluster).evaluate(spec.to_json(), batch_size, metrics_by or "")
            _arrays.check_finite(spec, "the loss", found.loss)
            return found

    def predict(
        self,
        data: DataSpec | Arrays,
        *,
        cluster: Cluster | None = None,
        batch_size: int = 4096,
    ) -> np.ndarray:
        """Predictions in row order: probabilities of label 1, float32 [rows], or what compile() was
        given beside a loss, float32 [rows, ...]. Data needs what it depends on, and no label."""
        compiled = self._need_compiled()
        inputs = [one for one in compiled.inputs if one[0] in compiled.prediction_inputs]
        data = self._known_data(data, has_label=False)
        with self._exclusively(), _arrays.as_spec(inputs, data) as spec:
            found = self._place(cluster).predict(spec.to_json(), batch_size)
            _arrays.check_finite(spec, "what the model predicts", found)
            return found

    def get_variable(self, name: str) -> np.ndarray:
        """The present value of a variable, whole."""
        with self._exclusively():
            known = [variable.name for variable in self.variables()]
            if name not in known:
                raise NotFoundError(
                    f"the model has no variable '{name}'; it has: {', '.join(known)}"
                )
            return np.array(self._place(None).read_variable(name).numpy())

    def inference_function(self) -> ConcreteFunction:
        """What the model predicts now, as a function of its inputs: {"probability": ...}, or
        {"prediction": ...} of a model with a loss of its own.

        Its variables are copies of those on the cluster, held by this process. For serving see
        export().
        """
        return _serving.inference_function(self._need_compiled(), self.get_variable)

    def _best_directory(
        self, wanted: bool, checkpoint_dir: str | os.PathLike[str] | None, by_default: bool
    ) -> contextlib.AbstractContextManager[str] | None:
        """Where the best weights are kept; None when they are not."""
        if not wanted:
            return None
        if checkpoint_dir is not None:
            return contextlib.nullcontext(os.path.join(os.fspath(checkpoint_dir), "best"))
        if isinstance(self._cluster, LocalCluster):
            return tempfile.TemporaryDirectory(prefix="sidereal-best-")
        if by_default:
            return None
        raise InvalidArgumentError(
            "restore_best_weights on running servers needs checkpoint_dir, where they keep the "
            "best weights"
        )

    def _name_unread(self, data: Any, group: str | None) -> None:
        """Warns of columns that fit() was given and the model does not read."""
        columns = _arrays.table_columns(data)
        if not isinstance(columns, Mapping):
            return
        known = [one[0] for one in self._need_compiled().inputs]
        read = {*known, _arrays.LABEL, group}
        unread = [str(name) for name in columns if name not in read]
        if unread:
            warnings.warn(
                f"the model does not read these columns of the data: {', '.join(unread)}; its "
                f"inputs are {', '.join(known)}",
                stacklevel=5,
            )

    def _describe_beside(self, directory: str, data: Any) -> None:
        """Writes model.json to where checkpoints are going to be, for `sidereal export`."""
        # A directory that cannot be made is the trainer's to tell; what no file can describe, such
        # as queues, does not keep a model from being trained.
        with contextlib.suppress(OSError, FailedPreconditionError):
            os.makedirs(directory, exist_ok=True)
            self.describe(directory, data if isinstance(data, DataSpec) else None)
            save_vocabularies(directory, data if isinstance(data, DataSpec) else None)

    def describe(self, path: str | os.PathLike[str], data: DataSpec | None = None) -> str:
        """Writes what the model is, without what it has learned, to a file, or as model.json to a
        folder: with it and a checkpoint, sidereal.models.export() and `sidereal export` make what
        export() makes, without a cluster. Gives the path.

        data: what it is trained on; then programs know how columns of files become its inputs.
        """
        return self._description(data).save(path)

    def export(
        self,
        path: str | os.PathLike[str],
        format: str = "saved_model",
        *,
        data: DataSpec | None = None,
        inputs: str = "ids",
        tables: Sequence[str] | None = None,
        external_data_bytes: int = onnx.EXTERNAL_DATA_BYTES,
    ) -> None:
        """Writes what the model predicts now to a file for programs that serve it.

        format: "saved_model", for sidereal.saved_model.load(); "onnx", for ONNX Runtime and others;
            "tables", the embeddings alone, for sidereal.TableFile.
        data: what it is trained on; then `sidereal predict` knows how columns become its inputs.
        inputs: "vectors": the model takes rows of tables in the place of ids, and has no tables.
        tables: of format "tables", which; all that rows are taken from if absent.
        external_data_bytes: of format "onnx", tables of so many bytes are in a file PATH.data.
        """
        description = self._description(data)
        _exporting.export(
            description, self.get_variable, path, format, inputs=inputs, tables=tables,
            external_data_bytes=external_data_bytes,
        )  # fmt: skip

    def _description(self, data: DataSpec | None) -> ModelDescription:
        known = data if data is None else self._known_data(data)
        return ModelDescription.of(self._need_compiled(), known)

    def _known_data(self, data: Any, is_training: bool = False, has_label: bool = True) -> Any:
        """The data with its numbers scaled as those the model was first trained on, and the fields
        of that, in whatever order columns stand."""
        if not isinstance(data, DataSpec) or data.format != "csv":
            return data
        if self._known is not None and not data.categorical:
            data = replace(data, categorical=self._known.categorical)
        if not has_label:
            data = _arrays.without_label(data)
        known = data.with_statistics(like=self._known)
        if is_training and self._known is None:
            self._known = replace(known, categorical=known.inspect().categorical)
        return known

    def task_stats(self) -> list[TaskStats]:
        """Figures of every ps task so far; those of workers are in FitResult.tasks."""
        with self._exclusively():
            return self._place(None).task_stats()

    def summary(self) -> None:
        """Prints the variables with their shapes and numbers of parameters."""
        rows = [[v.name, str(v.shape), f"{_parameters(v):,}"] for v in self.variables()]
        print(table(["variable", "shape", "parameters"], rows))
        print(f"\n{sum(map(_parameters, self.variables())):,} parameters")

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a Model can be neither copied nor pickled: {_KEPT}")

    def __repr__(self) -> str:
        if self._compiled is None:
            return "Model(not compiled)"
        parameters = sum(map(_parameters, self.variables()))
        inputs = _arrays.describe(self._compiled.inputs)
        return f"Model(inputs: {inputs}; {parameters:,} parameters)"

    def _need_compiled(self) -> _native.CompiledModel:
        if self._compiled is None:
            raise FailedPreconditionError(
                "the model is not compiled; call compile(logit, optimizer=...) first"
            )
        return self._compiled

    def _place(
        self,
        cluster: Cluster | None,
        name: str = "",
        take_over: bool = False,
        spread: dict[str, int] | None = None,
    ) -> _native.Trainer:
        """The trainer on `cluster`, or on the one used last."""
        compiled = self._need_compiled()
        if cluster is None:
            cluster = self._cluster
            if cluster is not None and cluster.stopped:
                raise FailedPreconditionError(
                    "the cluster has been stopped, and what the model learned there went with it: "
                    "predict, evaluate and export before the cluster's block ends, or fit() with "
                    "checkpoint_dir, from which another cluster goes on"
                )
        if cluster is None:
            raise FailedPreconditionError(
                "the model is on no cluster yet; give one: fit(data, cluster=LocalCluster())"
            )
        cluster._require_running()
        if cluster is not self._cluster or self._trainer is None:
            self._trainer = None  # The variables there go first.
            self._trainer = _native.create_trainer(
                cluster._native,
                compiled,
                name=name,
                take_over=take_over,
                user=job_user(),
                **(spread or {}),
            )
            self._cluster, self._job = cluster, name
        elif name and name != self._job:
            job = f"the job '{self._job}'" if self._job else "a job without a name of yours"
            raise FailedPreconditionError(
                f"this model is on the cluster as {job}; it cannot become '{name}' there"
            )
        return self._trainer

    def _begins_anew(self, cluster: Cluster | None, checkpoint_dir: Any) -> bool:
        """Whether a fit on `cluster` leaves behind what others have taught the model."""
        before = self._taught_on
        return before is not None and cluster not in (None, before) and checkpoint_dir is None

    @contextlib.contextmanager
    def _exclusively(self) -> Iterator[None]:
        if not self._busy.acquire(blocking=False):
            raise FailedPreconditionError("another thread is using this model")
        try:
            yield
        finally:
            self._busy.release()
