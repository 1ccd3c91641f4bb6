"""Servers of files for tests: HTTP, and as much of S3 as readers ask for. Faults on request."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


class FileServer:
    """Files by their paths ("/bucket/key"). `cuts`: which answers end too early: "whole" files in
    their middle, "parts" at their beginning. `stalls`: so much comes, and then nothing.
    `failures`: so many requests are answered by 503. `is_silent`: requests are taken and not
    answered."""

    def __init__(self, ranges: bool = True) -> None:
        self.over = threading.Event()
        self.reset()
        self.ranges = ranges
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def reset(self) -> None:
        """As at the beginning: without files, and in order. Who waits for an answer gets none."""
        self.over.set()
        self.over = threading.Event()
        self.files: dict[str, bytes] = {}
        self.cuts: set[str] = set()
        self.stalls = False
        self.is_silent = False
        self.failures = 0
        #: Set once something was asked for.
        self.asked = threading.Event()
        #: How many parts of files have been asked for.
        self.parts = 0

    def close(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)


def _handler(server: FileServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def _answer(self, code: int, body: bytes, kind: str, headers: dict[str, str]) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "HEAD":
                return
            is_file, is_part = kind != "application/xml", "Content-Range" in headers
            if is_file and ("parts" if is_part else "whole") in server.cuts:
                self._begin(b"" if is_part else body)
            elif is_file and server.stalls:
                self._begin(b"" if is_part else body)
                server.over.wait(60)
            else:
                self.wfile.write(body)

        def _begin(self, body: bytes) -> None:
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self.close_connection = True

        def _list(self, bucket: str, asked: dict[str, list[str]]) -> None:
            prefix = asked.get("prefix", [""])[0]
            delimiter = asked.get("delimiter", [""])[0]
            keys, folders = [], set()
            for path in sorted(server.files):
                if not path.startswith(f"/{bucket}/{prefix}"):
                    continue
                key = path[len(bucket) + 2 :]
                rest = key[len(prefix) :]
                if delimiter and delimiter in rest:
                    folders.add(prefix + rest.split(delimiter)[0] + delimiter)
                else:
                    keys.append((key, len(server.files[path])))
            contents = "".join(
                f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size><ETag>x</ETag>"
                "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
                for key, size in keys
            )
            contents += "".join(
                f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>"
                for one in sorted(folders)
            )
            body = (
                '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult>'
                f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix>"
                f"<KeyCount>{len(keys) + len(folders)}</KeyCount><MaxKeys>1000</MaxKeys>"
                f"<IsTruncated>false</IsTruncated>{contents}</ListBucketResult>"
            )
            self._answer(200, body.encode(), "application/xml", {})

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            path, asked = unquote(parts.path), parse_qs(parts.query)
            server.asked.set()
            if server.is_silent:
                server.over.wait(60)
                self.close_connection = True
                return
            if server.failures:
                server.failures -= 1
                self._answer(503, b"", "text/plain", {})
                return
            if "list-type" in asked:
                self._list(path.strip("/"), asked)
                return
            body = server.files.get(path)
            if self.headers.get("Range"):
                server.parts += 1
            if body is None:
                is_bucket = any(name.startswith(path.rstrip("/") + "/") for name in server.files)
                if self.command == "HEAD" and path.count("/") == 1 and is_bucket:
                    self._answer(200, b"", "text/plain", {})
                    return
                error = b"<Error><Code>NoSuchKey</Code><Message>no such key</Message></Error>"
                self._answer(404, error, "application/xml", {})
                return
            headers = {"ETag": '"x"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
            span = self.headers.get("Range")
            if span is None or not server.ranges:
                self._answer(200, body, "application/octet-stream", headers)
                return
            first, _, last = span.partition("=")[2].partition("-")
            begin = int(first)
            end = min(int(last) + 1 if last else len(body), len(body))
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(body)}"
            self._answer(206, body[begin:end], "application/octet-stream", headers)

        do_HEAD = do_GET  # noqa: N815 - http.server's name.

    return Handler


@contextlib.contextmanager
def file_server(ranges: bool = True) -> Iterator[FileServer]:
    server = FileServer(ranges)
    try:
        yield server
    finally:
        server.close()
