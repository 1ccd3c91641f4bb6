"""What tf.distribute.experimental has of programs on parameter servers."""

from ..parameter_server_strategy import ParameterServerStrategy
from . import partitioners

__all__ = ["ParameterServerStrategy", "partitioners"]
