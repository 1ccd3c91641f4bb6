"""A parameter server whose standby has given its copy to a later start of it refuses everything,
and ends: no push is answered that the later start has not."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from counting import Counting
from followed import Cluster
from session_servers import PATIENCE_S, addresses
from test_server_standbys import PS, wait_until_in_sync

#: Of a standby that is not heard of.
TIMEOUT_MS = 1500

pytestmark = pytest.mark.usefixtures("fresh_graph")


class Replaced:
    """Three ps that are standbys of each other, and a later start of ps 1 at another address, that
    those who use the first one do not know of."""

    def __init__(self, protocol: str, folder: Path) -> None:
        self.log = (folder / "log").open("w+")
        self._protocol = protocol
        self.cluster = Cluster(
            protocol, "--option", f"standby_timeout_ms={TIMEOUT_MS}", ps=PS, replicas=2,
            stderr=self.log,
        )  # fmt: skip

    def replace(self) -> None:
        """Another process has the place of ps 1 when this returns, and lets sessions in."""
        before, cluster = self.cluster.jobs, self.cluster
        (new,) = addresses(1)
        jobs = {"ps": [before["ps"][0], new, before["ps"][2]], "worker": addresses(1)}
        options = ["--protocol", self._protocol, "--lanes", "2"]
        cluster.processes.serve(jobs, "ps", 1, *options, "--option", "replicas=2")
        cluster.processes.serve(jobs, "worker", 0, *options)
        self.target = f"grpc://{jobs['worker'][0]}"

    def ended(self) -> str:
        """What the first start said, which has ended by itself."""
        assert self.cluster.ps[1].wait(PATIENCE_S) == 1
        self.log.seek(0)
        return self.log.read()


@pytest.mark.parametrize("protocol", ["grpc", "star_server"])
@pytest.mark.parametrize("is_stopped", [False, True], ids=["runs", "was_stopped"])
def test_no_push_is_answered_that_a_later_start_has_not(
    protocol: str, is_stopped: bool, tmp_path: Path
) -> None:
    it = Replaced(protocol, tmp_path)
    with it.cluster as cluster:
        workers = [Counting(cluster.target, seed, PS) for seed in range(3)]
        workers[0].session.run(workers[0].initialize)
        wait_until_in_sync(cluster.target, streams=2)
        threads = [threading.Thread(target=worker.run) for worker in workers]
        for thread in threads:
            thread.start()
        for worker in workers:
            assert worker.many.acquire(timeout=PATIENCE_S)
        if is_stopped:
            cluster.pause_ps(1)
            # When it goes on, what waits for its standby has waited for too long.
            threading.Event().wait(1.2 * TIMEOUT_MS / 1000)
        it.replace()
        if is_stopped:
            cluster.resume_ps(1)
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "it was answered on and on"
        (line,) = [line for line in it.ended().splitlines() if " E /job:ps" in line]
        assert "a later start of the task has taken its place" in line
        assert "told_by=/job:ps/replica:0/task:2" in line
        later = Counting(it.target, 7, PS)
        counts = later.now()[1]
        assert (counts >= sum(worker.answered[1] for worker in workers)).all()
        assert (counts <= sum(worker.sent[1] for worker in workers)).all()
