"""Programs that tests run in a Python process of their own."""

from __future__ import annotations

import subprocess
import sys
from typing import Any


def in_another_process(program: str, *arguments: Any) -> str:
    """What a program prints, which must end well."""
    words = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
