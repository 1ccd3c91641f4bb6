"""What makes the package installable: ./dev wheel, what CMake says when something is missing, and
machines that have little."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120

TRAINING = """
import numpy as np
import sidereal as sr

model = sr.models.build("lr", sr.data.Schema(fields=1, rows=2), optimizer=sr.optimizers.SGD(1.0))
data = {"ids": np.tile([[0], [1]], (50, 1)), "label": np.tile([0, 1], 50)}
with sr.LocalCluster() as cluster:
    model.fit(data, cluster=cluster, batch_size=10)
"""


@pytest.fixture(scope="module")
def wheel() -> ModuleType:
    spec = importlib.util.spec_from_file_location("wheel", ROOT / "tools" / "wheel.py")
    assert spec is not None and spec.loader is not None
    out = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(out)
    return out


def test_a_cluster_needs_no_certificates_of_the_machine() -> None:
    """A container, or another distribution, has none where gRPC looks for them."""
    hidden = [word for folder in ("/etc/ssl", "/usr/share/grpc") if Path(folder).is_dir()
              for word in ("--tmpfs", folder)]  # fmt: skip
    done = subprocess.run(
        ["bwrap", "--dev-bind", "/", "/", *hidden, "--unsetenv",
         "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", sys.executable, "-c", TRAINING],
        capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("package", ["absl", "GTest", "OpenSSL"])
def test_cmake_names_what_is_missing_and_what_installs_it(package: str, tmp_path: Path) -> None:
    done = subprocess.run(
        ["cmake", "-S", ROOT, "-B", tmp_path, f"-DCMAKE_DISABLE_FIND_PACKAGE_{package}=ON"],
        capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode != 0
    said = " ".join(done.stderr.split())
    assert f"{package} is missing: `./dev setup` installs all packages" in said


def test_cmake_without_a_compiler_names_what_installs_one(tmp_path: Path) -> None:
    done = subprocess.run(
        ["cmake", "-S", ROOT, "-B", tmp_path], capture_output=True, text=True, timeout=PATIENCE_S,
        env=os.environ | {"CC": "/no/such/compiler"},
    )  # fmt: skip
    assert done.returncode != 0
    assert "`./dev setup` installs one" in " ".join(done.stderr.split())


def test_nothing_is_required_of_cmake_without_saying_what_installs_it() -> None:
    for file in (ROOT / "cmake").glob("*.cmake"):
        assert not re.search(r"find_\w+\([^)]*REQUIRED", file.read_text()), file.name


def test_the_name_on_the_index_is_not_the_name_of_the_import() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert re.search(r'^name = "sidereal-ps"$', text, re.M)
    assert 'wheel.packages = ["python/sidereal"]' in text


def test_interpreters_are_one_of_each_version_with_headers(wheel: ModuleType) -> None:
    found = wheel.interpreters([])
    versions = [one.version for one in found]
    assert versions == [one for one in wheel.VERSIONS if one in versions]
    with pytest.raises(wheel.WheelError, match="--python /bin/false: no CPython"):
        wheel.interpreters(["/bin/false"])


def test_builders_have_the_versions_of_the_setup(wheel: ModuleType) -> None:
    lines = wheel.pinned(wheel.BUILDERS)
    assert len(lines) == len(wheel.BUILDERS) and all("==" in line for line in lines)
    with pytest.raises(wheel.WheelError, match="does not have all of"):
        wheel.pinned(["no-such-package"])
