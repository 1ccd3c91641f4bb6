"""What pages of the guide say of the program: messages, options, figures and names are real."""

from __future__ import annotations

import functools
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from session_servers import PROGRAM

import sidereal as sr
import sidereal.v1 as tf
from sidereal import __main__, _native

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide"


def literals() -> str:
    """The texts of all sources: literals that stand beside one another are one, and what is put
    into them is "..."."""
    files = [*ROOT.glob("src/sidereal/**/*.cc"), *ROOT.glob("src/sidereal/**/*.h"),
             *ROOT.glob("python/sidereal/**/*.py"), *ROOT.glob("python/native/*.cc")]  # fmt: skip
    text = "\n".join(path.read_text() for path in files if "_test." not in path.name)
    text = re.sub(r'"\s*\n\s*[fr]*"', "", text).replace('\\"', '"').replace("\\\\", "\\")
    return re.sub(r"\{[^{}\n]*\}", "...", text)


def messages_of(page: str) -> list[str]:
    """The messages of a page: the code in the first cells of its tables."""
    cells = re.findall(r"^\| (`.*?`) \|", page, re.M)
    return [message for cell in cells for message in re.findall(r"`([^`]+)`", cell)]


def test_the_page_of_errors_has_messages_of_the_program() -> None:
    known = literals()
    messages = messages_of((GUIDE / "errors.md").read_text())
    assert len(messages) > 30
    missing = [message for message in messages if message not in known]
    assert not missing


@pytest.mark.parametrize(
    "message", ["nothing says ... this", "no file matches '...'; check the path of the cat"]
)
def test_a_message_that_nothing_says_is_noticed(message: str) -> None:
    assert messages_of(f"| `{message}` | do |") == [message]
    assert message not in literals()


# --- Names, options, figures.

MODULES = {"sr": sr, "tf": tf, "keras": sr.keras}


def rows_of(page: str) -> list[list[str]]:
    """The cells of the tables of a page, without heads."""
    lines = [line for line in page.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]
    heads = {i for i, row in enumerate(rows[1:]) if set("".join(row)) <= set("- ")}
    return [row for i, row in enumerate(rows) if i not in heads and i - 1 not in heads]


def is_there(name: str) -> bool:
    """Whether `sr.train.Server`, or `tf.ConfigProto(tensor_fuse=True)`, can be said."""
    path, *arguments = re.split(r"[(),]\s*", name)
    first, *rest = path.split(".")
    found: Any = MODULES[first]
    for part in rest:
        found = getattr(found, part, None)
    given = [argument.split("=")[0] for argument in arguments if "=" in argument]
    known = set(inspect.signature(found).parameters) if given else set()
    return found is not None and ("options" in known or "kwargs" in known or {*given} <= known)


def test_what_other_systems_have_is_here_under_these_names() -> None:
    rows = rows_of((GUIDE / "coming_from.md").read_text())
    names = [name for row in rows for name in re.findall(r"`((?:sr|tf|keras)\.[^`]+)`", row[1])]
    assert len(names) > 40
    assert [name for name in names if not is_there(name)] == []
    assert not is_there("sr.train.Severe")
    assert not is_there("tf.Session(masters=1)")


def test_bytes_of_rows_are_those_of_the_layout() -> None:
    slots = {row.class_name: [(when, wide) for _, _, when, wide in row.slots]
             for row in _native.optimizer_rows()}  # fmt: skip
    checked = []
    for names, *cells in rows_of((GUIDE / "sizing.md").read_text()):
        sizes = cells[1:-1]
        for name in re.findall(r"`(\w+)`", names):
            if name not in slots:
                continue
            checked.append(name)
            for dim, said in zip((1, 8, 16, 64), sizes, strict=True):
                floats = dim + sum(1 if wide else dim for when, wide in slots[name] if not when)
                if floats == dim:
                    stride = floats
                elif floats >= 16:
                    stride = (floats + 15) // 16 * 16
                else:
                    stride = 1 << (floats - 1).bit_length()
                assert int(said) == 4 * stride, (name, dim)
    assert checked == ["SGD", "RowWiseAdagrad", "Adagrad", "Momentum", "Lion", "Adam", "Ftrl"]


def test_figures_to_look_at_exist() -> None:
    known = set(re.findall(r"`(sidereal_\w+)", (GUIDE / "metrics.md").read_text()))
    said = set(re.findall(r"`(sidereal_\w+)", (GUIDE / "operating.md").read_text()))
    assert len(said) > 5
    assert said <= known


def commands_of(page: str) -> list[list[str]]:
    """The words of each `sidereal ...` in a block of a page, lines that go on joined."""
    blocks = re.findall(r"^```(?:sh|bash)?\n(.*?)^```", page, re.M | re.S)
    text = "\n".join(blocks).replace("\\\n", " ")
    lines = re.findall(r"^sidereal ((?:[a-z]+ ?)+.*)$", text, re.M)
    return [line.split(" # ")[0].split() for line in lines]


@functools.lru_cache
def options_of(*words: str) -> frozenset[str]:
    """The options that the help of a command of `sidereal` names."""
    python = words[0] in __main__._COMMANDS
    program = [sys.executable, "-m", "sidereal"] if python else [str(PROGRAM)]
    done = subprocess.run(
        [*program, *words, "--help"], check=False, text=True, capture_output=True, timeout=60
    )
    assert done.returncode == 0, (words, done.stderr)
    return frozenset(re.findall(r"--[a-z][a-z-]*", done.stdout))


def test_commands_of_the_guide_have_these_options() -> None:
    seen = 0
    for path in [ROOT / "README.md", *sorted(GUIDE.glob("*.md"))]:
        for words in commands_of(path.read_text()):
            deep = 2 if words[0] in ("graph", "ckpt") else 1
            options = [word.split("=")[0] for word in words if word.startswith("--")]
            if words[0] == "launch":  # What follows the script is the script's.
                script = next(i for i, word in enumerate(words) if word.endswith(".py"))
                options = [word for word in words[:script] if word.startswith("--")]
            if words[:2] == ["launch:", "ps"]:
                continue
            known = options_of(*words[:deep])
            assert set(options) <= known, (path.name, words)
            seen += len(options)
    assert seen > 40
