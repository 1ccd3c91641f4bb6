"""Layers that number the tokens of a vocabulary: StringLookup and IntegerLookup."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import dtypes, errors
from ..._dispatch import convert, to_tensor
from ...lookup import KeyValueTensorInitializer, StaticHashTable
from ...ops import array, math, strings
from ...ops.debugging import checked
from ...ops.indexing import boolean_mask
from ...ops.ragged import RaggedTensor
from ._preprocessing import (
    MODES,
    Adaptable,
    each_element,
    encoded,
    is_string,
)
from .hashing import bucket, key_of_salt


class _Found:
    """What adapt() has seen: how often each token was there, and in how many documents."""

    def __init__(self) -> None:
        self.counts: Counter[Any] = Counter()
        self.documents: Counter[Any] = Counter()
        self.rows = 0

    def add(self, batch: Any, with_documents: bool) -> None:
        """Counts a batch whose rows are documents; of a vector each element is one."""
        flat = batch.flat_values if isinstance(batch, RaggedTensor) else batch
        values = flat.numpy().ravel()
        self.counts.update(values.tolist())
        if not with_documents:
            return
        if isinstance(batch, RaggedTensor):
            rows = batch.to_list()
        else:
            shape = batch.numpy().shape
            rows = values.reshape(shape[0] if shape else 1, -1).tolist()
        self.rows += len(rows)
        for row in rows:
            self.documents.update(set(row))


class _Vocabulary:
    """Tokens without special ones. One object, so that a layer that looks for its sublayers does
    not go through them. `weights`: those of all numbers, in the mode tf_idf."""

    def __init__(self, tokens: list[Any], weights: np.ndarray | None) -> None:
        self.tokens, self.weights = tokens, weights


class _IndexLookup(Adaptable):
    """What both have. Tokens have the numbers behind those that are kept for others: in the mode
    "int" a mask token has 0, then come `num_oov_indices` numbers for what is not in the vocabulary,
    then the tokens in their order."""

    _encoding = "utf-8"

    def __init__(
        self, dtype_of_tokens: Any, max_tokens: int | None, num_oov_indices: int, mask_token: Any,
        oov_token: Any, vocabulary: Any, idf_weights: Any, invert: bool, output_mode: str,
        pad_to_max_tokens: bool, sparse: bool, oov_method: str, salt: Any, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        if max_tokens is not None and max_tokens <= 1:
            raise ValueError(
                f"layer '{self.name}': max_tokens is {max_tokens}; it must be above 1"
            )
        if pad_to_max_tokens and max_tokens is None:
            raise ValueError(
                f"layer '{self.name}': pad_to_max_tokens needs max_tokens, which is None"
            )
        if num_oov_indices < 0:
            raise ValueError(
                f"layer '{self.name}': num_oov_indices is {num_oov_indices}; it must be at least 0"
            )
        output_mode = {"binary": "multi_hot", "tf-idf": "tf_idf"}.get(output_mode, output_mode)
        self.output_mode = self._check_modes(output_mode, sparse, MODES)
        if invert and output_mode != "int":
            raise ValueError(
                f"layer '{self.name}': with invert=True output_mode must be 'int', not "
                f"'{output_mode}'"
            )
        if output_mode != "tf_idf" and idf_weights is not None:
            raise ValueError(
                f"layer '{self.name}': idf_weights are for output_mode='tf_idf', not "
                f"'{output_mode}'"
            )
        self._tokens_dtype = dtypes.as_dtype(dtype_of_tokens)
        self._dtype_of_inputs = "int64" if invert else self._tokens_dtype
        self.max_tokens, self.num_oov_indices = max_tokens, num_oov_indices
        self.mask_token = None if mask_token is None else self._plain(mask_token)
        self.oov_token = self._plain(oov_token)
        self.invert, self.pad_to_max_tokens = invert, pad_to_max_tokens
        self._by_hash, self._key = oov_method == "farmhash", key_of_salt(self.name, salt)
        self._known: _Vocabulary | None = None
        self._found = _Found()
        self._table: Any = None
        self._inverse: Any = None
        self._called_with: int | None = None
        self._is_static = False
        if vocabulary is not None:
            self._set(vocabulary, idf_weights)
            self._is_static = True

    # --- Tokens.

    def _plain(self, token: Any) -> Any:
        """A token as Python has it: text, or an integer."""
        if self._tokens_dtype is not dtypes.string:
            return int(token)
        if isinstance(token, bytes):
            return token.decode(self._encoding, "surrogateescape")
        return str(token)

    def _bytes(self, token: Any) -> Any:
        is_text = isinstance(token, str)
        return token.encode(self._encoding, "surrogateescape") if is_text else token

    def _tensor(self, tokens: Sequence[Any]) -> Any:
        """Tokens as a vector."""
        if self._tokens_dtype is not dtypes.string:
            return to_tensor(np.array(tokens, self._tokens_dtype.name))
        made = np.empty(len(tokens), object)
        made[:] = [self._bytes(token) for token in tokens]
        return to_tensor(made, "string")

    @property
    def _tokens(self) -> list[Any]:
        return [] if self._known is None else self._known.tokens

    @property
    def _has_mask_index(self) -> bool:
        return self.mask_token is not None and self.output_mode == "int"

    @property
    def _special(self) -> list[Any]:
        """What the first numbers stand for."""
        mask = [self.mask_token] if self._has_mask_index else []
        return mask + [self.oov_token] * self.num_oov_indices

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[Any]:
        """The tokens by number; the mask and OOV tokens in front of them if wanted."""
        return self._special + self._tokens if include_special_tokens else list(self._tokens)

    def vocabulary_size(self) -> int:
        """How many numbers there are, those of mask and OOV tokens included."""
        return len(self._special) + len(self._tokens)

    def set_vocabulary(self, vocabulary: Any, idf_weights: Any = None) -> None:
        """Gives the layer its tokens: a list, an array or the name of a file with one in each line,
        with or without mask and OOV tokens in front; and in the mode tf_idf their weights."""
        self._set(vocabulary, idf_weights)
        self._is_static = True
        self._arguments = {
            **self._arguments, "vocabulary": vocabulary, "idf_weights": idf_weights,
        }  # fmt: skip

    def _read(self, path: str) -> list[Any]:
        try:
            with open(path, "rb") as file:
                lines = [line.removesuffix(b"\r") for line in file.read().split(b"\n")]
        except FileNotFoundError:
            raise ValueError(
                f"layer '{self.name}': there is no vocabulary file '{path}'"
            ) from None
        except OSError as error:
            raise ValueError(
                f"layer '{self.name}': the vocabulary file '{path}' cannot be read: "
                f"{error.strerror}"
            ) from None
        if lines and not lines[-1]:
            lines.pop()
        made = []
        for number, line in enumerate(lines):
            try:
                made.append(self._plain(line))
            except ValueError:
                raise ValueError(
                    f"layer '{self.name}': '{path}' line {number + 1}: {line!r} is no "
                    f"{dtypes.name_of(self._tokens_dtype)}"
                ) from None
        return made

    def _listed(self, vocabulary: Any) -> list[Any]:
        if isinstance(vocabulary, (str, os.PathLike)):
            return self._read(os.fspath(vocabulary))
        values = vocabulary.numpy() if hasattr(vocabulary, "numpy") else vocabulary
        values = values.tolist() if isinstance(values, np.ndarray) else values
        try:
            return [self._plain(token) for token in values]
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"layer '{self.name}': tokens of {type(self).__name__} must be "
                f"{dtypes.name_of(self._tokens_dtype)}: {error}"
            ) from None

    def _set(self, vocabulary: Any, idf_weights: Any) -> None:
        if self.output_mode == "tf_idf" and idf_weights is None:
            raise ValueError(
                f"layer '{self.name}': with output_mode='tf_idf' a vocabulary must come with "
                "idf_weights"
            )
        if self.output_mode != "tf_idf" and idf_weights is not None:
            raise ValueError(
                f"layer '{self.name}': idf_weights are for output_mode='tf_idf', not "
                f"'{self.output_mode}'"
            )
        given = self._listed(vocabulary)
        if not given:
            raise ValueError(f"layer '{self.name}': the vocabulary {vocabulary!r} has no tokens")
        special = self._special
        has_special = len(special) > 0 and given[: len(special)] == special
        tokens = given[len(special) :] if has_special else given
        self._check_tokens(tokens)
        weights = None
        if idf_weights is not None:
            weights = np.asarray(convert_array(idf_weights), np.float32).ravel()
            if len(weights) != len(given):
                raise ValueError(
                    f"layer '{self.name}': there are {len(weights)} idf_weights for {len(given)} "
                    "tokens; give one for each"
                )
            if not has_special:
                weights = self._with_others(weights)
        self._place(tokens, weights)

    def _with_others(self, weights: np.ndarray) -> np.ndarray:
        """Weights of tokens, in front of them those of others, which weigh as tokens do on
        average."""
        others = weights.mean() if len(weights) else 0.0
        return np.concatenate([np.full(len(self._special), others, np.float32), weights])

    def _check_tokens(self, tokens: Sequence[Any]) -> None:
        repeated = [token for token, count in Counter(tokens).items() if count > 1]
        if repeated:
            raise ValueError(
                f"layer '{self.name}': the vocabulary has some tokens more than once: "
                f"{', '.join(map(repr, repeated[:10]))}"
            )
        for kind, token, forbidden in (
            ("mask", self.mask_token, self.mask_token is not None),
            ("OOV", self.oov_token, self.invert),
        ):
            if forbidden and token in tokens:
                raise ValueError(
                    f"layer '{self.name}': the {kind} token {token!r} is token "
                    f"{list(tokens).index(token)} of the vocabulary; leave mask and OOV tokens "
                    f"out, or let it begin with {self._special}"
                )
        size = len(self._special) + len(tokens)
        if self.max_tokens is not None and size > self.max_tokens:
            raise ValueError(
                f"layer '{self.name}': max_tokens is {self.max_tokens}, but the vocabulary has "
                f"{size} tokens, special ones included"
            )

    def _place(self, tokens: Sequence[Any], weights: np.ndarray | None) -> None:
        """Makes the tables of a vocabulary that is good."""
        first = len(self._special)
        size = first + len(tokens)
        fixed = self.output_mode == "int" or self.pad_to_max_tokens
        if self._called_with not in (None, size) and not fixed:
            raise RuntimeError(
                f"layer '{self.name}' has given vectors of {self._called_with} elements; the new "
                f"vocabulary would make them {size}: use pad_to_max_tokens"
            )
        self._known = _Vocabulary(list(tokens), weights)
        numbers = np.arange(first, size, dtype=np.int64)
        self._table = self._inverse = None
        if self.invert:
            mask = [self.mask_token] if self._has_mask_index else []
            keys = np.concatenate([np.zeros(len(mask), np.int64), numbers])
            pairs = KeyValueTensorInitializer(keys, self._tensor([*mask, *tokens]))
            self._inverse = StaticHashTable(pairs, self._tensor([self.oov_token]).numpy()[0])
        else:
            pairs = KeyValueTensorInitializer(self._tensor(tokens), numbers)
            self._table = StaticHashTable(pairs, -1)

    # --- adapt().

    def _check_adaptable(self) -> None:
        if self._is_static:
            raise ValueError(
                f"layer '{self.name}' was given its vocabulary; adapt() is for one without"
            )

    def reset_state(self) -> None:
        self._found = _Found()

    def _see(self, batch: Any) -> None:
        keys = each_element(self._keys, batch)
        self._found.add(keys, self.output_mode == "tf_idf")

    def finalize_state(self) -> None:
        """Makes a vocabulary of the tokens that were seen: the most frequent first, `max_tokens`
        with the special ones. In the mode tf_idf the weight of each is
        log(1 + rows / (1 + rows that have it))."""
        left_out = {self._bytes(self.oov_token)}
        if self.mask_token is not None:
            left_out.add(self._bytes(self.mask_token))
        counted = [(n, token) for token, n in self._found.counts.items() if token not in left_out]
        order = [token for _, token in sorted(counted, reverse=True)]
        if self.max_tokens is not None:
            order = order[: max(self.max_tokens - len(self._special), 0)]
        weights = None
        if self.output_mode == "tf_idf":
            having = np.array([self._found.documents[token] for token in order], np.float64)
            weights = np.log(1 + self._found.rows / (1 + having)).astype(np.float32)
            weights = self._with_others(weights)
        self._place([self._plain(token) for token in order], weights)

    # --- Calls.

    def _keys(self, values: Any) -> Any:
        """Values in the dtype of tokens."""
        wants_text = self._tokens_dtype is dtypes.string
        if is_string(values) is not wants_text:
            raise TypeError(
                f"layer '{self.name}': {type(self).__name__} is of "
                f"{'strings' if wants_text else 'integers'}; inputs are {values.dtype}"
            )
        return values if wants_text else math.cast(values, self._tokens_dtype)

    def call(self, inputs: Any) -> Any:
        if self._known is None and not self._may_plan():
            raise errors.FailedPreconditionError(
                f"layer '{self.name}' has no vocabulary; give the argument `vocabulary`, or call "
                "adapt() or set_vocabulary() before it is used"
            )
        if self.invert:
            return each_element(self._tokens_of, inputs)
        if self._known is not None and not self._is_planned:
            self._called_with = self.vocabulary_size()
        ids = each_element(self._numbers, inputs)
        mode, depth = self.output_mode, self.vocabulary_size()
        if self.pad_to_max_tokens and self.max_tokens is not None:
            depth = self.max_tokens
        if mode != "tf_idf":
            return encoded(self.name, ids, mode, depth, "int64")
        counts = encoded(self.name, ids, mode, depth, self.dtype)
        if self._known is None or self._known.weights is None:
            return math.multiply(counts, array.zeros([depth], self.dtype))
        idf = convert(self._known.weights.astype(self.dtype))
        rest = array.zeros([depth - idf.shape[0]], self.dtype)
        return math.multiply(counts, array.concat([idf, rest], 0))

    def _may_plan(self) -> bool:
        """Whether the shape of outputs is known before the vocabulary is."""
        return self._is_planned and (self.output_mode == "int" or self.pad_to_max_tokens)

    def _numbers(self, values: Any) -> Any:
        keys = self._keys(values)
        first = int(self._has_mask_index)
        if self._table is None:
            return math.cast(math.not_equal(keys, keys), "int64")
        known = self._table.lookup(keys)
        other = math.less(known, 0)
        masked = None
        if self.mask_token is not None:
            mask = convert(self._tensor([self.mask_token]))[0]
            masked = math.equal(keys, mask)
        if self.num_oov_indices == 0:
            known = self._checked(known, keys, other, masked)
        elif self.num_oov_indices == 1:
            known = math.where(other, math.add(array.zeros_like(known), first), known)
        else:
            known = math.where(other, math.add(self._bucket(keys), first), known)
        if masked is not None:
            # Of no number in the other modes.
            nowhere = math.subtract(array.zeros_like(known), 0 if self._has_mask_index else 1)
            known = math.where(masked, nowhere, known)
        return known

    def _bucket(self, keys: Any) -> Any:
        if is_string(keys) or self._by_hash:
            return bucket(strings.as_string(keys), self.num_oov_indices, self._key)
        return math.cast(math.floormod(keys, self.num_oov_indices), "int64")

    def _checked(self, known: Any, keys: Any, other: Any, masked: Any) -> Any:
        """The numbers; InvalidArgumentError when the step runs for what has none."""
        if masked is not None:
            other = math.logical_and(other, math.logical_not(masked))
        flat, missing = array.reshape(keys, [-1]), array.reshape(other, [-1])
        message = (
            f"layer '{self.name}': with num_oov_indices=0 all inputs must be in the vocabulary; "
            "these are not"
        )
        found = boolean_mask(flat, missing)
        return checked(known, math.logical_not(math.reduce_any(missing)), message, found)

    def _tokens_of(self, numbers: Any) -> Any:
        if is_string(numbers):
            raise TypeError(
                f"layer '{self.name}': with invert=True, {type(self).__name__} is of integers; "
                "inputs are strings"
            )
        numbers = math.cast(numbers, "int64")
        if self._inverse is None:
            return array.fill(array.shape(numbers), convert(self._tensor([self.oov_token]))[0])
        return self._inverse.lookup(numbers)

    # --- Files.

    def save_assets(self, dir_path: str) -> None:
        """Writes the vocabulary into a folder: vocabulary.txt, and in the mode tf_idf
        idf_weights.txt."""
        tokens = self.get_vocabulary(include_special_tokens=False)
        with open(os.path.join(dir_path, "vocabulary.txt"), "wb") as file:
            file.write(b"".join(_line(self._bytes(token)) for token in tokens))
        weights = None if self._known is None else self._known.weights
        if weights is not None:
            with open(os.path.join(dir_path, "idf_weights.txt"), "w", encoding="utf-8") as text:
                text.writelines(f"{float(each)!r}\n" for each in weights)

    def load_assets(self, dir_path: str) -> None:
        """The reverse of save_assets()."""
        tokens = self._read(os.path.join(dir_path, "vocabulary.txt"))
        weights = None
        if self.output_mode == "tf_idf":
            with open(os.path.join(dir_path, "idf_weights.txt"), encoding="utf-8") as text:
                weights = np.array([float(line) for line in text], np.float32)
        if tokens:  # Else there was no vocabulary yet.
            self._place(tokens, weights)


def _line(token: Any) -> bytes:
    return (token if isinstance(token, bytes) else str(token).encode()) + b"\n"


def convert_array(values: Any) -> Any:
    """A tensor as an array; lists and arrays as they are."""
    return values.numpy() if hasattr(values, "numpy") else values


class StringLookup(_IndexLookup):
    """Numbers of texts by a vocabulary, and with `invert` texts of numbers.

    Those that are not in the vocabulary have one of `num_oov_indices` numbers by their hash, as in
    TensorFlow (with `salt` another one); with 0 they are an error. max_tokens: the most tokens that
    adapt() keeps, special ones included. mask_token: the text that stands for none: 0, or nothing.
    output_mode: "int"; "one_hot" [..., size]; "multi_hot", "count" and "tf_idf" [..., n] ->
    [..., size], the latter times `idf_weights`. pad_to_max_tokens: size is max_tokens, however many
    tokens there are.
    """

    def __init__(
        self, max_tokens: int | None = None, num_oov_indices: int = 1, mask_token: Any = None,
        oov_token: Any = "[UNK]", vocabulary: Any = None, idf_weights: Any = None,
        invert: bool = False, output_mode: str = "int", pad_to_max_tokens: bool = False,
        sparse: bool = False, encoding: str = "utf-8", name: str | None = None, salt: Any = None,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        self._encoding = self.encoding = encoding
        super().__init__(
            "string", max_tokens, num_oov_indices, mask_token, oov_token, vocabulary, idf_weights,
            invert, output_mode, pad_to_max_tokens, sparse, "farmhash", salt, name=name, **kwargs,
        )  # fmt: skip


class IntegerLookup(_IndexLookup):
    """Numbers of integers by a vocabulary, and with `invert` the reverse; see StringLookup. What is
    not in the vocabulary has the number that is the rest of its division by `num_oov_indices`, or
    with the oov_method "farmhash" its hash (with `salt` another one)."""

    def __init__(
        self, max_tokens: int | None = None, num_oov_indices: int = 1, mask_token: Any = None,
        oov_token: Any = -1, vocabulary: Any = None, vocabulary_dtype: Any = "int64",
        idf_weights: Any = None, invert: bool = False, output_mode: str = "int",
        sparse: bool = False, pad_to_max_tokens: bool = False, oov_method: str = "floormod",
        salt: Any = None, name: str | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        if dtypes.name_of(dtypes.as_dtype(vocabulary_dtype)) not in ("int32", "int64"):
            raise ValueError(
                f"IntegerLookup: vocabulary_dtype is {vocabulary_dtype}; it must be int32 or int64"
            )
        if oov_method not in ("floormod", "farmhash"):
            raise ValueError(
                f"IntegerLookup: oov_method is {oov_method!r}; it must be floormod or farmhash"
            )
        if salt is not None and oov_method != "farmhash":
            raise ValueError(
                f"IntegerLookup: a salt is for oov_method='farmhash', not '{oov_method}'"
            )
        super().__init__(
            vocabulary_dtype, max_tokens, num_oov_indices, mask_token, oov_token, vocabulary,
            idf_weights, invert, output_mode, pad_to_max_tokens, sparse, oov_method, salt,
            name=name, **kwargs,
        )  # fmt: skip
