"""Random functions of variables, conditionals and loops, as NumPy and as graphs run them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import sidereal as sr

#: All values are whole numbers below this, which float32 has exactly.
MODULUS = 31.0
Expression = Any  # ("value", 3.0), ("local", i), ("read", v), ("row", v, e), ("+*"...)
Block = list[Any]


class Program:
    """Statements over variables, some with rows, and `locals_count` numbers that are its own: of
    random kinds, conditionals and loops in each other up to a depth. The same for a seed.

    only_adds: what it adds to variables depends on its numbers alone, and in no order.
    """

    def __init__(
        self, seed: int, rows: Sequence[int], locals_count: int = 2, only_adds: bool = False
    ) -> None:
        self._rng = random.Random(seed)
        self._rows = rows
        self.locals_count = locals_count
        self._reads = [] if only_adds else ["read", "read", "row"]
        self._changes = ["add", "add", "rows"] if only_adds else ["assign", "add", "rows"]
        self.block = self._block(3)

    def __str__(self) -> str:
        return "\n".join(_lines(self.block, ""))

    def _expression(self, depth: int = 2) -> Expression:
        kind = self._rng.choice(["value", "local", *self._reads, "sum", "sum"])
        if kind == "sum" and depth > 0:
            return ("sum", self._expression(depth - 1), self._expression(depth - 1))
        if kind == "local":
            return ("local", self._rng.randrange(self.locals_count))
        if kind == "row":
            wide = [v for v, rows in enumerate(self._rows) if rows > 1]
            if wide and depth > 0:
                return ("row", self._rng.choice(wide), self._expression(depth - 1))
        if kind in ("read", "row"):
            return ("read", self._rng.randrange(len(self._rows)))
        return ("value", float(self._rng.randrange(1, int(MODULUS))))

    def _block(self, depth: int, only_reads: bool = False) -> Block:
        return [self._statement(depth, only_reads) for _ in range(self._rng.randint(1, 4))]

    def _statement(self, depth: int, only_reads: bool) -> Any:
        nested = ["cond", "loop"] if depth > 0 else []
        changes = [] if only_reads else self._changes
        kind = self._rng.choice(["local", *changes, *nested])
        if kind in nested:
            only_reads = only_reads or self._rng.random() < 0.4
        if kind == "cond":
            blocks = [self._block(depth - 1, only_reads) for _ in range(2)]
            return ("cond", self._expression(), *blocks)
        if kind == "loop":
            return ("loop", self._rng.randint(0, 3), self._block(depth - 1, only_reads))
        if kind == "local":
            return ("local", self._rng.randrange(self.locals_count), self._expression())
        variable = self._rng.randrange(len(self._rows))
        if kind == "rows" and self._rows[variable] > 1:
            return ("rows", variable, self._expression(1), self._expression(1))
        if kind == "rows":
            kind = self._changes[0]
        return (kind, variable, self._expression())


def _lines(block: Block, indent: str) -> list[str]:
    out = []
    for what, *rest in block:
        said = [one for one in rest if not isinstance(one, list)]
        out.append(f"{indent}{what} {said}")
        for inner in (one for one in rest if isinstance(one, list)):
            out += [*_lines(inner, indent + "  "), f"{indent}--"]
    return out


class Runner:
    """Runs statements, one after the other. Values of `variables` stay below MODULUS, but for what
    is added to them."""

    def __init__(self, variables: Sequence[Any]) -> None:
        self._variables = variables

    def value(self, what: Expression, numbers: Sequence[Any]) -> Any:
        kind, *rest = what
        if kind == "value":
            return self.constant(rest[0])
        if kind == "local":
            return numbers[rest[0]]
        if kind == "sum":
            first, second = (self.value(each, numbers) for each in rest)
            return self.modulo(first * 3.0 + second)
        if kind == "row":
            place = self.place(self.value(rest[1], numbers), rest[0])
            return self.modulo(self.row(rest[0], place))
        return self.modulo(self.total(rest[0]))

    def run(self, block: Block, numbers: list[Any]) -> list[Any]:
        """The locals afterwards."""
        for what, *rest in block:
            if what == "local":
                numbers = [*numbers]
                numbers[rest[0]] = self.value(rest[1], numbers)
            elif what == "cond":
                is_first = self.value(rest[0], numbers) > MODULUS / 2
                numbers = self.either(is_first, rest[1], rest[2], numbers)
            elif what == "loop":
                numbers = self.repeat(rest[0], rest[1], numbers)
            elif what == "rows":
                place = self.place(self.value(rest[1], numbers), rest[0])
                self.add_to_row(rest[0], place, self.value(rest[2], numbers))
            else:
                self.change(what, rest[0], self.value(rest[1], numbers))
        return numbers

    # --- As the two kinds do them.

    constant: Callable[[float], Any]

    def modulo(self, x: Any) -> Any: ...
    def place(self, x: Any, variable: int) -> Any: ...
    def row(self, variable: int, place: Any) -> Any: ...
    def total(self, variable: int) -> Any: ...
    def change(self, how: str, variable: int, value: Any) -> None: ...
    def add_to_row(self, variable: int, place: Any, value: Any) -> None: ...
    def either(self, is_first: Any, yes: Block, no: Block, numbers: list[Any]) -> list[Any]: ...
    def repeat(self, times: int, block: Block, numbers: list[Any]) -> list[Any]: ...


class NumpyRunner(Runner):
    """With arrays as variables."""

    constant = staticmethod(np.float32)

    def modulo(self, x: Any) -> Any:
        return np.float32(np.mod(x, np.float32(MODULUS)))

    def place(self, x: Any, variable: int) -> int:
        return int(x) % len(self._variables[variable])

    def row(self, variable: int, place: int) -> Any:
        return self._variables[variable][place]

    def total(self, variable: int) -> Any:
        return np.sum(self._variables[variable], dtype=np.float32)

    def change(self, how: str, variable: int, value: Any) -> None:
        array = self._variables[variable]
        array[...] = value if how == "assign" else array + value

    def add_to_row(self, variable: int, place: int, value: Any) -> None:
        self._variables[variable][place] += value

    def either(self, is_first: Any, yes: Block, no: Block, numbers: list[Any]) -> list[Any]:
        return self.run(yes if is_first else no, numbers)

    def repeat(self, times: int, block: Block, numbers: list[Any]) -> list[Any]:
        for _ in range(times):
            numbers = self.run(block, numbers)
        return numbers


class GraphRunner(Runner):
    """In a function that is traced. `wide`: a matrix of it; what is given to variables takes a
    while to compute, so that what is in no order is seen."""

    def __init__(self, variables: Sequence[Any], wide: Any) -> None:
        super().__init__(variables)
        self._wide = wide

    constant = staticmethod(lambda value: sr.constant(value, "float32"))

    def modulo(self, x: Any) -> Any:
        return sr.math.floormod(x, MODULUS)

    def place(self, x: Any, variable: int) -> Any:
        return sr.math.floormod(sr.cast(x, "int64"), self._variables[variable].shape[0])

    def row(self, variable: int, place: Any) -> Any:
        return sr.gather(self._variables[variable], place)

    def total(self, variable: int) -> Any:
        return sr.reduce_sum(self._variables[variable].read_value())

    def change(self, how: str, variable: int, value: Any) -> None:
        kept = self._variables[variable]
        late = 0.0 * sr.reduce_sum(sr.matmul(self._wide, self._wide))
        value = sr.zeros(kept.shape, "float32") + value + late
        kept.assign(value) if how == "assign" else kept.assign_add(value)

    def add_to_row(self, variable: int, place: Any, value: Any) -> None:
        kept = self._variables[variable]
        kept.scatter_add(sr.IndexedSlices(sr.reshape(value, [1]), sr.reshape(place, [1])))

    def either(self, is_first: Any, yes: Block, no: Block, numbers: list[Any]) -> list[Any]:
        return sr.cond(is_first, lambda: self.run(yes, numbers), lambda: self.run(no, numbers))

    def repeat(self, times: int, block: Block, numbers: list[Any]) -> list[Any]:
        def body(i: Any, *inner: Any) -> Any:
            return (i + 1, *self.run(block, list(inner)))

        _, *found = sr.while_loop(lambda i, *_: i < times, body, (sr.constant(0), *numbers))
        return found
