"""The network between a ps and the one that keeps its standby is cut under load, both ways or one
way, and heals: it goes on alone, says so, and has a standby again. Needs the right to make network
namespaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cut_cluster import ADDRESSES, LATER, SERVERS, Cluster, push, push_until, wait_for
from network import Network, making_networks
from session_servers import PATIENCE_S

#: What is lost: of what goes from one to the other.
CUTS = {
    "both_ways": [("ps1", "ps2"), ("ps2", "ps1")],
    "to_the_standby": [("ps1", "ps2")],
    "from_the_standby": [("ps2", "ps1")],
}


@pytest.fixture
def make_network() -> Iterator[Callable[[], Network]]:
    """Networks that know nothing of each other."""
    with making_networks({name: ADDRESSES[name] for name in [*SERVERS, LATER]}) as make:
        yield make


def cut_and_heal(network: Network, cuts: list[tuple[str, str]], folder: Path) -> None:
    cluster = Cluster(network, folder, "star_server")
    try:
        client = cluster.client()
        push_until(cluster, client, "ps1", "standby_in_sync", 1)
        network.cut(*cuts)
        push_until(cluster, client, "ps1", "standby_lost", 1)
        assert "acknowledged" in str(cluster.events("ps1", "standby_lost")[0])
        push(client, 50)
        network.heal(*cuts)
        push_until(cluster, client, "ps1", "standby_in_sync", 2)
        # What was answered meanwhile is in the copy.
        cluster.processes["ps1"].kill()
        cluster.processes["ps1"].wait()
        cluster.serve("ps1")
        push(client, 50)
        assert cluster.events("ps1", "standby_taken")
        stdin = cluster.processes["client"].stdin
        assert stdin is not None
        stdin.close()
        line = client.until(lambda line: line[0] == "value", PATIENCE_S)
        assert line is not None and line[1:] == ["0", "0"], "lost, and made twice"
        assert not cluster.events("ps1", "task_deposed")
    finally:
        cluster.end()


def test_a_ps_that_is_cut_off_goes_on_alone_and_has_a_standby_again(
    make_network: Callable[[], Network], tmp_path: Path
) -> None:
    """All cuts at the same time: it is waited most of the time."""
    networks = [make_network() for _ in CUTS]
    with ThreadPoolExecutor(len(CUTS)) as pool:
        cuts = [
            pool.submit(cut_and_heal, network, cuts, tmp_path / name)
            for network, (name, cuts) in zip(networks, CUTS.items(), strict=True)
        ]
    for one in cuts:
        one.result()


def test_one_whose_place_was_taken_while_it_was_cut_off_ends_when_it_hears_of_it(
    make_network: Callable[[], Network], tmp_path: Path
) -> None:
    network = make_network()
    cluster = Cluster(network, tmp_path / "cluster", "star_server")
    try:
        client = cluster.client()
        push_until(cluster, client, "ps1", "standby_in_sync", 1)
        network.cut(*CUTS["both_ways"])
        push_until(cluster, client, "ps1", "standby_lost", 1)
        cluster.serve(LATER)
        push_until(cluster, client, LATER, "standby_taken", 1)
        push(client, 50)  # By those that reach it, and it cannot know better.
        network.heal(*CUTS["both_ways"])
        assert cluster.processes["ps1"].wait(PATIENCE_S) == 1
        (deposed,) = cluster.events("ps1", "task_deposed")
        (later,) = cluster.events(LATER, "task_up")
        assert f"'by': '{later['incarnation']}'" in str(deposed)
    finally:
        cluster.end()


def test_one_that_is_cut_off_answers_nothing_where_two_must_have_it(
    make_network: Callable[[], Network], tmp_path: Path
) -> None:
    network = make_network()
    cluster = Cluster(network, tmp_path / "cluster", "star_server", min_insync_replicas=2)

    def cut_off(times: int) -> None:
        network.cut(*CUTS["both_ways"])
        wait_for(lambda: len(cluster.events("ps1", "pushes_wait")) == times)
        # What was answered before.
        client.until(lambda line: False, 0.5)
        assert client.until(lambda line: line[0] == "pushed", 1) is None

    try:
        client = cluster.client()
        push_until(cluster, client, "ps1", "standby_in_sync", 1)
        cut_off(1)
        network.heal(*CUTS["both_ways"])
        push(client, 50)
        client.until(lambda line: False, 0.5)  # That is noticed, several times a second.
        cut_off(2)
        # What another process has that takes its place is what was answered.
        pushed = sum(line[0] == "pushed" for line in client.seen)
        cluster.serve(LATER)
        wait_for(lambda: cluster.events(LATER, "standby_taken"))
        network.heal(*CUTS["both_ways"])
        assert cluster.processes["ps1"].wait(PATIENCE_S) == 1
        assert client.until(lambda line: line[0] == "pushed", 1) is None
        found = cluster.counts(f"grpc://{ADDRESSES[LATER]}:4000")
        assert found in (pushed, pushed + 1), "the last one was made, and not answered"
    finally:
        cluster.end()
