"""`sidereal serve-model` in processes of their own, and clients of it, for tests."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from session_servers import PATIENCE_S

import sidereal as sr
from sidereal.serving import fill, messages, to_array


class ModelServer:
    """A server that listens when it is made, and is killed at the end if it has not ended."""

    def __init__(self, *options: Any, rest: str = "0", grpc_port: str = "0") -> None:
        command = [sys.executable, "-m", "sidereal", "serve-model", *map(str, options)]
        command += ["--rest-port", rest, "--grpc-port", grpc_port]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None and self.process.stderr is not None
        self._said: deque[str] = deque(maxlen=100)
        self._reader = threading.Thread(target=self._read, args=(self.process.stderr,), daemon=True)
        self._reader.start()
        self.line = self.process.stdout.readline()
        found = re.search(r"https?://[^/]+:(\d+)/", self.line)
        self.rest_port = int(found[1]) if found else 0
        found = re.search(r"grpc \S+:(\d+)$", self.line)
        self.grpc_port = int(found[1]) if found else 0
        assert self.rest_port or self.grpc_port, f"{self.line}{self.said()}"

    def _read(self, stream: Any) -> None:
        for line in stream:
            self._said.append(line)

    def said(self) -> str:
        """What it has said to standard error."""
        return "".join(self._said)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE_S)
        assert self.process.stdout is not None and self.process.stderr is not None
        self.process.stdout.close()
        self.process.stderr.close()

    def __enter__(self) -> ModelServer:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # ---- REST -----------------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """The status and body of an answer. body: bytes, or what becomes JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.rest_port, timeout=PATIENCE_S)
        try:
            raw = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
            connection.request(method, path, raw)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        status, body = self.ask("GET", path)
        assert status == 200, body
        return json.loads(body)

    def predict(self, path: str, body: Any) -> Any:
        status, answer = self.ask("POST", path, body)
        assert status == 200, answer
        return json.loads(answer)

    def refusal(self, path: str, body: Any, method: str = "POST") -> tuple[int, str]:
        """Status and message of what is refused."""
        status, answer = self.ask(method, path, body)
        assert status >= 400, answer
        return status, json.loads(answer)["error"]


class GrpcClient:
    """Calls of TensorFlow Serving's services."""

    def __init__(self, port: int, credentials: Any = None) -> None:
        address, options = f"localhost:{port}", [("grpc.max_receive_message_length", -1)]
        if credentials is None:
            self.channel = grpc.insecure_channel(address, options)
        else:
            self.channel = grpc.secure_channel(address, credentials, options)

    def __enter__(self) -> GrpcClient:
        return self

    def __exit__(self, *_: Any) -> None:
        self.channel.close()

    def call(self, method: str, request: Any, kind: Any, timeout: float = PATIENCE_S) -> Any:
        run = self.channel.unary_unary(
            f"/tensorflow.serving.{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=kind.FromString,
        )
        return run(request, timeout=timeout, wait_for_ready=True)

    def predict_message(self, request: Any, timeout: float = PATIENCE_S) -> Any:
        return self.call(
            "PredictionService/Predict", request, messages.PredictResponse, timeout
        )

    def predict(
        self, name: str, columns: Mapping[str, np.ndarray], signature: str = "",
        timeout: float = PATIENCE_S,
    ) -> dict[str, np.ndarray]:  # fmt: skip
        answer = self.predict_message(request_of(name, columns, signature), timeout)
        return {key: to_array(key, value) for key, value in answer.outputs.items()}


def request_of(name: str, columns: Mapping[str, np.ndarray], signature: str = "") -> Any:
    request = messages.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = name, signature
    for key, array in columns.items():
        fill(request.inputs[key], array)
    return request


def http_request(body: bytes, *headers: str, model: str = "many") -> bytes:
    """The bytes of a request for predictions."""
    first = f"POST /v1/models/{model}:predict HTTP/1.1"
    head = [first, "host: x", f"content-length: {len(body)}", *headers]
    return "\r\n".join([*head, "", ""]).encode() + body


def refused(client: GrpcClient, request: Any) -> tuple[str, str]:
    """Code and message of a call that is refused."""
    with pytest.raises(grpc.RpcError) as raised:
        client.predict_message(request)
    return raised.value.code().name, raised.value.details()


def save_line(path: Path, a: float, b: float) -> Path:
    """A model that gives a x + b for each x."""

    @sr.function(input_signature=[sr.TensorSpec([None], "float32", "x")])
    def line(x: Any) -> dict[str, Any]:
        return {"y": x * a + b}

    path.parent.mkdir(parents=True, exist_ok=True)
    sr.saved_model.save(line, path)
    return path


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


def many_server(folder: Path) -> ModelServer:
    """Serves them."""
    save_many(folder / "many.srsm")
    return ModelServer(
        "--model", folder / "many.srsm", "--labels", "stable", "--max-request-bytes", "256k"
    )
