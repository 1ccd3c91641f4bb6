"""What tf.distribute.experimental has of programs on parameter servers."""

from . import partitioners

__all__ = ["partitioners"]
