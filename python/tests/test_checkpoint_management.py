"""The list of a folder's checkpoints, what is deleted, and waiting for the next one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sidereal import checkpoint_management as management
from sidereal import checkpoint_manager, errors
from sidereal.checkpoint_manager import CheckpointManager

HOUR = 3600.0


def make_files(prefix: Path | str, shards: int = 1, mark: str = ".0a1b2c3d") -> str:
    """Files as a checkpoint has them."""
    for shard in range(shards):
        Path(f"{prefix}.data-{shard:05d}-of-{shards:05d}{mark}").write_bytes(b"data")
    Path(f"{prefix}.index").write_bytes(b"index")
    return str(prefix)


class Counter:
    def __init__(self, value: int = 0) -> None:
        self.value = value

    def __int__(self) -> int:
        return self.value

    def assign_add(self, delta: int) -> None:
        self.value += delta


class FakeCheckpoint:
    """Writes empty files, and keeps which checkpoints were restored."""

    def __init__(self) -> None:
        self.save_counter = Counter()
        self.restored: list[str] = []

    def write(self, file_prefix: str, options: Any = None) -> str:
        return make_files(file_prefix, shards=2)

    def restore(self, save_path: str, options: Any = None) -> None:
        self.restored.append(save_path)


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


Making = Callable[..., CheckpointManager]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make(tmp_path: Path, clock: Clock) -> Making:
    def made(max_to_keep: int | None = 2, **arguments: Any) -> CheckpointManager:
        checkpoint = arguments.pop("checkpoint", None) or FakeCheckpoint()
        return CheckpointManager(
            checkpoint, tmp_path / "run", max_to_keep, clock=clock, **arguments
        )

    return made


def indices(tmp_path: Path) -> list[str]:
    return sorted(path.stem for path in (tmp_path / "run").glob("*.index"))


def test_the_state_is_written_as_tensorflow_writes_it(tmp_path: Path) -> None:
    first, second = (str(tmp_path / name) for name in ("ckpt-1", "ckpt-2"))
    management.update_checkpoint_state(
        tmp_path, second, [first, second], None, [11.5, 12.25], last_preserved_timestamp=10.0
    )
    assert (tmp_path / "checkpoint").read_text().splitlines() == [
        'model_checkpoint_path: "ckpt-2"',
        'all_model_checkpoint_paths: "ckpt-1"',
        'all_model_checkpoint_paths: "ckpt-2"',
        "all_model_checkpoint_timestamps: 11.5",
        "all_model_checkpoint_timestamps: 12.25",
        "last_preserved_timestamp: 10.0",
    ]
    state = management.get_checkpoint_state(tmp_path)
    assert state == management.CheckpointState(second, [first, second], [11.5, 12.25], 10.0)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_relative_paths_are_resolved_against_the_folder(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_text(
        'model_checkpoint_path: "./ckpt-7"\n# a comment\nall_model_checkpoint_paths: "a/ckpt-6"\n'
        f'all_model_checkpoint_paths: "{tmp_path}/ckpt-7"\n'
    )
    state = management.get_checkpoint_state(tmp_path)
    assert state is not None
    assert state.model_checkpoint_path == f"{tmp_path}/./ckpt-7"
    assert state.all_model_checkpoint_paths == [f"{tmp_path}/a/ckpt-6", f"{tmp_path}/ckpt-7"]


def test_a_folder_given_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train").mkdir()
    management.update_checkpoint_state("train", "train/model-0")
    assert 'model_checkpoint_path: "model-0"' in Path("train/checkpoint").read_text()
    management.update_checkpoint_state("train", "elsewhere/model-0")
    state = management.get_checkpoint_state("train")
    assert state is not None
    assert state.model_checkpoint_path == str(tmp_path / "elsewhere/model-0")


@pytest.mark.parametrize("name", ['a "b" \\ c', "ä€\n\tx", "a'b", "\udcff"])
def test_names_of_all_kinds(tmp_path: Path, name: str) -> None:
    management.update_checkpoint_state(tmp_path, str(tmp_path / name))
    state = management.get_checkpoint_state(tmp_path)
    assert state is not None
    assert state.model_checkpoint_path == str(tmp_path / name)


@pytest.mark.parametrize(
    "text",
    ["", "garbage", 'model_checkpoint_path: "a', "model_checkpoint_path: a", "wrong: 3",
     'model_checkpoint_path: "a"\nall_model_checkpoint_timestamps: later',
     'all_model_checkpoint_paths: "a"'],
)  # fmt: skip
def test_a_damaged_state_is_none(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "checkpoint").write_text(text)
    with caplog.at_level(logging.WARNING, "sidereal"):
        assert management.get_checkpoint_state(tmp_path) is None
    assert str(tmp_path / "checkpoint") in caplog.text
    assert management.latest_checkpoint(tmp_path) is None


def test_no_state_is_none(tmp_path: Path) -> None:
    assert management.get_checkpoint_state(tmp_path) is None
    assert management.get_checkpoint_state(tmp_path / "nowhere") is None
    assert management.latest_checkpoint(tmp_path / "nowhere") is None


def test_other_names_of_the_state(tmp_path: Path) -> None:
    prefix = make_files(tmp_path / "model-3")
    management.update_checkpoint_state(tmp_path, prefix, latest_filename="latest")
    assert management.latest_checkpoint(tmp_path) is None
    assert management.latest_checkpoint(tmp_path, "latest") == prefix
    with pytest.raises(errors.InvalidArgumentError, match="choose another name"):
        management.update_checkpoint_state(tmp_path, str(tmp_path / "checkpoint"))
    with pytest.raises(ValueError, match="1 all_model_checkpoint_timestamps for 2 checkpoints"):
        management.update_checkpoint_state(
            tmp_path, "b", ["a", "b"], all_model_checkpoint_timestamps=[1.0]
        )


@pytest.mark.parametrize("mark", [".0a1b2c3d", ""])
def test_a_checkpoint_exists_when_all_its_files_do(tmp_path: Path, mark: str) -> None:
    prefix = tmp_path / "c[k]pt-1"
    assert not management.checkpoint_exists(prefix)
    make_files(prefix, 2, mark)
    assert management.checkpoint_exists(prefix)
    management.update_checkpoint_state(tmp_path, str(prefix))
    assert management.latest_checkpoint(tmp_path) == str(prefix)
    assert len(management.get_checkpoint_mtimes([prefix, tmp_path / "other"])) == 1
    data = Path(f"{prefix}.data-00001-of-00002{mark}")
    data.unlink()
    assert not management.checkpoint_exists(prefix)
    assert management.latest_checkpoint(tmp_path) is None
    data.write_bytes(b"")
    Path(f"{prefix}.index").unlink()
    assert not management.checkpoint_exists(prefix)


def test_removing_takes_the_files_of_one_checkpoint(tmp_path: Path) -> None:
    make_files(tmp_path / "ckpt-1", 2)
    make_files(tmp_path / "ckpt-1", 3, ".11111111")  # an earlier writing that did not end
    other = make_files(tmp_path / "ckpt-10")
    (tmp_path / "ckpt-1.notes").write_text("mine")
    management.remove_checkpoint(tmp_path / "ckpt-1")
    assert management.checkpoint_exists(other)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "ckpt-1.notes", "ckpt-10.data-00000-of-00001.0a1b2c3d", "ckpt-10.index",
    ]  # fmt: skip


def test_arguments_of_a_manager(make: Making) -> None:
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="max_to_keep"):
            make(wrong)
    with pytest.raises(ValueError, match="step_counter"):
        make(checkpoint_interval=3)


def test_a_manager_keeps_the_newest(make: Making, tmp_path: Path) -> None:
    manager = make(2)
    assert manager.latest_checkpoint is None and manager.checkpoints == []
    saved = [manager.save() for _ in range(4)]
    assert saved == [str(tmp_path / f"run/ckpt-{n}") for n in (1, 2, 3, 4)]
    assert indices(tmp_path) == ["ckpt-3", "ckpt-4"]
    assert manager.checkpoints == saved[2:]
    assert manager.latest_checkpoint == saved[3]
    assert management.latest_checkpoint(manager.directory) == saved[3]


def test_a_manager_keeps_all(make: Making, tmp_path: Path) -> None:
    manager = make(None, checkpoint_name="model")
    for _ in range(5):
        manager.save()
    assert indices(tmp_path) == [f"model-{n}" for n in range(1, 6)]


def test_a_given_number_that_comes_again_is_the_newest(make: Making, tmp_path: Path) -> None:
    manager = make(2)
    for number in (5, 7, 5, 9):
        manager.save(checkpoint_number=number)
    assert indices(tmp_path) == ["ckpt-5", "ckpt-9"]


def test_the_list_survives_a_restart(make: Making, tmp_path: Path, clock: Clock) -> None:
    first = make(3)
    first.save()
    first.save()
    clock.now += 10
    second = make(3, checkpoint=first.checkpoint)
    assert second.checkpoints == first.checkpoints
    assert second.latest_checkpoint == first.latest_checkpoint
    second.save()
    second.save()
    assert indices(tmp_path) == ["ckpt-2", "ckpt-3", "ckpt-4"]


def test_the_folder_may_be_moved(make: Making, tmp_path: Path, clock: Clock) -> None:
    manager = make(2)
    manager.save()
    moved = (tmp_path / "run").rename(tmp_path / "moved")
    assert management.latest_checkpoint(moved) == str(moved / "ckpt-1")
    again = CheckpointManager(FakeCheckpoint(), moved, 2, clock=clock)
    assert again.checkpoints == [str(moved / "ckpt-1")]


def test_files_that_no_manager_wrote_stay(make: Making, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    make_files(tmp_path / "run/ckpt-0")
    manager = make(1)
    for _ in range(3):
        manager.save()
    assert indices(tmp_path) == ["ckpt-0", "ckpt-3"]


def test_every_n_hours_one_stays_for_ever(make: Making, tmp_path: Path, clock: Clock) -> None:
    manager = make(1, keep_checkpoint_every_n_hours=2)
    for _ in range(7):  # at 0, 1, ... 6 hours
        manager.save()
        clock.now += HOUR
    # Kept when their turn came: two hours after the manager was made, and two hours after that.
    assert indices(tmp_path) == ["ckpt-3", "ckpt-5", "ckpt-7"]
    assert manager.checkpoints == [str(tmp_path / "run/ckpt-7")]
    state = management.get_checkpoint_state(manager.directory)
    assert state is not None
    assert state.last_preserved_timestamp == 1_000_000.0 + 4 * HOUR
    again = make(1, keep_checkpoint_every_n_hours=2, checkpoint=manager.checkpoint)
    again.save()
    again.save()
    assert indices(tmp_path) == ["ckpt-3", "ckpt-5", "ckpt-7", "ckpt-9"]


def test_a_clock_that_went_back_disowns_what_is_older(
    make: Making, tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    first = make(1)
    first.save()
    clock.now -= 10 * HOUR
    with caplog.at_level(logging.WARNING, "sidereal"):
        second = make(1, checkpoint=first.checkpoint)
    assert "the clock says" in caplog.text
    assert second.latest_checkpoint == str(tmp_path / "run/ckpt-1")
    assert second.checkpoints == []
    for _ in range(3):
        clock.now += 1
        second.save()
    assert indices(tmp_path) == ["ckpt-1", "ckpt-4"]


def test_an_interval_of_steps(make: Making, tmp_path: Path) -> None:
    step = Counter()
    manager = make(None, step_counter=step, checkpoint_interval=2)
    assert manager.checkpoint_interval == 2
    made = []
    for step.value in (0, 0, 1, 2, 3, 4):
        made.append(manager.save() is not None)
    assert made == [True, False, False, True, False, True]
    assert manager.save(check_interval=False) is not None
    step.value = 5
    assert manager.save() is None  # 4 is the step of the last one, however it came to be saved


@pytest.mark.parametrize("interval", [0, 1, 3])
def test_the_step_just_restored_is_not_saved_again(make: Making, interval: int) -> None:
    step = Counter(6)
    first = make(step_counter=step, checkpoint_interval=interval)
    assert first.save() is not None
    second = make(step_counter=step, checkpoint_interval=interval, checkpoint=first.checkpoint)
    assert second.restore_or_initialize() == first.latest_checkpoint
    assert second.save() is None
    step.value += max(interval, 1)
    assert second.save() is not None


def test_restore_or_initialize(make: Making) -> None:
    initialised = []
    first = make(init_fn=lambda: initialised.append(1))
    assert first.restore_or_initialize() is None
    assert initialised == [1]
    first.save()
    second = make(init_fn=lambda: initialised.append(2))
    assert second.restore_or_initialize() == first.latest_checkpoint
    assert initialised == [1]
    assert second.checkpoint.restored == [first.latest_checkpoint]
    assert make().restore_or_initialize() == first.latest_checkpoint


def test_the_state_names_the_new_one_before_old_ones_go(
    make: Making, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = make(1)
    manager.save()

    def refuse(prefix: str) -> None:
        assert management.latest_checkpoint(tmp_path / "run") == str(tmp_path / "run/ckpt-2")
        raise PermissionError(prefix)

    monkeypatch.setattr(checkpoint_manager, "remove_checkpoint", refuse)
    with pytest.raises(PermissionError, match="ckpt-1"):
        manager.save()
    assert indices(tmp_path) == ["ckpt-1", "ckpt-2"]


def test_two_writers_of_one_folder(make: Making, tmp_path: Path) -> None:
    first = make(1)
    second = make(1, checkpoint_name="other")
    first.save()
    with pytest.raises(errors.AbortedError, match="folder of its own") as caught:
        second.save()
    assert str(tmp_path / "run/checkpoint") in str(caught.value)
    assert indices(tmp_path) == ["ckpt-1"]
    first.save()
    assert indices(tmp_path) == ["ckpt-2"]


def test_a_writer_that_comes_while_another_one_writes(make: Making, tmp_path: Path) -> None:
    first, second = make(1), make(1, checkpoint_name="other")
    first.save()
    write = first.checkpoint.write

    def interrupted(file_prefix: str, options: Any = None) -> str:
        saved = write(file_prefix)
        (tmp_path / "run/checkpoint").unlink()
        second.save()
        return str(saved)

    first.checkpoint.write = interrupted
    with pytest.raises(errors.AbortedError):
        first.save()
    assert indices(tmp_path) == ["ckpt-1", "ckpt-2", "other-1"]
    assert management.latest_checkpoint(tmp_path / "run") == str(tmp_path / "run/other-1")


def save(folder: Path, number: int) -> str:
    prefix = make_files(folder / f"ckpt-{number}")
    management.update_checkpoint_state(folder, prefix)
    return prefix


def test_the_iterator_gives_the_newest_only(tmp_path: Path) -> None:
    save(tmp_path, 1)
    found = []
    for prefix in management.checkpoints_iterator(tmp_path, timeout=0):
        found.append(prefix)
        if len(found) == 1:
            save(tmp_path, 2)
            save(tmp_path, 3)
    assert found == [str(tmp_path / "ckpt-1"), str(tmp_path / "ckpt-3")]


def test_the_iterator_ends_at_its_timeout(tmp_path: Path) -> None:
    assert list(management.checkpoints_iterator(tmp_path, timeout=0)) == []
    asked = []

    def at_the_third() -> bool:
        asked.append(True)
        if len(asked) == 2:
            save(tmp_path, 1)
        return len(asked) == 3

    found = list(management.checkpoints_iterator(tmp_path, timeout=0, timeout_fn=at_the_third))
    assert found == [str(tmp_path / "ckpt-1")]
    assert len(asked) == 3


def test_the_iterator_leaves_time_between_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(management.time, "sleep", pauses.append)
    save(tmp_path, 1)
    found = management.checkpoints_iterator(tmp_path, min_interval_secs=60, timeout=0)
    assert next(found) == str(tmp_path / "ckpt-1")
    save(tmp_path, 2)
    assert next(found) == str(tmp_path / "ckpt-2")
    assert len(pauses) == 1 and 50 < pauses[0] <= 60


def test_waiting_for_a_checkpoint(tmp_path: Path) -> None:
    assert management.wait_for_new_checkpoint(tmp_path, timeout=0) is None
    first = save(tmp_path, 1)
    assert management.wait_for_new_checkpoint(tmp_path) == first
    assert management.wait_for_new_checkpoint(tmp_path, first, timeout=0) is None
    found: list[str | None] = []
    waiting = threading.Thread(
        target=lambda: found.append(
            management.wait_for_new_checkpoint(tmp_path, first, seconds_to_sleep=0.01, timeout=60)
        )
    )
    waiting.start()
    second = save(tmp_path, 2)
    waiting.join(60)
    assert found == [second]
