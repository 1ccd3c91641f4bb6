"""Model.fit() that is killed and goes on: each row is trained once."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from session_servers import children_of

import sidereal as sr
from conftest import planted, small_model
from sidereal import errors
from sidereal.launch import PROTOCOLS

PATIENCE_S = 60

#: Each row adds 1 to a counter of its own.
COUNTING = textwrap.dedent("""
    import sys
    import numpy as np
    import sidereal as sr
    from sidereal.keras import layers

    ROWS, EPOCHS = 6001, 3
    protocol, directory = sys.argv[1:3]
    ps, workers, full_every = map(int, sys.argv[3:])
    model = sr.Model(seed=1)
    row = model.input("row", sr.int64, (1,))
    counter = layers.Embedding(ROWS, 1, "zeros", name="counter")(row)
    model.compile(counter, sr.optimizers.SGD(1.0), loss=-sr.reduce_sum(counter))
    with sr.LocalCluster(ps=ps, workers=workers, ps_lanes=2, protocol=protocol) as cluster:
        print("began", flush=True)
        result = model.fit(
            {"row": np.arange(ROWS)[:, None]}, cluster=cluster, epochs=EPOCHS, batch_size=7,
            checkpoint_dir=directory, save_every="97steps", keep=2, verbose=False,
            checkpoint_full_every=full_every,
            on_progress=lambda p: print("step", p.steps, flush=True),
        )
        counts = model.get_variable("counter/embeddings").ravel()
        print("ended", result.rows, result.checkpoints.rows_before, counts.min(), counts.max(),
              "all", flush=True)
""")


class Counting:
    """The program above, in a process of its own."""

    def __init__(self, *arguments: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", COUNTING, *map(str, arguments)],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.handle = os.pidfd_open(self.process.pid)
        self.text = b""

    def wait_for(self, word: bytes) -> bool:
        """Until `word` was printed; False when the program has ended without."""
        stream = self.process.stdout
        assert stream is not None
        deadline = time.monotonic() + PATIENCE_S
        while word not in self.text:
            left = deadline - time.monotonic()
            assert left > 0, f"no {word!r} in {self.text!r}"
            if select.select([stream], [], [], left)[0]:
                chunk = os.read(stream.fileno(), 65536)
                if not chunk:
                    return False
                self.text += chunk
        return True

    def kill_wholly(self) -> None:
        tasks = children_of(self.process.pid)
        handles = [os.pidfd_open(pid) for pid in tasks]
        for pid in [self.process.pid, *tasks]:
            os.kill(pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)
        for handle in handles:
            assert select.select([handle], [], [], PATIENCE_S)[0]
            os.close(handle)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_row_is_counted_once_whatever_is_killed_when(protocol: str, tmp_path: Path) -> None:
    draw = random.Random(protocol)
    full_every = 3 if protocol in ("grpc", "star_server") else 1
    kills = 0
    # The second cluster goes on from the first one's checkpoints with other tasks.
    for ps, workers in ((2, 2), (1, 3), (3, 1)):
        run = Counting(protocol, tmp_path, ps, workers, full_every)
        assert run.wait_for(b"began"), run.text
        if select.select([run.process.stdout], [], [], draw.uniform(0, 1.0))[0]:
            run.wait_for(b"step")
        if select.select([run.handle], [], [], draw.uniform(0, 0.7))[0]:
            break
        # There is something to go on from in the end.
        deadline = time.monotonic() + PATIENCE_S
        while kills == 2 and not (tmp_path / "checkpoint").exists():
            assert time.monotonic() < deadline
            select.select([run.handle], [], [], 0.005)
        run.kill_wholly()
        kills += 1
    run = Counting(protocol, tmp_path, 2, 1, full_every)
    assert run.wait_for(b" all\n"), run.text
    run.process.wait(PATIENCE_S)
    words = run.text.decode().split("ended")[1].split()
    assert int(words[0]) + int(words[1]) == 3 * 6001
    assert int(words[1]) > 0
    assert [float(word) for word in words[2:4]] == [3, 3]
    assert kills > 0


def test_a_fit_goes_on_where_another_ended(cluster: sr.LocalCluster, tmp_path: Path) -> None:
    data = planted(3000)
    expected = small_model()
    expected.fit(data, cluster=cluster, epochs=2, batch_size=64, verbose=False)
    first = small_model()
    first.fit(
        data, cluster=cluster, epochs=2, batch_size=64, steps_max=60, verbose=False,
        checkpoint_dir=tmp_path, save_every="25steps",
    )
    model = small_model()
    result = model.fit(
        data, cluster=cluster, epochs=2, batch_size=64, verbose=False, checkpoint_dir=tmp_path,
        keep=1,
    )
    report = result.checkpoints
    assert report.resumed_from == f"{tmp_path}/model.ckpt-60"
    assert (report.steps_before, report.rows_lost, report.failed) == (60, 0, 0)
    assert result.steps == 94 - 60
    for variable in model.variables():
        np.testing.assert_array_equal(
            model.get_variable(variable.name), expected.get_variable(variable.name)
        )
    assert [p.name for p in tmp_path.glob("*.index")] == ["model.ckpt-94.index"]
    # As others read it.
    reader = sr._native.CheckpointReader(f"{tmp_path}/model.ckpt-94")
    np.testing.assert_array_equal(
        reader.read("vectors/embeddings"), model.get_variable("vectors/embeddings")
    )
    assert "vectors/embeddings/accumulator" in reader.names()
    assert reader.read("sidereal_training/step") == 94


def test_what_cannot_be_meant_is_refused(cluster: sr.LocalCluster, tmp_path: Path) -> None:
    model = small_model()
    with pytest.raises(errors.InvalidArgumentError, match="full_every is 0"):
        model.fit(planted(64), cluster=cluster, checkpoint_dir=tmp_path, checkpoint_full_every=0)
    with pytest.raises(errors.InvalidArgumentError, match="1000steps"):
        model.fit(planted(64), cluster=cluster, checkpoint_dir=tmp_path, save_every="now and then")
    with pytest.raises(errors.InvalidArgumentError, match="checkpoint_dir"):
        model.fit(planted(64), cluster=cluster, resume=tmp_path / "model.ckpt-1")
    with pytest.raises(errors.NotFoundError, match="model.ckpt-1"):
        model.fit(
            planted(64), cluster=cluster, checkpoint_dir=tmp_path, resume=tmp_path / "model.ckpt-1"
        )
