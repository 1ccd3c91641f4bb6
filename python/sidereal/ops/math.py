"""Arithmetic, comparison, logic and reductions, element by element and over axes."""

from __future__ import annotations

__all__: list[str] = []
