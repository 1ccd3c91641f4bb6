"""TensorFlow Serving's gRPC services, PredictionService and ModelService, and grpc.health.v1.

Predictions are answered by the native front, without Python. What is here says what it serves, and
answers the rest: metadata, statuses, and why there is no such model, version or signature.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from .. import _native, errors
from ._metrics import Metrics
from ._models import STATES, Model, Version
from ._tensors import fill_info, messages

PREDICTION_SERVICE = "tensorflow.serving.PredictionService"
MODEL_SERVICE = "tensorflow.serving.ModelService"
_INTERNAL = 13


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
        self._loop = asyncio.get_running_loop()
        self._front: _native.GrpcFront | None = None
        self._methods: dict[str, tuple[Callable[[Any], Any], Any]] = {
            "Predict": (self._predict, messages.PredictRequest),
            "GetModelMetadata": (self._metadata, messages.GetModelMetadataRequest),
            "GetModelStatus": (self._statuses, messages.GetModelStatusRequest),
        }

    async def listen(self, address: str, files: tuple[str, str, str] | None = None) -> int:
        """Listens, and gives the port. files: certificate, key and authority; without them every
        client that can connect may ask. UnavailableError where that is not possible."""
        certificate, key, authority = files or ("", "", "")

        def start() -> _native.GrpcFront:
            return _native.GrpcFront.start(
                address, certificate_file=certificate, key_file=key, ca_file=authority,
                insecure=files is None, message_bytes=self._limits.message_bytes,
                calls=self._limits.calls, timeout_s=self._timeout_s, others=self._came,
            )  # fmt: skip

        try:
            self._front = front = await self._loop.run_in_executor(None, start)
        except errors.AlreadyExistsError as error:
            raise errors.UnavailableError(
                f"nothing can listen at {address} ({error.message}); is something there already?"
            ) from None
        self._metrics.front = front
        self.serve(self._model.current)
        self.tell_health(True)
        return front.port

    def serve(self, version: Version | None) -> None:
        """From now on predictions are those of a version."""
        if self._front is None:
            return
        if version is None:
            self._front.serve_nothing()
            return
        signatures = []
        for name, signature in version.signatures.items():
            assert signature.batcher is not None  # It is served.
            inputs = [
                (key, kind, [-1 if extent is None else extent for extent in shape])
                for key, (kind, shape) in signature.inputs.items()
            ]
            signatures.append((name, inputs, list(signature.outputs), signature.batcher.native))
        self._front.serve(
            self._model.name, version.number, list(self._model.labels), signatures
        )

    def tell_health(self, is_ready: bool) -> None:
        """What grpc.health.v1 says of this server and its services."""
        if self._front is not None:
            for service in ("", PREDICTION_SERVICE, MODEL_SERVICE, self._model.name):
                self._front.tell_health(service, is_ready)

    async def close(self, drain_s: float) -> None:
        """Takes no more calls, and ends when those that there are were answered."""
        if self._front is not None:
            self.tell_health(False)
            await self._loop.run_in_executor(None, self._front.stop, drain_s)

    # ---- methods --------------------------------------------------------------------------------

    def _came(self, call: _native.OtherCall) -> None:
        """A call that is not the front's, on a thread of it."""
        self._loop.call_soon_threadsafe(self._answer, call)

    def _answer(self, call: _native.OtherCall) -> None:
        handler, kind = self._methods[call.method]
        try:
            call.reply(handler(kind.FromString(call.request)).SerializeToString())
        except errors.Error as error:
            call.refuse(error.code, error.message)
        except DecodeError as error:
            why = f"the request is no message of {call.method}: {error}"
            call.refuse(errors.InvalidArgumentError.code, why)
        except Exception as error:  # noqa: BLE001 - whoever asked is told.
            call.refuse(_INTERNAL, f"{type(error).__name__}: {error}")

    def _find(self, spec: Any) -> Version:
        version, label = _choice(spec)
        return self._model.find(spec.name or self._model.name, version, label)

    def _predict(self, request: Any) -> Any:
        """Says why the front does not know what is asked for."""
        self._find(request.model_spec).signature(request.model_spec.signature_name)
        raise errors.UnavailableError(f"the version of '{self._model.name}' changes; ask again")

    def _fill_spec(self, spec: Any, version: Version, signature: str) -> None:
        spec.name = self._model.name
        spec.version.value = version.number
        spec.signature_name = signature

    def _metadata(self, request: Any) -> Any:
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

    def _statuses(self, request: Any) -> Any:
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
