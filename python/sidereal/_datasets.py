"""Pipelines of elements: sidereal.data.Dataset, with TensorFlow's names (tf.data).

A dataset is a definition, which reads nothing until it is iterated. Its functions are traced once
and run as programs, on threads that need no lock of Python.
"""

from __future__ import annotations

import glob
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from . import dtypes, errors, nest
from ._data_spec import DataSpec
from ._dataset_arguments import (
    Options,
    attrs_of_specs,
    count_of,
    extents_of,
    leaves_like,
    shapes_like,
    signature_of,
    thread_count,
    to_arguments,
    zeros_of,
)
from ._dispatch import state, to_tensor
from ._elements import DatasetSpec, accepted, as_value, flatten, map_leaves, spec_of
from ._iterators import (
    CallIterator,
    DatasetIterator,
    GraphIterator,
    read_threads,
    refuse_loop,
    while_elements,
)  # fmt: skip
from ._native import DatasetDefinition, Output, Tensor
from ._pipelines import Generator, Traced, VariableUse, open_values, parameter
from .function import TensorSpec, function
from .ops import random as _random
from .ops.array import stack
from .ops.ragged import RaggedTensor

#: As many as seem good: of threads, of elements read ahead.
AUTOTUNE = -1
#: What cardinality() says of datasets without end, and of those that have to be read to know.
INFINITE_CARDINALITY = -1
UNKNOWN_CARDINALITY = -2

def make_one_shot_iterator(dataset: Dataset, shared_name: str | None = None) -> Any:
    """An iterator of a dataset in the graph that is being built, from its beginning to its end
    (tf.compat.v1.data.make_one_shot_iterator); at once, iter(dataset)."""
    return iter(dataset) if state.graph is None else GraphIterator(dataset, shared_name)


class Dataset:
    """A sequence of elements: tensors, or tuples and dicts of them (tf.data.Dataset).

        ds = sidereal.data.Dataset.from_tensor_slices((x, y)).shuffle(10_000).batch(128)
        for x, y in ds.prefetch(sidereal.data.AUTOTUNE):
            train_step(x, y)

    Methods give new datasets. Functions are traced as by sidereal.function; use py_function() for
    Python code that must run for each element. Variables that functions use are read when an
    iteration begins.
    """

    def __init__(
        self,
        definition: DatasetDefinition,
        structure: Any,
        inputs: Sequence[Dataset] = (),
        kept: Sequence[object] = (),
    ) -> None:
        self._definition = definition
        leaves = [
            DatasetSpec(TensorSpec(shape, dtype)) if is_list else TensorSpec(shape, dtype)
            for dtype, shape, is_list in definition.outputs
        ]
        self._spec = nest.pack(map_leaves(lambda _: 0, structure), leaves)
        self._is_one = isinstance(self._spec, (TensorSpec, DatasetSpec))
        self._options: Options = inputs[0]._options if inputs else Options()
        #: What it leaves open.
        self._values: Sequence[Output] = next(
            (one._values for one in inputs if one._values), open_values()
        )
        #: Python functions that the definition refers to.
        self._kept: list[object] = [*kept, *(thing for one in inputs for thing in one._kept)]

    # What it is.

    @property
    def element_spec(self) -> Any:
        """TensorSpecs, nested like the elements; DatasetSpecs where these are windows."""
        return self._spec

    def cardinality(self) -> Tensor:
        """The number of elements, an int64; INFINITE_CARDINALITY or UNKNOWN_CARDINALITY."""
        return to_tensor(self._definition.cardinality(), dtypes.int64)

    def __len__(self) -> int:
        count = self._definition.cardinality()
        if count >= 0:
            return count
        what = "is infinite" if count == INFINITE_CARDINALITY else "is not known"
        raise TypeError(f"The dataset has no length: its number of elements {what}")

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<Dataset element_spec={self._spec!r}>"

    def serialize(self) -> str:
        """The definition as text, for another process. FailedPreconditionError, with the reason,
        where it has Python code (from_generator, py_function)."""
        return self._now().to_text()

    @staticmethod
    def deserialize(text: str, element_spec: Any = None) -> Dataset:
        """The reverse of serialize(). Elements are nested like `element_spec`; without it they are
        tensors or tuples."""
        definition = DatasetDefinition.from_text(text)
        count = len(definition.outputs)
        structure = element_spec
        if structure is None:
            structure = 0 if count == 1 else (0,) * count
        if len(flatten(structure)) != count:
            raise ValueError(f"elements have {count} components; {element_spec!r} has others")
        return Dataset(definition, structure)

    def _now(self) -> DatasetDefinition:
        """The definition with the values that variables have now."""
        uses = [thing for thing in self._kept if isinstance(thing, VariableUse)]
        if not uses:
            return self._definition
        return self._definition.with_values({use.number: as_value(use.variable) for use in uses})

    def _pack(self, components: list[Any]) -> Any:
        if self._is_one and type(components[0]) is not list:
            return components[0]
        leaves = [
            _of_list(leaf, spec.element_spec) if isinstance(spec, DatasetSpec) else leaf
            for leaf, spec in zip(components, nest.flatten(self._spec))
        ]
        return nest.pack(self._spec, leaves)

    def __iter__(self) -> Any:
        """A DatasetIterator; in a function a CallIterator."""
        if state.graph is None:
            return DatasetIterator(self)
        refuse_loop()
        return CallIterator(self)

    def _loop_iterator(self) -> Any:
        """What a loop of a graph takes its elements from."""
        return CallIterator(self)

    def _text_in_graph(self) -> str:
        """serialize() for a node that reads the dataset each time a function is called."""
        for use in self._kept:
            if isinstance(use, VariableUse):
                raise errors.UnimplementedError(
                    f"the dataset reads variable '{use.variable.name}', and is iterated in a "
                    "function that was traced once: make the iterator outside, and call next() of "
                    "it in the function"
                )
        return self.serialize()

    def as_numpy_iterator(self) -> Iterator[Any]:
        """The elements as NumPy arrays and scalars; bytes for strings."""
        for element in self:
            yield map_leaves(_as_numpy, element)

    def reduce(self, initial_state: Any, reduce_func: Callable[[Any, Any], Any]) -> Any:
        """reduce_func(state, element) of the elements one after another, from `initial_state` on;
        the last state. `reduce_func` is traced. In a function it is a loop of the graph."""
        current = map_leaves(as_value, initial_state)
        if state.graph is not None:
            return while_elements(CallIterator(self), current, reduce_func)
        step = function(reduce_func)
        before = map_leaves(spec_of, current)
        for element in self:
            made = map_leaves(as_value, step(current, element))
            for old, new in zip(flatten(before), flatten(made)):
                if old.dtype != new.dtype:
                    raise TypeError(
                        f"reduce: the state has dtype {dtypes.name_of(old.dtype)}; reduce_func "
                        f"returns {dtypes.name_of(new.dtype)}"
                    )
            current = made
        return current

    # Sources.

    @staticmethod
    def from_tensors(tensors: Any, name: str | None = None) -> Dataset:
        """One element: `tensors`."""
        return _source("Tensors", tensors)

    @staticmethod
    def from_tensor_slices(tensors: Any, name: str | None = None) -> Dataset:
        """An element for each row of `tensors`, which have as many rows each."""
        return _source("TensorSlices", tensors)

    @staticmethod
    def range(*args: Any, output_type: Any = dtypes.int64, name: str | None = None) -> Dataset:
        """Numbers as of Python's range(): (stop), (start, stop) or (start, stop, step)."""
        if not 1 <= len(args) <= 3:
            raise ValueError(f"range() takes one to three numbers; {len(args)} are given")
        start, stop, step = (0, *args, 1) if len(args) == 1 else (*args, 1)[:3]
        numbers = [count_of(value) for value in (start, stop, step)]
        attrs = {"dtype": dtypes.as_dtype(output_type)}
        return Dataset(DatasetDefinition.make("Range", [], numbers, attrs), 0)

    @staticmethod
    def random(seed: int | None = None, name: str | None = None) -> Dataset:
        """Random int64 numbers from 0 to 2^32 - 1, without end."""
        return Dataset.range(np.iinfo(np.int64).max).map(
            lambda _: _random.uniform((), 0, 1 << 32, dtypes.int64, seed)
        )

    @staticmethod
    def from_generator(
        generator: Callable[..., Any],
        output_types: Any = None,
        output_shapes: Any = None,
        args: Any = None,
        output_signature: Any = None,
        name: str | None = None,
    ) -> Dataset:
        """The elements that generator(*args), Python code, yields; it begins anew in every
        iteration. `output_signature`: TensorSpecs nested like them. In this process only."""
        if not callable(generator):
            raise TypeError("`generator` must be a callable that gives an iterable")
        if output_signature is None:
            if output_types is None:
                raise TypeError("from_generator() needs output_signature, or output_types")
            output_signature = signature_of(output_types, output_shapes)
        specs = flatten(output_signature)
        if not all(isinstance(spec, TensorSpec) for spec in specs):
            raise TypeError(f"output_signature has more than TensorSpecs: {output_signature!r}")
        given = tuple(to_arguments(args))

        def begin() -> Iterator[list[Tensor]]:
            for element in generator(*given):
                leaves = leaves_like(output_signature, element)
                yield [accepted(spec, leaf) for spec, leaf in zip(specs, leaves)]

        kept = Generator(begin)
        attrs = {"number": kept.number, **attrs_of_specs(specs)}
        definition = DatasetDefinition.make("Generator", [], [], attrs)
        return Dataset(definition, output_signature, kept=[kept])

    @staticmethod
    def from_spec(
        spec: DataSpec,
        batch_size: int = 1024,
        drop_remainder: bool = False,
        num_shards: int = 1,
        index: int = 0,
    ) -> Dataset:
        """Batches of what sidereal.data.csv(), criteo(), libsvm() or synthetic() describes: dicts
        with "label" (float32), "dense" (float32), "ids" (int64), for libsvm "weights", and of
        a column of weights "sample_weight", and the columns of sequences and of more labels by
        their names. Rows are read and shuffled as fit() does. With
        several shards, those of shard `index`. Numbers are scaled by a sample of the rows, unless
        the spec knows by what: DataSpec.with_statistics()."""
        spec = spec.with_statistics()
        schema = spec.inspect()
        if spec.format == "arrays":
            raise ValueError("arrays are read with from_tensor_slices()")
        specs = {}
        if schema.has_label:
            specs["label"] = TensorSpec((None,), dtypes.float32)
        if schema.dense_width:
            specs["dense"] = TensorSpec((None, schema.dense_width), dtypes.float32)
        fields = schema.fields or None
        if fields or schema.weighted:
            specs["ids"] = TensorSpec((None, fields), dtypes.int64)
        if schema.weighted:
            specs["weights"] = TensorSpec((None, fields), dtypes.float32)
        if schema.has_sample_weight:
            specs["sample_weight"] = TensorSpec((None,), dtypes.float32)
        for name, length in schema.sequences:
            specs[name] = TensorSpec((None, length), dtypes.int64)
        for name in schema.targets:
            specs[name] = TensorSpec((None,), dtypes.float32)
        if schema.has_group:
            specs["group"] = TensorSpec((None,), dtypes.int64)
        attrs = {
            "spec": spec.to_json(), "batch_size": batch_size, "drop_remainder": drop_remainder,
            "num_shards": num_shards, "index": index, "columns": sorted(specs),
            **attrs_of_specs(nest.flatten(specs)),
        }  # fmt: skip
        return Dataset(DatasetDefinition.make("Rows", [], [], attrs), specs)

    @staticmethod
    def list_files(
        file_pattern: Any, shuffle: bool | None = None, seed: int | None = None,
        name: str | None = None,
    ) -> Dataset:  # fmt: skip
        """The names of the files that match the patterns, in another order in each iteration
        unless `shuffle` is False."""
        given = [file_pattern] if isinstance(file_pattern, (str, os.PathLike)) else file_pattern
        patterns = [str(one) for one in given]
        found = sorted({name for one in patterns for name in glob.glob(one)})
        if not found:
            raise errors.InvalidArgumentError(f"No files matched pattern: {', '.join(patterns)}")
        files = Dataset.from_tensor_slices(found)
        return files if shuffle is False else files.shuffle(len(found), seed)

    @staticmethod
    def zip(*args: Any, datasets: Any = None, name: str | None = None) -> Dataset:
        """Elements that have one of each dataset, as many as the shortest has. Datasets are given
        one by one, or nested as the elements are to be."""
        nested = datasets if not args else args[0] if len(args) == 1 else args
        parts = flatten(nested)
        for part in parts:
            if not isinstance(part, Dataset):
                raise TypeError(f"zip() takes datasets; {part!r:.60} is none")
        definition = DatasetDefinition.make("Zip", [part._definition for part in parts], [], {})
        structure = map_leaves(lambda part: part._spec, nested)
        return Dataset(definition, structure, parts)

    # Functions of elements.

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """map_func of each element; a tuple is given as several arguments. With
        `num_parallel_calls` (or AUTOTUNE), on so many threads ahead; the order is kept."""
        traced = self._trace("map", map_func)
        attrs = {"parallel": thread_count(num_parallel_calls)}
        return self._with("Map", traced.parameters, attrs, traced, traced.structure)

    def filter(self, predicate: Callable[..., Any], name: str | None = None) -> Dataset:
        """The elements of which `predicate` says true."""
        traced = self._trace("filter", predicate)
        return self._with("Filter", traced.parameters, {}, traced)

    def take_while(self, predicate: Callable[..., Any], name: str | None = None) -> Dataset:
        """The elements before the first one of which `predicate` says false."""
        traced = self._trace("take_while", predicate)
        return self._with("TakeWhile", traced.parameters, {}, traced)

    def flat_map(self, map_func: Callable[..., Any], name: str | None = None) -> Dataset:
        """The elements of the datasets that `map_func` gives, one dataset after another."""
        return self._interleave("flat_map", map_func, 1, 1, None)

    def interleave(
        self,
        map_func: Callable[..., Any],
        cycle_length: int | None = None,
        block_length: int | None = None,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """As flat_map(), with `cycle_length` datasets read in turn, `block_length` elements of each
        at a time. With `num_parallel_calls`, each is read ahead on a thread of its own."""
        cycle = read_threads() if cycle_length in (None, AUTOTUNE) else cycle_length
        block = 1 if block_length is None else block_length
        return self._interleave("interleave", map_func, cycle, block, num_parallel_calls)

    def _interleave(
        self, name: str, map_func: Callable[..., Any], cycle: Any, block: Any, parallel: Any
    ) -> Dataset:
        traced = self._trace(name, map_func, gives_dataset=True)
        inner = traced.structure
        if not isinstance(inner, Dataset):
            raise TypeError(
                f"{name}: `map_func` returns {type(inner).__name__}; it must return a Dataset"
            )
        count = thread_count(parallel)
        definition = DatasetDefinition.make(
            "Interleave",
            [self._definition],
            [count_of(cycle), count_of(block), *traced.parameters],
            {"parallel": read_threads() if count == AUTOTUNE else count},
            traced.body,
            inner._definition,
        )
        kept = [*traced.kept, *inner._kept]
        return Dataset(definition, inner._spec, [self], kept)

    def enumerate(self, start: Any = 0, name: str | None = None) -> Dataset:
        """Pairs of a number, from `start` on, and an element."""
        return Dataset.zip(Dataset.range(start, np.iinfo(np.int64).max), self)

    def apply(self, transformation_func: Callable[[Dataset], Any]) -> Any:
        """transformation_func(self)."""
        return transformation_func(self)

    # Batches.

    def batch(
        self,
        batch_size: Any,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """`batch_size` elements at a time as one, along a new first dimension. The last one may
        have fewer; with `drop_remainder` it is left out."""
        return self._with("Batch", [count_of(batch_size)], {"drop_remainder": bool(drop_remainder)})

    def padded_batch(
        self,
        batch_size: Any,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Dataset:
        """As batch(), of elements of different extents, which are filled up at their ends with
        `padding_values` (0, or ""): to `padded_shapes`, where an extent of None or -1 means the
        largest one in the batch."""
        specs = nest.flatten(self._spec)
        if padded_shapes is None:
            if any(spec.shape is None for spec in specs):
                raise ValueError("padded_batch() needs padded_shapes for elements of unknown rank")
            shapes = [spec.shape for spec in specs]
        else:
            shapes = [extents_of(shape) for shape in shapes_like(self._spec, padded_shapes)]
        values: list[Any]
        if padding_values is None:
            values = [None] * len(specs)
        elif not isinstance(padding_values, (tuple, Mapping)):
            values = [padding_values] * len(specs)
        else:
            values = flatten(padding_values)
        if len(shapes) != len(specs) or len(values) != len(specs):
            raise ValueError(
                f"padded_batch: {len(shapes)} shapes and {len(values)} values for elements of "
                f"{len(specs)} components"
            )
        parameters = [count_of(batch_size)]
        for spec, shape, value in zip(specs, shapes, values):
            if value is None:
                value = "" if spec.dtype is dtypes.string else 0
            parameters += [parameter(np.array(shape, np.int64)), parameter(value, spec.dtype)]
        return self._with("PaddedBatch", parameters, {"drop_remainder": bool(drop_remainder)})

    def ragged_batch(
        self,
        batch_size: Any,
        drop_remainder: bool = False,
        row_splits_dtype: Any = dtypes.int64,
        name: str | None = None,
    ) -> Dataset:
        """As batch(); components whose first extent is not known, and may differ, become
        RaggedTensors."""
        if dtypes.as_dtype(row_splits_dtype) != dtypes.int64:
            raise errors.UnimplementedError("row_splits are int64")
        parts = [
            RaggedTensor(0, 0) if spec.shape is not None and spec.shape[:1] == (-1,) else 0
            for spec in nest.flatten(self._spec)
        ]
        attrs = {"drop_remainder": bool(drop_remainder)}
        structure = nest.pack(self._spec, parts)
        return self._with("RaggedBatch", [count_of(batch_size)], attrs, structure=structure)

    def unbatch(self, name: str | None = None) -> Dataset:
        """The rows of the elements."""
        return self._with("Unbatch", [])

    def rebatch(self, batch_size: Any, drop_remainder: bool = False, name: Any = None) -> Dataset:
        """Batches of another size."""
        return self.unbatch().batch(batch_size, drop_remainder)

    def window(
        self,
        size: Any,
        shift: Any = None,
        stride: Any = 1,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Dataset:
        """`size` elements at a time as datasets, one for each component, each window beginning
        `shift` (None: `size`) elements after the one before it; of the elements from its beginning
        on, every `stride`-th is taken. flat_map() makes tensors of them again."""
        numbers = [count_of(size), count_of(size if shift is None else shift), count_of(stride)]
        return self._with("Window", numbers, {"drop_remainder": bool(drop_remainder)})

    # Order and number.

    def shuffle(
        self,
        buffer_size: Any,
        seed: int | None = None,
        reshuffle_each_iteration: bool = True,
        name: str | None = None,
    ) -> Dataset:
        """The elements in random order: each is drawn from the next `buffer_size` ones. Every
        iteration has another order, unless `reshuffle_each_iteration` is False. With a seed, here
        or of sidereal.random.set_seed(), the orders are the same in every run of the program."""
        attrs = {
            "seed": _random.seed_of_order(seed),
            "reshuffle_each_iteration": reshuffle_each_iteration is not False,
        }
        if attrs["seed"] is None and reshuffle_each_iteration is False:
            attrs["seed"] = secrets.randbits(62)
        return self._with("Shuffle", [count_of(buffer_size)], attrs)

    def repeat(self, count: Any = None, name: str | None = None) -> Dataset:
        """The elements `count` times; None or -1: without end."""
        return self._with("Repeat", [count_of(-1 if count is None else count)])

    def take(self, count: Any, name: str | None = None) -> Dataset:
        """The first `count` elements; -1: all."""
        return self._with("Take", [count_of(count)])

    def skip(self, count: Any, name: str | None = None) -> Dataset:
        """Without the first `count` elements; -1: without any."""
        return self._with("Skip", [count_of(count)])

    def shard(self, num_shards: Any, index: Any, name: str | None = None) -> Dataset:
        """Every `num_shards`-th element, from number `index` on."""
        if isinstance(num_shards, int) and isinstance(index, int):
            if num_shards < 1:
                raise errors.InvalidArgumentError(f"num_shards is {num_shards}; it must be >= 1")
            if not 0 <= index < num_shards:
                raise errors.InvalidArgumentError(
                    f"index is {index}; it must be from 0 to num_shards - 1 = {num_shards - 1}"
                )
        return self._with("Shard", [count_of(num_shards), count_of(index)])

    def concatenate(self, dataset: Dataset, name: str | None = None) -> Dataset:
        """The elements of this dataset, then those of `dataset`."""
        if map_leaves(lambda _: 0, self._spec) != map_leaves(lambda _: 0, dataset._spec):
            raise TypeError(
                f"elements are nested in two ways: {self._spec!r} and {dataset._spec!r}"
            )
        definitions = [self._definition, dataset._definition]
        definition = DatasetDefinition.make("Concatenate", definitions, [], {})
        return Dataset(definition, self._spec, [self, dataset])

    # When elements are made.

    def prefetch(self, buffer_size: Any, name: str | None = None) -> Dataset:
        """Makes up to `buffer_size` (or AUTOTUNE) elements ahead, on a thread of its own."""
        size = AUTOTUNE if buffer_size is None else buffer_size
        return self._with("Prefetch", [count_of(size)])

    def cache(self, filename: Any = "", name: str | None = None) -> Dataset:
        """Keeps the elements of the first whole iteration for the later ones: in memory, or in a
        file of that name, which other processes read too; on servers it is theirs. While one
        iterator writes the file, others raise AlreadyExistsError. DataLossError for a file that is
        damaged."""
        name_of_file = os.fspath(filename) if isinstance(filename, os.PathLike) else filename
        if isinstance(name_of_file, (str, bytes)) and not name_of_file:
            return self._with("Cache", [])
        return self._with("CacheFile", [parameter(name_of_file, dtypes.string)])

    def options(self) -> Options:
        """Those of with_options()."""
        return self._options

    def with_options(self, options: Options, name: str | None = None) -> Dataset:
        """This dataset with `options`, which are there for TensorFlow's sake."""
        made = Dataset(self._definition, self._spec, [self])
        made._options = options
        return made

    def _trace(
        self, name: str, func: Callable[..., Any], gives_dataset: bool = False
    ) -> Traced:
        return Traced(name, func, self._definition, self._spec, _argument, gives_dataset)

    def _with(
        self,
        op: str,
        parameters: Sequence[Any],
        attrs: Mapping[str, Any] | None = None,
        traced: Traced | None = None,
        structure: Any = None,
    ) -> Dataset:
        """This dataset with a transformation. `structure` None: elements are nested as before."""
        definition = DatasetDefinition.make(
            op, [self._definition], parameters, attrs or {}, None if traced is None else traced.body
        )
        kept = [] if traced is None else traced.kept
        return Dataset(definition, self._spec if structure is None else structure, [self], kept)


def _source(op: str, tensors: Any) -> Dataset:
    parameters = [parameter(leaf) for leaf in flatten(tensors)]
    if not parameters:
        raise ValueError("a dataset is made of no tensors")
    return Dataset(DatasetDefinition.make(op, [], parameters, {}), tensors)


def _argument(index: int, spec: DatasetSpec) -> Dataset:
    """The window that is component `index` of an element, while a function is traced."""
    attrs = {"index": index, **attrs_of_specs([spec.element_spec])}
    return Dataset(DatasetDefinition.make("Argument", [], [], attrs), 0)


def _of_list(tensors: list[Tensor], spec: TensorSpec) -> Dataset:
    """A window of an element that has been read."""
    if not tensors:
        return Dataset.from_tensors(zeros_of(spec)).take(0)
    parts = [Dataset.from_tensors(tensor) for tensor in tensors]
    if all(tensor.shape == tensors[0].shape for tensor in tensors):
        return Dataset.from_tensor_slices(stack(tensors))
    made = parts[0]
    for part in parts[1:]:
        made = made.concatenate(part)
    return made


def _as_numpy(leaf: Any) -> Any:
    if isinstance(leaf, Dataset):
        return leaf.as_numpy_iterator()
    array = leaf.numpy()
    return array.item() if array.dtype == object and array.ndim == 0 else array[()]
