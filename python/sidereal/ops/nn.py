"""Activations, losses, normalisation, convolution and pooling: sidereal.nn."""

from __future__ import annotations

__all__: list[str] = []
