#!/usr/bin/env python3
"""ONNX Runtime behind a plain Python server, beside which bench/serve.py measures serve-model.

    onnx_server.py rest|grpc MODEL.onnx

REST is one function of uvicorn, on the same parser and event loop as serve-model; gRPC is grpcio's
server with a pool of threads. Both take TensorFlow Serving's requests, and give its answers. It
says its port, then serves until it is killed.
"""

from __future__ import annotations

import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnxruntime
import orjson

#: As grpcio's examples have it.
THREADS = 10


def serve_rest(session: Any) -> None:
    import uvicorn

    kinds = {one.name: np.int64 if "int64" in one.type else np.float32
             for one in session.get_inputs()}  # fmt: skip

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body, is_more = b"", True
        while is_more:
            message = await receive()
            body += message.get("body", b"")
            is_more = message.get("more_body", False)
        rows = orjson.loads(body)["instances"]
        columns = {name: np.array([row[name] for row in rows], kind)
                   for name, kind in kinds.items()}  # fmt: skip
        answer = orjson.dumps(
            {"predictions": session.run(None, columns)[0]}, option=orjson.OPT_SERIALIZE_NUMPY
        )
        headers = [(b"content-type", b"application/json"),
                   (b"content-length", str(len(answer)).encode())]  # fmt: skip
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    listening = socket.create_server(("127.0.0.1", 0))
    # Connections have it from there: a head and a body that go one by one are not to wait.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    print(listening.getsockname()[1], flush=True)
    config = uvicorn.Config(
        app, loop="uvloop", http="httptools", lifespan="off", access_log=False, log_level="error"
    )
    uvicorn.Server(config).run([listening])


def serve_grpc(session: Any) -> None:
    import grpc

    from sidereal.serving import fill, messages, to_array

    names = [one.name for one in session.get_outputs()]

    def predict(request: Any, context: Any) -> Any:
        columns = {name: to_array(name, proto) for name, proto in request.inputs.items()}
        answer = messages.PredictResponse()
        for name, array in zip(names, session.run(None, columns)):
            fill(answer.outputs[name], array)
        return answer

    handler = grpc.unary_unary_rpc_method_handler(
        predict, messages.PredictRequest.FromString, lambda answer: answer.SerializeToString()
    )
    server = grpc.server(ThreadPoolExecutor(THREADS))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(
            "tensorflow.serving.PredictionService", {"Predict": handler}
        )]
    )  # fmt: skip
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    server.wait_for_termination()


def main() -> None:
    kind, path = sys.argv[1:]
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    {"rest": serve_rest, "grpc": serve_grpc}[kind](session)


if __name__ == "__main__":
    main()
