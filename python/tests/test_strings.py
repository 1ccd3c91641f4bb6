"""Tensors of strings: to and from Python, and through the ops that move elements."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import in_graph

import sidereal as sr

WORDS = ["a", "bb", "", "a\u00f1", "a"]


def test_strings_are_bytes_and_text_is_utf8() -> None:
    x = sr.constant([["x", b"\x00\xff\x00"], ["yy", "\u00e9"]])
    assert x.dtype == sr.string and x.shape == (2, 2)
    assert x.numpy().tolist() == [[b"x", b"\x00\xff\x00"], [b"yy", "\u00e9".encode()]]
    assert sr.constant("one").numpy().item() == b"one"
    assert sr.constant([], dtype="string").shape == (0,)


@pytest.mark.parametrize("kind", ["S3", "U3", object])
def test_arrays_of_text_are_taken(kind: object) -> None:
    array = np.array(["abc", "d"], dtype=kind)
    assert sr.constant(array).numpy().tolist() == [b"abc", b"d"]


def test_a_graph_moves_strings_as_eager_does() -> None:
    def function(x: sr.Tensor) -> list[sr.Tensor]:
        rows = sr.concat([x, sr.constant(["tail"])], 0)
        table = sr.reshape(sr.tile(x, [2]), [2, 5])
        return [
            rows,
            sr.gather(rows, [5, 0, 0]),
            table[:, 1:4],
            sr.transpose(table),
            sr.where(sr.equal(x, "a"), x, "other"),
            sr.unique(x).y,
            sr.boolean_mask(x, sr.not_equal(x, "a")),
            *sr.split(table, 2),
        ]

    values = [sr.constant(WORDS)]
    at_once = [x.numpy().tolist() for x in function(*values)]
    traced = [x.numpy().tolist() for x in in_graph(function, values, True)]
    assert at_once == traced
    assert at_once[1] == [b"tail", b"a", b"a"]
    assert at_once[4] == [b"a", b"other", b"other", b"other", b"a"]
    assert at_once[5] == [b"a", b"bb", b"", "a\u00f1".encode()]


def test_loops_carry_and_stack_strings() -> None:
    @sr.function
    def repeated(x: sr.Tensor, times: sr.Tensor) -> tuple[sr.Tensor, sr.Tensor]:
        _, longest = sr.while_loop(
            lambda i, _: i < times,
            lambda i, rows: (i + 1, sr.concat([rows, x], 0)),
            [sr.constant(0), x],
            shape_invariants=[(), (None,)],
        )
        return longest, sr.map_fn(lambda row: sr.stack([row, "!"]), x)

    for times in (0, 3, 40):
        longest, stacked = repeated(sr.constant(["p", "q"]), sr.constant(times))
        assert longest.numpy().tolist() == [b"p", b"q"] * (times + 1)
        assert stacked.numpy().tolist() == [[b"p", b"!"], [b"q", b"!"]]


def test_what_text_cannot_do_says_so() -> None:
    x = sr.constant(WORDS)
    with pytest.raises(sr.errors.InvalidArgumentError, match="StringToNumber"):
        sr.cast(x, "float32")
    with pytest.raises(sr.errors.InvalidArgumentError, match="as_string"):
        sr.constant([1, 2], dtype="string")
    with pytest.raises(sr.errors.InvalidArgumentError, match="to_number"):
        sr.constant(["1"], dtype="float32")
    with pytest.raises(sr.errors.InvalidArgumentError, match="StringToHashBucket"):
        sr.reduce_sum(x)
