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
from model_servers import (
    GrpcClient,
    ModelServer,
    http_request,
    many_server,
    refused,
    request_of,
    save_line,
)
from session_servers import PATIENCE_S, ROOT
from test_out_commands import FILES, Trained, exported, make

from sidereal import _serve_model_command
from sidereal._predictors import open_model
from sidereal._rows import Rows

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


@pytest.fixture(scope="module")
def server(tmp_path_factory: Any) -> Iterator[ModelServer]:
    with many_server(tmp_path_factory.mktemp("many")) as made:
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


def waiting(folder: Path, seconds: int) -> ModelServer:
    """A server that has requests wait for so long, or until there are four rows, and takes no
    more."""
    return ModelServer(
        "--model", save_line(folder / "line.srsm", 2, 1), "--batch-timeout-us", seconds * 1_000_000,
        "--queue-rows", 4, "--max-batch", 4, "--timeout-s", PATIENCE_S, "--drain-s", PATIENCE_S,
    )  # fmt: skip


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


def test_too_many_requests_are_refused_and_the_others_answered(tmp_path: Path) -> None:
    with waiting(tmp_path, 600) as server, GrpcClient(server.grpc_port) as client:
        thread, found = asking(server, [1, 2, 3])
        wait_for_rows(server, 3)
        status, why = server.refusal("/v1/models/line:predict", {"instances": [1, 2]})
        assert status == 503 and "3 rows wait" in why and "--queue-rows" in why
        code, why = refused(client, request_of("line", {"x": np.zeros(2, np.float32)}))
        assert code == "RESOURCE_EXHAUSTED" and "3 rows wait" in why
        last = client.predict("line", {"x": np.ones(1, np.float32)})
        assert last["y"].tolist() == [3]
        thread.join(PATIENCE_S)
    assert found == [200, b'{"predictions":[3.0,5.0,7.0]}']


def test_sigterm_answers_what_was_asked_and_ends(tmp_path: Path) -> None:
    with waiting(tmp_path, 5) as server:
        thread, found = asking(server, [1, 2, 3])
        wait_for_rows(server, 3)
        server.terminate()
        assert server.wait() == 0
        thread.join(PATIENCE_S)
        assert found == [200, b'{"predictions":[3.0,5.0,7.0]}']
        with pytest.raises(OSError):
            server.ask("GET", "/healthz")


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
        connection.sendall(http_request(b'{"instances": [1]}', model="line"))
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
    assert "pip install httptools" in capsys.readouterr().err


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
