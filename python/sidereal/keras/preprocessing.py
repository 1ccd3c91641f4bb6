"""Where Keras has helpers for data (keras.preprocessing): `sequence.pad_sequences`. Layers that
prepare data are in keras.layers."""

from __future__ import annotations

import types

from .utils import pad_sequences

__all__ = ["sequence"]

sequence = types.SimpleNamespace(pad_sequences=pad_sequences)
