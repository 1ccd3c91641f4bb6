"""Makes wheels that need nothing but a Python and NumPy, and checks that they do.

One wheel for each interpreter: scikit-build-core compiles it, for every processor with AVX2 and
FMA, and auditwheel puts the libraries it is linked with into it and names the oldest C library that
it runs with. scikit-build-core clears what CMake knows of the shared build folder for each
interpreter: it is ccache that compiles the engine only once. The licenses of the libraries, and of
headers that are compiled in, go into the wheel too. --check installs each wheel and trains with it
in roots that have the files of a few of Debian's packages and of nothing else, as a user without
rights: a session and a training, then the guide's pages (guide_pages.py).
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
#: What compiles a wheel; their versions are those of requirements-dev.txt.
BUILDERS = ("scikit-build-core", "nanobind")
#: What NumPy needs too: every manylinux has the C++ library.
ROOT_PACKAGES = ("python3", "libstdc++6")
#: What the commands of the guide's pages are besides ours.
PAGE_PACKAGES = (
    *ROOT_PACKAGES, "bash", "coreutils", "curl", "dash", "grep", "gzip", "libc-bin", "mawk", "sed",
)  # fmt: skip
#: Links in /usr/bin that scripts of packages make.
PROGRAM_LINKS = {"awk": "mawk"}
DATA = ROOT.parent / "shared" / "data"
#: Where each of Debian's packages says under what license it is.
COPYRIGHTS = pathlib.Path("/usr/share/doc")
#: Packages whose headers and static libraries are compiled into the engine, so that no bundled
#: library tells of them: Debian's, and one of PyPI.
COMPILED_IN = (
    "libcli11-dev", "libeigen3-dev", "libfarmhash-dev", "libxxhash-dev", "nlohmann-json3-dev",
)  # fmt: skip
BINDINGS = "nanobind"
#: Folders that Debian has in /usr alone.
ROOT_LINKS = ("bin", "lib", "lib64", "sbin")
ABOUT_IT = """
import json, os, platform, sys, sysconfig
header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
print(json.dumps({
    "version": "%d.%d" % sys.version_info[:2], "path": sys.executable, "prefix": sys.base_prefix,
    "usable": os.path.exists(header) and platform.python_implementation() == "CPython"
              and not sysconfig.get_config_var("Py_GIL_DISABLED"),
}))
"""
#: Run by each Python with the wheel: programs, sessions on servers, and a training in processes.
PROGRAM = """
import os, subprocess, sys
assert os.getuid() != 0 and not os.access("/usr", os.W_OK)
import numpy as np
import sidereal as sr
from sidereal import v1 as tf

assert "site-packages" in sr.__file__, sr.__file__
for words in (["sidereal"], [sys.executable, "-m", "sidereal"]):
    said = subprocess.run([*words, "--version"], check=True, capture_output=True, text=True).stdout
    assert said.startswith("sidereal " + sr.__version__), said
demo = ["sidereal", "demo", "--rows", "200000", "--eval-rows", "20000"]
subprocess.run(demo, check=True, stdout=sys.stderr)
server = sr.train.Server.create_local_server()
with tf.Graph().as_default(), tf.Session(server.target) as session:
    assert session.run(tf.constant(2.0) * 3.0) == 6.0
model = sr.models.build("lr", sr.data.Schema(fields=1, rows=2), optimizer=sr.optimizers.SGD(1.0))
data = {"ids": np.tile([[0], [1]], (500, 1)), "label": np.tile([0, 1], 500)}
with sr.LocalCluster(ps=1, workers=2) as cluster:
    model.fit(data, cluster=cluster, epochs=3, batch_size=100)
    auc = model.evaluate(data).auc
assert auc == 1.0, auc
print("trained, auc", auc)
"""


class WheelError(Exception):
    """What went wrong, for a person."""


class Interpreter(NamedTuple):
    version: str
    path: str
    prefix: str

    @property
    def tag(self) -> str:
        return "cp" + self.version.replace(".", "")


def run(*command: str | os.PathLike[str], **environment: str) -> str:
    """Standard output. WheelError with the end of both outputs."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environment},
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        end = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
        raise WheelError(f"{' '.join(words[:6])} ended with {done.returncode}:\n{end}")
    return done.stdout


# ---- interpreters


def candidates() -> Iterator[str]:
    """Interpreters on the path, then those that pyenv and uv keep."""
    for version in VERSIONS:
        found = shutil.which(f"python{version}")
        if found:
            yield found
    yield from filter(None, [shutil.which("python3")])
    keepers = (
        pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions",
        pathlib.Path(os.environ.get("UV_PYTHON_INSTALL_DIR",
                                    pathlib.Path.home() / ".local/share/uv/python")),
    )  # fmt: skip
    for keeper in keepers:
        yield from map(str, sorted(keeper.glob("*/bin/python3"), reverse=True))


def look_at(path: str) -> Interpreter | None:
    """None: it does not start, or a wheel cannot be made with it."""
    try:
        done = subprocess.run(
            [path, "-I", "-c", ABOUT_IT], capture_output=True, text=True, timeout=60, check=False
        )
    except OSError:
        return None
    if done.returncode != 0:
        return None
    said = json.loads(done.stdout)
    if not said["usable"] or said["version"] not in VERSIONS:
        return None
    return Interpreter(said["version"], said["path"], said["prefix"])


def interpreters(given: Sequence[str]) -> list[Interpreter]:
    """Those given, or one of each version that is found here, the oldest first."""
    out: dict[str, Interpreter] = {}
    for path in given or candidates():
        found = look_at(path)
        if found is not None:
            out.setdefault(found.version, found)
        elif given:
            raise WheelError(
                f"--python {path}: no CPython of {', '.join(VERSIONS)} with its headers "
                "(python3-dev, or one that pyenv or uv has installed)"
            )
    if not out:
        raise WheelError("no Python with headers is here: ./dev setup installs python3-dev")
    return [out[version] for version in VERSIONS if version in out]


# ---- building


def pinned(names: Sequence[str]) -> list[str]:
    """Lines of requirements-dev.txt."""
    lines = (ROOT / "requirements-dev.txt").read_text().splitlines()
    out = [line for line in lines if re.split(r"[=<>; ]", line)[0] in names]
    if len(out) != len(names):
        raise WheelError(f"requirements-dev.txt does not have all of {', '.join(names)}")
    return out


def environment_of(python: Interpreter, name: str, packages: Sequence[str]) -> pathlib.Path:
    """A virtual environment with these packages, kept from one run to the next."""
    home = ROOT / "build" / "wheels" / f"{name}-{python.tag}"
    stamp, wanted = home / "packages", "\n".join([python.path, *packages])
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(home, ignore_errors=True)
        run(python.path, "-m", "venv", home)
        if packages:
            run(home / "bin/python", "-m", "pip", "install", "--disable-pip-version-check",
                *packages)  # fmt: skip
        stamp.write_text(wanted)
    return home


def settings_of(defines: Sequence[str]) -> list[str]:
    """What scikit-build-core is told: of one that is given twice it would make a list."""
    out = {"SIDEREAL_MARCH": "baseline"}
    for define in defines:
        name, is_there, value = define.partition("=")
        if not name or not is_there:
            raise WheelError(f"--define {define}: write NAME=VALUE")
        out[name] = value
    return ["build-dir=build/wheel",
            *(f"cmake.define.{name}={value}" for name, value in out.items())]  # fmt: skip


def build(python: Interpreter, jobs: int, settings: Sequence[str]) -> pathlib.Path:
    """The wheel as it is compiled, for this machine."""
    home = environment_of(python, "builder", pinned(BUILDERS))
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:
        # The compiler of this machine, which Pythons from elsewhere know by another name.
        compilers = {"CC": os.environ.get("CC", "cc"), "CXX": os.environ.get("CXX", "c++")}
        run(
            home / "bin/python", "-m", "pip", "wheel", "--no-build-isolation", "--no-deps",
            "--disable-pip-version-check", "--wheel-dir", folder,
            *(f"--config-settings={setting}" for setting in settings), ROOT,
            CMAKE_BUILD_PARALLEL_LEVEL=str(jobs), **compilers,
        )  # fmt: skip
        (wheel,) = pathlib.Path(folder).glob("*.whl")
        out = ROOT / "build" / "wheels" / wheel.name
        shutil.move(wheel, out)
    return out


def repair(wheel: pathlib.Path, to: pathlib.Path) -> pathlib.Path:
    """The wheel with the libraries that it is linked with, but for those every Linux has."""
    bin_folder = pathlib.Path(sys.executable).parent
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:
        run(
            sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", folder, wheel,
            PATH=f"{bin_folder}{os.pathsep}{os.environ.get('PATH', '')}",
        )  # fmt: skip
        (repaired,) = pathlib.Path(folder).glob("*.whl")
        if "manylinux" not in repaired.name:
            raise WheelError(f"auditwheel names no manylinux for {repaired.name}")
        add_licenses(repaired, pathlib.Path(folder))
        to.mkdir(exist_ok=True, parents=True)
        out = to / repaired.name
        shutil.move(repaired, out)
    return out


def add_licenses(wheel: pathlib.Path, folder: pathlib.Path) -> None:
    """Puts into the wheel the licenses of what is in it: of the packages whose libraries auditwheel
    put there, and of those that are compiled in. Passing them on is what most of them ask."""
    tool = (sys.executable, "-m", "wheel")
    run(*tool, "unpack", "--dest", folder, wheel)
    (about,) = folder.glob("*/*.dist-info")
    bill = json.loads((about / "sboms" / "auditwheel.cdx.json").read_text())
    names = {part["name"] for part in bill["components"] if part["purl"].startswith("pkg:deb/")}
    (about / "licenses").mkdir(exist_ok=True)
    for name in sorted(names.union(COMPILED_IN)):
        text = COPYRIGHTS / name / "copyright"
        if not text.is_file():
            raise WheelError(f"{text} is missing, which says under what license {name} is")
        shutil.copyfile(text, about / "licenses" / f"{name}.txt")
    (text,) = (file.locate() for file in importlib.metadata.files(BINDINGS) or ()
               if file.name == "LICENSE")  # fmt: skip
    shutil.copyfile(text, about / "licenses" / f"{BINDINGS}.txt")
    run(*tool, "pack", "--dest-dir", wheel.parent, about.parent)


# ---- checking


def bare_root(name: str, packages: Sequence[str]) -> pathlib.Path:
    """A folder with the files of Debian's packages, and of those that they depend on."""
    out, wanted = ROOT / "build" / "wheels" / name, "\n".join(packages)
    stamp = out / "complete"
    if stamp.exists() and stamp.read_text() == wanted:
        return out
    shutil.rmtree(out, ignore_errors=True)
    for link in ROOT_LINKS:
        (out / "usr" / link).mkdir(parents=True)
        (out / link).symlink_to(f"usr/{link}")
    kinds = [f"--no-{kind}" for kind in
             ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")]  # fmt: skip
    said = run("apt-cache", "depends", "--recurse", *kinds, *packages)
    names = [line for line in said.splitlines() if re.match(r"[a-z0-9]", line)]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["apt-get", "download", *names], cwd=folder, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise WheelError(f"apt-get download: {done.stderr.strip()} (apt-get update may help)")
        for package in sorted(pathlib.Path(folder).glob("*.deb")):
            content = subprocess.Popen(
                ["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE
            )
            run_tar = ["tar", "-x", "--keep-directory-symlink", "-C", str(out)]
            unpacked = subprocess.run(run_tar, stdin=content.stdout, check=False)
            if content.wait() != 0 or unpacked.returncode != 0:
                raise WheelError(f"{package.name} cannot be unpacked")
    for link, program in PROGRAM_LINKS.items():
        if (out / "usr/bin" / program).exists():
            (out / "usr/bin" / link).symlink_to(program)
    (out / "etc").mkdir(exist_ok=True)
    (out / "etc/hosts").write_text("127.0.0.1 localhost\n")
    stamp.write_text(wanted)
    return out


def installed(wheel: pathlib.Path, python: Interpreter, extra: str) -> pathlib.Path:
    """An environment with the wheel, its extra, and what these say that they need."""
    home = environment_of(python, "check" + extra, [])
    pip = [home / "bin/python", "-m", "pip", "--disable-pip-version-check"]
    run(*pip, "uninstall", "--yes", "sidereal-ps")
    run(*pip, "install", f"{wheel}[{extra}]" if extra else wheel)
    return home


def in_root(
    root: pathlib.Path, home: pathlib.Path, python: Interpreter, *command: str | os.PathLike[str],
    files: Sequence[pathlib.Path] = (),
) -> list[str]:  # fmt: skip
    """What a command prints where nothing is but a root, an environment and some files to read, for
    a user without rights and without a network."""
    bound = [word for folder in sorted({str(home), python.prefix, *map(str, files)} - {"/usr"})
             for word in ("--ro-bind", folder, folder)]  # fmt: skip
    links = [word for name in ROOT_LINKS for word in ("--symlink", f"usr/{name}", f"/{name}")]
    try:
        said = run(
            "bwrap", "--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000",
            "--die-with-parent", "--ro-bind", root / "usr", "/usr",
            "--ro-bind", root / "etc", "/etc", *links, "--proc", "/proc", "--dev", "/dev",
            "--tmpfs", "/tmp", *bound, "--clearenv",
            "--setenv", "PATH", f"{home}/bin:/usr/bin", "--setenv", "HOME", "/tmp",
            "--chdir", "/tmp", *command,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise WheelError(f"{error.filename} is not here: ./dev setup installs bubblewrap") from None
    return said.strip().splitlines()


def check(wheel: pathlib.Path, python: Interpreter, data: pathlib.Path) -> Iterator[str]:
    """Installs the wheel and uses it where nothing else is: what that says, line by line."""
    home = installed(wheel, python, "")
    root = bare_root("root", ROOT_PACKAGES)
    yield in_root(root, home, python, home / "bin/python", "-c", PROGRAM)[-1]
    if not data.is_dir():
        yield f"the guide's pages are not tried: their data is not in {data} (--data)"
        return
    home = installed(wheel, python, "serving")
    root = bare_root("page-root", PAGE_PACKAGES)
    tool, guide = ROOT / "tools/guide_pages.py", ROOT / "docs/guide"
    yield from in_root(
        root, home, python, home / "bin/python", tool, "--guide", guide, "--data", data,
        files=(tool, guide, data),
    )  # fmt: skip


def end(number: int, _: FrameType | None) -> None:
    """Ends as an error does, which removes temporary folders."""
    sys.exit(128 + number)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev wheel", description="Makes wheels in dist.")
    parser.add_argument("--python", action="append", default=[], metavar="FILE",
                        help="an interpreter; without it all that are found")  # fmt: skip
    parser.add_argument("--check", action="store_true", help="install and run each in bare roots")
    parser.add_argument("--data", type=pathlib.Path, default=DATA, metavar="DIR",
                        help="what --check tries the guide's pages on")  # fmt: skip
    parser.add_argument("--jobs", type=int, default=1, help="compilers at a time")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "dist", metavar="DIR")
    parser.add_argument("--wheel", type=pathlib.Path, metavar="FILE",
                        help="repair (and check) this one instead of making any")  # fmt: skip
    parser.add_argument("--define", action="append", default=[], metavar="NAME=VALUE",
                        help="of CMake, for the build")  # fmt: skip
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    (ROOT / "build" / "wheels").mkdir(parents=True, exist_ok=True)
    try:
        settings = settings_of(options.define)
        found = interpreters(options.python)
        if options.wheel is not None:
            found = [one for one in found if f"-{one.tag}-" in options.wheel.name]
            if not found:
                raise WheelError(f"no Python here is that of {options.wheel.name}")
        missing = sorted(set(VERSIONS) - {one.version for one in found})
        if missing and options.wheel is None and not options.python:
            print(f"wheel: no Python {', '.join(missing)} with headers is here: none made for it")
        for python in found:
            compiled = options.wheel or build(python, options.jobs, settings)
            wheel = repair(compiled, options.out.resolve())
            size = wheel.stat().st_size / 1e6
            print(f"wheel: {wheel.name}, {size:.0f} MB", flush=True)
            if options.check:
                for line in check(wheel, python, options.data.resolve()):
                    print(f"wheel: Python {python.version} in a bare root: {line}", flush=True)
    except WheelError as error:
        print(f"wheel: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
