"""What the steps of worker lanes see of each other: Model.fit(consistency=)."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sidereal as sr
from sidereal import _native, errors
from sidereal.keras import layers
from sidereal.launch import PROTOCOLS

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
STEPS = 40
#: Turns of a loop in each step of the second worker, which takes longer than a step of the first.
SLOW = 10_000
#: What the digits of a loss count to.
BASE = 64
#: Updates by the mean of two gradients, one of which is 0 in each row.
BY_MEANS = ("sync", "hybrid")


class Counts(layers.Layer):
    """Two numbers that are read, and updated, as a whole."""

    def build(self, input_shape: Any) -> None:
        self.counts = self.add_weight((2,), "zeros", name="counts")

    def call(self, inputs: Any) -> Any:
        return sr.gather(self.counts, inputs)


def watching_model(consistency: str = "async") -> sr.Model:
    """Each step of a worker adds 1 to a row of its own in a table, and to a number of its own in a
    dense variable, with hybrid 2 to that row; its loss is what it has read: of both its own, then
    that of the other worker, as steps. `turns` make it slow before it reads the table."""
    model = sr.Model(seed=1)
    rows = model.input("rows", sr.int64, (2,))
    turns = sr.reduce_sum(model.input("turns", sr.int64))
    (turned,) = sr.while_loop(lambda left: left > 0, lambda left: left - 1, [turns])
    table = sr.reshape(layers.Embedding(2, 1, "zeros", name="table")(rows + turned), [2])
    dense = Counts(name="dense")(sr.reshape(rows, [2]))
    added = table[0] + dense[0]
    steps = table / 2.0 if consistency == "hybrid" else table
    read = added
    for place, value in enumerate((dense[1], steps[1], dense[0], steps[0])):
        read = read + BASE**place * value
    loss = sr.reduce_sum(sr.stop_gradient(read) - added)
    rate = 2.0 if consistency in BY_MEANS else 1.0
    model.compile(sr.reshape(added, [1]), sr.optimizers.SGD(rate), loss=loss)
    return model


def reads_of_a_worker(
    protocol: str, consistency: str, is_slow: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """What its steps have seen of table and dense variable, [step, 2]: its own steps, and those of
    the other one. One of them is slow."""
    # Row r is that of worker r % 2.
    worker = np.arange(2 * STEPS) % 2
    data = {"rows": np.stack([worker, 1 - worker], axis=1), "turns": (worker != is_slow) * SLOW}
    model = watching_model(consistency)
    with sr.LocalCluster(
        ps=2, ps_lanes=2, workers=2, in_process=True, protocol=protocol
    ) as cluster:
        result = model.fit(
            data, cluster=cluster, batch_size=1, shuffle=False, verbose=False,
            record_losses=True, consistency=consistency,
        )  # fmt: skip
        for variable in model.variables():
            each = 2 if consistency == "hybrid" and "table" in variable.name else 1
            counted = model.get_variable(variable.name)
            np.testing.assert_array_equal(counted.ravel(), [each * STEPS, each * STEPS])
    assert result.steps == 2 * STEPS
    digits = result.losses.astype(np.int64)[:, None] // BASE ** np.arange(3, -1, -1) % BASE
    return digits[:, :2], digits[:, 2:]


@pytest.mark.parametrize("bound", [1, 4])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_read_sees_all_but_the_latest_steps_of_others_and_all_of_its_own(
    protocol: str, bound: int
) -> None:
    own, other = reads_of_a_worker(protocol, f"bounded({bound})")
    steps = np.arange(STEPS)[:, None]
    np.testing.assert_array_equal(own, np.broadcast_to(steps, (STEPS, 2)))
    assert (other >= steps - bound).all(), other
    # It was as far ahead as it may be.
    assert (other == steps - bound).any(), other


def test_without_a_bound_a_fast_worker_is_further_ahead() -> None:
    own, other = reads_of_a_worker("star_server", "async")
    assert (other < own - 4).any(), other


@pytest.mark.parametrize("consistency", BY_MEANS)
@pytest.mark.parametrize("is_slow", [False, True], ids=["fast", "slow"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_in_step_dense_variables_are_those_of_the_step_and_tables_too_but_with_hybrid(
    protocol: str, is_slow: bool, consistency: str
) -> None:
    own, other = reads_of_a_worker(protocol, consistency, is_slow)
    steps = np.arange(STEPS)
    np.testing.assert_array_equal(own, np.stack([steps, steps], axis=1))
    table, dense = other[:, 0], other[:, 1]
    np.testing.assert_array_equal(dense, steps)
    if consistency == "sync":
        np.testing.assert_array_equal(table, steps)
        return
    assert (table >= steps - 1).all() and (table <= steps + 1).all(), table
    # What the fast one pushes in a step the slow one sees before that step has ended.
    assert not is_slow or (table > steps).any(), table


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_copies_have_all_own_steps_and_whole_windows_of_others(protocol: str) -> None:
    window = 7
    own, other = reads_of_a_worker(protocol, f"geo({window})")
    steps = np.arange(STEPS)
    np.testing.assert_array_equal(own, np.stack([steps, steps], axis=1))
    dense = other[:, 1]
    # At the end the other one has sent a window that is not full.
    assert ((dense % window == 0) | (dense == STEPS)).all(), dense
    # What others sent comes with an exchange of its own.
    assert all((one == one[0]).all() for one in np.split(dense, range(window, STEPS, window)))


def test_what_is_no_consistency_is_refused_with_those_there_are() -> None:
    data = {"rows": np.zeros((4, 2), np.int64), "turns": np.zeros(4, np.int64)}
    with sr.LocalCluster(workers=2, in_process=True) as cluster:
        for consistency in ("hybrid(2)", "geo", "bounded", ""):
            with pytest.raises(
                errors.InvalidArgumentError, match=r"write async, .*bounded\(s\), hybrid, geo\(k\)"
            ):
                watching_model().fit(data, cluster=cluster, consistency=consistency)
        with pytest.raises(errors.InvalidArgumentError, match="the cluster has 2 replicas"):
            watching_model().fit(data, cluster=cluster, consistency="sync(2 of 3)")


def test_the_texts_have_every_form() -> None:
    told = " ".join((sr.Model.fit.__doc__ or "").split())
    page = (GUIDE / "consistency").with_suffix(".md").read_text()
    forms = _native.consistency_forms()
    assert re.findall(r"^\| `(.*?)` \|", page, re.MULTILINE) == [form for form, _ in forms]
    for form, meaning in forms:
        assert f"| `{form}` | {meaning} |" in page
        assert f'"{form}": {meaning.split(",")[0]}' in told
