"""Files wherever they are: of this machine, s3://, gs://, hdfs://, http://, and whatever fsspec
knows. Every wait for a server has a limit, and every error names the file.

SIDEREAL_IO_TIMEOUT_S (60) is how long a server may be silent; what fails is tried three times.
Credentials are found as Arrow finds them: AWS_ACCESS_KEY_ID, ~/.aws, AWS_ENDPOINT_URL, ...
"""

from __future__ import annotations

import fnmatch
import glob
import http.client
import importlib
import io
import os
import re
import urllib.error
import urllib.request
from typing import Any, BinaryIO, cast
from urllib.parse import parse_qsl, urlsplit

from . import errors

#: What pyarrow has file systems for, and the stdlib.
_ARROW = ("s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")
_HTTP = ("http", "https")
_ATTEMPTS = 3
#: Of a file that is read over a network, bytes that are asked for at once.
_BLOCK = 4 << 20


def timeout_s() -> float:
    """How long a server may be silent."""
    said = os.environ.get("SIDEREAL_IO_TIMEOUT_S", "60")
    try:
        seconds = float(said)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise errors.InvalidArgumentError(
            f"SIDEREAL_IO_TIMEOUT_S is {said!r}; it must be a number of seconds above 0"
        )
    return seconds


def needed(module: str, path: str) -> Any:
    """A module of an optional package that a file needs."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise errors.FailedPreconditionError(
            f"{path}: reading it needs the package {package}, which is not installed "
            f"({error}): pip install {package}"
        ) from None


def scheme_of(path: str) -> str:
    """ "s3" of "s3://bucket/key"; "" of a file of this machine."""
    head, mark, _ = path.partition("://")
    return head.lower() if mark and head.replace("+", "").replace("-", "").isalnum() else ""


def said_of(path: str, error: BaseException) -> errors.Error:
    """The error of a file, with what to do."""
    if isinstance(error, errors.Error):
        if path not in error.message:
            error.message = f"{path}: {error.message}"
        return error
    text = " ".join(str(error).split())[:500]
    where = "the address" if scheme_of(path) else "the path"
    if isinstance(error, FileNotFoundError) or _status(error, 404, "NO_SUCH", "ResourceNotFound"):
        return errors.NotFoundError(f"{path}: there is no such file; check {where} of the data")
    if isinstance(error, PermissionError) or _status(error, 403, "ACCESS_DENIED", "AccessDenied"):
        return errors.PermissionDeniedError(
            f"{path}: may not be read ({text}); look at its permissions and the credentials"
        )
    if isinstance(error, TimeoutError) or "timed out" in text.lower() or "timeout" in text.lower():
        return errors.DeadlineExceededError(
            f"{path}: the server is silent ({text}); try again, or give it longer with "
            f"SIDEREAL_IO_TIMEOUT_S (now {timeout_s():g})"
        )
    if isinstance(error, (OSError, http.client.HTTPException)):
        return errors.UnavailableError(
            f"{path}: reading failed ({text}); look at the connection, and try again"
        )
    return errors.InvalidArgumentError(f"{path}: {text}")


def _status(error: BaseException, code: int, *words: str) -> bool:
    if isinstance(error, urllib.error.HTTPError):
        return error.code == code
    return isinstance(error, OSError) and any(word in str(error) for word in words)


def _may_pass(error: Exception) -> bool:
    """Whether a request may succeed if it is made once more: not what the server refuses."""
    if not isinstance(error, urllib.error.HTTPError):
        return True
    return error.code >= 500 or error.code in (408, 429)


class HttpFile(io.RawIOBase):
    """A file of an HTTP server, which can be read from any place where the server takes ranges. A
    connection that is lost goes on where it was."""

    def __init__(self, url: str) -> None:
        self._url, self._at, self._body = url, 0, cast(Any, None)
        self._size: int | None = None
        self._connect()

    def _connect(self) -> None:
        """The first request: what may pass is tried again."""
        for left in reversed(range(_ATTEMPTS)):
            try:
                self._open()
                return
            except (OSError, http.client.HTTPException) as error:
                if not left or not _may_pass(error):
                    raise

    def _open(self) -> None:
        """Asks for what begins at the place where reading is."""
        request = urllib.request.Request(self._url, headers={"Accept-Encoding": "identity"})
        if self._at:
            request.add_header("Range", f"bytes={self._at}-")
        self._body = urllib.request.urlopen(request, timeout=timeout_s())
        length = self._body.headers.get("Content-Length")
        if self._at and self._body.status != 206:
            raise errors.FailedPreconditionError(
                f"{self._url}: the server does not send parts of files (no ranges), which this "
                "format, or a lost connection, asks for; copy the file here"
            )
        if self._size is None and length is not None:
            self._size = int(length)

    @property
    def size(self) -> int:
        return self._size or 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._size is not None

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        if base + offset != self._at:
            self._at = max(base + offset, 0)
            self._drop()
        return self._at

    def tell(self) -> int:
        return self._at

    def _drop(self) -> None:
        if self._body is not None:
            self._body.close()
        self._body = None

    def readinto(self, buffer: Any) -> int:
        if self._size is not None and self._at >= self._size:
            return 0
        wanted = memoryview(buffer).cast("B")
        last: BaseException | None = None
        for _ in range(_ATTEMPTS):
            try:
                if self._body is None:
                    self._open()
                got = self._body.readinto(wanted)
                if got or self._size is None:
                    self._at += got
                    return int(got)
                last = ConnectionError("the connection was closed")
            except (OSError, http.client.HTTPException) as error:
                if not _may_pass(error):
                    raise
                last = error
            self._drop()
        if isinstance(last, TimeoutError):
            raise last
        raise errors.UnavailableError(
            f"{self._url}: the connection was lost at byte {self._at} of {self._size} "
            f"{_ATTEMPTS} times ({last}); look at the server, and try again"
        )

    def close(self) -> None:
        self._drop()
        super().close()


def _arrow_system(path: str) -> tuple[Any, str]:
    """pyarrow's file system of a path, and what it calls it there."""
    fs = needed("pyarrow.fs", path)
    scheme, limit = scheme_of(path), timeout_s()
    if scheme != "s3":
        return fs.FileSystem.from_uri(path)
    path, query = _parts_of(path)
    options: dict[str, Any] = {"connect_timeout": limit, "request_timeout": limit}
    options["retry_strategy"] = fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS)
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        parts = urlsplit(endpoint)
        options["endpoint_override"] = parts.netloc or parts.path
        options["scheme"] = parts.scheme or "https"
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region:
        options["region"] = region
    for name, value in parse_qsl(query[1:]):
        if name not in ("endpoint_override", "scheme", "region"):
            raise errors.InvalidArgumentError(
                f"{path}{query}: '{name}' is not known; endpoint_override, scheme and region are"
            )
        options[name] = value
    return fs.S3FileSystem(**options), path.partition("://")[2]


def _parts_of(path: str) -> tuple[str, str]:
    """A name elsewhere without its options ("?region=x&..."), and they: other question marks are of
    patterns, or of the name."""
    found = re.search(r"\?[a-z_]+=[^/]*$", path)
    return (path, "") if found is None else (path[: found.start()], found[0])


def _fsspec_system(path: str) -> tuple[Any, str]:
    fsspec = needed("fsspec", path)
    try:
        return fsspec.core.url_to_fs(path)
    except (ImportError, ValueError) as error:
        raise errors.FailedPreconditionError(
            f"{path}: fsspec cannot read '{scheme_of(path)}://' ({error}); install what it names"
        ) from None


def open_file(path: str) -> BinaryIO:
    """The bytes of a file; errors by said_of()."""
    try:
        return _opened(path)
    except Exception as error:  # noqa: BLE001 - whatever it was, it names the file.
        raise said_of(path, error) from None


def _opened(path: str) -> BinaryIO:
    scheme = scheme_of(path)
    if not scheme:
        return open(path, "rb")
    if scheme in _HTTP:
        return cast(BinaryIO, io.BufferedReader(HttpFile(path), _BLOCK))
    if scheme in _ARROW:
        system, name = _arrow_system(path)
        return cast(BinaryIO, system.open_input_file(name))
    system, name = _fsspec_system(path)
    return cast(BinaryIO, system.open(name, "rb"))


def size_of(path: str) -> int:
    """Bytes of a file."""
    try:
        if not scheme_of(path):
            return os.stat(path).st_size
        with _opened(path) as file:
            raw = getattr(file, "raw", None)
            if isinstance(raw, HttpFile):
                return raw.size
            size = getattr(file, "size", None)
            return int(size() if callable(size) else size or 0)
    except Exception as error:  # noqa: BLE001 - as above.
        raise said_of(path, error) from None


def list_files(pattern: str) -> list[str]:
    """The files that match, sorted."""
    try:
        return _listed(pattern)
    except Exception as error:  # noqa: BLE001 - as above.
        raise said_of(pattern, error) from None


def _listed(pattern: str) -> list[str]:
    scheme = scheme_of(pattern)
    if not scheme:
        return sorted(glob.glob(pattern))
    if scheme in _HTTP:
        if set("*[") & set(pattern):
            raise errors.InvalidArgumentError(
                f"{pattern}: HTTP servers do not list files; name each one"
            )
        size_of(pattern)
        return [pattern]
    name, query = _parts_of(pattern) if scheme in _ARROW else (pattern, "")
    steady = re.split(r"[*?\[]", name, maxsplit=1)[0]
    if steady == name:
        size_of(pattern)
        return [pattern]
    if scheme not in _ARROW:
        system, name = _fsspec_system(pattern)
        return sorted(f"{scheme}://{found}" for found in system.glob(name))
    # The folder alone is asked for: what a system calls a file need not be the end of its name.
    above, _, _ = steady.rpartition("/")
    wanted = name[len(above) + 1 :]
    if above.count("/") < 2:
        raise errors.InvalidArgumentError(
            f"{pattern}: buckets are not listed; name one, and patterns of what is in it"
        )
    system, folder = _arrow_system(above + query)
    fs = needed("pyarrow.fs", pattern)
    infos = system.get_file_info(fs.FileSelector(folder, recursive="/" in wanted))
    inside = (one.path.removeprefix(folder).lstrip("/") for one in infos if one.is_file)
    return sorted(
        f"{above}/{one}{query}"
        for one in inside
        if one.count("/") == wanted.count("/") and fnmatch.fnmatchcase(one, wanted)
    )


__all__ = ["HttpFile", "list_files", "needed", "open_file", "said_of", "scheme_of", "size_of"]
