"""What is said to be lost with a server, from what it and those who pushed have said."""

from __future__ import annotations

from typing import Any

import pytest

from sidereal import _pushes
from sidereal._pushes import UnsavedPushes

PS, ONE, OTHER = (f"/job:{name}/replica:0/task:{task}" for name, task in
                  (("ps", 1), ("worker", 0), ("worker", 1)))  # fmt: skip
#: (incarnation, lane, number, pushes, rows) of answers of the server's first life, 7.
LANE_0, LANE_0_LATER, LANE_1 = (7, 0, 5, 5, 50), (7, 0, 6, 6, 60), (7, 1, 2, 2, 0)


class Cluster:
    """Says what is told."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def pushed(self, _: float, job: str) -> list[Any]:
        return [one for one in self.said if not job or one[0].startswith(f"/job:{job}/")]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def unsaved(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> UnsavedPushes:
    class Reader:
        def __init__(self, prefix: str) -> None:
            assert prefix == "model-5"

        def pushed(self, life: int) -> dict[str, tuple[int, int]]:
            return {"w": (3, 30), "": (1, 0)} if life == 7 else {}

    monkeypatch.setattr(_pushes, "CheckpointReader", Reader)
    monkeypatch.setattr(_pushes._Asked, "client", lambda _: cluster)
    made = UnsavedPushes("grpc://localhost:1", ["ps"])
    made._looking()  # Ends it: it asks when it is told to.
    with made._lock:
        made._lives.clear()
    return made


def test_it_is_all_that_was_answered_less_what_is_saved(
    unsaved: UnsavedPushes, cluster: Cluster
) -> None:
    cluster.said = [(PS, 7, [("w", 1, 10)], []), (ONE, 1, [], [LANE_0]), (OTHER, 2, [], [])]
    unsaved.look()
    cluster.said = [
        (PS, 8, [], []), (ONE, 1, [], [LANE_0, LANE_1]), (OTHER, 2, [], [LANE_0_LATER]),
    ]  # fmt: skip
    lost = unsaved.take_lost(PS, "model-5")
    assert lost is not None
    assert (lost.pushes, lost.rows, lost.rows_of) == (6 + 2 - 4, 30, {"w": 30})
    assert lost.is_exact and str(lost) == "4 pushes, with 30 rows of tables (w: 30)"
    assert unsaved.take_lost(PS, "model-5") is None, "it is said once"


@pytest.mark.parametrize("gone", ["who pushed", "its own sessions", "somebody who is back"])
def test_it_is_at_least_that_when_who_pushed_is_lost_too(
    unsaved: UnsavedPushes, cluster: Cluster, gone: str
) -> None:
    own = [LANE_1] if gone == "its own sessions" else []
    cluster.said = [(PS, 7, [("w", 9, 90), ("v", 1, 5)], own), (ONE, 1, [], []), (OTHER, 2, [], [])]
    unsaved.look()
    incarnation = {"who pushed": 0, "somebody who is back": 3}.get(gone, 2)
    cluster.said = [(PS, 8, [], []), (ONE, 1, [], [LANE_0]), (OTHER, incarnation, [], [])]
    lost = unsaved.take_lost(PS, "model-5")
    assert lost is not None and not lost.is_exact
    assert (lost.pushes, lost.rows, lost.rows_of) == (10 - 4, 65, {"v": 5, "w": 60})
    assert str(lost) == "at least 6 pushes, with 65 rows of tables (w: 60, v: 5)"


def test_rows_of_which_no_table_is_known_are_said(unsaved: UnsavedPushes, cluster: Cluster) -> None:
    cluster.said = [(PS, 7, [("w", 4, 40), ("v", 1, 5)], []), (ONE, 1, [], [])]
    unsaved.look()
    cluster.said = [(PS, 8, [], []), (ONE, 1, [], [LANE_0_LATER])]
    lost = unsaved.take_lost(PS, "model-5")
    assert lost is not None and lost.is_exact
    assert str(lost) == "2 pushes, with 30 rows of tables (at least w: 10, v: 5)"


def test_of_a_server_that_was_never_asked_nothing_is_said(
    unsaved: UnsavedPushes, cluster: Cluster
) -> None:
    cluster.said = [(PS, 8, [], []), (ONE, 1, [], [LANE_0])]
    assert unsaved.take_lost(PS, "model-5") is None
