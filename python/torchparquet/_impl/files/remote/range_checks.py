"""Compares the ranges that stores send with those that were asked for, in each library's client."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from torchparquet._impl.files.remote.failures import LastingError
from torchparquet.errors import one_line, users_level

# Of answers that are messages, and not objects.
_KINDS_OF_TEXT = ("xml", "html", "json")
# "bytes=0-99"; "bytes 0-99/1000" and "bytes 0-99/*". `Store.read` always asks by both ends.
_RANGE = re.compile(r"bytes=(\d+)-(\d+)")
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)", re.IGNORECASE)


def _check_range(asked: str, status: int, answer: Mapping[str, str]) -> None:
    """Raise if an answer has other bytes than its request asked for, such as a whole object."""
    wanted = _RANGE.fullmatch(asked)
    if wanted is None or status not in (200, 206):
        return
    length = answer.get("Content-Length", "")
    told = answer.get("Content-Range", "")
    if status == 200:
        told = f"bytes 0-{int(length) - 1}/{length}" if length.isdecimal() else ""
    sent = _CONTENT_RANGE.fullmatch(told)
    if sent is not None and length in ("", str(int(sent[2]) - int(sent[1]) + 1)):
        is_all = int(sent[2]) == int(wanted[2])
        is_end = sent[3] == str(int(sent[2]) + 1) and int(sent[2]) < int(wanted[2])
        if int(sent[1]) == int(wanted[1]) and (is_all or is_end):
            return
    told = (
        f"Range {asked!r}, HTTP {status}, Content-Range {answer.get('Content-Range', '')!r}, "
        f"Content-Length {length!r}"
    )
    # A store in trouble may send the text of an error as if it were the object.
    if status == 200 and not any(kind in answer.get("Content-Type", "") for kind in _KINDS_OF_TEXT):
        raise LastingError(
            "the store ignores ranges and sends whole objects: copy the file to a disk, or have it "
            f"served by a server that answers ranges: {told}"
        )
    raise OSError(f"the store sent other bytes than asked for: {told}")


@cache
def _comparing_trace() -> Any:
    """Return what compares the answers of a session of aiohttp with their requests."""

    async def compare(session: Any, context: Any, ended: Any) -> None:
        # Azure's library asks by a header of its own.
        asked = ended.headers.get("x-ms-range") or ended.headers.get("Range", "")
        try:
            _check_range(asked, ended.response.status, ended.response.headers)
        except OSError:
            ended.response.close()
            raise

    trace = import_module("aiohttp").TraceConfig()
    trace.on_request_end.append(compare)
    trace.freeze()
    return trace


def _traced(session: Any) -> Any:
    if _comparing_trace() not in session.trace_configs:
        session.trace_configs.append(_comparing_trace())
    return session


def _compare(asked: Mapping[str, str], answer: Any, end: Callable[[], object]) -> None:
    try:
        _check_range(asked.get("Range", ""), answer.status_code, answer.headers)
    except OSError:
        end()
        raise


def _compare_s3(request_dict: Any, response: Any = None, **_: Any) -> None:
    if response is not None:
        answer, parsed = response
        _compare(request_dict["headers"], answer, lambda: parsed["Body"].close())


def _compare_hub(answer: Any, **_: Any) -> None:
    _compare(answer.request.headers, answer, answer.close)


def _client_of_azure(filesystem: Any, name: str) -> Any:
    transport = filesystem.service_client._pipeline._transport
    if transport.session is None:
        _run(filesystem, transport.open)
    return _traced(transport.session)


def _client_of_s3(filesystem: Any, name: str) -> Any:
    client = filesystem._s3 or _run(filesystem, filesystem.set_session)
    if filesystem.cache_regions:
        client = _run(filesystem, filesystem.get_s3, filesystem.split_path(name)[0])
    # The last event that has both the request and its answer.
    client.meta.events.register("needs-retry.s3.GetObject", _compare_s3, "torchparquet")
    return client


def _client_of_hub(filesystem: Any, name: str) -> Any:
    client = import_module("huggingface_hub.utils").get_session()
    # Of httpx, and of requests before version 1.0.
    hooks = client.event_hooks if hasattr(client, "event_hooks") else client.hooks
    if _compare_hub not in hooks["response"]:
        hooks["response"].append(_compare_hub)
    return client


def _run(filesystem: Any, act: Callable[..., Any], *arguments: Any) -> Any:
    return import_module("fsspec.asyn").sync(filesystem.loop, act, *arguments)


# By the module of the file system's class.
_CLIENTS: dict[str, Callable[[Any, str], Any]] = {
    "fsspec.implementations.http": lambda fs, _: _traced(fs._session or _run(fs, fs.set_session)),
    "s3fs": _client_of_s3,
    "gcsfs": lambda fs, _: _traced(fs._session or _run(fs, fs._set_session)),
    "adlfs": _client_of_azure,
    "huggingface_hub": _client_of_hub,
}
# File systems whose clients are not known in the version that is installed.
_unknown: set[type] = set()


def comparing_client(filesystem: Any, name: str) -> Any:
    """Have the client of a file system compare ranges, and return it."""
    while getattr(filesystem, "fs", None) is not None:  # one that wraps another
        filesystem = filesystem.fs
    kind = type(filesystem)
    places = [f"{cls.__module__}." for cls in kind.__mro__]
    module = next((m for place in places for m in _CLIENTS if place.startswith(f"{m}.")), None)
    if module is None or kind in _unknown:
        return None
    try:
        return _CLIENTS[module](filesystem, name)
    except (AttributeError, ImportError, LookupError, TypeError) as error:
        _unknown.add(kind)
        warnings.warn(
            "answers of the store are not compared with the ranges that were asked for, because "
            f"this version of {module} has other parts than those that torchparquet knows "
            f"({one_line(error)}); another version may help",
            stacklevel=users_level(),
        )
        return None
