"""TensorFlow's tutorial of parameter server training, as an example, over every protocol."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from session_servers import PATIENCE_S, ROOT

from sidereal.launch import PROTOCOLS


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_tutorial_learns(protocol: str) -> None:
    script = ROOT / "examples/distributed/parameter_server_training.py"
    environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    done = subprocess.run(
        [sys.executable, str(script), protocol], env=environment, check=False, text=True,
        timeout=PATIENCE_S, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(",")[0] for line in lines[:4]] == [f"Finished epoch {i}" for i in range(4)]
    name, value = lines[-1].split(": ")
    assert name == "Evaluation accuracy"
    assert float(value) > 0.9
