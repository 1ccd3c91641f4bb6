"""Each rule of tools/tidy.py finds what it is for and accepts its opposite."""

import pytest

import tidy

CLEAN = {
    "src/CMakeLists.txt": "engine_module(SOURCES a.cc TESTS a_test.cc)\n",
    "src/a.h": "#pragma once\n",
    "src/a.cc": '#include "a.h"\n',
    "src/a_test.cc": '#include "a.h"\n',
    "tests/test_a.py": "def test_one():\n    pass\n",
    "README.md": "See [the header](src/a.h), [the web](https://example.org/x).\n",
}


@pytest.fixture
def problems(write, tmp_path):
    """problems({path: text}): what tidy says about the clean tree with these files changed."""

    def run(changes: dict[str, str]) -> list[str]:
        files = CLEAN | changes
        for path, text in files.items():
            write(path, text)
        return tidy.check(tidy.Tree(tmp_path, list(files)))

    return run


def test_a_clean_tree_has_no_problems(problems):
    assert problems({}) == []


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("src/a.cc", "//" + "x" * 99 + "\n", "101 columns"),
        ("src/a.h", "#pragma once\n" * 376, "at most 375 lines"),
        ("src/a.cc", "\n" * 976, "at most 975 lines"),
        ("src/a_test.cc", "\n" * 1351, "at most 1350 lines"),
        ("src/a.h", "int a();\n", "#pragma once"),
        ("src/a.cc", '#include <map>\n#include "a.h"\n', "a.h comes before other headers"),
        ("src/a.cc", "\tint x;\n", "a tab"),
        ("src/a.cc", "int x; \n", "white space at the end"),
        ("src/a.cc", "int x;", "no newline"),
        ("src/a.cc", "// TO" + "DO: more\n", "finish it"),
        ("README.md", "cd /ro" + "ot/x\n", "one particular machine"),
        ("README.md", "pip -i pypi" + ".org\n", "package registry"),
        ("README.md", "[gone](src/gone.h)\n", "leads nowhere"),
        ("README.md", "[gone](#gone)\n", "no heading #gone"),
        ("README.md", "# A\n[gone](README.md#a-1)\n", "no heading #a-1"),
        ("src/a_test.cc", "  std::this_thread::sleep" + "_for(1s);\n", "never sleeps"),
        ("tests/test_a.py", "time.sl" + "eep(1)\n", "never sleeps"),
        ("src/b_test.cc", "\n", "no CMakeLists.txt lists it"),
        ("src/aa.cc", "\n", "no CMakeLists.txt lists it"),
        ("tools/test_x.py", "def test_x():\n    pass\n", "pytest does not collect it"),
        ("tests/x.py", "def test_x():\n    pass\n", "pytest does not collect it"),
    ],
)
def test_a_violation_is_found_once_in_its_file(problems, path, text, message):
    found = problems({path: text})
    assert len(found) == 1, found
    assert found[0].startswith(f"{path}:") and message in found[0]


def test_links_to_headings_are_those_that_forges_make(problems):
    names = ["a-b--c", "of-x_y", "same", "same-1"]
    text = "# A-b & c\n## Of [`x_y`](src/a.h)!\n# Same\n# Same\n```\n# Code\n```\n"
    links = [f"[x](#{name}) [y](README.md#{name})" for name in names]
    assert problems({"README.md": text + "\n".join(links) + "\n"}) == []
    found = problems({"README.md": text + "[x](#code)\n"})
    assert len(found) == 1 and "README.md:8" in found[0]


def test_the_guide_lists_its_pages(problems):
    files = {"docs/guide/README.md": "[A](a.md)\n", "docs/guide/a.md": "A\n"}
    assert problems(files) == []
    found = problems({**files, "docs/guide/b.md": "B\n"})
    assert len(found) == 1 and "does not list b.md" in found[0]


LONG = "word " * 21


@pytest.mark.parametrize("text", [LONG, "- " + LONG, "> " + LONG, "see " + "x" * 100,
                                  "```\ncode\n```\n" + LONG])
def test_long_lines_of_prose_are_found(problems, text):
    found = problems({"README.md": text.rstrip() + "\n"})
    assert len(found) == 1 and "wrap the text" in found[0], found


@pytest.mark.parametrize("text", [
    "| " + LONG + "|", "```\n" + LONG + "\n```", "~~~~ text\n```\n" + LONG + "\n~~~~", "x" * 101,
    "- " + "x" * 101, f"[{LONG}](src/a.h)", "### " + LONG, "  " + "x" * 99])
def test_long_lines_that_cannot_be_wrapped_are_accepted(problems, text):
    assert problems({"README.md": text.rstrip() + "\n"}) == []


def test_every_subcommand_of_the_front_door_is_documented(problems):
    usage = "cat <<TEXT\n  build [X]   builds\n  help        this\nTEXT\n"
    assert "./dev build" in problems({"dev": usage})[0]
    assert problems({"dev": usage, "README.md": "Run ./dev build.\n"}) == []


def test_figures_of_other_pages_are_those_of_the_benchmarks(problems):
    guide = "| call | n | low | ms |\n|---|---|---|---|\n"
    guide += "| pull | 1 | 3 | 3.5 |\n|  | 2 | 1 | 2.5 |\n"
    readme = "| call | n | ms |\n|---|---|---|\n| pull | 2 | {} |\n"
    files = {"docs/guide/benchmarks.md": guide,
             "docs/guide/README.md": "[b](benchmarks.md) [w](why.md)\n",
             "docs/guide/why.md": "Why\n"}  # fmt: skip
    for page in ("README.md", "docs/guide/why.md"):
        assert problems({**files, page: readme.format("2.5")}) == []
        found = problems({**files, page: readme.format("3.5")})
        assert len(found) == 1
        assert f"{page}:3" in found[0]


def test_words_and_paths_that_only_look_alike_are_accepted(problems):
    text = '#include "a.h"\n#include <sys/ho' + "me/x>\n"
    text += "// autodoc, net" + "work/x, $HOME/wo" + "rk/x\n"
    assert problems({"src/a.cc": text}) == []
