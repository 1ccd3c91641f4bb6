"""Rules about the text of the repository that no compiler checks; each is one function below.

A rule takes a `Tree` and yields (file, line, message). Run without arguments it checks every file
git knows or would add, and fails if any rule finds something.
"""

from __future__ import annotations

import argparse
import pathlib
import posixpath
import re
import subprocess
import sys
from collections.abc import Iterator

Problem = tuple[str, int, str]

COLUMNS_MAX = 100
LINES_MAX = {"header": 375, "source": 975, "test": 1350}
CODE_SUFFIXES = {".cc", ".h", ".py", ".cmake", ".proto"}
TEXT_SUFFIXES = CODE_SUFFIXES | {".md", ".txt", ".json", ".toml", ".sh", ".supp", ".yml", ""}

# Written in pieces so that this file passes its own rules.
UNFINISHED = re.compile(r"\b(" + "TO" + "DO|FIX" + "ME|X" + r"XX)\b")
MACHINE_PATH = re.compile(r"(?<![\w.$}/*-])/(" + "wo" + "rk|ro" + "ot|ho" + r"me)/")
REGISTRY_HOST = re.compile(
    r"(pypi\.org|python" + r"hosted\.org|(deb|security|snapshot)\.debian" + r"\.org"
    r"|archive\.ubuntu" + r"\.com|download\.py" + r"torch\.org|conda\.anaconda" + r"\.org)")
FENCE = re.compile(r"\s*(`{3,}|~{3,})")
LINK = re.compile(r"\[[^\]]*\]\([^)]*\)")
SLEEP = re.compile(
    r"\b(sleep_for|sleep_until|usleep|nanosleep|SleepFor|(time|asyncio)\." + r"sleep)\s*\(")


class Tree:
    """The files of a checkout, with their text read once."""

    def __init__(self, root: pathlib.Path, files: list[str] | None = None):
        self.root = root
        self.files = sorted(files if files is not None else list_files(root))
        self._texts: dict[str, str] = {}

    def text(self, file: str) -> str:
        if file not in self._texts:
            self._texts[file] = (self.root / file).read_text(errors="replace")
        return self._texts[file]

    def lines(self, file: str) -> list[str]:
        return self.text(file).splitlines()

    def code(self) -> list[str]:
        return [f for f in self.files if suffix(f) in CODE_SUFFIXES or name(f) == "CMakeLists.txt"]

    def documents(self) -> list[str]:
        # What fuzzers are given is no document, whatever it looks like.
        return [f for f in self.files if suffix(f) in TEXT_SUFFIXES and name(f) != "LICENSE"
                and not f.startswith("tests/corpus/")]


def name(file: str) -> str:
    return pathlib.PurePosixPath(file).name


def suffix(file: str) -> str:
    return pathlib.PurePosixPath(file).suffix


def list_files(root: pathlib.Path) -> list[str]:
    """Tracked and to-be-added files; without git, every file outside build folders."""
    command = ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z"]
    result = subprocess.run(command, capture_output=True, check=False)
    if result.returncode == 0:
        files = result.stdout.decode().split("\0")
    else:
        files = [p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()]
        files = [f for f in files if not f.startswith(("build/", ".venv/", ".git/"))]
    return [f for f in files if f and (root / f).is_file() and not (root / f).is_symlink()]


def is_test(file: str) -> bool:
    stem = pathlib.PurePosixPath(file).stem
    return (stem.endswith("_test") or stem.startswith("test_") or "tests/" in file
            or "/testing/" in file)


def rule_line_length(tree: Tree) -> Iterator[Problem]:
    for file in tree.code():
        for number, line in enumerate(tree.lines(file), 1):
            if len(line) > COLUMNS_MAX and "http" not in line:
                yield file, number, f"{len(line)} columns, at most {COLUMNS_MAX}"


def rule_markdown_columns(tree: Tree) -> Iterator[Problem]:
    """Prose is wrapped; tables and code are not prose, a long link or word cannot be wrapped."""
    for file in tree.files:
        if suffix(file) != ".md":
            continue
        fence = ""
        for number, line in enumerate(tree.lines(file), 1):
            if mark := FENCE.match(line):
                closes = fence and mark[1].startswith(fence) and not line.strip("`~ ")
                fence = "" if closes else fence or mark[1]
            elif (len(line) > COLUMNS_MAX and not fence and not line.lstrip().startswith("|")
                  and can_be_wrapped(line)):
                yield file, number, f"{len(line)} columns, at most {COLUMNS_MAX}; wrap the text"


def can_be_wrapped(line: str) -> bool:
    """Whether a line end in place of a blank makes a line of Markdown shorter.

    A link in one piece is one word, whatever its text is, because people search for it.
    """
    words = LINK.sub(lambda link: "x" * len(link[0]), line).split()
    if words and not re.search(r"\w", words[0]):
        words[:2] = [" ".join(words[:2])]  # the mark of a list or a heading
    return len(words) > 1 and not words[0].startswith("#")


def rule_file_size(tree: Tree) -> Iterator[Problem]:
    for file in tree.code():
        if suffix(file) not in (".cc", ".h", ".py"):
            continue
        kind = "test" if is_test(file) else "header" if suffix(file) == ".h" else "source"
        count = len(tree.lines(file))
        if count > LINES_MAX[kind]:
            yield file, count, f"a {kind} has at most {LINES_MAX[kind]} lines; split it"


def rule_forbidden_words(tree: Tree) -> Iterator[Problem]:
    rules = [
        (UNFINISHED, "finish it, or file it elsewhere"),
        (MACHINE_PATH, "a path of one particular machine"),
        (REGISTRY_HOST, "the host of a package registry"),
    ]
    for file in tree.documents():
        for number, line in enumerate(tree.lines(file), 1):
            for pattern, message in rules:
                if match := pattern.search(line):
                    yield file, number, f"'{match[0]}': {message}"


def rule_no_sleep_in_tests(tree: Tree) -> Iterator[Problem]:
    for file in tree.code():
        if is_test(file):
            for number, line in enumerate(tree.lines(file), 1):
                if SLEEP.search(line):
                    yield file, number, "a test waits for an event with a deadline, never sleeps"


def rule_whitespace(tree: Tree) -> Iterator[Problem]:
    for file in tree.documents():
        text = tree.text(file)
        if text and not text.endswith("\n"):
            yield file, len(tree.lines(file)), "no newline at the end of the file"
        if suffix(file) not in CODE_SUFFIXES and name(file) != "CMakeLists.txt":
            continue
        for number, line in enumerate(tree.lines(file), 1):
            if "\t" in line:
                yield file, number, "a tab"
            elif line.endswith((" ", "\r")):
                yield file, number, "white space at the end of the line"


def rule_pragma_once(tree: Tree) -> Iterator[Problem]:
    for file in tree.files:
        if suffix(file) == ".h" and "#pragma once" not in tree.lines(file):
            yield file, 1, "a header has #pragma once"


def rule_own_header_first(tree: Tree) -> Iterator[Problem]:
    """Compiling the source then shows that the header stands alone."""
    for file in tree.files:
        header = str(pathlib.PurePosixPath(file).with_suffix(".h"))
        if not file.startswith("src/") or suffix(file) != ".cc" or header not in tree.files:
            continue
        for number, line in enumerate(tree.lines(file), 1):
            if line.startswith("#include"):
                if not line.endswith(f'{name(header)}"'):
                    yield file, number, f"{name(header)} comes before other headers"
                break


def listed_in_cmake(tree: Tree, file: str) -> bool:
    """Whether a CMakeLists.txt in the file's folder or above names it, relative to itself."""
    path = pathlib.PurePosixPath(file)
    for folder in path.parents:
        listing = (folder / "CMakeLists.txt").as_posix()
        if listing in tree.files:
            relative = path.relative_to(folder).as_posix()
            if re.search(rf"(?<![\w./-]){re.escape(relative)}(?![\w./-])", tree.text(listing)):
                return True
    return False


def rule_no_orphans(tree: Tree) -> Iterator[Problem]:
    for file in tree.files:
        if suffix(file) == ".cc" and not listed_in_cmake(tree, file):
            yield file, 1, "no CMakeLists.txt lists it, so nothing compiles it"
        elif suffix(file) == ".py" and re.search(r"^(async )?def test_", tree.text(file), re.M):
            collected = file.startswith(("tests/", "python/tests/"))
            named = name(file).startswith("test_") or name(file).endswith("_test.py")
            if not collected or not named:
                yield file, 1, "pytest does not collect it: tests are tests/**/test_*.py"


def anchors(tree: Tree, file: str) -> set[str]:
    """What a link may name in a document: its headings, as forges make names of them."""
    found: set[str] = set()
    fence = ""
    for line in tree.lines(file):
        if mark := FENCE.match(line):
            closes = fence and mark[1].startswith(fence) and not line.strip("`~ ")
            fence = "" if closes else fence or mark[1]
        elif line.startswith("#") and not fence:
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line.lstrip("#").strip())
            name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            count = sum(1 for other in found if re.fullmatch(rf"{re.escape(name)}(-\d+)?", other))
            found.add(f"{name}-{count}" if name in found else name)
    return found


def rule_documents(tree: Tree) -> Iterator[Problem]:
    """Links in documents resolve, the guide lists its pages, and the front door is documented."""
    for file in tree.files:
        if suffix(file) != ".md":
            continue
        folder = pathlib.PurePosixPath(file).parent
        for number, line in enumerate(tree.lines(file), 1):
            for link in re.findall(r"\]\(([^)\s]+)\)", line):
                target, _, anchor = link.partition("#")
                if "://" in link:
                    continue
                path = posixpath.normpath((folder / target).as_posix()) if target else file
                if not (tree.root / path).exists():
                    yield file, number, f"the link to {target} leads nowhere"
                elif anchor and path in tree.files and anchor not in anchors(tree, path):
                    yield file, number, f"{path} has no heading #{anchor}"
    guide = "docs/guide/README.md"
    if guide in tree.files:
        for file in tree.files:
            page = file.removeprefix("docs/guide/")
            if page in (file, "README.md") or not page.endswith(".md"):
                continue
            if f"]({page})" not in tree.text(guide):
                yield guide, 1, f"it does not list {page}"
    if "README.md" in tree.files and "dev" in tree.files:
        guides = [f for f in ("README.md", "HACKING.md") if f in tree.files]
        text = "\n".join(tree.text(f) for f in guides)
        usage = tree.text("dev").split("TEXT")[1]
        for command in re.findall(r"^  ([a-z]+) +\S", usage, re.M):
            if command != "help" and not re.search(rf"\./dev {command}\b", text):
                yield "README.md", 1, f"neither README.md nor HACKING.md mentions ./dev {command}"


def rows_of_tables(tree: Tree, file: str) -> Iterator[tuple[int, list[str]]]:
    """The rows of the tables of a document: line, cells. An empty first cell is that of the row
    above."""
    first = ""
    for number, line in enumerate(tree.lines(file), 1):
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip()[1:-1].split("|")]
            first = cells[0] or first
            yield number, [first, *cells[1:]]


def rule_figures(tree: Tree) -> Iterator[Problem]:
    """A row of figures in the README, or in the page that compares, has the cells of a row of the
    benchmarks, in their order: they are measured once."""
    guide = "docs/guide/benchmarks.md"
    if guide not in tree.files:
        return
    measured = [cells for _, cells in rows_of_tables(tree, guide)]
    for file in {"README.md", "docs/guide/why.md"} & set(tree.files):
        for number, cells in rows_of_tables(tree, file):
            rests = (iter(row) for row in measured)
            if re.fullmatch(r"[\d.]+", cells[-1]) and not any(
                    all(cell in rest for cell in cells) for rest in rests):
                yield file, number, f"{guide} has no row with these figures; copy it from there"


RULES = [
    rule_line_length,
    rule_markdown_columns,
    rule_file_size,
    rule_forbidden_words,
    rule_no_sleep_in_tests,
    rule_whitespace,
    rule_pragma_once,
    rule_own_header_first,
    rule_no_orphans,
    rule_documents,
    rule_figures,
]


def check(tree: Tree) -> list[str]:
    """Every problem, as `file:line: message`."""
    return [f"{file}:{line}: {message}" for rule in RULES for file, line, message in rule(tree)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[1])
    problems = check(Tree(parser.parse_args().root))
    for problem in problems:
        print(f"ERROR: {problem}")
    print(f"tidy: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
