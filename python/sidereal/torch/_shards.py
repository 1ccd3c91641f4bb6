"""One parameter server's part of tables: the graph of what is done there, and the session that does
it, whose master is that parameter server. So what is pulled and pushed goes one way only."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from .. import errors, v1
from .._dispatch import apply, to_tensor
from .._run_metadata import RunOptions
from ..indexed_slices import IndexedSlices
from ..ops.array import concat
from ..ops.indexing import gather
from ..security import SecurityOptions
from .optim import TableOptimizer


@dataclass(frozen=True)
class Table:
    """A table: where it begins in its group, and its first values: uniform between two limits."""

    name: str
    rows: int
    dim: int
    offset: int
    limits: tuple[float, float]


@dataclass
class Group:
    """Tables of one dimension, which lie behind one another in one variable. Row r of the group is
    row r // parts of part r % parts."""

    name: str
    dim: int
    tables: list[Table] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Of all tables."""
        return sum(table.rows for table in self.tables)

    def add(self, name: str, rows: int, limits: tuple[float, float]) -> Table:
        """A table behind the others."""
        made = Table(name, rows, self.dim, self.rows, limits)
        self.tables.append(made)
        return made

    def names(self) -> str:
        """The tables, for messages."""
        names = [table.name for table in self.tables]
        shown = ", ".join(f"'{name}'" for name in names[:4])
        return shown + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def rows_of_part(rows: int, part: int, parts: int) -> int:
    """How many of so many rows a part has."""
    return (rows - part - 1) // parts + 1 if part < rows else 0


@dataclass
class _Held:
    """What the graph has of one group."""

    variable: Any
    slots: dict[str, Any]
    ids: Any
    grads: Any
    rows: Any
    push: Any
    write: Any


class Shard:
    """Part number `part` of all groups, on the parameter server `task` at `address`."""

    def __init__(
        self, groups: Sequence[Group], part: int, parts: int, task: int, address: str,
        optimizer: TableOptimizer | None, state_group: str, seed: int, timeout_s: float,
        security: SecurityOptions,
    ) -> None:  # fmt: skip
        self.groups = list(groups)
        self.part, self.parts = part, parts
        self.device = f"/job:ps/task:{task}"
        self._options = RunOptions(timeout_in_ms=int(1000 * timeout_s))
        self.graph = v1.Graph()
        with self.graph.as_default(), v1.device(self.device):
            self.rate = v1.placeholder(np.float64, [], "learning_rate")
            self._rule = None if optimizer is None else v1.train.RuleOptimizer(
                optimizer._rule(self.rate), name="optimizer"
            )  # fmt: skip
            self.held = [self._hold(group, seed) for group in groups]
            self.made = v1.Variable(np.int64(1), trainable=False, name="made")
            self._initialize = [variable.initializer for variable in self.variables()]
            self._is_made = v1.is_variable_initialized(self.made)
            self.prefix = v1.placeholder(np.str_, [], "prefix")
            self._save = self._add_saving("SaveVariables", {"shard": part, "shards": parts})
            self._restore = self._add_saving("RestoreVariables", {})
        config = v1.ConfigProto(
            state_group=state_group, device_filters=[self.device], pull_prefetch_ms=0,
            connect_timeout_in_ms=int(1000 * timeout_s), security=security,
        )  # fmt: skip
        self.session = v1.Session(f"grpc://{address}", self.graph, config)
        # Pulls and pushes may be under way at once; those of a kind come in their order.
        self.pulls = ThreadPoolExecutor(1, f"sidereal-pull-{task}")
        self.pushes = ThreadPoolExecutor(1, f"sidereal-push-{task}")

    # --- The graph.

    def _hold(self, group: Group, seed: int) -> _Held:
        count = rows_of_part(group.rows, self.part, self.parts)
        with v1.name_scope(f"{group.name}_feeds"):
            ids = v1.placeholder(np.int64, [None], "ids")
            grads = v1.placeholder(np.float32, [None, group.dim], "grads")
        variable = v1.Variable(
            lambda: self._first_values(group, seed), dtype=np.float32, name=group.name
        )
        slots: dict[str, Any] = {}
        push = None
        if self._rule is not None:
            slices = IndexedSlices(grads, ids, [count, group.dim])
            push = self._rule.apply_gradients([(slices, variable)])
            slots = dict(self._rule._slots_of(variable))
        write = v1.scatter_update(variable, ids, grads)
        return _Held(variable, slots, ids, grads, gather(variable, ids), push, write)

    def _first_values(self, group: Group, seed: int) -> Any:
        pieces = []
        for table in group.tables:
            # Rows of the table whose rows of the group are this part's.
            begin = (self.part - table.offset) % self.parts
            if rows_of_part(table.rows, begin, self.parts) == 0:
                continue
            low, high = table.limits
            attrs: dict[str, Any] = {
                "shape": (table.rows, table.dim), "kind": "uniform" if low < high else "constant",
                "a": low, "b": high if low < high else 0.0, "seed": seed, "name": table.name,
                "part": begin, "parts": self.parts,
            }  # fmt: skip
            pieces.append(apply("InitialValue", (), attrs))
        return pieces[0] if len(pieces) == 1 else concat(pieces, 0)

    def variables(self) -> list[Any]:
        """All that tables and their optimizer keep."""
        return [one for held in self.held for one in (held.variable, *held.slots.values())]

    def entries(self) -> list[tuple[str, str, Any]]:
        """What checkpoints have: (name, which part of the whole, variable)."""
        found = []
        for group, held in zip(self.groups, self.held):
            count = rows_of_part(group.rows, self.part, self.parts)
            rows = f"{self.part},{count},{self.parts}"
            kept = {"": held.variable} | {f"/{name}": slot for name, slot in held.slots.items()}
            for name, variable in kept.items():
                rank = len(variable.shape)
                if rank == 0:  # A counter, which is the same in all parts.
                    found.append((group.name + name, "", variable))
                    continue
                extents = [group.rows, group.dim][:rank]
                where = ":".join([rows, "-"][:rank])
                whole = " ".join(map(str, extents))
                found.append((group.name + name, f"{whole} {where}", variable))
        return found

    def _add_saving(self, op: str, attrs: dict[str, Any]) -> Any:
        entries = self.entries()
        if op == "SaveVariables":
            # Of what all parts have alike, one writes.
            entries = [entry for entry in entries if entry[1] or self.part == 0]
        handles = [variable.handle for _, _, variable in entries]
        what = {"names": [name for name, _, _ in entries], "slices": [at for _, at, _ in entries]}
        texts = [self.prefix] if op == "RestoreVariables" else [self.prefix, apply_text("")]
        return apply(op, [*texts, *handles], {**what, **attrs})

    # --- Steps.

    def run(
        self, values: Sequence[Any], targets: Sequence[Any], feeds: Sequence[tuple[Any, Any]],
        what: str = "", groups: Sequence[int] = (), options: RunOptions | None = None,
    ) -> list[Any]:  # fmt: skip
        """Runs a step of the session. `what` it does, and with which groups, is for messages."""
        try:
            found: list[Any] = self.session._run(
                list(values), [target.node for target in targets],
                [place for place, _ in feeds], [to_tensor(value) for _, value in feeds],
                options or self._options,
            )  # fmt: skip
        except errors.Error as error:
            names = ", ".join(self.groups[i].names() for i in groups or range(len(self.groups)))
            task = f"{self.device} at {self.session.sess_str}"
            made = type(error)(f"{what or 'a step'} of tables {names} on {task}: {error.message}")
            raise made from error
        return found

    def pull(self, ids: dict[int, torch.Tensor]) -> dict[int, torch.Tensor]:
        """Rows by the numbers of groups."""
        values = [self.held[i].rows for i in ids]
        feeds = [(self.held[i].ids, local) for i, local in ids.items()]
        found = self.run(values, [], feeds, "a pull", list(ids))
        return {i: torch.from_dlpack(rows) for i, rows in zip(ids, found)}

    def push(self, rate: float, rows: dict[int, tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Updates rows by gradients, by the numbers of groups: (ids, gradients)."""
        feeds: list[tuple[Any, Any]] = [(self.rate, np.float64(rate))]
        for i, (ids, grads) in rows.items():
            feeds += [(self.held[i].ids, ids), (self.held[i].grads, grads)]
        self.run([], [self.held[i].push for i in rows], feeds, "a push", list(rows))

    def write(self, i: int, ids: torch.Tensor, rows: torch.Tensor) -> None:
        """Gives rows of group i other values."""
        held = self.held[i]
        feeds = [(held.ids, ids), (held.grads, rows)]
        self.run([], [held.write.op], feeds, "writing rows", [i])

    def is_made(self) -> bool:
        """Whether somebody has made the tables."""
        return bool(self.run([self._is_made], [], [], "a look")[0].numpy())

    def make(self) -> None:
        """Gives the tables their first values."""
        self.run([], self._initialize, [], "first values")

    def mark_made(self) -> None:
        """Says that the tables are there, to others that use them."""
        self.run([], [self.made.initializer], [], "first values")

    def save(self, prefix: str) -> Any:
        """Writes this part of a checkpoint; what its commit is to be told. However long it takes:
        a parameter server that is lost ends it."""
        options = RunOptions()
        return self.run([self._save], [], [(self.prefix, prefix)], "saving", options=options)[0]

    def restore(self, prefix: str) -> None:
        """Reads this part of a checkpoint, however long it takes."""
        options = RunOptions()
        self.run([self._restore], [], [(self.prefix, prefix)], "restoring", options=options)

    def close(self) -> None:
        """Ends the session, and what it has made if no other process uses it."""
        self.pulls.shutdown()
        self.pushes.shutdown()
        # A parameter server that is lost has forgotten the session.
        with contextlib.suppress(errors.Error):
            self.session.close()


def apply_text(text: str) -> Any:
    """A text as a value of the graph."""
    return v1.constant(np.array(text.encode(), dtype=object))
