"""Caches of datasets in files: Dataset.cache(filename)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sidereal as sr
from sidereal import errors

Dataset = sr.data.Dataset


def counted(calls: list[int], count: int = 3) -> Any:
    """A dataset that says when its elements are made."""

    def make() -> Any:
        for i in range(count):
            calls.append(i)
            yield i, {"name": f"n{i}"}

    spec = (sr.TensorSpec((), sr.int64), {"name": sr.TensorSpec((), sr.string)})
    return Dataset.from_generator(make, output_signature=spec)


def plain(dataset: Any) -> list[Any]:
    return [(int(x), more["name"].numpy()) for x, more in dataset]


def test_the_first_whole_pass_writes_what_later_ones_read(tmp_path: Path) -> None:
    calls: list[int] = []
    path = tmp_path / "cache"
    ds = counted(calls).cache(path)
    expected = [(0, b"n0"), (1, b"n1"), (2, b"n2")]
    assert plain(ds.take(2)) == expected[:2]
    assert not path.exists()
    assert plain(ds.repeat(2)) == expected * 2
    assert path.exists()
    assert os.listdir(tmp_path) == ["cache"]
    assert plain(ds) == expected
    assert plain(counted(calls).cache(str(path))) == expected
    assert calls == [0, 1, 0, 1, 2]
    assert len(ds.cache("")._definition.outputs) == 2


def test_another_process_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    rows = Dataset.from_tensor_slices(np.arange(6).reshape(3, 2))
    assert len(list(rows.cache(str(path)))) == 3
    program = (
        "import sys, sidereal as sr\n"
        "ds = sr.data.Dataset.from_tensor_slices(sr.zeros([0, 2], 'int64')).cache(sys.argv[1])\n"
        "print([x.numpy().tolist() for x in ds])\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, timeout=60
    )
    assert ended.stdout == "[[0, 1], [2, 3], [4, 5]]\n", ended.stderr


def test_a_process_that_is_killed_leaves_no_half_a_cache(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    program = (
        "import os, signal, sys, sidereal as sr\n"
        "it = iter(sr.data.Dataset.range(200_000).cache(sys.argv[1]))\n"
        "[next(it) for _ in range(150_000)]\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, path], timeout=120)
    assert os.listdir(tmp_path) == ["cache.part"]
    assert (tmp_path / "cache.part").stat().st_size > 0
    found = Dataset.range(3).cache(path).as_numpy_iterator()
    assert list(found) == [0, 1, 2]
    assert os.listdir(tmp_path) == ["cache"]


def test_two_iterators_do_not_write_at_once(tmp_path: Path) -> None:
    ds = Dataset.range(3).cache(tmp_path / "cache")
    first, second = iter(ds), iter(ds)
    next(first)
    with pytest.raises(errors.AlreadyExistsError, match="another iterator writes"):
        next(second)
    assert [int(x) for x in first] == [1, 2]
    assert [int(x) for x in second] == [0, 1, 2]


def test_an_error_of_an_element_keeps_nothing(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    numbers = Dataset.from_tensor_slices([1.0, np.nan, 3.0])
    it = iter(numbers.map(lambda x: sr.debugging.check_numerics(x, "here")).cache(path))
    assert float(next(it)) == 1
    with pytest.raises(errors.InvalidArgumentError, match="here"):
        next(it)
    assert [float(x) for x in it] == [3]
    assert not path.exists()


@pytest.mark.parametrize("done", [2, 5])
def test_a_position_is_where_the_rest_follows(tmp_path: Path, done: int) -> None:
    def make(name: str) -> Any:
        shuffled = Dataset.range(6).shuffle(6, seed=2, reshuffle_each_iteration=False)
        return shuffled.cache(tmp_path / name).repeat(3)

    first = iter(make("a"))
    for _ in range(done * 2):
        next(first)
    position = first.save()
    rest = [int(x) for x in first]
    # Of this process' file, and where there is none.
    for name in ("a", "b"):
        other = iter(make(name))
        other.restore(position)
        assert [int(x) for x in other][: 6 - done * 2 % 6] == rest[: 6 - done * 2 % 6]


def test_names_may_be_values(tmp_path: Path) -> None:
    names = Dataset.from_tensor_slices([str(tmp_path / "x"), str(tmp_path / "y")])
    ds = names.flat_map(lambda name: Dataset.range(2).cache(name))
    assert [int(x) for x in ds] == [0, 1, 0, 1]
    assert sorted(os.listdir(tmp_path)) == ["x", "y"]


def test_what_is_damaged_is_said(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    ds = counted([], 20).cache(path)
    plain(ds)
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    for _ in range(100):
        at = int(rng.integers(len(whole)))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 64]) + whole[at + 1 :])
        with pytest.raises(errors.DataLossError, match=r"cache: the cache is damaged; delete it"):
            plain(ds)
        path.write_bytes(whole[:at])
        with pytest.raises(errors.DataLossError, match="the cache is damaged"):
            plain(ds)
    path.write_bytes(whole)
    assert len(plain(ds)) == 20
    with pytest.raises(errors.FailedPreconditionError, match="the cache has elements"):
        list(Dataset.range(3).cache(path))
    for name in (tmp_path, tmp_path / "none" / "x"):
        with pytest.raises((errors.NotFoundError, errors.InvalidArgumentError)):
            list(Dataset.range(3).cache(name))


def test_a_definition_goes_to_other_processes(tmp_path: Path) -> None:
    ds = Dataset.range(2).cache(tmp_path / "cache")
    again = Dataset.deserialize(ds.serialize())
    assert [int(x) for x in again] == [0, 1]
    assert [int(x) for x in Dataset.deserialize(ds.serialize())] == [0, 1]
    assert len(ds) == 2
