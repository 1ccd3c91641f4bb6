"""What `sidereal serve-model` runs: a server of predictions in TensorFlow Serving's forms. It needs
the packages of the extra `serving`.

Clients find TensorFlow Serving's messages here, and arrays to put into them.
"""

from ._messages import messages
from ._tensors import fill, to_array

__all__ = ["fill", "messages", "to_array"]
