"""Conformance of every op: each schema of the core has cases (cases_*.py), and each case is run at
once and in a graph, compared with NumPy, and differentiated."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import case as harness
import numpy as np
import pytest
from case import RTOL, Case, as_tuple, bits, widened

import sidereal as sr
from sidereal import _dispatch

#: Ops that only programs made by passes use, and why no case can be written for them.
INTERNAL = {
    "Placeholder": "a value that is fed: every graph of this suite has some",
    "Const": "a constant: made by convert() in every graph",
    "Arg": "an argument of a remote graph; run by the tests of programs",
    "Ret": "a result of a remote graph; run by the tests of programs",
    "Call": "a call to a parameter server; run by the tests of clusters",
    "NoOp": "nothing",
    "FusedElementwise": "made by passes; compared with the ops it is made of by the tests of exec",
    "FusedMatMul": "made by passes; compared with the ops it is made of by the tests of exec",
    "GatherConcat": "made by passes; compared with the ops it is made of by the tests of exec",
    "UpdateJoinedRows": "made by passes; compared with the ops it is made of by the tests of exec",
    "ConcatMatMul": "made by passes; compared with the ops it is made of by the tests of exec",
    "TransposedConcatMatMul": "made by passes; compared with its ops by the tests of exec",
    "MatMulSplit": "made by passes; compared with the ops it is made of by the tests of exec",
    "EmbeddingLookup": "reads a table in parts; run by the tests of models",
    "EmbeddingUpdate": "updates a table in parts; run by the tests of models",
    "EmbeddingAccumulate": "of a table in parts; run by the tests of synchronous training",
    "WithGradient": "the values of a custom gradient: see test_gradients.py",
    "FunctionCall": "runs a function: see test_control.py",
    "If": "control flow: see test_control.py",
    "While": "control flow: see test_control.py",
    "Scan": "control flow: see test_control.py",
    "Route": "made when look-ups are expanded; see exec/conformance_test.cc",
    "GatherPartsConcat": "made by passes; compared with the ops it is made of by the tests of exec",
    "UniqueRoute": "made by passes; compared with the ops it is made of by the tests of exec",
    "GatherParts": "made when look-ups are expanded; see exec/conformance_test.cc",
    **dict.fromkeys(
        ("Queue", "QueueEnqueue", "QueueDequeue", "QueueClose", "QueueSize", "QueueIsClosed",
         "Accumulator", "AccumulatorApply", "AccumulatorTake", "AccumulatorSize",
         "AccumulatorSetGlobalStep", "AccumulatorAwaitStep", "AccumulatorRestart",
         "AccumulatorLeave", "MutableTable", "TableInsert", "TableFind", "TableRemove",
         "TableSize", "TableExport", "DestroyResource"),
        "has state that is shared by name: see test_resources.py",
    ),
    **dict.fromkeys(
        ("StepBarrier", "StepBarrierRestart", "StepBarrierAwait", "StepBarrierAdvance",
         "StepBarrierLeave", "StepBarrierJoin", "StepBarrierExpel"),
        "of replicas that wait for each other; run by the tests of bounded staleness",
    ),
    **dict.fromkeys(
        ("Variable", "VariableRead", "VariableGather", "VariableIsInitialized", "VariableAssign",
         "VariableAssignAdd", "VariableAssignSub", "VariableScatterAdd", "VariableScatterSub",
         "VariableScatterUpdate", "VariableUpdateDense", "VariableUpdateNorms",
         "VariableUpdateRows"),
        "has state that is shared by name: see test_v1_variables.py",
    ),
    "HostFunction": "runs Python: see test_resources.py",
    **dict.fromkeys(
        ("DatasetIterator", "IteratorNext", "IteratorNextOrEnd", "IteratorSave", "IteratorRestore"),
        "reads a dataset: see test_dataset.py and test_dataset_functions.py",
    ),
    **dict.fromkeys(
        ("SaveVariables", "SaveTensors", "CommitCheckpoint", "RestoreVariables", "RestoreTensors"),
        "writes and reads files: see test_checkpoint_ops.py",
    ),
    **dict.fromkeys(("Send", "Recv"), "made where graphs are cut; see exec/passing_test.cc"),
    "SumParts": "made when look-ups are expanded, trusts its indices; see exec/conformance_test.cc",
}


def load() -> dict[str, list[Case]]:
    cases: dict[str, list[Case]] = {}
    for file in sorted(Path(__file__).parent.glob("cases_*.py")):
        module = importlib.import_module(file.stem)
        for op, group in module.CASES.items():
            cases.setdefault(op, []).extend(group)
    return cases


CASES = load()


def _every() -> Iterator[Any]:
    for op, group in CASES.items():
        for index, case in enumerate(group):
            for dtype in case.dtypes or [""]:
                label = f"{op}-{case.name or index}" + (f"-{dtype}" if dtype else "")
                yield pytest.param(op, case, dtype, id=label)


every_case = pytest.mark.parametrize(("op", "case", "dtype"), list(_every()))
with_gradient = pytest.mark.parametrize(
    ("op", "case"),
    [
        pytest.param(op, case, id=f"{op}-{case.name or index}")
        for op, group in CASES.items()
        for index, case in enumerate(group)
        if case.grad
    ],
)


def test_every_op_has_cases() -> None:
    ops = set(_dispatch.ENGINE.ops())
    missing = ops - CASES.keys() - INTERNAL.keys()
    assert not missing, f"no case in python/tests/ops/cases_*.py for: {', '.join(sorted(missing))}"
    unknown = CASES.keys() - ops
    assert not unknown, f"cases for ops that do not exist: {', '.join(sorted(unknown))}"
    stale = INTERNAL.keys() & CASES.keys()
    assert not stale, f"both internal and with cases: {', '.join(sorted(stale))}"


def test_differentiable_ops_have_a_case_with_a_gradient() -> None:
    without = [
        op
        for op, group in CASES.items()
        if _dispatch.ENGINE.schema(op)["differentiable"]
        and not any(case.grad for case in group)
        and op not in NO_FLOW
    ]
    assert not without, f"no case with grad=[...] for: {', '.join(sorted(without))}"


#: Ops whose gradient is nothing, by definition; files of cases name theirs.
NO_FLOW = {"StopGradient", "Sign", "OnesLike", "ZerosLike"}.union(
    *(
        getattr(importlib.import_module(file.stem), "NO_FLOW", set())
        for file in Path(__file__).parent.glob("cases_*.py")
    )
)


def compare(got: Any, want: Any, case: Case, dtype: str, what: str) -> None:
    got, want = widened(got), np.asarray(want)
    assert got.shape == want.shape, f"{what}: shape {got.shape}, NumPy has {want.shape}"
    if got.dtype.kind in "buiO":
        np.testing.assert_array_equal(got, want, err_msg=what)
        return
    rtol = case.rtol if case.rtol is not None else RTOL[dtype or got.dtype.name]
    np.testing.assert_allclose(
        got, want.astype(got.dtype), rtol=rtol, atol=max(case.atol, rtol * 1e-2), err_msg=what
    )


@every_case
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_values_are_numpys(op: str, case: Case, dtype: str) -> None:
    arrays = case.make(dtype)
    outputs = harness.run_eager(op, case, dtype)
    if case.check is not None:
        case.check(arrays, [widened(output) for output in outputs])
        return
    assert case.numpy is not None, f"{op}: the case says neither numpy nor check"
    if dtype in ("float16", "bfloat16"):
        rounded = [widened(tensor) for tensor in harness.tensors(arrays, dtype)]
        wanted = as_tuple(case.numpy(*rounded))
    else:
        wanted = as_tuple(case.numpy(*arrays))
    assert len(outputs) == len(wanted)
    for index, (got, want) in enumerate(zip(outputs, wanted)):
        compare(got, want, case, dtype, f"output {index}")


@every_case
def test_a_graph_gives_the_same_bits(op: str, case: Case, dtype: str) -> None:
    if case.check is not None:
        pytest.skip("random: differs from run to run")
    eager = harness.run_eager(op, case, dtype)
    graph, _, outputs, values = harness.trace(op, case, dtype, lambda value: value.shape)
    for output, value in zip(outputs, eager):
        assert output.dtype == value.dtype
        assert _accepts(output.shape, value.shape), f"inferred {output.shape}, got {value.shape}"
    _same(harness.run_graph(graph, outputs, values), eager, case)


@every_case
@pytest.mark.parametrize("known", ["rank", "nothing"])
def test_inference_knows_no_more_than_it_can(
    op: str, case: Case, dtype: str, known: str
) -> None:
    if not case.unknown:
        pytest.skip("the op needs known extents")
    eager = harness.run_eager(op, case, dtype)

    def shape_of(value: sr.Tensor) -> Any:
        return [-1] * value.ndim if known == "rank" else None

    graph, _, outputs, values = harness.trace(op, case, dtype, shape_of)
    for output, value in zip(outputs, eager):
        assert output.dtype == value.dtype
        assert _accepts(output.shape, value.shape), f"inferred {output.shape}, got {value.shape}"
    if case.check is None:
        _same(harness.run_graph(graph, outputs, values), eager, case)


def _accepts(inferred: Any, shape: tuple[int, ...]) -> bool:
    if inferred is None:
        return True
    return len(inferred) == len(shape) and all(
        known in (-1, extent) for known, extent in zip(inferred, shape)
    )


def _same(got: Any, want: Any, case: Case) -> None:
    for one, other in zip(got, want):
        assert one.shape == other.shape
        if case.exact:
            assert bits(one) == bits(other)
        else:
            np.testing.assert_allclose(widened(one), widened(other), rtol=1e-5, atol=1e-6)


def seeds_for(case: Case, outputs: Any) -> list[Any]:
    """Weights of the outputs' elements in the scalar that is differentiated."""
    rng = np.random.default_rng(3)
    return [
        rng.uniform(0.5, 1.5, output.shape)
        if output.dtype.kind == "f" and (case.grad_outputs is None or at in case.grad_outputs)
        else None
        for at, output in enumerate(outputs)
    ]


def weighted(op: str, case: Case, arrays: Any, seeds: Any) -> float:
    outputs = as_tuple(
        _dispatch.apply(op, [sr.constant(array) for array in arrays], dict(case.attrs))
    )
    return float(
        sum(
            np.sum(output.numpy() * seed)
            for output, seed in zip(outputs, seeds)
            if seed is not None
        )
    )


def differences(op: str, case: Case, arrays: Any, index: int, seeds: Any) -> dict[int, float]:
    """Central differences by at most 40 elements of one input."""
    flat = arrays[index].reshape(-1)
    count = flat.size
    chosen = np.arange(count)
    if count > 40:
        chosen = np.random.default_rng(4).choice(count, 40, replace=False)
    out = {}
    for at in chosen:
        step = 1e-5 * max(1.0, abs(flat[at]))
        sides = []
        for sign in (1, -1):
            moved = flat.copy()
            moved[at] += sign * step
            inputs = list(arrays)
            inputs[index] = moved.reshape(arrays[index].shape)
            sides.append(weighted(op, case, inputs, seeds))
        out[int(at)] = (sides[0] - sides[1]) / (2 * step)
    return out


def tape_gradients(op: str, case: Case, arrays: Any) -> tuple[list[Any], Any]:
    inputs = [sr.constant(array) for array in arrays]
    with sr.GradientTape() as tape:
        for index in case.grad:
            tape.watch(inputs[index])
        outputs = as_tuple(_dispatch.apply(op, inputs, dict(case.attrs)))
    seeds = seeds_for(case, outputs)
    targets = [output for output, seed in zip(outputs, seeds) if seed is not None]
    weights = [seed for seed in seeds if seed is not None]
    grads = tape.gradient(
        targets, [inputs[index] for index in case.grad], weights, unconnected_gradients="zero"
    )
    return [sr.convert_to_tensor(grad) for grad in grads], seeds


@with_gradient
def test_gradients_are_finite_differences(op: str, case: Case) -> None:
    arrays = case.make("float64")
    grads, seeds = tape_gradients(op, case, arrays)
    for index, grad in zip(case.grad, grads):
        assert grad.shape == arrays[index].shape
        flat = grad.numpy().reshape(-1)
        wanted = differences(op, case, arrays, index, seeds)
        scale = max([1.0, *(abs(value) for value in wanted.values())])
        for at, value in wanted.items():
            assert abs(flat[at] - value) <= case.grad_rtol * max(scale * 0.1, abs(value)), (
                f"input {index}, element {at}: gradient {flat[at]}, difference {value}"
            )


@with_gradient
@pytest.mark.parametrize("known", ["shapes", "rank"])
def test_gradients_of_graphs_are_those_of_tapes(op: str, case: Case, known: str) -> None:
    if known == "rank" and not case.unknown:
        pytest.skip("the op needs known extents")
    arrays = case.make("float64")
    eager, seeds = tape_gradients(op, case, arrays)

    def shape_of(value: sr.Tensor) -> Any:
        return value.shape if known == "shapes" else [-1] * value.ndim

    graph, inputs, outputs, values = harness.trace(op, case, "float64", shape_of)
    with graph.building():
        targets = [output for output, seed in zip(outputs, seeds) if seed is not None]
        weights = [sr.convert_to_tensor(seed) for seed in seeds if seed is not None]
        grads = sr.gradients(
            targets, [inputs[index] for index in case.grad], weights, unconnected_gradients="zero"
        )
        grads = [sr.convert_to_tensor(grad) for grad in grads]  # Of gathers they are rows.
    for got, want in zip(harness.run_graph(graph, grads, values), eager):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-12, atol=1e-12)


@with_gradient
def test_gradients_are_pytorchs(op: str, case: Case) -> None:
    if case.torch is None:
        pytest.skip("the case names no PyTorch function")
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (./dev setup --peers)")
    arrays = case.make("float64")
    grads, seeds = tape_gradients(op, case, arrays)
    theirs = [torch.from_numpy(np.array(array)) for array in arrays]
    for index in case.grad:
        theirs[index].requires_grad_(True)
    outputs = as_tuple(case.torch(*theirs))
    loss = sum(
        (output * torch.from_numpy(seed)).sum()
        for output, seed in zip(outputs, seeds)
        if seed is not None
    )
    wanted = torch.autograd.grad(loss, [theirs[index] for index in case.grad], allow_unused=True)
    for got, want, index in zip(grads, wanted, case.grad):
        expected = np.zeros(arrays[index].shape) if want is None else want.numpy()
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-9, atol=1e-10)
