"""What runs of tests say of a process that crashes, and of a test that does not end; and that what
is drawn in them is the same in every run."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sidereal as sr


def drawn() -> tuple[float, float, float]:
    return float(np.random.random()), random.random(), float(sr.random.uniform([]))


AT_IMPORT = drawn()

CRASH = """
import os, sys
from sidereal import _native
_native.report_crashes(int(sys.argv[1]))
with open(sys.argv[2], "w+") as captured:
    os.dup2(captured.fileno(), 2)
    os.write(2, b"why it ends\\n")
    os.abort()
"""

TESTS = """
import threading

def test_that_ends():
    pass

def test_without_end():
    threading.Event().wait()

def test_that_ends_too():
    pass
"""


@pytest.fixture(scope="module")
def shared() -> tuple[float, float, float]:
    return drawn()


def test_what_is_drawn_is_the_same_in_every_run(shared: tuple[float, float, float]) -> None:
    assert shared == AT_IMPORT == drawn()


def test_a_crash_tells_its_last_words_and_its_stack(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    child = subprocess.run(
        [sys.executable, "-c", CRASH, str(writing), str(tmp_path / "captured")],
        pass_fds=[writing],
        timeout=60,
        check=False,
    )
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    assert child.returncode == -signal.SIGABRT
    assert said.startswith("crash: signal ABRT\n")
    assert "crash: the end of standard error:\nwhy it ends\n" in said
    assert "  abort\n" in said.partition("crash: stack of the thread:\n")[2]


def test_a_test_without_end_fails_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nfaulthandler_timeout = 5\nfaulthandler_exit_on_timeout = true\n"
    )
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "1", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 1
    assert "1 failed, 2 passed" in run.stdout
    assert "crashed while running 'test_some.py::test_without_end'" in run.stdout
    assert "Timeout (0:00:05)!" in run.stderr
    assert 'test_some.py", line 8 in test_without_end' in run.stderr
