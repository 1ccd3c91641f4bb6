"""Models of sidereal.keras on parameter servers: loops of one's own, and fit(), evaluate() and
predict(), against the same in one process, over every protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from strategies import cluster_fixture, strategy_of

import sidereal as sr
from sidereal import errors, keras
from sidereal.distribute import ParameterServerStrategy
from sidereal.distribute.coordinator import ClusterCoordinator
from sidereal.distribute.experimental.partitioners import FixedShardsPartitioner
from sidereal.keras import layers

RNG = np.random.default_rng(0)
X = RNG.normal(size=(46, 3)).astype("f")
IDS = RNG.integers(0, 10, 46).astype("i")
Y = (X @ np.array([[1.0], [-2.0], [0.5]]) + (IDS[:, None] > 4)).astype("f")
DATA = ({"x": X, "ids": IDS}, Y)


cluster = cluster_fixture(2, 2)


@pytest.fixture
def strategy(cluster: dict[str, list[str]]) -> ParameterServerStrategy:
    return strategy_of(cluster, FixedShardsPartitioner(2))


def network() -> Any:
    x, ids = keras.Input((3,), name="x"), keras.Input((), dtype="int32", name="ids")
    rows = layers.Embedding(10, 2, embeddings_regularizer="l2", name="table")(ids)
    hidden = layers.Dense(4, "relu", name="hidden")(layers.Concatenate()([x, rows]))
    return keras.Model({"x": x, "ids": ids}, layers.Dense(1, name="head")(hidden))


def same_weights(model: Any) -> Any:
    """A model of this process with the weights of another one."""
    made = network()
    made.set_weights(model.get_weights())
    return made


def dataset(batch: int = 8) -> Any:
    return sr.data.Dataset.from_tensor_slices(DATA).batch(batch)


# --- Variables, and loops of one's own.


def test_variables_of_the_scope_are_on_parameter_servers(strategy: ParameterServerStrategy) -> None:
    with strategy.scope():
        model = network()
        optimizer = keras.optimizers.Adam(0.01)
        metric = keras.metrics.AUC()
    optimizer.build(model.trainable_variables)
    devices = strategy.extended.parameter_devices
    kept = [*model.weights, *optimizer.variables, *metric.variables]
    assert {each.device for each in kept} == set(devices)
    table = [each for each in model.weights if each.name.startswith("table/")]
    assert [each.name for each in table] == ["table/embeddings/part_0", "table/embeddings/part_1"]
    assert [each.device for each in table] == list(devices)
    for variable in model.trainable_variables:
        for slot in optimizer.slots(variable).values():
            assert slot.device == variable.device
    shapes = [(10, 2), (5, 4), (4,), (4, 1), (1,)]
    assert [each.shape for each in model.get_weights()] == shapes
    assert model.count_params() == 49
    model.set_weights([np.full(shape, 2.0, "f") for shape in shapes])
    np.testing.assert_allclose(np.concatenate([each.numpy() for each in table]), 2.0)


def test_a_constraint_of_a_variable_in_shards(strategy: ParameterServerStrategy) -> None:
    with strategy.scope():
        with pytest.raises(errors.UnimplementedError, match="variable_partitioner"):
            layers.Embedding(10, 2, embeddings_constraint="max_norm").build((None,))
        layer = layers.Embedding(10, 2, embeddings_constraint="non_neg")
        layer.build((None,))
        optimizer = keras.optimizers.SGD(1.0)
    optimizer.apply_gradients((sr.ones((5, 2)), each) for each in layer.trainable_variables)
    np.testing.assert_array_equal(layer.get_weights()[0], 0)


OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.05),
    "schedule": lambda: keras.optimizers.RMSprop(
        keras.optimizers.schedules.ExponentialDecay(0.05, 2, 0.5)
    ),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_loop_of_ones_own(strategy: ParameterServerStrategy, kind: str) -> None:
    with strategy.scope():
        model, optimizer = network(), OPTIMIZERS[kind]()
        mean, auc = keras.metrics.Mean(), keras.metrics.AUC()
    coordinator = ClusterCoordinator(strategy)
    local, other = same_weights(model), OPTIMIZERS[kind]()
    local_mean, local_auc = keras.metrics.Mean(), keras.metrics.AUC()

    def made(model: Any, optimizer: Any, mean: Any, auc: Any) -> Any:
        @sr.function
        def step(iterator: Any) -> Any:
            x, y = next(iterator)
            with sr.GradientTape() as tape:
                pred = model(x, training=True)
                loss = sr.reduce_mean(sr.square(pred - y)) + sr.math.add_n(model.losses)
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
            mean.update_state(loss)
            auc.update_state(sr.math.cast(y > 0.0, "float32"), sr.math.sigmoid(pred))
            return loss

        return step

    step = made(model, optimizer, mean, auc)
    iterator = iter(coordinator.create_per_worker_dataset(dataset().take(1).repeat()))
    losses = []
    for _ in range(6):
        losses.append(coordinator.schedule(step, (iterator,)))
        coordinator.join()
    step, steps = made(local, other, local_mean, local_auc), iter(dataset().take(1).repeat())
    expected = [float(step(steps)) for _ in range(6)]
    np.testing.assert_allclose(coordinator.fetch(losses), expected, rtol=1e-5)
    np.testing.assert_allclose(mean.result(), local_mean.result(), rtol=1e-5)
    np.testing.assert_allclose(auc.result(), local_auc.result(), rtol=1e-5)
    assert optimizer.iterations.numpy() == 6
    for mine, wanted in zip(model.get_weights(), local.get_weights()):
        np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-5)
    mean.reset_state()
    assert mean.result() == 0


def test_metrics_of_concurrent_workers_lose_nothing(strategy: ParameterServerStrategy) -> None:
    with strategy.scope():
        metrics = [keras.metrics.Sum(), keras.metrics.MeanSquaredError(), keras.metrics.AUC()]
    coordinator = ClusterCoordinator(strategy)

    @sr.function
    def step(x: Any) -> None:
        metrics[0].update_state(x)
        metrics[1].update_state(x, x - 2.0)
        metrics[2].update_state([0.0, 1.0], [0.1, 0.9])

    for _ in range(60):
        coordinator.schedule(step, (sr.constant([1.0, 2.0]),))
    coordinator.join()
    assert metrics[0].result() == 180
    assert metrics[1].result() == 4
    assert metrics[2].result() == 1
    assert sum(metrics[2].variables[0].numpy()) > 0


def test_a_layer_may_be_built_by_a_function(strategy: ParameterServerStrategy) -> None:
    with strategy.scope():
        model = keras.Sequential([layers.Dense(4, "relu"), layers.BatchNormalization()])
        optimizer = keras.optimizers.SGD(0.1)
    coordinator = ClusterCoordinator(strategy)

    @sr.function
    def step(x: Any) -> Any:
        with sr.GradientTape() as tape:
            loss = sr.reduce_mean(sr.square(model(x, training=True) - 1.0))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    first = coordinator.schedule(step, (X[:8],)).fetch()
    for _ in range(20):
        last = coordinator.schedule(step, (X[:8],))
    coordinator.join()
    assert last.fetch() < first
    assert {each.device for each in model.weights} == set(strategy.extended.parameter_devices)


def test_moving_means_have_every_step_of_all_workers(strategy: ParameterServerStrategy) -> None:
    steps = 60
    with strategy.scope():
        layer = layers.BatchNormalization(momentum=0.95)
        layer.build((None, 3))

    @sr.function
    def step() -> Any:
        return layer(sr.constant(X), training=True)

    coordinator = ClusterCoordinator(strategy)
    for _ in range(steps):
        coordinator.schedule(step)
    coordinator.join()
    _, _, mean, variance = layer.get_weights()
    rest = 0.95**steps
    np.testing.assert_allclose(mean, (1.0 - rest) * X.mean(0), rtol=1e-4)
    np.testing.assert_allclose(variance, rest + (1.0 - rest) * X.var(0), rtol=1e-4)


def test_a_variable_in_shards_has_no_decay(strategy: ParameterServerStrategy) -> None:
    with strategy.scope():
        weight = sr.Variable([1.0, 2.0, 3.0])
        optimizer = keras.optimizers.AdamW(0.5, weight_decay=0.1)
    optimizer.exclude_from_weight_decay([weight])
    optimizer.apply_gradients([(sr.zeros(each.shape), each) for each in weight.variables])
    np.testing.assert_allclose(weight.numpy(), [1, 2, 3])


def test_an_optimizer_of_the_scope_counts_there(strategy: ParameterServerStrategy) -> None:
    with strategy.scope():
        optimizer = keras.optimizers.SGD(0.5)
        weight = sr.Variable([1.0, 2.0, 3.0])
    assert optimizer.iterations.numpy() == 0
    optimizer.learning_rate = 0.25
    optimizer.apply_gradients([(sr.ones(each.shape), each) for each in weight.variables])
    np.testing.assert_allclose(weight.numpy(), [0.75, 1.75, 2.75])
    assert optimizer.iterations.numpy() == 1
    assert optimizer.iterations.device in strategy.extended.parameter_devices


# --- fit(), evaluate() and predict().

FIT: dict[str, Any] = {"epochs": 3, "verbose": 0, "shuffle": False}


def compiled(model: Any, **options: Any) -> Any:
    told = {
        "optimizer": keras.optimizers.Adam(0.05), "loss": "mse",
        "metrics": ["mae", keras.metrics.AUC(from_logits=True, name="auc")],
    }  # fmt: skip
    model.compile(**{**told, **options})
    return model


def pair(strategy: ParameterServerStrategy, **options: Any) -> tuple[Any, Any]:
    """A model on the cluster, and an equal one of this process."""
    with strategy.scope():
        model = compiled(network(), **options)
    return model, compiled(same_weights(model), **options)


class InOrder(keras.callbacks.Callback):
    """Has one step at a time run."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        ClusterCoordinator(self.model.distribute_strategy).join()


KINDS: dict[str, Any] = {
    "arrays": (lambda: DATA, {"batch_size": 8}),
    "dataset": (lambda: (dataset(),), {}),
    "workers": (lambda: (dataset().take(1).repeat(),), {"steps_per_epoch": 5}),
    "finite": (lambda: (dataset(46),), {"steps_per_epoch": 2}),
}


@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_steps_in_order_train_as_one_process(
    strategy: ParameterServerStrategy, kind: str, at_once: int
) -> None:
    data, options = KINDS[kind]
    model, local = pair(strategy, steps_per_execution=at_once)
    history = model.fit(*data(), **FIT, **options, callbacks=[InOrder()])
    wanted = local.fit(*data(), **FIT, **options)
    assert list(history.history) == list(wanted.history)
    for name, values in wanted.history.items():
        np.testing.assert_allclose(history.history[name], values, rtol=1e-5, atol=1e-5)
    for mine, other in zip(model.get_weights(), local.get_weights()):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)
    assert model.optimizer.iterations.numpy() == local.optimizer.iterations.numpy()


def test_workers_at_once_learn(strategy: ParameterServerStrategy) -> None:
    model, _ = pair(strategy, optimizer=keras.optimizers.Adam(0.02))
    before = model.evaluate(*DATA, verbose=0, return_dict=True)
    history = model.fit(*DATA, batch_size=4, epochs=20, verbose=0)
    after = model.evaluate(*DATA, verbose=0, return_dict=True)
    assert after["loss"] < before["loss"] / 2
    assert len(history.history["loss"]) == 20
    assert model.history is history
    assert model.optimizer.iterations.numpy() == 20 * 12


@pytest.mark.parametrize("at_once", [1, 5])
def test_figures_of_an_epoch_count_all_steps(
    strategy: ParameterServerStrategy, at_once: int
) -> None:
    """Weights that do not change have every worker find the same."""
    model, local = pair(strategy, optimizer="sgd", steps_per_execution=at_once)
    model.optimizer.learning_rate = local.optimizer.learning_rate = 0.0
    history = model.fit(*DATA, batch_size=2, epochs=2, verbose=0).history
    wanted = local.fit(*DATA, batch_size=2, epochs=2, verbose=0).history
    for name, values in wanted.items():
        np.testing.assert_allclose(history[name], values, rtol=1e-5)


EVALUATED: dict[str, Any] = {
    "arrays": (lambda: DATA, {"batch_size": 4}),
    "dataset": (lambda: (dataset(4),), {}),
    "steps": (lambda: (dataset(4).repeat(),), {"steps": 12}),
}


@pytest.mark.parametrize("kind", EVALUATED)
def test_evaluate_and_predict_see_each_example_once(
    strategy: ParameterServerStrategy, kind: str
) -> None:
    data, options = EVALUATED[kind]
    model, local = pair(strategy)
    found = model.evaluate(*data(), verbose=0, return_dict=True, **options)
    wanted = local.evaluate(*data(), verbose=0, return_dict=True, **options)
    assert list(found) == list(wanted)
    np.testing.assert_allclose(list(found.values()), list(wanted.values()), rtol=1e-5)
    assert model.evaluate(*data(), verbose=0, **options)[0] == pytest.approx(wanted["loss"])
    found = model.predict(data()[0], verbose=0, **options)
    np.testing.assert_allclose(found, local.predict(data()[0], verbose=0, **options), rtol=1e-5)


def test_data_that_a_function_makes(strategy: ParameterServerStrategy) -> None:
    contexts = []

    def make(context: Any) -> Any:
        contexts.append(context.num_input_pipelines)
        return dataset().repeat()

    model, _ = pair(strategy)
    creator = keras.utils.experimental.DatasetCreator(make)
    for data in (creator, make, strategy.distribute_datasets_from_function(make)):
        history = model.fit(data, steps_per_epoch=3, epochs=2, verbose=0)
        assert len(history.history["loss"]) == 2
        model.evaluate(data, steps=2, verbose=0)
        assert model.predict(data, steps=2, verbose=0).shape == (16, 1)
    model.fit(
        strategy.experimental_distribute_dataset(dataset()), steps_per_epoch=6, verbose=0,
        validation_data=creator, validation_steps=1,
    )  # fmt: skip
    assert model.optimizer.iterations.numpy() == 24
    assert set(contexts) == {1}


def test_a_dataset_of_python_code_goes_with_the_steps(strategy: ParameterServerStrategy) -> None:
    def batches() -> Iterator[Any]:
        for begin in range(0, 40, 8):
            part = slice(begin, begin + 8)
            yield {"x": X[part], "ids": IDS[part]}, Y[part]

    model, local = pair(strategy)
    spec = ({"x": sr.TensorSpec((8, 3)), "ids": sr.TensorSpec((8,), "int32")},
            sr.TensorSpec((8, 1)))  # fmt: skip
    made = sr.data.Dataset.from_generator(batches, output_signature=spec)
    model.fit(made, steps_per_epoch=2, epochs=2, verbose=0)
    assert model.optimizer.iterations.numpy() == 4
    found = model.evaluate(made, verbose=0)
    local.set_weights(model.get_weights())
    np.testing.assert_allclose(found, local.evaluate(made, verbose=0), rtol=1e-5)
    model.fit(batches(), verbose=0)
    assert model.optimizer.iterations.numpy() == 9


class Told(keras.callbacks.Callback):
    """Notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.logs: list[Any] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.begun.append(batch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.ended.append(batch)
        self.logs.append(logs)


def test_callbacks_hear_of_all_steps_in_order(strategy: ParameterServerStrategy) -> None:
    model, _ = pair(strategy, steps_per_execution=2)
    told = Told()
    stop = keras.callbacks.EarlyStopping("val_loss", restore_best_weights=True)
    rates = keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1))
    history = model.fit(
        dataset(2), epochs=2, verbose=0, callbacks=[told, stop, rates], validation_data=DATA
    )
    assert told.begun == list(range(0, 23, 2)) * 2
    assert told.ended == [*range(1, 22, 2), 22] * 2
    assert all(set(each) == {"loss", "mae", "auc"} for each in told.logs)
    assert all(isinstance(value, float) for each in told.logs for value in each.values())
    names = {"loss", "mae", "auc", "val_loss", "val_mae", "val_auc", "learning_rate"}
    assert set(history.history) == names
    np.testing.assert_allclose(history.history["learning_rate"], [0.1, 0.05], rtol=1e-6)


def test_a_callback_ends_training(strategy: ParameterServerStrategy) -> None:
    model, _ = pair(strategy)
    told = Told()

    def stop(batch: int, logs: Any) -> None:
        model.stop_training = True

    ends = keras.callbacks.LambdaCallback(on_train_batch_end=stop)
    history = model.fit(
        dataset().repeat(), steps_per_epoch=10_000, epochs=5, verbose=0, callbacks=[told, ends]
    )
    assert len(history.history["loss"]) == 1
    assert told.begun == told.ended
    assert model.optimizer.iterations.numpy() == len(told.ended) < 10_000


class Halved(keras.Model):
    """Has a step of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.head = layers.Dense(1)
        self.seen = keras.metrics.Sum(name="seen")

    def call(self, inputs: Any, training: Any = None) -> Any:
        return self.head(inputs)

    def train_step(self, data: Any) -> Any:
        x, y = data[:2]
        with sr.GradientTape() as tape:
            loss = sr.reduce_mean(sr.square(self(x, training=True) - y)) / 2.0
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        self.seen.update_state(sr.ones_like(y))
        return {"loss": loss, "seen": self.seen.result()}


def test_a_step_of_ones_own(strategy: ParameterServerStrategy) -> None:
    with strategy.scope():
        model = Halved()
        model.compile("sgd")
    history = model.fit(X, Y, batch_size=2, epochs=2, verbose=0)
    assert history.history["seen"] == [46, 46]
    assert all(0 < loss < 100 for loss in history.history["loss"])
    assert {each.device for each in model.weights} == set(strategy.extended.parameter_devices)


def test_one_batch_at_the_coordinator(strategy: ParameterServerStrategy) -> None:
    model, local = pair(strategy)
    for method in ("train_on_batch", "test_on_batch"):
        found, wanted = getattr(model, method)(*DATA), getattr(local, method)(*DATA)
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    found, wanted = model.predict_on_batch(DATA[0]), local.predict_on_batch(DATA[0])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_classes_and_examples_have_weights(strategy: ParameterServerStrategy) -> None:
    model, local = pair(strategy, metrics=None, weighted_metrics=["mae"])
    label = (Y > 0).astype("f")
    for weights in ({"class_weight": {0: 1.0, 1: 3.0}}, {"sample_weight": np.arange(46.0)}):
        options = {**FIT, "batch_size": 23, "callbacks": None, **weights}
        found = model.fit(DATA[0], label, **{**options, "callbacks": [InOrder()]}).history
        wanted = local.fit(DATA[0], label, **options).history
        for name, values in wanted.items():
            np.testing.assert_allclose(found[name], values, rtol=1e-4)


# --- Layers and optimizers, one worker.

ROWS = RNG.normal(size=(8, 5, 4)).astype("f")
LAYERS: dict[str, Any] = {
    "normalized": (lambda: layers.BatchNormalization(), ROWS[:, 0]),
    "recurrent": (lambda: layers.LSTM(3), ROWS),
    "attention": (lambda: layers.MultiHeadAttention(2, 3), ROWS),
    "combined": (lambda: layers.Embedding(10, 3, combiner="sum"), IDS[:24].reshape(8, 3)),
    "cross": (lambda: layers.Cross(), ROWS[:, 0]),
}


lone_cluster = cluster_fixture(2, 1, ["grpc"])


@pytest.fixture
def lone(lone_cluster: dict[str, list[str]]) -> ParameterServerStrategy:
    return strategy_of(lone_cluster, FixedShardsPartitioner(2))


@pytest.mark.parametrize("kind", LAYERS)
def test_layers_train_as_in_one_process(lone: ParameterServerStrategy, kind: str) -> None:
    make, x = LAYERS[kind]
    y = np.ones((8, 1), "f")

    def model(optimizer: Any) -> Any:
        inputs = keras.Input(x.shape[1:], dtype=str(x.dtype))
        layer = make()
        made = layer(inputs, inputs) if kind == "attention" else layer(inputs)
        outputs = layers.Dense(1)(layers.Flatten()(made))
        return compiled(keras.Model(inputs, outputs), optimizer=optimizer, metrics=["mae"])

    with lone.scope():
        mine = model(keras.optimizers.Adam(0.05))
    local = model(keras.optimizers.Adam(0.05))
    local.set_weights(mine.get_weights())
    found, wanted = (each.fit(x, y, epochs=4, verbose=0).history for each in (mine, local))
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["AdamW", "Ftrl", "RowWiseAdagrad"])
def test_optimizers_train_as_in_one_process(lone: ParameterServerStrategy, name: str) -> None:
    # That of a scope, and one that was made before.
    for outside in (False, True):
        optimizer = getattr(keras.optimizers, name)(0.05, global_clipnorm=1.0)
        with lone.scope():
            if not outside:
                optimizer = getattr(keras.optimizers, name)(0.05, global_clipnorm=1.0)
            model = compiled(network(), optimizer=optimizer)
        other = getattr(keras.optimizers, name)(0.05, global_clipnorm=1.0)
        local = compiled(same_weights(model), optimizer=other)
        found = model.fit(*DATA, **FIT).history["loss"]
        np.testing.assert_allclose(found, local.fit(*DATA, **FIT).history["loss"], rtol=1e-4)


# --- What is wrong.


def test_errors_of_steps_are_raised_by_fit(strategy: ParameterServerStrategy) -> None:
    model, _ = pair(strategy)
    bad = ({"x": X, "ids": IDS + 10}, Y)
    with pytest.raises(errors.InvalidArgumentError, match="/job:worker"):
        model.fit(*bad, batch_size=8, verbose=0)
    # The coordinator goes on.
    assert len(model.fit(*DATA, verbose=0).history["loss"]) == 1


def test_errors_of_callbacks_are_raised_by_fit(strategy: ParameterServerStrategy) -> None:
    model, _ = pair(strategy)

    def fail(batch: int, logs: Any) -> None:
        raise KeyError("mine")

    ends = keras.callbacks.LambdaCallback(on_train_batch_end=fail)
    with pytest.raises(KeyError, match="mine"):
        model.fit(*DATA, verbose=0, callbacks=[ends])
    assert ClusterCoordinator(strategy).done()


WRONG: dict[str, Any] = {
    "endless": (lambda m: m.fit(dataset().repeat()), "steps_per_epoch"),
    "endless creator": (lambda m: m.fit(lambda _: dataset().repeat()), "steps_per_epoch"),
    "endless evaluation": (lambda m: m.evaluate(dataset().repeat()), "`steps`"),
    "no dataset": (lambda m: m.fit(lambda _: 3, steps_per_epoch=3), "dataset"),
    "empty": (lambda m: m.fit(dataset().take(0), steps_per_epoch=3), "no examples"),
    "eager": (lambda m: m.compile("sgd", "mse", run_eagerly=True), "run_eagerly"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_cannot_be(strategy: ParameterServerStrategy, kind: str) -> None:
    do, message = WRONG[kind]
    model, _ = pair(strategy)
    with pytest.raises(ValueError, match=message):
        do(model)


def test_creators_make_datasets() -> None:
    with pytest.raises(TypeError, match="must be a `callable`"):
        keras.utils.experimental.DatasetCreator(3)
    with pytest.raises(TypeError, match="must return a Dataset"):
        keras.utils.experimental.DatasetCreator(lambda _: 3)(None)
