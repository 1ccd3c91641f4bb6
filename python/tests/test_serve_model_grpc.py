"""`sidereal serve-model` over gRPC: TensorFlow Serving's services and TensorFlow's messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2
from model_servers import GrpcClient, ModelServer, many_server, refused, request_of

from sidereal.serving import fill, messages, to_array
from sidereal.serving._tensors import TYPE_NAMES, number_of


@pytest.fixture(scope="module")
def server(tmp_path_factory: Any) -> Iterator[ModelServer]:
    with many_server(tmp_path_factory.mktemp("many")) as made:
        yield made


@pytest.fixture(scope="module")
def client(server: ModelServer) -> Iterator[GrpcClient]:
    with GrpcClient(server.grpc_port) as made:
        yield made


COLUMNS = {"a": np.array([[1, 2.5]], np.float32), "b": np.array([3], np.int32)}


def test_predictions_over_grpc(client: GrpcClient) -> None:
    found = client.predict("many", COLUMNS)
    np.testing.assert_array_equal(found["sum"], np.array([6.5], np.float32))
    np.testing.assert_array_equal(found["twice"], np.array([6], np.int32))
    texts = client.predict("many", {"text": np.array([b"\xff", "h\u00e9"], object)}, "texts")
    assert texts["text"].tolist() == [b"\xff", "h\u00e9".encode()]
    request = request_of("many", COLUMNS)
    request.output_filter.append("twice")
    request.model_spec.version.value = 1
    answer = client.predict_message(request)
    assert list(answer.outputs) == ["twice"]
    spec = answer.model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("many", 1, "serving_default")
    request.model_spec.version_label = "stable"
    assert client.predict_message(request).outputs["twice"].dtype == number_of("int32")


def test_metadata_status_and_health_over_grpc(client: GrpcClient) -> None:
    request = messages.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "many"
    method = "PredictionService/GetModelMetadata"
    found = client.call(method, request, messages.GetModelMetadataResponse)
    known = messages.SignatureDefMap()
    assert found.metadata["signature_def"].Unpack(known)
    assert found.metadata["signature_def"].type_url == (
        "type.googleapis.com/tensorflow.serving.SignatureDefMap"
    )
    made = known.signature_def["serving_default"]
    assert made.inputs["a"].dtype == number_of("float32")
    assert [dim.size for dim in made.inputs["a"].tensor_shape.dim] == [-1, 2]
    request = messages.GetModelStatusRequest()
    request.model_spec.name = "many"
    status = client.call(
        "ModelService/GetModelStatus", request, messages.GetModelStatusResponse
    )
    assert [(one.version, one.state) for one in status.model_version_status] == [(1, 30)]
    check = client.channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )
    for service in ("", "many", "tensorflow.serving.PredictionService"):
        assert check(health_pb2.HealthCheckRequest(service=service)).status == 1


def bad(change: Any) -> Any:
    request = request_of("many", COLUMNS)
    change(request)
    return request


def test_bad_messages_are_refused(client: GrpcClient) -> None:
    def shape(request: Any, *extents: int) -> None:
        del request.inputs["a"].tensor_shape.dim[:]
        for extent in extents:
            request.inputs["a"].tensor_shape.dim.add(size=extent)

    wrong = "INVALID_ARGUMENT"
    cases: list[tuple[Any, str, str]] = [
        (lambda r: setattr(r.model_spec, "name", "other"), "NOT_FOUND", "no model 'other'"),
        (lambda r: setattr(r.model_spec.version, "value", 9), "NOT_FOUND", "no version 9"),
        (lambda r: setattr(r.model_spec, "signature_name", "z"), "NOT_FOUND", "no signature 'z'"),
        (lambda r: r.output_filter.append("z"), wrong, "no output 'z'"),
        (lambda r: r.inputs.pop("b"), wrong, "takes a, b; given are a"),
        (lambda r: fill(r.inputs["c"], np.zeros(1)), wrong, "takes a, b"),
        (lambda r: setattr(r.inputs["a"], "dtype", 99), wrong, "the dtype 99"),
        (lambda r: setattr(r.inputs["b"], "dtype", 9), wrong, "bytes of content"),
        (lambda r: setattr(r.inputs["b"], "dtype", 1), wrong, "'b' takes int32, and not float32"),
        (lambda r: shape(r, 1, 3), wrong, "8 bytes of content, and its shape [1, 3]"),
        (lambda r: shape(r, 2, 1), wrong, "'a' has the shape [2, 1]"),
        (lambda r: shape(r, -1, 2), wrong, "no known shape"),
        (lambda r: shape(r, 1 << 40, 1 << 40), wrong, "more than"),
        (lambda r: shape(r, *[1] * 100), wrong, "100 dimensions"),
        (lambda r: setattr(r.inputs["a"].tensor_shape, "unknown_rank", True), wrong, "no known"),
        (lambda r: r.inputs["a"].ClearField("tensor_content"), wrong, "0 values for the shape"),
    ]
    for change, code, why in cases:
        found, message = refused(client, bad(change))
        assert found == code and why in message, message
    assert client.predict("many", COLUMNS)["twice"].tolist() == [6]
    with pytest.raises(grpc.RpcError) as raised:
        client.predict("many", {"a": np.zeros((100_000, 2), np.float32),
                                "b": np.zeros(100_000, np.int32)})  # fmt: skip
    assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("kind", TYPE_NAMES)
def test_messages_of_tensorflow_are_read_and_written(client: GrpcClient, kind: str) -> None:
    tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    values: Any = [[b"a", b"\xff"], [b"", b"c"]] if kind == "string" else [[0, 1], [1, 0]]
    array = np.array(values, object if kind == "string" else kind)
    # By content and by values, of which the last one may stand for the rest.
    shorter = tf.make_tensor_proto(array)
    single = tf.make_tensor_proto(array.reshape(-1)[:1].tolist(), kind, [2, 2])
    for proto, want in ((shorter, array), (single, np.full((2, 2), array[0, 0], array.dtype))):
        read = messages.TensorProto.FromString(proto.SerializeToString())
        found = to_array("x", read, 1000)
        np.testing.assert_array_equal(found, want)
        assert found.dtype == want.dtype
        written = messages.TensorProto()
        fill(written, found)
        proto.ParseFromString(written.SerializeToString())
        np.testing.assert_array_equal(tf.make_ndarray(proto), want)


def test_tensorflow_asks_and_understands(client: GrpcClient) -> None:
    tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    request = messages.PredictRequest()
    request.model_spec.name = "many"
    for name, value in (("a", [[1.0, 2.5], [0, 0]]), ("b", [3, -1])):
        proto = tf.make_tensor_proto(value, tf.float32 if name == "a" else tf.int32)
        request.inputs[name].ParseFromString(proto.SerializeToString())
    answer = client.predict_message(request)
    proto = tf.make_tensor_proto(0)
    proto.ParseFromString(answer.outputs["sum"].SerializeToString())
    assert tf.make_ndarray(proto).tolist() == [6.5, -1.0]


def test_fields_have_the_numbers_of_tensorflow() -> None:
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    from tensorflow.core.framework import tensor_pb2, tensor_shape_pb2
    from tensorflow.core.protobuf import meta_graph_pb2

    for theirs in (tensor_pb2.TensorProto, tensor_shape_pb2.TensorShapeProto,
                   meta_graph_pb2.TensorInfo, meta_graph_pb2.SignatureDef):  # fmt: skip
        known = theirs.DESCRIPTOR.fields_by_name
        ours = getattr(messages, theirs.DESCRIPTOR.name).DESCRIPTOR
        for field in ours.fields:
            assert (field.number, field.is_repeated) == (
                known[field.name].number, known[field.name].is_repeated,
            )  # fmt: skip
