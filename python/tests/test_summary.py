"""Figures for TensorBoard (sidereal.summary), as TensorBoard's own EventAccumulator reads them."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from event_files import accumulated, values_of
from PIL import Image

import sidereal as sr
import sidereal.v1 as v1
from sidereal import errors, summary


def written(path: Path) -> Any:
    return accumulated(path)


def test_scalars_have_step_value_and_description(tmp_path: Path) -> None:
    writer = summary.create_file_writer(tmp_path)
    with writer.as_default():
        assert summary.scalar("loss", 0.5, step=3)
        assert summary.scalar("loss", sr.constant(0.25), step=np.int64(7))
        assert summary.scalar("count", sr.constant(5), step=sr.constant(1), description="*how*")
        assert summary.scalar("half", sr.cast(sr.constant(1.5), sr.bfloat16), step=1)
    found = written(tmp_path)
    assert values_of(found, "loss") == [(3, 0.5), (7, 0.25)]
    assert values_of(found, "count") == [(1, 5.0)]
    assert values_of(found, "half") == [(1, 1.5)]
    assert found.SummaryMetadata("count").summary_description == "*how*"
    assert found.SummaryMetadata("loss").plugin_data.plugin_name == "scalars"


def test_without_a_writer_nothing_is_written_and_no_step_is_needed() -> None:
    assert summary.scalar("loss", 1.0) is False
    assert summary.histogram("h", [1.0], step=1) is False
    assert summary.text("t", "x") is False
    assert summary.image("i", np.zeros((1, 2, 2, 1))) is False
    assert summary.graph(v1.Graph()) is False
    assert summary.should_record_summaries() is False
    with summary.create_noop_writer().as_default():
        assert summary.scalar("loss", 1.0, step=1) is True


def test_a_step_is_given_or_set(tmp_path: Path) -> None:
    with summary.create_file_writer(tmp_path).as_default():
        with pytest.raises(ValueError, match="No step set"):
            summary.scalar("x", 1.0)
        summary.experimental.set_step(4)
        assert summary.experimental.get_step() == 4
        summary.scalar("x", 1.0)
        summary.scalar("x", 2.0, step=9)
        counter = sr.Variable(20, dtype=sr.int64)
        summary.experimental.set_step(counter)
        summary.scalar("x", 3.0)
        counter.assign_add(1)
        summary.scalar("x", 4.0)
        summary.experimental.set_step(None)
    assert values_of(written(tmp_path), "x") == [(4, 1.0), (9, 2.0), (20, 3.0), (21, 4.0)]


def test_writers_nest_and_bring_their_step(tmp_path: Path) -> None:
    a, b = (summary.create_file_writer(tmp_path / name) for name in "ab")
    with a.as_default(step=10):
        summary.scalar("x", 1.0)
        with b.as_default(step=20):
            summary.scalar("x", 2.0)
        summary.scalar("x", 3.0)
    assert summary.experimental.get_step() is None
    assert values_of(written(tmp_path / "a"), "x") == [(10, 1.0), (10, 3.0)]
    assert values_of(written(tmp_path / "b"), "x") == [(20, 2.0)]


def test_record_if_says_what_is_written(tmp_path: Path) -> None:
    step = sr.Variable(0, dtype=sr.int64)
    with summary.create_file_writer(tmp_path).as_default(step=step):
        with summary.record_if(lambda: sr.equal(step % 2, 0)):
            for _ in range(4):
                summary.scalar("even", float(step.numpy()))
                step.assign_add(1)
        with summary.record_if(False):
            assert summary.should_record_summaries() is False
            assert summary.scalar("never", 1.0) is False
            with summary.record_if(True):
                assert summary.scalar("inside", 1.0) is True
        assert summary.should_record_summaries() is True
    found = written(tmp_path)
    assert values_of(found, "even") == [(0, 0.0), (2, 2.0)]
    assert values_of(found, "inside") == [(4, 1.0)]
    assert "never" not in found.Tags()["tensors"]


def test_the_writer_is_the_threads(tmp_path: Path) -> None:
    found: list[Any] = []
    with summary.create_file_writer(tmp_path).as_default(step=1):
        other = threading.Thread(target=lambda: found.append(summary.scalar("x", 1.0, step=1)))
        other.start()
        other.join()
    assert found == [False]


def test_histograms_count_all_values(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(50, 20))
    with summary.create_file_writer(tmp_path).as_default(step=2):
        summary.histogram("h", values.astype("f"))
        summary.histogram("four", values.astype("f"), buckets=4)
        summary.histogram("same", [3.0, 3.0])
        summary.histogram("none", np.zeros((0, 3), "f"))
        with pytest.raises(errors.InvalidArgumentError, match="'bad'.*no numbers"):
            summary.histogram("bad", [1.0, float("nan")])
        with pytest.raises(ValueError, match="buckets is -1"):
            summary.histogram("bad", [1.0], buckets=-1)
    found = written(tmp_path)
    [(step, rows)] = values_of(found, "h")
    assert step == 2 and rows.shape == (30, 3) and rows[:, 2].sum() == 1000
    np.testing.assert_allclose([rows[0, 0], rows[-1, 1]], [values.min(), values.max()], rtol=1e-6)
    want, _ = np.histogram(values.astype("f"), 4)
    assert values_of(found, "four")[0][1][:, 2].tolist() == want.tolist()
    same = values_of(found, "same")[0][1]
    assert same[-1].tolist() == [3.0, 3.0, 2.0] and same[:-1, 2].sum() == 0
    assert not values_of(found, "none")[0][1].any()


def test_text_of_one_and_of_several(tmp_path: Path) -> None:
    with summary.create_file_writer(tmp_path).as_default(step=0):
        summary.text("one", "**bold** ü")
        summary.text("table", [["a", "b"], ["c", "d"]])
        with pytest.raises(errors.InvalidArgumentError, match=r"'number'.*strings"):
            summary.text("number", 3)
    found = written(tmp_path)
    assert values_of(found, "one")[0][1].item().decode() == "**bold** ü"
    assert values_of(found, "table")[0][1].tolist() == [[b"a", b"b"], [b"c", b"d"]]


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_images_are_files_of_pixels(tmp_path: Path, channels: int) -> None:
    pixels = np.random.default_rng(channels).integers(0, 256, (5, 4, 6, channels), "u1")
    with summary.create_file_writer(tmp_path).as_default(step=0):
        summary.image("i", pixels, max_outputs=2)
        summary.image("f", sr.constant((pixels / 255).astype("f")))
    found = written(tmp_path)
    for tag, count in (("i", 2), ("f", 3)):
        width, height, *files = values_of(found, tag)[0][1].tolist()
        assert (width, height, len(files)) == (b"6", b"4", count)
        for at, file in enumerate(files):
            shown = np.asarray(Image.open(io.BytesIO(file))).reshape(4, 6, channels)
            np.testing.assert_array_equal(shown, pixels[at])


def test_images_of_another_shape_are_errors(tmp_path: Path) -> None:
    with summary.create_file_writer(tmp_path).as_default(step=0):
        with pytest.raises(errors.InvalidArgumentError, match=r"'i'.*\[2, 2\].*\[images,"):
            summary.image("i", np.zeros((2, 2), "u1"))
        with pytest.raises(errors.InvalidArgumentError, match="int32; it takes uint8"):
            summary.image("i", np.zeros((1, 2, 2, 1), "i4"))
        with pytest.raises(errors.InvalidArgumentError, match=r"'s'.*shape \[2\]"):
            summary.scalar("s", [1.0, 2.0])


def test_functions_write_whenever_they_run(tmp_path: Path) -> None:
    step = sr.Variable(0, dtype=sr.int64)

    @sr.function
    def train(x: Any) -> Any:
        step.assign_add(1)
        with summary.record_if(sr.not_equal(step, 2)):
            summary.scalar("x", x, step=step)
            summary.text("t", sr.strings.as_string(x), step=step)
        return x * 2.0

    with summary.create_file_writer(tmp_path).as_default():
        for value in (1.0, 2.0, 3.0):
            train(sr.constant(value))
    found = written(tmp_path)
    assert values_of(found, "x") == [(1, 1.0), (3, 3.0)]
    assert [step for step, _ in values_of(found, "t")] == [1, 3]


def test_a_closed_writer_says_so(tmp_path: Path) -> None:
    with summary.create_file_writer(tmp_path, filename_suffix=".mine") as writer:
        with writer.as_default():
            summary.scalar("x", 1.0, step=1)
    writer.close()
    writer.flush()
    with pytest.raises(RuntimeError, match="already closed"):
        with writer.as_default():
            pass
    [file] = os.listdir(tmp_path)
    assert file.startswith("events.out.tfevents.") and file.endswith(".mine")
    assert values_of(written(tmp_path), "x") == [(1, 1.0)]


def test_a_program_that_ends_has_written_all(tmp_path: Path) -> None:
    program = (
        "import sidereal as sr, sys\n"
        "writer = sr.summary.create_file_writer(sys.argv[1], max_queue=1000)\n"
        "writer.set_as_default()\n"
        "for step in range(500): sr.summary.scalar('x', step, step=step)\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path], check=True, timeout=120)
    assert values_of(written(tmp_path), "x") == [(n, float(n)) for n in range(500)]


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        summary.create_file_writer(tmp_path / "file" / "logs")


def test_without_the_package_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer", None)
    with pytest.raises(errors.UnavailableError, match="pip install tensorboard"):
        summary.create_file_writer(tmp_path)


def test_graphs_are_drawn(tmp_path: Path) -> None:
    graph = v1.Graph()
    with graph.as_default():
        x = v1.placeholder(v1.float32, [None, 3], name="x")
        with v1.device("/job:ps/task:0"):
            v1.reduce_sum(x * 2.0, name="y")
    with summary.create_file_writer(tmp_path).as_default():
        assert summary.graph(graph)
    nodes = {node.name: node for node in written(tmp_path).Graph().node}
    assert nodes["x"].op == "Placeholder"
    assert nodes["y"].device == "/job:ps/task:0" and list(nodes["y"].input)


def test_tensors_for_other_plugins(tmp_path: Path) -> None:
    from tensorboard.compat.proto import summary_pb2

    metadata = summary_pb2.SummaryMetadata()
    metadata.plugin_data.plugin_name = "mine"
    with summary.create_file_writer(tmp_path).as_default(step=5):
        assert summary.write("t", sr.constant([[1, 2]]), metadata=metadata)
    found = written(tmp_path)
    [(step, value)] = values_of(found, "t")
    assert step == 5 and value.tolist() == [[1, 2]]
    assert found.SummaryMetadata("t").plugin_data.plugin_name == "mine"


def test_the_programs_of_the_guide_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs" / "guide" / "tensorboard.md"
    monkeypatch.chdir(tmp_path)  # Where they write files.
    names: dict[str, Any] = {}
    for program in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(program, str(page), "exec"), names)
    assert len(values_of(written(tmp_path / "logs" / "own"), "loss")) == 100
    assert len(written(tmp_path / "logs" / "v1").Histograms("weights")) == 10
    assert len(values_of(written(tmp_path / "logs" / "keras" / "train"), "epoch_loss")) == 3
