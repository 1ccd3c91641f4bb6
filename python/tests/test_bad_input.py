"""What a user can get wrong with models, datasets and coordinators on a cluster: the class of the
error, and what it says of what is wrong and where."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from strategies import Servers, strategy_of

import sidereal as sr
from sidereal import errors, keras
from sidereal.distribute import ParameterServerStrategy
from sidereal.distribute.cluster_resolver import SimpleClusterResolver
from sidereal.distribute.coordinator import ClusterCoordinator
from sidereal.distribute.experimental.partitioners import FixedShardsPartitioner
from sidereal.keras import layers

X = np.ones((8, 3), "f")
Y = np.ones((8, 1), "f")
NO_FILE = "/no/such/file"


class Place:
    """A cluster, its coordinator, and a folder."""

    def __init__(self, cluster: dict[str, list[str]], folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.strategy = strategy_of(cluster)
        self.coordinator = ClusterCoordinator(self.strategy)

    def run(self, function: Any, *args: Any) -> Any:
        """What a function gives that a worker has run."""
        value = self.coordinator.schedule(sr.function(function), args)
        self.coordinator.join()
        return value.fetch()

    def per_worker(self, dataset: Any) -> Any:
        return self.coordinator.create_per_worker_dataset(lambda: dataset)

    def partitioned(self, partitioner: Any) -> Any:
        """A variable that is cut as it says."""
        with strategy_of(self.cluster, partitioner).scope():
            return sr.Variable(np.ones((4, 2), "f"), name="table")

    def made(self, *before: Any, loss: Any = "mse", units: int = 1, **options: Any) -> Any:
        """A model on the cluster, of these layers and a Dense one."""
        with self.strategy.scope():
            model = keras.Sequential([keras.Input((3,)), *before, layers.Dense(units, name="last")])
            model.compile(options.pop("optimizer", "sgd"), loss, **options)
        return model

    def fit(self, model: Any, x: Any = X, y: Any = Y, **options: Any) -> Any:
        return model.fit(x, y, verbose=0, **options)


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, list[str]]]:
    """One ps and two workers."""
    servers = Servers(1, 2)
    yield servers.cluster
    servers.stop()


@pytest.fixture
def at(cluster: dict[str, list[str]], tmp_path: Path) -> Place:
    return Place(cluster, tmp_path)


def pairs(x: Any = X, y: Any = Y) -> Any:
    return sr.data.Dataset.from_tensor_slices((x, y))


def of_two_inputs() -> Any:
    a, b = keras.Input((3,), name="a"), keras.Input((3,), name="b")
    model = keras.Model({"a": a, "b": b}, layers.Dense(1)(layers.Add()([a, b])), name="two")
    model.compile("sgd", "mse")
    return model


def two_on(at: Place) -> Any:
    with at.strategy.scope():
        return of_two_inputs()


def table() -> Any:
    return layers.Embedding(5, 2, name="table")


def csv(at: Place, text: str, **options: Any) -> Any:
    file = at.folder / "rows.csv"
    file.write_text(text)
    kinds = [sr.int32, sr.int32]
    return list(sr.data.CsvDataset([str(file)], kinds, header=True, **options))


def vocabulary(at: Place, content: bytes) -> str:
    file = at.folder / "words.txt"
    file.write_bytes(content)
    return str(file)


def bad_number(x: Any) -> Any:
    return sr.debugging.check_numerics(x, "the loss")


def after_an_error(at: Place) -> None:
    step = sr.function(bad_number)
    failed = at.coordinator.schedule(step, (sr.constant(np.float32("nan")),))
    with pytest.raises(errors.InvalidArgumentError):
        failed.fetch()
    at.coordinator.schedule(step, (sr.constant(1.0),))


#: (what is wrong, what does it, the class of the error, what its message says)
Case = tuple[str, Callable[[Place], Any], type[Exception], list[str]]

# fmt: off


def columns() -> list[Case]:
    """Names of features."""
    return [
        ("a feature that arrays lack", lambda at: at.fit(two_on(at), {"a": X}),
         ValueError, ["model 'two'", "input 'b'", "given are a"]),
        ("a feature that is None", lambda at: of_two_inputs()({"a": X, "b": None}),
         ValueError, ["model 'two'", "input 'b'"]),
        ("a feature of another name", lambda at: at.fit(two_on(at), {"a": X, "B": X}),
         ValueError, ["model 'two'", "input 'b'", "given are a, B"]),
        ("a feature that a dataset lacks", lambda at: two_on(at).fit(
            pairs({"a": X}).batch(4), steps_per_epoch=2, verbose=0),
         ValueError, ["model 'two'", "input 'b'", "given are a"]),
        ("a feature that a call lacks", lambda at: of_two_inputs()({"a": X}),
         ValueError, ["model 'two'", "input 'b'", "its inputs are a, b"]),
        ("a feature that a step picks", lambda at: at.run(
            lambda it: next(it)[0]["z"], iter(at.per_worker(pairs({"a": X})))), KeyError, ["'z'"]),
        ("a column that a file lacks", lambda at: csv(at, "a,b\n1,2\n", select_cols=[0, 5]),
         errors.InvalidArgumentError, ["record 0", "2 fields", "field 5", "'1,2'"]),
        ("a record with too few columns", lambda at: csv(at, "a,b\n1,2\n3\n"),
         errors.InvalidArgumentError, ["1 fields where 2 columns", "'3'"]),
    ]


def dtypes() -> list[Case]:
    words, labels = np.array([["a", "b", "c"]] * 8), np.array([["yes"]] * 8)
    return [
        ("words as numbers", lambda at: at.fit(at.made(), words),
         TypeError, ["model 'sequential", "input 'input_layer", "float32", "given is string"]),
        ("words as labels", lambda at: at.fit(at.made(), X, labels),
         TypeError, ["loss 'mse'", "y_true is text", "StringLookup"]),
        ("words as classes", lambda at: at.fit(
            at.made(units=2, loss="sparse_categorical_crossentropy"), X, labels),
         TypeError, ["sparse_categorical_crossentropy", "y_true is text", "StringLookup"]),
        ("words as ids", lambda at: table()(np.array(["a"])),
         TypeError, ["layer 'table'", "ids are text", "StringLookup"]),
        ("objects", lambda at: at.fit(at.made(), np.array([[object()] * 3] * 8)),
         TypeError, ["no tensor can be made", "object"]),
        ("numbers as words", lambda at: layers.StringLookup(vocabulary=["a"])(np.array([1])),
         TypeError, ["layer 'string_lookup", "is of strings", "int64"]),
        ("words as integers", lambda at: layers.IntegerLookup(vocabulary=[1])(np.array(["1"])),
         TypeError, ["layer 'integer_lookup", "is of integers", "string"]),
        ("a dtype that is none", lambda at: keras.Input((3,), dtype="flot32"),
         TypeError, ["'flot32'", "sidereal.float32"]),
        ("a column that is no number", lambda at: csv(at, "a,b\n1,x\n"),
         errors.InvalidArgumentError, ["record 0", "field 1", "'x'", "int32"]),
    ]


def functions() -> list[Case]:
    remote = [errors.FailedPreconditionError, ["an iterator of the coordinator",
              "create_per_worker_dataset()", "as an argument"]]  # fmt: skip
    numbers = sr.data.Dataset.range(5)
    here = iter(numbers)
    return [
        ("a function that is not compiled", lambda at: at.coordinator.schedule(lambda: 1),
         TypeError, ["only accepts a `tf.function`", "lambda", "sidereal.function"]),
        ("what is no function", lambda at: at.coordinator.schedule(5), TypeError, ["and not 5"]),
        ("run() of what is no function", lambda at: at.strategy.run(5), TypeError, ["5", "run()"]),
        ("a RemoteValue", lambda at: at.run(
            lambda x: x, at.coordinator.schedule(sr.function(lambda: sr.constant(1.0)))),
         ValueError, ["RemoteValue", "fetch()"]),
        ("a RemoteValue in a dict", lambda at: at.run(
            lambda x: x["a"], {"a": at.coordinator.schedule(sr.function(lambda: 1.0))}),
         ValueError, ["RemoteValue", "fetch()"]),
        ("an argument that is no tuple", lambda at: at.coordinator.schedule(
            sr.function(lambda x: x), args=sr.constant(1.0)),
         TypeError, ["args=(x,)", "Tensor"]),
        ("an iterator that is no tuple", lambda at: at.coordinator.schedule(
            sr.function(next), args=iter(at.per_worker(numbers))),
         TypeError, ["args=(x,)", "PerWorkerIterator"]),
        ("names of arguments that are no dict", lambda at: at.coordinator.schedule(
            sr.function(lambda: 1.0), kwargs=5), TypeError, ["kwargs", "5"]),
        ("a timeout of text", lambda at: at.coordinator.join(timeout="1"),
         TypeError, ["timeout is '1'", "seconds"]),
        ("too many arguments", lambda at: at.run(lambda x: x, 1.0, 2.0),
         TypeError, ["takes 1 positional argument"]),
        ("an iterator of the coordinator", lambda at: at.run(lambda: next(here)), *remote),
        ("one as an argument", lambda at: at.run(next, iter(numbers)), *remote),
        ("one in a branch", lambda at: at.run(lambda x: sr.cond(
            x > 0, lambda: next(here), lambda: sr.constant(0, "int64")), sr.constant(1)), *remote),
        ("a loop over a dataset", lambda at: at.run(lambda: [x + 1 for x in numbers]),
         errors.UnimplementedError, ["a loop of Python over a dataset", "dataset.reduce("]),
        ("a dataset of workers", lambda at: at.run(next, at.per_worker(numbers)),
         TypeError, ["a dataset of workers", "iter() of it"]),
        ("an iterator of workers here", lambda at: next(iter(at.per_worker(numbers))),
         NotImplementedError, ["gives no elements to the coordinator", "scheduled"]),
        ("a variable of the coordinator", lambda at: at.run(sr.Variable(1.0, name="v").assign, 2.0),
         errors.FailedPreconditionError, ["variable 'v'", "in strategy.scope()"]),
        ("a bool of a tensor", lambda at: at.run(lambda x: bool(x > 0), sr.constant(1.0)),
         errors.SymbolicError, ["truth value", "sidereal.cond"]),
        ("an error before", after_an_error,
         errors.InvalidArgumentError, ["/job:worker", "CheckNumerics", "the loss"]),
    ]


def datasets() -> list[Case]:
    numbers = sr.data.Dataset.range(5)
    generator = sr.data.Dataset.from_generator(
        lambda: iter([1]), output_signature=sr.TensorSpec((), sr.int32)
    )
    return [
        ("Python's elements", lambda at: at.per_worker(generator),
         errors.FailedPreconditionError, ["cannot leave", "Python code", "of files, arrays"]),
        ("Python's functions", lambda at: at.per_worker(
            numbers.map(lambda x: sr.py_function(lambda a: a, [x], sr.int64))),
         errors.FailedPreconditionError, ["cannot leave", "Python code", "sidereal's ops"]),
        ("no dataset", lambda at: at.per_worker([1, 2]),
         ValueError, ["Unexpected dataset type!", "[1, 2]", "sidereal.data.Dataset"]),
        ("a function without a result", lambda at: at.per_worker(None),
         ValueError, ["Unexpected dataset type!", "None"]),
        ("no function", lambda at: at.strategy.distribute_datasets_from_function(numbers),
         TypeError, ["dataset_fn", "InputContext"]),
        ("a variable", lambda at: at.coordinator.create_per_worker_dataset(
            lambda: numbers.map(lambda x, v=sr.Variable(1): x)),
         ValueError, ["a variable is made", "strategy.scope()"]),
        ("a file that is not there", lambda at: at.run(
            next, iter(at.per_worker(sr.data.TextLineDataset(NO_FILE)))),
         errors.NotFoundError, [NO_FILE, "no such file"]),
        ("an empty one in a step", lambda at: at.run(next, iter(at.per_worker(numbers.take(0)))),
         errors.OutOfRangeError, ["End of sequence"]),
        ("an empty one in fit()", lambda at: at.made().fit(
            pairs().take(0).batch(4), steps_per_epoch=2, verbose=0), ValueError, ["no examples"]),
        ("an empty one in evaluate()", lambda at: at.made().evaluate(
            pairs().take(0).batch(4), verbose=0), ValueError, ["evaluation gave no batch"]),
        ("empty arrays", lambda at: at.fit(at.made(), X[:0], Y[:0]), ValueError, ["no examples"]),
        ("one without an end", lambda at: at.made().fit(pairs().batch(4).repeat(), verbose=0),
         ValueError, ["infinite dataset", "`steps_per_epoch`"]),
        ("one that is not in batches", lambda at: at.made().fit(pairs(), verbose=0),
         ValueError, ["input 'input_layer", "(None, 3)", "has (3,)", "batch() the dataset"]),
        ("batches of less than nothing", lambda at: pairs().batch(-1),
         errors.InvalidArgumentError, ["batch_size is -1", "positive"]),
        ("rows of two lengths", lambda at: pairs(X, Y[:4]),
         errors.InvalidArgumentError, ["4 rows", "8"]),
    ]


def vocabularies() -> list[Case]:
    def lookup(words: Any) -> Any:
        return layers.StringLookup(vocabulary=words, name="lookup")

    return [
        ("no file", lambda at: lookup(NO_FILE),
         ValueError, ["layer 'lookup'", "no vocabulary file", NO_FILE]),
        ("a folder", lambda at: lookup(str(at.folder)),
         ValueError, ["layer 'lookup'", "cannot be read", "directory"]),
        ("an empty file", lambda at: lookup(vocabulary(at, b"")),
         ValueError, ["layer 'lookup'", "words.txt", "no tokens"]),
        ("a file of other things", lambda at: layers.IntegerLookup(
            vocabulary=vocabulary(at, b"1\nx\n")),
         ValueError, ["layer 'integer_lookup", "words.txt' line 2", "b'x'", "int64"]),
        ("a word twice", lambda at: lookup(["a", "b", "a"]),
         ValueError, ["layer 'lookup'", "more than once", "'a'"]),
        ("none yet", lambda at: lookup(None)(np.array(["a"])),
         errors.FailedPreconditionError, ["layer 'lookup'", "no vocabulary", "adapt()"]),
    ]


def labels_and_ids() -> list[Case]:
    def classes(at: Place, label: int) -> Any:
        model = at.made(units=4, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return at.fit(model, X, np.full(8, label))

    def ids(at: Place, **options: Any) -> Any:
        return at.fit(at.made(table(), layers.Flatten()), np.full((8, 3), 7), **options)

    return [
        ("a class too high", lambda at: classes(at, 7),
         errors.InvalidArgumentError, ["/job:worker", "label 7 at position 0", "[0, 4)"]),
        ("a class below 0", lambda at: classes(at, -1),
         errors.InvalidArgumentError, ["/job:worker", "label -1 at position 0", "[0, 4)"]),
        ("classes as one-hot ones", lambda at: at.fit(
            at.made(units=4, loss="categorical_crossentropy"), X, np.full(8, 3)),
         errors.InvalidArgumentError, ["y_true has shape (8,)", "y_pred (8, 4)"]),
        ("other numbers of labels", lambda at: at.fit(at.made(), X, Y[:5]),
         ValueError, ["different numbers of examples: 8, 5"]),
        ("no labels", lambda at: at.fit(at.made(), X, None),
         ValueError, ["loss 'mse'", "needs targets"]),
        ("ids beyond a table", ids, errors.InvalidArgumentError, ["/job:worker", "7", "[0, 5)"]),
        ("ids of a dataset beyond a table", lambda at: at.made(table(), layers.Flatten()).fit(
            pairs(np.full((8, 3), 7)).batch(4), steps_per_epoch=2, verbose=0),
         errors.InvalidArgumentError, ["table 'table/embeddings", "id 7", "5 rows"]),
        ("ids below 0", lambda at: table()(np.array([-1])),
         errors.InvalidArgumentError, ["index -1", "[0, 5)"]),
    ]


def shapes() -> list[Case]:
    def dense(at: Place) -> Any:
        with at.strategy.scope():
            layer = layers.Dense(2, name="narrow")
            layer.build((None, 3))
        return at.run(layer, sr.ones((2, 4)))

    return [
        ("of an input", lambda at: at.fit(at.made(), X[:, :2]),
         ValueError, ["input 'input_layer", "(None, 3)", "has (8, 2)"]),
        ("of a layer", dense,
         ValueError, ["layer 'narrow'", "(..., 3)", "(2, 4)"]),
        ("of layers that are added", lambda at: layers.Add()(
            [keras.Input((3,)), keras.Input((4,))]),
         errors.InvalidArgumentError, ["[?,3]", "[?,4]", "3 and 4 differ"]),
        ("of layers that are joined", lambda at: layers.Concatenate()(
            [keras.Input((3, 2)), keras.Input((4, 2))]),
         errors.InvalidArgumentError, ["[?,3,?]", "[?,4,?]", "dimension 1"]),
        ("of another size", lambda at: keras.Sequential(
            [keras.Input((3,)), layers.Dense(4), layers.Reshape((5,), name="cut")]),
         ValueError, ["layer 'cut'", "(4,) has 4 elements", "(5,)"]),
        ("of layers of click models", lambda at: layers.FM(name="fm")(keras.Input((3,))),
         ValueError, ["layer 'fm'", "[batch, fields, d]"]),
        ("of labels", lambda at: at.made().fit(
            pairs(X, np.ones((8, 7, 5), "f")).batch(4), steps_per_epoch=2, verbose=0),
         errors.InvalidArgumentError, ["/job:worker", "[4,1]", "[4,7,5]"]),
        ("of weights", lambda at: at.made().set_weights([X, Y]),
         ValueError, ["'last/kernel'", "(3, 1)", "(8, 3)"]),
    ]


def training() -> list[Case]:
    def bare(at: Place) -> Any:
        return keras.Sequential([keras.Input((3,)), layers.Dense(1)], name="bare")

    return [
        ("fit() before compile()", lambda at: bare(at).fit(X, Y),
         ValueError, ["model 'bare' is not compiled", "fit() needs compile()"]),
        ("evaluate() before compile()", lambda at: bare(at).evaluate(X, Y),
         ValueError, ["model 'bare' is not compiled", "evaluate()"]),
        ("a loss", lambda at: at.fit(at.made(loss="msee")),
         ValueError, ["keras.losses", "'msee'", "names like it: mse"]),
        ("a loss of another kind", lambda at: at.fit(at.made(loss=5)),
         ValueError, ["keras.losses", "5", "a name"]),
        ("a metric", lambda at: at.fit(at.made(metrics=["acuracy"])),
         ValueError, ["keras.metrics", "'acuracy'", "accuracy"]),
        ("an optimizer", lambda at: at.made(optimizer="adamm"),
         ValueError, ["'adamm' is no optimizer", "Adam"]),
        ("an activation", lambda at: layers.Dense(1, "rellu"),
         ValueError, ["keras.activations", "'rellu'", "relu"]),
        ("an initializer", lambda at: layers.Dense(1, kernel_initializer="?"),
         ValueError, ["keras.initializers", "'?'", "there are: zeros, ones"]),
        ("an argument of an optimizer", lambda at: keras.optimizers.SGD(lr=0.1),
         TypeError, ["SGD()", "'lr'", "learning_rate"]),
        ("an argument of a loss", lambda at: keras.losses.MeanSquaredError(weight=1),
         TypeError, ["MeanSquaredError()", "'weight'"]),
        ("a learning rate", lambda at: keras.optimizers.SGD("0.1"),
         ValueError, ["SGD", "learning_rate is '0.1'", "a number"]),
        ("a parameter of an optimizer", lambda at: keras.optimizers.SGD(0.1, momentum="a"),
         ValueError, ["SGD", "momentum is 'a'"]),
        ("gradients alone", lambda at: keras.optimizers.SGD().apply_gradients([sr.ones((2,))]),
         TypeError, ["SGD.apply_gradients()", "pairs (gradient, variable)", "zip"]),
        ("weights of classes", lambda at: at.fit(at.made(), class_weight=[1.0]),
         ValueError, ["class_weight is [1.0]", "a dict"]),
        ("epochs of validation", lambda at: at.fit(
            at.made(), validation_data=(X, Y), validation_freq=0),
         ValueError, ["validation_freq is 0"]),
        ("what is shown", lambda at: at.made().fit(X, Y, verbose="all"),
         ValueError, ["verbose is 'all'", "'auto', 0, 1 or 2"]),
        ("steps of an execution", lambda at: at.made(steps_per_execution=0),
         ValueError, ["steps_per_execution is 0", "at least 1"]),
        ("data to adapt to", lambda at: layers.StringLookup(name="lookup").adapt(5),
         TypeError, ["adapt() of layer 'lookup'", "and not 5"]),
        ("the shape of an input", lambda at: keras.Input("ab"),
         ValueError, ["keras.Input()", "'ab'", "integers"]),
        ("layers", lambda at: keras.Sequential(5, name="bare"),
         ValueError, ["model 'bare'", "5 is no list of layers"]),
        ("a batch size below 0", lambda at: at.fit(at.made(), batch_size=-1),
         ValueError, ["batch_size is -1", "at least 1"]),
        ("a batch size of text", lambda at: at.fit(at.made(), batch_size="8"),
         ValueError, ["batch_size is '8'", "an integer"]),
        ("a batch size of predict()", lambda at: at.made().predict(X, batch_size=0, verbose=0),
         ValueError, ["batch_size is 0", "at least 1"]),
        ("epochs", lambda at: at.fit(at.made(), epochs=-1), ValueError, ["epochs is -1"]),
        ("steps", lambda at: at.made().fit(pairs().batch(4), steps_per_epoch=0),
         ValueError, ["steps_per_epoch is 0", "at least 1"]),
        ("units", lambda at: layers.Dense(-1, name="last"),
         ValueError, ["layer 'last'", "units is -1", "positive"]),
    ]


def strategies() -> list[Case]:
    def of(spec: dict[str, list[str]]) -> Any:
        return ParameterServerStrategy(SimpleClusterResolver(sr.train.ClusterSpec(spec)))

    must = ["variable_partitioner must return a list/tuple of integers", "(4, 2)"]
    return [
        ("without a ps", lambda at: of({"worker": ["localhost:1"]}),
         ValueError, ["There must be at least one ps."]),
        ("without a worker", lambda at: of({"ps": ["localhost:1"]}),
         ValueError, ["There must be at least one worker."]),
        ("without a cluster", lambda at: of({}), ValueError, ["Cluster spec must be non-empty"]),
        ("of a ClusterSpec", lambda at: ParameterServerStrategy(sr.train.ClusterSpec(at.cluster)),
         TypeError, ["cluster_resolver", "give a ClusterResolver"]),
        ("a partitioner that is a number", lambda at: at.partitioned(2),
         TypeError, ["variable_partitioner is 2", "a function of shape and dtype"]),
        ("one that gives a number", lambda at: at.partitioned(lambda shape, dtype: 2),
         ValueError, [*must, "returns 2"]),
        ("one that gives text", lambda at: at.partitioned(lambda shape, dtype: ["a", "b"]),
         ValueError, [*must, "returns ['a', 'b']"]),
        ("one that cuts columns", lambda at: at.partitioned(lambda shape, dtype: [1, 2]),
         ValueError, [*must, "returns [1, 2]"]),
        ("no shards", lambda at: FixedShardsPartitioner(0), ValueError, ["num_shards", "0"]),
        ("a coordinator of another strategy", lambda at: ClusterCoordinator(5),
         ValueError, ["ParameterServerStrategy", "and not 5"]),
        ("a queue below 0", lambda at: ClusterCoordinator(
            strategy_of(at.cluster), queue_limit=-3), ValueError, ["queue_limit is -3"]),
    ]


# fmt: on

CASES = [
    (f"{group.__name__}: {what}", do, kind, says)
    for group in (columns, dtypes, functions, datasets, vocabularies, labels_and_ids, shapes,
                  training, strategies)
    for what, do, kind, says in group()
]  # fmt: skip


@pytest.mark.parametrize(("what", "do", "kind", "says"), CASES, ids=[case[0] for case in CASES])
def test_the_error_says_what_is_wrong_and_where(
    at: Place, what: str, do: Callable[[Place], Any], kind: type[Exception], says: list[str]
) -> None:
    with pytest.raises(kind) as caught:
        do(at)
    message = str(caught.value)
    for text in says:
        assert text in message, message
    # What failed is over: the next function runs.
    assert at.run(lambda x: x + 1.0, sr.constant(1.0)) == 2
