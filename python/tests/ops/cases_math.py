"""Cases of arithmetic, comparison, logic, reductions and products."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from case import Case
from cases_basic import NAN_INF, apart, normal, positive, torch_function, values

ALL_FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")

#: Ops through which nothing flows back, by definition.
NO_FLOW = {
    "Floor", "Ceil", "Round", "Trunc", "FloorDiv", "Equal", "NotEqual", "Less", "LessEqual",
    "Greater", "GreaterEqual", "IsNan", "IsInf", "IsFinite", "LogicalAnd", "LogicalOr",
    "LogicalXor", "LogicalNot", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Invert", "LeftShift",
    "RightShift", "ReduceAny", "ReduceAll", "ArgMax", "ArgMin",
}

Maker = Callable[[np.random.Generator], list[np.ndarray]]


def within(low: float, high: float) -> Callable[..., Maker]:
    """Makes inputs of numbers between `low` and `high`."""

    def shaped(*shapes: tuple[int, ...]) -> Maker:
        return lambda rng: [rng.uniform(low, high, size=shape) for shape in shapes]

    return shaped


def whole(dtype: str, *shapes: tuple[int, ...], low: int | None = None, high: int = 100) -> Maker:
    """Integers; signed ones of both signs unless `low` says otherwise."""
    start = (0 if dtype.startswith("u") else -high) if low is None else low
    return lambda rng: [rng.integers(start, high, size=shape).astype(dtype) for shape in shapes]


def flags(*shapes: tuple[int, ...]) -> Maker:
    return lambda rng: [rng.integers(0, 2, size=shape).astype(bool) for shape in shapes]


def each(function: Callable[[float], float]) -> Callable[[np.ndarray], np.ndarray]:
    """A function of the standard library, element by element."""

    def call(x: np.ndarray) -> np.ndarray:
        return np.asarray(np.vectorize(function, otypes=[np.float64])(x.astype(np.float64)))

    return call


def function_of_one(
    numpy: Any, torch: str | None, inputs: Any = normal, special: Any = NAN_INF, grad: bool = True
) -> list[Case]:
    reference = None if torch is None else torch_function(torch)
    wanted = [0] if grad else []
    cases = [
        Case(inputs((3, 5)), {}, numpy, reference, ALL_FLOATS, wanted, "matrix", atol=1e-7),
        Case(inputs((33,)), {}, numpy, reference, grad=wanted, name="odd", atol=1e-7),
        Case(inputs(()), {}, numpy, reference, grad=wanted, name="scalar", atol=1e-7),
        Case(inputs((2, 0)), {}, numpy, name="empty"),
    ]
    if special is not None:
        cases.append(Case(values(special), {}, numpy, name="nan_inf"))
    return cases


def digamma(x: float) -> float:
    """By differences of the standard library's lgamma."""
    h = 1e-5
    return (math.lgamma(x + h) - math.lgamma(x - h)) / (2 * h)


def trigamma(x: float) -> float:
    return sum(1 / (x + k) ** 2 for k in range(20000)) + 1 / (x + 20000 - 0.5)


def elu(x: np.ndarray) -> np.ndarray:
    return np.where(x < 0, np.expm1(np.minimum(x, 0)), x)


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * each(math.erfc)(-x.astype(np.float64) / math.sqrt(2))


def selu(x: np.ndarray) -> np.ndarray:
    return 1.0507009873554805 * np.where(x < 0, 1.6732632423543772 * np.expm1(np.minimum(x, 0)), x)


FINITE = np.array([0.0, -0.0, 1.0, -1.0])
FUNCTIONS_OF_ONE = {
    "Expm1": function_of_one(np.expm1, "expm1"),
    "Rsqrt": function_of_one(lambda x: 1 / np.sqrt(x), "rsqrt", positive, NAN_INF[[0, 1, 3, 5]]),
    "Reciprocal": function_of_one(lambda x: 1 / x, "reciprocal", apart),
    "Floor": function_of_one(np.floor, "floor", grad=False),
    "Ceil": function_of_one(np.ceil, "ceil", grad=False),
    "Round": [
        *function_of_one(np.round, "round", grad=False),
        Case(values([0.5, 1.5, 2.5, -0.5, -1.5]), numpy=np.round, name="ties"),
    ],
    "Trunc": function_of_one(np.trunc, "trunc", grad=False),
    "Sin": function_of_one(np.sin, "sin"),
    "Cos": function_of_one(np.cos, "cos"),
    "Tan": function_of_one(np.tan, "tan", within(-1.2, 1.2)),
    "Asin": function_of_one(np.arcsin, "asin", within(-0.9, 0.9)),
    "Acos": function_of_one(np.arccos, "acos", within(-0.9, 0.9)),
    "Atan": function_of_one(np.arctan, "atan"),
    "Sinh": function_of_one(np.sinh, "sinh"),
    "Cosh": function_of_one(np.cosh, "cosh"),
    "Asinh": function_of_one(np.arcsinh, "asinh"),
    "Acosh": function_of_one(np.arccosh, "acosh", within(1.2, 4)),
    "Atanh": function_of_one(np.arctanh, "atanh", within(-0.9, 0.9)),
    "Erf": function_of_one(each(math.erf), "erf"),
    "Erfc": function_of_one(each(math.erfc), "erfc"),
    "Lgamma": function_of_one(each(math.lgamma), "lgamma", within(0.5, 9), None),
    "Digamma": [
        Case(within(0.3, 15)((4, 4)), {}, each(digamma), torch_function("digamma"), grad=[0],
             rtol=1e-4, atol=1e-5),
        Case(values([-0.5, -1.5, 10.0]), {}, lambda x: np.array(
            [0.03648997397857652, 0.7031566406452432, 2.251752589066721]), name="known", rtol=1e-5),
        Case(values([0.0, -1.0]), {}, lambda x: np.array([-np.inf, np.nan]), name="poles"),
    ],
    "Trigamma": [
        Case(within(0.3, 15)((4, 4)), {}, each(trigamma), rtol=1e-5),
        Case(values([-0.5]), {}, lambda x: np.array([8.934802200544679]), name="below", rtol=1e-5),
    ],
    "Relu6": [
        *function_of_one(lambda x: np.clip(x, 0, 6), "nn.functional.relu6", apart, NAN_INF[1:]),
        Case(within(7, 9)((3,)), numpy=lambda x: np.clip(x, 0, 6), grad=[0], name="above"),
    ],
    "Elu": function_of_one(elu, "nn.functional.elu", apart),
    "Selu": function_of_one(selu, "nn.functional.selu", apart),
    "Silu": function_of_one(silu, "nn.functional.silu", special=FINITE),
    "Gelu": function_of_one(gelu, "nn.functional.gelu", special=FINITE),
}


def integer_cases(numpy: Any, low: int | None = None, b_low: int | None = None) -> list[Case]:
    """A binary op on every integer dtype."""
    out = []
    for dtype in INTEGERS:

        def make(rng: np.random.Generator, dtype: str = dtype) -> list[np.ndarray]:
            return [*whole(dtype, (3, 4), low=low, high=20)(rng),
                    *whole(dtype, (4,), low=low if b_low is None else b_low, high=20)(rng)]

        out.append(Case(make, {}, numpy, dtypes=[], name=dtype))
    return out


def two(numpy: Any, torch: str | None, inputs: Any = normal, grad: bool = True,
        special: bool = True) -> list[Case]:
    """A binary op on floats, as cases_basic.binary(), with the 16-bit ones."""
    function = None if torch is None else torch_function(torch)
    both = [0, 1] if grad else []
    cases = [
        Case(inputs((3, 4), (3, 4)), {}, numpy, function, ALL_FLOATS, both, "same", atol=1e-6),
        Case(inputs((2, 3, 4), (3, 1)), {}, numpy, function, grad=both, name="broadcast",
             atol=1e-6),
        Case(inputs((4,), (2, 1, 4)), {}, numpy, function, ALL_FLOATS, both, "left", atol=1e-6),
        Case(inputs((), (5,)), {}, numpy, function, grad=both, name="scalar", atol=1e-6),
        Case(inputs((0, 3), (3,)), {}, numpy, name="empty"),
    ]
    if special:
        cases.append(
            Case(values(NAN_INF[:, None], NAN_INF[None, :]), {}, numpy, name="nan_inf")
        )
    return cases


def far_apart(*shapes: tuple[int, ...]) -> Maker:
    """Dividends whose quotients stay away from integers."""

    def make(rng: np.random.Generator) -> list[np.ndarray]:
        divisors = rng.uniform(1.0, 2.0, shapes[1]) * np.sign(rng.normal(size=shapes[1]))
        shape = np.broadcast_shapes(*shapes)
        fractions = rng.uniform(0.2, 0.8, shapes[0]) + rng.integers(-3, 3, shapes[0])
        return [fractions * np.min(np.abs(np.broadcast_to(divisors, shape))) if 0 in shape
                else fractions * np.abs(divisors).ravel()[0], divisors]

    return make


def xlogy(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where(x == 0, np.where(np.isnan(y), y, 0), x * np.log(y))


def truncated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (np.sign(a.astype(np.int64)) * np.sign(b.astype(np.int64))
            * (np.abs(a.astype(np.int64)) // np.abs(b.astype(np.int64)))).astype(a.dtype)


def floor_div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.floor(a / b) if a.dtype.kind == "f" else a // b


def floor_mod(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.mod(a, b)


def not_zero(cases: list[Case]) -> list[Case]:
    """Divisors of 1 and more."""
    for case in cases:
        case.inputs = lambda rng, inner=case.inputs: [
            part if index == 0 else np.where(part == 0, np.ones_like(part), part)
            for index, part in enumerate(inner(rng))
        ]
    return cases


TWO = {
    "Add": [*integer_cases(np.add), Case(normal((3, 4), (4,)), {}, np.add,
                                         dtypes=("float16", "bfloat16"), name="halves")],
    "Sub": [*integer_cases(np.subtract), Case(normal((3, 4), (1,)), {}, np.subtract,
                                              dtypes=("float16", "bfloat16"), name="halves")],
    "Mul": [*integer_cases(np.multiply), Case(normal((600,), (600,)), {}, np.multiply,
                                              dtypes=("float16", "bfloat16"), name="halves")],
    "Div": [*not_zero(integer_cases(truncated)), Case(positive((3, 4), (3, 1)), {}, np.divide,
                                                      dtypes=("float16", "bfloat16"),
                                                      name="halves")],
    "Maximum": [*integer_cases(np.maximum),
                Case(values(NAN_INF[:, None], NAN_INF[None, :]), {}, np.maximum, name="nan")],
    "Minimum": [*integer_cases(np.minimum),
                Case(values(NAN_INF[:, None], NAN_INF[None, :]), {}, np.minimum, name="nan")],
    "FloorDiv": [*two(floor_div, None, positive, grad=False, special=False),
                 *not_zero(integer_cases(floor_div))],
    "FloorMod": [
        Case(values([5.5, -5.5, 5.5, -5.5], [2.0, 2.0, -2.0, -2.0]), {}, floor_mod,
             torch_function("remainder"), ALL_FLOATS, [0, 1], "signs"),
        Case(within(0.2, 0.8)((3, 4), (4,)), {}, lambda a, b: np.mod(a, b), name="broadcast",
             atol=1e-6),
        Case(normal((0,), (1,)), {}, floor_mod, name="empty"),
        *not_zero(integer_cases(floor_mod)),
    ],
    "Pow": [
        *two(np.power, "pow", positive),
        Case(values([2.0, -2.0, 0.0, -3.0], [3.0, 2.0, 2.0, 3.0]), {}, np.power,
             torch_function("pow"), grad=[0], name="whole_exponents"),
        *[Case(lambda rng, dtype=dtype: [*whole(dtype, (3, 4), high=5)(rng),
                                         *whole(dtype, (4,), low=0, high=3)(rng)],
               {}, np.power, dtypes=[], name=dtype) for dtype in INTEGERS],
    ],
    "SquaredDifference": [*two(lambda a, b: (a - b) ** 2, None),
                          *integer_cases(lambda a, b: (a - b) * (a - b))],
    "Atan2": two(np.arctan2, "atan2", apart),
    "DivNoNan": [
        *two(lambda a, b: np.where(b == 0, 0, a / np.where(b == 0, 1, b)), None, positive,
             special=False),
        Case(values([1.0, -1.0, 0.0, np.inf], [0.0, 0.0, 0.0, 2.0]), {},
             lambda a, b: np.array([0, 0, 0, np.inf]), name="zeros"),
    ],
    "Xlogy": [*two(xlogy, "xlogy", positive, special=False),
              Case(values([0.0, 0.0, 0.0, 2.0], [0.0, -1.0, np.inf, 0.0]), {}, xlogy,
                   name="zeros")],
    "Xlog1py": [*two(lambda x, y: xlogy(x, 1 + y), None, positive, special=False),
                Case(values([0.0, 0.0, 2.0], [-1.0, np.inf, -1.0]), {},
                     lambda x, y: xlogy(x, 1 + y), name="zeros")],
}

UNARY_INTEGERS = {
    op: [Case(whole(dtype, (3, 5)), {}, numpy, dtypes=[], name=dtype)
         for dtype in INTEGERS if signed != dtype.startswith("u") or not signed]
    for op, numpy, signed in [
        ("Neg", np.negative, True),
        ("Square", lambda x: x * x, False),
        ("Abs", np.abs, False),
        ("Sign", np.sign, False),
        ("Relu", lambda x: np.maximum(x, 0), False),
        ("Relu6", lambda x: np.clip(x, 0, 6).astype(x.dtype), False),
    ]
}


def comparison(numpy: Any, torch: bool = True) -> list[Case]:
    return [
        *[Case(whole(dtype, (4, 5), (5,), high=3), {}, numpy, dtypes=[], name=dtype)
          for dtype in INTEGERS],
        Case(lambda rng: [np.round(x) for x in normal((2, 40), (2, 1))(rng)], {}, numpy,
             dtypes=ALL_FLOATS, name="floats"),
        Case(values(NAN_INF[:, None], NAN_INF[None, :]), {}, numpy, dtypes=ALL_FLOATS,
             name="nan_inf"),
        Case(normal((0, 3), (3,)), {}, numpy, name="empty"),
        Case(normal((), ()), {}, numpy, name="scalars"),
    ]


def classified(numpy: Any) -> list[Case]:
    return [
        Case(values(NAN_INF), {}, numpy, dtypes=ALL_FLOATS),
        Case(normal((2, 0)), {}, numpy, name="empty"),
        Case(values(np.nan), {}, numpy, name="scalar"),
    ]


def logical(numpy: Any) -> list[Case]:
    return [
        Case(flags((4, 1), (1, 5)), {}, numpy, dtypes=[], name="broadcast"),
        Case(flags((70,), (70,)), {}, numpy, dtypes=[], name="same"),
        Case(flags((), (0,)), {}, numpy, dtypes=[], name="empty"),
    ]


def bits(numpy: Any, shift: bool = False) -> list[Case]:
    return [
        Case(lambda rng, dtype=dtype: [*whole(dtype, (3, 4))(rng),
                                       *whole(dtype, (4,), low=0 if shift else None, high=7)(rng)],
             {}, numpy, dtypes=[], name=dtype)
        for dtype in INTEGERS
    ]


def select_torch(condition: Any, x: Any, y: Any) -> Any:
    import torch

    return torch.where(condition, x, y)


def chosen(*shapes: tuple[int, ...]) -> Maker:
    return lambda rng: [rng.integers(0, 2, size=shapes[0]).astype(bool), *normal(*shapes[1:])(rng)]


LOGIC = {
    "Equal": [*comparison(np.equal), *logical(np.equal)],
    "NotEqual": [*comparison(np.not_equal), *logical(np.not_equal)],
    "Less": comparison(np.less),
    "LessEqual": comparison(np.less_equal),
    "Greater": comparison(np.greater),
    "GreaterEqual": comparison(np.greater_equal),
    "IsNan": classified(np.isnan),
    "IsInf": classified(np.isinf),
    "IsFinite": classified(np.isfinite),
    "LogicalAnd": logical(np.logical_and),
    "LogicalOr": logical(np.logical_or),
    "LogicalXor": logical(np.logical_xor),
    "LogicalNot": [Case(flags((3, 5)), {}, np.logical_not, dtypes=[]),
                   Case(flags(()), {}, np.logical_not, dtypes=[], name="scalar")],
    "BitwiseAnd": bits(np.bitwise_and),
    "BitwiseOr": bits(np.bitwise_or),
    "BitwiseXor": bits(np.bitwise_xor),
    "Invert": [Case(whole(dtype, (9,)), {}, np.invert, dtypes=[], name=dtype)
               for dtype in INTEGERS],
    "LeftShift": [
        *bits(np.left_shift, shift=True),
        Case(values(np.array([1, 1, 1], np.int32), np.array([31, 32, -1], np.int32)), {},
             lambda a, b: np.array([-(2**31), 0, 0], np.int32), dtypes=[], name="beyond"),
    ],
    "RightShift": [
        *bits(np.right_shift, shift=True),
        Case(values(np.array([-8, -8, 8], np.int32), np.array([1, 32, 40], np.int32)), {},
             lambda a, b: np.array([-4, -1, 0], np.int32), dtypes=[], name="beyond"),
    ],
    "Select": [
        Case(chosen((3, 4), (3, 4), (3, 4)), {}, np.where, select_torch, ALL_FLOATS, [1, 2],
             "same"),
        Case(chosen((3, 1), (4,), (2, 1, 4)), {}, np.where, select_torch, grad=[1, 2],
             name="broadcast"),
        Case(chosen((), (3,), ()), {}, np.where, select_torch, grad=[1, 2], name="scalars"),
        Case(chosen((4,), (0, 4), (4,)), {}, np.where, name="empty"),
        Case(values(np.array([True, False]), [np.nan, np.nan], [1.0, np.inf]), {}, np.where,
             name="nan_inf"),
        *[Case(lambda rng, dtype=dtype: [*flags((5, 1))(rng), *whole(dtype, (5, 3), (3,))(rng)], {},
               np.where, dtypes=[], name=dtype) for dtype in INTEGERS],
        Case(flags((6,), (6,), ()), {}, np.where, dtypes=[], name="bool"),
    ],
}


def reduction(function: Any, torch: Any, inputs: Any = normal, grad: bool = True,
              integers: bool = True) -> list[Case]:
    def case(axes: list[int], keep: bool, shape: tuple[int, ...], name: str,
             dtypes: Any = ("float32", "float64"), with_grad: bool = True) -> Case:
        axis = tuple(axes) if axes else None
        return Case(
            inputs(shape), {"axes": axes, "keep_dims": keep},
            lambda x: function(x, axis=axis, keepdims=keep),
            None if torch is None else (lambda x: torch(x, axes, keep)),
            dtypes, [0] if grad and with_grad else [], name, atol=1e-6,
        )

    out = [
        case([1], False, (3, 4, 2), "middle", ALL_FLOATS),
        case([-1, 0], True, (3, 4, 2), "scattered_kept"),
        case([0, 2], False, (3, 4, 5), "scattered"),
        case([], False, (3, 4), "all", ALL_FLOATS),
        case([-1], False, (3, 70), "last"),
        case([0], False, (70, 3), "first"),
        case([0], True, (4, 0), "empty_kept", with_grad=False),
    ]
    for dtype in INTEGERS if integers else ():
        out.append(Case(
            whole(dtype, (3, 4, 2), high=5), {"axes": [0, 2], "keep_dims": False},
            lambda x: np.asarray(function(x.astype(np.int64), axis=(0, 2))).astype(x.dtype),
            dtypes=[], name=dtype,
        ))
        out.append(Case(
            whole(dtype, (37,), high=3), {"axes": [], "keep_dims": False},
            lambda x: np.asarray(function(x.astype(np.int64))).astype(x.dtype),
            dtypes=[], name=f"{dtype}_all",
        ))
    return out


def torch_extreme(name: str) -> Any:
    def call(x: Any, axes: list[int], keep: bool) -> Any:
        import torch

        return getattr(torch, name)(x, dim=axes or list(range(x.ndim)), keepdim=keep)

    return call


def truncated_mean(x: np.ndarray, axis: Any = None, keepdims: bool = False) -> np.ndarray:
    if x.dtype.kind == "f":
        return np.mean(x, axis=axis, keepdims=keepdims)
    total = np.sum(x, axis=axis, keepdims=keepdims)
    return np.trunc(total / (x.size / total.size))


def bool_reduction(function: Any) -> list[Case]:
    return [
        Case(lambda rng: [rng.random((3, 4, 2)) < 0.3], {"axes": axes, "keep_dims": keep},
             lambda x, axes=axes, keep=keep: function(
                 x, axis=tuple(axes) if axes else None, keepdims=keep),
             dtypes=[], name=f"{len(axes)}{keep}")
        for axes in ([], [0], [-1, 0], [1, 2]) for keep in (False, True)
    ] + [Case(flags((0, 3)), {"axes": [0]}, lambda x: function(x, axis=0), dtypes=[], name="empty")]


def ties(numpy: Any) -> list[Case]:
    """Equal elements share the gradient; finite differences see a kink, PyTorch agrees."""
    return [
        Case(values([[1.0, 2.0, 2.0], [3.0, 3.0, 3.0]]), {"axes": [1]},
             lambda x: numpy(x, axis=1), name="ties"),
        Case(values([[1.0, np.nan, 2.0], [np.inf, -np.inf, 0.0]]), {"axes": [1]},
             lambda x: numpy(x, axis=1), dtypes=ALL_FLOATS, name="nan_inf"),
        Case(values([1.0] * 40 + [np.nan] + [2.0] * 40), {"axes": []}, lambda x: np.array(np.nan),
             name="long_nan"),
    ]


def prod_grad(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    for j in range(x.shape[1]):
        out[:, j] = dy * np.prod(np.delete(x, j, axis=1), axis=1)
    return out


def prod_grad_grad(dy: np.ndarray, x: np.ndarray, u: np.ndarray) -> np.ndarray:
    out = np.zeros_like(x)
    for j in range(x.shape[1]):
        for k in range(x.shape[1]):
            if k != j:
                out[:, j] += dy * u[:, k] * np.prod(np.delete(x, [j, k], axis=1), axis=1)
    return out


def arg_cases(function: Any) -> list[Case]:
    out = [
        Case(normal((3, 4, 5)), {"axis": axis, "output_dtype": dtype},
             lambda x, axis=axis, dtype=dtype: function(x, axis).astype(dtype), dtypes=ALL_FLOATS,
             name=f"axis{axis}_{dtype}")
        for axis, dtype in ((0, "int64"), (1, "int32"), (-1, "int64"))
    ]
    out += [Case(whole(dtype, (4, 9), high=4), {"axis": 1}, lambda x: function(x, 1), dtypes=[],
                 name=dtype) for dtype in INTEGERS]
    out += [
        Case(values([1.0, np.nan, 3.0, np.nan]), {"axis": 0}, lambda x: function(x, 0), name="nan"),
        Case(values([2.0, 1.0, 2.0, 1.0]), {"axis": 0}, lambda x: function(x, 0), name="first"),
        Case(normal((0, 3)), {"axis": 1}, lambda x: np.zeros((0,), np.int64), name="no_rows"),
    ]
    return out


REDUCTIONS = {
    "ReduceSum": reduction(np.sum, torch_extreme("sum")),
    "ReduceMean": reduction(truncated_mean, torch_extreme("mean")),
    "ReduceProd": [
        *reduction(np.prod, None, within(0.5, 1.5)),
        Case(values([[0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [1.0, 2.0, 3.0]]), {"axes": [1]},
             lambda x: np.prod(x, axis=1), lambda x: x.prod(1), grad=[0], name="zeros"),
    ],
    "ReduceMax": [*reduction(np.max, torch_extreme("amax"))[:-1], *ties(np.max)],
    "ReduceMin": [*reduction(np.min, torch_extreme("amin"))[:-1], *ties(np.min)],
    "ReduceAny": bool_reduction(np.any),
    "ReduceAll": bool_reduction(np.all),
    "ProdGrad": [
        Case(normal((3,), (3, 4)), {"axes": [1]}, prod_grad, dtypes=ALL_FLOATS, grad=[0, 1]),
        Case(values([2.0], [[0.0, 3.0, 4.0]]), {"axes": [1]}, prod_grad, name="zero", grad=[0, 1]),
        Case(values([2.0], [[0.0, 3.0, 0.0]]), {"axes": [1]}, prod_grad, name="zeros",
             grad=[0, 1]),
        Case(normal((4,), (4, 0)), {"axes": [1]}, lambda dy, x: x, name="empty"),
    ],
    "ProdGradGrad": [
        Case(normal((3,), (3, 4), (3, 4)), {"axes": [1]}, prod_grad_grad, dtypes=ALL_FLOATS),
        Case(values([2.0], [[0.0, 3.0, 0.0]], [[5.0, 6.0, 7.0]]), {"axes": [1]}, prod_grad_grad,
             name="zeros"),
        Case(normal((4,), (4, 0), (4, 0)), {"axes": [1]}, lambda dy, x, u: x, name="empty"),
    ],
    "ArgMax": arg_cases(np.argmax),
    "ArgMin": arg_cases(np.argmin),
    "BroadcastAxes": [
        Case(normal((3,), (2, 3)), {"axes": [0], "mean": True},
             lambda g, x: np.broadcast_to(g / 2, (2, 3)), dtypes=ALL_FLOATS, grad=[0],
             name="gradient_mean"),
        Case(normal((2, 1), (2, 3)), {"axes": [1], "keep_dims": True},
             lambda g, x: np.broadcast_to(g, (2, 3)), dtypes=ALL_FLOATS, grad=[0],
             name="gradient"),
    ],
    "BroadcastLike": [
        Case(normal((3, 1), (2, 3, 4)), {}, lambda x, like: np.broadcast_to(x, (2, 3, 4)),
             dtypes=ALL_FLOATS, grad=[0]),
        Case(normal((), (0, 2)), {}, lambda x, like: np.zeros((0, 2)), name="empty"),
        Case(lambda rng: [*flags((2, 1))(rng), *normal((2, 3))(rng)], {},
             lambda x, like: np.broadcast_to(x, (2, 3)), name="bool"),
    ],
    "SumToShapeOf": [
        Case(normal((2, 3, 4), (3, 1)), {}, lambda g, x: g.sum((0, 2))[:, None],
             dtypes=("float32", "float64", "bfloat16"), grad=[0], name="gradient", atol=2e-2),
        *[Case(whole(dtype, (4, 3), (3,)), {}, lambda g, x: g.sum(0).astype(g.dtype), dtypes=[],
               name=dtype) for dtype in INTEGERS],
    ],
}


def batched(ta: bool, tb: bool, a: tuple[int, ...], b: tuple[int, ...], name: str,
            dtypes: Any = ("float32", "float64")) -> Case:
    def product(x: Any, y: Any) -> Any:
        # mT of PyTorch and swapaxes of NumPy.
        swap = (lambda v: np.swapaxes(v, -1, -2)) if isinstance(x, np.ndarray) else (lambda v: v.mT)
        return (swap(x) if ta else x) @ (swap(y) if tb else y)

    return Case(normal(a, b), {"transpose_a": ta, "transpose_b": tb}, product, product, dtypes,
                [0, 1], name, atol=1e-5, exact=False,
                rtol=3e-2 if "bfloat16" in dtypes else None)


PRODUCTS = {
    "MatMul": [
        batched(False, False, (5, 3, 4), (5, 4, 2), "batch"),
        batched(True, False, (5, 4, 3), (5, 4, 2), "batch_ta"),
        batched(False, True, (5, 3, 4), (5, 2, 4), "batch_tb"),
        batched(True, True, (5, 4, 3), (5, 2, 4), "batch_tatb"),
        batched(False, False, (5, 3, 4), (4, 2), "one_right"),
        batched(False, True, (2, 5, 3, 4), (2, 4), "one_right_tb"),
        batched(True, False, (5, 4, 3), (4, 2), "one_right_ta"),
        batched(False, False, (3, 4), (5, 4, 2), "one_left"),
        batched(False, False, (2, 1, 3, 4), (5, 4, 2), "broadcast"),
        batched(False, False, (6, 4), (4, 3), "halves", ("float16", "bfloat16")),
        Case(normal((6, 4), (4, 3)), {"out_type": "float32"}, lambda a, b: a @ b,
             dtypes=["float32", "bfloat16"], rtol=2e-5, atol=1e-6, exact=False, name="wide"),
        Case(normal((0, 3, 4), (4, 2)), {}, lambda a, b: a @ b, name="no_batch"),
        *[Case(whole(dtype, (3, 4, 5), (5, 2)), {}, np.matmul, dtypes=[], name=dtype)
          for dtype in ("int32", "int64")],
        *[Case(whole("int64", *shapes), {"transpose_a": ta, "transpose_b": tb},
               lambda a, b, ta=ta, tb=tb: (a.T if ta else a) @ (b.T if tb else b), dtypes=[],
               name=f"int64_{ta}{tb}")
          for ta, tb, shapes in ((True, False, ((4, 3), (4, 2))), (False, True, ((3, 4), (2, 4))))],
    ],
    "AddN": [Case(whole(dtype, (3,), (3,), (3,)), {}, lambda *xs: sum(xs[1:], xs[0]), dtypes=[],
                  name=dtype) for dtype in INTEGERS]
    + [Case(normal((3, 2), (3, 2)), {}, np.add, dtypes=("float16", "bfloat16"), name="halves")],
    "Cast": [
        Case(lambda rng, f=f: [np.array([0, 1, 2, 100]).astype(f)], {"dtype": t},
             lambda x, t=t: x.astype(t), dtypes=[], name=f"{f}_{t}")
        for f in (*INTEGERS, "bool", "float16", "float32", "float64")
        for t in (*INTEGERS, "bool", "float16", "float32", "float64")
    ] + [
        Case(values([1.0, 1.00390625, -3.4e38, np.nan]), {"dtype": "bfloat16"},
             lambda x: np.array([1.0, 1.0, -np.inf, np.nan], np.float32), dtypes=["float32"],
             name="to_bfloat16"),
        Case(values([1e30, -1e30, np.nan, -1.5]), {"dtype": "int32"},
             lambda x: np.array([2**31 - 1, -(2**31), 0, -1], np.int32), name="bounds"),
    ],
    "OnesLike": [Case(whole(d, (2, 3)), {}, np.ones_like, dtypes=[], name=d) for d in INTEGERS]
    + [Case(flags((3,)), {}, np.ones_like, dtypes=[], name="bool")],
    "ZerosLike": [Case(whole(d, (2, 3)), {}, np.zeros_like, dtypes=[], name=d) for d in INTEGERS]
    + [Case(flags((3,)), {}, np.zeros_like, dtypes=[], name="bool")],
    "ReluGrad": [Case(apart((4, 3), (4, 3)), {}, lambda dy, y: np.where(y > 0, dy, 0),
                      dtypes=ALL_FLOATS, grad=[0], name="gradient")],
    "SigmoidGrad": [Case(normal((4, 3), (4, 3)), {}, lambda dy, y: dy * y * (1 - y),
                         dtypes=ALL_FLOATS, grad=[0, 1], name="gradient", atol=1e-2)],
    "TanhGrad": [Case(normal((4, 3), (4, 3)), {}, lambda dy, y: dy * (1 - y * y),
                      dtypes=ALL_FLOATS, grad=[0, 1], name="gradient", atol=3e-2)],
}

CASES: dict[str, list[Case]] = {}
for _group in (FUNCTIONS_OF_ONE, TWO, UNARY_INTEGERS, LOGIC, REDUCTIONS, PRODUCTS):
    for _op, _cases in _group.items():
        CASES.setdefault(_op, []).extend(_cases)
