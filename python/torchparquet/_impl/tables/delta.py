"""Delta tables: what their log says of the files of one version."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from torchparquet._impl.files.remote.urls import without_credentials
from torchparquet._impl.tables.table_source import TableSource
from torchparquet.errors import one_line

_PHYSICAL_NAME = "delta.columnMapping.physicalName"
_PARTITION = "partition."
# Options of a store that other readers know too.
_OPTIONS = {
    *("aws_access_key_id", "aws_secret_access_key", "aws_session_token", "aws_region"),
    *("aws_endpoint_url", "google_service_account", "google_application_credentials"),
    *("azure_storage_account_name", "azure_storage_account_key", "azure_storage_sas_token"),
}
# Features of readers that this one has.
_FEATURES = {
    *("columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"),
    *("typeWidening", "typeWidening-preview"),
}


def delta_source(table: Any) -> TableSource:
    """Return the files of a `deltalake.DeltaTable` as they are in the version that it stands at."""
    missing = sorted(set(table.protocol().reader_features or ()) - _FEATURES)
    if missing:
        raise ValueError(
            "the Delta table uses features that torchparquet does not read: "
            f"{', '.join(missing)}: {_shown(table)!r}"
        )
    actions = pa.table(table.get_add_actions(flatten=True))
    paths = _paths(table, actions["path"].to_pylist())
    order = sorted(range(len(paths)), key=paths.__getitem__)
    found = [paths[file] for file in order]
    partitions = [name for name in actions.column_names if name.startswith(_PARTITION)]
    keys = actions.select(partitions).take(order).to_pylist()
    physical, columns = _columns(table)
    options = getattr(table, "_storage_options", None) or {}
    return TableSource(
        tuple(found),
        f"version {table.version()} of the Delta table {table.metadata().id}",
        [{name.removeprefix(_PARTITION): of_file[name] for name in of_file} for of_file in keys],
        columns,
        (lambda leaves: [physical.get(leaf.path) for leaf in leaves]) if physical else None,
        _deletions(table, found),
        storage_options={k: v for k, v in options.items() if k.lower() in _OPTIONS} or None,
    )


def _shown(table: Any) -> str:
    return without_credentials(str(table.table_uri))


def _paths(table: Any, relative: list[str]) -> list[str]:
    """Return the path or URL of each file."""
    if not relative:
        raise ValueError(f"the Delta table has no files: {_shown(table)!r}")
    root = _plain(str(table.table_uri)).rstrip("/")
    # The log has paths as parts of URIs, so that a "%" of a name is written as "%25".
    paths = [_plain(path) if "://" in path else f"{root}/{unquote(path)}" for path in relative]
    for path in paths:
        if not path.startswith(f"{root}/") or ".." in path.split("/"):
            raise ValueError(
                "the Delta table names a file outside its folder, which may be anybody's; to read "
                f"it all the same, give the paths of the files: {without_credentials(path)!r}"
            )
    return paths


def _plain(uri: str) -> str:
    """Return the path of a file on disk, or the URL of one in a store, without escapes."""
    return unquote(urlsplit(uri).path if uri.startswith("file://") else uri)


def _columns(table: Any) -> tuple[dict[str, str], pa.Schema]:
    """Return the table's names by those in files, if these differ, and the table's schema."""
    fields = json.loads(table.schema().to_json())["fields"]
    physical = {
        str(field["metadata"].get(_PHYSICAL_NAME, field["name"])): str(field["name"])
        for field in fields
    }
    try:
        schema = pa.schema(table.schema().to_arrow())
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ValueError(f"the Delta table has no schema of Arrow: {one_line(error)}") from error
    is_mapped = any(stored != name for stored, name in physical.items())
    if is_mapped and any(pa.types.is_nested(field.type) for field in schema):
        raise ValueError("a Delta table that maps names cannot be read if it has nested columns")
    return (physical if is_mapped else {}), schema


def _deletions(table: Any, paths: list[str]) -> dict[int, NDArray[np.bool_]]:
    """Return masks of the rows that are left, by number of the file."""
    found = pa.table(table.deletion_vectors())
    files = {path: file for file, path in enumerate(paths)}
    masks = {}
    for uri, mask in zip(found["filepath"].to_pylist(), found["selection_vector"], strict=True):
        # deltalake gives a URI of an absolute path, or one that is not escaped.
        file = next((files[path] for path in (_plain(uri), uri) if path in files), None)
        if file is None:
            raise ValueError(
                f"the Delta table deletes rows of a file that it does not have: {uri!r}"
            )
        masks[file] = mask.values.to_numpy(zero_copy_only=False)
    return masks
