"""Order, membership and running sums. Names and arguments are TensorFlow's; some are members of
`sidereal.math` and `sidereal.linalg` only."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import errors
from .._dispatch import align, apply, convert
from ..dtypes import as_dtype
from ._arguments import apply_with_int, index_tensor, rank_of

__all__ = ["argsort", "cumsum", "searchsorted", "sort", "unique", "unique_with_counts"]


class TopK(NamedTuple):
    """The greatest elements, and where they were."""

    values: Any
    indices: Any


class Unique(NamedTuple):
    """The distinct elements, and for each element which of them it is."""

    y: Any
    idx: Any


class UniqueWithCounts(NamedTuple):
    """The distinct elements, for each element which of them it is, and how often each is there."""

    y: Any
    idx: Any
    count: Any


def _direction(direction: str) -> bool:
    if direction.upper() not in ("ASCENDING", "DESCENDING"):
        raise errors.InvalidArgumentError(
            f"direction is '{direction}'; it must be 'ASCENDING' or 'DESCENDING'"
        )
    return direction.upper() == "DESCENDING"


def _sorted(values: Any, axis: int, direction: str, output: int, name: str | None) -> Any:
    """Sort works along the last dimension; another one changes places with it."""
    x = convert(values)
    attrs = {"descending": _direction(direction)}
    if axis == -1:
        return apply("Sort", (x,), attrs, name=name)[output]
    rank = rank_of(x, "sorting along another than the last dimension")
    perm = list(range(rank))
    perm[axis], perm[-1] = perm[-1], perm[axis]
    turned = apply("Transpose", (x,), {"perm": perm})
    made = apply("Sort", (turned,), attrs, name=name)[output]
    return apply("Transpose", (made,), {"perm": perm})


def sort(
    values: Any, axis: int = -1, direction: str = "ASCENDING", name: str | None = None
) -> Any:
    """In order along `axis` (tf.sort); NaN is greater than all other numbers."""
    return _sorted(values, axis, direction, 0, name)


def argsort(
    values: Any, axis: int = -1, direction: str = "ASCENDING", stable: bool = False,
    name: str | None = None,
) -> Any:  # fmt: skip
    """The int32 indices that sort() along `axis` would take the elements from (tf.argsort). Equal
    elements always keep their order."""
    return _sorted(values, axis, direction, 1, name)


def top_k(input: Any, k: Any = 1, sorted: bool = True, name: str | None = None) -> TopK:
    """The k greatest elements of the last dimension, greatest first, and their int32 indices
    (tf.math.top_k). The lower index wins a tie; the values are in order whatever `sorted` says."""
    values, indices = apply_with_int("TopK", (convert(input),), "k", k, None, name)
    return TopK(values, indices)


def in_top_k(targets: Any, predictions: Any, k: int, name: str | None = None) -> Any:
    """For each row of `predictions` [batch, classes] whether fewer than k are greater than that of
    its target class (tf.math.in_top_k); false where a prediction is not finite."""
    return apply(
        "InTopK", (convert(predictions), index_tensor(targets)), {"k": int(k)}, name=name
    )


def searchsorted(
    sorted_sequence: Any, values: Any, side: str = "left", out_type: Any = "int32",
    name: str | None = None,
) -> Any:  # fmt: skip
    """Where in the sorted last dimension each value belongs: before equal ones ('left') or behind
    them ('right') (tf.searchsorted). The other dimensions must agree."""
    attrs = {"side": side, "out_type": as_dtype(out_type)}
    return apply("SearchSorted", align(sorted_sequence, values), attrs, name=name)


def unique(x: Any, out_idx: Any = "int32", name: str | None = None) -> Unique:
    """The distinct elements of a vector in the order they first appear, and for each element which
    of them it is (tf.unique)."""
    y, idx, _ = apply("UniqueWithCounts", (convert(x),), {"out_idx": as_dtype(out_idx)}, name=name)
    return Unique(y, idx)


def unique_with_counts(x: Any, out_idx: Any = "int32", name: str | None = None) -> UniqueWithCounts:
    """unique(), and how often each element is there (tf.unique_with_counts)."""
    made = apply("UniqueWithCounts", (convert(x),), {"out_idx": as_dtype(out_idx)}, name=name)
    return UniqueWithCounts(*made)


def cumsum(
    x: Any, axis: int = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Any:
    """Running sums along `axis` (tf.cumsum): `exclusive` without the element itself, `reverse` from
    the last to the first."""
    attrs = {"axis": int(axis), "exclusive": exclusive, "reverse": reverse}
    return apply("Cumsum", (convert(x),), attrs, name=name)


def cumprod(
    x: Any, axis: int = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Any:
    """Running products along `axis` (tf.math.cumprod). As in TensorFlow, the gradient is 0 where an
    element is 0."""
    attrs = {"axis": int(axis), "exclusive": exclusive, "reverse": reverse}
    return apply("Cumprod", (convert(x),), attrs, name=name)


def bincount(
    arr: Any, weights: Any = None, minlength: int | None = None, maxlength: int | None = None,
    dtype: Any = "int32", name: str | None = None,
) -> Any:  # fmt: skip
    """How often each number from 0 on is in `arr`, or the sums of their weights (tf.math.bincount).
    At least `minlength` counts; numbers from `maxlength` on are left out. InvalidArgumentError for
    a negative number."""
    inputs = [index_tensor(arr)]
    attrs: dict[str, Any] = {
        "minlength": 0 if minlength is None else int(minlength),
        "maxlength": -1 if maxlength is None else int(maxlength),
    }
    if weights is None:
        attrs["dtype"] = as_dtype(dtype)
    else:
        inputs.append(convert(weights))
    return apply("Bincount", inputs, attrs, name=name)


# --- Matrices.


def diag(diagonal: Any, name: str | None = None) -> Any:
    """Matrices with `diagonal` [..., n] on the diagonal, zeros elsewhere (tf.linalg.diag)."""
    return apply("MatrixDiag", (convert(diagonal),), None, name=name)


def diag_part(input: Any, name: str | None = None) -> Any:
    """The diagonals of matrices [..., m, n] (tf.linalg.diag_part)."""
    return apply("MatrixDiagPart", (convert(input),), None, name=name)


def band_part(input: Any, num_lower: int, num_upper: int, name: str | None = None) -> Any:
    """Matrices with zeros but for the diagonal, `num_lower` diagonals below and `num_upper` above
    it; negative: all (tf.linalg.band_part)."""
    attrs = {"lower": int(num_lower), "upper": int(num_upper)}
    return apply("MatrixBandPart", (convert(input),), attrs, name=name)
