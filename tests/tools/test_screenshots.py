"""The pictures of text screens, as tools/screenshots.py makes them."""

import sys
import xml.etree.ElementTree as ElementTree

import pytest

import screenshots


@pytest.mark.parametrize("output, lines", [
    ("one\r\ntwo\r\n", ["one", "two", ""]),
    ("10% of it\r100%\x1b[K\r\ndone", ["100%", "done"]),
    ("abc\rX", ["Xbc"]),
    ("old\r\nlines\x1b[Hnew\x1b[K\r\n\x1b[J", ["new", ""]),
    ("\x1b[?1049h\x1b[31mred\x1b[0m", ["red"]),
])  # fmt: skip
def test_a_screen_has_what_a_terminal_shows_at_the_end(output, lines):
    assert screenshots.shown(output) == lines


def test_a_program_sees_a_terminal_of_the_width_that_is_said():
    asks = "import os; print(os.isatty(1), os.get_terminal_size().columns)"
    assert screenshots.terminal([sys.executable, "-c", asks], 93) == "True 93\r\n"
    with pytest.raises(RuntimeError, match="exit code 3"):
        screenshots.terminal([sys.executable, "-c", "raise SystemExit(3)"], 80)


def test_a_picture_has_each_line_and_room_for_the_longest():
    lines = ["$ run --a <b>", "", "x" * 60]
    root = ElementTree.fromstring(screenshots.svg(lines))
    texts = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == [lines[0], lines[2]]
    longest = max(float(one.get("textLength")) for one in root.iter() if one.get("textLength"))
    assert longest < float(root.get("width"))


def test_a_picture_that_is_too_large_is_refused(tmp_path):
    maker = screenshots.Maker("", "", tmp_path, tmp_path)
    with pytest.raises(RuntimeError, match="has 204801 bytes"):
        maker._save("x.png", b"0" * 204801)
    assert not list(tmp_path.iterdir())
