"""Parameter servers and tables for tests of sidereal.torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from session_servers import free_ports

import sidereal as sr

torch = pytest.importorskip("torch", reason="PyTorch is not installed (./dev setup --peers)")

import sidereal.torch as st  # noqa: E402

PROTOCOLS = ("grpc", "star_server")


class ParameterServers:
    """Some in this process."""

    def __init__(self, count: int, protocol: str = "grpc") -> None:
        self.cluster = {"ps": [f"localhost:{port}" for port in free_ports(count)]}
        self.all = [sr.train.Server(self.cluster, "ps", i, protocol) for i in range(count)]

    def stop(self) -> None:
        for server in self.all:
            server.stop()


def servers_fixture(*kinds: tuple[int, str]) -> Any:
    """A fixture of so many parameter servers over a protocol, of each kind in turn: their
    cluster."""

    @pytest.fixture(scope="module", params=kinds, ids=[f"{n}-{name}" for n, name in kinds])
    def cluster(request: pytest.FixtureRequest) -> Iterator[dict[str, list[str]]]:
        servers = ParameterServers(*request.param)
        yield servers.cluster
        servers.stop()

    return cluster


def jagged(
    rows: dict[str, Sequence[Sequence[int]]], weights: Any = None, dtype: Any = None
) -> st.KeyedJaggedTensor:
    """Ids of features, by rows of the batch."""
    values = [one for bags in rows.values() for bag in bags for one in bag]
    lengths = [len(bag) for bags in rows.values() for bag in bags]
    return st.KeyedJaggedTensor(
        list(rows), torch.tensor(values, dtype=dtype or torch.int64), weights,
        torch.tensor(lengths),
    )  # fmt: skip
