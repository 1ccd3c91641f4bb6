"""The programs of docs/guide/keras.md."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import numpy as np
import pytest
from strategies import Servers

import sidereal as sr
from sidereal.distribute.cluster_resolver import SimpleClusterResolver

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "guide" / "keras.md"


def test_the_programs_of_the_guide_run(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # Where they write files.
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    servers = Servers(1, 2)
    resolver = SimpleClusterResolver(sr.train.ClusterSpec(servers.cluster))
    names: dict[str, Any] = {"resolver": resolver}
    for program in programs:
        exec(compile(program, str(PAGE), "exec"), names)
    assert names["regression"].optimizer.iterations.numpy() == 80
    servers.stop()
    assert names["again"].optimizer.iterations.numpy() == 32
    label = names["served"](words=np.array(["good"]))["label"]
    assert label.numpy()[0] in (b"yes", b"no")
    history = names["history"].history
    assert max(history["val_AUC"]) > 0.6
    assert len(history["loss"]) == len(history["val_loss"])
    layer = names["Scale"]()
    np.testing.assert_allclose(layer(np.ones((2, 3), "f")), np.ones((2, 3)))
    assert len(layer.losses) == 1
