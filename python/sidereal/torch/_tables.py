"""Tables on parameter servers as a process of PyTorch uses them: one pull and one push for all
tables of a collection, pushes in the background, first values, rows read and written."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import torch
from torch import Tensor

from .. import errors
from .._dispatch import apply, to_tensor
from ..security import SecurityOptions
from . import _cluster
from ._shards import Group, Shard, Table
from .optim import FusedOptimizer, TableOptimizer, optimizer_of

#: Pushes that may be under way when a batch was pulled ahead.
_PUSHES_MAX = 8
#: Bytes of rows that are read or written by one step.
_CHUNK_BYTES = 32 << 20
#: Gradients of the rows of groups, by the number of a group: (ids in the group, gradients).
Push = dict[int, tuple[Tensor, Tensor]]


class Pull:
    """Rows of groups that have been asked for."""

    def __init__(
        self, ids: dict[int, Tensor], places: list[dict[int, Tensor | None]],
        found: list[Future[dict[int, Tensor]]] | list[dict[int, Tensor]],
    ) -> None:  # fmt: skip
        #: What was asked for, by the number of the group; none twice.
        self.ids = ids
        self._places, self._found = places, found

    def rows(self) -> dict[int, Tensor]:
        """The rows of the ids; waits for them."""
        found = [one.result() if isinstance(one, Future) else one for one in self._found]
        out: dict[int, Tensor] = {}
        for i, ids in self.ids.items():
            if len(found) == 1:
                out[i] = found[0][i]
                continue
            rows = torch.empty(len(ids), found[0][i].shape[1])
            for places, part in zip(self._places, found):
                where = places[i]
                assert where is not None
                rows.index_copy_(0, where, part[i])
            out[i] = rows
        return out


def unique(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Ids without those that are there already, and for each its place (int32) among them."""
    once, places = apply("Unique", (to_tensor(ids),))
    return torch.from_dlpack(once), torch.from_dlpack(places)


def _pull_after(
    pushes: list[Future[None]], shard: Shard, ids: dict[int, Tensor]
) -> dict[int, Tensor]:
    """Rows as they are when these pushes are over, whatever became of them."""
    for push in pushes:
        push.exception()
    return shard.pull(ids)


def _close(shards: list[Shard]) -> None:
    for shard in shards:
        shard.close()


class Tables:
    """Tables of several dimensions, in parts on all parameter servers of a cluster."""

    def __init__(
        self, groups: Sequence[Group], cluster: Any = None, optimizer: Any = None,
        name: str | None = None, seed: int | None = None, timeout_s: float = 60.0,
        security: SecurityOptions | None = None,
        fill: Callable[[Tables], None] | None = None,
    ) -> None:  # fmt: skip
        """`fill` writes first values that servers cannot make; see EmbeddingBagCollection for the
        others."""
        rule: TableOptimizer | None = optimizer_of(optimizer)
        addresses, known = _cluster.parameter_servers(cluster, security)
        self.groups = list(groups)
        self.name = _cluster.common_name(name, cluster)
        self.optimizer = None if rule is None else FusedOptimizer(rule.lr)
        self.scaler: Any = None
        self._places = {
            table.name: (i, table) for i, group in enumerate(groups) for table in group.tables
        }
        self._timeout_s = timeout_s
        self._pushed: deque[list[Future[None]]] = deque()
        if seed is None:
            seed = int(torch.randint(2**31, ()))
        self.shards: list[Shard] = []
        self._finalizer = weakref.finalize(self, _close, self.shards)
        for part, (task, address) in enumerate(addresses.items()):
            self.shards.append(
                Shard(
                    self.groups, part, len(addresses), task, address, rule, f"torch-{self.name}",
                    seed, timeout_s, known,
                )
            )  # fmt: skip
        if _cluster.is_maker(cluster):
            self._make(fill)
        if _cluster.is_distributed():
            torch.distributed.barrier()
        self._wait_until_made()

    def _make(self, fill: Callable[[Tables], None] | None) -> None:
        """Makes what is not there yet."""
        new = [shard for shard in self.shards if not shard.is_made()]
        for shard in new:
            shard.make()
        if new and fill is not None:
            fill(self)
        for shard in new:
            shard.mark_made()

    def _wait_until_made(self) -> None:
        for shard in self.shards:
            _cluster.wait_until(
                shard.is_made, self._timeout_s,
                f"tables '{self.name}' on {shard.device} were not made by the first process",
            )  # fmt: skip

    # --- Which tables there are.

    def __getitem__(self, name: str) -> tuple[int, Table]:
        """The number of a table's group, and the table."""
        if name not in self._places:
            known = ", ".join(f"'{table}'" for table in self._places)
            raise errors.NotFoundError(f"no table is called '{name}'; there are {known}")
        return self._places[name]

    # --- Steps.

    def _routed(self, ids: dict[int, Tensor]) -> Iterator[dict[int, tuple[Tensor | None, Tensor]]]:
        """For each part, by groups: which of the ids it has (None: all), and its rows of them."""
        parts = len(self.shards)
        for part in range(parts):
            if parts == 1:
                yield {i: (None, given) for i, given in ids.items()}
                continue
            routed: dict[int, tuple[Tensor | None, Tensor]] = {}
            for i, given in ids.items():
                where = (given % parts == part).nonzero().squeeze(1)
                routed[i] = where, given.index_select(0, where) // parts
            yield routed

    def pull(self, ids: dict[int, Tensor], ahead: bool = False) -> Pull:
        """Asks for rows by the numbers of groups, as they are when all that this process has pushed
        is in the tables; waits for that only if not `ahead`."""
        self.check_alive()
        if not ahead:
            self.flush()
        routed = list(self._routed(ids))
        places = [{i: where for i, (where, _) in part.items()} for part in routed]
        wanted = [{i: local for i, (_, local) in part.items()} for part in routed]
        if len(self.shards) == 1 and not ahead:
            return Pull(ids, places, [self.shards[0].pull(wanted[0])])
        found = []
        for k, (shard, part) in enumerate(zip(self.shards, wanted)):
            earlier = [pushes[k] for pushes in self._pushed]
            found.append(shard.pulls.submit(_pull_after, earlier, shard, part))
        return Pull(ids, places, found)

    def push(self, gradients: Push) -> None:
        """Has rows updated, in the background; what fails is raised by the next step. Ids must be
        there once."""
        if self.optimizer is None or not gradients:
            return
        self.check_alive()
        if self.scaler is not None and not self._unscale(gradients):
            return
        while len(self._pushed) >= _PUSHES_MAX:
            self._wait_for(self._pushed.popleft())
        rate = self.optimizer.rate
        under_way = []
        for shard, part in zip(self.shards, self._routed({i: g[0] for i, g in gradients.items()})):
            rows = {
                i: (local, grads if where is None else grads.index_select(0, where))
                for (i, (where, local)), (_, grads) in zip(part.items(), gradients.values())
            }
            under_way.append(shard.pushes.submit(shard.push, rate, rows))
        self._pushed.append(under_way)

    def _unscale(self, gradients: Push) -> bool:
        """Takes the scale of a GradScaler from gradients; False where they are too large."""
        scale = 1.0 / self.scaler.get_scale()
        for i, (ids, grads) in gradients.items():
            gradients[i] = ids, grads * scale
        return all(bool(grads.isfinite().all()) for _, grads in gradients.values())

    def _wait_for(self, pushes: list[Future[None]]) -> None:
        errors_found = [one.exception() for one in pushes]
        for error in errors_found:
            if error is not None:
                self._pushed.clear()
                raise error

    def check_alive(self) -> None:
        """Raises what a push that is over has met; FailedPreconditionError after close()."""
        if not self._finalizer.alive:
            raise errors.FailedPreconditionError(f"the tables '{self.name}' are closed")
        while self._pushed and all(one.done() for one in self._pushed[0]):
            self._wait_for(self._pushed.popleft())

    def flush(self) -> None:
        """Waits until all that was pushed is in the tables; raises what a push has met."""
        while self._pushed:
            self._wait_for(self._pushed.popleft())

    def close(self) -> None:
        """Waits for pushes and ends the connections. Tables that no other process uses go."""
        try:
            if self._finalizer.alive:
                self.flush()
        finally:
            self._finalizer()

    # --- Rows as they are.

    def read(self, name: str, ids: Tensor | None = None) -> Tensor:
        """Rows of a table, in chunks; all of them without ids."""
        i, table = self[name]
        if ids is None:
            ids = torch.arange(table.rows)
        check_ids(ids, name, table)
        step = max(1, _CHUNK_BYTES // (4 * table.dim))
        pieces = [self._read(i, piece + table.offset) for piece in ids.long().split(step)]
        return torch.cat(pieces) if pieces else torch.empty(0, table.dim)

    def _read(self, i: int, rows: Tensor) -> Tensor:
        # One step asks for each row once; engines' memory is not the caller's.
        once, places = unique(rows.contiguous())
        return self.pull({i: once}).rows()[i].index_select(0, places)

    def write(self, name: str, values: Tensor, begin: int = 0) -> None:
        """Gives the rows of a table from `begin` on other values, in chunks."""
        i, table = self[name]
        self.flush()
        if values.ndim != 2 or values.shape[1] != table.dim or (
            not 0 <= begin <= table.rows - len(values)
        ):  # fmt: skip
            raise errors.InvalidArgumentError(
                f"values of shape {tuple(values.shape)} are no rows {begin} and following of "
                f"table '{name}', which has {table.rows} rows of {table.dim}"
            )
        step = max(1, _CHUNK_BYTES // (4 * table.dim))
        for piece in values.detach().to("cpu", torch.float32).split(step):
            rows = torch.arange(begin, begin + len(piece)) + table.offset
            begin += len(piece)
            for shard, part in zip(self.shards, self._routed({i: rows})):
                where, local = part[i]
                own = piece if where is None else piece.index_select(0, where)
                shard.write(i, local, own.contiguous())


def check_ids(ids: Tensor, whose: str, table: Table) -> None:
    """InvalidArgumentError for ids that a table has not."""
    if ids.dtype not in (torch.int64, torch.int32):
        raise errors.InvalidArgumentError(
            f"the ids of {whose} are {str(ids.dtype).removeprefix('torch.')}; give int64 or int32"
        )
    if not ids.numel():
        return
    low, high = (int(end) for end in ids.aminmax())
    if low < 0 or high >= table.rows:
        raise errors.InvalidArgumentError(
            f"{whose} has id {low if low < 0 else high}; table '{table.name}' has {table.rows} "
            f"rows: ids are 0 to {table.rows - 1}"
        )


class _Rows(torch.autograd.Function):
    """Rows that were pulled; what flows back to them is pushed, for all groups at once."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, tables: Tables, pull: Pull, device: Any) -> Any:
        ctx.tables, ctx.ids = tables, pull.ids
        ctx.set_materialize_grads(False)
        return tuple(rows.to(device) for rows in pull.rows().values())

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        found = {
            i: (ids, grad.detach().to("cpu", torch.float32).contiguous())
            for (i, ids), grad in zip(ctx.ids.items(), grads)
            if grad is not None
        }
        ctx.tables.push(found)
        return None, None, None, None


def rows_of(tables: Tables, pull: Pull, anchor: Tensor, device: Any) -> Mapping[int, Tensor]:
    """The rows of a pull by groups, as values whose gradients are pushed."""
    return dict(zip(pull.ids, _Rows.apply(anchor, tables, pull, device)))
