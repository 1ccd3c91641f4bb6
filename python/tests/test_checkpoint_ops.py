"""Ops that save and restore, in sessions on servers over every protocol, and in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from session_servers import Processes, addresses

import sidereal as sr
from sidereal import v1
from sidereal._dispatch import apply
from sidereal._native import CheckpointReader
from sidereal.errors import DataLossError, InvalidArgumentError, NotFoundError
from sidereal.launch import PROTOCOLS

ROWS, DIM = 40_000, 16


@pytest.fixture(params=PROTOCOLS)
def target(request: pytest.FixtureRequest) -> Iterator[str]:
    """A cluster of one worker and two parameter servers with two lanes each."""
    cluster = {"worker": addresses(1), "ps": addresses(2)}
    processes = Processes()
    try:
        for job, tasks in cluster.items():
            for task in range(len(tasks)):
                processes.serve(cluster, job, task, "--protocol", request.param, "--lanes", 2)
        yield f"grpc://{cluster['worker'][0]}"
    finally:
        processes.end()


class Tables:
    """A counting table on each ps, with its slots, and nodes that save and restore them."""

    def __init__(self) -> None:
        self.prefix = v1.placeholder(np.str_, [], "prefix")
        self.base = v1.placeholder(np.str_, [], "base")
        self.base_cut = v1.placeholder(np.str_, [], "base_cut")
        self.ids = v1.placeholder(np.int64, [None], "ids")
        self.tables = []
        pushes, parts, restores = [], [], []
        for ps in range(2):
            with v1.device(f"/job:ps/task:{ps}"):
                table = v1.get_variable(f"w_{ps}", [ROWS, DIM], initializer=v1.zeros_initializer())
                step = v1.get_variable(
                    f"step_{ps}", [], np.int64, initializer=v1.zeros_initializer()
                )
            grads = sr.ones([sr.shape(self.ids)[0], DIM])
            optimizer = v1.train.AdagradOptimizer(1.0, initial_accumulator_value=1.0)
            slices = sr.IndexedSlices(grads, self.ids, [ROWS, DIM])
            pushes.append(optimizer.apply_gradients([(slices, table)], global_step=step))
            slot = optimizer.get_slot(table, "accumulator")
            variables = [table, slot, step]
            self.tables.append(variables)
            names = [f"w_{ps}", f"w_{ps}/Adagrad", f"step_{ps}"]
            handles = [variable.handle for variable in variables]
            with v1.device(f"/job:ps/task:{ps}"):
                parts.append(
                    apply(
                        "SaveVariables",
                        [self.prefix, self.base_cut, *handles],
                        {"names": names, "shard": ps, "shards": 3, "tracks_changes": True},
                    )
                )
                restores.append(
                    apply("RestoreVariables", [self.prefix, *handles], {"names": names})
                )
        with v1.device("/job:ps/task:0"):
            note = apply(
                "SaveTensors",
                [self.prefix, v1.constant(["a", "", "snowman \u2603"])],
                {"names": ["note"], "shard": 2, "shards": 3},
            )
            self.save = apply("CommitCheckpoint", [self.prefix, self.base, *parts, note], {})
            self.note = apply(
                "RestoreTensors",
                [self.prefix],
                {"names": ["note"], "dtypes": ["string"], "shapes": [1, 3]},
            )
        self.push = v1.group(*pushes)
        self.restore = v1.group(*(part.op if hasattr(part, "op") else part for part in restores))

    def feeds(self, prefix: str, base: str = "", cut: str = "") -> dict[object, object]:
        return {self.prefix: prefix, self.base: base, self.base_cut: cut}


def values_of(prefix: str) -> dict[str, np.ndarray]:
    reader = CheckpointReader(prefix)
    return {name: reader.read(name).numpy() for name in reader.names() if name != "note"}


def check_is_a_cut(values: dict[str, np.ndarray], ids: np.ndarray) -> None:
    """Weights and slots of each ps are what one number of pushes of `ids` makes of them."""
    counts = np.bincount(ids, minlength=ROWS).astype(np.float64)
    for ps in range(2):
        slot = values[f"w_{ps}/Adagrad"]
        pushes = round(float(slot[ids[0], 0] - 1.0) / counts[ids[0]] ** 2)
        wanted = 1.0 + counts[:, None] ** 2 * pushes * np.ones((1, DIM))
        np.testing.assert_allclose(slot, wanted, rtol=1e-6)
        weights, accumulated = np.zeros(ROWS), np.ones(ROWS)
        for _ in range(pushes):
            accumulated += counts**2
            weights -= counts / np.sqrt(accumulated)
        np.testing.assert_allclose(values[f"w_{ps}"], weights[:, None] * np.ones((1, DIM)), 1e-4)


def test_saved_while_training_and_restored(target: str, tmp_path: Path) -> None:
    ids = np.random.default_rng(1).integers(0, ROWS, 200)
    prefix = str(tmp_path / "deep" / "model.ckpt-1")
    with v1.Graph().as_default():
        tables = Tables()
        with v1.Session(target) as session:
            session.run(v1.global_variables_initializer())
            stop = threading.Event()
            errors: list[sr.errors.Error] = []

            def train() -> None:
                try:
                    while not stop.is_set():
                        session.run(tables.push, {tables.ids: ids})
                except sr.errors.Error as error:
                    errors.append(error)

            trainer = threading.Thread(target=train)
            trainer.start()
            cut, base = "", ""
            for i in range(6):
                name = f"{prefix}{i}"
                cut = session.run(tables.save, tables.feeds(name, base, cut)).decode()
                base = name
                check_is_a_cut(values_of(name), ids)
            stop.set()
            trainer.join()
            assert not errors
            reader = CheckpointReader(f"{prefix}5")
            assert reader.base == "model.ckpt-14" and reader.cut == cut
            saved = values_of(f"{prefix}5")
            assert session.run(tables.note, tables.feeds(base))[2].decode() == "snowman \u2603"
        v1.Session.reset(target)
        with v1.Session(target) as session:
            session.run(v1.global_variables_initializer())
            session.run(tables.restore, tables.feeds(base))
            flat = [variable for variables in tables.tables for variable in variables]
            names = [f"{n}_{ps}{s}" for ps in range(2) for n, s in (("w", ""), ("w", "/Adagrad"),
                                                                    ("step", ""))]  # fmt: skip
            for name, value in zip(names, session.run(flat), strict=True):
                np.testing.assert_array_equal(value, saved[name])
            session.run(tables.push, {tables.ids: ids})
            with pytest.raises(NotFoundError, match="model.ckpt-9"):
                session.run(tables.restore, tables.feeds(str(tmp_path / "model.ckpt-9")))


def test_in_this_process(tmp_path: Path) -> None:
    prefix = str(tmp_path / "c-1")
    part = apply(
        "SaveTensors",
        [sr.constant(prefix), sr.constant([1.0, 2.0]), sr.constant(3, sr.int64)],
        {"names": ["x", "n"], "shard": 0, "shards": 1},
    )
    apply("CommitCheckpoint", [sr.constant(prefix), sr.constant(""), part], {})
    reader = CheckpointReader(prefix)
    assert reader.names() == ["n", "x"]
    assert (reader.dtype("x"), reader.shape("x"), reader.base) == ("float32", (2,), "")
    np.testing.assert_array_equal(reader.read("x").numpy(), [1.0, 2.0])
    with pytest.raises(NotFoundError, match="no tensor 'y'"):
        reader.dtype("y")
    data = next(tmp_path.glob("c-1.data-*"))
    data.write_bytes(b"\1" + data.read_bytes()[1:])
    with pytest.raises(DataLossError, match=data.name):
        CheckpointReader(prefix).read("x")
    data.unlink()
    with pytest.raises(NotFoundError, match=data.name):
        CheckpointReader(prefix)
    with pytest.raises(InvalidArgumentError, match="prefix"):
        apply(
            "SaveTensors",
            [sr.constant(""), sr.constant(1.0)],
            {"names": ["x"], "shard": 0, "shards": 1},
        )
    with pytest.raises(DataLossError, match="a part of a checkpoint"):
        apply(
            "CommitCheckpoint", [sr.constant(prefix), sr.constant(""), sr.constant("no part")], {}
        )
