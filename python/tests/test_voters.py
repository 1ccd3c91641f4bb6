"""Tasks of the job "voter" decide which start of a parameter server counts: one that hears from no
majority of them answers nothing, another start takes its place in time, and no push that was
answered is lost. Needs the right to make network namespaces."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from cut_cluster import ADDRESSES, LATER, VOTING, Cluster, push, push_until, wait_for
from network import Network, Watched, making_networks
from session_servers import PATIENCE_S

#: How long an answer may be on its way that left in time.
ON_ITS_WAY_S = 0.5
#: In which a start that says nothing is named.
NAMED_S = 3.0

BOTH_WAYS = [*(("ps1", voter) for voter in VOTING), *((voter, "ps1") for voter in VOTING)]
CUTS = {
    "both_ways": BOTH_WAYS,
    "to_the_voters": [("ps1", voter) for voter in VOTING],
    "from_the_voters": [(voter, "ps1") for voter in VOTING],
}
FROM_ITS_STANDBY = [("ps1", "ps2"), ("ps2", "ps1")]


@pytest.fixture
def network() -> Iterator[Network]:
    with making_networks(ADDRESSES) as make:
        yield make()


@pytest.fixture(params=["grpc", "star_server"])
def cluster(network: Network, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = Cluster(network, tmp_path / "cluster", request.param, has_voters=True)
    try:
        yield made
    finally:
        made.end()


def is_answered(client: Watched, seconds: float) -> bool:
    return client.until(lambda line: line[0] == "pushed", seconds) is not None


def drain(client: Watched) -> None:
    """Reads what was answered before."""
    client.until(lambda line: False, ON_ITS_WAY_S)


def said_in(event: dict[str, object], name: str) -> float:
    fields = event["fields"]
    assert isinstance(fields, dict)
    return float(fields[name])


def check_named(cluster: Cluster, began: float) -> None:
    """A voter says that ps 1 is silent, in time since then."""

    def told() -> list[float]:
        return [
            datetime.fromisoformat(str(one["ts"])).timestamp()
            for voter in VOTING
            for one in cluster.events(voter, "lease_lapsed")
            if "ps/replica:0/task:1" in str(one)
        ]

    wait_for(told)
    assert min(told()) - began < NAMED_S


def take_its_place(cluster: Cluster, client: Watched) -> None:
    """Another start of ps 1 counts, and has what was answered."""
    answered = sum(line[0] == "pushed" for line in client.seen)
    cluster.serve(LATER)
    wait_for(lambda: cluster.events(LATER, "standby_taken"))
    found = cluster.counts(f"grpc://{ADDRESSES[LATER]}:4000")
    assert found in (answered, answered + 1), "the last one was made, and not answered"


@pytest.mark.parametrize("way", CUTS)
def test_one_that_no_majority_hears_answers_nothing(
    network: Network, cluster: Cluster, way: str
) -> None:
    """Its standby goes on: it is the vote alone that it lacks. Clients reach it all the while."""
    client = cluster.client()
    push_until(cluster, client, "ps1", "standby_in_sync", 1)
    network.cut(*CUTS[way])
    began = time.time()
    wait_for(lambda: cluster.events("ps1", "lease_lost"))
    assert not cluster.events("ps1", "standby_lost")
    drain(client)
    assert not is_answered(client, 1), "pushes are answered without a lease"
    check_named(cluster, began)
    network.heal(*CUTS[way])
    push(client, 50)
    assert len(cluster.events("ps1", "lease_held")) == 2
    assert not cluster.events("ps1", "task_deposed")


def test_one_that_is_cut_off_from_all_but_clients_loses_its_place(
    network: Network, cluster: Cluster
) -> None:
    client = cluster.client()
    push_until(cluster, client, "ps1", "standby_in_sync", 1)
    network.cut(*BOTH_WAYS, *FROM_ITS_STANDBY)
    wait_for(lambda: cluster.events("ps1", "lease_lost"))
    drain(client)
    take_its_place(cluster, client)
    assert not is_answered(client, 1), "both answer"
    network.heal(*BOTH_WAYS, *FROM_ITS_STANDBY)
    assert cluster.processes["ps1"].wait(PATIENCE_S) == 1
    (deposed,) = cluster.events("ps1", "task_deposed")
    (later,) = cluster.events(LATER, "task_up")
    assert f"'by': '{later['incarnation']}'" in str(deposed)
    (before,), (after,) = cluster.events("ps1", "lease_held"), cluster.events(LATER, "lease_held")
    assert said_in(after, "view") > said_in(before, "view")


def test_one_that_stood_still_finds_that_its_place_is_taken(
    network: Network, cluster: Cluster
) -> None:
    client = cluster.client()
    push_until(cluster, client, "ps1", "standby_in_sync", 1)
    stopped = cluster.processes["ps1"]
    stopped.send_signal(signal.SIGSTOP)
    check_named(cluster, time.time())
    drain(client)
    take_its_place(cluster, client)
    stopped.send_signal(signal.SIGCONT)
    assert stopped.wait(PATIENCE_S) == 1
    assert cluster.events("ps1", "task_deposed")


def test_voters_may_be_lost_while_there_is_a_majority(network: Network, cluster: Cluster) -> None:
    """Sessions do not notice; and one that comes back has its file."""
    client = cluster.client()
    push_until(cluster, client, "ps1", "standby_in_sync", 1)

    def kill(name: str) -> None:
        cluster.processes[name].kill()
        cluster.processes[name].wait()

    kill("voter0")
    push(client, 200)
    assert not cluster.events("worker", "session_ended")
    kill("voter1")
    wait_for(lambda: all(cluster.events(ps, "lease_lost") for ps in ("ps0", "ps1", "ps2")))
    drain(client)
    assert not is_answered(client, 1)
    cluster.serve("voter0")
    push(client, 50)
    assert not cluster.events("worker", "session_ended"), "a session has ended"
    for ps in ("ps0", "ps1", "ps2"):
        assert not cluster.events(ps, "task_deposed")


def test_one_that_is_started_again_at_once_waits_for_nobody(
    network: Network, cluster: Cluster
) -> None:
    """It sees itself that the process before it has ended."""
    client = cluster.client()
    push_until(cluster, client, "ps1", "standby_in_sync", 1)
    for number in range(2, 5):
        cluster.processes["ps1"].kill()
        cluster.processes["ps1"].wait()
        cluster.serve("ps1")
        wait_for(lambda number=number: len(cluster.events("ps1", "lease_held")) == number)
        assert said_in(cluster.events("ps1", "lease_held")[-1], "seconds") < 1.3
        push_until(cluster, client, "ps1", "standby_in_sync", number)
    stdin = cluster.processes["client"].stdin
    assert stdin is not None
    stdin.close()
    line = client.until(lambda line: line[0] == "value", PATIENCE_S)
    assert line is not None and line[1:] == ["0", "0"], "lost, and made twice"
