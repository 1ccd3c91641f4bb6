"""Random functions with control flow give in a graph what they give when they run as they are."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import sidereal as sr

NAMES = ("a", "b", "c")


class Writer:
    """Writes a function of three integers, whose loops end."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._counters = 0
        self.lines: list[str] = []

    def value(self) -> str:
        """An expression of the variables."""
        rng, name = self._rng, self._rng.choice
        kind = rng.randrange(5)
        if kind == 0:
            return str(rng.randrange(9))
        if kind == 1:
            return name(NAMES)
        if kind == 2:
            return f"({name(NAMES)} {name('+-')} {name(NAMES)}) % 11"
        if kind == 3:
            return f"({name(NAMES)} if {self.flag()} else {name(NAMES)})"
        return f"helper({name(NAMES)}, {name(NAMES)})"

    def flag(self, depth: int = 0) -> str:
        """A condition."""
        rng, name = self._rng, self._rng.choice
        kind = rng.randrange(5 if depth < 2 else 2)
        if kind < 2:
            operator = name(("<", ">", "==", "!=", "<="))
            return f"{name(NAMES)} {operator} {name((*NAMES, '3', '5'))}"
        if kind == 2:
            return f"not ({self.flag(depth + 1)})"
        if kind == 3:
            return f"({self.flag(depth + 1)} {name(('and', 'or'))} {self.flag(depth + 1)})"
        return f"0 <= {name(NAMES)} < {name(NAMES)}"

    def block(self, depth: int, in_loop: bool) -> None:
        for _ in range(self._rng.randint(1, 3)):
            self.statement(depth, in_loop)

    def statement(self, depth: int, in_loop: bool) -> None:
        rng, space = self._rng, "    " * depth
        kind = rng.choice(("assign", "assign", "if", "while", "for", "leave"))
        if depth > 3 or kind == "assign":
            self.lines.append(f"{space}{rng.choice(NAMES)} = {self.value()}")
        elif kind == "if":
            self.lines.append(f"{space}if {self.flag()}:")
            self.block(depth + 1, in_loop)
            if rng.random() < 0.6:
                self.lines.append(f"{space}else:")
                self.block(depth + 1, in_loop)
        elif kind == "while":
            self._counters += 1
            n = f"n{self._counters}"
            self.lines += [f"{space}{n} = a * 0", f"{space}while {n} < 3 and {self.flag()}:"]
            self.lines.append(f"{space}    {n} += 1")
            self.block(depth + 1, True)
            if rng.random() < 0.3:
                self.lines.append(f"{space}else:")
                self.block(depth + 1, in_loop)
        elif kind == "for":
            limit = rng.choice(("3", "a % 4", "sr.stack([a, b])"))
            rows = limit if limit.startswith("sr") else f"range({limit})"
            self.lines.append(f"{space}for {rng.choice(NAMES)} in {rows}:")
            self.block(depth + 1, True)
        else:
            leave = rng.choice(("break", "continue")) if in_loop else f"return {self.value()}, b, c"
            if rng.random() < 0.3:
                leave = f"return a, {self.value()}, c"
            self.lines += [f"{space}if {self.flag()}:", f"{space}    {leave}"]


HELPER = """
import sidereal as sr

def helper(x, y):
    if x > y:
        return x - y
    while x < y:
        x += 2
    return x

def run(a, b, c):
"""


def module_of(seed: int, folder: Path) -> ModuleType:
    writer = Writer(random.Random(seed))
    writer.block(1, False)
    writer.block(1, False)
    text = "\n".join([HELPER.rstrip(), *writer.lines, "    return a, b, c", ""])
    path = folder / f"random_{seed}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize("part", range(4))
def test_random_control_flow_gives_the_same_in_graphs(part: int, tmp_path: Path) -> None:
    for seed in range(part * 15, part * 15 + 15):
        module = module_of(seed, tmp_path)
        traced = sr.function(module.run)
        for values in ((1, 2, 3), (7, 0, 4), (5, 5, 5), (0, 9, 2)):
            given = [sr.constant(np.int32(value)) for value in values]
            want = [int(each) for each in module.run(*given)]
            got: Any = [int(each) for each in traced(*given)]
            assert got == want, f"{tmp_path}/random_{seed}.py: run{values}"
