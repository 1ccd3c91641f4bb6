"""Adds up the JUnit files of one test run: what was slowest, what failed, and at the end
'N passed, N failed, N skipped'. With --times it keeps how long each test took, for --fast."""

from __future__ import annotations

import argparse
import collections
import json
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

LINES_OF_A_FAILURE = 40
SLOWEST = 10

#: {"ctest": {label: {test: seconds}}, "pytest": {file: {test: seconds}}}
Times = dict[str, dict[str, dict[str, float]]]


def skip_reason(case: ElementTree.Element) -> str:
    """Why a case was skipped, from its message or from what GoogleTest printed."""
    output = case.findtext("system-out") or ""
    if match := re.search(r"Skipped\n(.+?)\n", output, re.S):
        return match[1].strip().splitlines()[0]
    element = case.find("skipped")
    return (element.get("message") or "") if element is not None else ""


def last_words(case: ElementTree.Element) -> list[str]:
    """What a failed case said last, without blank lines."""
    element = case.find("failure")
    element = case.find("error") if element is None else element
    said = [case.findtext("system-out") or "", (element.text or "") if element is not None else ""]
    lines = "\n".join(said).splitlines()
    return [line.rstrip()[:200] for line in lines if line.strip()][-LINES_OF_A_FAILURE:]


def read(
    files: list[pathlib.Path],
) -> tuple[int, dict[str, list[str]], list[tuple[str, str]]]:
    """(number passed, what each failed one said, (skipped name, reason))."""
    passed, failed, skipped = 0, {}, []
    for file in files:
        for case in ElementTree.parse(file).getroot().iter("testcase"):
            name = case.get("name") or "?"
            group = case.get("classname") or ""
            label = name if group in ("", name) else f"{group}.{name}"
            if case.find("failure") is not None or case.find("error") is not None:
                failed[label] = last_words(case)
            elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
                skipped.append((label, skip_reason(case)))
            else:
                passed += 1
    return passed, failed, skipped


def label_of(case: ElementTree.Element) -> str:
    """The label that ctest has given a test: its module."""
    for one in case.iter("property"):
        if one.get("name") == "cmake_labels":
            return (one.get("value") or "").split(";")[0]
    return ""


def python_test(root: pathlib.Path, case: ElementTree.Element) -> tuple[str, str]:
    """(file, Class::test[parameters]) of a case of pytest, as pytest's arguments name it."""
    parts = (case.get("classname") or "").split(".")
    for length in range(len(parts), 0, -1):
        file = "/".join(parts[:length]) + ".py"
        if (root / file).is_file():
            return file, "::".join([*parts[length:], case.get("name") or "?"])
    return "", case.get("name") or "?"


def durations(files: list[pathlib.Path], root: pathlib.Path) -> Times:
    """How long each test took; those that were skipped are left out."""
    times: Times = {"ctest": {}, "pytest": {}}
    for file in files:
        for case in ElementTree.parse(file).getroot().iter("testcase"):
            if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
                continue
            if file.name.startswith("pytest"):
                kind, (group, name) = "pytest", python_test(root, case)
            else:
                kind, group, name = "ctest", label_of(case), case.get("name") or "?"
            times[kind].setdefault(group, {})[name] = round(float(case.get("time") or 0), 3)
    return times


def keep(times: Times, path: pathlib.Path) -> None:
    """Adds times to those kept in a file."""
    kept: Times = json.loads(path.read_text()) if path.exists() else {}
    for kind, groups in times.items():
        for group, tests in groups.items():
            kept.setdefault(kind, {}).setdefault(group, {}).update(tests)
    path.write_text(json.dumps(kept))


def slowest(times: Times) -> list[str]:
    """The tests that took longest, a line for each."""
    lines = [(seconds, f"{group}::{name}" if kind == "pytest" else name)
             for kind, groups in times.items() for group, tests in groups.items()
             for name, seconds in tests.items()]
    lines.sort(reverse=True)
    return [f"slowest: {seconds:6.1f} s  {name}" for seconds, name in lines[:SLOWEST]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=pathlib.Path, help="folder with the .xml files")
    parser.add_argument("--times", type=pathlib.Path, help="file that keeps the times of tests")
    options = parser.parse_args()
    files = sorted(options.results.glob("*.xml"))
    passed, failed, skipped = read(files)
    times = durations(files, pathlib.Path(__file__).resolve().parents[1])
    if options.times is not None:
        keep(times, options.times)
    for line in slowest(times):
        print(line)
    reasons = collections.defaultdict(list)
    for name, reason in skipped:
        reasons[reason or "no reason given"].append(name)
    for reason, names in sorted(reasons.items()):
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        print(f"skipped: {shown}: {reason}")
    for name, words in failed.items():
        print(f"FAILED: {name}")
        for line in words:
            print(f"  | {line}")
    if not passed and not failed:
        print("no test ran")
    print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
