"""How each op is said in ONNX: element by element, reductions, products, functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _onnx_arrays
from ._onnx_graph import Op, Rule
from .dtypes import name_of

RULES: dict[str, Rule] = dict(_onnx_arrays.RULES)


def _is_integer(x: Op, i: int = 0) -> bool:
    return "int" in name_of(x.specs[i][0])


def _plain(op: str, **attrs: Any) -> Rule:
    """The op of that name, with the same inputs."""
    return lambda x: x.emit(op, *x.inputs, **attrs)


_SAME_NAME = (
    "Abs Acos Acosh Add Asin Asinh Atan Atanh Ceil Cos Cosh Equal Erf Exp Floor Greater "
    "Identity IsInf Less Log MatMul Mul Neg Pow Reciprocal Relu Round "
    "Sigmoid Sign Sin Sinh Softplus Sqrt Sub Tan Tanh BitwiseAnd BitwiseOr BitwiseXor Elu Selu Div"
)
for _name in _SAME_NAME.split():
    RULES[_name] = _plain(_name)
for _name, _onnx in {
    "GreaterEqual": "GreaterOrEqual",
    "LessEqual": "LessOrEqual",
    "LogicalAnd": "And",
    "LogicalOr": "Or",
    "LogicalXor": "Xor",
    "LogicalNot": "Not",
    "Maximum": "Max",
    "Minimum": "Min",
    "AddN": "Sum",
    "BiasAdd": "Add",
    "IsNan": "IsNaN",
    "Invert": "BitwiseNot",
    "StopGradient": "Identity",
    "CheckNumerics": "Identity",
    "EnsureShape": "Identity",
    "Select": "Where",
}.items():
    RULES[_name] = _plain(_onnx)

RULES["Square"] = lambda x: x.emit("Mul", x.inputs[0], x.inputs[0])
RULES["Rsqrt"] = lambda x: x.emit("Reciprocal", x.emit("Sqrt", x.inputs[0]))
RULES["Expm1"] = lambda x: x.emit("Sub", x.emit("Exp", x.inputs[0]), x.number(1))
RULES["Log1p"] = lambda x: x.emit("Log", x.emit("Add", x.inputs[0], x.number(1)))
RULES["Erfc"] = lambda x: x.emit("Sub", x.number(1), x.emit("Erf", x.inputs[0]))
RULES["Relu6"] = lambda x: x.emit("Clip", x.inputs[0], x.number(0), x.number(6))
RULES["Silu"] = lambda x: x.emit("Mul", x.inputs[0], x.emit("Sigmoid", x.inputs[0]))
RULES["Trunc"] = lambda x: x.emit(
    "Mul", x.emit("Sign", x.inputs[0]), x.emit("Floor", x.emit("Abs", x.inputs[0]))
)
RULES["NotEqual"] = lambda x: x.emit("Not", x.emit("Equal", *x.inputs))


def _gelu(x: Op) -> str:
    bent = x.emit("Erf", x.emit("Mul", x.inputs[0], x.number(np.sqrt(0.5))))
    return x.emit(
        "Mul",
        x.emit("Mul", x.inputs[0], x.number(0.5)),
        x.emit("Add", bent, x.number(1)),
    )


def _is_finite(x: Op) -> str:
    bad = x.emit("Or", x.emit("IsNaN", x.inputs[0]), x.emit("IsInf", x.inputs[0]))
    return x.emit("Not", bad)


def _squared_difference(x: Op) -> str:
    difference = x.emit("Sub", *x.inputs)
    return x.emit("Mul", difference, difference)


def _floor_mod(x: Op) -> str:
    if _is_integer(x):
        return x.emit("Mod", *x.inputs)
    whole = x.emit("Floor", x.emit("Div", *x.inputs))
    return x.emit("Sub", x.inputs[0], x.emit("Mul", x.inputs[1], whole))


def _floor_div(x: Op) -> str:
    if _is_integer(x):
        rest = x.emit("Mod", *x.inputs)
        return x.emit("Div", x.emit("Sub", x.inputs[0], rest), x.inputs[1])
    return x.emit("Floor", x.emit("Div", *x.inputs))


def _where_zero(x: Op, i: int, otherwise: str) -> str:
    """0 where input i is 0, else `otherwise`."""
    return x.emit("Where", x.emit("Equal", x.inputs[i], x.number(0)), x.number(0), otherwise)


def _xlogy(x: Op) -> str:
    return _where_zero(x, 0, x.emit("Mul", x.inputs[0], x.emit("Log", x.inputs[1])))


def _xlog1py(x: Op) -> str:
    log = x.emit("Log", x.emit("Add", x.inputs[1], x.number(1)))
    return _where_zero(x, 0, x.emit("Mul", x.inputs[0], log))


RULES["Gelu"] = _gelu
RULES["IsFinite"] = _is_finite
RULES["SquaredDifference"] = _squared_difference
RULES["FloorMod"] = _floor_mod
RULES["FloorDiv"] = _floor_div
RULES["DivNoNan"] = lambda x: _where_zero(x, 1, x.emit("Div", *x.inputs))
RULES["Xlogy"] = _xlogy
RULES["Xlog1py"] = _xlog1py
RULES["Cast"] = lambda x: x.cast(x.inputs[0], x.attrs["dtype"])


def _dropout(x: Op) -> str:
    if x.attrs.get("training", True):
        x.fail("it is a dropout of training; trace the function with training=False")
    return x.emit("Identity", x.inputs[0])


def _with_gradient(x: Op) -> list[str]:
    return [x.emit("Identity", value) for value in x.inputs[: x.attrs["values"]]]


RULES["Dropout"] = _dropout
RULES["WithGradient"] = _with_gradient


# ---- products ------------------------------------------------------------------------------------


def _mat_mul(x: Op) -> str:
    sides = list(x.inputs)
    if "out_type" in x.attrs:
        sides = [x.cast(side, x.attrs["out_type"]) for side in sides]
    flips = (x.attrs.get("transpose_a", False), x.attrs.get("transpose_b", False))
    floating = "float" in name_of(x.specs[0][0])
    if any(flips) and floating and x.rank(0) == 2 and x.rank(1) == 2:
        return x.emit("Gemm", *sides, transA=int(flips[0]), transB=int(flips[1]))
    for i, flip in enumerate(flips):
        if flip:
            rank = x.rank(i)
            perm = [*range(rank - 2), rank - 1, rank - 2]
            sides[i] = x.emit("Transpose", sides[i], perm=perm)
    return x.emit("MatMul", *sides)


def _fm_interaction(x: Op) -> str:
    rows = x.inputs[0]
    total = x.emit("ReduceSum", rows, x.ints([1]), keepdims=0)
    squares = x.emit("ReduceSum", x.emit("Mul", rows, rows), x.ints([1]), keepdims=0)
    pairs = x.emit("Sub", x.emit("Mul", total, total), squares)
    summed = x.emit("ReduceSum", pairs, x.ints([1]), keepdims=1)
    return x.emit("Mul", summed, x.number(0.5))


RULES["MatMul"] = _mat_mul
RULES["FmInteraction"] = _fm_interaction


# ---- reductions, norms ---------------------------------------------------------------------------


def _reduce(op: str) -> Rule:
    def rule(x: Op) -> str:
        keep = int(x.attrs.get("keep_dims", False))
        axes = x.attrs["axes"]
        if not axes:
            return x.emit(op, x.inputs[0], keepdims=keep)
        return x.emit(op, x.inputs[0], x.ints(axes), keepdims=keep)

    return rule


def _any(x: Op, value: str) -> str:
    """Whether one element over the axes holds; none of none does."""
    number = x.cast(value, "int32")
    keep = int(x.attrs.get("keep_dims", False))
    axes = [x.ints(x.attrs["axes"])] if x.attrs["axes"] else []
    count = x.emit("ReduceSum", number, *axes, keepdims=keep)
    return x.emit("Greater", count, x.model.constant(0, "int32"))


for _name in ("Sum", "Mean", "Max", "Min", "Prod"):
    RULES[f"Reduce{_name}"] = _reduce(f"Reduce{_name}")
RULES["ReduceAny"] = lambda x: _any(x, x.inputs[0])
RULES["ReduceAll"] = lambda x: x.emit("Not", _any(x, x.emit("Not", x.inputs[0])))


def _arg_extreme(op: str) -> Rule:
    def rule(x: Op) -> str:
        place = x.emit(op, x.inputs[0], axis=x.axis(), keepdims=0)
        dtype = x.outputs[0][0]
        return place if name_of(dtype) == "int64" else x.cast(place, dtype)

    return rule


RULES["ArgMax"] = _arg_extreme("ArgMax")
RULES["ArgMin"] = _arg_extreme("ArgMin")


def _softmax(op: str) -> Rule:
    return lambda x: x.emit(op, x.inputs[0], axis=x.attrs.get("axis", -1))


RULES["Softmax"] = _softmax("Softmax")
RULES["LogSoftmax"] = _softmax("LogSoftmax")


def _normalised(x: Op, axes: Sequence[int], epsilon: float) -> tuple[str, str, str, str]:
    """(x - mean) / sqrt(variance + epsilon), the mean, the variance, and the factor."""
    mean = x.emit("ReduceMean", x.inputs[0], x.ints(axes), keepdims=1)
    centred = x.emit("Sub", x.inputs[0], mean)
    variance = x.emit("ReduceMean", x.emit("Mul", centred, centred), x.ints(axes), keepdims=1)
    deviation = x.emit("Sqrt", x.emit("Add", variance, x.number(epsilon)))
    factor = x.emit("Reciprocal", deviation)
    return x.emit("Mul", centred, factor), mean, variance, factor


def _layer_norm(x: Op) -> list[str]:
    brought, mean, _, factor = _normalised(x, [-1], x.attrs.get("epsilon", 1e-3))
    y = x.emit("Add", x.emit("Mul", brought, x.inputs[1]), x.inputs[2])
    last = x.ints([-1])
    return [y, x.emit("Squeeze", mean, last), x.emit("Squeeze", factor, last)]


def _batch_norm(x: Op) -> list[str]:
    axes = list(range(x.rank() - 1))
    brought, mean, variance, _ = _normalised(x, axes, x.attrs.get("epsilon", 1e-3))
    y = x.emit("Add", x.emit("Mul", brought, x.inputs[1]), x.inputs[2])
    over = x.ints(axes)
    return [y, x.emit("Squeeze", mean, over), x.emit("Squeeze", variance, over)]


RULES["LayerNorm"] = _layer_norm
RULES["BatchNorm"] = _batch_norm


def _cross_entropy(x: Op) -> str:
    logits, labels = x.inputs
    positive = x.emit("Relu", logits)
    less = x.emit("Sub", positive, x.emit("Mul", logits, labels))
    return x.emit("Add", less, x.emit("Softplus", x.emit("Neg", x.emit("Abs", logits))))


RULES["SigmoidCrossEntropyWithLogits"] = _cross_entropy


# ---- functions, branches, loops ------------------------------------------------------------------


def _call(x: Op) -> list[str]:
    return x.run(x.nodes, x.body("function"), x.inputs)


def _if(x: Op) -> list[str]:
    branches = {}
    for attr, role in (("then_branch", "then"), ("else_branch", "else")):
        inside = x.bodies()
        body = x.body(attr)
        results = x.run(inside, body, x.inputs[1:])
        specs = [(name, *spec) for name, spec in zip(results, x.outputs)]
        branches[f"{role}_branch"] = inside.graph(role, [], specs)
    return x.emit_many("If", len(x.outputs), x.inputs[0], **branches)


def _loop(
    x: Op, body_name: str, trips: str, condition: str, count: int, captured: Sequence[str],
    cond: Any = None, row: Any = None,
) -> list[str]:  # fmt: skip
    """ONNX's Loop over the first `count` inputs. `row` gives values of an iteration by its number;
    `cond` is asked behind each iteration."""
    inside = x.bodies()
    body = x.body(body_name)
    number, go_on = x.model.name("iteration"), x.model.name("go_on")
    variables = [x.model.name("variable") for _ in range(count)]
    infos = [
        x.model.value_info(number, "int64", ()),
        x.model.value_info(go_on, "bool", ()),
        *(x.model.value_info(n, *spec) for n, spec in zip(variables, x.outputs[:count])),
    ]
    rows = row(inside, number) if row is not None else []
    results = x.run(inside, body, [*variables, *rows, *captured])
    if cond is None:
        again = go_on
    else:
        (again,) = x.run(inside, cond, [*results[:count], *captured])
    specs = x.result_specs(body)
    outputs = [(again, "bool", ()), *((name, *spec) for name, spec in zip(results, specs))]
    graph = inside.graph(x.name, infos, outputs)
    return x.emit_many(
        "Loop", len(x.outputs), trips, condition, *x.inputs[:count], body=graph
    )


def _while(x: Op) -> list[str]:
    count = x.attrs["variables"]
    limit = x.attrs.get("maximum_iterations", -1)
    captured = x.inputs[count:]
    cond = x.body("cond")
    (first,) = x.run(x.nodes, cond, x.inputs)
    trips = "" if limit < 0 else x.ints(limit)
    return _loop(x, "body", trips, first, count, captured, cond)


def _scan(x: Op) -> list[str]:
    count, sequences = x.attrs["variables"], x.attrs["sequences"]
    captured = x.inputs[count + sequences :]
    if sequences == 0:
        if x.attrs.get("reverse", False) and len(x.outputs) > count:
            x.fail("it has no sequences and goes backwards; go forwards")
        return _loop(x, "body", x.ints(x.attrs["length"]), "", count, captured)
    inside = x.bodies()
    body = x.body("body")
    taken = [x.model.name("value") for _ in range(count + sequences)]
    specs = [
        *x.outputs[:count],
        *((dtype, None if shape is None else shape[1:]) for dtype, shape in
          x.specs[count : count + sequences]),
    ]  # fmt: skip
    infos = [x.model.value_info(name, *spec) for name, spec in zip(taken, specs)]
    results = x.run(inside, body, [*taken, *captured])
    outputs = [(name, *spec) for name, spec in zip(results, x.result_specs(body))]
    graph = inside.graph(x.name, infos, outputs)
    backwards = int(x.attrs.get("reverse", False))
    return x.emit_many(
        "Scan",
        len(x.outputs),
        *x.inputs[: count + sequences],
        body=graph,
        num_scan_inputs=sequences,
        scan_input_directions=[backwards] * sequences,
        scan_output_directions=[backwards] * (len(x.outputs) - count),
    )


RULES["FunctionCall"] = _call
RULES["If"] = _if
RULES["While"] = _while
RULES["Scan"] = _scan


def why_not(op: str) -> str:
    """What to say of an op without a rule."""
    if op.endswith("Grad") or "Gradient" in op:
        return "it calculates a gradient; export the inference part of the model only"
    if op.startswith("Random") or op == "TruncatedNormal":
        return "it draws random numbers; pass them as an input"
    return "ONNX has no operator for it, or this release no rule; calculate it outside of the model"
