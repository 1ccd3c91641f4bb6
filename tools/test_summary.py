"""Adds up the JUnit files of one test run and ends with 'N passed, N failed, N skipped'."""

from __future__ import annotations

import argparse
import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

LINES_OF_A_FAILURE = 40


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=pathlib.Path, help="folder with the .xml files")
    files = sorted(parser.parse_args().results.glob("*.xml"))
    passed, failed, skipped = read(files)
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
