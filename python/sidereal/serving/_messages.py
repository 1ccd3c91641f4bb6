"""The messages of TensorFlow Serving's gRPC services, as classes of the package protobuf.

They are those of `tensorflow_serving/apis` and `tensorflow/core/framework`, with the fields that a
server of predictions has to do with; fields that are not here pass unread. They live in a pool of
their own, so that a program may have TensorFlow's classes beside them.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    wrappers_pb2,
)

#: Fields of each message: number, name, type. `[]` behind a type: repeated; `{}`: a map from
#: strings; `|` before it: of the message's oneof.
_FIELDS = {
    "tensorflow.Dim": "1 size int64, 2 name string",
    "tensorflow.TensorShapeProto": "2 dim tensorflow.Dim[], 3 unknown_rank bool",
    "tensorflow.TensorProto": (
        "1 dtype int32, 2 tensor_shape tensorflow.TensorShapeProto, 4 tensor_content bytes, "
        "5 float_val float[], 6 double_val double[], 7 int_val int32[], 8 string_val bytes[], "
        "10 int64_val int64[], 11 bool_val bool[], 13 half_val int32[], 16 uint32_val uint32[], "
        "17 uint64_val uint64[]"
    ),
    "tensorflow.TensorInfo": (
        "1 name string, 2 dtype int32, 3 tensor_shape tensorflow.TensorShapeProto"
    ),
    "tensorflow.SignatureDef": (
        "1 inputs tensorflow.TensorInfo{}, 2 outputs tensorflow.TensorInfo{}, 3 method_name string"
    ),
    "tensorflow.serving.ModelSpec": (
        "1 name string, 2 version |google.protobuf.Int64Value, 3 signature_name string, "
        "4 version_label |string"
    ),
    "tensorflow.serving.PredictRequest": (
        "1 model_spec tensorflow.serving.ModelSpec, 2 inputs tensorflow.TensorProto{}, "
        "3 output_filter string[]"
    ),
    "tensorflow.serving.PredictResponse": (
        "1 outputs tensorflow.TensorProto{}, 2 model_spec tensorflow.serving.ModelSpec"
    ),
    "tensorflow.serving.SignatureDefMap": "1 signature_def tensorflow.SignatureDef{}",
    "tensorflow.serving.GetModelMetadataRequest": (
        "1 model_spec tensorflow.serving.ModelSpec, 2 metadata_field string[]"
    ),
    "tensorflow.serving.GetModelMetadataResponse": (
        "1 model_spec tensorflow.serving.ModelSpec, 2 metadata google.protobuf.Any{}"
    ),
    "tensorflow.serving.StatusProto": "1 error_code int32, 2 error_message string",
    "tensorflow.serving.ModelVersionStatus": (
        "1 version int64, 2 state int32, 3 status tensorflow.serving.StatusProto"
    ),
    "tensorflow.serving.GetModelStatusRequest": "1 model_spec tensorflow.serving.ModelSpec",
    "tensorflow.serving.GetModelStatusResponse": (
        "1 model_version_status tensorflow.serving.ModelVersionStatus[]"
    ),
}  # fmt: skip

_Field = descriptor_pb2.FieldDescriptorProto


def _set_type(field: Any, kind: str) -> None:
    if "." in kind:
        field.type, field.type_name = _Field.TYPE_MESSAGE, "." + kind
    else:
        field.type = getattr(_Field, "TYPE_" + kind.upper())


def _add_field(message: Any, full_name: str, text: str) -> None:
    number, name, kind = text.split()
    field = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
    if kind.startswith("|"):
        kind = kind[1:]
        if not message.oneof_decl:
            message.oneof_decl.add(name="choice")
        field.oneof_index = 0
    if kind.endswith("{}"):
        entry = message.nested_type.add(name=name.title().replace("_", "") + "Entry")
        entry.options.map_entry = True
        _add_field(entry, "", "1 key string")
        _add_field(entry, "", f"2 value {kind[:-2]}")
        field.label = _Field.LABEL_REPEATED
        kind = f"{full_name}.{entry.name}"
    elif kind.endswith("[]"):
        field.label = _Field.LABEL_REPEATED
        kind = kind[:-2]
    _set_type(field, kind)


def _classes() -> SimpleNamespace:
    pool = descriptor_pool.DescriptorPool()
    needed = []
    for known in (any_pb2, wrappers_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        known.DESCRIPTOR.CopyToProto(file)
        pool.Add(file)
        needed.append(file.name)
    for package in ("tensorflow", "tensorflow.serving"):
        file = descriptor_pb2.FileDescriptorProto(
            name=f"sidereal/{package}.proto", package=package, syntax="proto3", dependency=needed
        )
        for full_name, fields in _FIELDS.items():
            if full_name.rpartition(".")[0] == package:
                message = file.message_type.add(name=full_name.rpartition(".")[2])
                for text in fields.split(", "):
                    _add_field(message, full_name, text)
        pool.Add(file)
        needed.append(file.name)
    return SimpleNamespace(
        **{
            name.rpartition(".")[2]: message_factory.GetMessageClass(
                pool.FindMessageTypeByName(name)
            )
            for name in _FIELDS
        }
    )


#: The classes by name, as in `messages.PredictRequest`.
messages = _classes()

__all__ = ["messages"]
