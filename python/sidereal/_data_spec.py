"""Which data to train on and how to read it, for data that is in files. NumPy arrays need no spec:
they go to Model.fit() as a dict.

Arrays in .npy files are columns under their names (format "arrays"): numbers, and strings (NumPy's
"S" and "U"), which are hashed where they are categorical.

File names may be patterns ("day_*.tsv.gz"); plain and gzip files are told apart by content.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Listed
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from . import _native
from ._native import Schema
from .errors import InvalidArgumentError

__all__ = [
    "Bucketized", "DataSpec", "LabelRule", "MultiHot", "Negatives", "NumericTransform", "Schema",
    "Sequence", "SyntheticSpec", "TableFormat", "Vocabulary", "criteo", "csv", "libsvm",
    "synthetic", "table_formats",
]

# The Python that runs feeders (_feeder.py), also those of processes that are started from here.
os.environ.setdefault("SIDEREAL_PYTHON", sys.executable)
_native.take_environment()

#: Rows held in memory to shuffle files.
SHUFFLE_ROWS = 100_000


class HeldFiles(list[str]):
    """Files that are there as long as this list: what `held` is keeps them."""

    def __init__(self, files: Iterable[str] = (), held: Any = None) -> None:
        super().__init__(files)
        self.held = held


@dataclass(frozen=True)
class SyntheticSpec:
    """Which rows of the synthetic stream are meant. Two ranges that do not meet share no row."""

    rows: int = 1_000_000
    first_row: int = 0
    seed: int = 1
    vocabulary_max: int = 1_000_000


@dataclass(frozen=True)
class NumericTransform:
    """How a column of numbers becomes what a model sees: the sign of x times log(1 + |x|) for kinds
    with log1p, or the number of `boundaries` not above x for quantile; then (x - offset) * scale.
    An empty cell counts as `missing`."""

    kind: str = "none"
    offset: float = 0.0
    scale: float = 1.0
    missing: float = 0.0
    boundaries: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class LabelRule:
    """Which labels are 1: those of which `label op value` holds. No op: they are numbers."""

    op: str = ""
    value: str = ""


@dataclass(frozen=True)
class MultiHot:
    """A categorical column with up to `max_length` values in a cell."""

    column: str
    separator: str = "|"
    max_length: int = 1


@dataclass(frozen=True)
class Bucketized:
    """A column of numbers that becomes a category, by boundaries or in `buckets` of as many rows
    each."""

    column: str
    buckets: int = 0
    boundaries: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Vocabulary:
    """A column of texts whose ids are by a vocabulary: first `num_oov_indices` of texts that are
    not in it, then those of its tokens. max_tokens: the most ids, 0: no limit. No tokens: those of
    a sample of the rows, the most frequent first."""

    column: str
    max_tokens: int = 0
    num_oov_indices: int = 1
    tokens: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Sequence:
    """A column with up to `max_length` values in a cell, whose order counts: an input of its own,
    int64 [batch, max_length], -1 where there are fewer values. padding: "post" or "pre", where the
    -1 are; truncating: which values of a longer cell are left out. like: the categorical column
    whose ids its values have; "": ids of its own."""

    column: str
    separator: str = "|"
    max_length: int = 1
    padding: str = "post"
    truncating: str = "post"
    like: str = ""


@dataclass(frozen=True)
class Negatives:
    """Rows that did not happen: `count` copies behind each training row with a label above 0, with
    another value of `column` and the label 0. sampler: "popularity", values of rows shortly before;
    "uniform", any tokens of its vocabulary. No column: none."""

    column: str = ""
    count: int = 0
    sampler: str = "popularity"


@dataclass(frozen=True)
class TableFormat:
    """A way of storing a table: what names of such files end with, what its columns are, and which
    Python package reads it ("": none is needed)."""

    name: str
    endings: list[str]
    what: str
    needs: str


@dataclass(frozen=True)
class DataSpec:
    """Made by csv(), criteo(), libsvm() and synthetic(), which say what the fields mean."""

    format: str
    files: list[str] = field(default_factory=list)
    arrays: list[tuple[str, str]] = field(default_factory=list)
    label: str = "label"
    numeric: list[str] = field(default_factory=list)
    categorical: list[str] = field(default_factory=list)
    label_rule: LabelRule = field(default_factory=LabelRule)
    weight: str = ""
    targets: list[str] = field(default_factory=list)
    group: str = ""
    class_weights: list[tuple[str, str]] = field(default_factory=list)
    numeric_transform: str = "none"
    column_transforms: list[tuple[str, str]] = field(default_factory=list)
    transforms: list[NumericTransform] = field(default_factory=list)
    defaults: list[tuple[str, str]] = field(default_factory=list)
    multi_hot: list[MultiHot] = field(default_factory=list)
    bucketized: list[Bucketized] = field(default_factory=list)
    crosses: list[list[str]] = field(default_factory=list)
    vocabularies: list[Vocabulary] = field(default_factory=list)
    sequences: list[Sequence] = field(default_factory=list)
    negatives: Negatives = field(default_factory=Negatives)
    hash: str = "xxh3"
    delimiter: str = ","
    hash_buckets: int = 100_000
    id_space: int = 0
    binary_label: bool = True
    bad_rows: str = "fail"
    shuffle_rows: int = SHUFFLE_ROWS
    seed: int = 0
    synthetic: SyntheticSpec = field(default_factory=SyntheticSpec)

    def inspect(self) -> Schema:
        """Checks that files and columns exist, and says what the rows look like."""
        return _native.inspect(self.to_json())

    def to_json(self) -> str:
        """As the core reads it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> DataSpec:
        """What to_json() gave."""
        return cls.of_dict(json.loads(text))

    @classmethod
    def of_dict(cls, said: Mapping[str, Any]) -> DataSpec:
        """What dataclasses.asdict() gave."""
        made = dict(said)
        made["synthetic"] = SyntheticSpec(**said.get("synthetic", {}))
        made["negatives"] = Negatives(**said.get("negatives", {}))
        made["label_rule"] = LabelRule(**said.get("label_rule", {}))
        kinds: dict[str, Any] = {
            "transforms": NumericTransform, "multi_hot": MultiHot, "bucketized": Bucketized,
            "vocabularies": Vocabulary, "sequences": Sequence,
        }  # fmt: skip
        for key, kind in kinds.items():
            made[key] = [kind(**one) for one in said.get(key, [])]
        for key in ("column_transforms", "defaults", "class_weights"):
            made[key] = [(name, value) for name, value in said.get(key, [])]
        return cls(**made)

    @property
    def needs_statistics(self) -> bool:
        """Whether something is to be known of columns before data is read."""
        if self.format != "csv":
            return False
        some = self.numeric_transform != "none" or bool(self.column_transforms)
        return (some and bool(self.numeric) and not self.transforms) or any(
            not one.boundaries for one in self.bucketized
        ) or any(not one.tokens for one in self.vocabularies)

    def with_statistics(self, like: DataSpec | None = None) -> DataSpec:
        """The same with what is to be known of columns: as `like` has it, which a model was
        trained on, or of a sample of the rows of these files."""
        if not self.needs_statistics:
            return self
        if like is not None and like._learned() == self._learned():
            return replace(
                self, transforms=like.transforms, bucketized=like.bucketized,
                vocabularies=like.vocabularies,
            )  # fmt: skip
        known = DataSpec.from_json(_native.with_statistics(self.to_json()))
        return replace(known, files=self.files)

    def _learned(self) -> tuple[Any, ...]:
        """Of what something is learned."""
        return (
            self.numeric, [one.column for one in self.bucketized],
            [replace(one, tokens=[]) for one in self.vocabularies],
        )  # fmt: skip

    def fields(self) -> list[tuple[str, int, int]]:
        """(name, first id, how many) of each field that has ids of its own, in order: categorical
        columns, bucketized ones, crosses ("a*b") and sequences. What is to be known of columns
        must be."""
        numbered = {one.column: one.num_oov_indices + len(one.tokens) for one in self.vocabularies}
        sizes = [(name, numbered.get(name, self.hash_buckets)) for name in self.categorical]
        others = [*(one.column for one in self.bucketized), *map("*".join, self.crosses)]
        sizes += [(name, self.hash_buckets) for name in others]
        sizes += [
            (one.column, numbered.get(one.column, self.hash_buckets))
            for one in self.sequences
            if not one.like
        ]
        found, first = [], 0
        seen = set()
        for name, size in sizes:
            if name in seen:
                raise InvalidArgumentError(
                    f"the field '{name}' is named twice, as a column or a cross; name each once"
                )
            seen.add(name)
            found.append((name, first, size))
            first += size
        return found

    def in_order(self) -> DataSpec:
        """The same rows, not shuffled."""
        return replace(self, shuffle_rows=0)


Path = str | os.PathLike[str]


def _text(format_: str, files: Listed[Path], **options: Any) -> DataSpec:
    if not files:
        raise ValueError(f"{format_}: name at least one file")
    patterns = [os.fspath(file) for file in files]
    return DataSpec(format=format_, files=_native.expand_globs(patterns), **options)


def _vocabularies(given: Any) -> list[Vocabulary]:
    """As csv() takes them."""
    if given is None:
        return []
    if not isinstance(given, Mapping):
        given = dict.fromkeys(given, "auto")
    found = []
    for name, how in given.items():
        if isinstance(how, Vocabulary):
            found.append(replace(how, column=name))
        elif isinstance(how, (list, tuple)):
            found.append(Vocabulary(name, tokens=list(how)))
        else:
            found.append(_vocabulary(f"{name}={os.fspath(how)}"))
    return found


def _vocabulary(option: str) -> Vocabulary:
    """What `--vocabulary` says."""
    return Vocabulary(*_native.vocabulary_option(option))


def _sequences(given: Mapping[str, Any]) -> list[Sequence]:
    return [
        replace(how, column=name) if isinstance(how, Sequence) else Sequence(name, *how)
        for name, how in given.items()
    ]


def csv(
    *files: Path,
    format: str = "csv",
    label: str = "label",
    positive: str | None = None,
    weight: str | None = None,
    numeric: Listed[str] = (),
    numeric_transform: str = "auto",
    categorical: Listed[str] = (),
    default: Mapping[str, Any] | None = None,
    multi_hot: Mapping[str, tuple[str, int]] | None = None,
    buckets: Mapping[str, int | Listed[float]] | None = None,
    crosses: Listed[Listed[str]] = (),
    vocabularies: Mapping[str, Any] | Listed[str] | None = None,
    sequences: Mapping[str, Any] | None = None,
    hash: str = "xxh3",
    targets: Listed[str] = (),
    group: str | None = None,
    negatives: Negatives | None = None,
    class_weight: Mapping[Any, float] | None = None,
    features: Path | None = None,
    delimiter: str = ",",
    hash_buckets: int = 100_000,
    id_space: int = 0,
    binary_label: bool = True,
    bad_rows: str = "fail",
    shuffle_rows: int = SHUFFLE_ROWS,
) -> DataSpec:
    """Tables: text with a header line, or what the ends of file names say (table_formats()), here
    or elsewhere ("s3://..."). `numeric` columns make up the input "dense", `categorical` ones (none
    named: all others) the input "ids".

    format: that of files whose names do not say it.
    label: the column of the label, 0 or 1, or what makes it 1: "rating>=4". positive: the text of
    the label that is 1. weight: a column that says how much a row counts.
    numeric_transform: what a model sees of numbers: "standard" (mean 0, deviation 1), "log1p",
    "log1p_standard", "minmax", "quantile", "none", or "auto": log1p_standard for columns that are
    not negative and have a few numbers far above the others, else standard. A sample of the files
    that a model is first trained on says by which numbers; the model keeps them for all others.
    default: what an empty cell of a column counts as; without it the mean, or the empty text.
    multi_hot: categorical columns with several values in a cell: (separator, how many count).
    buckets: numbers as categories, by so many buckets of as many rows each, or by boundaries; the
    columns may be numeric as well. crosses: categorical or bucketized columns that together are a
    category too.
    vocabularies: categorical columns (and sequences) whose ids are by a vocabulary: their names,
    for vocabularies of the texts of a sample of the files, the most frequent first; or by name
    "auto", a list of tokens, a file with one a line, or a Vocabulary.
    sequences: columns of several values in an order, by name (separator, max_length) or a Sequence;
    each is an input of its name.
    hash: "xxh3", or "farmhash", by which ids are those of Keras' Hashing and HashedCrossing.
    targets: columns of more labels, inputs of their names. group: the column that says which rows
    are of one query, the input "group". class_weight: what the rows of a label count.
    negatives: rows that did not happen, in training data alone.
    features: a file that says this of each column, in the place of the options from `numeric` on,
    which `sidereal inspect FILE` proposes.
    hash_buckets: ids per categorical column; the text of a field is hashed into them.
    id_space: if positive, fields are integers in one space [0, id_space) and nothing is hashed.
    binary_label: whether a label other than 0 and 1 is a bad row, where a model of probabilities is
    not trained, to which no others are given.
    bad_rows: "fail" or "skip" (counted in the results).
    shuffle_rows: rows held in memory for shuffling.
    """
    bucketized = [
        Bucketized(name, how) if isinstance(how, int) else Bucketized(name, 0, list(how))
        for name, how in (buckets or {}).items()
    ]
    many = [MultiHot(name, *how) for name, how in (multi_hot or {}).items()]
    if not files:
        raise ValueError("csv: name at least one file")
    names, delimiter = _native.table_files([os.fspath(file) for file in files], format, delimiter)
    spec = DataSpec(
        format="csv", files=names, weight=weight or "", numeric=list(numeric),
        numeric_transform=numeric_transform, categorical=list(categorical),
        defaults=[(name, str(value)) for name, value in (default or {}).items()],
        multi_hot=many, bucketized=bucketized, crosses=[list(cross) for cross in crosses],
        vocabularies=_vocabularies(vocabularies), sequences=_sequences(sequences or {}), hash=hash,
        targets=list(targets), group=group or "", negatives=negatives or Negatives(),
        class_weights=[(str(label), str(w)) for label, w in (class_weight or {}).items()],
        delimiter=delimiter, hash_buckets=hash_buckets, id_space=id_space,
        binary_label=binary_label, bad_rows=bad_rows, shuffle_rows=shuffle_rows,
    )
    spec = DataSpec.from_json(_native.with_label(spec.to_json(), label))
    if positive is not None:
        if spec.label_rule.op:
            raise ValueError(f"label {label!r} says which labels are 1; leave positive out")
        spec = replace(spec, label_rule=LabelRule("=", positive))
    if features is not None:
        spec = DataSpec.from_json(_native.with_features(spec.to_json(), os.fspath(features)))
    return spec


def table_formats() -> list[TableFormat]:
    """The ways of storing a table that csv(), table(), `sidereal train` and others read."""
    return [TableFormat(name, ends.split(), *rest) for name, ends, *rest in _native.table_formats()]


def without_files(features: Path, **options: Any) -> DataSpec:
    """What a file of features says, of no files yet."""
    spec = DataSpec(format="csv", numeric_transform="auto", **options)
    return DataSpec.from_json(_native.with_features(spec.to_json(), os.fspath(features)))


def criteo(
    *files: Path,
    hash_buckets: int = 100_000,
    bad_rows: str = "fail",
    shuffle_rows: int = SHUFFLE_ROWS,
) -> DataSpec:
    """Criteo's click logs: label, 13 integers ("dense"), 26 categories ("ids"), tabs, no header."""
    return _text(
        "criteo", files, hash_buckets=hash_buckets, bad_rows=bad_rows, shuffle_rows=shuffle_rows
    )


def libsvm(
    *files: Path, id_space: int, bad_rows: str = "fail", shuffle_rows: int = SHUFFLE_ROWS
) -> DataSpec:
    """"label index:value ..." with indices in [0, id_space): the inputs "ids" and "weights"."""
    return _text(
        "libsvm", files, id_space=id_space, bad_rows=bad_rows, shuffle_rows=shuffle_rows
    )


def synthetic(
    rows: int = 1_000_000, first_row: int = 0, seed: int = 1, vocabulary_max: int = 1_000_000
) -> DataSpec:
    """The built-in stream, shaped like Criteo's logs, with a planted truth: evaluations also say
    the best AUC any model can reach. Rows depend on `seed` and their number only, so take another
    `first_row`, not another seed, for rows that were never trained on."""
    return DataSpec(
        format="synthetic",
        synthetic=SyntheticSpec(
            rows=rows, first_row=first_row, seed=seed, vocabulary_max=vocabulary_max
        ),
    )
