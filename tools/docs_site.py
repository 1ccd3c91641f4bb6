"""Makes the pages of the documentation site, from which mkdocs makes build/docs.

The documents stay where a forge shows them: their copies in build/docs_pages get links that a site
can follow (a folder is its README or a list of its files, a source is a page with its text), and
beside them stand the references of Python and C++, made of the sources.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil
import sys
from collections.abc import Iterator
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from tidy import FENCE, list_files

LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")
PICTURES = {".svg", ".png", ".jpg"}
LANGUAGES = {
    ".cc": "cpp", ".h": "cpp", ".py": "python", ".proto": "protobuf", ".json": "json",
    ".ipynb": "json", ".yaml": "yaml", ".yml": "yaml", ".cmake": "cmake", ".sh": "bash",
}  # fmt: skip

#: Modules with names for users; each is a page.
PYTHON_MODULES = [
    "sidereal", "sidereal.autograph", "sidereal.autograph.experimental", "sidereal.config",
    "sidereal.data", "sidereal.distribute", "sidereal.distribute.cluster_resolver",
    "sidereal.distribute.coordinator", "sidereal.errors", "sidereal.estimator",
    "sidereal.feature_column", "sidereal.io", "sidereal.keras", "sidereal.keras.callbacks",
    "sidereal.keras.constraints", "sidereal.keras.initializers", "sidereal.keras.layers",
    "sidereal.keras.losses", "sidereal.keras.metrics", "sidereal.keras.models",
    "sidereal.keras.optimizers", "sidereal.keras.regularizers", "sidereal.keras.saving",
    "sidereal.keras.utils", "sidereal.lookup", "sidereal.models", "sidereal.nest", "sidereal.onnx",
    "sidereal.ops.debugging", "sidereal.ops.embedding", "sidereal.ops.linalg", "sidereal.ops.math",
    "sidereal.ops.nn", "sidereal.ops.random", "sidereal.ops.sparse", "sidereal.ops.strings",
    "sidereal.optimizers", "sidereal.profiler", "sidereal.queue", "sidereal.saved_model",
    "sidereal.summary", "sidereal.train", "sidereal.v1",
]  # fmt: skip


def outside_fences(text: str) -> Iterator[tuple[str, bool]]:
    """The lines of a document, and whether each is text and no code."""
    fence = ""
    for line in text.splitlines():
        if mark := FENCE.match(line):
            closes = fence and mark[1].startswith(fence) and not line.strip("`~ ")
            fence = "" if closes else fence or mark[1]
            yield line, False
        else:
            yield line, not fence


class Site:
    """The pages that are made of one checkout."""

    def __init__(self, root: pathlib.Path, pages: pathlib.Path):
        self.root, self.pages = root, pages
        self.files = set(list_files(root))
        self.done: set[str] = set()

    def write(self, name: str, text: str) -> None:
        path = self.pages / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def page_of(self, target: str) -> str:
        """The page, or the picture, that stands for a file or folder of the repository."""
        if (self.root / target).is_dir():
            readme = f"{target}/README.md"
            return readme if readme in self.files else self.listing(target)
        suffix = pathlib.PurePosixPath(target).suffix
        if suffix == ".md":
            return target
        if suffix in PICTURES:
            if target not in self.done:
                self.done.add(target)
                (self.pages / target).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.root / target, self.pages / target)
            return target
        name = f"{target}.md"
        if name not in self.done:
            self.done.add(name)
            text = (self.root / target).read_text()
            fence = "````" if "```" in text else "```"
            language = LANGUAGES.get(suffix, "text")
            self.write(name, f"# {target}\n\n{fence}{language}\n{text.rstrip()}\n{fence}\n")
        return name

    def listing(self, folder: str) -> str:
        name = f"{folder}/index.md"
        if name not in self.done:
            self.done.add(name)
            rows = [f"# {folder}", ""]
            # mkdocs leaves out what begins with a dot.
            shown = [f for f in self.files if f.startswith(f"{folder}/") and "/." not in f]
            for file in sorted(shown):
                page = os.path.relpath(self.page_of(file), folder)
                rows.append(f"- [{os.path.relpath(file, folder)}]({page})")
            self.write(name, "\n".join(rows) + "\n")
        return name

    def document(self, file: str) -> str:
        """The text of a document with links of the site."""
        folder = os.path.dirname(file)

        def rewritten(link: re.Match[str]) -> str:
            if "://" in link[1] or link[1].startswith("mailto:"):
                return link[0]
            target = os.path.normpath(os.path.join(folder, link[1]))
            if not (self.root / target).exists():
                return link[0]  # mkdocs says so
            return f"]({os.path.relpath(self.page_of(target), folder or '.')}{link[2] or ''})"

        lines = [LINK.sub(rewritten, line) if is_text else line
                 for line, is_text in outside_fences((self.root / file).read_text())]  # fmt: skip
        return "\n".join(lines) + "\n"

    def make(self) -> None:
        shutil.rmtree(self.pages, ignore_errors=True)
        for file in sorted(f for f in self.files if f.endswith(".md")):
            self.write(file, self.document(file))
        self.write("reference/python.md", python_index())
        for module in PYTHON_MODULES:
            self.write(f"reference/python/{module}.md", python_page(module))
        headers = public_headers((self.root / "cmake/package.cmake").read_text())
        about = ("What programs include, header by header; made of their comments. "
                 "[C++](../docs/guide/cpp.md) says how to build with them.")  # fmt: skip
        rows = ["# C++ reference", "", about, ""]
        for header in headers:
            text = (self.root / "src/sidereal" / header).read_text()
            name = header.replace("/", "_").removesuffix(".h")
            self.write(f"reference/cpp/{name}.md", cpp_page(header, text))
            rows.append(f"- [`{header}`](cpp/{name}.md)")
        self.write("reference/cpp.md", "\n".join(rows) + "\n")


def navigation(guide: str) -> list[Any]:
    """The nav of the site: the sections and items of docs/guide/README.md in their order. An item
    with several links is a section of its own, and before the first of its links stands its name.
    """
    sections: list[Any] = ["docs/guide/README.md"]
    for heading, body in re.findall(r"^\*\*(.+)\*\*$((?:\n(?!\*\*).*)*)", guide, re.M):
        items: list[Any] = []
        for item in re.split(r"^(?:\d+\.|-) ", body, flags=re.M)[1:]:
            found = re.findall(r"\[([^\]]+)\]\(([^)#]+\.md)\)", item)
            links = [(" ".join(text.split()), os.path.normpath(f"docs/guide/{page}"))
                     for text, page in found]  # fmt: skip
            if len(links) == 1:
                items.append({links[0][0]: links[0][1]})
            elif links:
                name = item.split("[")[0].strip(": \n")
                pages: list[Any] = [{text: page} for text, page in links]
                if not name:
                    name, pages[0] = links[0][0], links[0][1]
                items.append({name: pages})
        sections.append({heading: items})
    references = [{"Python": "reference/python.md"}, {"C++": "reference/cpp.md"}]
    return [{"Sidereal": "README.md"}, {"Guide": sections}, {"References": references}]


def on_config(config: Any) -> Any:
    """What mkdocs calls when it has read mkdocs.yml."""
    guide = pathlib.Path(config.docs_dir) / "docs/guide/README.md"
    config.nav = navigation(guide.read_text())
    return config


def python_index() -> str:
    rows = ["# Python reference", "", "One page for each module; made of its docstrings.", ""]
    rows += [f"- [`{module}`](python/{module}.md)" for module in PYTHON_MODULES]
    return "\n".join(rows) + "\n"


def python_page(module: str) -> str:
    return f"# {module}\n\n::: {module}\n"


def public_headers(listing: str) -> list[str]:
    """The headers that the CMake package is for."""
    found = re.search(r"set\(SIDEREAL_PUBLIC_HEADERS\s([^)]*)\)", listing)
    assert found, "cmake/package.cmake says which headers are public"
    return sorted(found[1].split())


def declarations(text: str) -> Iterator[tuple[str, str, str]]:
    """Comment, code and class of what a header documents: each `///` block with the declaration
    behind it. That ends where its first brace or semicolon outside of parentheses is; a struct
    is shown whole."""
    lines = text.splitlines()
    scope, number = "", 0
    while number < len(lines):
        if lines[number] == "};":
            scope = ""
        if not lines[number].lstrip().startswith("/// "):
            number += 1
            continue
        comment, code = [], []
        indent = len(lines[number]) - len(lines[number].lstrip())
        while number < len(lines) and lines[number].lstrip().startswith("///"):
            comment.append(lines[number].strip().removeprefix("///").strip())
            number += 1
        depth = 0
        whole = number < len(lines) and re.match(r"\s*(struct|enum class) [^;]*$", lines[number])
        while number < len(lines) and (lines[number].strip() or whole):
            line = lines[number]
            code.append(line[indent:])
            number += 1
            bare = line.split("//")[0].rstrip()
            if whole:
                if bare == " " * indent + "};" or (len(code) == 1 and bare.endswith("};")):
                    break
                continue
            depth += bare.count("(") - bare.count(")")
            if depth <= 0 and bare.endswith((";", "{", "}")):
                break
        yield " ".join(comment), "\n".join(code), scope
        opened = re.match(r"class (\w+)[^;]*\{$", code[0]) if code else None
        if opened and not indent:
            scope = opened[1]


#: How a declaration of a macro, a type, a value or a function begins.
NAMES = [
    r"#define (\w+\([^)]*\))", r"(?:class|struct|using|enum class) (\w+)",
    r"[^(]*<.*>&? (\w+)(?: = .*)?;$", r"(?:[^(=]*[\s*&])?(operator\S+|~?\w+)\s*[({=;]",
]  # fmt: skip


def name_of(code: str) -> str:
    """The name that a declaration gives; without one, its first line."""
    code = re.sub(r"^template <.*>\s*", "", code)
    for pattern in NAMES:
        if found := re.match(pattern, code):
            return found[1]
    return code.split("\n")[0]


def cpp_page(header: str, text: str) -> str:
    """What one header offers: text that documents a namespace first, then each declaration."""
    rows = [f"# {header}", "", f'`#include "sidereal/{header}"`', ""]
    for comment, code, scope in declarations(text):
        code = re.sub(r"\s*[{\\]$", "", code.rstrip())
        if code.startswith("#define"):
            code = code.split("\n")[0].rstrip(" \\")
            if f"#undef {name_of(code).split('(')[0]}" in text:
                code = ""
        if code.startswith("namespace") or not code:
            rows += [escaped(comment), ""]
            continue
        title = "::".join(filter(None, [scope, name_of(code)]))
        rows += [f"### {title}", "", "```cpp", code, "```", "", escaped(comment), ""]
    return "\n".join(rows) + "\n"


def escaped(text: str) -> str:
    """A comment of a source as Markdown: what looks like HTML or a link is text."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([<\[*_])", r"\\\1", part)
                   for part in parts)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = pathlib.Path(__file__).resolve().parents[1]
    parser.add_argument("--pages", type=pathlib.Path, default=root / "build/docs_pages")
    site = Site(root, parser.parse_args().pages)
    site.make()


if __name__ == "__main__":
    main()
