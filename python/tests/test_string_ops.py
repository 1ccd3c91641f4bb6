"""sidereal.strings and RaggedTensor: what their functions give, in graphs too, and what they
refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graphs import in_graph

import sidereal as sr

WORDS = ["a b", " c", "", "d e f"]


def test_pieces_are_ragged_rows() -> None:
    ragged = sr.strings.split(sr.constant(WORDS))
    assert ragged.to_list() == [[b"a", b"b"], [b"c"], [], [b"d", b"e", b"f"]]
    assert ragged.dtype == sr.string and ragged.ragged_rank == 1
    assert int(ragged.nrows()) == 4
    assert ragged.row_lengths().tolist() == [2, 1, 0, 3]
    assert ragged.value_rowids().tolist() == [0, 0, 1, 3, 3, 3]
    sparse = ragged.to_sparse()
    assert sparse.indices.tolist() == [[0, 0], [0, 1], [1, 0], [3, 0], [3, 1], [3, 2]]
    assert sparse.dense_shape.tolist() == [4, 3]
    dense = ragged.to_tensor("-")
    assert dense.tolist()[1] == [b"c", b"-", b"-"] and dense.shape == (4, 3)
    assert ragged.to_tensor(shape=[None, 2]).tolist()[3] == [b"d", b"e"]
    assert ragged.to_tensor(shape=[None, 4]).shape == (4, 4)


def test_pieces_of_one_string_are_a_vector_and_of_a_matrix_rows_of_rows() -> None:
    assert sr.strings.split("x,y", ",").tolist() == [b"x", b"y"]
    nested = sr.strings.split(sr.constant([WORDS[:2], WORDS[2:]]))
    assert nested.to_list() == [[[b"a", b"b"], [b"c"]], [[], [b"d", b"e", b"f"]]]
    assert nested.ragged_rank == 2 and len(nested.nested_row_splits) == 2
    assert nested.to_tensor().shape == (2, 2, 3)
    assert nested.to_tensor(shape=[None, None, 1]).tolist() == [[[b"a"], [b"c"]], [[b""], [b"d"]]]
    sparse = nested.to_sparse()
    assert sparse.indices.tolist() == [
        [0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 1, 0], [1, 1, 1], [1, 1, 2],
    ]  # fmt: skip
    assert sparse.dense_shape.tolist() == [2, 2, 3]
    empty = sr.strings.split(sr.constant(np.empty((2, 0), object)))
    assert empty.to_list() == [[], []] and empty.to_tensor().shape == (2, 0, 0)


def test_ragged_rows_of_numbers_have_gradients() -> None:
    x = sr.constant([1.0, 2.0, 3.0])
    with sr.GradientTape() as tape:
        tape.watch(x)
        dense = sr.RaggedTensor.from_row_lengths(x, [2, 0, 1]).to_tensor(9.0)
        loss = sr.reduce_sum(dense * dense)
    assert dense.tolist() == [[1, 2], [9, 9], [3, 9]]
    assert tape.gradient(loss, x).tolist() == [2, 4, 6]
    rows = sr.RaggedTensor.from_row_splits(sr.constant([[1, 2], [3, 4], [5, 6]]), [0, 1, 3])
    assert rows.to_tensor().tolist() == [[[1, 2], [0, 0]], [[3, 4], [5, 6]]]
    with pytest.raises(sr.errors.UnimplementedError, match="to_tensor"):
        rows.to_sparse()


@pytest.mark.parametrize("known", [True, False])
def test_a_graph_gives_what_eager_gives(known: bool) -> None:
    def function(x: sr.Tensor) -> list[Any]:
        pieces = sr.strings.split(x, " ")
        ids = sr.strings.to_hash_bucket_fast(pieces.values, 97)
        return [
            pieces.to_tensor("<none>"), pieces.to_sparse().indices,
            sr.strings.split(sr.stack([x, x])).to_tensor(), sr.strings.bytes_split(x).values,
            sr.reduce_sum(sr.one_hot(ids, 97), 0), x + "|" + x, "<" + x, x == "", x != " c",
            sr.strings.join([sr.strings.upper(x), sr.strings.as_string(sr.strings.length(x))], "="),
            sr.strings.reduce_join(x, separator="/"), sr.strings.format("{}!", x),
            sr.strings.regex_replace(x, "[aeiou]", r"<\0>"), sr.strings.strip(x),
            sr.strings.substr(x, 0, 1),
        ]  # fmt: skip

    values = [sr.constant(WORDS)]
    at_once = [x.tolist() for x in function(*values)]
    assert at_once == [x.tolist() for x in in_graph(function, values, known)]
    assert at_once[5][0] == b"a b|a b" and at_once[6][1] == b"< c"
    assert at_once[7] == [False, False, True, False]
    assert at_once[10] == b"a b/ c//d e f"


def test_a_graph_folds_and_merges_strings() -> None:
    @sr.function
    def function(x: sr.Tensor) -> tuple[sr.Tensor, sr.Tensor, sr.Tensor]:
        fixed = sr.strings.upper(sr.constant(["p", "q\0"]) + "!")
        bucket = sr.strings.to_hash_bucket_fast(sr.constant("Hello"), 3)
        return sr.strings.lower(x) + fixed, sr.strings.lower(x) + fixed, bucket

    first, second, bucket = function(sr.constant(["A", "B"]))
    assert first.tolist() == [b"aP!", b"bQ\0!"] == second.tolist()
    assert int(bucket) == 0


def test_functions_take_and_give_ragged_rows() -> None:
    @sr.function
    def shortened(words: sr.Tensor) -> sr.RaggedTensor:
        pieces = sr.strings.split(words)
        return sr.RaggedTensor(sr.strings.substr(pieces.values, 0, 1), pieces.row_splits)

    @sr.function
    def count(rows: sr.RaggedTensor) -> sr.Tensor:
        return rows.row_lengths()

    made = shortened(sr.constant(["one two", "", "three"]))
    assert isinstance(made, sr.RaggedTensor)
    assert made.to_list() == [[b"o", b"t"], [], [b"t"]]
    assert count(made).tolist() == [2, 0, 1]


def test_text_beside_tensors_of_strings_is_a_string() -> None:
    x = sr.constant(["p", "q"])
    assert (x == "p").tolist() == [True, False]
    assert (x != "q").tolist() == [True, False]
    assert (x + b"\xff").tolist() == [b"p\xff", b"q\xff"]
    assert sr.add(x, ["1", "2"]).tolist() == [b"p1", b"q2"]
    assert (sr.constant([1.0]) == "p") is False
    with pytest.raises(TypeError):
        sr.constant([1.0]) + "p"
    with pytest.raises(sr.errors.InvalidArgumentError, match="string"):
        x - x


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.to_number(["1", "2x"]), "element 1 is '2x', which is no float32"),
        (lambda s: s.to_number(["300"], "int8"), "element 0 is '300', which is no int8"),
        (lambda s: s.to_number("1", "string"), "out_type is string"),
        (lambda s: s.to_hash_bucket_fast("x", 0), "num_buckets is 0"),
        (lambda s: s.to_hash_bucket_strong("x", 3, [1]), "key has 1 integers"),
        (lambda s: s.to_hash_bucket_fast([1], 3), "input 0 is int32; it must be string"),
        (lambda s: s.as_string([1], precision=2), "for floats; the input is int32"),
        (lambda s: s.as_string([1.0], scientific=True, shortest=True), "one is possible"),
        (lambda s: s.as_string([1.0], fill="x"), "fill is 'x'"),
        (lambda s: s.as_string([1.0], width=1 << 40), "at most 1024"),
        (lambda s: s.substr(["abc"], 4, 1), "pos 4 is outside of element 0, 'abc'"),
        (lambda s: s.substr(["abc"], -4, 1), "pos -4 is outside"),
        (lambda s: s.substr(["abc"], 0, -1), "len is -1"),
        (lambda s: s.substr(["abc"], 0, 1, unit="WORD"), "unit is 'WORD'"),
        (lambda s: s.join([["a", "b"], ["a", "b", "c"]]), "cannot be broadcast"),
        (lambda s: s.join([["a"], [1]]), "text|string"),
        (lambda s: s.reduce_join(["a"], 1), "axis 1 is not a dimension"),
        (lambda s: s.reduce_join([["a"]], [0, -2]), "axis 0 is named twice"),
        (lambda s: s.regex_replace("x", "(", ""), "pattern '\\(' is no regular expression"),
        (lambda s: s.regex_replace("x", "x", r"\1"), "does not fit the pattern"),
        (lambda s: s.regex_full_match("x", "[a"), "no regular expression"),
        (lambda s: s.format("{} {}", [1]), "2 placeholders '{}' for 1 inputs"),
        (lambda s: s.format("x", [], placeholder=""), "placeholder is empty"),
    ],
)
def test_what_cannot_be_is_refused(call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(sr.errors.InvalidArgumentError, match=message):
        call(sr.strings)
    with pytest.raises(sr.errors.InvalidArgumentError):
        sr.function(lambda: call(sr.strings))()


def test_only_ascii_letters_change_case() -> None:
    assert sr.strings.upper("aé").numpy().item() == "Aé".encode()
    with pytest.raises(sr.errors.UnimplementedError, match="utf-8"):
        sr.strings.lower("x", encoding="utf-8")


def test_gradients_do_not_flow_through_strings() -> None:
    x = sr.constant([1.0, 2.0])
    with sr.GradientTape() as tape:
        tape.watch(x)
        y = sr.strings.to_number(sr.strings.as_string(x))
    assert tape.gradient(y, x) is None


def test_strings_are_stable_in_memory_that_is_used_again() -> None:
    @sr.function
    def tail(x: sr.Tensor) -> sr.Tensor:
        return sr.strings.substr(sr.strings.join([x, x]), 1, 100)

    kept = [tail(sr.constant([f"{i:05d}" * 20, "x"])) for i in range(30)]
    for i, made in enumerate(kept):
        assert made.tolist()[0] == (f"{i:05d}" * 40)[1:101].encode()
