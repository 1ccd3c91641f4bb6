"""The pages of the documentation site, as tools/docs_site.py makes them of a checkout."""

import pytest

import docs_site

HEADER = """#pragma once

/// What all of it is for.
namespace x {

/// How it is made. Value type.
struct Options {
  int lanes{1};  ///< Threads.
};

/// Runs it, with `Options<int>` [a].
class Engine {
 public:
  /// Makes one.
  static Result<Engine> create(const std::string& name,
                               const Options& options = {});

  std::function<bool()> not_documented;
};

/// Ends it.
template <class T>
void stop(T& engine);

/// Asked now and then.
inline std::function<bool()> interrupt = nullptr;

}  // namespace x
"""


def test_a_header_becomes_its_comments_and_declarations():
    page = docs_site.cpp_page("a/b.h", HEADER)
    titles = [line[4:] for line in page.splitlines() if line.startswith("### ")]
    assert titles == ["Options", "Engine", "Engine::create", "stop", "interrupt"]
    assert "struct Options {\n  int lanes{1};  ///< Threads.\n};\n" in page
    assert "const Options& options = {});\n```\n\nMakes one." in page
    assert "Runs it, with `Options<int>` \\[a]." in page
    assert page.index("What all of it is for.") < page.index("### Options")
    assert "not_documented" not in page


def test_the_nav_is_the_list_of_the_guide():
    guide = """# Guide
**To train**

1. [One
   word](a.md): [see](a.md#there).
- Designs: [x](../design/x.md), [y](../design/y.md).

**To look up**

- [Formats](../formats/README.md): [wire](../formats/wire.md).
"""
    sections = docs_site.navigation(guide)[1]["Guide"]
    assert sections == [
        "docs/guide/README.md",
        {"To train": [
            {"One word": "docs/guide/a.md"},
            {"Designs": [{"x": "docs/design/x.md"}, {"y": "docs/design/y.md"}]},
        ]},
        {"To look up": [
            {"Formats": ["docs/formats/README.md", {"wire": "docs/formats/wire.md"}]},
        ]},
    ]  # fmt: skip


@pytest.fixture
def site(write, tmp_path):
    """site({path: text}): the site of a tree with these files."""

    def make(files: dict[str, str]) -> docs_site.Site:
        for path, text in files.items():
            write(path, text)
        return docs_site.Site(tmp_path, tmp_path / "build/pages")

    return make


def test_links_of_documents_lead_to_pages(site):
    made = site({
        "docs/a.md": "[x](../x/run.py) [dir](../x) [b](b.md#c) [w](https://example.org)\n"
                     "```\n[no](../x/run.py)\n```\n![p](p.svg) [gone](gone.md)\n",
        "docs/b.md": "# C\n",
        "docs/p.svg": "<svg/>\n",
        "x/run.py": "print('```')\n",
    })  # fmt: skip
    assert made.document("docs/a.md") == (
        "[x](../x/run.py.md) [dir](../x/index.md) [b](b.md#c) [w](https://example.org)\n"
        "```\n[no](../x/run.py)\n```\n![p](p.svg) [gone](gone.md)\n"
    )
    assert (made.pages / "docs/p.svg").read_text() == "<svg/>\n"
    assert (made.pages / "x/index.md").read_text() == "# x\n\n- [run.py](run.py.md)\n"
    assert "````python\nprint('```')\n````" in (made.pages / "x/run.py.md").read_text()


def test_the_modules_of_the_reference_are_there():
    python = docs_site.pathlib.Path(docs_site.__file__).parents[1] / "python"
    for module in docs_site.PYTHON_MODULES:
        path = python / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__init__.py").exists(), module
