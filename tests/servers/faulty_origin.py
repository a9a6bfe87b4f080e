"""An HTTP origin that serves ranges and fails as it is told to, and counts what was asked of it.

It speaks plain HTTP with ranges and If-Match, and as much of S3 as reading takes:
GET, HEAD and ListObjectsV2 by path-style addresses. In a process of its own:

    python -m tests.servers.faulty_origin FOLDER PORT [CERTIFICATE]
"""

from __future__ import annotations

import socket
import socketserver
import ssl
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.message import Message
from email.utils import formatdate
from http.client import parse_headers
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from tests.servers.answers import Answer, Connection, answer_to
from tests.servers.faults import NONE, Script
from tests.servers.listings import Listed, etag_of

MOST_HEADER_BYTES = 1 << 16
NEW_YEAR = 1_767_225_600  # of 2026


@dataclass(frozen=True)
class Request:
    """A client's request.

    Attributes:
        target: As it was sent: percent signs, dots and the query are the client's.
        path: The decoded path.
        fault: The name of what went wrong with it.
    """

    method: str
    target: str
    path: str
    query: Mapping[str, str]
    headers: Message
    fault: str = "none"

    def header(self, name: str) -> str:
        """Return a header; empty without it."""
        return str(self.headers.get(name, ""))


class FaultyOrigin:
    """An origin on a free port of this machine, with threads of this process.

    Attributes:
        script: The faults.
        counts: Requests by method, by status and by "fault: NAME".
        requests: All of them, in the order in which they came in.
        page_size: The most names in a listing.
        has_pages: True if a folder without its slash leads to its page of links, as web servers
            have it. In S3 there is no such object.
        wanted: Headers that each request must have.
        allows: Tells if the credentials of a request hold; S3 calls those that do not expired.
        validator: Tells an object from one that replaces it: "strong" or "weak" ETags, or
            "modified" for times alone.
    """

    def __init__(
        self, folder: Path | None = None, *, port: int = 0, certificate: Path | None = None
    ) -> None:
        """Listens at once, and answers within `with`; files of a folder are objects too."""
        self.script = Script()
        self.counts: Counter[str] = Counter()
        self.requests: list[Request] = []
        self.page_size = 1000
        self.has_pages = False
        self.wanted: dict[str, str] = {}
        self.allows: Callable[[Request], bool] = lambda _: True
        self.validator = "strong"
        self.lock = threading.Lock()
        self.closing = threading.Event()
        self._folder, self._objects = folder, dict[str, bytes]()
        self._num_puts: Counter[str] = Counter()
        self._connections: set[socket.socket] = set()
        self.tls: ssl.SSLContext | None = None
        if certificate is not None:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(certificate)
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.origin = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        """Of the origin, without a slash at its end."""
        port = self._server.server_address[1]
        return f"https://localhost:{port}" if self.tls else f"http://127.0.0.1:{port}"

    def url_of(self, key: str) -> str:
        """Return the address of an object, whatever characters its key has."""
        return f"{self.url}/{quote(key)}"

    def put(self, key: str, content: bytes) -> None:
        """Put or replace an object. A request under way goes on with the old one."""
        with self.lock:
            self._objects[key] = content
            self._num_puts[key] += 1

    def modified(self, key: str) -> str:
        """Return the time at which an object was put last: a second later each time."""
        with self.lock:
            return formatdate(NEW_YEAR + self._num_puts[key], usegmt=True)

    def put_folder(self, folder: Path, name: str) -> None:
        """Put all files of a folder under `name`."""
        for path in filter(Path.is_file, folder.rglob("*")):
            self.put(f"{name}/{path.relative_to(folder).as_posix()}", path.read_bytes())

    def delete(self, key: str) -> None:
        """Delete an object that was put."""
        with self.lock:
            del self._objects[key]

    def content(self, key: str) -> bytes | None:
        """Return an object; None without it. No key leads out of the folder."""
        with self.lock:
            if key in self._objects:
                return self._objects[key]
        if self._folder is None or ".." in key.split("/") or "\0" in key:
            return None
        path = self._folder / key
        return path.read_bytes() if path.is_file() else None

    def listed(self) -> list[Listed]:
        """Return all objects."""
        with self.lock:
            found = [Listed(key, len(c), etag_of(c)) for key, c in self._objects.items()]
        if self._folder is not None:
            for path in filter(Path.is_file, self._folder.rglob("[!.]*")):
                content = path.read_bytes()
                key = path.relative_to(self._folder).as_posix()
                found.append(Listed(key, len(content), etag_of(content)))
        return found

    def num_faults(self) -> int:
        """Return how many requests went wrong."""
        return sum(n for name, n in self.counts.items() if name.startswith("fault: "))

    def note(self, request: Request, status: int) -> None:
        """Remember a request; faults that send no status have 0."""
        with self.lock:
            self.requests.append(request)
            self.counts[request.method] += 1
            self.counts[str(status)] += 1
            if request.fault != NONE.name:
                self.counts[f"fault: {request.fault}"] += 1

    def forget(self) -> None:
        """Count from zero again."""
        with self.lock:
            self.counts.clear()
            self.requests.clear()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        with self.lock:
            connections = list(self._connections)
        for connection in connections:
            hang_up(connection)
        self._server.server_close()  # joins the threads of connections

    def serve_for_ever(self) -> None:
        """Answer until the process ends."""
        self._server.serve_forever()

    def keep(self, connection: socket.socket, is_open: bool) -> None:
        """Remember an open connection, so that it can be ended."""
        with self.lock:
            (self._connections.add if is_open else self._connections.discard)(connection)


def hang_up(connection: socket.socket) -> None:
    """End a connection, though another thread may wait for it."""
    with suppress(OSError):  # it has ended already
        connection.shutdown(socket.SHUT_RDWR)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    request_queue_size = 256
    origin: FaultyOrigin

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that hang up."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        origin, raw = self.server.origin, self.request
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        origin.keep(raw, True)
        try:
            if origin.tls:
                with origin.tls.wrap_socket(raw, server_side=True) as encrypted:
                    self._serve(origin, encrypted)
            else:
                self._serve(origin, raw)
        finally:
            origin.keep(raw, False)

    def _serve(self, origin: FaultyOrigin, connection: socket.socket) -> None:
        with connection.makefile("rb") as stream:
            for request in _requests(stream):
                if origin.closing.is_set():
                    return
                span = request.header("Range")
                fault = origin.script.fault_for(
                    f"{request.method} {request.path}",
                    f"{request.path} {span}" if request.method == "GET" and span else None,
                )
                request = Request(**vars(request) | {"fault": fault.name})
                answer: Answer = answer_to(origin, request, fault)
                origin.note(request, answer.status)
                if not answer.send(Connection(connection, origin.closing)):
                    return


def _requests(stream: Any) -> Iterator[Request]:
    while line := stream.readline(MOST_HEADER_BYTES):
        method, target, _ = line.decode("latin-1").split(" ", 2)
        headers = parse_headers(stream)
        stream.read(int(headers.get("Content-Length", 0)))
        parts = urlsplit(target if target.startswith("/") else "/" + target)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        yield Request(method, target, unquote(parts.path), query, headers)
        if headers.get("Connection", "").lower() == "close":
            return


def main() -> None:
    """Serve a folder until the process is killed."""
    folder, port, *certificate = sys.argv[1:]
    origin = FaultyOrigin(
        Path(folder), port=int(port), certificate=Path(certificate[0]) if certificate else None
    )
    origin.has_pages = True
    origin.serve_for_ever()


if __name__ == "__main__":
    main()
