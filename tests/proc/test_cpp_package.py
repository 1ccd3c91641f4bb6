"""`cmake --install` gives a package that a project outside of the tree finds, builds and runs."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SIDEREAL_BUILD_DIR", "")
                     or ROOT / "build" / os.environ.get("SIDEREAL_PRESET", "dev"))


def run(*command, code=0) -> str:
    done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=300)
    assert done.returncode == code, done.stdout[-4000:]
    return done.stdout


def cached(name: str) -> str:
    """A variable of the build."""
    found = re.search(rf"^{name}:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M)
    return found[1] if found else ""


@pytest.fixture(scope="module")
def prefix(tmp_path_factory) -> pathlib.Path:
    """Where the package is installed."""
    if not (BUILD / "src/sidereal/train/libsidereal_train.a").exists():
        pytest.skip(f"{BUILD} is not built (./dev build)")
    folder = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", BUILD, "--prefix", folder)
    return folder


@pytest.fixture
def configure(prefix, tmp_path):
    """configure(line): the output of CMake for the example, whose find_package is replaced."""
    shutil.copytree(ROOT / "examples/cpp_package", tmp_path / "source")

    def with_line(line="", code=0) -> str:
        listing = tmp_path / "source/CMakeLists.txt"
        if line:
            listing.write_text(re.sub(r"find_package\(.*\)", line, listing.read_text()))
        options = {"CMAKE_PREFIX_PATH": prefix, "CMAKE_CXX_COMPILER": cached("CMAKE_CXX_COMPILER")}
        flags = f"-fsanitize={cached('SIDEREAL_SANITIZE')}" if cached("SIDEREAL_SANITIZE") else ""
        options["CMAKE_CXX_FLAGS"] = flags
        options["CMAKE_EXE_LINKER_FLAGS"] = "-fuse-ld=mold" if shutil.which("mold") else ""
        return run("cmake", "-S", tmp_path / "source", "-B", tmp_path / "build",
                   *[f"-D{name}={value}" for name, value in options.items()], code=code)

    return with_line


def test_a_project_outside_finds_the_package_builds_with_it_and_trains(configure, tmp_path):
    configure()
    run("cmake", "--build", tmp_path / "build")
    assert run(tmp_path / "build/line_fit") == "w = 3\n"


def test_another_minor_version_is_not_taken(configure):
    assert "0.1.0" in configure("find_package(Sidereal 0.2 REQUIRED)", code=1)


def test_headers_are_those_of_the_interface(prefix):
    headers = {p.relative_to(prefix / "include").as_posix() for p in prefix.rglob("*.h")}
    assert "sidereal/train/trainer.h" in headers
    ours = {h for h in headers if h.startswith("sidereal/")}
    assert ours == headers and len(ours) < 60
    for header in ours:
        text = (prefix / "include" / header).read_text()
        for include in re.findall(r'#include [<"]([^>"]+)[>"]', text):
            assert not include.startswith(("grpc", "google/protobuf")) and ".pb.h" not in include
            assert not include.startswith("sidereal/") or include in ours


def test_the_program_is_installed_and_runs(prefix):
    assert "sidereal" in run(prefix / "bin/sidereal", "version")
