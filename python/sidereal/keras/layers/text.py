"""TextVectorization: texts as numbers of the words in them; SplitText: texts in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..._dispatch import apply, convert
from ..._raw_columns import pieces_of
from ...ops import array, math, strings
from ...ops.indexing import boolean_mask, gather
from ...ops.ragged import RaggedTensor
from ...ops.sorting import argsort
from ._preprocessing import MODES, Adaptable, Preprocessing, is_string
from ._shapes import rank_of
from .lookups import StringLookup

_STANDARDIZE = ("lower_and_strip_punctuation", "lower", "strip_punctuation")
_SPLIT = ("whitespace", "character")
#: The characters that strip_punctuation leaves out.
_PUNCTUATION = r"""[!"#$%&()*+,\-./:;<=>?@\[\\\]^_`{|}~']"""


class TextVectorization(Adaptable):
    """Texts [batch] or [batch, 1] as numbers of their words.

    standardize: what is done before, "lower_and_strip_punctuation", "lower", "strip_punctuation",
    None or a function of the texts. split: into what, "whitespace" between words, "character", None
    or a function that gives a RaggedTensor. ngrams: an integer, or those that a tuple has: words
    that follow one another, joined by blanks, are tokens too.
    The numbers are those of StringLookup, with its output modes: "int" [batch, longest] has 0
    behind the end of a text and 1 for words that are not known; output_sequence_length: texts have
    so many numbers, longer ones are cut; ragged: rows are as long as the texts.
    """

    _dtype_of_inputs = "string"

    def __init__(
        self, max_tokens: int | None = None, standardize: Any = "lower_and_strip_punctuation",
        split: Any = "whitespace", ngrams: Any = None, output_mode: str = "int",
        output_sequence_length: int | None = None, pad_to_max_tokens: bool = False,
        vocabulary: Any = None, idf_weights: Any = None, sparse: bool = False,
        ragged: bool = False, encoding: str = "utf-8", name: str | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(name=name, **kwargs)
        output_mode = {"binary": "multi_hot", "tf-idf": "tf_idf"}.get(output_mode, output_mode)
        self.output_mode = self._check_modes(output_mode, sparse, MODES)
        self.standardize = self._one_of("standardize", standardize, _STANDARDIZE)
        self.split = self._one_of("split", split, _SPLIT)
        self.ngrams = ngrams
        self._sizes = self._checked_ngrams(ngrams)
        if output_mode != "int" and output_sequence_length is not None:
            raise ValueError(
                f"layer '{self.name}': output_sequence_length={output_sequence_length} is for "
                f"output_mode='int', not '{output_mode}'"
            )
        if ragged and output_mode != "int":
            raise ValueError(
                f"layer '{self.name}': ragged=True is for output_mode='int', not '{output_mode}'"
            )
        length = output_sequence_length
        if length is not None and (not isinstance(length, int) or length < 1):
            raise ValueError(
                f"layer '{self.name}': output_sequence_length is {length!r}; it must be a positive "
                "integer"
            )
        if self._sizes and self.split is None:
            raise ValueError(
                f"layer '{self.name}': ngrams={ngrams} are of words, but split is None"
            )
        self.output_sequence_length, self.ragged = length, ragged
        self._lookup = StringLookup(
            max_tokens=max_tokens, vocabulary=vocabulary, idf_weights=idf_weights,
            pad_to_max_tokens=pad_to_max_tokens, mask_token="", output_mode=output_mode,
            encoding=encoding, name=self.name, dtype=self.dtype,
        )  # fmt: skip

    def _one_of(self, name: str, value: Any, allowed: Sequence[str]) -> Any:
        if value is not None and not callable(value) and value not in allowed:
            raise ValueError(
                f"layer '{self.name}': {name} is {value!r}; it must be one of "
                f"{', '.join(allowed)}, None or a function"
            )
        return value

    def _checked_ngrams(self, ngrams: Any) -> tuple[int, ...]:
        sizes = range(1, ngrams + 1) if isinstance(ngrams, int) else ngrams or ()
        good = isinstance(sizes, range) or (
            isinstance(sizes, (tuple, list))
            and all(isinstance(each, int) and each > 0 for each in sizes)
        )
        if good and len(sizes) > _MOST_NGRAMS:
            raise ValueError(
                f"layer '{self.name}': ngrams is {ngrams!r}; there can be {_MOST_NGRAMS} sizes"
            )
        if not good or (ngrams is not None and not sizes):
            raise ValueError(
                f"layer '{self.name}': ngrams is {ngrams!r}; it must be a positive integer, or a "
                "tuple of them"
            )
        return tuple(sizes)

    # --- The vocabulary.

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[Any]:
        """The words by number, in front of them "" and "[UNK]" if wanted."""
        return self._lookup.get_vocabulary(include_special_tokens)

    def vocabulary_size(self) -> int:
        """How many numbers there are."""
        return self._lookup.vocabulary_size()

    def set_vocabulary(self, vocabulary: Any, idf_weights: Any = None) -> None:
        """Gives the layer its words: see StringLookup."""
        self._lookup.set_vocabulary(vocabulary, idf_weights)
        self._arguments = {
            **self._arguments, "vocabulary": vocabulary, "idf_weights": idf_weights,
        }  # fmt: skip

    def _check_adaptable(self) -> None:
        self._lookup._check_adaptable()

    def reset_state(self) -> None:
        self._lookup.reset_state()

    def _see(self, batch: Any) -> None:
        words = self._words(batch)
        if self.split is not None and not isinstance(words, RaggedTensor):
            words = array.expand_dims(words, 0) if len(words.shape) == 1 else words
        self._lookup.update_state(words)

    def finalize_state(self) -> None:
        """Makes a vocabulary of the words that were seen."""
        self._lookup.finalize_state()

    def save_assets(self, dir_path: str) -> None:
        """Writes the vocabulary into a folder."""
        self._lookup.save_assets(dir_path)

    def load_assets(self, dir_path: str) -> None:
        """The reverse of save_assets()."""
        self._lookup.load_assets(dir_path)

    # --- Calls.

    def call(self, inputs: Any) -> Any:
        words = self._words(inputs)
        self._lookup._is_planned = self._is_planned
        numbers = self._lookup(words)
        length = self.output_sequence_length
        if self.output_mode != "int" or self.ragged:
            return numbers
        if isinstance(numbers, RaggedTensor):
            if length is None:
                return numbers.to_tensor()
            return array.ensure_shape(numbers.to_tensor(shape=[None, length]), [None, length])
        if length is None or len(numbers.shape) == 0:
            return numbers
        rest = [[0, 0]] * (len(numbers.shape) - 1)
        return array.pad(numbers[..., :length], [*rest, [0, length]])[..., :length]

    def _words(self, inputs: Any) -> Any:
        """Texts as they are looked up: rows of words, of one text the vector of its words."""
        if not is_string(inputs):
            raise TypeError(
                f"layer '{self.name}': TextVectorization is of strings; inputs are {inputs.dtype}"
            )
        x = self._standardized(inputs)
        if self.split is None:
            return x
        if not isinstance(x, RaggedTensor):
            rank = rank_of(self.name, x)
            if rank > 1:
                if rank > 2 or x.shape[-1] != 1:
                    raise ValueError(
                        f"layer '{self.name}' takes texts [batch] or [batch, 1] to split; these "
                        f"have shape {tuple(x.shape)}"
                    )
                x = array.squeeze(x, -1)
        words = self._split(x)
        return _with_ngrams(words, self._sizes) if self._sizes else words

    def _standardized(self, x: Any) -> Any:
        if callable(self.standardize):
            return self.standardize(x)
        if self.standardize in ("lower", "lower_and_strip_punctuation"):
            x = strings.lower(x)
        if self.standardize in ("strip_punctuation", "lower_and_strip_punctuation"):
            x = strings.regex_replace(x, _PUNCTUATION, "")
        return x

    def _split(self, x: Any) -> Any:
        if callable(self.split):
            return self.split(x)
        if self.split == "whitespace":
            return strings.split(x)
        return _characters(x)


#: Lengths of runs of words that one layer may have.
_MOST_NGRAMS = 1000
#: What is put behind each character, to cut there.
_CUT = "\x01\x02\x03"


def _characters(x: Any) -> Any:
    """The characters of UTF-8 of each text."""
    marked = strings.regex_replace(x, "(?s)(.)", "\\1" + _CUT)
    attrs = {"separator": _CUT, "skip_empty": True}
    values, splits = apply("StringSplit", (marked,), attrs)
    return values if len(x.shape) == 0 else RaggedTensor(values, splits)


def _with_ngrams(words: Any, sizes: Sequence[int]) -> Any:
    """In each row the runs of words of the first size, then those of the second, ..."""
    ragged = words
    if not isinstance(words, RaggedTensor):
        ragged = RaggedTensor.from_row_lengths(words, array.shape(words, "int64"))
    values, lengths = ragged.values, ragged.row_lengths()
    rows = ragged.value_rowids()
    places = array.range(convert(0, "int64"), array.size(values, "int64"), convert(1, "int64"))
    left = math.subtract(gather(ragged.row_splits[1:], rows), places)
    made, origins, counts = [], [], []
    for size in sizes:
        fits = math.greater_equal(left, size)
        begins = boolean_mask(places, fits)
        parts = [gather(values, math.add(begins, i)) for i in range(size)]
        made.append(strings.join(parts, " ") if size > 1 else parts[0])
        origins.append(boolean_mask(rows, fits))
        more = math.subtract(lengths, size - 1)
        counts.append(math.maximum(more, array.zeros_like(more)))
    order = argsort(array.concat(origins, 0), stable=True)
    found = gather(array.concat(made, 0), order)
    if not isinstance(words, RaggedTensor):
        return found
    return RaggedTensor.from_row_lengths(found, math.add_n(counts))


class SplitText(Preprocessing):
    """Texts [batch] in `max_length` pieces each, as sidereal.data.csv() takes cells of several
    values: (the pieces without blanks around them, whether there is one), both
    [batch, max_length]. padding, "post" or "pre": where places are without a piece; truncating:
    which pieces of a longer text are left out."""

    _dtype_of_inputs = "string"

    def __init__(
        self, separator: str, max_length: int, padding: str = "post", truncating: str = "post",
        **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        if not isinstance(max_length, int) or max_length < 1:
            raise ValueError(
                f"layer '{self.name}': max_length is {max_length!r}; it must be a positive integer"
            )
        for what, side in (("padding", padding), ("truncating", truncating)):
            if side not in ("pre", "post"):
                raise ValueError(
                    f"layer '{self.name}': {what} is {side!r}; it must be 'pre' or 'post'"
                )
        self.separator, self.max_length = separator, max_length
        self.padding, self.truncating = padding, truncating

    def call(self, inputs: Any) -> Any:
        if not is_string(inputs) or rank_of(self.name, inputs) != 1:
            raise ValueError(
                f"layer '{self.name}' takes texts [batch]; inputs are {inputs.dtype} of shape "
                f"{tuple(inputs.shape)}"
            )
        return pieces_of(inputs, self.separator, self.max_length, self.padding, self.truncating)
