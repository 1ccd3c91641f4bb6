#!/usr/bin/env python3
"""How long predictions of `sidereal serve-model` take, over REST and gRPC.

A DeepFM of 26 fields and 13 numbers is exported twice: as a saved model, which serve-model serves,
and as ONNX, which ONNX Runtime serves behind a plain Python server (bench/peers/onnx_server.py, of
`./dev setup --peers`). Clients in a process of their own send TensorFlow Serving's requests, each
the next one when the last is answered. The sides take turns; answers are compared first.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from common import (
    ROOT,
    Child,
    Quiet,
    Side,
    add_report_arguments,
    make_report,
    table,
    write_figures,
)

import sidereal as sr  # isort: skip

PEER = ROOT / "bench/peers/onnx_server.py"
FIELDS, NUMBERS = 26, 13
#: Different requests that clients send in turn.
REQUESTS = 64
CLIENTS = (1, 8, 32)
ROWS = (1, 32)
PATIENCE_S = 60


# ---- the model -----------------------------------------------------------------------------------


def export_model(folder: Path, rows: int, hidden: list[int]) -> None:
    """The model with random values, as m.srsm and m.onnx."""
    schema = sr.data.Schema(fields=FIELDS, rows=rows, dense_width=NUMBERS)
    model = sr.models.build("deepfm", schema, embedding_dim=16, hidden=hidden, seed=1)
    model.describe(folder)
    description = sr.models.ModelDescription.load(folder)
    random = np.random.default_rng(1)
    values = {
        name: (0.05 * random.standard_normal(shape)).astype(np.float32)
        for name, (_, shape) in description.variables.items()
    }
    from sidereal import _exporting

    for kind, name in (("saved_model", "m.srsm"), ("onnx", "m.onnx")):
        _exporting.export(
            description, values.__getitem__, folder / name, kind, inputs="ids", tables=None,
            external_data_bytes=1 << 30,
        )  # fmt: skip


def batches(rows: int, ids: int) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(rows)
    return [
        {
            "ids": random.integers(0, ids, (rows, FIELDS)),
            "dense": random.standard_normal((rows, NUMBERS)).astype(np.float32).round(6),
        }
        for _ in range(REQUESTS)
    ]


# ---- clients -------------------------------------------------------------------------------------


def http_request(columns: dict[str, np.ndarray]) -> bytes:
    names = list(columns)
    lists = [[[round(v, 6) for v in row] if name == "dense" else row for row in array.tolist()]
             for name, array in columns.items()]  # fmt: skip
    body = json.dumps({"instances": [dict(zip(names, row)) for row in zip(*lists)]}).encode()
    head = f"POST /v1/models/m:predict HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


class HttpClients:
    """Connections of one thread, on each of which a request is under way."""

    def __init__(self, port: int, requests: list[bytes]) -> None:
        self._port, self._requests = port, requests

    def _answer(self, data: bytes) -> bytes | None:
        head, end, body = data.partition(b"\r\n\r\n")
        if not end:
            return None
        length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
        if length is None or not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"a server said {data[:200]!r}")
        return body if len(body) == int(length[1]) else None

    def first(self) -> np.ndarray:
        """The answer to the first request."""
        with socket.create_connection(("127.0.0.1", self._port), PATIENCE_S) as connection:
            connection.sendall(self._requests[0])
            data = b""
            while (body := self._answer(data)) is None:
                data += connection.recv(1 << 16)
            return np.reshape(json.loads(body)["predictions"], -1)

    def run(self, clients: int, seconds: float) -> list[float]:
        """How long each request of so many seconds took."""
        times: list[float] = []
        with selectors.DefaultSelector() as selector:
            began, got = {}, {}
            number = 0
            for _ in range(clients):
                connection = socket.create_connection(("127.0.0.1", self._port), PATIENCE_S)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(connection, selectors.EVENT_READ)
                began[connection], got[connection] = time.perf_counter(), b""
                connection.sendall(self._requests[number % REQUESTS])
                number += 1
            end = time.perf_counter() + seconds
            while (now := time.perf_counter()) < end:
                if not (ready := selector.select(PATIENCE_S)):
                    raise RuntimeError("a server does not answer")
                for key, _ in ready:
                    connection: Any = key.fileobj
                    got[connection] += connection.recv(1 << 20)
                    if self._answer(got[connection]) is None:
                        continue
                    now = time.perf_counter()
                    times.append(now - began[connection])
                    began[connection], got[connection] = now, b""
                    connection.sendall(self._requests[number % REQUESTS])
                    number += 1
            for connection in began:
                connection.close()
        return times


class GrpcClients:
    """Calls of one channel for each client; the next one begins when the last has ended."""

    def __init__(self, port: int, requests: list[bytes]) -> None:
        self._port, self._requests = port, requests

    def _method(self) -> tuple[Any, Any]:
        import grpc

        options = [("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.insecure_channel(f"127.0.0.1:{self._port}", options)
        return channel, channel.unary_unary("/tensorflow.serving.PredictionService/Predict")

    def first(self) -> np.ndarray:
        from sidereal.serving import messages, to_array

        channel, method = self._method()
        answer = messages.PredictResponse.FromString(
            method(self._requests[0], timeout=PATIENCE_S, wait_for_ready=True)
        )
        channel.close()
        (output,) = answer.outputs.values()
        return to_array("output", output).reshape(-1)

    def run(self, clients: int, seconds: float) -> list[float]:
        times: list[float] = []
        failures: list[Exception] = []
        methods = [self._method() for _ in range(clients)]
        barrier = threading.Barrier(clients)

        def one(place: int, method: Any) -> None:
            try:
                method(self._requests[place], timeout=PATIENCE_S, wait_for_ready=True)
                barrier.wait(PATIENCE_S)
                end, number = time.perf_counter() + seconds, place
                while (began := time.perf_counter()) < end:
                    method(self._requests[number % REQUESTS], timeout=PATIENCE_S)
                    times.append(time.perf_counter() - began)
                    number += 1
            except Exception as error:  # noqa: BLE001 - raised where they are joined.
                failures.append(error)
                barrier.abort()

        threads = [
            threading.Thread(target=one, args=(place, method))
            for place, (_, method) in enumerate(methods)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for channel, _ in methods:
            channel.close()
        if failures:
            raise failures[0]
        return times


def grpc_request(columns: dict[str, np.ndarray]) -> bytes:
    from sidereal.serving import fill, messages

    request = messages.PredictRequest()
    request.model_spec.name = "m"
    for name, array in columns.items():
        fill(request.inputs[name], array)
    return bytes(request.SerializeToString())


# ---- sides ---------------------------------------------------------------------------------------


class Served(Side):
    """A server in a process of its own, and clients of this one."""

    def __init__(self, name: str, kind: str, command: list[str], ids: int) -> None:
        super().__init__(name)
        self.kind = kind
        child = Child([sys.executable, *command], stderr=subprocess.DEVNULL)
        self.processes.append(child)
        said = child.read_line()
        found = re.search(r"(\d+)(/v1/\S*)?$", said.strip())
        if found is None:
            self.close()
            raise RuntimeError(f"{name} over {kind} did not start: {said!r}")
        make, clients = {
            "rest": (http_request, HttpClients), "grpc": (grpc_request, GrpcClients)
        }[kind]  # fmt: skip
        self.clients = {
            rows: clients(int(found[1]), [make(columns) for columns in batches(rows, ids)])
            for rows in ROWS
        }

    def window(self, kind: Any, seconds: float) -> dict[str, float]:
        rows, clients = kind
        times = self.clients[rows].run(clients, seconds)
        if not times:
            raise RuntimeError(f"{self.name} answered nothing within {seconds} s")
        p50, p99 = np.percentile(times, (50, 99))
        return {
            "p50_ms": 1e3 * p50, "p99_ms": 1e3 * p99, "rows_per_s": rows * len(times) / seconds,
        }  # fmt: skip


def sides(arguments: argparse.Namespace, folder: Path, kind: str) -> list[Served]:
    """Sidereal, and ONNX Runtime where it is installed."""
    ports = {"rest": ("0", "none"), "grpc": ("none", "0")}[kind]
    command = ["-m", "sidereal", "serve-model", "--model", str(folder / "m.srsm"), "--name", "m"]
    command += ["--rest-port", ports[0], "--grpc-port", ports[1]]
    made = [Served("serve-model", kind, command, arguments.rows)]
    if all(importlib.util.find_spec(name) for name in ("onnxruntime", "uvicorn")):
        command = [str(PEER), kind, str(folder / "m.onnx")]
        made.append(Served("ONNX Runtime", kind, command, arguments.rows))
    else:
        print("onnxruntime or uvicorn is not installed: ./dev setup --peers", file=sys.stderr)
    return made


def measure_kind(
    arguments: argparse.Namespace, folder: Path, kind: str, quiet: Quiet
) -> list[dict[str, Any]]:
    both = sides(arguments, folder, kind)
    try:
        for rows in ROWS:
            first = [side.clients[rows].first() for side in both]
            for other in first[1:]:
                np.testing.assert_allclose(other, first[0], atol=1e-5)
        work = [(rows, clients) for rows in ROWS for clients in arguments.clients]
        for one in work:
            for side in both:  # Warm.
                side.window(one, min(0.3, arguments.seconds))
            for _ in range(arguments.rounds):
                for side in both:
                    side.measure(one, arguments.seconds, quiet)
    finally:
        for side in both:
            side.close()
    out = []
    for rows, clients in work:
        for side in both:
            windows = side.found[rows, clients]
            out.append(
                {
                    "side": side.name, "protocol": kind, "rows": rows, "clients": clients,
                    **{key: statistics.median(window[key] for window in windows)
                       for key in windows[0]},
                }
            )  # fmt: skip
    return out


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    conditions = (
        f"A DeepFM of {FIELDS} fields, {arguments.rows:,} rows of 16 and {NUMBERS} numbers, hidden"
        f" {'-'.join(map(str, arguments.hidden))}. Medians of {arguments.rounds} windows of"
        f" {arguments.seconds:g} s, taken in turns; clients and one server at a time share the"
        " processors. Each client asks again when it was answered."
    )
    quiet = Quiet(arguments.noisy_max)
    folder = Path(tempfile.mkdtemp(prefix="sidereal-serve-"))
    try:
        export_model(folder, arguments.rows, arguments.hidden)
        rows = [
            row for kind in arguments.only for row in measure_kind(arguments, folder, kind, quiet)
        ]
    finally:
        shutil.rmtree(folder)
    figures = {"rows": rows, "conditions": conditions, "quiet": quiet.summary()}
    print(report(figures))
    print(figures["quiet"])
    return figures


def report(figures: dict[str, Any]) -> str:
    rows = figures["rows"]

    def p99_of_peer(row: dict[str, Any]) -> str:
        key = ("protocol", "rows", "clients")
        for other in rows:
            if other["side"] != row["side"] and all(other[k] == row[k] for k in key):
                return f"{row['p99_ms'] / other['p99_ms']:.2f}"
        return ""

    return table(
        ("protocol", "rows", "clients", "server", "p50 ms", "p99 ms", "rows/s",
         "p99, of the peer's (wanted: 0.50)"),
        [
            (row["protocol"], str(row["rows"]), str(row["clients"]), row["side"],
             f"{row['p50_ms']:.2f}", f"{row['p99_ms']:.2f}", f"{row['rows_per_s']:,.0f}",
             p99_of_peer(row) if row["side"] == "serve-model" else "")
            for row in rows
        ],
    )  # fmt: skip


def write(figures: dict[str, Any], document: Path) -> None:
    text = textwrap.fill(f"{figures['conditions']} {figures['quiet']}.", 100)
    write_figures(document, "serve", f"{text}\n\n{report(figures)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=("rest", "grpc"), default=["rest", "grpc"])
    parser.add_argument("--clients", nargs="+", type=int, default=list(CLIENTS))
    parser.add_argument("--rows", type=int, default=100_000, help="of the table of embeddings")
    parser.add_argument("--hidden", nargs="+", type=int, default=[400, 400, 400])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a window")
    parser.add_argument(
        "--noisy-max", type=int, default=40, help="disturbed windows measured again at most"
    )
    parser.add_argument("--quick", action="store_true", help="one short window: does it work?")
    add_report_arguments(parser)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.seconds, arguments.noisy_max = 1, 0.3, 0
        arguments.rows, arguments.hidden, arguments.clients = 1000, [8], [1, 4]
    make_report(arguments, measure, write)


if __name__ == "__main__":
    main()
