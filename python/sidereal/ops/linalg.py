"""Matrices: sidereal.linalg."""

from __future__ import annotations

from .array import eye
from .math import matmul
from .sorting import band_part, diag, diag_part

__all__ = ["band_part", "diag", "diag_part", "eye", "matmul"]
