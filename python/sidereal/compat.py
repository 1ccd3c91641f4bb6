"""Where TensorFlow has its earlier API: sidereal.compat.v1 is sidereal.v1 (tf.compat)."""

from . import v1

__all__ = ["v1"]
