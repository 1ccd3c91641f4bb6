"""The programs people see first: README, examples, console script, and installing with pip."""

from __future__ import annotations

import faulthandler
import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import sidereal as sr

ROOT = Path(__file__).parents[2]
PRESET = os.environ.get("SIDEREAL_PRESET", "dev")


def run(*command: str | Path, timeout: float = 120, **options: object) -> str:
    """Standard output; a failure shows both outputs."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=timeout,
        check=False, **options,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def auc_in(text: str) -> float:
    found = re.search(r"auc=(\d\.\d+)", text)
    assert found, text
    return float(found[1])


def test_the_program_of_the_readme_runs() -> None:
    readme = ROOT / "README.md"
    if not readme.exists():
        pytest.skip("there is no README.md")
    programs = re.findall(r"^```python\n(.*?)^```", readme.read_text(), re.M | re.S)
    programs = [p for p in programs if "import sidereal" in p and "LocalCluster" in p]
    if not programs:
        pytest.skip("README.md has no Python program with a LocalCluster")
    for program in programs:
        assert auc_in(run(sys.executable, "-c", program)) > 0.7


def test_quickstart_runs() -> None:
    output = run(sys.executable, ROOT / "examples" / "quickstart.py", "40000", "4")
    assert auc_in(output) > 0.7


def test_train_csv_runs_without_files_and_with() -> None:
    script = ROOT / "examples" / "train_csv.py"
    assert auc_in(run(sys.executable, script)) > 0.65
    failed = subprocess.run(
        [sys.executable, script, "no_such_*.csv"], capture_output=True, text=True, check=False
    )
    assert failed.returncode != 0
    assert "NotFoundError" in failed.stderr
    assert "no_such_*.csv" in failed.stderr


def test_the_module_is_the_program() -> None:
    assert sr.__version__ in run(sys.executable, "-m", "sidereal", "version")
    failed = subprocess.run(
        [sys.executable, "-m", "sidereal", "no_such_command"], capture_output=True, check=False
    )
    assert failed.returncode != 0


INSTALLED = """
import numpy as np
import sidereal as sr

assert "site-packages" in sr.__file__, sr.__file__
model = sr.models.build("lr", sr.data.Schema(fields=1, rows=2), optimizer=sr.optimizers.SGD(1.0))
data = {"ids": np.tile([[0], [1]], (500, 1)), "label": np.tile([0, 1], 500)}
with sr.LocalCluster() as cluster:
    model.fit(data, cluster=cluster, epochs=3, batch_size=100)
    print(model.evaluate(data))
"""


@pytest.mark.slow
def test_pip_install_gives_the_package_and_the_console_script(tmp_path: Path) -> None:
    if os.environ.get("SIDEREAL_SKIP_INSTALL"):
        pytest.skip("SIDEREAL_SKIP_INSTALL is set")
    if PRESET not in ("dev", "release"):
        pytest.skip(f"the package is not built under the preset {PRESET}")
    # The build has a limit of its own, above that of a test.
    faulthandler.cancel_dump_traceback_later()
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    # What ./dev setup has installed serves here too: nothing is fetched from the network.
    site = Path(run(home / "bin" / "python", "-c",
                    "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip())
    (site / "tools.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    clean = {
        key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "LD_PRELOAD")
    }
    # The compiler, by its name, and the build type of the preset under test: so its cache serves.
    cache = Path(os.environ.get("SIDEREAL_BUILD_DIR", ROOT / "build" / PRESET)) / "CMakeCache.txt"
    for variable, language in (("CC", "C"), ("CXX", "CXX")):
        found = re.search(rf"^CMAKE_{language}_COMPILER:\w+=(.+)$", cache.read_text(), re.M)
        if found:
            clean.setdefault(variable, found[1])
    settings = ["--config-settings=cmake.build-type=Release"]
    if PRESET == "dev":
        settings = [
            "--config-settings=cmake.build-type=RelWithDebInfo",
            "--config-settings=cmake.define.SIDEREAL_DCHECK=ON",
            "--config-settings=cmake.define.SIDEREAL_WERROR=ON",
        ]
    run(
        home / "bin" / "python", "-m", "pip", "install", "--no-build-isolation", "--no-deps",
        "--no-index", "--disable-pip-version-check", *settings, ROOT,
        timeout=1500, env=clean, cwd=tmp_path,
    )
    assert sr.__version__ in run(home / "bin" / "sidereal", "version", env=clean, cwd=tmp_path)
    output = run(home / "bin" / "python", "-c", INSTALLED, env=clean, cwd=tmp_path)
    assert auc_in(output) == 1.0
