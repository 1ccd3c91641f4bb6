"""Every op with a rule for ONNX: its cases, exported and run by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import case as harness
import numpy as np
import pytest
from case import Case, as_tuple, widened
from test_ops import CASES

import sidereal as sr
from sidereal import _dispatch
from sidereal._onnx_rules import RULES

runtime = pytest.importorskip("onnxruntime", reason="skipped: onnxruntime is not installed")
onnx = pytest.importorskip("onnx", reason="skipped: onnx is not installed")

#: Cases whose result is not that of ONNX, or that it refuses, and why.
DIFFERENT = {
    "ReduceMax-nan_inf": "ONNX Runtime may leave out NaN",
    "ReduceMin-nan_inf": "ONNX Runtime may leave out NaN",
    "ReduceMax-long_nan": "ONNX Runtime may leave out NaN",
    "ReduceMin-long_nan": "ONNX Runtime may leave out NaN",
    "Cast-bounds": "ONNX does not say what becomes of floats that are too large",
    "Cast-to_bfloat16": "ONNX Runtime gives no bfloat16 to NumPy",
    "Gather-rounded_1": "ONNX Runtime gives no bfloat16 to NumPy",
    "Gather-rounded_3": "ONNX Runtime gives no bfloat16 to NumPy",
    "Gather-rounded_40": "ONNX Runtime gives no bfloat16 to NumPy",
    "Sort-nan_inf": "ONNX Runtime does not say where NaN belongs",
    "Where-scalar": "ONNX Runtime has an index for a scalar",
    "Split-empty": "ONNX Runtime splits no empty dimension in parts",
}
#: Outputs that are exported, where not all are.
OUTPUTS = {"MaxPool": 1}


def _cases() -> Iterator[Any]:
    for op, group in CASES.items():
        if op not in RULES:
            continue
        for index, case in enumerate(group):
            if f"{op}-{case.name}" in DIFFERENT:
                continue
            for dtype in {"", "float32"} & set(case.dtypes or [""]):
                label = f"{op}-{case.name or index}" + (f"-{dtype}" if dtype else "")
                for known in ("known", "open") if case.unknown else ("known",):
                    yield pytest.param(op, case, dtype, known, id=f"{label}-{known}")


def run(path: Any, values: list[np.ndarray]) -> list[np.ndarray]:
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    return session.run(None, dict(zip(names, values)))


@pytest.mark.parametrize(("op", "case", "dtype", "known"), list(_cases()))
def test_onnx_runtime_gives_the_same(
    op: str, case: Case, dtype: str, known: str, tmp_path: Any
) -> None:
    values = harness.tensors(case.make(dtype), dtype)
    specs = [
        sr.TensorSpec(x.shape if known == "known" else [None] * len(x.shape), x.dtype)
        for x in values
    ]
    count = OUTPUTS.get(op)
    function = sr.function(
        lambda *xs: list(as_tuple(_dispatch.apply(op, xs, dict(case.attrs)))[:count])
    )
    path = tmp_path / "op.onnx"
    try:
        sr.onnx.export(function.get_concrete_function(*specs), path)
        got = run(path, [value.numpy() for value in values])
    except sr.errors.UnimplementedError as error:
        # What is not exported is refused by name, with a reason.
        assert error.message.startswith(f"{op} '")
        assert "cannot be exported to ONNX: " in error.message
        return
    except Exception as error:
        # It has no kernels for some small integers, and says so.
        if type(error).__name__ != "NotImplemented" or dtype == "float32":
            raise
        return
    want = as_tuple(_dispatch.apply(op, values, dict(case.attrs)))[:count]
    assert len(got) == len(want)
    for a, b in zip(got, want):
        a, b = widened(a), widened(b)
        assert a.dtype == b.dtype and a.shape == b.shape
        if b.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-6)
        else:
            np.testing.assert_array_equal(a, b)
