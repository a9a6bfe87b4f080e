"""A plain HTTP server of files, with ranges, ETags and, on request, a password."""

from __future__ import annotations

import hashlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


class RangeServer(ThreadingHTTPServer):
    """Serves a directory.

    Attributes:
        root: The directory.
        wanted: A header that every request must have, and its value.
        requests: Method, path with query, and headers of each request.
        etags: True to send ETags.
    """

    daemon_threads = True

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root = root
        self.wanted: dict[str, str] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.etags = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: RangeServer
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        self.server.requests.append((self.command, self.path, dict(self.headers)))
        if any(self.headers.get(name) != value for name, value in self.server.wanted.items()):
            self._send(401, b"", {})
            return
        path = self.server.root / unquote(urlsplit(self.path).path).lstrip("/")
        if path.is_dir():
            self._send(200, b"<html>", {"Content-Type": "text/html"} if with_body else {})
            return
        if not path.is_file():
            self._send(404, b"", {})
            return
        content = path.read_bytes()
        etag = f'"{hashlib.md5(content).hexdigest()}"'
        headers = {"Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"}
        if self.server.etags:
            headers["ETag"] = etag
        if self.headers.get("If-Match", etag) != etag:
            self._send(412, b"", {})
            return
        status = 200
        if "Range" in self.headers:
            first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
            begin, end = int(first), min(int(last) + 1 if last else len(content), len(content))
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(content)}"
            content, status = content[begin:end], 206
        self._send(status, content, headers)

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print nothing."""
