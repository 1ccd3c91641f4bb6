"""einsum and tensordot: sums of products over named dimensions, lowered to transposes, reshapes,
sums and products of matrices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from .. import errors
from .._dispatch import align, apply

__all__ = ["einsum", "tensordot"]

_LABEL = re.compile(r"[A-Za-z]")
#: Letters that stand for the dimensions behind "...", which no equation can name.
_HIDDEN = [chr(0x3B1 + i) for i in range(16)]


def einsum(equation: str, *inputs: Any, name: str | None = None) -> Any:
    """Sums of products by Einstein's convention: "bij,bjk->bik" is a product of stacks of matrices.
    A label on both sides stays, others are summed over; without "->" the labels that occur once
    stay, in alphabetical order. "..." stands for any dimensions, which broadcast. A label that is
    twice in one input takes its diagonal only if the input is the only one that has it.

    Several inputs are joined from left to right. In graphs, at most one extent of those that are
    merged may be unknown. Errors name the label. TensorFlow: tf.einsum."""
    tensors = align(*inputs)
    terms, result = _parse(equation, [_rank(x, equation) for x in tensors])
    if len(terms) != len(tensors):
        raise errors.InvalidArgumentError(
            f"einsum '{equation}' has {len(terms)} terms for {len(tensors)} inputs"
        )
    operands = [_Operand(x, term) for x, term in zip(tensors, terms)]
    _check_extents(operands, equation)
    for index, operand in enumerate(operands):
        elsewhere = set(result).union(*(terms[:index] + terms[index + 1:]))
        operands[index] = operand.summed(set(operand.labels) - elsewhere)
    joined = operands[0]
    for index, operand in enumerate(operands[1:], 1):
        later = set(result).union(*terms[index + 1:])
        joined = _multiply(joined, operand, later)
    joined = joined.summed(set(joined.labels) - set(result)).ordered(result)
    return apply("Identity", (joined.tensor,), None, name=name) if name else joined.tensor


def tensordot(a: Any, b: Any, axes: Any, name: str | None = None) -> Any:
    """Sums of products over axes of both: `axes` is a number (the last ones of a with the first
    ones of b) or two lists of axes. TensorFlow: tf.tensordot."""
    a, b = align(a, b)
    rank_a, rank_b = _rank(a, "tensordot"), _rank(b, "tensordot")
    if isinstance(axes, int):
        of_a = list(range(rank_a - axes, rank_a))
        of_b = list(range(axes))
    else:
        of_a, of_b = (
            [int(part)] if isinstance(part, int) else [int(axis) for axis in part] for part in axes
        )
    if len(of_a) != len(of_b) or len(of_a) > min(rank_a, rank_b):
        raise errors.InvalidArgumentError(f"tensordot over {of_a} of a and {of_b} of b")
    letters = [chr(ord("a") + i) for i in range(rank_a + rank_b)]
    term_a, term_b = letters[:rank_a], letters[rank_a:]
    for i, j in zip(of_a, of_b):
        term_b[j] = term_a[i]
    summed = {term_a[i] for i in of_a}
    result = [label for label in term_a + term_b if label not in summed]
    return einsum(f"{''.join(term_a)},{''.join(term_b)}->{''.join(result)}", a, b, name=name)


def _rank(x: Any, what: str) -> int:
    if x.shape is None:
        raise errors.InvalidArgumentError(f"{what}: the rank of every input must be known")
    return len(x.shape)


def _parse(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The terms and the result, "..." replaced by letters of its own."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    hidden = 0
    for term, rank in zip(terms, ranks):
        _check_term(term, equation)
        named = len(term.replace("...", ""))
        if named > rank or ("..." not in term and named != rank):
            raise errors.InvalidArgumentError(
                f"einsum '{equation}': '{term}' does not fit an input of {rank} dimensions"
            )
        hidden = max(hidden, rank - named if "..." in term else 0)
    letters = "".join(_HIDDEN[:hidden])
    if not arrow:
        counts: dict[str, int] = {}
        for label in left.replace(",", "").replace("...", ""):
            counts[label] = counts.get(label, 0) + 1
        right = ("..." if "..." in left else "") + "".join(
            sorted(label for label, count in counts.items() if count == 1)
        )
    _check_term(right, equation)
    out = []
    for term, rank in zip(terms, ranks):
        behind = rank - len(term.replace("...", ""))
        out.append(term.replace("...", letters[hidden - behind:] if behind else ""))
    result = right.replace("...", letters)
    known = set("".join(out))
    for label in result:
        if label not in known:
            raise errors.InvalidArgumentError(
                f"einsum '{equation}': '{label}' of the result is in no input"
            )
    if len(set(result)) != len(result):
        raise errors.InvalidArgumentError(f"einsum '{equation}': a label of the result is twice")
    return out + terms[len(out):], result


def _check_term(term: str, equation: str) -> None:
    rest = _LABEL.sub("", term.replace("...", "", 1))
    if rest:
        raise errors.InvalidArgumentError(
            f"einsum '{equation}': '{term}' is not made of letters and one '...'"
        )
    letters = term.replace("...", "")
    if len(set(letters)) != len(letters):
        raise errors.UnimplementedError(
            f"einsum '{equation}': a label is twice in '{term}'; diagonals are not there"
        )


def _check_extents(operands: Sequence[_Operand], equation: str) -> None:
    seen: dict[str, int] = {}
    for operand in operands:
        for label, extent in zip(operand.labels, operand.tensor.shape):
            before = seen.get(label, -1)
            if label in _HIDDEN and 1 in (before, extent):
                seen[label] = max(before, extent)
                continue
            if extent >= 0 and before >= 0 and extent != before:
                raise errors.InvalidArgumentError(
                    f"einsum '{equation}': label '{label}' has extents {before} and {extent}"
                )
            seen[label] = max(before, extent)


class _Operand:
    """A tensor whose dimensions have labels."""

    def __init__(self, tensor: Any, labels: str | Sequence[str]) -> None:
        self.tensor = tensor
        self.labels = list(labels)

    def summed(self, labels: set[str]) -> _Operand:
        """Without the labels, summed over."""
        axes = [i for i, label in enumerate(self.labels) if label in labels]
        if not axes:
            return self
        total = apply("ReduceSum", (self.tensor,), {"axes": axes, "keep_dims": False})
        return _Operand(total, [label for label in self.labels if label not in labels])

    def ordered(self, labels: str | Sequence[str]) -> _Operand:
        """With its dimensions in the order of `labels`, which are the same ones."""
        if list(labels) == self.labels:
            return self
        perm = [self.labels.index(label) for label in labels]
        return _Operand(apply("Transpose", (self.tensor,), {"perm": perm}), labels)

    def extents(self, labels: Sequence[str]) -> list[int]:
        return [self.tensor.shape[self.labels.index(label)] for label in labels]


def _multiply(a: _Operand, b: _Operand, later: set[str]) -> _Operand:
    """The product of two operands, summed over what both have and nobody needs later."""
    in_both = [label for label in a.labels if label in b.labels]
    # Dimensions behind "..." may broadcast: they are stacked, never merged or summed here.
    stacked = [label for label in in_both if label in later or label in _HIDDEN]
    inner = [label for label in in_both if label not in stacked]
    left = [label for label in a.labels if label not in in_both]
    right = [label for label in b.labels if label not in in_both]
    # Behind "...", one of them alone is like an extent of 1 in the other.
    lone = [label for label in (*left, *right) if label in _HIDDEN]
    stacked = sorted([*stacked, *lone], key=lambda label: (label not in _HIDDEN, label))
    left = [label for label in left if label not in lone]
    right = [label for label in right if label not in lone]
    left_extents, right_extents = a.extents(left), b.extents(right)
    x = _matrix(a, stacked, left, inner)
    y = _matrix(b, stacked, inner, right)
    product = apply("MatMul", (x, y), {"transpose_a": False, "transpose_b": False})
    if len(left) != 1 or len(right) != 1:
        front = list(product.shape[: len(stacked)])
        product = _laid_out(product, front, [*left_extents, *right_extents])
    return _Operand(product, [*stacked, *left, *right])


def _matrix(
    x: _Operand, stacked: Sequence[str], rows: Sequence[str], columns: Sequence[str]
) -> Any:
    """x as [stacked..., rows merged, columns merged]; stacked ones that x has not are 1."""
    own = [label for label in stacked if label in x.labels]
    ordered = x.ordered([*own, *rows, *columns])
    if own == list(stacked) and len(rows) == 1 and len(columns) == 1:
        return ordered.tensor
    front = [x.extents([label])[0] if label in own else 1 for label in stacked]
    rest = [_product(x.extents(rows)), _product(x.extents(columns))]
    return _laid_out(ordered.tensor, front, rest, own == list(stacked))


def _product(extents: Sequence[int]) -> int:
    total = 1
    for extent in extents:
        if extent < 0:
            return -1
        total *= extent
    return total


def _laid_out(x: Any, front: list[int], rest: list[int], copied: bool = True) -> Any:
    """x as [front..., rest...]. With `copied`, the dimensions in front are those of x as they are,
    so that their extents need not be known."""
    shape = [*front, *rest]
    if sum(extent < 0 for extent in shape) <= 1:
        return apply("Reshape", (x,), {"shape": shape, "allow_zero": True})
    if not copied or sum(extent < 0 for extent in rest) > 1:
        raise errors.UnimplementedError(
            "einsum: more than one extent of dimensions that are merged is unknown; set the shapes "
            "of the inputs"
        )
    return apply("Reshape", (x,), {"shape": [0] * len(front) + rest})
