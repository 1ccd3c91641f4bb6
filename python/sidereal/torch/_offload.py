"""Moves the nn.Embedding and nn.EmbeddingBag of a module to parameter servers."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from .. import errors
from ..security import SecurityOptions
from ._modules import TableModule
from ._shards import Group
from ._tables import Tables, check_ids, rows_of, unique

_M = TypeVar("_M", bound=nn.Module)


class _Offloaded(TableModule):
    """What takes the place of a module with a table."""

    def __init__(self, name: str, was: Any) -> None:
        super().__init__(was.weight.device)
        self.table_name = name
        self.num_embeddings, self.embedding_dim = was.num_embeddings, was.embedding_dim
        self.padding_idx = was.padding_idx

    def _rows(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Rows, and for each id the place of its row."""
        tables, name = self._tables, self.table_name
        number, table = tables[name]
        flat = ids.detach().reshape(-1).cpu()
        check_ids(flat, f"the input of '{name}'", table)
        once, places = unique((flat.long() + table.offset).contiguous())
        pull = tables.pull({number: once})
        rows = rows_of(tables, pull, self._anchor, self._device)[number]
        if self.padding_idx is not None:
            # Its row is given, and not trained.
            is_padding = (once == self.padding_idx + table.offset).to(self._device)
            rows = torch.where(is_padding[:, None], rows.detach(), rows)
        return rows, places.to(self._device)

    @property
    def weight(self) -> Tensor:
        """A copy of the table, for small ones."""
        return self.read_rows(self.table_name).to(self._device)

    def extra_repr(self) -> str:
        """What stands in the printed module."""
        return f"{self.num_embeddings}, {self.embedding_dim}, on parameter servers"


class Embedding(_Offloaded):
    """An nn.Embedding whose table is on parameter servers."""

    @torch.compiler.disable
    def forward(self, input: Tensor) -> Tensor:
        """The rows of ids, in their shape."""
        rows, places = self._rows(input)
        return rows.index_select(0, places).view(*input.shape, self.embedding_dim)


class EmbeddingBag(_Offloaded):
    """An nn.EmbeddingBag whose table is on parameter servers."""

    def __init__(self, name: str, was: nn.EmbeddingBag) -> None:
        super().__init__(name, was)
        self.mode, self.include_last_offset = was.mode, was.include_last_offset

    @torch.compiler.disable
    def forward(
        self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        """The pooled rows of bags."""
        rows, places = self._rows(input)
        if input.ndim == 2:
            if offsets is not None:
                raise ValueError("if input is 2D, then offsets has to be None")
            places = places.view(input.shape)
        elif offsets is None:
            raise ValueError("offsets has to be a 1D Tensor but got None")
        padding = None
        if self.padding_idx is not None:
            padding = self._padding(rows, input, places)
            if padding is not None and padding < 0:
                padding = None
        return nn.functional.embedding_bag(
            places, rows, None if offsets is None else offsets.to(places), mode=self.mode,
            per_sample_weights=per_sample_weights, padding_idx=padding,
            include_last_offset=self.include_last_offset,
        )  # fmt: skip

    def _padding(self, rows: Tensor, input: Tensor, places: Tensor) -> int | None:
        """Where the row is that bags leave out, if a bag has it."""
        found = (input.reshape(-1) == self.padding_idx).nonzero()
        return int(places.reshape(-1)[found[0, 0]]) if len(found) else None


def _check(path: str, module: Any) -> None:
    for option in ("max_norm", "scale_grad_by_freq"):
        if getattr(module, option):
            raise errors.UnimplementedError(
                f"'{path}' has {option}={getattr(module, option)!r}, which tables on parameter "
                "servers have not"
            )


def _found(module: nn.Module, min_rows: int) -> dict[str, Any]:
    """The modules with tables, by their first path; ValueError for one whose weight others use."""
    found: dict[str, Any] = {}
    users: dict[int, list[str]] = {}
    for path, one in module.named_modules():
        for name, parameter in one.named_parameters(recurse=False):
            users.setdefault(id(parameter), []).append(f"{path}.{name}".lstrip("."))
        is_table = isinstance(one, (nn.Embedding, nn.EmbeddingBag))
        if is_table and one.num_embeddings >= min_rows:
            _check(path, one)
            found[path] = one
    for path, one in found.items():
        shared = users[id(one.weight)]
        if len(shared) > 1:
            raise ValueError(
                f"the weight of '{path}' is also {', '.join(shared[1:])}; a table cannot be on "
                "parameter servers and in this process"
            )
    return found


def offload(
    module: _M, *, cluster: Any = None, optimizer: Any = None, min_rows: int = 0,
    name: str | None = None, timeout_s: float = 60.0, security: SecurityOptions | None = None,
) -> _M:  # fmt: skip
    """Puts tables in the place of the nn.Embedding and nn.EmbeddingBag in `module`, with the
    weights that these have, and returns the module; one that is such itself is returned changed.

        model = sidereal.torch.offload(model, cluster={"ps": ["host:2222"]},
                                       optimizer=sidereal.torch.optim.SparseAdam(1e-3))
        dense = torch.optim.Adam(model.parameters(), 1e-3)   # without the tables

    min_rows: smaller ones stay. Others: see EmbeddingBagCollection. Each forward() of a table is a
    pull of its own: a collection is faster for many tables. ValueError when there is none, or when
    something else uses its weight; UnimplementedError for max_norm and scale_grad_by_freq."""
    found = _found(module, min_rows)
    if not found:
        raise ValueError(
            f"{type(module).__name__} has no nn.Embedding or nn.EmbeddingBag of {min_rows} rows "
            "or more"
        )
    groups: dict[int, Group] = {}
    for path, one in found.items():
        dim = one.embedding_dim
        group = groups.setdefault(dim, Group(f"tables_{dim}", dim))
        group.add(path or "embedding", one.num_embeddings, (0.0, 0.0))

    def fill(tables: Tables) -> None:
        for path, one in found.items():
            tables.write(path or "embedding", one.weight)

    tables = Tables(
        list(groups.values()), cluster, optimizer, name, 0, timeout_s, security, fill
    )
    made: dict[int, _Offloaded] = {}
    for path, one in found.items():
        kind = Embedding if isinstance(one, nn.Embedding) else EmbeddingBag
        made[id(one)] = kind(path or "embedding", one)
        made[id(one)]._tables = tables
    for parent in list(module.modules()):
        for child, one in list(parent.named_children()):
            if id(one) in made:
                setattr(parent, child, made[id(one)])
    changed: Any = made.get(id(module), module)
    return changed
