"""What models are saved as, and names of classes and functions of one's own (keras.saving)."""

from __future__ import annotations

from ._configs import (
    CustomObjectScope,
    custom_object_scope,
    get_custom_objects,
    get_registered_name,
    get_registered_object,
    register_keras_serializable,
)
from ._configs import deserialize as deserialize_keras_object
from ._configs import serialize as serialize_keras_object
from ._model_files import load_model, load_weights, save_model, save_weights

__all__ = [
    "CustomObjectScope", "custom_object_scope", "deserialize_keras_object", "get_custom_objects",
    "get_registered_name", "get_registered_object", "load_model", "load_weights",
    "register_keras_serializable", "save_model", "save_weights", "serialize_keras_object",
]  # fmt: skip
