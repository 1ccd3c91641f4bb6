"""`sidereal serve-model`: what it answers over REST and gRPC, and to whom."""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2
from model_servers import GrpcClient, ModelServer, request_of, save_line
from session_servers import PATIENCE_S, ROOT
from test_out_commands import FILES, Trained, exported, make

import sidereal as sr
from sidereal import _serve_model_command
from sidereal._predictors import open_model
from sidereal._rows import Rows
from sidereal.serving import fill, messages, to_array
from sidereal.serving._tensors import TYPE_NAMES, number_of

PAGE = ROOT / "docs/guide/serving.md"


# ---- predictions are those of evaluate -----------------------------------------------------------


@pytest.fixture(scope="module", params=["grpc", "star_server"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Trained]:
    yield make(tmp_path_factory.mktemp("trained"), request.param)


@pytest.mark.parametrize("kind", FILES)
def test_all_rows_are_predicted_as_evaluate_does(
    trained: Trained, capsys: Any, tmp_path: Path, kind: str
) -> None:
    if kind == "onnx":
        pytest.importorskip("onnxruntime", reason="skipped: onnxruntime is not installed")
    options = exported(capsys, trained, kind, tmp_path)
    checkpoint = str(options[3]) if len(options) > 2 else None
    predictor = open_model(options[1], checkpoint)
    with ModelServer(*options, "--name", "m") as server, GrpcClient(server.grpc_port) as client:
        seen = 0
        for batch in Rows(predictor, str(trained.file), 250):
            (want,) = predictor.call(batch.inputs).values()
            names = list(batch.inputs)
            columns = {name: array.tolist() for name, array in batch.inputs.items()}
            rows = [dict(zip(names, row)) for row in zip(*columns.values())]
            path = "/v1/models/m:predict"
            by_rows = server.predict(path, {"instances": rows})["predictions"]
            by_columns = server.predict(path, {"inputs": columns})["outputs"]
            (by_grpc,) = client.predict("m", batch.inputs).values()
            for found in (by_rows, by_columns, by_grpc):
                np.testing.assert_allclose(np.array(found), want, atol=1e-5)
            np.testing.assert_allclose(
                np.reshape(by_grpc, -1), trained.predictions[seen : seen + batch.count], atol=1e-5
            )
            seen += batch.count
        assert seen == 2000


# ---- a model with several signatures -------------------------------------------------------------


def save_many(path: Path) -> None:
    """Signatures of several kinds in one file."""
    spec = sr.TensorSpec

    @sr.function(input_signature=[spec([None, 2], "float32", "a"), spec([None], "int32", "b")])
    def default(a: Any, b: Any) -> dict[str, Any]:
        return {"sum": sr.reduce_sum(a, axis=1) + sr.cast(b, "float32"), "twice": b * 2}

    @sr.function(input_signature=[spec([None], "string", "text")])
    def texts(text: Any) -> dict[str, Any]:
        return {"text": text, "raw_bytes": text}

    @sr.function(input_signature=[spec([None], "float32", "x")])
    def log(x: Any) -> Any:
        return sr.math.log(x)

    @sr.function(input_signature=[spec([], "float32", "x"), spec([], "float32", "y")])
    def scalars(x: Any, y: Any) -> Any:
        return x - y

    @sr.function(input_signature=[spec([None], "float32", "x")])
    def total(x: Any) -> Any:
        return sr.reduce_sum(x)

    @sr.function(input_signature=[spec([None], "float32", "x")])
    def classify(x: Any) -> dict[str, Any]:
        scores = sr.stack([x, 1.0 - x], axis=1)
        return {"scores": scores, "classes": sr.strings.as_string(sr.cast(scores, "int32"))}

    signatures = {"serving_default": default, "texts": texts, "log": log, "scalars": scalars,
                  "total": total, "classify": classify}  # fmt: skip
    sr.saved_model.save(list(signatures.values()), path, signatures=signatures)


@pytest.fixture(scope="module")
def server(tmp_path_factory: Any) -> Iterator[ModelServer]:
    path = tmp_path_factory.mktemp("many") / "many.srsm"
    save_many(path)
    with ModelServer("--model", path, "--labels", "stable", "--max-request-bytes", "256k") as made:
        yield made


@pytest.fixture(scope="module")
def client(server: ModelServer) -> Iterator[GrpcClient]:
    with GrpcClient(server.grpc_port) as made:
        yield made


PREDICT = "/v1/models/many:predict"
ROW = {"a": [1, 2.5], "b": 3}


def test_the_line_of_a_server_says_where_it_is(server: ModelServer) -> None:
    assert server.line == (
        f"version 1 of many: http://127.0.0.1:{server.rest_port}/v1/models/many, "
        f"grpc 127.0.0.1:{server.grpc_port}\n"
    )


def test_status_and_metadata_have_the_form_of_tensorflow_serving(server: ModelServer) -> None:
    status = {
        "model_version_status": [
            {"version": "1", "state": "AVAILABLE",
             "status": {"error_code": "OK", "error_message": ""}}
        ]
    }  # fmt: skip
    assert server.get("/v1/models/many") == status
    assert server.get("/v1/models/many/versions/1") == status
    assert server.get("/v1/models/many/labels/stable") == status
    found = server.get("/v1/models/many/versions/1/metadata")
    assert found["model_spec"] == {"name": "many", "signature_name": "", "version": "1"}
    signatures = found["metadata"]["signature_def"]["signature_def"]
    assert list(signatures) == ["serving_default", "texts", "log", "scalars", "total", "classify"]
    assert signatures["serving_default"] == {
        "inputs": {
            "a": {
                "dtype": "DT_FLOAT", "name": "a",
                "tensor_shape": {
                    "dim": [{"size": "-1", "name": ""}, {"size": "2", "name": ""}],
                    "unknown_rank": False,
                },
            },
            "b": {
                "dtype": "DT_INT32", "name": "b",
                "tensor_shape": {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False},
            },
        },
        "outputs": {
            name: {
                "dtype": dtype, "name": name,
                "tensor_shape": {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False},
            }
            for name, dtype in (("sum", "DT_FLOAT"), ("twice", "DT_INT32"))
        },
        "method_name": "tensorflow/serving/predict",
    }  # fmt: skip
    assert signatures["classify"]["method_name"] == "tensorflow/serving/classify"


def test_rows_and_columns_are_answered_in_their_form(server: ModelServer) -> None:
    rows = server.predict(PREDICT, {"instances": [ROW, {"a": [0, 0], "b": -1}]})
    assert rows == {"predictions": [{"sum": 6.5, "twice": 6}, {"sum": -1.0, "twice": -2}]}
    columns = server.predict(PREDICT, {"inputs": {"a": [[1, 2.5], [0, 0]], "b": [3, -1]}})
    assert columns == {"outputs": {"sum": [6.5, -1.0], "twice": [6, -2]}}
    for path in ("/v1/models/many/versions/1:predict", "/v1/models/many/labels/stable:predict"):
        assert server.predict(path, {"instances": [ROW]})["predictions"][0]["sum"] == 6.5
    # The only input needs no name, nor the only output.
    said = {"signature_name": "log", "instances": [1, 1.0]}
    assert server.predict(PREDICT, said) == {"predictions": [0.0, 0.0]}
    assert server.predict(PREDICT, {"signature_name": "log", "inputs": {"x": [1]}}) == {
        "outputs": [0.0]
    }
    said = {"signature_name": "scalars", "inputs": {"x": 5, "y": 3}}
    assert server.predict(PREDICT, said) == {"outputs": 2.0}
    assert server.predict(PREDICT, {"signature_name": "total", "inputs": [1, 2]}) == {
        "outputs": 3.0
    }


def test_texts_are_texts_and_bytes_are_b64(server: ModelServer) -> None:
    raw = base64.b64encode(b"\xff\x00").decode()
    found = server.predict(
        PREDICT, {"signature_name": "texts", "instances": ["h\u00e9", {"b64": raw}]}
    )
    assert found["predictions"] == [
        {"text": "h\u00e9", "raw_bytes": {"b64": base64.b64encode("h\u00e9".encode()).decode()}},
        {"text": {"b64": raw}, "raw_bytes": {"b64": raw}},
    ]


def test_infinities_and_nans_are_written_as_tensorflow_serving_does(server: ModelServer) -> None:
    said = {"signature_name": "log", "instances": [0, -1, 1]}
    _, body = server.ask("POST", PREDICT, said)
    assert json.loads(body)["predictions"][0] == -np.inf and b"-Infinity, NaN, 0.0" in body
    status, body = server.ask(
        "POST", PREDICT, b'{"signature_name": "log", "instances": [Infinity]}'
    )
    assert (status, json.loads(body)) == (200, {"predictions": [np.inf]})


def test_classes_and_regressions(server: ModelServer) -> None:
    said = {"signature_name": "classify", "context": {"x": 1}, "examples": [{}, {"x": 0}]}
    assert server.predict("/v1/models/many:classify", said) == {
        "results": [[["1", 1.0], ["0", 0.0]], [["0", 0.0], ["1", 1.0]]]
    }
    said = {"signature_name": "log", "examples": [{"x": 1}]}
    assert server.predict("/v1/models/many:regress", said) == {"results": [0.0]}
    status, why = server.refusal("/v1/models/many:classify", said)
    assert status == 400 and "ask for :predict" in why
    status, why = server.refusal("/v1/models/many:regress", {"examples": [ROW]})
    assert status == 400 and "sum, twice" in why


# ---- what is no good request ---------------------------------------------------------------------


DEEP = b"[" * 5000 + b"]" * 5000
BAD = [
    (b"", 400, "no JSON"),
    (b"{", 400, "no JSON"),
    (b"[1]", 400, "no object"),
    (b'{"instances": ' + DEEP + b"}", 400, "no JSON"),
    (b'{"instances": ' + b"[" * 200 + b"1" + b"]" * 200 + b', "signature_name": "log"}', 400, "x"),
    (b'{"instances": [NaN, ' + DEEP + b"]}", 400, "no JSON"),
    ({}, 400, '"instances" (rows) or "inputs"'),
    ({"instances": [ROW], "inputs": {}}, 400, '"instances" (rows) or "inputs"'),
    ({"instances": []}, 400, "one row at least"),
    ({"instances": {"a": 1}}, 400, "one row at least"),
    ({"instances": [1]}, 400, "instance 0 is 1, and no object with a, b"),
    ({"instances": [ROW, None]}, 400, "instance 1 is None"),
    ({"instances": [ROW, {"a": [1, 2]}]}, 400, "instance 1 has no 'b'"),
    ({"instances": [{**ROW, "c": 1}]}, 400, "instance 0 has 'c'"),
    ({"inputs": [1]}, 400, '"inputs" is to be an object with a, b'),
    ({"inputs": {"a": [[1, 2]]}}, 400, "\"inputs\" has no 'b'"),
    ({"instances": [{"a": [1, 2, 3], "b": 1}]}, 400, "'a' has the shape [1, 3], and the model"),
    ({"instances": [ROW, {"a": [1], "b": 1}]}, 400, "'a' takes lists of equal lengths"),
    ({"instances": [{"a": ["1", "2"], "b": 1}]}, 400, "'a' takes numbers (float32)"),
    ({"instances": [{"a": [1, None], "b": 1}]}, 400, "'a' takes numbers (float32)"),
    ({"instances": [{"a": [1, 2], "b": 1.5}]}, 400, "'b' takes whole numbers (int32)"),
    ({"instances": [{"a": [1, 2], "b": 2**31}]}, 400, "'b' takes numbers from -2147483648"),
    ({"instances": [{"a": [1, 2], "b": 2**70}]}, 400, "'b'"),
    ({"instances": [{"a": [1, 2], "b": True}]}, 400, "'b' takes whole numbers (int32)"),
    ({"instances": [ROW], "signature_name": "nothing"}, 404, "no signature 'nothing' but serving"),
    ({"instances": [ROW], "signature_name": 7}, 400, '"signature_name" is to be a text'),
    ({"instances": [1], "signature_name": "texts"}, 400, "'text' takes texts"),
    ({"instances": [{"b64": "?"}], "signature_name": "texts"}, 400, "'text': bad b64"),
    ({"instances": [{"b64": 1}], "signature_name": "texts"}, 400, "'text': bad b64"),
    ({"instances": [["a"], "b"], "signature_name": "texts"}, 400, "'text' takes"),
    ({"instances": [1, 2], "signature_name": "total"}, 400, 'ask with "inputs"'),
]  # fmt: skip


@pytest.mark.parametrize("body, status, why", BAD, ids=range(len(BAD)))
def test_a_bad_request_is_refused_with_what_is_wrong(
    server: ModelServer, body: Any, status: int, why: str
) -> None:
    found, message = server.refusal(PREDICT, body)
    assert found == status and why in message, message
    assert len(message) < 1000
    # And the next one is answered.
    assert server.predict(PREDICT, {"instances": [ROW]})["predictions"][0]["twice"] == 6


@pytest.mark.parametrize(
    "method, path, status, why",
    [
        ("GET", "/", 404, "there is nothing at /"),
        ("GET", "/v1/models/other", 404, "no model 'other' here but 'many'"),
        ("GET", "/v1/models/many/versions/2", 404, "no version 2"),
        ("GET", "/v1/models/many/versions/" + "9" * 30, 404, "no version"),
        ("GET", "/v1/models/many/labels/canary", 404, "no label 'canary' but stable"),
        ("POST", "/v1/models/many", 405, "GET is"),
        ("GET", "/v1/models/many:predict", 405, "POST is"),
        ("POST", "/v1/models/many:explain", 404, "there is nothing at"),
        ("POST", "/v1/models/other:predict", 404, "no model 'other'"),
        ("POST", "/v1/models/many/versions/7:predict", 404, "version 1 is served"),
        ("GET", "/" + "a" * 20000, 431, "longer than 16384"),
    ],
)
def test_a_path_that_means_nothing_is_refused(
    server: ModelServer, method: str, path: str, status: int, why: str
) -> None:
    found, message = server.refusal(path, {"instances": [ROW]}, method)
    assert found == status and why in message


def exchange(server: ModelServer, data: bytes, ends: bool = True) -> bytes:
    """What the server says to bytes. ends: until it closes the connection."""
    with socket.create_connection(("127.0.0.1", server.rest_port), PATIENCE_S) as connection:
        connection.sendall(data)
        found = b""
        while part := connection.recv(65536):
            found += part
            if not ends:
                break
        return found


def http_request(body: bytes, *headers: str) -> bytes:
    head = [f"POST {PREDICT} HTTP/1.1", "host: x", f"content-length: {len(body)}", *headers]
    return "\r\n".join([*head, "", ""]).encode() + body


@pytest.mark.parametrize(
    "data, status, why",
    [
        (b"hello\r\n\r\n", 400, b"no HTTP/1.1 request"),
        (b"\x16\x03\x01\x00\xa5\x01\x00\x00", 400, b"no HTTP/1.1 request"),
        (b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"a" * 20000, 431, b"head is longer"),
        (b"POST / HTTP/1.1\r\ncontent-length: 999999999999999999999\r\n\r\n", 413, b"262144"),
        (b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n", 400, b"no HTTP/1.1 request"),
        (http_request(b"a" * 300_000), 413, b"body is longer"),
        (http_request(b"", "content-encoding: gzip"), 415, b"send it plain"),
        (
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
            + b"ffff\r\n" + b"a" * 0xFFFF + b"\r\n"
            + (b"ffff\r\n" + b"a" * 0xFFFF + b"\r\n") * 5,
            413, b"body is longer",
        ),
        (b"GET / HTTP/1.1\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n", 404, b"error"),
    ],
)  # fmt: skip
def test_bytes_that_are_no_good_http_are_refused(
    server: ModelServer, data: bytes, status: int, why: bytes
) -> None:
    found = exchange(server, data, ends=False)
    assert found.startswith(b"HTTP/1.1 %d " % status) and why in found


def test_requests_of_one_connection_are_answered_in_order(server: ModelServer) -> None:
    """Also more than are taken at once, with one refused in the middle, and in small pieces."""
    bodies = [
        json.dumps({"signature_name": "total", "inputs": [number]}).encode()
        for number in range(50)
    ]
    bodies[20] = b"{"
    last = http_request(bodies[-1], "connection: close")
    data = b"".join(map(http_request, bodies[:-1])) + last
    found = re.findall(rb'{"(?:outputs":(\d+\.0)|error)', exchange(server, data))
    assert found == [b"%d.0" % number if number != 20 else b"" for number in range(50)]
    with socket.create_connection(("127.0.0.1", server.rest_port), PATIENCE_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in last:
            connection.sendall(bytes([byte]))
        assert connection.recv(65536).endswith(b'{"outputs":49.0}')


def test_a_client_that_waits_to_be_asked_for_the_body_is_asked(server: ModelServer) -> None:
    whole = http_request(json.dumps({"instances": [ROW]}).encode(), "expect: 100-continue")
    head, _, body = whole.partition(b"\r\n\r\n")
    with socket.create_connection(("127.0.0.1", server.rest_port), PATIENCE_S) as connection:
        connection.sendall(head + b"\r\n\r\n")
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n")


# ---- gRPC ----------------------------------------------------------------------------------------

COLUMNS = {"a": np.array([[1, 2.5]], np.float32), "b": np.array([3], np.int32)}


def refused(client: GrpcClient, request: Any) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as raised:
        client.predict_message(request)
    return raised.value.code().name, raised.value.details()


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


# ---- figures, health, and ends -------------------------------------------------------------------


def test_figures_and_health_over_http(server: ModelServer) -> None:
    assert server.ask("GET", "/healthz") == (200, b"ok\n")
    server.predict(PREDICT, {"instances": [ROW] * 5})
    text = server.ask("GET", "/metrics")[1].decode()
    assert re.search(r'requests_total{code="200",method="predict",protocol="rest"} \d+', text)
    assert "\nsidereal_serving_version 1.0\n" in text
    page = PAGE.read_text(encoding="utf-8")
    names = set(re.findall(r"# TYPE (sidereal_serving_\w+)", text))
    assert names - {name for name in names if name.endswith("_created")} == set(
        re.findall(r"^\| `(sidereal_serving_\w+)", page, re.MULTILINE)
    )


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[ModelServer]:
    """A server that has requests wait for a second, and takes four."""
    path = save_line(tmp_path / "line.srsm", 2, 1)
    with ModelServer(
        "--model", path, "--batch-timeout-us", 1_000_000, "--queue-rows", 4,
    ) as made:  # fmt: skip
        yield made


def asking(server: ModelServer, rows: list[float]) -> tuple[threading.Thread, list[Any]]:
    """A request under way, and its answer once the thread has ended."""
    found: list[Any] = []

    def ask() -> None:
        found.extend(server.ask("POST", "/v1/models/line:predict", {"instances": rows}))

    thread = threading.Thread(target=ask)
    thread.start()
    return thread, found


def wait_for_rows(server: ModelServer, rows: int) -> None:
    """Until so many wait."""
    end = time.monotonic() + PATIENCE_S
    while f"\nsidereal_serving_waiting_rows {rows}.0\n".encode() not in (
        server.ask("GET", "/metrics")[1]
    ):
        assert time.monotonic() < end


def test_too_many_requests_are_refused_and_the_others_answered(waiting: ModelServer) -> None:
    with GrpcClient(waiting.grpc_port) as client:
        client.predict("line", {"x": np.zeros(1, np.float32)})
        thread, found = asking(waiting, [1, 2, 3])
        wait_for_rows(waiting, 3)
        status, why = waiting.refusal("/v1/models/line:predict", {"instances": [1, 2]})
        assert status == 503 and "3 rows wait" in why and "--queue-rows" in why
        code, why = refused(client, request_of("line", {"x": np.zeros(2, np.float32)}))
        assert code == "RESOURCE_EXHAUSTED" and "3 rows wait" in why
    thread.join(PATIENCE_S)
    assert found == [200, b'{"predictions":[3.0,5.0,7.0]}']


def test_sigterm_answers_what_was_asked_and_ends(waiting: ModelServer) -> None:
    thread, found = asking(waiting, [1, 2, 3])
    wait_for_rows(waiting, 3)
    waiting.terminate()
    assert waiting.wait() == 0
    thread.join(PATIENCE_S)
    assert found == [200, b'{"predictions":[3.0,5.0,7.0]}']
    with pytest.raises(OSError):
        waiting.ask("GET", "/healthz")


def test_a_request_whose_time_is_over_is_told(tmp_path: Path) -> None:
    path = save_line(tmp_path / "line.srsm", 2, 1)
    with ModelServer(
        "--model", path, "--batch-timeout-us", 600_000_000, "--timeout-s", 1, "--drain-s", 0.5,
    ) as server, GrpcClient(server.grpc_port) as client:  # fmt: skip
        status, why = server.refusal("/v1/models/line:predict", {"instances": [1]})
        assert status == 504 and "in the time the request had" in why
        with pytest.raises(grpc.RpcError) as raised:
            client.predict("line", {"x": np.zeros(1, np.float32)}, timeout=0.3)
        assert raised.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        # A client that has gone keeps nothing: its connection ends first.
        connection = socket.create_connection(("127.0.0.1", server.rest_port), PATIENCE_S)
        connection.sendall(http_request(b'{"instances": [1]}').replace(b"many", b"line"))
        connection.close()
        assert server.ask("GET", "/healthz")[0] == 200


# ---- who may ask ---------------------------------------------------------------------------------


def openssl(*words: Any) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: Any) -> Path:
    """ca.pem, a pair that it signed, localhost.pem, and one that it did not, other.pem."""
    folder = tmp_path_factory.mktemp("certificates")
    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 2)
    for name in ("ca", "other"):
        openssl("req", "-x509", *new, "-subj", f"/CN={name}", "-keyout", folder / f"{name}.key",
                "-out", folder / f"{name}.pem")  # fmt: skip
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    openssl("req", *new[:-2], "-subj", "/CN=localhost", "-keyout", folder / "localhost.key",
            "-out", folder / "localhost.csr")  # fmt: skip
    openssl("x509", "-req", "-in", folder / "localhost.csr", "-CA", folder / "ca.pem", "-CAkey",
            folder / "ca.key", "-days", 2, "-extfile", folder / "names", "-set_serial", 7,
            "-out", folder / "localhost.pem")  # fmt: skip
    return folder


def test_certificates_say_who_may_ask(certificates: Path, tmp_path: Path) -> None:
    path = save_line(tmp_path / "line.srsm", 2, 1)
    files = {name: certificates / name for name in os.listdir(certificates)}
    with ModelServer(
        "--model", path, "--host", "0.0.0.0", "--certificate-file", files["localhost.pem"],
        "--key-file", files["localhost.key"], "--ca-file", files["ca.pem"],
    ) as server:  # fmt: skip
        url = f"https://localhost:{server.rest_port}/v1/models/line:predict"

        def ask(pair: str | None) -> bytes:
            context = ssl.create_default_context(cafile=str(files["ca.pem"]))
            if pair is not None:
                context.load_cert_chain(files[f"{pair}.pem"], files[f"{pair}.key"])
            request = urllib.request.Request(url, b'{"instances": [1, 2]}')
            with urllib.request.urlopen(request, timeout=PATIENCE_S, context=context) as answer:
                return bytes(answer.read())

        assert ask("localhost") == b'{"predictions":[3.0,5.0]}'
        for pair in (None, "other"):
            with pytest.raises(OSError):
                ask(pair)
        own = grpc.ssl_channel_credentials(
            files["ca.pem"].read_bytes(), files["localhost.key"].read_bytes(),
            files["localhost.pem"].read_bytes(),
        )  # fmt: skip
        with GrpcClient(server.grpc_port, own) as client:
            assert client.predict("line", {"x": np.ones(1, np.float32)})["y"].tolist() == [3]
        nobody = grpc.ssl_channel_credentials(files["ca.pem"].read_bytes())
        with GrpcClient(server.grpc_port, nobody) as client, pytest.raises(grpc.RpcError):
            client.predict("line", {"x": np.ones(1, np.float32)}, timeout=2)


# ---- the command ---------------------------------------------------------------------------------


def test_the_command_says_what_is_wrong(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = save_line(tmp_path / "line.srsm", 2, 1)
    (tmp_path / "empty").mkdir()
    (tmp_path / "two" / "1").mkdir(parents=True)
    (tmp_path / "other.bin").write_bytes(b"nothing")
    none = ["--rest-port", "none", "--grpc-port", "none"]
    cases: list[tuple[list[Any], str]] = [
        (["--model", tmp_path / "away"], "there is no model"),
        (["--model", tmp_path / "empty"], "has no version of a model: put files there"),
        (["--model", tmp_path / "two"], "has 0 models"),
        (["--model", tmp_path / "other.bin"], "is no model"),
        (["--model", line, "--follow"], "has its values; --follow is for"),
        (["--model", tmp_path / "two", "--checkpoint", "x"], "--checkpoint is for"),
        (["--model", line, *none], "give a port"),
        (["--model", line, "--host", "0.0.0.0"], "not on loopback"),
        (["--model", line, "--key-file", line], "--ca-file, or none of them"),
    ]
    for words, why in cases:
        assert _serve_model_command.main([str(word) for word in words]) == 1
        told = capsys.readouterr().err
        assert told.startswith("sidereal serve-model: error: ") and why in told, told
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = ["--model", str(line), "--rest-port", port, "--grpc-port", "none"]
        assert _serve_model_command.main(words) == 1
        assert f"nothing can listen at 127.0.0.1:{port}" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert _serve_model_command.main(["--model", str(line)]) == 1
    assert "pip install 'sidereal[serving]'" in capsys.readouterr().err


def test_the_guide_does_what_it_says(tmp_path: Path) -> None:
    """Its commands, with free ports in the place of the two that it names."""
    page = PAGE.read_text(encoding="utf-8")
    blocks = dict(re.findall(r"<!-- test:(\w+) -->\n```\w+\n(.*?)```", page, re.DOTALL))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(
        [sys.executable, "-c", blocks["save"]], cwd=tmp_path, env=environment, check=True,
        timeout=PATIENCE_S,
    )  # fmt: skip
    (serve,) = re.findall(r"^sidereal serve-model (.*)$", blocks["serve"], re.MULTILINE)
    with ModelServer(*(word.replace("models/", f"{tmp_path}/models/") for word in serve.split())
                     ) as server:  # fmt: skip
        asked = 0
        for command, answer in re.findall(
            r"^(curl (?:[^\n]*\\\n)*[^\n]*)\n((?:[{s][^\n]*\n)*)", blocks["ask"], re.MULTILINE
        ):
            done = subprocess.run(
                ["bash", "-c", command.replace("8501", str(server.rest_port))],
                capture_output=True, text=True, check=True, timeout=PATIENCE_S,
            )  # fmt: skip
            assert not answer or answer.strip() in done.stdout
            asked += 1
        assert asked == blocks["ask"].count("curl ") > 3
        program = blocks["grpc"].replace("8500", str(server.grpc_port))
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True,
            capture_output=True, text=True, timeout=PATIENCE_S,
        )  # fmt: skip
        assert done.stdout == "[2.5 3.  4.5]\n"
