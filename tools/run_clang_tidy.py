"""Runs clang-tidy in parallel over the files of a build folder, skipping what is known to be clean.

A file is known to be clean when the same preprocessed text was clean before, in this clone or in
another one, with the same configuration and the same clang-tidy; the record is kept in the user's
cache folder.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys

FOLDERS = ("src/", "python/native/", "examples/", "bench/")


def cache_folder() -> pathlib.Path:
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "sidereal-clang-tidy"


def compile_commands(build: pathlib.Path, root: pathlib.Path) -> dict[str, dict]:
    """File (relative to the root) to its entry, for the code we check; tests are left out."""
    entries = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        if not path.is_relative_to(root):
            continue
        file = path.relative_to(root).as_posix()
        if file.startswith(FOLDERS) and not path.stem.endswith(("_test", "_bench")):
            entries[file] = entry
    return entries


def preprocess_command(entry: dict) -> list[str]:
    """The compile command with launchers and outputs removed, printing preprocessed text."""
    words = shlex.split(entry["command"])
    start = max(i for i, w in enumerate(words) if pathlib.PurePath(w).name.startswith("clang"))
    words = words[start:]
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word in ("-o", "-MF", "-MT", "-MQ"):
            skip = True
        elif word not in ("-c", "-MD", "-MMD"):
            kept.append(word)
    return [*kept, "-E", "-P"]


def fingerprint(entry: dict, salt: bytes, root: pathlib.Path) -> str | None:
    """Key of what clang-tidy would see, or None when it cannot be preprocessed. The clone's own
    path, which checks have of their files, is not part of it."""
    command = preprocess_command(entry)
    result = subprocess.run(command, cwd=entry["directory"], capture_output=True, check=False)
    if result.returncode != 0:
        return None
    digest = hashlib.sha256(salt)
    digest.update("\0".join(w for w in command if w.startswith(("-D", "-W", "-std"))).encode())
    digest.update(result.stdout.replace(bytes(root), b"."))
    return digest.hexdigest()


def check_file(tidy: str, build: pathlib.Path, file: str, entry: dict, salt: bytes,
               root: pathlib.Path, seconds: float) -> tuple[str, str, str]:
    """(file, 'clean' | 'known' | 'problems', output)."""
    key = fingerprint(entry, salt, root)
    mark = cache_folder() / key if key else None
    if mark and mark.exists():
        return file, "known", ""
    command = [tidy, "-p", str(build), "--quiet", entry["file"]]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False,
                                timeout=seconds)
    except subprocess.TimeoutExpired:
        return file, "problems", f"error: clang-tidy did not finish within {seconds:.0f} s"
    if result.returncode != 0:
        return file, "problems", result.stdout + result.stderr
    if mark:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
    return file, "clean", ""


def select(entries: dict[str, dict], wanted: list[str], everything: bool) -> list[str]:
    """The sources to check: all, or the wanted ones plus the source beside a wanted header."""
    if everything:
        return sorted(entries)
    chosen = set()
    for file in wanted:
        source = str(pathlib.PurePosixPath(file).with_suffix(".cc"))
        chosen |= {f for f in (file, source) if f in entries}
    return sorted(chosen)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--all", action="store_true", help="every file rather than the named ones")
    parser.add_argument("--seconds-per-file", type=float, default=300)
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parents[1]
    tidy = os.environ.get("CLANG_TIDY") or str(pathlib.Path(sys.executable).with_name("clang-tidy"))
    version = subprocess.run([tidy, "--version"], capture_output=True, check=True).stdout
    salt = version + (root / ".clang-tidy").read_bytes()
    entries = compile_commands(options.build, root)
    files = select(entries, options.files, options.all)
    counts = {"clean": 0, "known": 0, "problems": 0}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        pending = [
            pool.submit(check_file, tidy, options.build, file, entries[file], salt, root,
                        options.seconds_per_file)
            for file in files
        ]
        for done in concurrent.futures.as_completed(pending):
            file, verdict, output = done.result()
            counts[verdict] += 1
            if verdict != "known":
                print(f"[{sum(counts.values())}/{len(files)}] {verdict}: {file}", flush=True)
            if output:
                print(output, flush=True)
    print(f"clang-tidy: {counts['problems']} files with problems, {counts['clean']} clean, "
          f"{counts['known']} unchanged since they were clean")
    return 1 if counts["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
