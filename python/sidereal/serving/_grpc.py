"""TensorFlow Serving's gRPC services, PredictionService and ModelService, and grpc.health.v1."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from .. import errors
from . import _json
from ._metrics import Metrics
from ._models import STATES, Model, Signature, Version
from ._tensors import fill, fill_info, kind_of, messages, to_array

PREDICTION_SERVICE = "tensorflow.serving.PredictionService"
MODEL_SERVICE = "tensorflow.serving.ModelService"
_CODES = {code.value[0]: code for code in grpc.StatusCode}

Handler = Callable[[Any, Any], Awaitable[Any]]


@dataclass(frozen=True)
class GrpcLimits:
    """message_bytes: of a request. calls: that are answered at a time."""

    message_bytes: int = 32 << 20
    calls: int = 1024


class Grpc:
    """The gRPC services of one model. timeout_s: until an answer is there, where the client gives
    no shorter deadline."""

    def __init__(
        self, model: Model, metrics: Metrics, timeout_s: float, limits: GrpcLimits
    ) -> None:
        self._model, self._metrics = model, metrics
        self._timeout_s, self._limits = timeout_s, limits
        self.health = health.aio.HealthServicer()
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", limits.message_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),
            ],
            maximum_concurrent_rpcs=limits.calls,
        )
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self._server)
        self._server.add_generic_rpc_handlers(
            (
                self._service(
                    PREDICTION_SERVICE,
                    Predict=(self._predict, messages.PredictRequest),
                    GetModelMetadata=(self._metadata, messages.GetModelMetadataRequest),
                ),
                self._service(
                    MODEL_SERVICE,
                    GetModelStatus=(self._statuses, messages.GetModelStatusRequest),
                ),
            )
        )

    def _service(self, name: str, **methods: tuple[Handler, Any]) -> Any:
        return grpc.method_handlers_generic_handler(
            name,
            {
                method: grpc.unary_unary_rpc_method_handler(
                    self._told(method, handler),
                    request_deserializer=kind.FromString,
                    response_serializer=lambda answer: answer.SerializeToString(),
                )
                for method, (handler, kind) in methods.items()
            },
        )

    def _told(self, method: str, handler: Handler) -> Handler:
        """A handler whose errors are the call's status, and which is counted."""

        async def run(request: Any, context: Any) -> Any:
            began = time.perf_counter()
            code, message = grpc.StatusCode.OK, ""
            try:
                return await handler(request, context)
            except errors.Error as error:
                code, message = _CODES.get(error.code, grpc.StatusCode.UNKNOWN), error.message
            except asyncio.CancelledError:
                code = grpc.StatusCode.CANCELLED
                raise
            except Exception as error:  # noqa: BLE001 - whoever asked is told.
                code = grpc.StatusCode.INTERNAL
                message = f"{type(error).__name__}: {error}"
            finally:
                self._metrics.answered("grpc", method, code.name, time.perf_counter() - began)
            return await context.abort(code, message)

        return run

    async def listen(self, address: str, credentials: Any = None) -> int:
        """Listens, and gives the port. UnavailableError where that is not possible."""
        try:
            if credentials is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise errors.UnavailableError(
                f"nothing can listen at {address} ({error}); is something there already?"
            ) from None
        await self._server.start()
        return int(port)

    async def tell_health(self, is_ready: bool) -> None:
        """What grpc.health.v1 says of this server and its services."""
        status = health_pb2.HealthCheckResponse
        said = status.SERVING if is_ready else status.NOT_SERVING
        for service in ("", PREDICTION_SERVICE, MODEL_SERVICE, self._model.name):
            await self.health.set(service, said)

    async def close(self, drain_s: float) -> None:
        """Takes no more calls, and ends when those that there are were answered."""
        await self.health.enter_graceful_shutdown()
        await self._server.stop(drain_s)

    # ---- methods --------------------------------------------------------------------------------

    def _find(self, spec: Any) -> Version:
        version, label = _choice(spec)
        return self._model.find(spec.name or self._model.name, version, label)

    async def _predict(self, request: Any, context: Any) -> Any:
        version = self._find(request.model_spec)
        signature = version.signature(request.model_spec.signature_name)
        columns = self._columns(signature, request.inputs)
        wanted = list(request.output_filter)
        for name in wanted:
            if name not in signature.outputs:
                raise errors.InvalidArgumentError(
                    f"signature '{signature.name}' has no output '{name}' but "
                    f"{', '.join(signature.outputs)}; see output_filter"
                )
        left = context.time_remaining()
        timeout = self._timeout_s if left is None else min(left, self._timeout_s)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(outputs: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(outputs)

        waiting = signature.submit(columns, time.monotonic() + timeout, done)
        try:
            outputs = await future
        except asyncio.CancelledError:
            waiting.cancel()
            raise
        answer = messages.PredictResponse()
        for name, array in outputs.items():
            if not wanted or name in wanted:
                fill(answer.outputs[name], array)
        self._fill_spec(answer.model_spec, version, signature.name)
        return answer

    def _columns(self, signature: Signature, given: Any) -> dict[str, Any]:
        if given.keys() != signature.inputs.keys():
            raise errors.InvalidArgumentError(
                f"signature '{signature.name}' takes {', '.join(signature.inputs)}; given are "
                f"{', '.join(given) or 'none'}"
            )
        columns = {}
        for name, (kind, shape) in signature.inputs.items():
            array = to_array(name, given[name], self._limits.message_bytes)
            found = kind_of(array.dtype)
            if found != kind:
                raise errors.InvalidArgumentError(f"'{name}' takes {kind}, and not {found}")
            _json.check_shape(name, array.shape, shape)
            columns[name] = array
        return columns

    def _fill_spec(self, spec: Any, version: Version, signature: str) -> None:
        spec.name = self._model.name
        spec.version.value = version.number
        spec.signature_name = signature

    async def _metadata(self, request: Any, context: Any) -> Any:
        version = self._find(request.model_spec)
        for field in request.metadata_field:
            if field != "signature_def":
                raise errors.InvalidArgumentError(
                    f"there is no metadata '{field}'; metadata_field is signature_def"
                )
        if not request.metadata_field:
            raise errors.InvalidArgumentError("metadata_field is empty; it is signature_def")
        known = messages.SignatureDefMap()
        for name, signature in version.signatures.items():
            made = known.signature_def[name]
            made.method_name = signature.method_name
            for key, (kind, shape) in signature.inputs.items():
                fill_info(made.inputs[key], key, kind, shape)
            for key, (kind, out_shape) in signature.outputs.items():
                fill_info(made.outputs[key], key, kind, out_shape)
        answer = messages.GetModelMetadataResponse()
        answer.metadata["signature_def"].Pack(known)
        self._fill_spec(answer.model_spec, version, "")
        return answer

    async def _statuses(self, request: Any, context: Any) -> Any:
        spec = request.model_spec
        version, label = _choice(spec)
        name = spec.name or self._model.name
        if name != self._model.name or label is not None:
            version = self._model.find(name, version, label).number
        answer = messages.GetModelStatusResponse()
        for one in self._model.statuses(version):
            status = answer.model_version_status.add(version=one.number, state=STATES[one.state])
            status.status.error_code = 0 if one.error is None else one.error.code
            status.status.error_message = "" if one.error is None else one.error.message
        return answer


def _choice(spec: Any) -> tuple[int | None, str | None]:
    """Version and label that a ModelSpec names."""
    chosen = spec.WhichOneof("choice")
    return (
        spec.version.value if chosen == "version" else None,
        spec.version_label if chosen == "version_label" else None,
    )


__all__ = ["Grpc", "GrpcLimits"]
