"""Chooses the tests of `./dev test --fast`: what a change reaches, as much as a time allows.

Given the files that changed, it takes, in this order,

1. test files that changed themselves, and the tests of the modules whose files changed;
2. tests of the C++ modules that use those, nearest first; of Python, the test files that name a
   module that changed;
3. the quickest other Python test files, when anything but tests changed,

until the estimated time is used up. Times of tests are those of earlier runs
(build/PRESET/test_times.json, which every `./dev test` brings up to date); steps of a build are
asked of ninja. Outside of files that changed, tests that took more than SLOW_S are left out.
The plan goes into build/PRESET/fast.json and, in words, to standard output.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import re
import subprocess
import sys

import check_modules

SLOW_S = 2.0
#: Guesses for what has never run: the tests of a module, a file of tests.
MODULE_S = 10.0
FILE_S = 10.0
#: A compilation or a link, on one processor.
STEP_S = 3.0
#: What starts once: configuring tests, a process for each worker of pytest.
START_S = 4.0

PYTHON_TESTS = ("python/tests", "tests/proc", "tests/tools")
#: Tests that cross modules, by folder: the target, which is the label as well.
CROSS = {"tests/fuzz": "fuzz_test", "tests/sim": "sim_test", "tests/step_path": "step_path_test"}


@dataclasses.dataclass
class Plan:
    """What to build and run."""

    targets: list[str] = dataclasses.field(default_factory=list)
    labels: list[str] = dataclasses.field(default_factory=list)
    slow: list[str] = dataclasses.field(default_factory=list)
    pytest: list[str] = dataclasses.field(default_factory=list)
    reasons: list[str] = dataclasses.field(default_factory=list)


def users(root: pathlib.Path) -> dict[str, set[str]]:
    """By module: those whose sources or tests use it directly."""
    found: dict[str, set[str]] = {}
    for folder in sorted((root / "src/sidereal").iterdir()):
        if (folder / "CMakeLists.txt").exists():
            module = check_modules.read_module(folder)
            if module is not None:
                found.setdefault(module.name, set())
                for dep in module.deps + module.test_deps:
                    found.setdefault(dep.removesuffix("_testing"), set()).add(module.name)
    return found


def by_distance(changed: set[str], used_by: dict[str, set[str]]) -> list[list[str]]:
    """The modules that changed, those that use them, those that use these, ..."""
    rings, seen = [sorted(changed)], set(changed)
    while rings[-1]:
        ring = {user for module in rings[-1] for user in used_by.get(module, ())} - seen
        seen |= ring
        rings.append(sorted(ring))
    return rings[:-1]


def cpp_labels(files: list[str]) -> tuple[set[str], list[str]]:
    """Modules whose files changed, and labels of tests outside of modules."""
    modules, cross = set(), []
    for file in files:
        parts = file.split("/")
        if file.startswith("src/sidereal/") and len(parts) > 3:
            modules.add(parts[2])
        for folder, target in CROSS.items():
            if file.startswith(folder + "/") and target not in cross:
                cross.append(target)
    return modules, cross


def python_files(root: pathlib.Path, files: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Test files: those that changed, those that name a module that changed, all others."""
    tests = sorted(p.relative_to(root).as_posix() for folder in PYTHON_TESTS
                   for p in (root / folder).rglob("test_*.py"))
    changed = [t for t in tests if t in files]
    words = set()
    for file in files:
        path = pathlib.PurePosixPath(file)
        if path.suffix == ".py" and file not in tests:
            words.add(path.stem if path.stem != "__init__" else path.parent.name)
    named = [t for t in tests if t not in changed and words and (
        any(word.strip("_") in t for word in words)
        or re.search(rf"\b({'|'.join(sorted(words))})\b", (root / t).read_text()))]
    named.sort(key=lambda t: not any(word.strip("_") in t for word in words))
    return changed, named, [t for t in tests if t not in changed and t not in named]


def steps_to_build(build: pathlib.Path, targets: list[str]) -> int:
    """How many commands ninja would run."""
    done = subprocess.run(["ninja", "-C", str(build), "-n", *targets], capture_output=True,
                          text=True, check=False)
    return sum(1 for line in done.stdout.splitlines() if re.match(r"\[\d+/\d+\]", line))


class Budget:
    """The estimated time, in seconds of all processors together."""

    def __init__(self, seconds: float):
        self.left = seconds

    def take(self, seconds: float, always: bool = False) -> bool:
        """Whether there is time; `always` takes it in any case."""
        if seconds > self.left and not always:
            return False
        self.left -= seconds
        return True


def choose(root: pathlib.Path, build: pathlib.Path, files: list[str], times: dict, seconds: float,
           jobs: int) -> Plan:
    """The plan for `files`. times: {"ctest": {label: {test: s}}, "pytest": {file: {test: s}}}."""
    plan, budget = Plan(), Budget((seconds - START_S) * jobs)
    modules, cross = cpp_labels(files)
    for module in sorted(modules):
        if not (root / "src/sidereal" / module / "CMakeLists.txt").exists():
            modules.discard(module)
    built = 0

    def add(label: str, target: str, always: bool) -> bool:
        nonlocal built
        known = times.get("ctest", {}).get(label)
        runs = MODULE_S if known is None else sum(s for s in known.values() if s <= SLOW_S)
        steps = steps_to_build(build, [*plan.targets, target])
        if not budget.take(runs + (steps - built) * STEP_S, always):
            return False
        built = steps
        plan.targets.append(target)
        plan.labels.append(label)
        plan.slow += [test for test, s in (known or {}).items() if s > SLOW_S]
        return True

    for target in cross:
        add(target.removesuffix("_test"), target, True)
    rings = by_distance(modules, users(root))
    left_out = [m for i, ring in enumerate(rings) for m in ring
                if has_tests(root, m) and not add(m, f"{m}_test", i == 0)]
    if plan.labels:
        plan.reasons.append("C++ tests of " + ", ".join(plan.labels))
    if left_out:
        plan.reasons.append("for want of time no C++ tests of " + ", ".join(left_out))

    changed, named, others = python_files(root, files)
    native = bool(modules) or any(f.startswith("python/native/") for f in files)
    if native or named:
        steps = steps_to_build(build, [*plan.targets, "sidereal_programs"])
        if budget.take((steps - built) * STEP_S, bool(named)):
            plan.targets.append("sidereal_programs")
        else:
            named, others = [], []
            plan.reasons.append("for want of time no Python tests of the C++ code")
    known_files = times.get("pytest", {})

    def cost(file: str) -> float:
        known = known_files.get(file)
        return FILE_S if known is None else sum(s for s in known.values() if s <= SLOW_S)

    if not native and not named:
        others = []
    others.sort(key=cost)
    for group, name in ((changed, "changed"), (named, "that name what changed"),
                        (others, "that are quick")):
        taken = [f for f in group if budget.take(cost(f), name == "changed")]
        plan.pytest += taken
        if name != "changed":
            for file in taken:
                slow = [test for test, s in known_files.get(file, {}).items() if s > SLOW_S]
                plan.pytest += [f"--deselect={file}::{test}" for test in slow]
        if group:
            plan.reasons.append(f"{len(taken)} of {len(group)} files of Python tests {name}")
    if not plan.labels and not plan.pytest:
        plan.reasons.append("no test is reached by what changed")
    return plan


def has_tests(root: pathlib.Path, module: str) -> bool:
    text = (root / "src/sidereal" / module / "CMakeLists.txt").read_text()
    return re.search(r"\bTESTS\b", text) is not None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True, help="build/PRESET")
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("files", nargs="*", help="those that changed")
    options = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parents[1]
    recorded = options.build / "test_times.json"
    times = json.loads(recorded.read_text()) if recorded.exists() else {}
    plan = choose(root, options.build, options.files, times, options.seconds, options.jobs)
    (options.build / "fast.json").write_text(json.dumps(dataclasses.asdict(plan), indent=1))
    print("\n".join(plan.reasons))
    return 0


if __name__ == "__main__":
    sys.exit(main())
