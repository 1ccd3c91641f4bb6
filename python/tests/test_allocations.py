"""A training step of a function takes no memory once it has run a few times."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRESET = os.environ.get("SIDEREAL_PRESET", "dev")
COUNTER = (
    Path(os.environ.get("SIDEREAL_BIN_DIR", ROOT / "build" / PRESET / "bin"))
    / "libcount_allocations.so"
)
STEPS = 10


@pytest.mark.skipif(PRESET in ("asan", "tsan"), reason="the sanitizer counts memory itself")
@pytest.mark.parametrize("model", ["mlp", "deepfm", "dlrm", "din"])
@pytest.mark.parametrize("options", [[], ["--bfloat16"]], ids=["float32", "bfloat16"])
def test_a_warm_training_step_allocates_nothing(model: str, options: list[str]) -> None:
    assert COUNTER.exists(), f"{COUNTER} is not built"
    script = ROOT / "bench" / "graph" / "sidereal_side.py"
    command = [sys.executable, str(script), "--case", model, "--batch", "64", *options]
    done = subprocess.run(
        command,
        input=f"{STEPS}\n{STEPS}\n",
        env={**os.environ, "LD_PRELOAD": str(COUNTER)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    warm = json.loads(done.stdout.splitlines()[-1])["allocations"]
    assert warm["all"] > 0, "nothing was counted, not even oneDNN's"
    assert warm["engine"] == 0
    # What oneDNN takes when it multiplies; the interpreter's lists of arguments.
    assert warm["all"] - warm["oneDNN"] <= 4 * STEPS
