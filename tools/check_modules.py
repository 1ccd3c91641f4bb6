"""Compares the three places that say which module uses which, and holds the plan/run wall.

The places are the #include "sidereal/..." lines, DEPS in each module's CMakeLists.txt (within the
table of cmake/modules.cmake), and the table in ARCHITECTURE.md between the markers
`<!-- modules:begin -->` and `<!-- modules:end -->`. `--write` writes that table from the build
files. Any difference fails.

The modules of the Python package have their table in pyproject.toml ([tool.importlinter]), which
`lint-imports` checks. It cannot tell the package itself from the extension inside of it, so that
what modules import of the package is checked here.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import pathlib
import re
import sys

BEGIN = "<!-- modules:begin -->"
END = "<!-- modules:end -->"
LIST_KEYWORDS = {
    "SOURCES", "HEADERS", "DEPS", "LIBS", "PRIVATE_LIBS", "TESTS", "TESTING", "TEST_DEPS",
    "TEST_LIBS", "BENCHES",
}

# What the plan side must never see.
PLAN_FORBIDDEN = {
    "thread", "mutex", "shared_mutex", "condition_variable", "future", "semaphore", "latch",
    "barrier", "stop_token", "chrono", "fstream", "filesystem", "ctime", "random",
}

# Headers of the operating system: sockets, files, processes, threads.
OS_HEADERS = re.compile(
    r"^(sys/(?!types\.h)[a-z]+\.h|netinet/.*|arpa/.*|net/.*|netdb\.h|unistd\.h|fcntl\.h|poll\.h"
    r"|pthread\.h|sched\.h|signal\.h|csignal|spawn\.h|dirent\.h|linux/.*|dlfcn\.h|ifaddrs\.h)$"
)

# Files outside `sys` that may use named OS headers, each with its reason.
OS_ALLOWED = {
    "app/local_cluster": "counts processors, finds the program",
    "app/process": "starts and watches task processes",
    "cli/": "signals, terminal size",
    "data/byte_source": "reads the user's files",
    "data/feeder": "starts the process that reads what the engine does not",
    "data/npy": "maps the user's arrays",
    "data/record_writer": "writes the caches of datasets",
    "data/prefetch": "wakes a lane's poller when a batch is ready",
    "security/listener": "gives gRPC a descriptor of its own",
    "lane/": "pins and names its thread",
    "tensor/buffer": "asks for huge pages",
    "base/": "nothing but the process id and memory advice",
}

# gRPC and the code that it generates. Its headers are included in .cc files only, or in headers of
# a folder internal/, which no other module sees.
GRPC_HEADERS = re.compile(r"^(grpc|grpcpp)/|\.grpc\.pb\.h$")
GRPC_ALLOWED = {
    "security/": "credentials of channels, and the listener of servers",
    "serving/": "predictions, as TensorFlow Serving answers them",
    "service/": "the Master and Worker services, and their clients",
}

# Helpers of tests, by name: they are in testing/.
TEST_HELPER = re.compile(r"(^|/)(test_[^/]*|[^/]*_(fixture|testing))\.(h|cc)$")


@dataclasses.dataclass
class Module:
    """What a module's CMakeLists.txt says."""

    name: str
    doc: str = ""
    deps: list[str] = dataclasses.field(default_factory=list)
    test_deps: list[str] = dataclasses.field(default_factory=list)
    test_files: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Table:
    """cmake/modules.cmake: the order of the modules and what each may use."""

    order: list[str]
    may_use: dict[str, list[str]]
    plan: set[str]
    run: set[str]
    runnable: set[str] = dataclasses.field(default_factory=set)

    def closure(self, module: str) -> set[str]:
        """Every module `module` may name: its row and everything below."""
        found: set[str] = set()
        pending = list(self.may_use.get(module, []))
        while pending:
            name = pending.pop()
            if name not in found:
                found.add(name)
                pending += self.may_use.get(name, [])
        return found


def cmake_commands(text: str, command: str) -> list[list[str]]:
    """The argument lists of every call of `command` in a CMake file."""
    text = re.sub(r'^\s*#.*$|\s#[^"\n]*$', "", text, flags=re.M)
    calls = []
    for start in re.finditer(rf"\b{command}\s*\(", text):
        arguments, position = [], start.end()
        token = re.compile(r'\s*("(?:[^"\\]|\\.)*"|\)|[^\s()"]+)')
        while match := token.match(text, position):
            position = match.end()
            if match[1] == ")":
                break
            arguments.append(match[1].strip('"'))
        calls.append(arguments)
    return calls


def read_table(root: pathlib.Path) -> Table:
    """Reads cmake/modules.cmake."""
    text = (root / "cmake/modules.cmake").read_text()
    values = {call[0]: [a for a in call[1:] if a] for call in cmake_commands(text, "set")}
    prefix = "SIDEREAL_MAY_USE_"
    may_use = {k[len(prefix):]: v for k, v in values.items() if k.startswith(prefix)}
    return Table(
        order=values["SIDEREAL_KNOWN_MODULES"],
        may_use=may_use,
        plan=set(values.get("SIDEREAL_PLAN_MODULES", [])),
        run=set(values.get("SIDEREAL_RUN_MODULES", [])),
        runnable=set(values.get("SIDEREAL_RUNNABLE_HEADERS", [])),
    )


def read_module(folder: pathlib.Path) -> Module | None:
    """Reads engine_module(...) from a module's CMakeLists.txt, or None when there is no call."""
    calls = cmake_commands((folder / "CMakeLists.txt").read_text(), "engine_module")
    if not calls:
        return None
    values: dict[str, list[str]] = {}
    keyword = ""
    for word in calls[0]:
        if word in LIST_KEYWORDS or word in ("NAME", "DOC", "TESTS_ALONE"):
            keyword = word
            values.setdefault(keyword, [])
        else:
            values.setdefault(keyword, []).append(word)
    return Module(
        name=" ".join(values.get("NAME", [])),
        doc=" ".join(values.get("DOC", [])),
        deps=values.get("DEPS", []),
        test_deps=values.get("TEST_DEPS", []),
        test_files=[f for key in ("TESTS", "BENCHES") for f in values.get(key, [])],
    )


def includes(path: pathlib.Path) -> list[tuple[int, str, bool]]:
    """(line, header, quoted) for every #include in the file."""
    found = []
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        if match := re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line):
            found.append((number, match[2], match[1] == '"'))
    return found


def is_test_file(relative: str, module: Module) -> bool:
    """Whether the file is compiled into a test or a benchmark only."""
    path = pathlib.PurePosixPath(relative)
    return (relative in module.test_files or "testing" in path.parts[:-1]
            or "test" in path.stem.split("_") or path.stem.endswith("_bench"))


def check_edges(folder: pathlib.Path, module: Module, table: Table) -> list[str]:
    """Differences between the module's #include lines, its DEPS and the table."""
    problems = []
    where = f"src/sidereal/{module.name}"
    allowed = table.closure(module.name)
    for dep in module.deps:
        if dep not in allowed:
            problems.append(f"{where}/CMakeLists.txt: DEPS {dep} is not in cmake/modules.cmake")
    used, used_in_tests = set(), set()
    for path in sorted(p for p in folder.rglob("*") if p.suffix in (".h", ".cc")):
        relative = path.relative_to(folder).as_posix()
        test = is_test_file(relative, module)
        for number, header, quoted in includes(path):
            parts = header.split("/")
            if not quoted or parts[0] != "sidereal" or len(parts) < 3:
                continue
            if "testing" in parts[2:-1] and not test:
                problems.append(f"{where}/{relative}:{number}: {header} is for tests")
            if parts[1] == module.name:
                continue
            target = f"{parts[1]}_testing" if "testing" in parts[2:-1] else parts[1]
            (used_in_tests if test else used).add(target)
            declared = module.deps + (module.test_deps if test else [])
            if target not in declared:
                word = "DEPS or TEST_DEPS" if test else "DEPS"
                problems.append(f"{where}/{relative}:{number}: includes {header}, but {target} is "
                                f"not in {word} of {where}/CMakeLists.txt")
            if "internal" in parts[2:-1]:
                problems.append(f"{where}/{relative}:{number}: {header} is internal to {target}")
    for dep in module.deps:
        if dep not in used:
            hint = ": only tests do, so move it to TEST_DEPS" if dep in used_in_tests else ""
            problems.append(f"{where}/CMakeLists.txt: DEPS {dep}, but no source includes it{hint}")
    return problems


def check_roles(folder: pathlib.Path, module: Module) -> list[str]:
    """Helpers of tests outside of testing/, and headers of gRPC where they do not belong."""
    problems = []
    for path in sorted(p for p in folder.rglob("*") if p.suffix in (".h", ".cc")):
        relative = path.relative_to(folder).as_posix()
        where = f"{module.name}/{relative}"
        headers = [header for _, header, _ in includes(path)]
        if "testing" not in path.relative_to(folder).parts[:-1] and (
                TEST_HELPER.search(relative)
                or (path.suffix == ".h" and any(h.startswith(("gtest/", "gmock/"))
                                                for h in headers))):
            problems.append(f"src/sidereal/{where}: a helper of tests belongs into "
                            f"{module.name}/testing")
        if is_test_file(relative, module):
            continue
        for number, header, _ in includes(path):
            if not GRPC_HEADERS.search(header):
                continue
            at = f"src/sidereal/{where}:{number}: includes {header}"
            if not any(where.startswith(prefix) for prefix in GRPC_ALLOWED):
                problems.append(f"{at}: gRPC is for {', '.join(sorted(GRPC_ALLOWED))} only")
            elif path.suffix == ".h" and "internal" not in path.relative_to(folder).parts[:-1]:
                problems.append(f"{at}: headers of gRPC are for .cc files and internal/")
    return problems


def check_wall(folder: pathlib.Path, module: Module, table: Table) -> list[str]:
    """Headers the module must not see: see PLAN_FORBIDDEN and OS_HEADERS."""
    problems = []
    for path in sorted(p for p in folder.rglob("*") if p.suffix in (".h", ".cc")):
        relative = path.relative_to(folder).as_posix()
        if is_test_file(relative, module):
            continue
        where = f"{module.name}/{relative}"
        for number, header, _ in includes(path):
            at = f"src/sidereal/{where}:{number}: includes <{header}>"
            if module.name in table.plan and (header in PLAN_FORBIDDEN or OS_HEADERS.match(header)):
                problems.append(f"{at}: the plan side never sees threads, clocks, sockets or files")
            elif module.name in table.run and header.startswith("sidereal/") and (
                    header.split("/")[1] in table.plan
                    and header.removeprefix("sidereal/") not in table.runnable):
                problems.append(f"{at}: the run side never sees a graph")
            elif (OS_HEADERS.match(header) and module.name != "sys"
                  and not any(where.startswith(prefix) for prefix in OS_ALLOWED)):
                problems.append(f"{at}: only sys talks to the operating system")
    return problems


#: What makes the package, or stands on all of it.
PYTHON_TOP = ("__init__.py", "__main__.py", "v1/")


def check_python_roots(package: pathlib.Path) -> list[str]:
    """Modules of a Python package that import the package itself, which imports all of them."""
    problems = []
    for path in sorted(package.rglob("*.py")):
        relative = path.relative_to(package).as_posix()
        if relative.startswith(PYTHON_TOP):
            continue
        depth = len(path.relative_to(package).parts)
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.ImportFrom):
                absolute = node.level == 0 and node.module == package.name
                if absolute or (node.level == depth and node.module is None):
                    names = [alias.name for alias in node.names]
            elif isinstance(node, ast.Import):
                names = ["*" for alias in node.names if alias.name == package.name]
            for name in names:
                is_module = (package / f"{name}.py").exists() or (package / name).is_dir()
                if not is_module and name != "_native":
                    problems.append(f"{package.name}/{relative}:{node.lineno}: imports the package "
                                    "itself; import the module that has what it needs")
    return problems


def render(modules: list[Module]) -> str:
    """The table for ARCHITECTURE.md."""
    lines = ["| module | one line | uses |", "|---|---|---|"]
    for module in modules:
        uses = ", ".join(module.deps) if module.deps else "-"
        lines.append(f"| `{module.name}` | {module.doc} | {uses} |")
    return "\n".join(lines)


def check_document(root: pathlib.Path, modules: list[Module], write: bool) -> list[str]:
    """Compares, or with `write` replaces, the table in ARCHITECTURE.md."""
    path = root / "ARCHITECTURE.md"
    if not path.exists():
        return ["ARCHITECTURE.md: missing"]
    text = path.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        return [f"ARCHITECTURE.md: needs the lines {BEGIN} and {END} once each, in this order"]
    head, rest = text.split(BEGIN)
    old, tail = rest.split(END)
    new = f"\n{render(modules)}\n"
    if old == new:
        return []
    if write:
        path.write_text(head + BEGIN + new + END + tail)
        return []
    return ["ARCHITECTURE.md: the module table differs from the build files; "
            "run tools/check_modules.py --write"]


def check(root: pathlib.Path, write: bool = False) -> list[str]:
    """Every problem found under `root`, as lines for people."""
    table = read_table(root)
    problems: list[str] = []
    modules: dict[str, Module] = {}
    for name in table.order:
        for dep in table.may_use.get(name, []):
            if dep not in table.order or table.order.index(dep) >= table.order.index(name):
                problems.append(f"cmake/modules.cmake: {name} may use {dep}, which is not below it")
    source = root / "src/sidereal"
    for folder in sorted(p for p in source.iterdir() if p.is_dir()):
        where = f"src/sidereal/{folder.name}"
        if folder.name not in table.order:
            problems.append(f"{where}: not in cmake/modules.cmake")
            continue
        if not (folder / "CMakeLists.txt").exists():
            if any(folder.rglob("*.cc")) or any(folder.rglob("*.h")):
                problems.append(f"{where}: has sources but no CMakeLists.txt")
            continue
        module = read_module(folder)
        if module is None or module.name != folder.name:
            problems.append(f"{where}/CMakeLists.txt: no engine_module(NAME {folder.name} ...)")
            continue
        modules[module.name] = module
        problems += (check_edges(folder, module, table) + check_roles(folder, module)
                     + check_wall(folder, module, table))
    for module in modules.values():
        for dep in module.deps + [d.removesuffix("_testing") for d in module.test_deps]:
            if dep not in modules:
                problems.append(f"src/sidereal/{module.name}/CMakeLists.txt: {dep} does not exist")
    if (root / "python/sidereal").is_dir():
        problems += check_python_roots(root / "python/sidereal")
    ordered = [modules[name] for name in table.order if name in modules]
    return problems + check_document(root, ordered, write)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[1])
    parser.add_argument("--write", action="store_true", help="rewrite the table in ARCHITECTURE.md")
    options = parser.parse_args()
    problems = check(options.root, options.write)
    for problem in problems:
        print(f"ERROR: {problem}")
    print(f"check_modules: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
