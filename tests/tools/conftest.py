"""Makes the modules of tools/ importable and gives tests a small tree to work on."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))


@pytest.fixture
def write(tmp_path):
    """write(path, text): creates a file of the tree under tmp_path."""

    def make(path: str, text: str) -> pathlib.Path:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    return make
