"""The answers of a faulty origin: made from a request and a fault, and sent byte by byte."""

from __future__ import annotations

import re
import select
import socket
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from typing import TYPE_CHECKING

from tests.servers.faults import NONE, Fault
from tests.servers.listings import error_xml, etag_of, list_objects

if TYPE_CHECKING:
    from tests.servers.faulty_origin import FaultyOrigin, Request

PIECE_BYTES = 1 << 16
# A client that takes all that comes must not take the machine's memory.
MOST_ENDLESS_BYTES = 64 << 20
REASONS = {
    200: "OK",
    206: "Partial Content",
    400: "Bad Request",
    301: "Moved Permanently",
    307: "Temporary Redirect",
    403: "Forbidden",
    404: "Not Found",
    408: "Request Timeout",
    412: "Precondition Failed",
    416: "Range Not Satisfiable",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Slow Down",
}
CODES = {408: "RequestTimeout", 429: "TooManyRequests", 500: "InternalError", 503: "SlowDown"}
# Such answers have no head: whatever comes first is not theirs.
GARBAGE = b"\x00\xff\x13 this is not HTTP\r\n\r\n"


@dataclass(frozen=True)
class Connection:
    """A client's socket, and the event that ends all waiting."""

    socket: socket.socket
    closing: threading.Event

    def wait_for_hang_up(self) -> None:
        """Return once the client has closed, or the origin is to end."""
        while not self.closing.is_set():
            readable, _, _ = select.select([self.socket], [], [], 0.1)
            if readable and not self.socket.recv(PIECE_BYTES):
                return

    def reset(self) -> None:
        """Close by a reset, so that the client loses what it has not read."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


@dataclass(frozen=True)
class Answer:
    """An answer, before what goes wrong with its sending."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    fault: Fault = NONE
    without_body: bool = False

    def send(self, to: Connection) -> bool:
        """Send it; false if the connection has ended."""
        if self.fault.kind == "garbage":
            to.socket.sendall(GARBAGE)
            return False
        length = len(self.body)
        if self.fault.kind == "long length":
            length += self.fault.at
        elif self.fault.kind == "short length":
            length = max(0, length - self.fault.at)
        headers = {"Content-Length": str(length), "Date": formatdate(usegmt=True)} | self.headers
        if self.fault.kind == "endless":
            del headers["Content-Length"]
            headers["Connection"] = "close"
        head = [f"HTTP/1.1 {self.status} {REASONS.get(self.status, 'Other')}"]
        head += [f"{name}: {value}" for name, value in headers.items()]
        to.socket.sendall(("\r\n".join(head) + "\r\n\r\n").encode("latin-1"))
        return self.without_body or self._send_body(to)

    def _send_body(self, to: Connection) -> bool:
        at = self.fault.at
        match self.fault.kind:
            case "reset":
                to.socket.sendall(self.body[:at])
                to.reset()
                return False
            case "short":
                to.socket.sendall(self.body[:at])
                return False
            case "stall":
                to.socket.sendall(self.body[:at])
                to.wait_for_hang_up()
                return False
            case "drip":
                return self._drip(to)
            case "endless":
                sent = 0
                while sent < MOST_ENDLESS_BYTES and not to.closing.is_set():
                    to.socket.sendall(bytes(PIECE_BYTES))
                    sent += PIECE_BYTES
                return False
        to.socket.sendall(self.body)
        return self.fault.kind not in ("long length", "short length")

    def _drip(self, to: Connection) -> bool:
        step = max(1, self.fault.at)
        for begin in range(0, len(self.body), step):
            to.socket.sendall(self.body[begin : begin + step])
            if to.closing.wait(self.fault.seconds or 0):
                return False
        return True


def answer_to(origin: FaultyOrigin, request: Request, fault: Fault) -> Answer:
    """Return the answer to a request, as the fault has it."""
    answer = _answer(origin, request, fault)
    return replace(answer, fault=fault, without_body=request.method == "HEAD")


def _answer(origin: FaultyOrigin, request: Request, fault: Fault) -> Answer:
    match fault.kind:
        case "status":
            headers = {} if fault.seconds is None else {"Retry-After": f"{fault.seconds:g}"}
            code = CODES.get(fault.status, "Other")
            return _error(fault.status, code, "as the script says", headers)
        case "redirect":
            return Answer(307, headers={"Location": fault.to + request.target})
        case "expired":
            return _error(403, "AccessDenied", "Request has expired")
        case "error body":
            return replace(_error(503, "SlowDown", "Reduce your request rate."), status=200)
    if any(request.header(name) != value for name, value in origin.wanted.items()):
        return _error(401, "Unauthorized", "Unauthorized")
    if not origin.allows(request):
        return _error(400, "ExpiredToken", "The provided token has expired.")
    if request.method not in ("GET", "HEAD"):
        return _error(405, "MethodNotAllowed", request.method)
    if "list-type" in request.query or "location" in request.query:
        return _listing(origin, request, fault)
    return _object(origin, request, fault)


def _error(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Answer:
    kind = {"Content-Type": "application/xml"}
    return Answer(status, error_xml(code, message), kind | (headers or {}))


def _listing(origin: FaultyOrigin, request: Request, fault: Fault) -> Answer:
    bucket, _, _ = request.path.lstrip("/").partition("/")
    inside = [
        replace(one, key=one.key[len(bucket) + 1 :])
        for one in origin.listed()
        if one.key.startswith(bucket + "/")
    ]
    if not inside:
        return _error(404, "NoSuchBucket", bucket)
    text = list_objects(bucket, inside, request.query, origin.page_size, fault)
    return Answer(200, text, {"Content-Type": "application/xml"})


def _object(origin: FaultyOrigin, request: Request, fault: Fault) -> Answer:
    content = origin.content(request.path[1:])
    if content is None:
        # A bucket by itself, or a folder that the path names with its slash.
        if request.path.endswith("/"):
            return Answer(200, b"<html>", {"Content-Type": "text/html; charset=utf-8"})
        if origin.has_pages and any(
            k.key.startswith(request.path[1:] + "/") for k in origin.listed()
        ):
            return Answer(301, headers={"Location": request.target + "/"})
        return _error(404, "NoSuchKey", request.path)
    etag = etag_of(content) if fault.kind != "etag" else '"of-another-object"'
    modified = origin.modified(request.path[1:])
    asked = request.header("If-Match")
    if asked not in ("", "*", etag) and fault.kind != "etag":
        return _error(412, "PreconditionFailed", "If-Match")
    if request.header("If-Unmodified-Since") not in ("", modified):
        return _error(412, "PreconditionFailed", "If-Unmodified-Since")
    headers = {
        "Accept-Ranges": "bytes",
        "Content-Type": "application/octet-stream",
        "Last-Modified": modified,
    }
    if origin.validator != "modified":
        headers["ETag"] = etag if origin.validator == "strong" else f"W/{etag}"
    span = _span(request.header("x-ms-range") or request.header("Range"), len(content))
    if span is None or fault.kind == "whole":
        return Answer(200, content, headers)
    begin, end = span
    if begin >= end:
        return _error(416, "InvalidRange", "Range", {"Content-Range": f"bytes */{len(content)}"})
    shift = fault.at if fault.kind in ("wrong range", "wrong header") else 0
    headers["Content-Range"] = f"bytes {begin + shift}-{end - 1 + shift}/{len(content)}"
    if fault.kind == "no header":
        del headers["Content-Range"]
    if fault.kind == "wrong range":
        return Answer(206, _at(content, begin + shift, end - begin), headers)
    return Answer(206, content[begin:end], headers)


def _at(content: bytes, begin: int, count: int) -> bytes:
    return (content[begin : begin + count] + bytes(count))[:count]


def _span(text: str, size: int) -> Sequence[int] | None:
    """Return the begin and the end of a range; None without one that is understood."""
    found = re.fullmatch(r"bytes=(\d*)-(\d*)", text)
    if found is None or found.groups() == ("", ""):
        return None
    first, last = found.groups()
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(size, int(last) + 1) if last else size
