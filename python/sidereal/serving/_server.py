"""A server of one model: REST and gRPC on one event loop, from its start to an orderly end."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field

from .. import errors
from ._batching import BatchOptions
from ._grpc import Grpc, GrpcLimits
from ._http import HttpLimits, HttpServer
from ._metrics import Metrics
from ._models import Model, Source
from ._rest import Rest, error_body


@dataclass(frozen=True)
class Tls:
    """Files in PEM form: what the server shows, and the authority that signed what clients show."""

    certificate_file: str
    key_file: str
    ca_file: str

    def context(self) -> ssl.SSLContext:
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.ca_file)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.verify_mode = ssl.CERT_REQUIRED
        made.load_cert_chain(self.certificate_file, self.key_file)
        return made


@dataclass(frozen=True)
class ServerOptions:
    """host: where to listen. rest_port, grpc_port: 0 is any free one, None none. timeout_s: until a
    request is answered. drain_s: what the end may take."""

    name: str
    host: str = "127.0.0.1"
    rest_port: int | None = 8501
    grpc_port: int | None = 8500
    batching: BatchOptions = field(default_factory=BatchOptions)
    labels: tuple[str, ...] = ()
    poll_s: float = 1.0
    timeout_s: float = 30.0
    request_bytes_max: int = 32 << 20
    connections_max: int = 1024
    drain_s: float = 10.0
    tls: Tls | None = None


class ModelServer:
    """Serves a model from start() to close(); both are the event loop's."""

    def __init__(self, source: Source, options: ServerOptions) -> None:
        self._options = options
        self.metrics = Metrics()
        self.model = Model(
            options.name, source, options.batching, self.metrics, options.labels, options.poll_s
        )
        self._is_draining = False
        rest = Rest(self.model, self.metrics, options.timeout_s, self.is_ready)
        self._http = HttpServer(
            rest.handle, error_body,
            HttpLimits(
                body_bytes=options.request_bytes_max, connections=options.connections_max
            ),
            lambda status: self.metrics.answered("refused", str(status), None),
        )  # fmt: skip
        self._grpc: Grpc | None = None
        #: Where it listens, once it does; None where it does not.
        self.rest_port: int | None = None
        self.grpc_port: int | None = None

    def is_ready(self) -> bool:
        """Whether requests are answered."""
        return self.model.current is not None and not self._is_draining

    async def start(self) -> None:
        """Loads the model, then listens. Errors: what keeps it from that."""
        options = self._options
        self.model.on_change = self._changed
        await self.model.start()
        tls = None if options.tls is None else options.tls.context()
        if options.grpc_port is not None:
            self._grpc = Grpc(
                self.model, self.metrics, options.timeout_s,
                GrpcLimits(options.request_bytes_max, options.connections_max),
            )  # fmt: skip
            files = options.tls
            self.grpc_port = await self._grpc.listen(
                f"{_bracketed(options.host)}:{options.grpc_port}",
                None if files is None else (files.certificate_file, files.key_file, files.ca_file),
            )
        if options.rest_port is not None:
            try:
                self.rest_port = await self._http.listen(options.host, options.rest_port, tls)
            except OSError as error:
                raise errors.UnavailableError(
                    f"nothing can listen at {options.host}:{options.rest_port} "
                    f"({error.strerror or error}); give another --rest-port"
                ) from None

    def _changed(self) -> None:
        if self._grpc is not None:
            self._grpc.serve(self.model.current)

    async def close(self) -> None:
        """Refuses what is new, answers what was asked within drain_s, and ends."""
        self._is_draining = True
        drain = self._options.drain_s
        ends = [self._http.close(drain)]
        if self._grpc is not None:
            ends.append(self._grpc.close(drain))
        await asyncio.gather(*ends)
        try:
            await asyncio.wait_for(self.model.close(), drain)
        except asyncio.TimeoutError:
            raise errors.DeadlineExceededError(
                f"a call of the model did not end within {drain:g} s (--drain-s)"
            ) from None


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


__all__ = ["ModelServer", "ServerOptions", "Tls"]
