"""compile(), fit(), evaluate() and predict() of models."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from numbers import Integral
from typing import Any

import numpy as np

from .. import errors, nest
from .._conversion import inside
from .._native import Tensor
from ..function import function
from ..gradients import GradientTape
from ..ops import array, math
from ..ops.ragged import RaggedTensor
from ..variable import together
from . import optimizers
from ._batches import (
    Arrays,
    Batch,
    Epochs,
    class_weights,
    count,
    data_of,
    pack,
    tensors,
    unpack,
)
from ._cluster import Call, Cluster, WorkerData
from ._compiled import CompiledLoss, CompiledMetrics
from ._configs import deserialize, serialize
from ._layer import Layer
from ._metric import Mean, Metric
from .callbacks import CallbackList, History

Logs = dict[str, Any]


def _examples(x: Any, y_pred: Any) -> Any:
    """How many examples a batch has."""
    if isinstance(x, RaggedTensor):
        return math.cast(x.nrows(), "float32")
    leaves = [leaf for leaf in nest.flatten(y_pred) if leaf is not None]
    return math.cast(array.shape(leaves[0])[0], "float32")


def _numbers(logs: Mapping[str, Any]) -> Logs:
    """Logs as Python numbers; metrics of several numbers stay arrays."""
    found: Logs = {}
    for name, value in logs.items():
        if isinstance(value, Mapping):
            found |= _numbers(value)
        elif hasattr(value, "numpy"):
            made = value.numpy()
            found[name] = float(made) if made.ndim == 0 else made
        else:
            found[name] = value
    return found


class Trainer(Layer):
    """What a model has to be trained with."""

    optimizer: Any = None
    #: A callback sets it to end fit() after the batch.
    stop_training = False
    compiled = False
    history: History | None = None
    run_eagerly = False
    steps_per_execution = 1
    _compiled_loss: CompiledLoss | None = None
    _compiled_metrics: CompiledMetrics | None = None
    #: The first epoch of fit(), which callbacks set that restore a model.
    _initial_epoch = 0
    #: What fit() goes through, in which callbacks say where it begins.
    _training_data: Epochs | WorkerData | None = None
    _is_begun_within = False
    _compile_arguments: Mapping[str, Any]
    _step_functions: dict[Any, Callable[..., Any]]
    #: Whose scope it was made in, if any.
    _strategy: Any = None
    _kept_cluster: Cluster | None = None

    @property
    def distribute_strategy(self) -> Any:
        """The strategy in whose scope it was made; None for one of this process."""
        return self._strategy

    @property
    def _cluster(self) -> Cluster | None:
        """What runs its steps; None: this process."""
        if self._kept_cluster is None and self._strategy is not None:
            coordinator = self._strategy._coordinator_of_models()
            self._kept_cluster = None if coordinator is None else Cluster(coordinator)
        return self._kept_cluster

    @contextmanager
    def _in_scope(self) -> Iterator[None]:
        """Variables made in the context are where those of the model are."""
        strategy = self._strategy
        with nullcontext() if strategy is None else strategy.scope():
            yield

    @property
    def output_names(self) -> list[str] | None:
        """The names of the outputs; None where call() says what they are."""
        return None

    def compile(
        self, optimizer: Any = "rmsprop", loss: Any = None, loss_weights: Any = None,
        metrics: Any = None, weighted_metrics: Any = None, run_eagerly: bool = False,
        steps_per_execution: int = 1, jit_compile: Any = "auto", auto_scale_loss: bool = True,
    ) -> None:  # fmt: skip
        """Says how the model is trained.

        loss, loss_weights, metrics, weighted_metrics: for several outputs a list of what each has,
            or a dict by their names. Metrics do not know the weights of examples, weighted_metrics
            do.
        run_eagerly: steps run op by op, not as a program.
        steps_per_execution: so many steps run as one program.

        jit_compile and auto_scale_loss change nothing.
        """
        del jit_compile, auto_scale_loss
        steps_per_execution = count("steps_per_execution", steps_per_execution)
        if run_eagerly and self._cluster is not None:
            raise ValueError(
                f"model '{self.name}' was made in the scope of a strategy: workers run its steps "
                "as programs, and not one op after the other; leave out run_eagerly"
            )
        self._compile_arguments = {
            "loss": loss, "loss_weights": loss_weights, "metrics": metrics,
            "weighted_metrics": weighted_metrics, "run_eagerly": run_eagerly,
            "steps_per_execution": steps_per_execution,
        }  # fmt: skip
        with self._in_scope():
            self.optimizer = optimizers.get(optimizer)
            self._loss_tracker = Mean(name="loss")
        self.loss = loss
        names = self.output_names
        self._compiled_loss = None if loss is None else CompiledLoss(loss, loss_weights, names)
        self._compiled_metrics = CompiledMetrics(metrics, weighted_metrics, names)
        self.run_eagerly, self.steps_per_execution = run_eagerly, steps_per_execution
        self._step_functions = {}
        self.stop_training = False
        self.compiled = True

    def get_compile_config(self) -> dict[str, Any] | None:
        """What compile_from_config() compiles it by again; None if it is not compiled."""
        if not self.compiled:
            return None
        found: dict[str, Any] = serialize({"optimizer": self.optimizer, **self._compile_arguments})
        return found

    def compile_from_config(self, config: Mapping[str, Any]) -> None:
        """compile() as get_compile_config() says."""
        self.compile(**deserialize(config))

    def _check_compiled(self, method: str) -> None:
        if not self.compiled:
            raise ValueError(f"model '{self.name}' is not compiled; {method}() needs compile()")

    # --- Losses and metrics of a step.

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None,
        training: bool = True,
    ) -> Any:  # fmt: skip
        """What a step minimizes: the compiled loss and those that layers added."""
        parts = []
        if self._compiled_loss is not None:
            parts.append(self._compiled_loss(y, y_pred, sample_weight, self._output_masks))
        parts += [math.reduce_sum(each) for each in self.losses]
        parts = [part for part in parts if part is not None]
        if not parts:
            raise ValueError("there is no loss: compile() was given none and no layer adds one")
        return parts[0] if len(parts) == 1 else math.add_n(parts)

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> Logs:
        """Adds a batch to the metrics, and gives what they say."""
        if self._compiled_metrics is not None:
            self._compiled_metrics.update_state(y, y_pred, sample_weight)
        return self.get_metrics_result()

    def metrics_by_name(self) -> dict[str, Metric]:
        """The metrics by what they are called in logs."""
        if not self.compiled:
            return {each.name: each for each in super().metrics}
        found: dict[str, Metric] = {"loss": self._loss_tracker}
        own = [each for each in super().metrics if each is not self._loss_tracker]
        if self._compiled_loss is not None:
            found |= {each.name: each for each in self._compiled_loss.metrics}
        if self._compiled_metrics is not None:
            found |= self._compiled_metrics.named()
        found |= {each.name: each for each in own}
        return found

    @property
    def metrics(self) -> list[Metric]:
        """The metrics of the model, that of the loss first."""
        return list(self.metrics_by_name().values())

    @property
    def metrics_names(self) -> list[str]:
        return list(self.metrics_by_name())

    def get_metrics_result(self) -> Logs:
        """What the metrics say, by their names."""
        found: Logs = {}
        metrics = self.metrics_by_name()
        with together(_kept_by(metrics.values()), "VariableRead"):
            for name, metric in metrics.items():
                result = metric.result()
                found |= result if isinstance(result, dict) else {name: result}
        return found

    def reset_metrics(self) -> None:
        """Begins all metrics anew."""
        metrics = self.metrics
        with together(_kept_by(metrics), "VariableAssign"):
            for metric in metrics:
                metric.reset_state()

    # --- Steps.

    def train_step(self, data: Batch) -> Logs:
        """A step of training on a batch (x, y, sample_weight); what it gives are the logs. A model
        of one's own may have another one."""
        x, y, weight = unpack(data)
        with GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = inside(self.compute_loss)(
                x=x, y=y, y_pred=y_pred, sample_weight=weight, training=True
            )
        self._loss_tracker.update_state(loss, sample_weight=_examples(x, y_pred))
        variables = self.trainable_variables
        if not variables:
            raise ValueError(f"model '{self.name}' has no weights to train")
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return inside(self.compute_metrics)(x, y, y_pred, sample_weight=weight)

    def test_step(self, data: Batch) -> Logs:
        """A step of evaluation."""
        x, y, weight = unpack(data)
        y_pred = self(x, training=False)
        if self._compiled_loss is not None or self.losses:
            loss = inside(self.compute_loss)(
                x=x, y=y, y_pred=y_pred, sample_weight=weight, training=False
            )
            self._loss_tracker.update_state(loss, sample_weight=_examples(x, y_pred))
        return inside(self.compute_metrics)(x, y, y_pred, sample_weight=weight)

    def predict_step(self, data: Batch) -> Any:
        """The outputs for a batch."""
        x, _, _ = unpack(data)
        return self(x, training=False)

    def _function(self, kind: str, step: Callable[[Batch], Any]) -> Callable[[Any], Any]:
        """_of_batches() as a program, or run op by op."""
        functions = self.__dict__.setdefault("_step_functions", {})
        if kind in functions:
            made: Callable[[Any], Any] = functions[kind]
            return made
        run = self._of_batches(kind, step)
        functions[kind] = run if self.run_eagerly else function(run)
        return functions[kind]

    def _of_batches(self, kind: str, step: Callable[[Batch], Any]) -> Callable[[Any], Any]:
        """A function that does the step for a list of batches: the result of the last one, of
        prediction those of all."""

        def run(batches: Any) -> Any:
            results = [inside(step)(pack(*unpack(batch))) for batch in batches]
            # What layers added belongs to a graph that is finished.
            self._clear_losses()
            return results if kind == "predict" else results[-1]

        run.__name__ = f"{kind}_step"
        return run

    def _function_of_iterator(self, kind: str, step: Callable[[Batch], Any], count: int) -> Any:
        """_of_batches() as a program that takes so many batches of an iterator."""
        functions = self.__dict__.setdefault("_step_functions", {})
        if (kind, count) not in functions:
            run_all = self._of_batches(kind, step)

            def run(iterator: Any) -> Any:
                return run_all([next(iterator) for _ in range(count)])

            run.__name__ = f"{kind}_step"
            functions[kind, count] = function(run)
        return functions[kind, count]

    # --- Loops.

    def fit(
        self, x: Any = None, y: Any = None, batch_size: int | None = None, epochs: int = 1,
        verbose: Any = "auto", callbacks: Any = None, validation_split: float = 0.0,
        validation_data: Any = None, shuffle: bool = True,
        class_weight: Mapping[int, float] | None = None, sample_weight: Any = None,
        initial_epoch: int = 0, steps_per_epoch: int | None = None,
        validation_steps: int | None = None, validation_batch_size: int | None = None,
        validation_freq: Any = 1,
    ) -> History:  # fmt: skip
        """Trains for `epochs` passes over the data.

        x: arrays or tensors, or lists or dicts of them, with `y` and `sample_weight` beside; or
            what can be iterated and gives batches (x, y) or (x, y, sample_weight). A model of a
            strategy also takes what the strategy has distributed, and a function of an InputContext
            that makes a dataset; with `steps_per_epoch`, workers read datasets themselves.
        validation_data: (x, y), (x, y, sample_weight) or what gives batches; validation_split: the
            part of arrays, at their end, that is taken for it. `validation_freq`: every so many
            epochs, or the numbers of the epochs.
        shuffle: arrays are in another order in each epoch, by NumPy's random numbers.
        class_weight: weights of examples by the number of their class.
        steps_per_epoch: batches of an epoch; the next one goes on behind them.

        Returns a History of the logs of all epochs.
        """
        self._check_compiled("fit")
        epochs = count("epochs", epochs, 0)
        initial_epoch = count("initial_epoch", initial_epoch, 0)
        if steps_per_epoch is not None:
            count("steps_per_epoch", steps_per_epoch)
        cluster = self._cluster
        if cluster is not None:
            x, validation_data = cluster.data_of(x), cluster.data_of(validation_data)
        data = data_of(x, y, sample_weight, batch_size, shuffle)
        if validation_split and validation_data is None:
            if not isinstance(data, Arrays):
                raise ValueError("validation_split is for arrays and tensors, not for batches")
            kept, validation_data = data.cut(validation_split)
            x, y, sample_weight = kept
            data = data_of(x, y, sample_weight, batch_size, shuffle)
        training: Epochs | WorkerData = Epochs(data, steps_per_epoch)
        if cluster is not None and class_weight is None:
            training = cluster.read_by_workers(x, steps_per_epoch) or training
        listed = self._callbacks(callbacks, verbose, epochs, training.steps, history=True)
        validation = None
        if validation_data is not None:
            validation = _validation(validation_data, validation_batch_size or batch_size)
        self.stop_training = False
        self._initial_epoch, self._training_data = initial_epoch, training
        listed.on_train_begin()
        logs: Logs = {}
        for epoch in range(self._initial_epoch, epochs):
            self.reset_metrics()
            listed.on_epoch_begin(epoch)
            logs = self._run_epoch(training, listed, class_weight)
            if validation is not None and _is_due(validation_freq, epoch):
                found = self._evaluate(Epochs(validation, validation_steps), listed)
                logs |= {f"val_{name}": value for name, value in found.items()}
            listed.on_epoch_end(epoch, logs)
            if self.stop_training:
                break
        listed.on_train_end(logs)
        self._training_data = None
        assert self.history is not None
        return self.history

    def _position_of_training(self, step: int) -> Any:
        """Where the data of fit() is after so many steps of an epoch, when none is under way; None:
        that is not known."""
        data = self._training_data
        return None if data is None else data.position(step)

    def _when_at_rest(self, call: Callable[[], None]) -> None:
        """For callbacks, at the end of a step: calls this when all steps that were begun have
        ended, and callbacks know."""
        if self._cluster is None:
            call()
        else:
            self._cluster.when_at_rest(call)

    def _begin_training_at(self, epoch: int, step: int, position: Any) -> None:
        """For callbacks, in on_train_begin(): fit() goes on with a step of an epoch."""
        data = self._training_data
        assert data is not None
        if data.steps is not None and step >= data.steps:
            epoch, step = epoch + 1, 0
        self._initial_epoch, self._is_begun_within = epoch, step > 0
        data.begin_at(step, position)

    def _run_epoch(
        self, training: Epochs | WorkerData, listed: CallbackList,
        class_weight: Mapping[int, float] | None,
    ) -> Logs:  # fmt: skip
        logs: Logs = {}

        def end(step: int, result: Any) -> bool:
            nonlocal logs
            logs = _numbers(result)
            listed.on_train_batch_end(step, dict(logs))
            return self.stop_training

        is_rest, self._is_begun_within = self._is_begun_within, False
        calls = self._calls("train", self.train_step, training, class_weight)
        self._run(calls, listed.on_train_batch_begin, end)
        if not logs and is_rest:
            return {}  # It was at its end.
        if not logs:
            raise ValueError(
                "the data gave no batch; an iterator that has come to its end begins no other epoch"
            )
        return self._of_all(logs)

    def _calls(
        self, kind: str, step: Callable[[Batch], Any], data: Epochs | WorkerData,
        class_weight: Mapping[int, float] | None = None,
    ) -> Iterator[Call]:  # fmt: skip
        """An epoch of steps, so many at once as compile() was told."""
        if isinstance(data, WorkerData):
            yield from data.calls(
                self.steps_per_execution,
                lambda count: self._function_of_iterator(kind, step, count),
            )
            return
        program = self._function(kind, step)
        for first, group in data.groups(self.steps_per_execution):
            if class_weight is not None:
                group = [_weighted(batch, class_weight) for batch in group]
            yield Call(first, len(group), program, group)

    def _run(
        self, calls: Iterator[Call], begin: Callable[[int], None], end: Callable[[int, Any], bool]
    ) -> None:
        """Has them run, here or by workers; see Cluster.run()."""
        if self._cluster is not None:
            self._cluster.run(calls, begin, end)
            return
        for call in calls:
            begin(call.first)
            if end(call.first + call.steps - 1, call.function(call.argument)):
                break

    def _of_all(self, logs: Logs) -> Logs:
        """The logs of the last step with what metrics say after all steps: other workers' have
        maybe ended after it."""
        if self._cluster is None:
            return logs
        found = _numbers(self.get_metrics_result())
        if float(self._loss_tracker.count) == 0:
            found.pop("loss", None)  # A step of one's own says another one.
        return {name: found.get(name, value) for name, value in logs.items()}

    def _evaluate(self, data: Epochs, listed: CallbackList) -> Logs:
        self.reset_metrics()
        listed.on_test_begin()
        logs: Logs = {}

        def end(step: int, result: Any) -> bool:
            nonlocal logs
            logs = _numbers(result)
            listed.on_test_batch_end(step, dict(logs))
            return False

        self._run(self._calls("test", self.test_step, data), listed.on_test_batch_begin, end)
        if not logs:
            raise ValueError("the data for evaluation gave no batch")
        logs = self._of_all(logs)
        listed.on_test_end(dict(logs))
        return logs

    def evaluate(
        self, x: Any = None, y: Any = None, batch_size: int | None = None, verbose: Any = "auto",
        sample_weight: Any = None, steps: int | None = None, callbacks: Any = None,
        return_dict: bool = False,
    ) -> Any:  # fmt: skip
        """The loss and the metrics of data as fit() takes them: a number, a list of them, or with
        `return_dict` a dict by their names."""
        self._check_compiled("evaluate")
        if self._cluster is not None:
            x = self._cluster.data_of(x)
        data = Epochs(data_of(x, y, sample_weight, batch_size), steps)
        listed = self._callbacks(callbacks, verbose, 1, data.steps)
        logs = self._evaluate(data, listed)
        return logs if return_dict else self._flat(logs)

    def _flat(self, logs: Logs) -> Any:
        """The values of logs in Keras' order: of metrics that are called what they are named, as
        they were given, and then the others by their names."""
        named = [name for name, metric in self.metrics_by_name().items() if metric.name == name]
        order = [name for name in named if name in logs]
        values = [logs[name] for name in [*order, *sorted(set(logs) - set(order))]]
        return values[0] if len(values) == 1 else values

    def predict(
        self, x: Any, batch_size: int | None = None, verbose: Any = "auto",
        steps: int | None = None, callbacks: Any = None,
    ) -> Any:  # fmt: skip
        """The outputs for all examples, as arrays."""
        if self._cluster is not None:
            x = self._cluster.data_of(x)
        data = Epochs(data_of(x, batch_size=batch_size), steps)
        listed = self._callbacks(callbacks, verbose, 1, data.steps)
        found: list[Any] = []

        def end(step: int, results: Any) -> bool:
            found.extend(nest.map_structure(_array, result) for result in results)
            listed.on_predict_batch_end(step, {"outputs": found[-1]})
            return False

        listed.on_predict_begin()
        calls = self._calls("predict", self.predict_step, data)
        self._run(calls, listed.on_predict_batch_begin, end)
        listed.on_predict_end()
        if not found:
            raise ValueError("the data for prediction gave no batch")
        return nest.map_structure(lambda *parts: np.concatenate(parts), *found)

    def _callbacks(
        self, callbacks: Any, verbose: Any, epochs: int, steps: int | None, history: bool = False
    ) -> CallbackList:
        if isinstance(callbacks, CallbackList):
            return callbacks
        if verbose != "auto" and (not isinstance(verbose, Integral) or verbose not in (0, 1, 2)):
            raise ValueError(f"verbose is {verbose!r}; it must be 'auto', 0, 1 or 2")
        shown = 1 if verbose == "auto" else int(verbose)
        return CallbackList(
            callbacks, add_history=history, add_progbar=shown != 0, model=self, verbose=shown,
            epochs=epochs, steps=steps,
        )  # fmt: skip

    # --- One batch.

    def train_on_batch(
        self, x: Any, y: Any = None, sample_weight: Any = None,
        class_weight: Mapping[int, float] | None = None, return_dict: bool = False,
    ) -> Any:  # fmt: skip
        """A step of training; the loss and the metrics of this batch, as evaluate() gives them."""
        self._check_compiled("train_on_batch")
        self.reset_metrics()
        batch: Batch = (tensors(x), tensors(y), tensors(sample_weight))
        if class_weight is not None:
            batch = _weighted(batch, class_weight)
        logs = _numbers(self._function("train", self.train_step)([batch]))
        return logs if return_dict else self._flat(logs)

    def test_on_batch(
        self, x: Any, y: Any = None, sample_weight: Any = None, return_dict: bool = False
    ) -> Any:
        """A step of evaluation; the loss and the metrics of this batch."""
        self._check_compiled("test_on_batch")
        self.reset_metrics()
        batch = (tensors(x), tensors(y), tensors(sample_weight))
        logs = _numbers(self._function("test", self.test_step)([batch]))
        return logs if return_dict else self._flat(logs)

    def predict_on_batch(self, x: Any) -> Any:
        """The outputs for a batch, as arrays."""
        step = self._function("predict", self.predict_step)
        return nest.map_structure(_array, step([(tensors(x), None, None)])[0])


def _kept_by(metrics: Iterable[Metric]) -> Iterator[Any]:
    """What metrics have of all batches."""
    for metric in metrics:
        yield from metric.variables


def _array(value: Any) -> Any:
    if not isinstance(value, Tensor):
        raise errors.UnimplementedError(f"predict() gives arrays; an output is {value!r}")
    return value.numpy()


def _weighted(batch: Batch, weights: Mapping[int, float]) -> Batch:
    x, y, weight = unpack(batch)
    if weight is not None:
        raise ValueError("class_weight and sample_weight cannot be given both")
    return x, y, tensors(class_weights(y, weights))


def _validation(data: Any, batch_size: int | None) -> Any:
    if isinstance(data, (list, tuple)):
        x, y, sample_weight = unpack(data)
        return data_of(x, y, sample_weight, batch_size)
    return data_of(data)


def _is_due(frequency: Any, epoch: int) -> bool:
    if not isinstance(frequency, Collection):
        count("validation_freq", frequency)
        return bool((epoch + 1) % frequency == 0)
    return epoch + 1 in frequency
