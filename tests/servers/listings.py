"""Listings of an origin's objects: S3's ListObjectsV2."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote
from xml.sax.saxutils import escape

from tests.servers.faults import Fault

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"


@dataclass(frozen=True)
class Listed:
    """An object, as listings show it."""

    key: str
    size: int
    etag: str


def etag_of(content: bytes) -> str:
    """Return an object's ETag, with its quotes."""
    return f'"{hashlib.md5(content).hexdigest()}"'


def error_xml(code: str, message: str) -> bytes:
    """Return the body of one of S3's errors."""
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code>'
        f"<Message>{escape(message)}</Message><RequestId>0</RequestId></Error>"
    ).encode()


def list_objects(
    bucket: str,
    objects: Iterable[Listed],
    query: Mapping[str, str],
    page_size: int,
    fault: Fault,
) -> bytes:
    """Return a page of ListObjectsV2.

    A token is the last name of the page before. Names are keys, and common prefixes if the query
    has a delimiter.
    """
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    after = query.get("continuation-token", query.get("start-after", ""))
    limit = min(page_size, int(query.get("max-keys", page_size)))
    named: dict[str, Listed | None] = {}
    for listed in sorted(objects, key=lambda one: one.key):
        if not listed.key.startswith(prefix):
            continue
        head, found, _ = listed.key[len(prefix) :].partition(delimiter or "\0")
        name = prefix + head + delimiter if delimiter and found else listed.key
        if name > after:
            named.setdefault(name, None if name != listed.key else listed)
    names = list(named)[:limit]
    more = len(named) > limit or fault.kind in ("listing without token", "listing that repeats")
    encoded = query.get("encoding-type") == "url"

    def shown(name: str) -> str:
        return escape(quote(name, safe="/") if encoded else name)

    parts = [f'<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="{NAMESPACE}">']
    parts.append(f"<Name>{bucket}</Name><Prefix>{shown(prefix)}</Prefix>")
    parts.append(f"<KeyCount>{len(names)}</KeyCount><MaxKeys>{limit}</MaxKeys>")
    if encoded:
        parts.append("<EncodingType>url</EncodingType>")
    if delimiter:
        parts.append(f"<Delimiter>{shown(delimiter)}</Delimiter>")
    parts.append(f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>")
    if more and names and fault.kind != "listing without token":
        token = (fault.kind == "listing that repeats" and after) or names[-1]
        parts.append(f"<NextContinuationToken>{escape(token)}</NextContinuationToken>")
    for name in names:
        match named[name]:
            case None:
                parts.append(f"<CommonPrefixes><Prefix>{shown(name)}</Prefix></CommonPrefixes>")
            case listed:
                parts.append(
                    f"<Contents><Key>{shown(name)}</Key>"
                    "<LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                    f"<ETag>{escape(listed.etag)}</ETag><Size>{listed.size}</Size>"
                    "<StorageClass>STANDARD</StorageClass></Contents>"
                )
    text = "".join([*parts, "</ListBucketResult>"]).encode()
    return text[: len(text) * 2 // 3] if fault.kind == "listing cut" else text
