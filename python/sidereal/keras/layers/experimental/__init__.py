"""Where TensorFlow 2.4 had layers of preprocessing (tf.keras.layers.experimental)."""

from . import preprocessing

__all__ = ["preprocessing"]
