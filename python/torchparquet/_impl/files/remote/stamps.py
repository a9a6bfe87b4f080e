"""The stamp of a remote file: what a store says that changes whenever its content does."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

# By kind, the fields of fsspec's info that tell it. Kinds that follow the content come first.
_FIELDS = (
    ("blob", ("blob_id", "xet_hash")),
    ("generation", ("generation",)),
    ("etag", ("ETag", "etag", "e_tag")),
    ("md5", ("md5Hash", "content_md5", "Content-MD5")),
    ("modified", ("Last-Modified", "LastModified", "last_modified", "mtime", "modified")),
    ("created", ("created",)),
)
_ETAG, _MODIFIED = "etag ", "modified "


def stamp_of(info: Mapping[str, Any]) -> str:
    """Return a file's stamp, such as "etag 0x8D"; "" if the store tells nothing."""
    lfs = info.get("lfs")
    if lfs and lfs.get("sha256"):
        return f"sha256 {lfs['sha256']}"
    for kind, names in _FIELDS:
        for name in names:
            text = _text(info.get(name))
            if text:
                return f"{kind} {text}"
    return ""


def may_be_same(stamp: str, other: str) -> bool:
    """True unless both tell the same kind of thing, and tell it differently."""
    same_kind = stamp.partition(" ")[0] == other.partition(" ")[0]
    return stamp == other or not same_kind


def entity_tag(stamp: str) -> str:
    """Return the ETag that every answer of HTTP must have, with its quotes; "" if there is none.

    A request can ask for one without `W/` alone.
    """
    if not stamp.startswith(_ETAG):
        return ""
    content = stamp.removeprefix(_ETAG)
    return content if content.startswith("W/") else f'"{content}"'


def http_date(stamp: str) -> str:
    """Return the `Last-Modified` of a stamp; "" if it has none, or is of another store."""
    text = stamp.removeprefix(_MODIFIED)
    return text if text != stamp and text.endswith(" GMT") else ""


def _text(value: object) -> str:
    if isinstance(value, datetime):
        # Listings tell seconds where the look-up of one file tells a moment.
        value = (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, float):
        return f"{value:.6f}"
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    # Azure quotes an ETag in some answers and not in others.
    text = "" if value is None else str(value)
    return text if text.startswith("W/") else text.strip('"')
