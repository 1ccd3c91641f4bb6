"""Rewrites Python functions so that their control flow calls operators (AutoGraph).

    rewritten = rewrite(function.__code__, function.__globals__)
    other = rewritten.instance(function, operators)

`if`, `while`, `for`, `and`, `or`, `not`, `assert` and conditional expressions become calls of
members of `operators`, and what is called is first given to its callee(). The steps are those of
the package malt, TensorFlow's AutoGraph on its own; what is compiled has the file and the lines of
the source, so that errors, warnings and debuggers show the program as it was written.
"""

from __future__ import annotations
import __future__

import ast
import copy
import linecache
import re
import types
from collections.abc import Iterator, Sequence
from typing import Any

from malt.converters import (
    break_statements,
    conditional_expressions,
    continue_statements,
    control_flow,
    directives,
    functions,
    logical_expressions,
    return_statements,
    variables,
)
from malt.core import converter
from malt.lang.directives import set_loop_options
from malt.pyct import anno, cfg, naming, qual_names, transformer
from malt.pyct.static_analysis import (
    activity,
    liveness,
    reaching_definitions,
    reaching_fndefs,
)

#: The name that rewritten code has the operators under.
OPERATORS = "ag__"
_FLAGS = 0
for _feature in __future__.all_feature_names:
    _FLAGS |= getattr(__future__, _feature).compiler_flag

#: Functions that look at the frame of their caller.
_OF_FRAMES = {
    "breakpoint", "dir", "eval", "exec", "globals", "locals", "print", "set_loop_options",
    "set_trace", "vars",
}  # fmt: skip


class RefusedError(Exception):
    """A function cannot be rewritten; the message says why."""


class Rewritten:
    """The code of a function in its new form; `source` is the same as text."""

    def __init__(self, code: types.CodeType, source: str, name: str) -> None:
        self._code, self.source = code, source
        self._named: types.CodeType | None = None
        self._name = name

    def instance(self, function: types.FunctionType, operators: Any) -> Any:
        """It with the globals, defaults and cells of `function`."""
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
        closure = tuple(cells[name] for name in self._code.co_freevars)
        make = types.FunctionType(self._code, function.__globals__, "make", (), closure)
        made: Any = make(operators)
        if self._named is None:
            self._named = _named(made.__code__, self._name)
        made.__code__ = self._named
        made.__defaults__ = function.__defaults__
        made.__kwdefaults__ = function.__kwdefaults__
        made.__name__, made.__qualname__ = function.__name__, function.__qualname__
        made.__module__, made.__doc__ = function.__module__, function.__doc__
        return made


def _named(code: types.CodeType, name: str) -> types.CodeType:
    """Code, and what it has inside, with the name that the program knows it by."""
    consts = tuple(
        _named(const, name)
        if isinstance(const, types.CodeType) and _PART.fullmatch(const.co_name)
        else const
        for const in code.co_consts
    )
    return code.replace(co_name=name, co_consts=consts)


#: The names of the functions that branches and loops become.
_PART = re.compile(r"(if_body|else_body|loop_body|loop_test|extra_test|get_state|set_state)(_\d+)?")


def rewrite(function: types.FunctionType) -> Rewritten:
    """The code of a function, rewritten. RefusedError where that cannot be."""
    code = function.__code__
    node = _node_of(code, function.__globals__)
    names = function.__qualname__.split(".")
    owner = names[-2] if len(names) > 1 and names[-2] != "<locals>" else None
    decides = any(_decides(each) for each in ast.walk(node))
    node = _Preparation(owner, marks=not decides).visit(node)
    if decides:
        node = _with_operators(node, function)
    name = f"{OPERATORS}{code.co_name.strip('<>')}"
    definition: ast.stmt
    if isinstance(node, ast.Lambda):
        target = ast.Name(name, ast.Store())
        definition = ast.Assign([target], node)
    else:
        node.name, node.decorator_list, node.returns = name, [], None
        definition = node
    arguments = node.args
    arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
    arguments.kw_defaults = [each and ast.Constant(None) for each in arguments.kw_defaults]
    for each in _arguments(arguments):
        each.annotation = None
    source = ast.unparse(ast.fix_missing_locations(definition))
    made = _compiled(definition, name, code)
    return Rewritten(made, source, code.co_name)


def _compiled(definition: ast.stmt, name: str, code: types.CodeType) -> types.CodeType:
    """The code of a function that takes the operators and gives the function defined."""
    cells = "".join(f"    {each} = None\n" for each in code.co_freevars)
    make = f"    def make({OPERATORS}):\n        return {name}\n"
    text = f"def outer():\n{cells}{make}    return make"
    module = ast.parse(text)
    outer: Any = module.body[0]
    maker = outer.body[-2]
    _place(definition, code.co_firstlineno)
    maker.body.insert(0, definition)
    flags = code.co_flags & _FLAGS
    made: Any = compile(module, code.co_filename, "exec", flags, dont_inherit=True)
    for step in ("outer", "make"):
        parts = [each for each in made.co_consts if isinstance(each, types.CodeType)]
        made = next(each for each in parts if each.co_name == step)
    return made


def _line_of(node: ast.AST) -> int | None:
    """The line of the source that a node comes from, or the first thing in it that has one."""
    for each in _in_order(node):
        line = anno.getanno(each, anno.Basic.ORIGIN, default=None)
        if line is not None:
            return line
    return None


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)


def _place(node: ast.AST, line: int) -> None:
    """Gives nodes the lines that they come from, and no columns."""
    found = _line_of(node)
    line = line if found is None else found
    if "lineno" in node._attributes:
        place: Any = node
        place.lineno = place.end_lineno = line
        place.col_offset = place.end_col_offset = -1
    for child in ast.iter_child_nodes(node):
        _place(child, line)


# --- The source.

_Function = ast.FunctionDef | ast.Lambda
#: The functions of files, by name and first line, beside the lines they were found in.
_files: dict[str, tuple[Sequence[str], dict[tuple[str, int], list[_Function]]]] = {}
_FILES_MAX = 8


def _functions_of(file: str, module: dict[str, Any]) -> dict[tuple[str, int], list[_Function]]:
    lines = linecache.getlines(file, module)
    if not lines:
        raise RefusedError("its source is not available")
    known = _files.get(file)
    if known is not None and known[0] == lines:
        return known[1]
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:
        raise RefusedError("its source has changed") from None
    found: dict[tuple[str, int], list[_Function]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            found.setdefault((node.name, first), []).append(node)
        elif isinstance(node, ast.Lambda):
            found.setdefault(("<lambda>", node.lineno), []).append(node)
    if len(_files) >= _FILES_MAX:
        _files.clear()
    _files[file] = (list(lines), found)
    return found


def _arguments(given: ast.arguments) -> list[ast.arg]:
    every = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg]
    return [each for each in every if each is not None]


def _node_of(code: types.CodeType, module: dict[str, Any]) -> Any:
    """The definition of a function, with the line of each node noted."""
    found = _functions_of(code.co_filename, module).get((code.co_name, code.co_firstlineno), [])
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    names = sorted(code.co_varnames[:count])
    fitting = [
        node for node in found if sorted(each.arg for each in _arguments(node.args)) == names
    ]
    if len(fitting) > 1:
        fitting = _around(fitting, code)
    if not fitting:
        raise RefusedError("its source has changed, or is not that of a function")
    if len(fitting) > 1:
        raise RefusedError("several lambdas with the same arguments begin on its line")
    node = copy.deepcopy(fitting[0])
    for each in ast.walk(node):
        line = getattr(each, "lineno", None)
        if line is not None:
            anno.setanno(each, anno.Basic.ORIGIN, line)
    return node


def _around(nodes: Sequence[_Function], code: types.CodeType) -> list[_Function]:
    """Those that what the code does lies in; the smallest, where they are in one another."""
    positions = getattr(code, "co_positions", None)
    if positions is None:
        return list(nodes)
    places = [
        (line, column)
        for line, _, column, _ in positions()
        if line is not None and column is not None and (line, column) != (code.co_firstlineno, 0)
    ]
    around = [
        node
        for node in nodes
        if all(
            (node.lineno, node.col_offset) <= place <= (node.end_lineno, node.end_col_offset)
            for place in places
        )
    ]
    return [
        node for node in around
        if not any(each is not node and each in ast.walk(node) for each in around)
    ]  # fmt: skip


# --- Rewriting.


def _decides(node: ast.AST) -> bool:
    """Whether a node is control flow."""
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    if isinstance(node, ast.Compare):
        return len(node.ops) > 1
    return isinstance(node, (ast.If, ast.While, ast.For, ast.IfExp, ast.BoolOp))


def _operator(name: str, *arguments: ast.expr) -> ast.Call:
    member = ast.Attribute(ast.Name(OPERATORS, ast.Load()), name, ast.Load())
    return ast.Call(member, list(arguments), [])


def _later(body: ast.expr) -> ast.Lambda:
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(nothing, body)


def _assigned(name: str, value: bool, place: ast.stmt) -> ast.stmt:
    made = ast.Assign([ast.Name(name, ast.Store())], ast.Constant(value))
    anno.setanno(made, anno.Basic.ORIGIN, place.lineno)
    return made


def _begun(body: list[ast.stmt], *first: ast.stmt) -> list[ast.stmt]:
    """The body of a loop with other statements first; set_loop_options() stays before them."""
    call = getattr(body[0], "value", None)
    named = getattr(call, "func", None)
    says = getattr(named, "attr", getattr(named, "id", "")) == "set_loop_options"
    return [body[0], *first, *body[1:]] if says else [*first, *body]


def _without_name(test: Any) -> tuple[Any, list[ast.stmt]]:
    """A condition without the name that it begins with giving a value, and a statement that does
    so: `(y := f()) > 0` is `y > 0` after `y = f()`."""
    found: list[ast.stmt] = []

    def first(node: Any) -> Any:
        if isinstance(node, ast.NamedExpr):
            made = ast.Assign([node.target], node.value)
            anno.setanno(made, anno.Basic.ORIGIN, node.lineno)
            found.append(made)
            return ast.copy_location(ast.Name(node.target.id, ast.Load()), node)
        if isinstance(node, ast.BoolOp):
            node.values[0] = first(node.values[0])
        for field in ("left", "operand", "value"):
            inner = getattr(node, field, None)
            if isinstance(inner, ast.expr):
                setattr(node, field, first(inner))
                break
        return node

    return first(test), found


class _Preparation(ast.NodeTransformer):
    """What is done before malt's steps: what is called goes through callee(), and what these do
    not know, or would change, is said in other words."""

    def __init__(self, owner: str | None, marks: bool) -> None:
        #: Whether functions inside are marked as rewritten; malt does so as well.
        self._marks = marks
        #: The class that names with two underscores belong to.
        self._owner = None if owner is None else owner.lstrip("_")
        #: The first arguments of the functions around.
        self._firsts: list[str | None] = []

    def _refuse(self, node: Any) -> Any:
        what = type(node).__name__
        raise RefusedError(f"line {node.lineno} has what cannot be rewritten: {what}")

    visit_ClassDef = visit_Match = visit_AsyncFunctionDef = visit_AsyncFor = _refuse  # noqa: N815
    visit_AsyncWith = visit_Await = visit_Yield = visit_YieldFrom = _refuse  # noqa: N815
    visit_TryStar = _refuse  # noqa: N815

    def _inside(self, node: Any) -> Any:
        arguments = [*node.args.posonlyargs, *node.args.args]
        self._firsts.append(arguments[0].arg if arguments else None)
        node = self.generic_visit(node)
        self._firsts.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        is_nested = self._marks and bool(self._firsts)
        node = self._inside(node)
        if is_nested:
            mark = ast.Attribute(ast.Name(OPERATORS, ast.Load()), "autograph_artifact", ast.Load())
            node.decorator_list.append(mark)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        is_nested = self._marks and bool(self._firsts)
        node = self._inside(node)
        return _operator("autograph_artifact", node) if is_nested else node

    def visit_Call(self, node: ast.Call) -> Any:
        node = self.generic_visit(node)  # type: ignore[assignment]
        called = node.func
        name = getattr(called, "id", getattr(called, "attr", ""))
        if isinstance(called, ast.Name) and name == "super":
            if not node.args and self._firsts and self._firsts[-1] is not None:
                # In a branch, which is a function, it would not find them.
                first = ast.Name(self._firsts[-1], ast.Load())
                node.args = [ast.Name("__class__", ast.Load()), first]
        elif name not in _OF_FRAMES:
            node.func = _operator("callee", called)
        return node

    def visit_Name(self, node: ast.Name) -> Any:
        node.id = self._mangled(node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        node.attr = self._mangled(node.attr)
        return self.generic_visit(node)

    def _mangled(self, name: str) -> str:
        if self._owner and name.startswith("__") and not name.endswith("__"):
            return f"_{self._owner}{name}"
        return name

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        # A name that a branch assigns to is not local to it, and cannot be annotated there.
        node = self.generic_visit(node)  # type: ignore[assignment]
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        made = ast.copy_location(ast.Assign([node.target], node.value), node)
        anno.setanno(made, anno.Basic.ORIGIN, node.lineno)
        return made

    def visit_Assert(self, node: ast.Assert) -> Any:
        line = node.lineno
        node = self.generic_visit(node)  # type: ignore[assignment]
        message = ast.Constant(None) if node.msg is None else _later(node.msg)
        check = ast.Expr(_operator("assert_stmt", node.test, message))
        made = check if __debug__ else ast.Pass()
        anno.setanno(made, anno.Basic.ORIGIN, line)
        return made

    def visit_Try(self, node: ast.Try) -> Any:
        if self._marks:
            return self.generic_visit(node)
        for each in (one for part in node.finalbody for one in ast.walk(part)):
            if isinstance(each, (ast.Break, ast.Continue, ast.Return)):
                raise RefusedError(f"line {each.lineno} leaves a finally")
        if not node.orelse:
            return self.generic_visit(node)
        # malt knows no else: a flag says whether the end of the block was reached.
        name = f"{OPERATORS}else_{node.lineno}"
        body, orelse = [*node.body, _assigned(name, True, node)], node.orelse
        tried = ast.Try(body, node.handlers, [], [])
        rest = ast.If(ast.Name(name, ast.Load()), orelse, [])
        made: list[ast.stmt] = [_assigned(name, False, node), tried, rest]
        if node.finalbody:
            made = [ast.Try(made, [], [], node.finalbody)]
        for each in (tried, rest, made[0]):
            anno.setanno(each, anno.Basic.ORIGIN, node.lineno)
        return [self.generic_visit(each) for each in made]

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> Any:
        node = self.generic_visit(node)  # type: ignore[assignment]
        if node.name is not None:
            # malt does not know names there.
            target = ast.Name(node.name, ast.Store())
            node.body.insert(0, ast.Assign([target], _operator("caught")))
            node.name = None
        return node

    def visit_Compare(self, node: ast.Compare) -> Any:
        node = self.generic_visit(node)  # type: ignore[assignment]
        plain = (ast.Name, ast.Constant)
        if len(node.ops) == 1 or all(isinstance(each, plain) for each in node.comparators[:-1]):
            return node
        # Each operand is calculated once.
        names = ast.List([ast.Constant(type(op).__name__) for op in node.ops], ast.Load())
        return _operator("chain", names, node.left, *(_later(each) for each in node.comparators))

    def visit_NamedExpr(self, node: ast.NamedExpr) -> Any:
        # Where control flow is functions, it would give a value to a name of its own.
        return self.generic_visit(node) if self._marks else self._refuse(node)

    def visit_If(self, node: ast.If) -> Any:
        node.test, before = _without_name(node.test)
        return [*(self.visit(each) for each in before), self.generic_visit(node)]

    def visit_While(self, node: ast.While) -> Any:
        test, before = _without_name(node.test)
        if before:
            end = ast.If(ast.UnaryOp(ast.Not(), test), [ast.Break()], [])
            anno.setanno(end, anno.Basic.ORIGIN, node.lineno)
            node.test, node.body = ast.Constant(True), _begun(node.body, *before, end)
        return self._loop(node)

    def visit_For(self, node: ast.For) -> Any:
        # For malt the loop assigns to its variable when it ends, too: what the last round made of
        # that would be lost.
        name = f"{OPERATORS}each_{node.lineno}"
        first = ast.Assign([node.target], ast.Name(name, ast.Load()))
        anno.setanno(first, anno.Basic.ORIGIN, node.lineno)
        node.target, node.body = ast.Name(name, ast.Store()), _begun(node.body, first)
        return self._loop(node)

    def _loop(self, node: Any) -> Any:
        if not node.orelse:
            return self.generic_visit(node)
        # malt knows no else: a flag says whether the loop was left.
        name = f"{OPERATORS}left_{node.lineno}"
        rest = ast.If(ast.UnaryOp(ast.Not(), ast.Name(name, ast.Load())), node.orelse, [])
        anno.setanno(rest, anno.Basic.ORIGIN, node.lineno)
        node.orelse = []
        node.body = [_Leaving(name).visit(each) for each in node.body]
        node.body = [one for each in node.body for one in (each if type(each) is list else [each])]
        made = [_assigned(name, False, node), node, rest]
        return [self.generic_visit(each) for each in made]


class _Leaving(ast.NodeTransformer):
    """Sets a flag before a loop is left by break."""

    def __init__(self, name: str) -> None:
        self._name = name

    def visit_Break(self, node: ast.Break) -> Any:
        return [_assigned(self._name, True, node), node]

    def _loop(self, node: Any) -> Any:
        # What leaves another loop; its else may leave this one.
        found = [self.visit(each) for each in node.orelse]
        node.orelse = [one for each in found for one in (each if type(each) is list else [each])]
        return node

    visit_For = visit_While = _loop  # noqa: N815

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        return node


class _ControlFlow(control_flow.ControlFlowTransformer):
    """malt's step, which would forget what a branch makes of variables of functions around."""

    def _get_block_basic_vars(self, modified: Any, live_in: Any, live_out: Any) -> Any:
        found = super()._get_block_basic_vars(modified, live_in, live_out)
        return found | (modified & self.state[control_flow._Function].scope.globals)

    def _get_block_vars(self, node: Any, modified: Any) -> Any:
        names, undefined, count = super()._get_block_vars(node, modified)
        scope = self.state[control_flow._Function].scope
        lasting = [each for each in names[count:] if each in scope.nonlocals | scope.globals]
        rest = [each for each in names[count:] if each not in lasting]
        return [*names[:count], *lasting, *rest], undefined, count + len(lasting)


def _control_flow(node: Any, context: Any) -> Any:
    """Branches and loops as calls of operators."""
    graphs = cfg.build(node)
    node = qual_names.resolve(node)
    node = activity.resolve(node, context, None)
    node = reaching_definitions.resolve(node, context, graphs)
    node = reaching_fndefs.resolve(node, context, graphs)
    node = liveness.resolve(node, context, graphs)
    return _ControlFlow(context).visit(node)


def _with_operators(node: Any, function: types.FunctionType) -> Any:
    """Control flow as calls of operators, by malt."""
    code = function.__code__
    cells = {}
    for name, cell in zip(code.co_freevars, function.__closure__ or ()):
        try:
            cells[name] = cell.cell_contents
        except ValueError:
            cells[name] = None
    namespace = {**function.__globals__, **cells}
    info = transformer.EntityInfo(code.co_name, "", code.co_filename, (), namespace)
    options = converter.STANDARD_OPTIONS
    namer = naming.Namer({**namespace, **dict.fromkeys(_names_in(node))})
    context = transformer.Context(info, namer, converter.ProgramContext(options))
    graphs = cfg.build(node)
    node = qual_names.resolve(node)
    node = activity.resolve(node, context, None)
    node = reaching_definitions.resolve(node, context, graphs)
    anno.dup(node, {anno.Static.DEFINITIONS: anno.Static.ORIG_DEFINITIONS})
    for each in ast.walk(node):
        is_ours = isinstance(each, ast.Name) and each.id == OPERATORS
        if is_ours and anno.hasanno(each, anno.Static.ORIG_DEFINITIONS):
            anno.delanno(each, anno.Static.ORIG_DEFINITIONS)
    # In this order, as malt's own conversion has them.
    for step in (
        functions, directives, break_statements, continue_statements, return_statements,
    ):  # fmt: skip
        node = step.transform(node, context)
    node = _control_flow(node, context)
    for step in (conditional_expressions, logical_expressions, variables):
        node = step.transform(node, context)
    return node


def _names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


__all__ = ["OPERATORS", "RefusedError", "Rewritten", "rewrite", "set_loop_options"]
