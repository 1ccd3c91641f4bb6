"""Looks at the messages of commits: a subject of at most 72 columns, then a blank line or nothing.

Commits written before SINCE are left alone, and so are merges. The date is the author's, which
stays when commits are rebased or taken over, so that any clone that has the commits can be checked.
"""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys

COLUMNS_MAX = 72
#: When the rule began: seconds since 1970, 2026-11-23 14:00 UTC.
SINCE = 1_795_442_400


def commits(root: pathlib.Path, since: int) -> list[tuple[str, str]]:
    """(short hash, message) of the commits that are looked at."""
    command = ["git", "-C", str(root), "log", "--no-merges", "--format=%h%x00%at%x00%B%x01", "HEAD"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = []
    for entry in text.split("\x01"):
        if entry.strip():
            short, date, message = entry.strip("\n").split("\0")
            if int(date) >= since:
                found.append((short, message.rstrip("\n")))
    return found


def problems_of(message: str) -> list[str]:
    """What is wrong with a message."""
    lines = message.split("\n")
    problems = []
    if len(lines[0]) > COLUMNS_MAX:
        problems.append(f"a subject of {len(lines[0])} columns, at most {COLUMNS_MAX}: {lines[0]}")
    if len(lines) > 1 and lines[1]:
        problems.append(f"no blank line after the subject: {lines[0]}")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[1])
    parser.add_argument("--since", type=int, default=SINCE, help="seconds since 1970")
    options = parser.parse_args()
    inside = ["git", "-C", str(options.root), "rev-parse", "--verify", "-q", "HEAD"]
    if subprocess.run(inside, capture_output=True, check=False).returncode != 0:
        print("check_commits: no commits here")
        return 0
    looked_at = commits(options.root, options.since)
    problems = [f"{short}: {what}" for short, message in looked_at for what in problems_of(message)]
    for problem in problems:
        print(f"ERROR: {problem}")
    print(f"check_commits: {len(problems)} problems in {len(looked_at)} commits")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
