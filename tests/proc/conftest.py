"""What the tests of processes share."""

import subprocess

import pytest
from clicks import write_clicks
from processes import PATIENCE_S


@pytest.fixture
def clicks(tmp_path):
    """A training file, a test file and the best AUC on the latter."""
    train, test = tmp_path / "train.csv", tmp_path / "test.csv"
    write_clicks(train, 8000, 1)
    return train, test, write_clicks(test, 4000, 2)


@pytest.fixture
def run(program):
    """run(argument...) -> the finished process."""

    def make(*words, timeout=PATIENCE_S):
        return subprocess.run([program, *map(str, words)], capture_output=True, text=True,
                              timeout=timeout, stdin=subprocess.DEVNULL)

    return make
