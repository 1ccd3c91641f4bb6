"""Bytes to values and back, with the names of tf.io: CSV records, raw numbers, tf.train.Example
messages, files of records, and files of any kind (gfile)."""

from __future__ import annotations

from . import gfile
from .ops.parsing import (
    FixedLenFeature,
    FixedLenSequenceFeature,
    RaggedFeature,
    SparseFeature,
    VarLenFeature,
    decode_csv,
    decode_raw,
    encode_raw,
    parse_example,
    parse_single_example,
)
from .records import TFRecordWriter, encode_example, tf_record_iterator

__all__ = [
    "FixedLenFeature",
    "FixedLenSequenceFeature",
    "RaggedFeature",
    "SparseFeature",
    "TFRecordWriter",
    "VarLenFeature",
    "decode_csv",
    "decode_raw",
    "encode_example",
    "encode_raw",
    "gfile",
    "parse_example",
    "parse_single_example",
    "tf_record_iterator",
]
