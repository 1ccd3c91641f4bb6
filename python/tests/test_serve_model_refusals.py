"""What `sidereal serve-model` refuses over HTTP, and that it goes on."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from model_servers import ModelServer, http_request, many_server
from session_servers import PATIENCE_S

PREDICT = "/v1/models/many:predict"
ROW = {"a": [1, 2.5], "b": 3}


@pytest.fixture(scope="module")
def server(tmp_path_factory: Any) -> Iterator[ModelServer]:
    with many_server(tmp_path_factory.mktemp("many")) as made:
        yield made


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


@pytest.mark.parametrize(
    "data, status, why",
    [
        (b"hello\r\n\r\n", 400, b"no HTTP/1.1 request"),
        (b"\x16\x03\x01\x00\xa5\x01\x00\x00", 400, b"no HTTP/1.1 request"),
        (b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"a" * 20000, 431, b"head is longer"),
        (b"POST / HTTP/1.1\r\ncontent-length: 9999999999\r\n\r\n", 413, b"262144"),
        (b"POST / HTTP/1.1\r\ncontent-length: 99999999999999999999999\r\n\r\n", 400, b"no HTTP"),
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
