"""`sidereal runs`: the trainings whose files (run.toml) are in a folder."""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from . import errors
from ._config_file import read_toml
from ._predict_command import failed
from ._progress import table
from ._usage import Parser, say

RUN_FILE = "run.toml"


@dataclass(frozen=True)
class RunFile:
    """What a training wrote about itself."""

    name: str
    path: Path
    #: As `sidereal train --config` takes them.
    options: dict[str, Any]
    #: What became of it.
    facts: dict[str, Any]

    @classmethod
    def load(cls, path: Path, name: str | None = None) -> RunFile:
        """Of a file, or of the folder that it is in."""
        file = path / RUN_FILE if path.is_dir() else path
        if not file.exists():
            raise errors.NotFoundError(
                f"{path} is no run: there is no {file}, which `sidereal train` writes beside what "
                "--checkpoint-dir, --tensorboard or --json names"
            )
        read, _ = read_toml(file)
        facts = read.pop("run", None)
        if not isinstance(facts, dict):
            raise errors.InvalidArgumentError(
                f"{file} has no table [run]: it is a file of options, and no training has written "
                "it"
            )
        return cls(str(path) if name is None else name, file, read, facts)

    def figure(self, which: str, name: str) -> float | None:
        """Of "last", "best" or "test"."""
        value = self.facts.get(which, {}).get(name)
        return None if value is None else float(value)

    @property
    def started(self) -> str:
        return str(self.facts.get("started", ""))

    def ended(self, now: datetime) -> str:
        """How it ended, in words."""
        how = str(self.facts.get("how", "?"))
        if how == "failed":
            return f"failed: {self.facts.get('error', '')}"
        if how != "running":
            return how
        since = _since(self.facts.get("heard"), now)
        # A process that was killed says nothing any more.
        return "running" + (f", or killed; last heard of {since} ago" if since else "")


def _since(text: Any, now: datetime) -> str:
    try:
        then = datetime.strptime(str(text), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    except ValueError:
        return ""
    seconds = max(0, int((now - then).total_seconds()))
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def find_runs(root: Path) -> tuple[list[RunFile], list[str]]:
    """The runs in a folder and below, the oldest first, and what was wrong with files."""
    if not root.is_dir():
        raise errors.NotFoundError(f"{root}: there is no such folder")
    runs, wrong = [], []
    for folder, _, files in os.walk(root):
        for file in files:
            if file != RUN_FILE and not file.endswith("." + RUN_FILE):
                continue
            path = Path(folder, file)
            inside = path.parent if file == RUN_FILE else path.with_name(
                file.removesuffix("." + RUN_FILE))  # fmt: skip
            try:
                runs.append(RunFile.load(path, str(inside.relative_to(root))))
            except errors.Error as error:
                wrong.append(error.message)
    return sorted(runs, key=lambda run: (run.started, run.name)), sorted(wrong)


def shown(value: Any) -> str:
    """A figure or an option in a table."""
    if value is None or value == "" or value == []:
        return "-"
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.6g}"
    if isinstance(value, list):
        return ",".join(str(one) for one in value)
    return str(value)


def _data(run: RunFile) -> str:
    files = run.options.get("data") or []
    files = files if isinstance(files, list) else [files]
    if not files:
        return "-"
    more = int(run.facts.get("data_files", len(files))) - 1
    return os.path.basename(str(files[0])) + (f" +{more}" if more > 0 else "")


def _row(run: RunFile, now: datetime) -> list[str]:
    best = shown(run.figure("best", "auc"))
    if run.facts.get("best_epoch"):
        best += f" (epoch {run.facts['best_epoch']})"
    loss = run.facts.get("training_loss", run.figure("last", "training_loss"))
    return [
        run.name, run.started or "-", shown(run.options.get("model")), _data(run),
        shown(run.facts.get("steps")), shown(loss), shown(run.figure("last", "auc")), best,
        shown(run.figure("test", "auc")), run.ended(now),
    ]  # fmt: skip


def parser() -> argparse.ArgumentParser:
    out = Parser(
        prog="sidereal runs",
        description="Lists the trainings whose files run.toml are in a folder, and what came of "
        "them.",
    )
    out.add_argument("folder", nargs="?", default=".", metavar="DIR", help="where to look (.)")
    out.add_argument("--json", action="store_true", help="a list for programs, of all there is")
    return out


def main(arguments: Sequence[str]) -> int:
    """`sidereal runs ARGUMENTS`: the exit code."""
    options = parser().parse_args(arguments)
    now = datetime.now(timezone.utc)
    try:
        runs, wrong = find_runs(Path(options.folder))
    except (errors.Error, OSError) as error:
        return failed("runs", error)
    for text in wrong:
        say("runs", f"warning: left out: {text}")
    if options.json:
        listed = [
            {"name": run.name, "file": str(run.path), "options": run.options, "run": run.facts}
            for run in runs
        ]
        print(json.dumps(listed, indent=1))
        return 0
    if not runs:
        print(f"there are no runs in {options.folder}")
        return 0
    head = [
        "run", "started", "model", "data", "steps", "training loss", "last auc", "best auc",
        "test auc", "ended",
    ]  # fmt: skip
    print(table(head, [_row(run, now) for run in runs]))
    return 0
