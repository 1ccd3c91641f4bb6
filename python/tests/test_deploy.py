"""What operators put together from this repository: the image, and what Git must not take along."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
from session_servers import PROGRAM

import sidereal._native

ROOT = Path(__file__).resolve().parents[2]
IMAGE = ROOT / "deploy" / "Dockerfile"


def commands() -> list[str]:
    """The lines of the image's file, those that go on put together."""
    text = IMAGE.read_text().replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_the_image_copies_what_is_there() -> None:
    arguments = dict(re.findall(r"^ARG (\w+)=(.*)$", IMAGE.read_text(), re.M))
    copied = []
    for line in commands():
        words = line.split()
        if words[0] == "COPY" and not words[1].startswith("--from"):
            copied += words[1:-1]
    for name, value in arguments.items():
        copied = [one.replace(f"${{{name}}}", value) for one in copied]
    assert {"src", "python", "pyproject.toml"} <= set(copied)
    for name in copied:
        assert (ROOT / name).exists(), name


def test_the_image_is_built_from_the_packages_of_a_setup() -> None:
    script = (ROOT / "dev").read_text()
    found = re.search(r"^apt_packages=\((.*?)^\)", script, re.M | re.S)
    assert found is not None
    known = set(found.group(1).split())
    build = next(line for line in commands() if "build-essential" in line)
    wanted = build.partition("--no-install-recommends")[2].split()
    assert set(wanted) <= known
    libraries = {name for name in known if name.startswith("lib") and name.endswith("-dev")}
    tests = {"libgtest-dev", "libgmock-dev", "libbenchmark-dev", "libzmq3-dev", "libclang-rt-dev"}
    assert libraries - tests <= set(wanted)


def test_the_image_runs_on_other_processors_than_the_one_that_builds_it() -> None:
    (line,) = [line for line in commands() if "pip install" in line]
    assert "cmake.define.SIDEREAL_MARCH=baseline" in line


def test_the_image_has_the_libraries_that_the_programs_are_linked_with() -> None:
    """The second stage installs them by name, which are those of the image's Debian."""
    release = platform.freedesktop_os_release()
    if (release["ID"], release.get("VERSION_ID")) != ("debian", "12"):
        pytest.skip("packages of other systems have other names")
    (has,) = [line for line in commands() if " libgrpc29 " in line]
    listed = set(has.partition("--no-install-recommends")[2].partition("&&")[0].split())
    extension = sidereal._native.__file__
    for file in (extension, PROGRAM):
        said = subprocess.run(["objdump", "-p", file], capture_output=True, text=True, check=True)
        needed = re.findall(r"^ *NEEDED +(\S+)", said.stdout, re.M)
        assert "libc.so.6" in needed
        for library in needed:
            owner = subprocess.run(
                ["dpkg", "-S", f"*/{library}"], capture_output=True, text=True, check=True
            ).stdout
            packages = set(re.findall(r"^([^:\n]+):", owner, re.M))
            # Those that libgrpc++ depends on with every other program of C++.
            assert packages & (listed | {"libc6", "libstdc++6", "libgcc-s1"}), library


@pytest.mark.parametrize("job", ["ps", "worker", "serve-model"])
def test_units_of_systemd_start_programs_with_options_that_exist(job: str, tmp_path: Path) -> None:
    text = (ROOT / "deploy" / "systemd" / f"sidereal-{job}@.service").read_text()
    # There is no /opt/sidereal here, and systemd wants programs that exist.
    unit = tmp_path / f"sidereal-{job}@7.service"
    unit.write_text(text.replace("/opt/sidereal/bin/sidereal", "/bin/true"))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=60
    )
    assert unit.name not in checked.stderr, checked.stderr
    start = re.search(r"^ExecStart=(.*)", text.replace("\\\n", " "), re.M)
    assert start is not None
    words = start[1].split()
    assert words[0] == "/opt/sidereal/bin/sidereal"
    help_text = subprocess.run(
        [sys.executable, "-m", "sidereal", words[1], "--help"], capture_output=True, text=True,
        timeout=60, check=True,
    ).stdout  # fmt: skip
    for word in words[2:]:
        if word.startswith("--"):
            assert f"{word} " in help_text, word
    # The program's own time to end in lies within that of systemd.
    drain = float(words[words.index("--drain" if "--drain" in words else "--drain-s") + 1])
    (stop,) = re.findall(r"^TimeoutStopSec=(\d+)$", text, re.M)
    assert drain < float(stop)


def test_git_does_not_take_the_secret_of_a_cluster() -> None:
    for name in ("deploy/kubernetes/secret", "cluster.secret"):
        ended = subprocess.run(["git", "check-ignore", "-q", name], cwd=ROOT)
        assert ended.returncode == 0, f"git would add {name}"


def test_nothing_is_installed_by_a_name_of_the_package_index() -> None:
    """There the name is that of another project."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "python").rglob("*.py")]
    wrong = "pip install " + "'?\"?sidereal"
    for page in pages:
        assert not re.search(wrong, page.read_text()), page
