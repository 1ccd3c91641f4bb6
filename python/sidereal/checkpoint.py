"""Objects saved and restored (tf.train.Checkpoint), and what is read of checkpoints by name.

A checkpoint has a tensor for each variable, named by the way from the root to it,
"model/layer-0/kernel/.ATTRIBUTES/VARIABLE_VALUE", and the graph of the objects (_object_graph), by
which restore() finds the way: not by the names of variables.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from . import _object_graph, _tensor_files, dtypes, errors
from ._dispatch import convert, state
from ._object_tree import SAVE_COUNTER, Slots, Tree, home_of, parts_of, shards_of, some
from ._restoration import Restoration
from ._trackable import (
    VARIABLE_VALUE,
    Restored,
    attribute_of,
    children_of,
    is_trackable,
    parts_of_value,
)
from .checkpoint_management import (
    latest_checkpoint,
    needed_by,
    update_checkpoint_state,
    writing,
)
from .dtypes import name_of
from .ops import array
from .variable import Variable, together


@dataclass
class CheckpointOptions:
    """How checkpoints are written and read (tf.train.CheckpointOptions).

    experimental_io_device: "/job:localhost": this process writes all files, and fetches variables
        of parameter servers for it. None: each parameter server writes a file of its own, to a file
        system that all reach.
    experimental_write_callbacks: functions that are called when a checkpoint is there, with its
        prefix if they take an argument.
    experimental_enable_async_checkpoint, enable_async: change nothing: save() returns when the
        checkpoint is there, and functions of workers go on meanwhile.
    experimental_skip_slot_variables: what optimizers keep for variables is left out, of what is
        written and of what is restored.
    """

    experimental_io_device: str | None = None
    experimental_enable_async_checkpoint: bool = False
    experimental_write_callbacks: Sequence[Callable[..., Any]] | None = None
    enable_async: bool = False
    experimental_skip_slot_variables: bool = False

    @property
    def is_local(self) -> bool:
        """Whether this process alone writes and reads."""
        device = self.experimental_io_device
        return device is not None and "localhost" in device


# --- Writing.


def _tensors_of(key: str, thing: Any) -> list[tuple[str, Any]]:
    """The value of something that this process writes, with the names of its entries."""
    if attribute_of(thing) != VARIABLE_VALUE:
        parts, saved = parts_of_value(thing), thing.save()
        values = [convert(saved)] if parts == ("",) else list(saved)
        return [(key + part, value) for part, value in zip(parts, values, strict=True)]
    values = [each._present() for each in shards_of(thing)]
    return [(key, values[0] if len(values) == 1 else array.concat(values, 0))]


def _write(
    prefix: str, tree: Tree, options: CheckpointOptions, base: str, tracks_changes: bool
) -> None:
    since = _tensor_files.opened(base).cut if base else ""
    folder = os.path.dirname(prefix) or "."
    try:
        os.makedirs(folder, exist_ok=True)
    except PermissionError as error:
        raise errors.PermissionDeniedError(
            f"the folder of checkpoint {prefix} cannot be made: {error}; choose another one"
        ) from None
    graph = _object_graph.encode(tree.nodes)
    away: dict[int, tuple[Any, list[tuple[str, str, Any]]]] = {}
    here: list[tuple[str, Any]] = []
    for key, thing in tree.valued():
        home = home_of(thing) if attribute_of(thing) == VARIABLE_VALUE else None
        if home is None or options.is_local:
            here.append((key, thing))
        else:
            parts = [(key, part, variable) for variable, part in parts_of(thing)]
            away.setdefault(id(home), (home, []))[1].extend(parts)
    shards = 1 + sum(home._count_files_of(parts) for home, parts in away.values())
    with writing(prefix):
        _write_files(prefix, graph, here, list(away.values()), shards, base, since, tracks_changes)


def parts_elsewhere(checkpoint: Checkpoint, home: Any) -> list[tuple[str, str, Any]]:
    """The entries of a checkpoint that are of variables which `home` has, which part of an entry
    each variable is, and the variable."""
    return [
        (key, part, variable)
        for key, thing in checkpoint._tree(Slots()).valued()
        if attribute_of(thing) == VARIABLE_VALUE and home_of(thing) is home
        for variable, part in parts_of(thing)
    ]


def _write_files(
    prefix: str, graph: bytes, here: Sequence[tuple[str, Any]],
    away: Sequence[tuple[Any, list[tuple[str, str, Any]]]], shards: int, base: str, since: str,
    tracks_changes: bool,
) -> None:  # fmt: skip
    with state.at_once():
        read = [thing for _, thing in here if attribute_of(thing) == VARIABLE_VALUE]
        with together(read, "VariableRead"):
            tensors = [pair for key, thing in here for pair in _tensors_of(key, thing)]
        tensors.append((_object_graph.ENTRY, convert(graph)))
        written = [_tensor_files.write(prefix, tensors, 0, shards)]
        for home, parts in away:
            written += home._save_variables(
                prefix, parts, len(written), shards, since, tracks_changes
            )
        _tensor_files.commit(prefix, written, base)


# --- Restoring.


class CheckpointLoadStatus:
    """What restore() gives: says whether what was to be restored has been. Objects of the program
    that are not there yet are restored when they are made; all checks look at what there is when
    they are called."""

    def __init__(self, restoration: Restoration) -> None:
        self._restoration = restoration

    def assert_consumed(self) -> CheckpointLoadStatus:
        """AssertionError unless all of the checkpoint was restored, and all objects were."""
        self.assert_existing_objects_matched()
        unused = self._restoration.unused()
        if unused:
            raise AssertionError(
                f"{self._restoration.prefix} has what the program has no object for: {some(unused)}"
            )
        return self

    def assert_existing_objects_matched(self) -> CheckpointLoadStatus:
        """AssertionError unless all objects with values were restored; the checkpoint may have
        more."""
        self._restoration.run()
        lost = [
            key
            for key, thing in self._restoration.present()
            if self._restoration.number_of(thing) not in self._restoration.done
        ]
        if lost:
            raise AssertionError(
                f"{self._restoration.prefix} has nothing for {len(lost)} objects of the program: "
                f"{some(lost)}"
            )
        return self

    def assert_nontrivial_match(self) -> CheckpointLoadStatus:
        """AssertionError when nothing but the root was found in the checkpoint."""
        self._restoration.run()
        if set(self._restoration.objects) <= {0} and not self._restoration.done:
            names = [key for key, _ in self._restoration.present()]
            raise AssertionError(
                f"{self._restoration.prefix} has nothing but its root in common with the program, "
                f"which has: {some(names) or 'nothing with a value'}"
            )
        return self

    def expect_partial(self) -> CheckpointLoadStatus:
        """There is no warning of what was restored to nothing."""
        self._restoration.is_partial = True
        return self

    def initialize_or_restore(self, session: Any = None) -> None:
        """As run_restore_ops()."""

    def run_restore_ops(self, session: Any = None) -> None:
        """Nothing is left to be run: values are restored when their objects are there."""


class InitializationOnlyStatus(CheckpointLoadStatus):
    """What restore(None) gives: nothing is restored, and checks say so."""

    def __init__(self) -> None:
        pass

    def _refuse(self) -> Any:
        raise AssertionError("no checkpoint was given (save_path=None): nothing was restored")

    assert_consumed = assert_existing_objects_matched = assert_nontrivial_match = _refuse

    def expect_partial(self) -> CheckpointLoadStatus:
        return self


# --- Checkpoint.


def counter(name: str) -> Variable:
    """A variable of this process, whatever scope it is made in, that counts."""
    with state.at_once():
        made: Variable = type.__call__(Variable, 0, trainable=False, name=name, dtype="int64")
    return made


class Checkpoint(Restored):
    """Objects that are saved and restored together (tf.train.Checkpoint).

        checkpoint = sidereal.train.Checkpoint(model=model, optimizer=optimizer)
        path = checkpoint.save("folder/ckpt")
        checkpoint.restore(path).assert_consumed()

    Objects are variables, variables in shards, layers, models, optimizers, iterators of datasets,
    mutable tables, other Checkpoints, and lists, tuples, dicts and objects of one's own that have
    such. They are found by what they are called in what has them, so that variables may have other
    names where they are restored. What is not there yet is restored when it is made.

    Variables on parameter servers are written by these, each to a file of its own, on a file system
    that all reach; they may be restored to other numbers of servers and of shards.

    root: an object whose members are members of this one.
    """

    def __init__(self, root: Any = None, **kwargs: Any) -> None:
        if root is not None and not is_trackable(root) and not _is_container(root):
            raise ValueError(f"root is {root!r}, which has nothing that could be saved")
        self._root = root
        self._save_counter: Variable | None = None
        for name, value in kwargs.items():
            if not is_trackable(value) and not _is_container(value):
                raise ValueError(
                    f"Checkpoint({name}=...) is given {value!r}, which has nothing that could be "
                    "saved: give variables, layers, models, optimizers, iterators, or objects that "
                    "have such; a number as a sidereal.Variable"
                )
            there = children_of(root).get(name) if root is not None else None
            if there is not None and there is not value:
                raise ValueError(
                    f"Checkpoint(root, {name}=...): the root has another object called '{name}'"
                )
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name != "_restorations":
            self._has_grown()

    def _has_grown(self) -> None:
        for each in self._restorations:
            each.go_on_at(self._top)

    @property
    def _top(self) -> Any:
        return self if self._root is None else self._root

    def _own(self) -> dict[str, Any]:
        """What it has beside what the root has."""
        found = {
            name: value
            for name, value in sorted(vars(self).items())
            if not name.startswith("_") and is_trackable(value)
        }
        if self._save_counter is not None:
            found[SAVE_COUNTER] = self._save_counter
        return found

    def _trackable_children(self) -> dict[str, Any]:
        return (children_of(self._root) if self._root is not None else {}) | self._own()

    @property
    def save_counter(self) -> Variable:
        """How many checkpoints save() has written: the number in their names."""
        if self._save_counter is None:
            self._save_counter = counter(SAVE_COUNTER)
        return self._save_counter

    def save(self, file_prefix: Any, options: CheckpointOptions | None = None) -> str:
        """Writes "FILE_PREFIX-NUMBER", says in its folder's file `checkpoint` that it is the
        newest, and gives the prefix. See write()."""
        prefix = os.fspath(file_prefix)
        self.save_counter.assign_add(1)
        written = self.write(f"{prefix}-{int(self.save_counter)}", options)
        update_checkpoint_state(os.path.dirname(written) or ".", written, [written])
        return written

    def write(
        self, file_prefix: Any, options: CheckpointOptions | None = None, *, base: Any = None,
        tracks_changes: bool = False,
    ) -> str:  # fmt: skip
        """Writes a checkpoint of that prefix, which is there whole or not at all, and gives the
        prefix. Of variables that functions of workers change meanwhile, each lane of a parameter
        server writes those of one instant; ClusterCoordinator.join() before it for one of all.

        base: a checkpoint in the same folder. Of variables on parameter servers that have kept note
            of what changed since, that alone is written, and restoring needs `base` too. See
            CheckpointManager(full_every=...).
        tracks_changes: such note is kept from here on, so that this may be a base.

        Errors: PermissionDeniedError and ResourceExhaustedError of the file system; NotFoundError
        for a base that is not there, InvalidArgumentError for one in another folder; those of the
        cluster.
        """
        _check_eager("write")
        prefix = os.fspath(file_prefix)
        below = _checked_base(prefix, base)
        chosen = options or CheckpointOptions()
        slots = None if chosen.experimental_skip_slot_variables else Slots()
        _write(prefix, self._tree(slots), chosen, below, tracks_changes or below != "")
        for callback in chosen.experimental_write_callbacks or ():
            _call_back(callback, prefix)
        return prefix

    def _tree(self, slots: Slots | None) -> Tree:
        return Tree(self._top, self._own() if self._root is not None else {}, slots)

    def restore(
        self, save_path: Any, options: CheckpointOptions | None = None
    ) -> CheckpointLoadStatus:
        """Gives objects the values that they had in a checkpoint of save() or write(), the number
        of the last save() among them. See read(). None: restores nothing.

        Errors: NotFoundError without the checkpoint; InvalidArgumentError for values of another
        dtype or shape than the program has; DataLossError.
        """
        if save_path is None:
            return InitializationOnlyStatus()
        _ = self.save_counter
        return self.read(save_path, options)

    def read(
        self, save_path: Any, options: CheckpointOptions | None = None
    ) -> CheckpointLoadStatus:
        """restore(), but for the number of the last save(), which stays as it is if there was none
        in this program. What a Saver has written is restored too: to variables that are there, by
        their names."""
        _check_eager("read")
        prefix = os.fspath(save_path)
        if os.path.isdir(prefix):
            raise errors.NotFoundError(
                f"{prefix} is a folder: give the prefix of a checkpoint in it, as "
                f"sidereal.train.latest_checkpoint({prefix!r}) does"
            )

        def attached() -> dict[str, Any]:
            return self._own() if self._root is not None else {}

        chosen = options or CheckpointOptions()
        has_slots = not chosen.experimental_skip_slot_variables
        made = Restoration(prefix, self._top, attached, chosen.is_local, has_slots)
        object.__setattr__(self, "_restorations", (made,))
        try:
            made.run()
        except BaseException:
            made.give_up()
            object.__setattr__(self, "_restorations", ())
            raise
        return CheckpointLoadStatus(made)


def _checked_base(prefix: str, base: Any) -> str:
    """The prefix of what a checkpoint is to stand on; "": nothing."""
    if base is None:
        return ""
    below = os.fspath(base)
    if os.path.dirname(os.path.abspath(below)) != os.path.dirname(os.path.abspath(prefix)):
        raise errors.InvalidArgumentError(
            f"{prefix} cannot stand on {below}, which is in another folder: give a base beside it"
        )
    if os.path.abspath(prefix) in needed_by([below]):
        raise errors.InvalidArgumentError(
            f"{prefix} cannot stand on {below}, which it is, or which stands on it: give it "
            "another name"
        )
    return below


def _is_container(value: Any) -> bool:
    return isinstance(value, (list, tuple, dict))


def _check_eager(method: str) -> None:
    if state.graph is not None:
        raise errors.FailedPreconditionError(
            f"Checkpoint.{method}() is called while a function is traced or a graph is built: call "
            "it outside"
        )


def _call_back(callback: Callable[..., Any], prefix: str) -> None:
    code = getattr(callback, "__code__", None)
    takes = 1 if code is None else code.co_argcount - hasattr(callback, "__self__")
    callback(prefix) if takes else callback()


# --- By name.


class CheckpointReader:
    """What a checkpoint has, by name (tf.train.load_checkpoint): values are read when they are
    asked for."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._reader = _tensor_files.opened(prefix)
        self._names = set(self._reader.names())

    def has_tensor(self, tensor_name: str) -> bool:
        """Whether it has something of that name."""
        return tensor_name in self._names

    def get_tensor(self, tensor_name: str) -> Any:
        """A value as an array, that of a variable in shards whole; a string as bytes."""
        self._check(tensor_name)
        found = self._reader.read(tensor_name).numpy()
        return found.item() if found.dtype == object and found.ndim == 0 else found

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """The shapes of all, by name."""
        return {name: list(self._reader.shape(name)) for name in sorted(self._names)}

    def get_variable_to_dtype_map(self) -> dict[str, Any]:
        """The dtypes of all, by name."""
        return {name: dtypes.as_dtype(self._reader.dtype(name)) for name in sorted(self._names)}

    def _check(self, name: str) -> None:
        if name not in self._names:
            raise errors.NotFoundError(
                f"{self.prefix} has no tensor '{name}'; list_variables() says what it has: "
                f"{some(sorted(self._names))}"
            )

    def debug_string(self) -> str:
        """A line for each tensor."""
        shapes, types = self.get_variable_to_shape_map(), self.get_variable_to_dtype_map()
        return "".join(f"{name} ({name_of(types[name])}) {shapes[name]}\n" for name in shapes)


def load_checkpoint(ckpt_dir_or_file: Any) -> CheckpointReader:
    """What a checkpoint has (tf.train.load_checkpoint): that of a prefix, or the newest one of a
    folder. NotFoundError where there is none."""
    given = os.fspath(ckpt_dir_or_file)
    prefix = latest_checkpoint(given) if os.path.isdir(given) else given
    if prefix is None:
        raise errors.NotFoundError(
            f"no checkpoint is named by {os.path.join(given, 'checkpoint')}: give the prefix of one"
        )
    return CheckpointReader(prefix)


def load_variable(ckpt_dir_or_file: Any, name: str) -> Any:
    """A value of a checkpoint (tf.train.load_variable). `name` may end with ":0"."""
    return load_checkpoint(ckpt_dir_or_file).get_tensor(name.removesuffix(":0"))


def list_variables(ckpt_dir_or_file: Any) -> list[tuple[str, list[int]]]:
    """Names and shapes of all that a checkpoint has (tf.train.list_variables)."""
    shapes = load_checkpoint(ckpt_dir_or_file).get_variable_to_shape_map()
    return sorted(shapes.items())


__all__ = [
    "Checkpoint", "CheckpointLoadStatus", "CheckpointOptions", "CheckpointReader",
    "InitializationOnlyStatus", "list_variables", "load_checkpoint", "load_variable",
]  # fmt: skip
