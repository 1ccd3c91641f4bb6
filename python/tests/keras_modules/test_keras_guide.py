"""The programs of docs/guide/keras.md."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import numpy as np

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "guide" / "keras.md"


def test_the_programs_of_the_guide_run() -> None:
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    for program in programs:
        exec(compile(program, str(PAGE), "exec"), names)
    history = names["history"].history
    assert max(history["val_AUC"]) > 0.6
    assert len(history["loss"]) == len(history["val_loss"])
    layer = names["Scale"]()
    np.testing.assert_allclose(layer(np.ones((2, 3), "f")), np.ones((2, 3)))
    assert len(layer.losses) == 1
