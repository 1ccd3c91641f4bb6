"""Modules of tables on parameter servers: TorchRec's EmbeddingBagCollection and
EmbeddingCollection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .. import errors
from ..security import SecurityOptions
from ._configs import check_configs, embedding_names, pooling_of
from ._keyed import JaggedTensor, KeyedTensor
from ._shards import Group, Table
from ._tables import Pull, Tables, check_ids, rows_of, unique
from .optim import FusedOptimizer


class TableModule(nn.Module):
    """Base of modules whose tables are on parameter servers. They have no parameters: tables are no
    part of state_dict(), and of what DistributedDataParallel has in common; save() and load() of
    sidereal.torch keep them."""

    _tables: Tables

    def __init__(self, device: Any = None) -> None:
        super().__init__()
        self._device = torch.device("cpu" if device is None else device)
        # What has a gradient, so that backward() comes to the rows.
        self._anchor = torch.zeros(0, requires_grad=True)

    @property
    def device(self) -> torch.device:
        """Where results are."""
        return self._device

    @property
    def fused_optimizer(self) -> FusedOptimizer:
        """The optimizer of the tables, for schedulers of torch.optim.lr_scheduler."""
        if self._tables.optimizer is None:
            raise errors.FailedPreconditionError("the tables have no optimizer: they do not change")
        return self._tables.optimizer

    @property
    def grad_scaler(self) -> Any:
        """The torch.amp.GradScaler that losses are scaled by, which pushed gradients are divided
        by; where they are not finite, nothing is pushed. None: losses are as they are."""
        return self._tables.scaler

    @grad_scaler.setter
    def grad_scaler(self, scaler: Any) -> None:
        self._tables.scaler = scaler

    def flush(self) -> None:
        """Waits until all that backward() has pushed is in the tables. Raises what a push has
        met."""
        self._tables.flush()

    synchronize = flush

    def close(self) -> None:
        """Waits for pushes and ends the connections. Tables that no other process uses go."""
        self._tables.close()

    def read_rows(self, table: str, ids: Tensor | None = None) -> Tensor:
        """Rows of a table as they are; all of them without ids. A copy."""
        return self._tables.read(table, ids)

    def write_rows(self, table: str, values: Tensor, begin: int = 0) -> None:
        """Gives the rows of a table from `begin` on other values."""
        self._tables.write(table, values, begin)

    def __deepcopy__(self, memo: Any) -> Any:
        raise NotImplementedError(
            f"a {type(self).__name__} cannot be copied: its tables are on parameter servers; make "
            "another one with another name"
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise NotImplementedError(
            f"a {type(self).__name__} cannot be pickled: its tables are on parameter servers; "
            "sidereal.torch.save(path, model) saves models that have such tables"
        )


class _Feature:
    """A feature, the table that it looks up, and what it is called in results."""

    def __init__(self, name: str, called: str, table: Table, pooling: str) -> None:
        self.name, self.called, self.table, self.pooling = name, called, table, pooling


class Lookup:
    """One batch of features: what was asked for, and where each id's row will be."""

    def __init__(self, pull: Pull, places: dict[int, Tensor]) -> None:
        self.pull, self.places = pull, places


class _Collection(TableModule):
    """What both collections have in common."""

    def __init__(
        self, tables: Sequence[Any], device: Any, cluster: Any, optimizer: Any, name: str | None,
        seed: int | None, timeout_s: float, security: SecurityOptions | None,
    ) -> None:  # fmt: skip
        super().__init__(device)
        check_configs(tables)
        self._configs = list(tables)
        groups: dict[int, Group] = {}
        made: dict[str, Table] = {}
        for config in tables:
            dim = config.embedding_dim
            group = groups.setdefault(dim, Group(f"tables_{dim}", dim))
            given = config.init_fn is not None
            limits = (
                (0.0, 0.0)
                if given
                else (config.get_weight_init_min(), config.get_weight_init_max())
            )
            made[config.name] = group.add(config.name, config.num_embeddings, limits)
        #: The features of each group, in the order of tables.
        self._features: list[list[_Feature]] = [[] for _ in groups]
        #: What results are called, and where they are: (group, place).
        self._results: list[tuple[str, int, int]] = []
        number = {dim: i for i, dim in enumerate(groups)}
        for config, names in zip(tables, embedding_names(tables)):
            own = self._features[number[config.embedding_dim]]
            for feature, called in zip(config.feature_names, names):
                self._results.append((called, number[config.embedding_dim], len(own)))
                own.append(
                    _Feature(feature, called, made[config.name], pooling_of(config))
                )  # fmt: skip
        self._tables = Tables(
            list(groups.values()), cluster, optimizer, name, seed, timeout_s, security, self._fill
        )

    def _fill(self, tables: Tables) -> None:
        for config in self._configs:
            if config.init_fn is not None:
                values = torch.empty(config.num_embeddings, config.embedding_dim)
                filled = config.init_fn(values)
                tables.write(config.name, values if filled is None else filled)

    def feature_names(self) -> list[str]:
        """The features that forward() reads."""
        return list(dict.fromkeys(one.name for own in self._features for one in own))

    # --- Looking up.

    @torch.compiler.disable
    def start(self, features: Any) -> None:
        """Asks for the rows of a batch, a KeyedJaggedTensor, which a later forward() of the same
        object uses: see prefetch()."""
        started = features.__dict__.setdefault("_sidereal_started", {})
        started[id(self)] = self._look_up(features, ahead=True)

    def _lookup_of(self, features: Any) -> Lookup:
        started = getattr(features, "__dict__", {}).get("_sidereal_started", {})
        found: Lookup | None = started.pop(id(self), None)
        return found or self._look_up(features, ahead=False)

    def _look_up(self, features: Any, ahead: bool) -> Lookup:
        keys = list(features.keys())
        at = {key: i for i, key in enumerate(keys)}
        missing = [name for name in self.feature_names() if name not in at]
        if missing:
            raise errors.InvalidArgumentError(
                f"the batch has no feature {', '.join(map(repr, missing))}; it has "
                f"{', '.join(map(repr, keys)) or 'none'}"
            )
        values, bounds = features.values(), features.offset_per_key()
        if values.dtype not in (torch.int64, torch.int32):
            raise errors.InvalidArgumentError(
                f"the ids of features {', '.join(map(repr, keys))} are "
                f"{str(values.dtype).removeprefix('torch.')}; give int64 or int32"
            )
        values = values.detach().to("cpu", torch.int64)
        ids: dict[int, Tensor] = {}
        places: dict[int, Tensor] = {}
        for i, own in enumerate(self._features):
            wanted = [at[feature.name] for feature in own]
            counts = [bounds[k + 1] - bounds[k] for k in wanted]
            if wanted == list(range(wanted[0], wanted[0] + len(wanted))):
                flat = values[bounds[wanted[0]] : bounds[wanted[-1] + 1]]
            else:
                flat = torch.cat([values[bounds[k] : bounds[k + 1]] for k in wanted])
            ids[i], places[i] = unique(_in_group(flat, counts, own))
        return Lookup(self._tables.pull(ids, ahead), places)

    def _begin(self, features: Any) -> tuple[Lookup, Any]:
        lookup = self._lookup_of(features)
        return lookup, rows_of(self._tables, lookup.pull, self._anchor, self._device)


def _in_group(flat: Tensor, counts: list[int], own: Sequence[_Feature]) -> Tensor:
    """Ids of a group's features, one feature after another, as ids of the group."""
    offsets = torch.tensor([feature.table.offset for feature in own])
    limits = torch.tensor([feature.table.rows for feature in own])
    if len(set(counts)) == 1:
        shaped = flat.view(len(own), counts[0])
        offset, limit = offsets[:, None], limits[:, None]
    else:
        shaped, repeats = flat, torch.tensor(counts)
        offset, limit = (one.repeat_interleave(repeats) for one in (offsets, limits))
    if flat.numel() and bool(((shaped < 0) | (shaped >= limit)).any()):
        for feature, one in zip(own, flat.split(counts)):
            check_ids(one, f"feature '{feature.name}'", feature.table)
    return (shaped + offset).view(-1)


def _segments(own: Sequence[_Feature]) -> list[tuple[str, int, int]]:
    """Runs of features that are pooled alike: (pooling, first, behind the last)."""
    found: list[tuple[str, int, int]] = []
    for k, feature in enumerate(own):
        if found and found[-1][0] == feature.pooling:
            found[-1] = (feature.pooling, found[-1][1], k + 1)
        else:
            found.append((feature.pooling, k, k + 1))
    return found


def pooled(
    rows: Tensor, places: Tensor, lengths: Tensor, mode: str, weights: Tensor | None = None
) -> Tensor:
    """The rows at `places` by bags of so many, pooled; a bag without any is 0."""
    if weights is None and places.numel() == lengths.numel() and bool((lengths == 1).all()):
        return rows.index_select(0, places)
    offsets = torch.zeros(lengths.numel() + 1, dtype=places.dtype, device=places.device)
    torch.cumsum(lengths, 0, out=offsets[1:])
    return nn.functional.embedding_bag(
        places, rows, offsets, mode=mode, per_sample_weights=weights, include_last_offset=True
    )


class EmbeddingBagCollection(_Collection):
    """Tables on parameter servers, whose rows are pooled by bags: torchrec.EmbeddingBagCollection.

        collection = sidereal.torch.EmbeddingBagCollection(
            [EmbeddingBagConfig(10_000_000, 16, "user", ["user"])],
            cluster={"ps": ["host:2222", "host:2223"]},
            optimizer=sidereal.torch.optim.Adagrad(0.02),
        )
        collection(batch)["user"]   # [rows of the batch, 16]

    forward() takes a KeyedJaggedTensor, this package's or TorchRec's, and gives a KeyedTensor with
    the features in the order of tables. All tables are pulled at once, each row once; backward()
    pushes gradients of rows without waiting, and the parameter servers update by them. A forward()
    sees all that this process has pushed before, but for batches of prefetch().

    tables: an EmbeddingBagConfig for each, this package's or TorchRec's. is_weighted: whether the
        batch has weights, which rows are multiplied by. device: where results are.
    cluster: where the parameter servers are: {"ps": ["host:port", ...]}, a ClusterSpec, a resolver
        or a RemoteCluster; by default as TF_CONFIG says. Each has a part of every table.
    optimizer: one of sidereal.torch.optim or sidereal.optimizers; None: tables do not change.
    name: processes that give the same name have the same tables, from the first process to the
        last; by default those of one torch.distributed, or of one TF_CONFIG.
    seed: of first values; by default as torch.manual_seed() says.
    timeout_s: how long the parameter servers may take to be there, and for a pull or push.
    security: what they want of who calls them; by default as the environment says.

    Errors, which name tables and features: InvalidArgumentError for ids that a table has not, other
    dtypes and features that are missing; UnavailableError or AbortedError when a parameter server
    was lost, DeadlineExceededError when it does not answer; those of a push come from the next
    forward(), backward() or flush().
    """

    def __init__(
        self, tables: Sequence[Any], is_weighted: bool = False, device: Any = None, *,
        cluster: Any = None, optimizer: Any = None, name: str | None = None,
        seed: int | None = None, timeout_s: float = 60.0,
        security: SecurityOptions | None = None,
    ) -> None:  # fmt: skip
        self._is_weighted = is_weighted
        for config in tables:
            if is_weighted and pooling_of(config) != "sum":
                raise ValueError(
                    f"table '{config.name}' has pooling MEAN; weights are for SUM, as in "
                    "torch.nn.EmbeddingBag"
                )
        super().__init__(tables, device, cluster, optimizer, name, seed, timeout_s, security)

    def is_weighted(self) -> bool:
        """Whether the batch has weights."""
        return self._is_weighted

    def embedding_bag_configs(self) -> list[Any]:
        """The tables."""
        return self._configs

    @torch.compiler.disable
    def forward(self, features: Any) -> KeyedTensor:
        """The pooled rows of a batch."""
        weights = features.weights_or_none() if self._is_weighted else None
        if self._is_weighted and weights is None:
            raise errors.InvalidArgumentError("is_weighted=True, and the batch has no weights")
        lookup, rows = self._begin(features)
        at = {key: i for i, key in enumerate(features.keys())}
        bounds, stride = features.offset_per_key(), features.stride()
        lengths = features.lengths().to(self._device).view(-1, stride)
        made: list[Tensor] = []
        for i, own in enumerate(self._features):
            wanted = [at[feature.name] for feature in own]
            mine = lengths if wanted == list(range(len(at))) else lengths[wanted]
            scale = None if weights is None else _cut(weights, bounds, wanted).to(self._device)
            places = lookup.places[i].to(self._device)
            parts, begin = [], 0
            for pooling, first, end in _segments(own):
                count = sum(bounds[k + 1] - bounds[k] for k in wanted[first:end])
                one = slice(begin, begin + count)
                begin += count
                parts.append(
                    pooled(
                        rows[i], places[one], mine[first:end].reshape(-1), pooling,
                        None if scale is None else scale[one],
                    ).view(end - first, stride, -1)
                )  # fmt: skip
            made.append(parts[0] if len(parts) == 1 else torch.cat(parts))
        names = [called for called, _, _ in self._results]
        dims = [made[i].shape[2] for _, i, _ in self._results]
        if len(made) == 1:
            values = made[0].transpose(0, 1).reshape(stride, -1)
        else:
            values = torch.cat([made[i][k] for _, i, k in self._results], 1)
        return KeyedTensor(names, dims, values)


def _cut(values: Tensor, bounds: list[int], wanted: list[int]) -> Tensor:
    return torch.cat([values[bounds[k] : bounds[k + 1]] for k in wanted])


class EmbeddingCollection(_Collection):
    """Tables on parameter servers, whose rows are given as they are: torchrec.EmbeddingCollection.

    forward() takes a KeyedJaggedTensor and gives a dict: for each feature a JaggedTensor whose
    values are the rows of its ids. Otherwise as EmbeddingBagCollection.
    """

    def __init__(
        self, tables: Sequence[Any], device: Any = None, need_indices: bool = False, *,
        cluster: Any = None, optimizer: Any = None, name: str | None = None,
        seed: int | None = None, timeout_s: float = 60.0,
        security: SecurityOptions | None = None,
    ) -> None:  # fmt: skip
        self._need_indices = need_indices
        if len({config.embedding_dim for config in tables}) > 1:
            raise ValueError("the tables of an EmbeddingCollection have one embedding_dim")
        super().__init__(tables, device, cluster, optimizer, name, seed, timeout_s, security)

    def embedding_configs(self) -> list[Any]:
        """The tables."""
        return self._configs

    def embedding_dim(self) -> int:
        """How long rows are."""
        return int(self._configs[0].embedding_dim)

    def need_indices(self) -> bool:
        """Whether results have the ids as their weights."""
        return self._need_indices

    @torch.compiler.disable
    def forward(self, features: Any) -> dict[str, JaggedTensor]:
        """The rows of a batch."""
        lookup, rows = self._begin(features)
        at = {key: i for i, key in enumerate(features.keys())}
        bounds, stride = features.offset_per_key(), features.stride()
        lengths, values = features.lengths().to(self._device), features.values()
        out: dict[str, JaggedTensor] = {}
        for i, own in enumerate(self._features):
            every = rows[i].index_select(0, lookup.places[i].to(self._device))
            counts = [bounds[at[one.name] + 1] - bounds[at[one.name]] for one in own]
            for feature, part in zip(own, every.split(counts)):
                k = at[feature.name]
                ids = values[bounds[k] : bounds[k + 1]] if self._need_indices else None
                out[feature.called] = JaggedTensor(
                    part, ids, lengths[k * stride : (k + 1) * stride]
                )  # fmt: skip
        return {called: out[called] for called, _, _ in self._results}

