"""The hand-written stub names what the extension has, and the other way round."""

from __future__ import annotations

import ast
from pathlib import Path

import sidereal
from sidereal import _native

STUB = Path(sidereal.__file__).with_name("_native.pyi")


def members(body: list[ast.stmt]) -> set[str]:
    names = set()
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def public(thing: object) -> set[str]:
    return {name for name in vars(thing) if not name.startswith("_")}


def without_special(names: set[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def test_the_stub_has_the_names_of_the_extension() -> None:
    tree = ast.parse(STUB.read_text())
    assert without_special(members(tree.body)) == public(_native)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    assert classes
    for node in classes:
        assert without_special(members(node.body)) == public(getattr(_native, node.name)), node.name


def test_everything_public_is_documented() -> None:
    for name in sidereal.__all__:
        thing = getattr(sidereal, name)
        if isinstance(thing, type) and not name.startswith("_"):
            assert thing.__doc__, name
    assert STUB.with_name("py.typed").exists()
