"""Small models as users of between-graph replication write them, for tests of protocols: variables
go round robin over the ps by tf.train.replica_device_setter, the rest to the worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import sidereal.v1 as tf

BATCH, STEPS = 8, 4
FIELDS, DENSE, DIM, TIME = 3, 4, 4, 5
#: Rows of tables. Those above 4 KiB are pulled by rows, smaller ones whole.
IDS = 1100
#: Rows of the tables of models that have one for each field.
FIELD_IDS = (IDS, 300, 20)

Feeds = dict[str, np.ndarray]


@dataclass
class BuiltModel:
    """A model in a graph of its own."""

    graph: tf.Graph
    loss: Any
    train: Any
    #: By name, slots and counters too.
    variables: dict[str, tf.Variable]
    placeholders: dict[str, Any]
    #: One for each step.
    feeds: list[Feeds]

    def results(self, session: tf.Session) -> dict[str, np.ndarray]:
        """The loss of every step, and all variables after the last one."""
        session.run(tf.variables_initializer(list(self.variables.values())))
        losses = [session.run([self.loss, self.train], self._fed(feeds))[0] for feeds in self.feeds]
        values = session.run(self.variables)
        return {"loss": np.array(losses), **values}

    def _fed(self, feeds: Feeds) -> dict[Any, np.ndarray]:
        return {self.placeholders[name]: value for name, value in feeds.items()}


class _Builder:
    """Inputs and layers of one model."""

    def __init__(self, name: str) -> None:
        self.rng = np.random.default_rng(sum(map(ord, name)))
        self.placeholders: dict[str, Any] = {}
        self.makers: dict[str, Callable[[], np.ndarray]] = {}

    def ids(self, name: str, *shape: int, low: int = 0) -> Any:
        """Ids of a batch, [BATCH, *shape] int64, half of them a few frequent ones."""

        def draw() -> np.ndarray:
            ids = self.rng.integers(low, IDS, (BATCH, *shape))
            return np.where(self.rng.random(ids.shape) < 0.5, np.minimum(ids, ids % 5), ids)

        self.makers[name] = draw
        return self._placeholder(name, tf.int64, shape)

    def numbers(self, name: str, *shape: int) -> Any:
        """Features of a batch, [BATCH, *shape] float32."""
        self.makers[name] = lambda: self.rng.normal(size=(BATCH, *shape)).astype("f")
        return self._placeholder(name, tf.float32, shape)

    def labels(self, name: str = "label") -> Any:
        """[BATCH, 1] of 0 and 1, float32."""
        self.makers[name] = lambda: (self.rng.random((BATCH, 1)) < 0.4).astype("f")
        return self._placeholder(name, tf.float32, (1,))

    def _placeholder(self, name: str, dtype: Any, shape: tuple[int, ...]) -> Any:
        made = tf.placeholder(dtype, [None, *shape], name=name)
        self.placeholders[name] = made
        return made

    def weights(self, name: str, *shape: int) -> tf.Variable:
        """A variable of small random numbers."""
        return tf.Variable(self.rng.normal(0, 0.3, shape).astype("f"), name=name)

    def lookup(self, name: str, ids: Any, dim: int = DIM) -> Any:
        """Rows of a table of its own."""
        return tf.nn.embedding_lookup(self.weights(name, IDS, dim), ids)

    def fields(self, name: str, ids: Any) -> list[Any]:
        """Rows of a table for each field."""
        return [
            tf.nn.embedding_lookup(self.weights(f"{name}_{i}", rows, DIM), ids[:, i] % rows)
            for i, rows in enumerate(FIELD_IDS)
        ]

    def dense(self, name: str, x: Any, units: int, activation: Any = None) -> Any:
        """x w + b."""
        y = tf.matmul(x, self.weights(f"{name}/w", int(x.shape[-1]), units))
        y = y + tf.Variable(np.zeros(units, "f"), name=f"{name}/b")
        return y if activation is None else activation(y)

    def mlp(self, name: str, x: Any, *sizes: int) -> Any:
        """Dense layers with relu."""
        for i, size in enumerate(sizes):
            x = self.dense(f"{name}/{i}", x, size, tf.nn.relu)
        return x


def _log_loss(label: Any, logit: Any) -> Any:
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=label, logits=logit))


def _flat(x: Any, width: int) -> Any:
    return tf.reshape(x, [-1, width])


def _lr(b: _Builder) -> Any:
    weights = b.lookup("weights", b.ids("ids", FIELDS), 1)
    bias = tf.Variable(np.zeros(1, "f"), name="bias")
    return _log_loss(b.labels(), tf.reduce_sum(weights, axis=1) + bias)


def _wide_and_deep(b: _Builder) -> Any:
    ids, numbers = b.ids("ids", FIELDS), b.numbers("numbers", DENSE)
    wide = tf.reduce_sum(b.lookup("wide", ids, 1), axis=1) + b.dense("wide_numbers", numbers, 1)
    deep = b.mlp("mlp", tf.concat([*b.fields("deep", ids), numbers], 1), 8, 4)
    return _log_loss(b.labels(), wide + b.dense("head", deep, 1))


def _deepfm(b: _Builder) -> Any:
    ids = b.ids("ids", FIELDS)
    first = tf.reduce_sum(b.lookup("weights", ids, 1), axis=1)
    vectors = b.lookup("vectors", ids)
    square_of_sum = tf.square(tf.reduce_sum(vectors, axis=1))
    sum_of_squares = tf.reduce_sum(tf.square(vectors), axis=1)
    second = 0.5 * tf.reduce_sum(square_of_sum - sum_of_squares, axis=1, keepdims=True)
    deep = b.dense("head", b.mlp("mlp", _flat(vectors, FIELDS * DIM), 8), 1)
    return _log_loss(b.labels(), first + second + deep)


def _dlrm(b: _Builder) -> Any:
    ids, numbers = b.ids("ids", FIELDS), b.numbers("numbers", DENSE)
    bottom = b.mlp("bottom", numbers, 8, DIM)
    rows = tf.stack([bottom, *b.fields("table", ids)], axis=1)
    products = tf.matmul(rows, rows, transpose_b=True)
    count = FIELDS + 1
    pairs = [i * count + j for i in range(count) for j in range(i)]
    crossed = tf.gather(_flat(products, count * count), pairs, axis=1)
    top = b.mlp("top", tf.concat([bottom, crossed], 1), 8)
    return _log_loss(b.labels(), b.dense("head", top, 1))


def _dcn(b: _Builder) -> Any:
    ids, numbers = b.ids("ids", FIELDS), b.numbers("numbers", DENSE)
    width = FIELDS * DIM + DENSE
    x0 = tf.concat([_flat(b.lookup("vectors", ids), FIELDS * DIM), numbers], 1)
    x = x0
    for i in range(2):
        bias = tf.Variable(np.zeros(width, "f"), name=f"cross_{i}/b")
        x = x0 * tf.matmul(x, b.weights(f"cross_{i}/w", width, 1)) + bias + x
    return _log_loss(b.labels(), b.dense("head", tf.concat([x, b.mlp("mlp", x0, 8)], 1), 1))


def _din(b: _Builder) -> Any:
    """A behaviour sequence, padded with id 0, attended to by the candidate."""
    behaviour, candidate = b.ids("behaviour", TIME), b.ids("candidate", low=1)
    items = b.weights("items", IDS, DIM)
    keys = tf.nn.embedding_lookup(items, behaviour)
    query = tf.nn.embedding_lookup(items, candidate)
    queries = tf.tile(tf.expand_dims(query, 1), [1, TIME, 1])
    seen = tf.concat([queries, keys, queries - keys, queries * keys], 2)
    hidden = b.dense("attention/0", _flat(seen, 4 * DIM), 6, tf.sigmoid)
    scores = tf.reshape(b.dense("attention/1", hidden, 1), [-1, TIME])
    mask = tf.not_equal(behaviour, tf.zeros_like(behaviour))
    scores = tf.where(mask, scores, tf.fill(tf.shape(scores), -1e9))
    attention = tf.expand_dims(tf.nn.softmax(scores), 2)
    interest = tf.reduce_sum(attention * keys, axis=1)
    top = b.mlp("top", tf.concat([interest, query, interest * query], 1), 8)
    return _log_loss(b.labels(), b.dense("head", top, 1))


def _gru(b: _Builder) -> Any:
    """A loop over time; its body reads a variable of a ps itself, and its weights are those of
    other ps."""
    x = b.lookup("items", b.ids("behaviour", TIME))
    units = 5
    gates_w = b.weights("gates/w", DIM + units, 2 * units)
    gates_b = tf.Variable(np.ones(2 * units, "f"), name="gates/b")
    state_w = b.weights("state/w", DIM + units, units)
    decay = tf.Variable(np.float32(0.9), trainable=False, name="decay")

    def step(t: Any, state: Any) -> tuple[Any, Any]:
        now = tf.gather(x, t, axis=1)
        gates = tf.sigmoid(tf.matmul(tf.concat([now, state], 1), gates_w) + gates_b)
        reset, update = tf.split(gates, 2, axis=1)
        new = tf.tanh(tf.matmul(tf.concat([now, reset * state], 1), state_w))
        return t + 1, decay.read_value() * (update * state + (1.0 - update) * new)

    first = tf.zeros([BATCH, units])
    last = tf.while_loop(lambda t, _: t < TIME, step, [tf.constant(0), first])[1]
    return _log_loss(b.labels(), b.dense("head", last, 1))


def _mmoe(b: _Builder) -> Any:
    """Three experts, and a gate and a tower for each of two tasks."""
    x = tf.concat([_flat(b.lookup("vectors", b.ids("ids", FIELDS)), FIELDS * DIM),
                   b.numbers("numbers", DENSE)], 1)  # fmt: skip
    experts = tf.stack([b.mlp(f"expert_{i}", x, 6) for i in range(3)], axis=1)
    losses = []
    for task in ("click", "buy"):
        gate = tf.nn.softmax(b.dense(f"{task}/gate", x, 3))
        mixed = tf.reduce_sum(tf.expand_dims(gate, 2) * experts, axis=1)
        logit = b.dense(f"{task}/head", b.mlp(f"{task}/tower", mixed, 4), 1)
        losses.append(_log_loss(b.labels(task), logit))
    return losses[0] + 0.5 * losses[1]


_LOSSES: dict[str, Callable[[_Builder], Any]] = {
    "LR": _lr, "W&D": _wide_and_deep, "DeepFM": _deepfm, "DLRM": _dlrm, "DCN": _dcn, "DIN": _din,
    "GRU": _gru, "MMoE": _mmoe,
}  # fmt: skip

#: Names of all models.
MODELS = tuple(_LOSSES)
#: Those whose steps are one pull and one push.
CTR_MODELS = ("LR", "W&D", "DeepFM", "DLRM", "DCN")

_OPTIMIZERS = (
    lambda: tf.train.GradientDescentOptimizer(0.1),
    lambda: tf.train.AdagradOptimizer(0.1),
    lambda: tf.train.AdamOptimizer(0.01),
)


def build(name: str, ps: int, global_step: bool = False) -> BuiltModel:
    """A model with its optimizer (SGD, Adagrad and Adam in turn) on `ps` parameter servers."""
    graph, b = tf.Graph(), _Builder(name)
    scope = name.replace("&", "n")
    setter = tf.train.replica_device_setter(ps_tasks=ps, worker_device="/job:worker/task:0")
    with graph.as_default(), tf.device(setter), tf.name_scope(scope):
        loss = _LOSSES[name](b)
        optimizer = _OPTIMIZERS[MODELS.index(name) % len(_OPTIMIZERS)]()
        step = tf.Variable(0, trainable=False, name="global_step", dtype=tf.int64)
        train = optimizer.minimize(loss, step if global_step else None)
        variables = {variable.op.name: variable for variable in tf.global_variables()}
    feeds = [{key: make() for key, make in b.makers.items()} for _ in range(STEPS)]
    return BuiltModel(graph, loss, train, variables, b.placeholders, feeds)
