"""Where TensorFlow has its earlier API: sidereal.compat.v1 is sidereal.v1 (tf.compat)."""

import sys

from . import v1

# For `import sidereal.compat.v1 as tf`.
sys.modules[f"{__name__}.v1"] = v1

__all__ = ["v1"]
