"""Delta tables: what their log says of the files of one version."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa

from torchparquet.errors import one_line
from torchparquet.tables.table_source import NULL_KEY, TableSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from torchparquet.files.manifest import Manifest

_PHYSICAL_NAME = "delta.columnMapping.physicalName"
_PARTITION = "partition."
_SCHEME = "://"
# Features of readers that this one has.
_FEATURES = {
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
}


def delta_source(table: Any) -> TableSource:
    """Return the files of a `deltalake.DeltaTable` as they are in the version that it stands at.

    Raises:
        ValueError: The table has no files, or a feature that cannot be read.
    """
    _check_features(table)
    actions = pa.table(table.get_add_actions(flatten=True))
    paths = _paths(table, actions["path"].to_pylist())
    partitions = {
        name.removeprefix(_PARTITION): actions[name].to_pylist()
        for name in actions.column_names
        if name.startswith(_PARTITION)
    }
    keys = [
        {name: _key_text(values[file]) for name, values in partitions.items()}
        for file in range(len(paths))
    ]
    order = sorted(range(len(paths)), key=list(paths.values()).__getitem__)
    physical, columns = _columns(table, list(partitions))
    return TableSource(
        tuple(sorted(paths.values())),
        f"version {table.version()} of the Delta table {table.metadata().id}",
        tuple(keys[file] for file in order) if partitions else (),
        columns,
        _names(physical) if physical else None,
        _deletions(table, paths),
        storage_options=getattr(table, "_storage_options", None),
    )


def _check_features(table: Any) -> None:
    protocol = table.protocol()
    missing = sorted(set(protocol.reader_features or ()) - _FEATURES)
    if missing:
        raise ValueError(
            f"the Delta table needs {', '.join(missing)} of its readers: {table.table_uri!r}"
        )


def _paths(table: Any, relative: list[str]) -> dict[str, str]:
    """Return the path or URL of each file by the URI that deltalake gives it."""
    uris = table.file_uris()
    if not uris:
        raise ValueError(f"the table has no files: {table.table_uri!r}")
    root = _plain(str(table.table_uri)).rstrip("/")
    # The log has paths as parts of URIs, so that a "%" of a name is written as "%25".
    found = [_plain(path) if _SCHEME in path else f"{root}/{unquote(path)}" for path in relative]
    if [_last(uri) for uri in uris] != [_last(path) for path in relative]:
        raise ValueError(f"deltalake names files in two orders: {table.table_uri!r}")
    return dict(zip(uris, found, strict=True))


def _last(path: str) -> str:
    return unquote(unquote(path.rpartition("/")[2]))


def _plain(uri: str) -> str:
    """Return the path of a file on disk, or the URL of one in a store, without escapes."""
    return unquote(urlsplit(uri).path if uri.startswith("file://") else uri)


def _key_text(value: object) -> str:
    return NULL_KEY if value is None else str(value)


def _columns(table: Any, partitions: list[str]) -> tuple[dict[str, str], pa.Schema]:
    """Return the table's name of each column by that in files, and the schema of files.

    The names are empty if they are the same.
    """
    fields = json.loads(table.schema().to_json())["fields"]
    physical = {
        str(field["metadata"].get(_PHYSICAL_NAME, field["name"])): str(field["name"])
        for field in fields
    }
    try:
        schema = pa.schema(table.schema().to_arrow())
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ValueError(f"the Delta table has no schema of Arrow: {one_line(error)}") from error
    schema = pa.schema([field for field in schema if field.name not in partitions])
    is_mapped = any(stored != name for stored, name in physical.items())
    if is_mapped and any(pa.types.is_nested(field.type) for field in schema):
        raise ValueError("a Delta table that maps names cannot be read if it has nested columns")
    return (physical if is_mapped else {}), schema


def _names(physical: Mapping[str, str]) -> Any:
    def names(manifest: Manifest, file: int) -> list[str | None]:
        leaves = manifest.schemas[int(manifest.file_schema[file])]
        return [physical.get(leaf.path) for leaf in leaves]

    return names


def _deletions(table: Any, paths: Mapping[str, str]) -> dict[str, NDArray[np.bool_]]:
    found = pa.table(table.deletion_vectors())
    return {
        paths.get(uri, uri): mask.values.to_numpy(zero_copy_only=False)
        for uri, mask in zip(found["filepath"].to_pylist(), found["selection_vector"], strict=True)
    }
