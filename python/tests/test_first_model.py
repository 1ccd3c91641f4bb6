"""The guide's pages from a table to a served model: their commands, as they stand there."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from session_servers import PROGRAM, ROOT

DATA = ROOT.parent / "shared" / "data"


def guide_pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("guide_pages", ROOT / "tools" / "guide_pages.py")
    assert spec is not None and spec.loader is not None
    out = sys.modules["guide_pages"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(out)
    return out


pages = guide_pages()


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.name)
def test_the_pages_from_a_table_to_a_served_model(
    page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not (DATA / page.data).exists():
        assert "CI" not in os.environ
        pytest.skip("needs ../shared/data")
    pytest.importorskip("uvloop", reason="the extra serving is not installed")
    program = tmp_path / "bin" / "sidereal"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m sidereal "$@"\n')
    program.chmod(0o755)
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.setenv("SIDEREAL_BIN_DIR", str(PROGRAM.parent))
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    said = pages.try_page(page, ROOT / "docs" / "guide", DATA, folder, path)
    assert said.startswith(f"{page.name}: auc 0.")


def test_a_page_that_promises_too_much_is_told(tmp_path: Path) -> None:
    """With programs in the place of sidereal's that train, and evaluate to something else."""
    page = pages.Page("page.md", ".", 0.5, pages.with_header)
    commands = ["true", "echo test: auc $TRAINED", "echo auc 0.7", "serve-model 8501", "curl"]
    text = "".join(f"```sh\n{command}\n```\n" for command in commands)
    for trained, message in [("0.4", "an auc of 0.4, where 0.5 is usual"),
                             ("0.8", "trained to an auc of 0.8, and evaluated to 0.7"),
                             ("0.9; exit 3", "echo test: auc 0.9; exit 3")]:  # fmt: skip
        (tmp_path / "page.md").write_text(text.replace("$TRAINED", trained))
        with pytest.raises(pages.PageError, match=message):
            pages.try_page(page, tmp_path, tmp_path, tmp_path, os.environ["PATH"])
