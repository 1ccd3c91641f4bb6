"""Adds a graph that was written as text to another one. The format is in
docs/formats/graph_text.md."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .. import _native, dtypes, errors
from .._dispatch import ENGINE
from .._native import Output
from .._values import to_tensor
from .graph import Graph

_VERSIONS = ("1", "2")
_TOKEN = re.compile(
    r'\s*("(?:[^"\\]|\\.)*"|%\d+|nan\(0x[0-9a-f]+\)|-?inf\b|-?\d+\.?\d*(?:e[-+]?\d+)?'
    r"|@\d+|[A-Za-z_]\w*|[][(){}=,:?])"
)
_BASE64 = re.compile(r"\s*\{([A-Za-z0-9+/=\s]*)\}")
_ESCAPE = re.compile(rb'\\(x[0-9a-fA-F]{2}|["\\n])')
#: Written as the integers of their bits.
_BITS = ("float16", "bfloat16")


def add_text(graph: Graph, text: str, prefix: str = "", clear_devices: bool = False) -> None:
    """Adds the nodes of a text, with `prefix` before their names, and without their devices if
    `clear_devices`. InvalidArgumentError for a text that is none, ops that do not exist and names
    that are taken."""
    lines = _Lines(text)
    head = lines.next().split()
    if len(head) != 2 or head[0] != "sidereal-graph" or head[1] not in _VERSIONS:
        raise lines.error(f"begins with '{' '.join(head):.40}', not with 'sidereal-graph 1'")
    functions: list[_native.Body] = []
    while lines.peek().startswith("function"):
        functions.append(_read_function(lines, functions))
    _Nodes(graph.native, lines, functions, prefix, clear_devices, graph).add_all()


class _Lines:
    """Lines of a text that say something, with their numbers."""

    def __init__(self, text: str) -> None:
        self._lines = [
            (number, line)
            for number, line in enumerate(text.splitlines(), 1)
            if line.strip() and not line.lstrip().startswith("#")
        ]
        self._at = 0

    def peek(self) -> str:
        return self._lines[self._at][1].strip() if self._at < len(self._lines) else ""

    def next(self) -> str:
        line = self.peek()
        self._at += 1
        return line

    def error(self, what: str) -> errors.InvalidArgumentError:
        at = min(max(self._at - 1, 0), len(self._lines) - 1)
        number = self._lines[at][0] if self._lines else 1
        return errors.InvalidArgumentError(f"graph text, line {number}: {what}")


class _Tokens:
    """Words of one line."""

    def __init__(self, line: str, lines: _Lines) -> None:
        self._line = line
        self._at = 0
        self._lines = lines

    def error(self, what: str) -> errors.InvalidArgumentError:
        return self._lines.error(f"{what} at '{self._line[self._at :]:.40}'")

    def peek(self) -> str:
        found = _TOKEN.match(self._line, self._at)
        return found[1] if found else ""

    def next(self) -> str:
        found = _TOKEN.match(self._line, self._at)
        if found is None:
            raise self.error("a word is missing")
        self._at = found.end()
        return found[1]

    def take(self, word: str) -> bool:
        if self.peek() != word:
            return False
        self.next()
        return True

    def need(self, word: str) -> None:
        if not self.take(word):
            raise self.error(f"'{word}' is missing")

    def list(self, end: str) -> Iterator[None]:
        """Once for each item of a list up to `end`, which the caller reads."""
        while not self.take(end):
            yield
            if not self.take(","):
                self.need(end)
                return

    def string(self) -> bytes:
        word = self.next()
        if not word.startswith('"'):
            raise self.error("a string is missing")
        return _ESCAPE.sub(_unescaped, word[1:-1].encode("utf-8", "surrogateescape"))

    def text(self) -> str:
        return self.string().decode()

    def base64(self) -> bytes:
        found = _BASE64.match(self._line, self._at)
        if found is None:
            raise self.error("base64 is missing")
        self._at = found.end()
        return base64.b64decode(found[1])


def _unescaped(match: re.Match[bytes]) -> bytes:
    said = match[1]
    return b"\n" if said == b"n" else bytes([int(said[1:], 16)]) if said[:1] == b"x" else said


def _read_function(lines: _Lines, functions: Sequence[_native.Body]) -> _native.Body:
    lines.next()
    native = _native.Graph(ENGINE)
    nodes = _Nodes(native, lines, functions, "", False, None)
    nodes.add_all()
    tokens = _Tokens(lines.next(), lines)
    tokens.need("return")
    outputs = []
    while tokens.peek().startswith("%"):
        outputs.append(nodes.output(tokens))
        if not tokens.take(","):
            break
    if lines.next() != "}":
        raise lines.error("'}' is missing at the end of a function")
    return _native.cut_body(native, nodes.arguments, outputs)


class _Nodes:
    """Adds the nodes of a graph, or of a function."""

    def __init__(
        self, native: _native.GraphBase, lines: _Lines, functions: Sequence[_native.Body],
        prefix: str, clear_devices: bool, owner: Graph | None,
    ) -> None:  # fmt: skip
        self._native = native
        self._lines = lines
        self._functions = functions
        self._prefix = prefix
        self._clear_devices = clear_devices
        self._owner = owner
        #: Numbers of functions, by the names that they have here.
        self._uses: dict[str, int] = {}
        #: Numbers that nodes have here, by their numbers in the text.
        self._numbers: list[int] = []
        self.arguments: list[Output] = []

    def add_all(self) -> None:
        while (line := self._lines.peek()) and not line.startswith(("return", "}")):
            tokens = _Tokens(self._lines.next(), self._lines)
            if tokens.take("use"):
                name = tokens.text()
                self._uses[name] = int(tokens.next()[1:])
            else:
                self._add(tokens)

    def output(self, tokens: _Tokens) -> Output:
        node = self._node(tokens)
        index = int(tokens.next()) if tokens.take(":") else 0
        return self._native.node_outputs(node)[index]

    def _node(self, tokens: _Tokens) -> int:
        word = tokens.next()
        if not word.startswith("%") or int(word[1:]) >= len(self._numbers):
            raise tokens.error(f"{word} is not an earlier node")
        return self._numbers[int(word[1:])]

    def _add(self, tokens: _Tokens) -> None:
        tokens.next()
        tokens.need("=")
        op = tokens.next()
        tokens.need("(")
        inputs = [self.output(tokens) for _ in tokens.list(")")]
        tokens.need("name")
        tokens.need("=")
        name = self._prefix + tokens.text()
        attrs: dict[str, Any] = {}
        if tokens.take("{"):
            for _ in tokens.list("}"):
                key = tokens.next()
                tokens.need("=")
                attrs[key] = _value(tokens)
        device = ""
        if tokens.take("device"):
            tokens.need("=")
            device = tokens.text()
        controls: list[int] = []
        if tokens.take("after"):
            tokens.need("(")
            controls = [self._node(tokens) for _ in tokens.list(")")]
        node = self._made(op, inputs, attrs, name, controls)
        self._numbers.append(node)
        if device and not self._clear_devices:
            self._native.set_device(node, device)
        together = attrs.get("_class")
        if together:
            names = [self._prefix + one.removeprefix("loc:@") for one in together]
            self._native.set_colocation(node, names)

    def _made(
        self, op: str, inputs: list[Output], attrs: Mapping[str, Any], name: str,
        controls: list[int],
    ) -> int:  # fmt: skip
        """The number of a new node."""
        if self._native.find_node(name) >= 0:
            raise self._lines.error(
                f"the graph has a node '{name}' already: import into a graph of its own, or with "
                "an import_scope"
            )
        if self._owner is not None:
            self._owner.take_name(name)
        plain = {key: value for key, value in attrs.items() if not key.startswith("_")}
        uses = [
            (self._uses[value], key)
            for key, value in plain.items()
            if isinstance(value, str) and value in self._uses
        ]
        bodies = {key: self._functions[number] for number, key in sorted(uses)}
        if op in ("Arg", "Placeholder"):
            made = self._native.placeholder(name, plain["dtype"], plain["shape"])
            if op == "Arg":
                self.arguments.append(made)
            return made.node
        if bodies:
            rest = {key: value for key, value in plain.items() if key not in bodies}
            _native.add_control(self._native, op, inputs, bodies, rest, name, "", controls)
        else:
            self._native.add(op, inputs, plain, name, "", controls)
        return len(self._native) - 1


# --- Values of attributes.


def _value(tokens: _Tokens) -> Any:
    word = tokens.peek()
    if word.startswith('"'):
        return tokens.text()
    tokens.next()
    if word in ("true", "false"):
        return word == "true"
    if word == "shape":
        return _shape(tokens)
    if word in ("ints", "floats", "strings"):
        tokens.need("[")
        if word == "strings":
            return [tokens.text() for _ in tokens.list("]")]
        read = int if word == "ints" else _number
        return [read(tokens.next()) for _ in tokens.list("]")]
    if re.match(r"-?(\d|inf)|nan\(", word):
        return int(word) if re.fullmatch(r"-?\d+", word) else _number(word)
    dtype = dtypes.as_dtype(word)
    if tokens.peek() not in ("[", "?"):
        return dtype
    return _tensor(tokens, word, dtype)


def _shape(tokens: _Tokens) -> tuple[int, ...] | None:
    if tokens.take("?"):
        return None
    tokens.need("[")
    words = [tokens.next() for _ in tokens.list("]")]
    return tuple(-1 if word == "?" else int(word) for word in words)


def _number(word: str, dtype: Any = np.float64) -> Any:
    """A number; of a NaN the bits are written, as many as its dtype has."""
    if not word.startswith("nan("):
        return float(word)
    bits = np.uint32 if np.dtype(dtype).itemsize == 4 else np.uint64
    return np.array(int(word[4:-1], 16), bits).view(dtype)[()]


def _tensor(tokens: _Tokens, name: str, dtype: Any) -> Any:
    shape = _shape(tokens)
    if shape is None:
        raise tokens.error("a tensor has a shape")
    if tokens.take("base64"):
        array = np.frombuffer(tokens.base64(), dtype).reshape(shape)
        return to_tensor(array, dtype)
    tokens.need("{")
    if name == "string":
        items = [tokens.string() for _ in tokens.list("}")]
        return ENGINE.from_strings(items, shape)
    words = [tokens.next() for _ in tokens.list("}")]
    if name in _BITS:
        bits = np.array([int(word) for word in words], np.uint16)
        return to_tensor(bits.view(dtype).reshape(shape), dtype)
    if np.dtype(dtype).kind == "f":
        numbers = [_number(word, dtype) for word in words]
        return to_tensor(np.array(numbers, dtype).reshape(shape), dtype)
    return to_tensor(np.array([int(word) for word in words]).astype(dtype).reshape(shape), dtype)
