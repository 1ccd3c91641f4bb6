"""What makes the package installable: ./dev wheel, what CMake says when something is missing, and
machines that have little."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_wheel_that_is_given_up_leaves_no_folder(
    number: int, wheel: ModuleType, tmp_path: Path
) -> None:
    # In the place of what repairs wheels: it has begun when the pipe has a reader.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "auditwheel.py").write_text(f"open({str(pipe)!r}).read()\n")
    python = wheel.look_at(sys.executable)
    assert python is not None

    def folders() -> set[Path]:
        return set((ROOT / "build").glob("tmp*"))

    before = folders()
    making = subprocess.Popen(
        [sys.executable, ROOT / "tools" / "wheel.py", "--python", sys.executable, "--wheel",
         tmp_path / f"sidereal-1-{python.tag}-any.whl", "--out", tmp_path],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    with making, pipe.open("w"):
        made = folders() - before
        making.send_signal(number)
        assert making.wait(PATIENCE_S) != 0
    assert made and not made & folders()


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


def test_a_define_takes_the_place_of_the_tools_own(wheel: ModuleType) -> None:
    assert "cmake.define.SIDEREAL_MARCH=baseline" in wheel.settings_of([])
    settings = wheel.settings_of(["SIDEREAL_MARCH=native", "SIDEREAL_PCH=OFF"])
    assert [one for one in settings if "define" in one] == [
        "cmake.define.SIDEREAL_MARCH=native", "cmake.define.SIDEREAL_PCH=OFF",
    ]  # fmt: skip
    with pytest.raises(wheel.WheelError, match="--define SIDEREAL_PCH: write NAME=VALUE"):
        wheel.settings_of(["SIDEREAL_PCH"])


def test_an_environment_without_packages_asks_no_index(
    wheel: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[object, ...]] = []

    def run(*command: object) -> str:
        ran.append(command)
        Path(str(command[-1])).mkdir(parents=True, exist_ok=True)
        return ""

    monkeypatch.setattr(wheel, "ROOT", tmp_path)
    monkeypatch.setattr(wheel, "run", run)
    python = wheel.look_at(sys.executable)
    home = wheel.environment_of(python, "check", [])
    assert [command[1:3] for command in ran] == [("-m", "venv")]
    assert wheel.environment_of(python, "check", []) == home and len(ran) == 1


def wheel_with(parts: list[str], folder: Path) -> Path:
    """A wheel whose list of libraries has these packages."""
    about = folder / "tiny-1.0" / "tiny-1.0.dist-info"
    (about / "sboms").mkdir(parents=True)
    (about / "WHEEL").write_text("Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
    components = [{"name": name, "purl": f"pkg:deb/debian/{name}@1"} for name in parts]
    components.append({"name": "tiny", "purl": "pkg:pypi/tiny@1.0"})
    bill = json.dumps({"components": components})
    (about / "sboms" / "auditwheel.cdx.json").write_text(bill)
    (about / "RECORD").write_text("")
    pack = [sys.executable, "-m", "wheel", "pack", "--dest-dir", folder, about.parent]
    subprocess.run(pack, check=True, capture_output=True, timeout=PATIENCE_S)
    shutil.rmtree(about.parent)
    return folder / "tiny-1.0-py3-none-any.whl"


def test_the_licenses_of_libraries_are_in_the_wheel(
    wheel: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel, "COPYRIGHTS", tmp_path / "doc")
    for package in ("libone1", *wheel.COMPILED_IN):
        (tmp_path / "doc" / package).mkdir(parents=True)
        (tmp_path / "doc" / package / "copyright").write_text("free for all")
    made = wheel_with(["libone1", "libone1"], tmp_path)
    wheel.add_licenses(made, tmp_path / "unpacked")
    with zipfile.ZipFile(made) as file:
        name = "tiny-1.0.dist-info/licenses/libone1.txt"
        assert file.read(name) == b"free for all"
        assert name in file.read("tiny-1.0.dist-info/RECORD").decode()
        for other in ("nlohmann-json3-dev", "nanobind"):
            assert file.read(f"tiny-1.0.dist-info/licenses/{other}.txt")
    (tmp_path / "other").mkdir()
    with pytest.raises(wheel.WheelError, match="libtwo2/copyright is missing"):
        wheel.add_licenses(wheel_with(["libtwo2"], tmp_path / "other"), tmp_path / "again")


def test_a_wheel_is_checked_without_rights_and_without_a_network(
    wheel: ModuleType, tmp_path: Path
) -> None:
    python = wheel.look_at(sys.executable)
    seen = """if True:
        import os, socket
        print(os.getuid(), [name for _, name in socket.if_nameindex()], os.access("/usr", os.W_OK),
              os.path.exists("/sys"), sorted(os.environ))
    """
    found = Path(python.prefix) / "bin" / "python3"
    (said,) = wheel.in_root(Path("/"), tmp_path, python, found, "-c", seen)
    assert said.startswith("1000 ['lo'] False False ['HOME'"), said
    with pytest.raises(wheel.WheelError, match="ended with 3"):
        wheel.in_root(Path("/"), tmp_path, python, "/bin/sh", "-c", "exit 3")


@pytest.mark.parametrize("extra, missing, use", [
    ("plot", "matplotlib", "from sidereal import _plot; _plot.draw({}, [], None)"),
    ("ray", "ray", "import sidereal._launch_ray"),
    ("serving", "uvloop", "from sidereal import _serve_model_command as it; it._modules()"),
    ("tensorboard", "tensorboard", "from sidereal import _tensorboard; _tensorboard.modules()"),
])  # fmt: skip
def test_what_is_missing_is_told_with_packages_that_any_installation_can_get(
    extra: str, missing: str, use: str
) -> None:
    """A wheel is installed from a file, so that no command with Sidereal's own name finds them."""
    (listed,) = re.findall(rf"^{extra} = \[(.*?)\]$", (ROOT / "pyproject.toml").read_text(),
                           re.M | re.S)  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules['{missing}'] = None; {use}"],
        capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode != 0
    told = re.search(r": pip install ([\w -]+) \(", done.stderr)
    assert told is not None, done.stderr
    assert sorted(told[1].split()) == sorted(re.findall(r'"([\w-]+)', listed))
