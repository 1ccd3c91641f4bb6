"""`sidereal serve-model`: predictions over HTTP and gRPC, in TensorFlow Serving's forms."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ipaddress
import logging
import math
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from . import errors
from ._config_file import add_config_option, parse
from ._export_command import bytes_of
from ._predict_command import failed, names, positive
from ._usage import Parser


def _port(text: str) -> int | None:
    """A port: a number, or "none"."""
    if text == "none":
        return None
    number = int(text)
    if not 0 <= number < 65536:
        raise argparse.ArgumentTypeError(f"{text} is no port, 0 to 65535 or none")
    return number


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no time in seconds above 0")
    return value


def parser() -> argparse.ArgumentParser:
    out = Parser(
        prog="sidereal serve-model",
        description="Answers requests for predictions in the forms of TensorFlow Serving.",
        epilog="A folder with versions (1/model.srsm, 2/model.srsm) is followed: the greatest "
        "number is served, and takes the place of the one before while requests go on.",
    )
    out.add_argument(
        "--model", required=True, metavar="M",
        help="a folder of versions; what `sidereal export` wrote; a .keras file; or model.json or "
        "the folder of checkpoints that it is in",
    )  # fmt: skip
    out.add_argument(
        "--checkpoint", metavar="PREFIX|DIR",
        help="what model.json or a .keras file takes its values from; of a folder the newest",
    )  # fmt: skip
    add_config_option(out)
    out.add_argument(
        "--follow", action="store_true", help="serve each newer checkpoint of the folder"
    )
    out.add_argument("--name", metavar="NAME", help="as requests call it (the model's file name)")
    out.add_argument("--labels", type=names, default=[], metavar="NAMES",
                     help="labels of the version that is served: a,b")  # fmt: skip
    out.add_argument("--host", default="127.0.0.1", help="address to listen at (127.0.0.1)")
    out.add_argument("--rest-port", type=_port, default=8501, metavar="N",
                     help="0: any free one; none: no REST (8501)")  # fmt: skip
    out.add_argument("--grpc-port", type=_port, default=8500, metavar="N",
                     help="0: any free one; none: no gRPC (8500)")  # fmt: skip
    out.add_argument("--max-batch", type=positive, default=1024, metavar="ROWS",
                     help="of one call of the model; 1: each request alone (1024)")  # fmt: skip
    out.add_argument("--batch-timeout-us", type=int, default=0, metavar="US",
                     help="how long a request waits for others (0: not at all)")  # fmt: skip
    out.add_argument("--queue-rows", type=positive, default=8192, metavar="ROWS",
                     help="that may wait; more requests are refused (8192)")  # fmt: skip
    out.add_argument("--timeout-s", type=_seconds, default=30.0, metavar="S",
                     help="for the answer to a request (30)")  # fmt: skip
    out.add_argument("--poll-s", type=_seconds, default=1.0, metavar="S",
                     help="between looks for a newer version (1)")  # fmt: skip
    out.add_argument("--drain-s", type=_seconds, default=10.0, metavar="S",
                     help="for what was asked before SIGTERM (10)")  # fmt: skip
    out.add_argument("--max-request-bytes", type=bytes_of, default=32 << 20, metavar="BYTES",
                     help="of one request (32M)")  # fmt: skip
    out.add_argument("--max-connections", type=positive, default=1024, metavar="N",
                     help="of REST, and calls of gRPC at a time (1024)")  # fmt: skip
    for name, what in (
        ("certificate", "what the server shows, PEM"),
        ("key", "its private key"),
        ("ca", "the authority that signed what clients show"),
    ):
        out.add_argument(f"--{name}-file", default="", metavar="FILE", help=what)
    out.add_argument(
        "--insecure", action="store_true", help="listen off loopback without certificates"
    )
    return out


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _tls(options: argparse.Namespace) -> tuple[str, str, str] | None:
    """The files of certificates, of which there are all or none."""
    files = (options.certificate_file, options.key_file, options.ca_file)
    if any(files) and not all(files):
        raise errors.InvalidArgumentError(
            "give --certificate-file, --key-file and --ca-file, or none of them"
        )
    for file in filter(None, files):
        if not os.path.isfile(file):
            raise errors.NotFoundError(f"there is no file {file}")
    if any(files):
        return files
    if not (options.insecure or _is_loopback(options.host)):
        raise errors.InvalidArgumentError(
            f"{options.host} is not on loopback, where everybody could ask: give "
            "--certificate-file, --key-file and --ca-file, or --insecure"
        )
    return None


def _name_of(path: str) -> str:
    """How a model is called that is given no name."""
    found = os.path.basename(os.path.abspath(path))
    if found == "model.json":
        found = os.path.basename(os.path.dirname(os.path.abspath(path)))
    return os.path.splitext(found)[0] or "model"


def _modules() -> tuple[Any, Any, Any]:
    """What serves, and its event loop; UnavailableError without the packages they need."""
    try:
        # ruff: noqa: PLC0415 - nothing else needs the packages.
        import uvloop

        from .serving import _models, _server
    except ImportError as error:
        raise errors.UnavailableError(
            "serve-model needs packages that are not installed: pip install httptools orjson "
            f"prometheus-client protobuf uvloop ({error})"
        ) from None
    return _server, _models, uvloop


@contextlib.contextmanager
def _signals() -> Iterator[asyncio.Event]:
    """An event that Ctrl-C and SIGTERM set. They are given back: a closed loop would keep them."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    numbers = signal.SIGTERM, signal.SIGINT
    try:
        for number in numbers:
            loop.add_signal_handler(number, ended.set)
        yield ended
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def _serve(options: argparse.Namespace, server_module: Any, models: Any) -> None:
    tls = _tls(options)
    name = options.name or _name_of(options.model)
    server = server_module.ModelServer(
        models.source_of(options.model, options.checkpoint, options.follow),
        server_module.ServerOptions(
            name=name, host=options.host, rest_port=options.rest_port,
            grpc_port=options.grpc_port,
            batching=models.BatchOptions(
                options.max_batch, options.batch_timeout_us / 1e6, options.queue_rows
            ),
            labels=tuple(options.labels), poll_s=options.poll_s, timeout_s=options.timeout_s,
            request_bytes_max=options.max_request_bytes, connections_max=options.max_connections,
            drain_s=options.drain_s,
            tls=None if tls is None else server_module.Tls(*tls),
        ),
    )  # fmt: skip
    with _signals() as ended:
        await server.start()
        places = []
        if server.rest_port is not None:
            scheme = "http" if tls is None else "https"
            places.append(f"{scheme}://{options.host}:{server.rest_port}/v1/models/{name}")
        if server.grpc_port is not None:
            places.append(f"grpc {options.host}:{server.grpc_port}")
        print(f"version {server.model.current.number} of {name}: {', '.join(places)}", flush=True)
        await ended.wait()
        await server.close()


def main(arguments: Sequence[str]) -> int:
    """`sidereal serve-model ARGUMENTS`: the exit code."""
    options = parse(parser(), arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    try:
        if options.rest_port is None and options.grpc_port is None:
            raise errors.InvalidArgumentError("--rest-port and --grpc-port are none; give a port")
        server, models, uvloop = _modules()
        uvloop.run(_serve(options, server, models))
    except (errors.Error, OSError, ValueError) as error:
        return failed("serve-model", error)
    return 0
