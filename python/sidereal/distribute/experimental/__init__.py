"""What tf.distribute.experimental has of programs on parameter servers."""

from .. import coordinator
from ..parameter_server_strategy import ParameterServerStrategy
from . import partitioners

__all__ = ["ParameterServerStrategy", "coordinator", "partitioners"]
