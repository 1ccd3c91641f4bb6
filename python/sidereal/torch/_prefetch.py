"""Asks for the rows of batches before they are trained with."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from torch import nn

from ._modules import _Collection


def _in_batch(batch: Any) -> list[Any]:
    """What is a KeyedJaggedTensor in a batch: itself, or a part of a list, tuple, dict or
    object."""
    if hasattr(batch, "offset_per_key") and hasattr(batch, "stride"):
        return [batch]
    if isinstance(batch, (list, tuple)):
        parts: Iterable[Any] = batch
    elif isinstance(batch, Mapping):
        parts = batch.values()
    else:
        parts = getattr(batch, "__dict__", {}).values()
    return [part for part in parts if hasattr(part, "offset_per_key") and hasattr(part, "stride")]


def prefetch(
    loader: Iterable[Any], module: nn.Module, depth: int = 1,
    features: Callable[[Any], Any] | None = None,
) -> Iterator[Any]:  # fmt: skip
    """The batches of `loader`. While one is trained with, the rows of the next `depth` are pulled
    for the collections in `module`, so that steps need not wait for them.

        for batch in sidereal.torch.prefetch(loader, model, depth=2):
            loss(model(batch)).backward()

    Rows that were pulled ahead lack what this process pushes while they wait: the gradients of up
    to `depth` batches before theirs, besides what other processes push. depth=0: nothing is pulled
    ahead.

    features: gives the KeyedJaggedTensor of a batch, the same object that forward() gets; by
    default, it is the batch or what it has at its first level. Each collection takes those that
    have all its features. ValueError for a module without collections, or a batch without one."""
    collections = [one for one in module.modules() if isinstance(one, _Collection)]
    if not collections:
        raise ValueError(
            f"{type(module).__name__} has no EmbeddingBagCollection or EmbeddingCollection; "
            "modules that offload() has made pull when they are called"
        )
    if depth < 0:
        raise ValueError(f"depth is {depth}; it is a number from 0 on")
    return _batches(loader, collections, depth, features)


def _batches(
    loader: Iterable[Any], collections: list[_Collection], depth: int,
    features: Callable[[Any], Any] | None,
) -> Iterator[Any]:  # fmt: skip
    ahead: deque[Any] = deque()
    source = iter(loader)
    is_over = False
    while True:
        while not is_over and len(ahead) <= depth:
            try:
                batch = next(source)
            except StopIteration:
                is_over = True
                break
            if depth:
                _start(batch, collections, features)
            ahead.append(batch)
        if not ahead:
            return
        yield ahead.popleft()


def _start(
    batch: Any, collections: list[_Collection], features: Callable[[Any], Any] | None
) -> None:
    found = _in_batch(batch) if features is None else [features(batch)]
    started = False
    for collection in collections:
        for one in found:
            if set(collection.feature_names()) <= set(one.keys()):
                collection.start(one)
                started = True
    if not started:
        raise ValueError(
            "a batch has no KeyedJaggedTensor with the features of a collection: give features=, "
            "a function of the batch"
        )
