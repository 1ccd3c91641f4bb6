"""Shapes, slices, gathers and scatters, joining and splitting."""

from __future__ import annotations

__all__: list[str] = []
