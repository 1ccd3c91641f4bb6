"""Every optimizer of the table, in every front end, beside its formula: PyTorch's where PyTorch has
it, else that of its paper in NumPy (optimizer_formulas.py)."""

from __future__ import annotations

import inspect
import os
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keras_peer import keras64
from optimizer_formulas import FORMULAS, Reference

import sidereal as sr
import sidereal.v1 as tf
from sidereal import _native, errors, ops
from sidereal.keras import layers

ROWS = {row.name: row for row in _native.optimizer_rows()}
STEPS = 100

#: Ways to use a rule beside its standard values.
WAYS: dict[str, list[dict[str, Any]]] = {
    "sgd": [{"momentum": 0.9}, {"momentum": 0.8, "nesterov": True}],
    "momentum": [{"nesterov": True}],
    "adam": [{"amsgrad": True}, {"epsilon": 1e-3, "beta_1": 0.8}],
    "adamw": [{"weight_decay": 0.1}],
    "adam_async": [{"apply_sparse_rmsprop": True}],
    "adagrad_decay": [{"accumulator_decay_step": 10, "accumulator_decay_rate": 0.5}],
    "nadam": [{"momentum_decay": 1.0}, {"momentum_decay": 0.0}],
    "rmsprop": [
        {"centered": True},
        {"momentum": 0.9},
        {"centered": True, "momentum": 0.8},
        {"epsilon": 0.0, "epsilon_inside": 1e-6, "initial_mean_square": 1.0},
    ],
    "ftrl": [
        {"l1_regularization_strength": 0.05, "l2_regularization_strength": 0.1},
        {"learning_rate_power": -0.7, "beta": 0.5, "l2_shrinkage_regularization_strength": 0.01},
    ],
    "lamb": [{"weight_decay": 0.1}],
    "lars": [{"weight_decay": 0.1, "trust_coefficient": 0.1}],
}
#: A rate that moves the weights a good way in 100 steps.
RATES = {"adadelta": 1.0, "ftrl": 0.5, "lars": 0.5, "lion": 0.01}

CASES = [
    (kind, extra)
    for kind in ROWS
    for extra in [{}, *WAYS.get(kind, []), {"l2_penalty": 0.02, "weight_decay": 0.05}]
]
IDS = [f"{kind}-{'-'.join(f'{k}={v}' for k, v in extra.items())}" for kind, extra in CASES]


def parameters_of(kind: str, extra: dict[str, Any]) -> dict[str, Any]:
    standard = {name: value for name, value, *_ in ROWS[kind].parameters}
    return standard | {"learning_rate": RATES.get(kind, 0.05)} | extra


def optimizer_of(kind: str, extra: dict[str, Any]) -> sr.optimizers.Optimizer:
    made = getattr(sr.optimizers, ROWS[kind].class_name)
    return made(learning_rate=RATES.get(kind, 0.05), **extra)


def gradients(shape: tuple[int, ...], seed: int = 1) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    drift = rng.normal(size=shape)
    return [
        (drift + rng.normal(size=shape)).astype(np.float32).astype(np.float64)
        for _ in range(STEPS)
    ]


def sparse_gradients(rows: int, dim: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Indices that repeat, within a step and over steps."""
    rng = np.random.default_rng(2)
    out = []
    for _ in range(STEPS):
        n = int(rng.integers(1, 9))
        indices = (rows * rng.random(n) ** 2).astype(np.int64)
        out.append((indices, rng.normal(size=(n, dim)).astype(np.float32).astype(np.float64)))
    return out


def first_weights(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32).astype(np.float64)


def close(ours: Any, theirs: Any) -> None:
    """Weights after 100 steps, float32 or float64, are within 1e-6 of the largest of those of the
    formula, which is computed in float64 throughout."""
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    assert np.abs(ours - theirs).max() <= 1e-6 * np.abs(theirs).max()


def test_every_rule_has_a_formula_and_a_class() -> None:
    assert set(FORMULAS) == set(ROWS)
    for row in ROWS.values():
        made = getattr(sr.optimizers, row.class_name)
        assert made.kind == row.name
        assert row.doc in made.__doc__
        names = list(inspect.signature(made).parameters)
        assert names[0] == "learning_rate"
        assert {name for name, *_ in row.parameters} < set(names)
        assert isinstance(sr.optimizers.get(row.name), made)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind, extra", CASES, ids=IDS)
def test_a_hundred_dense_steps_equal_the_formula(
    kind: str, extra: dict[str, Any], dtype: str
) -> None:
    start = first_weights((6, 3))
    reference = Reference(kind, parameters_of(kind, extra), start)
    optimizer = optimizer_of(kind, extra)
    w = sr.Variable(start.astype(dtype))
    for t, g in enumerate(gradients(start.shape), 1):
        reference.update(g, t)
        optimizer.apply_gradients([(sr.constant(g.astype(dtype)), w)])
    assert np.abs(reference.w - start).max() > 1e-3
    close(w.numpy(), reference.w)
    assert int(optimizer.iterations) == STEPS


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind, extra", CASES, ids=IDS)
def test_a_hundred_steps_of_rows_that_repeat_equal_the_formula(
    kind: str, extra: dict[str, Any], dtype: str
) -> None:
    start = first_weights((12, 3))
    reference = Reference(kind, parameters_of(kind, extra), start)
    optimizer = optimizer_of(kind, extra)
    w = sr.Variable(start.astype(dtype))
    for t, (indices, values) in enumerate(sparse_gradients(12, 3), 1):
        reference.update_rows(indices, values, t)
        rows = sr.IndexedSlices(values.astype(dtype), indices, start.shape)
        optimizer.apply_gradients([(rows, w)])
    assert np.abs(reference.w - start).max() > 1e-3
    close(w.numpy(), reference.w)


@pytest.mark.parametrize("kind, extra", CASES, ids=IDS)
def test_functions_update_as_the_formula(kind: str, extra: dict[str, Any]) -> None:
    start, table = first_weights((4, 3)), first_weights((12, 3))
    dense = Reference(kind, parameters_of(kind, extra), start)
    sparse = Reference(kind, parameters_of(kind, extra), table)
    optimizer = optimizer_of(kind, extra)
    w, v = sr.Variable(start), sr.Variable(table)

    @sr.function
    def step(g: Any, indices: Any, values: Any) -> None:
        rows = sr.IndexedSlices(values, indices, table.shape)
        optimizer.apply_gradients([(g, w), (rows, v)])

    whole = gradients(start.shape)
    for t, (indices, values) in enumerate(sparse_gradients(12, 3)[:20], 1):
        dense.update(whole[t], t)
        indices, values = np.resize(indices, 6), np.resize(values, (6, 3))
        sparse.update_rows(indices, values, t)
        step(sr.constant(whole[t]), sr.constant(indices), sr.constant(values))
    close(w.numpy(), dense.w)
    close(v.numpy(), sparse.w)


@pytest.mark.parametrize("kind, extra", CASES, ids=IDS)
def test_sessions_update_as_the_formula(kind: str, extra: dict[str, Any]) -> None:
    start, table = first_weights((4, 3)), first_weights((12, 3))
    dense = Reference(kind, parameters_of(kind, extra), start)
    sparse = Reference(kind, parameters_of(kind, extra), table)
    with tf.Graph().as_default():
        w, v = tf.Variable(start, name="w"), tf.Variable(table, name="v")
        g = tf.placeholder("float64", [4, 3])
        indices, values = tf.placeholder("int64", [None]), tf.placeholder("float64", [None, 3])
        optimizer = tf.train.RuleOptimizer(optimizer_of(kind, extra))
        rows = tf.IndexedSlices(values, indices, table.shape)
        train = optimizer.apply_gradients([(g, w), (rows, v)])
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            whole = gradients(start.shape)
            for t, (where, what) in enumerate(sparse_gradients(12, 3)[:20], 1):
                dense.update(whole[t], t)
                sparse.update_rows(where, what, t)
                session.run(train, {g: whole[t], indices: where, values: what})
            close(session.run(w), dense.w)
            close(session.run(v), sparse.w)
            for name in optimizer.get_slot_names():
                assert optimizer.get_slot(w, name).op.name.startswith(
                    f"w/{ROWS[kind].class_name}"
                )


TORCH: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    # (ours, its parameters, what torch calls them)
    "SGD": ("sgd", {"momentum": 0.9}, {"momentum": 0.9}),
    "SGD-nesterov": ("momentum", {"nesterov": True}, {"momentum": 0.9, "nesterov": True}),
    "SGD-penalty": ("sgd", {"l2_penalty": 0.1}, {"weight_decay": 0.1}),
    "Adagrad": ("adagrad", {"epsilon": 1e-4}, {"initial_accumulator_value": 0.1, "eps": 1e-4}),
    "Adam": ("adam", {"beta_2": 0.99}, {"betas": (0.9, 0.99), "eps": 1e-8}),
    "Adam-amsgrad": ("adam", {"amsgrad": True}, {"amsgrad": True}),
    "Adam-penalty": ("adam", {"l2_penalty": 0.1}, {"weight_decay": 0.1}),
    "AdamW": ("adamw", {"weight_decay": 0.1}, {"weight_decay": 0.1}),
    "Adamax": ("adamax", {}, {"eps": 1e-8}),
    "NAdam": ("nadam", {}, {"momentum_decay": 0.004}),
    "RMSprop": ("rmsprop", {"epsilon": 1e-6}, {"alpha": 0.9, "eps": 1e-6}),
    "RMSprop-centered": (
        "rmsprop",
        {"centered": True, "momentum": 0.8, "epsilon": 1e-6},
        {"alpha": 0.9, "eps": 1e-6, "centered": True, "momentum": 0.8},
    ),
    "Adadelta": ("adadelta", {}, {"rho": 0.95, "eps": 1e-7}),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", TORCH)
def test_a_hundred_steps_equal_pytorch(name: str, dtype: str) -> None:
    """In the same dtype: float32 against float32 too."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (./dev setup --peers)")
    kind, extra, theirs = TORCH[name]
    start = first_weights((6, 3)).astype(dtype)
    w = torch.tensor(start, requires_grad=True)
    rate = RATES.get(kind, 0.05)
    peer = getattr(torch.optim, name.split("-")[0])([w], lr=rate, **theirs)
    optimizer, ours = optimizer_of(kind, extra), sr.Variable(start)
    for g in gradients(start.shape):
        w.grad = torch.tensor(g.astype(dtype))
        peer.step()
        optimizer.apply_gradients([(sr.constant(g.astype(dtype)), ours)])
    close(ours.numpy(), w.detach().numpy())


@pytest.mark.parametrize(
    "name, kind, extra, theirs",
    [
        ("SGD", "sgd", {}, {}),
        ("Adagrad", "adagrad", {"epsilon": 1e-4}, {"initial_accumulator_value": 0.1, "eps": 1e-4}),
        ("SparseAdam", "adam_async", {}, {"eps": 1e-8}),
    ],
)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_hundred_steps_of_rows_that_repeat_equal_pytorch(
    name: str, kind: str, extra: dict[str, Any], theirs: dict[str, Any], dtype: str
) -> None:
    """Only rows with gradients change, those of one index after these are added."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (./dev setup --peers)")
    start = first_weights((12, 3)).astype(dtype)
    w = torch.tensor(start, requires_grad=True)
    peer = getattr(torch.optim, name)([w], lr=RATES.get(kind, 0.05), **theirs)
    optimizer, ours = optimizer_of(kind, extra), sr.Variable(start)
    for indices, values in sparse_gradients(12, 3):
        at, rows = torch.tensor(indices)[None], torch.tensor(values.astype(dtype))
        w.grad = torch.sparse_coo_tensor(at, rows, start.shape, check_invariants=True)
        peer.step()
        slices = sr.IndexedSlices(values.astype(dtype), indices, start.shape)
        optimizer.apply_gradients([(slices, ours)])
    close(ours.numpy(), w.detach().numpy())


KERAS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    # (ours, its parameters, what Keras calls them)
    "Lamb": ("lamb", {}, {"epsilon": 1e-6}),
    "Lion": ("lion", {"weight_decay": 0.1}, {"weight_decay": 0.1}),
    "Ftrl": (
        "ftrl",
        {"l1_regularization_strength": 0.05, "l2_regularization_strength": 0.1, "beta": 0.5},
        {"l1_regularization_strength": 0.05, "l2_regularization_strength": 0.1, "beta": 0.5},
    ),
    "Nadam": ("nadam", {"momentum_decay": 1.0}, {"epsilon": 1e-8}),
}


@pytest.fixture
def keras() -> Any:
    """Keras, with float64."""
    with keras64() as found:
        yield found


@pytest.mark.parametrize("name", KERAS)
def test_a_hundred_steps_equal_keras(name: str, keras: Any) -> None:
    kind, extra, theirs = KERAS[name]
    start = first_weights((6, 3))
    peer = getattr(keras.optimizers, name)(learning_rate=RATES.get(kind, 0.05), **theirs)
    w = keras.Variable(start, dtype="float64")
    optimizer, ours = optimizer_of(kind, extra), sr.Variable(start)
    for g in gradients(start.shape):
        peer.apply([keras.ops.convert_to_tensor(g, "float64")], [w])
        optimizer.apply_gradients([(sr.constant(g), ours)])
    close(ours.numpy(), keras.ops.convert_to_numpy(w))


def logistic(
    kind: str, extra: dict[str, Any], first: Any, ids: Any, label: Any, batch: int = 16
) -> tuple[Any, Any]:
    """A table of weights and a bias trained in NumPy."""
    parameters = parameters_of(kind, extra)
    table = Reference(kind, parameters, first)
    bias = Reference(kind, parameters, np.zeros(1))
    for t, begin in enumerate(range(0, len(label), batch), 1):
        some, wanted = ids[begin : begin + batch], label[begin : begin + batch]
        logit = table.w[some, 0].sum(axis=1) + bias.w[0]
        grad = (1 / (1 + np.exp(-logit)) - wanted) / len(wanted)
        rows = np.repeat(grad, some.shape[1])[:, None]
        table.update_rows(some.reshape(-1), rows, t)
        bias.update([grad.sum()], t)
    return table.w, bias.w


class Bias(layers.Layer):
    def build(self, input_shape: Any) -> None:
        self.bias = self.add_weight((input_shape[-1],), "zeros", name="bias")

    def call(self, inputs: Any) -> Any:
        return inputs + self.bias


@pytest.mark.parametrize("kind", ROWS)
def test_fit_updates_as_the_formula(kind: str, cluster: sr.LocalCluster) -> None:
    rng = np.random.default_rng(5)
    ids = rng.integers(0, 20, size=(40 * 16, 3))
    label = (rng.random(len(ids)) < 0.3).astype(np.float32)
    # Without l1 weights are 0 for no step.
    extra = {"l1_regularization_strength": 0.001} if kind == "ftrl" else {}
    model = sr.Model(seed=3)
    table = layers.Embedding(20, 1, sr.keras.initializers.RandomNormal(0.0, 0.5), name="t")
    rows = table(model.input("ids", sr.int64, (3,)))
    logit = Bias(name="b")(sr.reduce_sum(rows, axis=1))
    model.compile(logit, optimizer_of(kind, extra))
    model.initialize(cluster)
    first = model.get_variable("t/embeddings")
    model.fit({"ids": ids, "label": label}, cluster=cluster, batch_size=16, shuffle=False,
              steps_in_flight=1, verbose=False)  # fmt: skip
    weights, bias = logistic(kind, extra, first, ids, label)
    close(model.get_variable("t/embeddings"), weights)
    close(model.get_variable("b/bias"), bias)


def test_a_wrong_value_is_refused_by_name() -> None:
    for row in ROWS.values():
        made = getattr(sr.optimizers, row.class_name)
        w = sr.Variable([1.0])
        for name, *_ in row.parameters:
            wrong = 1.0 if name == "learning_rate_power" else -1.0
            with pytest.raises(errors.InvalidArgumentError, match=name):
                made(**{name: wrong}).apply_gradients([(sr.constant([1.0]), w)])
    with pytest.raises(TypeError, match="beta1"):
        sr.optimizers.Adam(beta1=0.5)
    with pytest.raises(AttributeError, match="no optimizer Adem; the classes are: SGD"):
        sr.optimizers.Adem  # noqa: B018


def test_half_precision_variables_are_updated_too() -> None:
    w = sr.Variable(np.ones((3, 2), np.float16))
    optimizer = sr.optimizers.Adam(0.1)
    optimizer.apply_gradients([(sr.constant(np.ones((3, 2), np.float16)), w)])
    np.testing.assert_allclose(w.numpy(), np.full((3, 2), 0.9), atol=1e-3)
    assert optimizer.slots(w)["m"].dtype == "float16"
    assert ops.cast(w, "float32").dtype == "float32"


def page() -> str:
    """The table for people."""
    out = []
    for row in ROWS.values():
        out += [f"### `{row.name}`: `{row.class_name}`", ""]
        out += [*textwrap.wrap(f"{row.doc}.", 100), "", "```"]
        for part in row.formula.split("; "):
            out += textwrap.wrap(part, 98, subsequent_indent="  ")
        out += ["```", "", "| parameter | if absent | values | what it is |", "|---|---|---|---|"]
        for name, standard, is_flag, values, doc in row.parameters:
            shown = bool(standard) if is_flag else f"{standard:g}"
            out.append(f"| `{name}` | {shown} | {values} | {doc} |")
        slots = [f"`{name}`" + (f" with `{when}`" if when else "") + (" (of rows)" if wide else "")
                 for name, _, when, wide in row.slots]  # fmt: skip
        out += ["", f"Slots: {', '.join(slots) or 'none'}.", ""]
    return "\n".join(out)


def test_the_page_shows_the_table() -> None:
    path = Path(__file__).parents[2] / "docs" / "guide" / "optimizers.md"
    begin, end = "<!-- optimizers:begin -->\n", "<!-- optimizers:end -->\n"
    text = path.read_text()
    before, rest = text.split(begin)
    wanted = before + begin + page() + end + rest.split(end)[1]
    if os.environ.get("SIDEREAL_BLESS"):
        path.write_text(wanted)
        text = wanted
    assert text == wanted, f"{path} is out of date: run this test with SIDEREAL_BLESS=1"


def test_gradients_are_clipped_after_equal_rows_are_added() -> None:
    rows = sr.IndexedSlices([[3.0, 0.0], [0.0, 2.0], [0.0, 2.0]], [1, 0, 0], (3, 2))
    dense = sr.constant([12.0])
    table = np.array([[0.0, 4.0], [3.0, 0.0], [0.0, 0.0]])
    for clip, of_table, of_dense in (
        ({"clipvalue": 3.5}, np.minimum(table, 3.5), [3.5]),
        ({"clipnorm": 2.5}, table / 2, [2.5]),
        ({"global_clipnorm": 6.5}, table / 2, [6.0]),
        ({"global_clipnorm": 100.0}, table, [12.0]),
    ):
        v, w = sr.Variable(np.zeros((3, 2), np.float32)), sr.Variable([0.0])
        sr.optimizers.SGD(1.0, **clip).apply_gradients([(rows, v), (dense, w)])
        np.testing.assert_allclose(v.numpy(), -of_table, rtol=1e-6)
        np.testing.assert_allclose(w.numpy(), -np.array(of_dense), rtol=1e-6)
        with tf.Graph().as_default(), tf.Session() as session:
            a, b = tf.Variable(np.zeros((3, 2), np.float32)), tf.Variable([0.0])
            slices = tf.IndexedSlices(
                tf.constant([[3.0, 0.0], [0.0, 2.0], [0.0, 2.0]]), tf.constant([1, 0, 0]), (3, 2)
            )
            train = tf.train.RuleOptimizer(sr.optimizers.SGD(1.0, **clip)).apply_gradients(
                [(slices, a), (tf.constant([12.0]), b)]
            )
            session.run(tf.global_variables_initializer())
            session.run(train)
            np.testing.assert_allclose(session.run(a), -of_table, rtol=1e-6)
            np.testing.assert_allclose(session.run(b), -np.array(of_dense), rtol=1e-6)
    with pytest.raises(ValueError, match="one of clipnorm, clipvalue, global_clipnorm"):
        sr.optimizers.SGD(1.0, clipnorm=1.0, clipvalue=1.0)
    with pytest.raises(ValueError, match="clipnorm is -1"):
        sr.optimizers.SGD(1.0, clipnorm=-1.0)


def test_schedules_follow_their_formulas() -> None:
    s = sr.optimizers.schedules
    cosine = 0.5 * (1 + np.cos(np.pi * 3 / 10))
    for made, step, wanted in (
        (s.ExponentialDecay(0.1, 10, 0.5), 5, 0.1 * 0.5**0.5),
        (s.ExponentialDecay(0.1, 10, 0.5, staircase=True), 19, 0.05),
        (s.InverseTimeDecay(0.1, 10, 0.5), 5, 0.1 / 1.25),
        (s.PolynomialDecay(0.1, 10, 0.02, power=2), 5, 0.08 / 4 + 0.02),
        (s.PolynomialDecay(0.1, 10, 0.02), 25, 0.02),
        (s.PolynomialDecay(0.1, 10, 0.02, cycle=True), 15, 0.08 / 4 + 0.02),
        (s.CosineDecay(0.1, 10, alpha=0.1), 3, 0.1 * (0.9 * cosine + 0.1)),
        (s.CosineDecay(0.0, 10, warmup_target=0.2, warmup_steps=4), 2, 0.1),
        (s.CosineDecay(0.0, 10, warmup_target=0.2, warmup_steps=4), 7, 0.2 * cosine),
        (s.PiecewiseConstantDecay([5, 8], [0.3, 0.2, 0.1]), 5, 0.3),
        (s.PiecewiseConstantDecay([5, 8], [0.3, 0.2, 0.1]), 8, 0.2),
        (s.PiecewiseConstantDecay([5, 8], [0.3, 0.2, 0.1]), 9, 0.1),
    ):
        np.testing.assert_allclose(float(made(step)), wanted, rtol=1e-6)
        np.testing.assert_allclose(float(sr.function(made)(sr.constant(step))), wanted, rtol=1e-6)


def test_a_schedule_is_asked_at_each_step_in_every_front_end() -> None:
    rates = [0.5, 0.5, 0.25]
    schedule = sr.optimizers.schedules.PiecewiseConstantDecay([1], [0.5, 0.25])
    at_once, traced = sr.Variable([0.0]), sr.Variable([0.0])
    one, other = sr.optimizers.SGD(schedule), sr.optimizers.SGD(schedule)
    step = sr.function(lambda: other.apply_gradients([(sr.constant([1.0]), traced)]))
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.Variable([0.0])
        rule = tf.train.RuleOptimizer(sr.optimizers.SGD(schedule))
        train = rule.apply_gradients([(tf.constant([1.0]), w)])
        session.run(tf.global_variables_initializer())
        for done in range(1, 4):
            one.apply_gradients([(sr.constant([1.0]), at_once)])
            step()
            session.run(train)
            for value in (at_once.numpy(), traced.numpy(), session.run(w)):
                np.testing.assert_allclose(value, [-sum(rates[:done])], rtol=1e-6)


def test_learning_rates_follow_the_global_step_of_a_graph() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        step = tf.train.get_or_create_global_step()
        rates = [
            (tf.train.exponential_decay(0.1, step, 10, 0.5), 0.1 * 0.5**0.3),
            (tf.train.natural_exp_decay(0.1, step, 10, 0.5), 0.1 * np.exp(-0.15)),
            (tf.train.inverse_time_decay(0.1, step, 10, 0.5), 0.1 / 1.15),
            (tf.train.polynomial_decay(0.1, step, 10, 0.02), 0.08 * 0.7 + 0.02),
            (tf.train.cosine_decay(0.1, step, 10), 0.05 * (1 + np.cos(np.pi * 0.3))),
            (tf.train.piecewise_constant(step, [2, 8], [0.3, 0.2, 0.1]), 0.2),
        ]
        w = tf.Variable([0.0])
        optimizer = tf.train.GradientDescentOptimizer(rates[0][0])
        train = optimizer.apply_gradients([(tf.constant([1.0]), w)], step)
        session.run(tf.global_variables_initializer())
        for _ in range(3):
            session.run(train)
        for value, (_, wanted) in zip(session.run([rate for rate, _ in rates]), rates):
            np.testing.assert_allclose(value, wanted, rtol=1e-6)
        moved = -sum(0.1 * 0.5 ** (done / 10) for done in range(3))
        np.testing.assert_allclose(session.run(w), [moved], rtol=1e-6)


def test_norms_are_those_of_tensorflow() -> None:
    rows = sr.IndexedSlices([[3.0], [2.0], [2.0]], [1, 0, 0], (3, 1))
    np.testing.assert_allclose(float(sr.global_norm([rows, None, [12.0]])), 13.0)
    clipped, norm = sr.clip_by_global_norm([rows, None, [12.0]], 6.5)
    assert clipped[1] is None
    np.testing.assert_allclose(float(norm), 13.0)
    np.testing.assert_allclose(clipped[2].numpy(), [6.0])
    np.testing.assert_allclose(sr.clip_by_norm([3.0, 4.0], 1.0).numpy(), [0.6, 0.8], rtol=1e-6)
    np.testing.assert_allclose(sr.clip_by_norm([3.0, 4.0], 9.0).numpy(), [3.0, 4.0])
    with pytest.raises(ValueError, match="no values"):
        sr.global_norm([None])


def test_a_model_refuses_what_it_cannot_do() -> None:
    model = sr.Model()
    logit = layers.Dense(1)(model.input("x", sr.float32, (3,)))
    with pytest.raises(errors.InvalidArgumentError, match="a Model"):
        model.compile(logit, sr.optimizers.SGD(lambda: 0.1))
    schedule = sr.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    with pytest.raises(errors.InvalidArgumentError, match="a number"):
        sr.models.build(
            "lr", sr.data.Schema(fields=2, rows=10), optimizer=sr.optimizers.SGD(schedule)
        )


_SCHEDULE = sr.optimizers.schedules.CosineDecay(0.5, 20, alpha=0.1)


@pytest.mark.parametrize("consistency", ["async", "sync", "bounded(1)", "hybrid"])
@pytest.mark.parametrize(
    "arguments",
    [{"clipvalue": 0.01}, {"clipnorm": 0.05}, {"global_clipnorm": 0.05}, {"schedule": _SCHEDULE}],
    ids=lambda arguments: next(iter(arguments)),
)
def test_a_model_clips_and_follows_schedules_as_variables_of_the_process_do(
    arguments: dict[str, Any], consistency: str
) -> None:
    rng = np.random.default_rng(3)
    ids = rng.integers(0, 6, (64, 3))
    y = rng.normal(size=64).astype(np.float32)
    rest = {name: value for name, value in arguments.items() if name != "schedule"}
    rate = arguments.get("schedule", 0.5)

    model = sr.Model(seed=4)
    rows = layers.Embedding(6, 4, name="vectors")(model.input("ids", sr.int64, (3,)))
    target = model.input("y", sr.float32)
    out = sr.reshape(layers.Dense(1, name="head")(layers.Flatten()(rows)), [-1])
    model.compile(
        out, sr.optimizers.Adagrad(rate, **rest), loss=sr.reduce_mean(sr.square(out - target))
    )
    with sr.LocalCluster(ps=2, workers=1, in_process=True) as cluster:
        model.initialize(cluster)
        names = [variable.name for variable in model.variables()]
        variables = {name: sr.Variable(model.get_variable(name)) for name in names}
        model.fit(
            {"ids": ids, "y": y}, batch_size=8, epochs=2, shuffle=False, verbose=False,
            consistency=consistency,
        )  # fmt: skip
        got = {name: model.get_variable(name) for name in names}

    optimizer = sr.optimizers.Adagrad(rate, **rest)
    table = next(name for name in names if name.startswith("vectors"))
    kernel = next(name for name in names if name.endswith("kernel"))
    bias = next(name for name in names if name.endswith("bias"))
    for first in [*range(0, 64, 8)] * 2:
        with sr.GradientTape() as tape:
            flat = sr.reshape(sr.gather(variables[table], ids[first : first + 8]), [8, 12])
            score = sr.reshape(sr.matmul(flat, variables[kernel]) + variables[bias], [-1])
            loss = sr.reduce_mean(sr.square(score - y[first : first + 8]))
        trained = list(variables.values())
        optimizer.apply_gradients(zip(tape.gradient(loss, trained), trained))
    for name in names:
        np.testing.assert_allclose(got[name], variables[name].numpy(), rtol=0, atol=2e-6)
