"""TensorFlow Serving's REST form: status, metadata, predictions, classes and regressions."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from .. import errors
from . import _json
from ._http import JSON, Request
from ._metrics import Metrics
from ._models import Model, Signature, Version
from ._tensors import TYPE_NAMES

_PATH = re.compile(
    r"/v1/models/(?P<name>[^/:]+)(?:/versions/(?P<version>[0-9]+))?(?:/labels/(?P<label>[^/:]+))?"
    r"(?P<what>/metadata|:[a-z]+)?"
)
#: Versions are int64.
_DIGITS_MAX = 18
_STATUS = {
    3: 400,  # InvalidArgument
    4: 504,  # DeadlineExceeded
    5: 404,  # NotFound
    8: 503,  # ResourceExhausted
    9: 400,  # FailedPrecondition
    11: 400,  # OutOfRange
    12: 501,  # Unimplemented
    14: 503,  # Unavailable
}
_TEXT = "text/plain; version=0.0.4; charset=utf-8"

Answer = Callable[[dict[str, npt.NDArray[Any]]], bytes]
_CODE_NAMES = {
    3: "INVALID_ARGUMENT", 5: "NOT_FOUND", 8: "RESOURCE_EXHAUSTED", 9: "FAILED_PRECONDITION",
    14: "UNAVAILABLE", 15: "DATA_LOSS",
}  # fmt: skip


def error_body(message: str) -> bytes:
    """What an answer says that refuses something."""
    return _json.to_json({"error": message})


def _status_of(error: BaseException) -> int:
    if isinstance(error, errors.Error):
        return _STATUS.get(error.code, 500)
    return 500


class _Route:
    """What a path means."""

    __slots__ = ("label", "name", "version", "what")

    def __init__(self, found: re.Match[str]) -> None:
        self.name = unquote(found["name"])
        version = found["version"]
        if version is not None and len(version) > _DIGITS_MAX:
            raise errors.NotFoundError(f"there is no version {version[:_DIGITS_MAX]}...")
        self.version = None if version is None else int(version)
        self.label = None if found["label"] is None else unquote(found["label"])
        self.what = found["what"] or ""


class Rest:
    """Answers the requests of an HttpServer for one model. timeout_s: until an answer is there."""

    def __init__(
        self, model: Model, metrics: Metrics, timeout_s: float, is_ready: Callable[[], bool]
    ) -> None:
        self._model, self._metrics = model, metrics
        self._timeout_s, self._is_ready = timeout_s, is_ready
        self._routes: dict[str, _Route] = {}

    def handle(self, request: Request) -> None:
        """Answers a request, now or when the model has."""
        began = time.perf_counter()
        what = "other"
        try:
            path = request.path.partition("?")[0]
            if path == "/metrics":
                self._metrics.waiting.set(self._model.waiting_rows)
                return self._reply(request, "metrics", 200, self._metrics.text(), began, _TEXT)
            if path == "/healthz":
                status = 200 if self._is_ready() else 503
                body = b"ok\n" if status == 200 else b"not ready\n"
                return self._reply(request, "healthz", status, body, began, "text/plain")
            route = self._route(path)
            what = route.what[1:] or "status"
            if route.what.startswith(":"):
                return self._compute(request, route, what, began)
            if request.method != "GET":
                return self._refuse_method(request, what, "GET", began)
            made = self._metadata(route) if what == "metadata" else self._statuses(route)
            return self._reply(request, what, 200, _json.to_json(made), began)
        except Exception as error:  # noqa: BLE001 - whoever asked is told.
            return self._fail(request, what, error, began)

    def _route(self, path: str) -> _Route:
        known = self._routes.get(path)
        if known is None:
            found = _PATH.fullmatch(path)
            if found is None or found["what"] not in (
                None, "/metadata", ":predict", ":classify", ":regress"
            ):  # fmt: skip
                raise errors.NotFoundError(
                    f"there is nothing at {path[:200]}; see /v1/models/{self._model.name}"
                )
            known = _Route(found)
            if len(self._routes) < 64:
                self._routes[path] = known
        return known

    def _reply(
        self, request: Request, what: str, status: int, body: bytes, began: float,
        content_type: str = JSON,
    ) -> None:  # fmt: skip
        self._metrics.answered(what, str(status), time.perf_counter() - began)
        request.reply(status, body, content_type)

    def _fail(self, request: Request, what: str, error: BaseException, began: float) -> None:
        said = getattr(error, "message", None) or f"{type(error).__name__}: {error}"
        self._reply(request, what, _status_of(error), error_body(said), began)

    def _refuse_method(self, request: Request, what: str, wanted: str, began: float) -> None:
        why = f"{request.method} is no method of what is here; {wanted} is"
        self._reply(request, what, 405, error_body(why), began)

    # ---- what is known of the model -------------------------------------------------------------

    def _statuses(self, route: _Route) -> dict[str, Any]:
        version = route.version
        if route.name != self._model.name or route.label is not None:
            version = self._model.find(route.name, version, route.label).number
        return {
            "model_version_status": [
                {"version": str(one.number), "state": one.state, "status": _status_json(one)}
                for one in self._model.statuses(version)
            ]
        }

    def _metadata(self, route: _Route) -> dict[str, Any]:
        version = self._model.find(route.name, route.version, route.label)
        signatures = {
            name: {
                "inputs": {key: _info(key, *one) for key, one in signature.inputs.items()},
                "outputs": {key: _info(key, *one) for key, one in signature.outputs.items()},
                "method_name": signature.method_name,
            }
            for name, signature in version.signatures.items()
        }
        return {
            "model_spec": {
                "name": route.name, "signature_name": "", "version": str(version.number),
            },
            "metadata": {"signature_def": {"signature_def": signatures}},
        }  # fmt: skip

    # ---- what it computes -----------------------------------------------------------------------

    def _compute(self, request: Request, route: _Route, what: str, began: float) -> None:
        if request.method != "POST":
            return self._refuse_method(request, what, "POST", began)
        version = self._model.find(route.name, route.version, route.label)
        said = _json.parse(request.body)
        name = said.get("signature_name", "")
        if not isinstance(name, str):
            raise errors.InvalidArgumentError('"signature_name" is to be a text')
        signature = version.signature(name)
        if what == "predict":
            columns = _json.columns_of_request(said, signature.inputs)
            answer: Answer = partial(_json.predictions, by_row="instances" in said)
        else:
            columns = _json.columns_of_instances(_examples(said), signature.inputs)
            answer = _results_of(what, signature)

        def done(
            outputs: dict[str, npt.NDArray[Any]] | None, error: BaseException | None
        ) -> None:
            try:
                if outputs is not None:
                    return self._reply(request, what, 200, answer(outputs), began)
                assert error is not None  # One of them is there.
            except Exception as failure:  # noqa: BLE001 - whoever asked is told.
                error = failure
            return self._fail(request, what, error, began)

        waiting = signature.submit(columns, time.monotonic() + self._timeout_s, done)
        request.on_gone = waiting.cancel
        return None


def _info(name: str, kind: str, shape: tuple[int | None, ...] | None) -> dict[str, Any]:
    dims = [
        {"size": str(-1 if extent is None else extent), "name": ""} for extent in shape or ()
    ]
    return {
        "dtype": TYPE_NAMES.get(kind, "DT_INVALID"),
        "tensor_shape": {"dim": dims, "unknown_rank": shape is None},
        "name": name,
    }


def _status_json(version: Version) -> dict[str, str]:
    error = version.error
    if error is None:
        return {"error_code": "OK", "error_message": ""}
    return {
        "error_code": _CODE_NAMES.get(error.code, "UNKNOWN"), "error_message": error.message
    }  # fmt: skip


def _examples(said: dict[str, Any]) -> list[Any]:
    """The rows of a request for classes or regressions, each with what all have in common."""
    examples, context = said.get("examples"), said.get("context", {})
    if not isinstance(examples, list) or not examples:
        raise errors.InvalidArgumentError('"examples" is to be a list with one row at least')
    if not isinstance(context, dict):
        raise errors.InvalidArgumentError('"context" is to be an object')
    if not context:
        return examples
    return [{**context, **row} if isinstance(row, dict) else row for row in examples]


def _results_of(what: str, signature: Signature) -> Answer:
    """How outputs become results of :classify, which are pairs of class and score, or :regress."""
    outputs = set(signature.outputs)
    if what == "regress":
        if len(outputs) != 1:
            raise errors.InvalidArgumentError(
                f"signature '{signature.name}' has the outputs {', '.join(signature.outputs)}, and "
                "a regression has one; ask for :predict"
            )
        return _regressions
    if "scores" not in outputs or not outputs <= {"scores", "classes"}:
        raise errors.InvalidArgumentError(
            f"signature '{signature.name}' has the outputs {', '.join(signature.outputs)}, and "
            "classes are told by 'scores' and 'classes'; ask for :predict"
        )
    return _classifications


def _regressions(outputs: dict[str, npt.NDArray[Any]]) -> bytes:
    (values,) = outputs.values()
    if not values.ndim or values.size != len(values):
        raise errors.InvalidArgumentError(
            f"the model gives {list(values.shape)}, and a regression is one number for each row"
        )
    flat = values.reshape(-1)
    return _json.to_json({"results": flat}, bool(np.isfinite(flat).all()))


def _classifications(outputs: dict[str, npt.NDArray[Any]]) -> bytes:
    scores = outputs["scores"]
    classes = outputs.get("classes", np.full(scores.shape, b"", object))
    if scores.ndim != 2 or classes.shape != scores.shape:
        raise errors.InvalidArgumentError(
            f"the model gives scores {list(scores.shape)} and classes {list(classes.shape)}; they "
            "are to be one for each row and class"
        )
    rows = [
        [[label.decode("utf-8", "replace"), score] for label, score in zip(*row)]
        for row in zip(classes.tolist(), scores.tolist())
    ]
    return _json.to_json({"results": rows}, bool(np.isfinite(scores).all()))


__all__ = ["Rest", "error_body"]
