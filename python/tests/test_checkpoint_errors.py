"""What keeps checkpoints from being written and read, with each of the front ends that save: the
error says what is wrong, where, and what to do; training goes on, and what was good stays."""

from __future__ import annotations

import itertools
import os
import re
import resource
import signal
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from other_process import in_another_process
from session_servers import PATIENCE_S, Processes, addresses
from strategies import strategy_of

import sidereal as sr
import sidereal.v1 as tf
from sidereal import errors, keras
from sidereal.distribute.coordinator import ClusterCoordinator
from sidereal.distribute.experimental.partitioners import FixedShardsPartitioner

ROWS = 8192
_numbers = itertools.count()


class Tasks:
    """Two parameter servers and a worker. The first ps is of another user than the test, if that
    may say so; the second one has a disk that can be filled."""

    def __init__(self, protocol: str) -> None:
        self.cluster = {"ps": addresses(2), "worker": addresses(1)}
        self.processes = Processes()
        other = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        # Python ignores SIGXFSZ; the server is to ignore it too.
        assert signal.getsignal(signal.SIGXFSZ) is signal.SIG_IGN
        _, self._ps, _ = (
            self.processes.serve(self.cluster, job, task, "--protocol", protocol, **options)
            for job, task, options in (
                ("ps", 0, other), ("ps", 1, {"restore_signals": False}), ("worker", 0, {})
            )
        )  # fmt: skip

    def fill_disk(self) -> None:
        """No file of ps 1 may be longer than this, as if the disk had no more room."""
        resource.prlimit(self._ps.pid, resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))

    def make_room(self) -> None:
        whole = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(self._ps.pid, resource.RLIMIT_FSIZE, whole)


@pytest.fixture(scope="module", params=["grpc", "star_server"])
def tasks(request: pytest.FixtureRequest) -> Iterator[Tasks]:
    made = Tasks(request.param)
    yield made
    made.processes.end()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that all users may write to."""
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o777)
        yield Path(made)


class Hooked:
    """A monitored session with a CheckpointSaverHook and its Saver."""

    def __init__(self, cluster: Any, folder: Path, rows: int = ROWS, name: str = "table") -> None:
        self.folder = folder
        # Each has variables of its own, as if the servers were new.
        with tf.Graph().as_default(), tf.container(f"job {next(_numbers)}"):
            with tf.device(tf.train.replica_device_setter(2, worker_device="/job:worker/task:0")):
                step = tf.train.get_or_create_global_step()
                self._table = tf.get_variable(
                    name, [rows], initializer=tf.zeros_initializer(),
                    partitioner=tf.fixed_size_partitioner(2),
                )  # fmt: skip
                grown = [part.assign_add(tf.ones_like(part)) for part in self._table]
                self._train = tf.group(*grown, step.assign_add(1))
                self._whole = self._table.as_tensor()
            self._hook = tf.train.CheckpointSaverHook(
                str(folder), save_steps=1, saver=tf.train.Saver()
            )
            chief = tf.train.ChiefSessionCreator(
                master=f"grpc://{cluster['worker'][0]}", checkpoint_dir=str(folder)
            )
            self._session = tf.train.MonitoredSession(chief, [self._hook])

    def train_and_save(self) -> None:
        self._session.run(self._train)
        self._hook.wait()
        # What kept the checkpoint from being written is raised by the next run.
        self._session.run(self._whole)
        self._hook.wait()

    def trained(self) -> np.ndarray:
        return np.asarray(self._session.run(self._whole))


class Managed:
    """A coordinator with a CheckpointManager."""

    def __init__(self, cluster: Any, folder: Path, rows: int = ROWS, name: str = "table") -> None:
        self.folder = folder
        strategy = strategy_of(cluster, FixedShardsPartitioner(2))
        self._coordinator = ClusterCoordinator(strategy)
        with strategy.scope():
            self._table = table = sr.Variable(np.zeros(rows, np.float32))

        @sr.function
        def step() -> None:
            for part in table.variables:
                part.assign_add(sr.ones_like(part))

        self._step = step
        checkpoint = sr.train.Checkpoint(**{name: table})
        self.manager = sr.train.CheckpointManager(checkpoint, folder, max_to_keep=3)
        if self.manager.latest_checkpoint is None:
            self.manager.save()
        else:
            checkpoint.restore(self.manager.latest_checkpoint).assert_consumed()

    def train_and_save(self) -> None:
        self._coordinator.schedule(self._step)
        self._coordinator.join(PATIENCE_S)
        self.manager.save()

    def trained(self) -> np.ndarray:
        return np.asarray(self._table.numpy())


class Grows(keras.Model):
    """One is added to its table in each step."""

    def __init__(self, rows: int, name: str) -> None:
        super().__init__()
        setattr(self, name, self.add_weight(shape=(rows,), initializer="zeros", name="weight"))
        self._name_of_table = name

    @property
    def grown(self) -> Any:
        return getattr(self, self._name_of_table)

    def train_step(self, data: Any) -> Any:
        for part in self.grown.variables:
            part.assign_add(sr.ones_like(part))
        return {"loss": sr.constant(0.0)}


class Fitted:
    """A model of Keras with a ModelCheckpoint."""

    def __init__(self, cluster: Any, folder: Path, rows: int = ROWS, name: str = "table") -> None:
        self.folder = folder
        with strategy_of(cluster, FixedShardsPartitioner(2)).scope():
            self._model = Grows(rows, name)
            self._model.compile("sgd", "mse")
        self._told = keras.callbacks.ModelCheckpoint(folder / "w-{epoch}", save_weights_only=True)
        self._epoch = 0
        state = sr.train.get_checkpoint_state(folder)
        if state is None:
            self._model.save_weights(folder / "w-0")
        else:
            status = self._model.load_weights(state.model_checkpoint_path)
            status.assert_existing_objects_matched()

    def train_and_save(self) -> None:
        x = np.zeros((1, 1), np.float32)
        self._epoch += 1
        self._model.fit(
            x, x, epochs=self._epoch, initial_epoch=self._epoch - 1, verbose=0,
            callbacks=[self._told],
        )  # fmt: skip

    def trained(self) -> np.ndarray:
        return np.asarray(self._model.grown.numpy())


FRONT_ENDS: list[Callable[..., Any]] = [Hooked, Managed, Fitted]
front_ends = pytest.mark.parametrize("front_end", FRONT_ENDS)


def files_of(folder: Path) -> dict[str, bytes]:
    """What it has of checkpoints."""
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if not path.name.startswith(("events", "graph"))
    }


# --- What keeps them from being written.


class Faults:
    """(what brings a fault about, what ends it, the error, what it says)"""

    def __init__(self, tasks: Tasks, folder: Path) -> None:
        self._tasks, self._folder = tasks, folder
        self._aside = folder.with_name(folder.name + ".aside")

    def full(self) -> Any:
        return (
            self._tasks.fill_disk, self._tasks.make_room, errors.ResourceExhaustedError,
            r"/job:ps/replica:0/task:1.*cannot write to {folder}/\S+\.data-0000\d-of-0000\d\S*: "
            r"File too large; make room on that disk",
        )  # fmt: skip

    def read_only(self) -> Any:
        who = "/job:ps/replica:0/task:0" if os.geteuid() == 0 else ""
        return (
            lambda: os.chmod(self._folder, 0o555), lambda: os.chmod(self._folder, 0o777),
            errors.PermissionDeniedError,
            who + r".*{folder}/\S+\.data-\S+: Permission denied; allow the user whose process",
        )  # fmt: skip


@front_ends
@pytest.mark.parametrize("fault", ["full", "read_only"])
def test_what_cannot_be_written(tasks: Tasks, folder: Path, front_end: Any, fault: str) -> None:
    begin, end, kind, pattern = getattr(Faults(tasks, folder), fault)()
    job = front_end(tasks.cluster, folder)
    job.train_and_save()
    before, newest = files_of(folder), sr.train.latest_checkpoint(folder)
    begin()
    try:
        with pytest.raises(kind, match=pattern.format(folder=re.escape(str(folder)))):
            job.train_and_save()
    finally:
        end()
    assert files_of(folder) == before and sr.train.latest_checkpoint(folder) == newest
    assert (job.trained() == 2).all()
    job.train_and_save()
    assert (job.trained() == 3).all() and sr.train.latest_checkpoint(folder) != newest
    assert (front_end(tasks.cluster, folder).trained() == 3).all()


OTHER_WRITER = """
import sys
import sidereal as sr
print(sr.train.Checkpoint(v=sr.Variable(7.0)).save(sys.argv[1] + "/other"))
"""


@front_ends
def test_two_writers_in_one_folder(
    tasks: Tasks, folder: Path, front_end: Any, caplog: pytest.LogCaptureFixture
) -> None:
    job = front_end(tasks.cluster, folder)
    job.train_and_save()
    assert not caplog.records
    others = in_another_process(OTHER_WRITER, folder).strip()
    mine = files_of(folder)
    state = re.escape(str(folder / "checkpoint"))
    if front_end is Managed:
        with pytest.raises(
            errors.AbortedError, match=f"{state} was changed by another writer.*Giv"
        ):
            job.train_and_save()
        assert files_of(folder) == mine
    else:
        job.train_and_save()
        (said,) = [each.message for each in caplog.records if each.levelname == "WARNING"]
        assert re.match(f"{state} was changed by another program.*a folder of its own", said)
        assert sr.train.latest_checkpoint(folder) != others
    assert (job.trained() == 2).all()
    # Neither has deleted what the other one had.
    assert mine.keys() <= files_of(folder).keys()
    assert sr.train.load_variable(others, "v/.ATTRIBUTES/VARIABLE_VALUE") == 7.0


# --- What keeps them from being read.


def xxh3_of_8(data: bytes) -> int:
    """The XXH3 of eight bytes, as its specification says."""
    mask = (1 << 64) - 1
    first, last = struct.unpack("<II", data)
    mixed = (last + (first << 32)) ^ 0x1CAD21F72C81017C ^ 0xDB979083E96DD4DE

    def turned(bits: int) -> int:
        return (mixed << bits | mixed >> (64 - bits)) & mask

    mixed ^= turned(49) ^ turned(24)
    mixed = mixed * 0x9FB21C651E98DF25 & mask
    mixed ^= (mixed >> 35) + 8
    mixed = mixed * 0x9FB21C651E98DF25 & mask
    return mixed ^ mixed >> 28


def make_newer(prefix: str) -> None:
    begin = b"SRCKPT" + struct.pack("<H", 3)
    Path(prefix + ".index").write_bytes(begin + struct.pack("<Q", xxh3_of_8(begin)))


def lose_shard(prefix: str) -> None:
    whole = Path(prefix)
    (lost,) = whole.parent.glob(f"{whole.name}.data-00001-of-*")
    lost.unlink()


def damage(prefix: str) -> None:
    path = Path(prefix + ".index")
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


#: What is done to a checkpoint, and what is said of it.
UNREADABLE: dict[str, tuple[Callable[[str], None], str]] = {
    "newer": (make_newer, r"{prefix}\.index has format 3; this release reads formats 1 to 2: read"),
    "lost": (lose_shard, r"{prefix}.*data-00001-of-"),
    "damaged": (damage, r"{prefix}\.index is damaged"),
}


@front_ends
@pytest.mark.parametrize("what", UNREADABLE)
def test_what_cannot_be_read(tasks: Tasks, folder: Path, front_end: Any, what: str) -> None:
    job = front_end(tasks.cluster, folder)
    job.train_and_save()
    older = files_of(folder)
    job.train_and_save()
    newest = sr.train.latest_checkpoint(folder)
    assert newest is not None
    do, pattern = UNREADABLE[what]
    do(newest)
    left = files_of(folder)
    with pytest.raises((errors.Error, ValueError)) as raised:
        front_end(tasks.cluster, folder)
    assert re.search(pattern.format(prefix=re.escape(newest)), str(raised.value))
    assert files_of(folder) == left
    # The state file of before names the one that is good.
    (folder / "checkpoint").write_bytes(older["checkpoint"])
    assert (front_end(tasks.cluster, folder).trained() == 1).all()


@front_ends
@pytest.mark.parametrize(
    ("other", "pattern"),
    [({"name": "other"}, "other"), ({"rows": ROWS + 2}, rf"\[{ROWS}\].*\[{ROWS + 2}\]")],
)
def test_a_checkpoint_of_another_model(
    tasks: Tasks, folder: Path, front_end: Any, other: Any, pattern: str
) -> None:
    job = front_end(tasks.cluster, folder)
    job.train_and_save()
    newest = sr.train.latest_checkpoint(folder)
    before = files_of(folder)
    with pytest.raises((errors.Error, AssertionError)) as raised:
        front_end(tasks.cluster, folder, **other)
    said = str(raised.value)
    assert newest is not None and newest in said and re.search(pattern, said)
    assert files_of(folder) == before
    assert (front_end(tasks.cluster, folder).trained() == 1).all()
