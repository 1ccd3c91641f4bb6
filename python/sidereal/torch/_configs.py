"""What tables are, in TorchRec's words."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


class PoolingType(enum.Enum):
    """How the rows of a bag become one (torchrec.PoolingType)."""

    SUM = "SUM"
    MEAN = "MEAN"
    NONE = "NONE"


@dataclass
class BaseEmbeddingConfig:
    """A table of num_embeddings rows of embedding_dim floats.

    feature_names: the features that look it up. weight_init_min, weight_init_max: first values are
    uniform between them; +-sqrt(1 / num_embeddings) where they are absent. init_fn: fills a tensor
    [num_embeddings, embedding_dim] of this process in its place, which is then sent."""

    num_embeddings: int
    embedding_dim: int
    name: str = ""
    feature_names: list[str] = field(default_factory=list)
    weight_init_max: float | None = None
    weight_init_min: float | None = None
    init_fn: Callable[[Any], Any] | None = None

    def get_weight_init_max(self) -> float:
        """The largest first value."""
        given = self.weight_init_max
        return self.num_embeddings**-0.5 if given is None else given

    def get_weight_init_min(self) -> float:
        """The smallest first value."""
        given = self.weight_init_min
        return -(self.num_embeddings**-0.5) if given is None else given

    def num_features(self) -> int:
        """How many features look it up."""
        return len(self.feature_names)


@dataclass
class EmbeddingBagConfig(BaseEmbeddingConfig):
    """A table whose rows are pooled by bags (torchrec.EmbeddingBagConfig)."""

    pooling: Any = PoolingType.SUM


@dataclass
class EmbeddingConfig(BaseEmbeddingConfig):
    """A table whose rows are given as they are (torchrec.EmbeddingConfig)."""


def pooling_of(config: Any) -> str:
    """ "sum" or "mean" of a config, of TorchRec's too; ValueError for another pooling."""
    given = getattr(config, "pooling", PoolingType.SUM)
    name = str(getattr(given, "value", given)).lower()
    if name not in ("sum", "mean"):
        raise ValueError(f"table '{config.name}' has pooling {given!r}; it is SUM or MEAN")
    return name


def check_configs(configs: Sequence[Any]) -> None:
    """ValueError for tables that cannot be made."""
    if not configs:
        raise ValueError("tables is empty: give a config for each table")
    seen: set[str] = set()
    for config in configs:
        if not config.name:
            raise ValueError(f"a table has no name: {config!r}")
        if config.name in seen:
            raise ValueError(f"two tables are called '{config.name}'")
        seen.add(config.name)
        if config.num_embeddings < 1 or config.embedding_dim < 1:
            raise ValueError(
                f"table '{config.name}' has {config.num_embeddings} rows of "
                f"{config.embedding_dim}; both must be positive"
            )
        if not config.feature_names:
            raise ValueError(f"no feature looks up table '{config.name}': give feature_names")


def embedding_names(configs: Sequence[Any]) -> list[list[str]]:
    """What each table's features are called in results: "feature", and "feature@table" where
    several tables have it, as in TorchRec."""
    count: dict[str, int] = {}
    for config in configs:
        for feature in config.feature_names:
            count[feature] = count.get(feature, 0) + 1
    return [
        [name if count[name] == 1 else f"{name}@{config.name}" for name in config.feature_names]
        for config in configs
    ]
