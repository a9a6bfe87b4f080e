"""Iceberg tables: what their metadata say of the files of one snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import expression_to_pyarrow, schema_to_pyarrow
from pyiceberg.transforms import IdentityTransform

from torchparquet._impl.files.footers.leaf import Leaf
from torchparquet._impl.files.manifest_reading import leaves_of
from torchparquet._impl.files.remote.credentials import OptionsFunction
from torchparquet._impl.tables.table_source import Names, TableSource
from torchparquet.errors import CorruptFileError, one_line

_OPTIONS = {
    "s3.access-key-id": "aws_access_key_id",
    "s3.secret-access-key": "aws_secret_access_key",
    "s3.session-token": "aws_session_token",
    "s3.region": "aws_region",
    "s3.endpoint": "aws_endpoint_url",
    "gcs.oauth2.token": "bearer_token",
    "adls.account-name": "azure_storage_account_name",
    "adls.account-key": "azure_storage_account_key",
    "adls.sas-token": "azure_storage_sas_token",
}
_SAS = "adls.sas-token."


def iceberg_source(table: Any) -> TableSource:
    """Return the files of a table, or of a scan with its filter, of pyiceberg in its snapshot."""
    scan = table if hasattr(table, "plan_files") else table.scan()
    if scan.limit is not None:
        raise ValueError(
            "a scan with a limit cannot be read, because its rows are not known: give limit_steps= "
            "instead"
        )
    snapshot = scan.snapshot()
    try:
        tasks = list(scan.plan_files())
    except (NotImplementedError, ValueError) as error:
        raise ValueError(f"the Iceberg table cannot be read: {one_line(error)}") from error
    if snapshot is None or not tasks:
        raise ValueError("the Iceberg table, or what its scan leaves, has no files")
    tasks.sort(key=lambda task: task.file.file_path)
    for task in tasks:
        if task.file.file_format != "PARQUET":
            raise ValueError(f"a file of the Iceberg table is no Parquet: {task.file.file_path!r}")
    by_schema = {schema.schema_id: schema for schema in (scan.table_metadata.schemas)}
    # A scan of an earlier snapshot shows the schema of that time.
    schema = by_schema.get(snapshot.schema_id, scan.table_metadata.schema())
    if snapshot == scan.table_metadata.current_snapshot():
        schema = scan.table_metadata.schema()
    arrow_schema: pa.Schema = schema_to_pyarrow(schema)
    paths = {leaf.field_id: leaf.path for leaf in leaves_of(arrow_schema) if leaf.field_id >= 0}
    options = _options(scan.io.properties)
    return TableSource(
        tuple(_local(task.file.file_path) for task in tasks),
        f"snapshot {snapshot.snapshot_id} of the Iceberg table {scan.table_metadata.table_uuid}",
        _keys(scan, schema, tasks),
        arrow_schema,
        _names(paths, scan.table_metadata),
        _deletions(scan.io, tasks),
        filters=_filter(scan, schema),
        defaults=_defaults(schema),
        storage_options=_renewed(table) if _are_vended(table, options) else options,
    )


def _options(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return what properties say of a store."""
    found = {_OPTIONS[k]: v for k, v in properties.items() if k in _OPTIONS}
    for name, value in properties.items():
        if name.startswith(_SAS):
            account = name.removeprefix(_SAS).partition(".")[0]
            found |= {"azure_storage_account_name": account, "azure_storage_sas_token": value}
    return found


def _are_vended(table: Any, options: Mapping[str, Any]) -> bool:
    """Return whether the table's catalog gives options that it has not itself."""
    catalog = getattr(table, "catalog", None)
    return catalog is not None and not options.items() <= _options(catalog.properties).items()


def _renewed(table: Any) -> OptionsFunction:
    """Return what asks the catalog for the options anew; it pickles, as catalogs may not."""
    identifier = table.table_identifier if hasattr(table, "plan_files") else table.name()
    return partial(_asked, table.catalog.name, dict(table.catalog.properties), identifier)


def _asked(
    catalog: str, properties: Mapping[str, str], identifier: Any
) -> tuple[dict[str, Any], float | None]:
    """Return the options that a catalog gives for a table now, and when they end."""
    found = load_catalog(catalog, **properties).load_table(identifier).io.properties
    ends = [float(v) / 1000 for k, v in found.items() if "expires-at" in k and str(v).isdecimal()]
    return _options(found), min(ends, default=None)


def _local(uri: str) -> str:
    """Return the path of a file on disk; other URIs as they are. Nothing is escaped in them."""
    return "/" + uri.removeprefix("file:").lstrip("/") if uri.startswith("file:") else uri


def _defaults(schema: Any) -> dict[str, Any]:
    """Return the values of columns in files that are older than they."""
    found = {n: schema.find_field(n).initial_default for n in schema.field_ids}
    defaults = {schema.find_column_name(n): d for n, d in found.items() if d is not None}
    nested = [name for name in defaults if "." in name]
    if nested:
        raise ValueError(f"a default within a nested column cannot be read: {nested[0]!r}")
    return defaults


def _filter(scan: Any, schema: Any) -> pc.Expression | None:
    if isinstance(scan.row_filter, AlwaysTrue):
        return None
    bound = bind(schema, scan.row_filter, case_sensitive=scan.case_sensitive)
    found: pc.Expression = expression_to_pyarrow(bound)
    return found


def _keys(scan: Any, schema: Any, tasks: list[Any]) -> list[dict[str, Any]]:
    """Return the values of columns that partitions hold as they are: files may lack them."""
    specs = scan.table_metadata.specs()
    found = []
    for task in tasks:
        values = {
            schema.find_column_name(field.source_id): task.file.partition[place]
            for place, field in enumerate(specs[task.file.spec_id].fields)
            if isinstance(field.transform, IdentityTransform)
        }
        values.pop(None, None)  # of a column that was dropped
        found.append(values)
    return found


def _names(paths: Mapping[int, str], metadata: Any) -> Names:
    """Return a function that finds the table's names of files' columns by the ids of fields."""

    def names(leaves: Sequence[Leaf]) -> list[str | None]:
        if any(leaf.field_id >= 0 for leaf in leaves):
            return [paths.get(leaf.field_id) for leaf in leaves]
        # Files that were added as they are. The table's mapping has all names of a column.
        mapping = metadata.name_mapping()
        if mapping is None:
            raise ValueError(
                "files of the Iceberg table have no ids of fields, and it does not map names"
            )
        ids = dict(_mapped(mapping.root, ""))
        return [paths.get(ids.get(leaf.path, -1)) for leaf in leaves]

    return names


def _mapped(fields: Any, prefix: str) -> Iterator[tuple[str, int]]:
    """Yield each path that a mapping of names has for a leaf, and its field's id."""
    for field in fields:
        for name in field.names:
            # Paths of leaves leave out the groups that only make lists and maps.
            is_group = name in ("element", "key_value", "list")
            path = prefix if prefix and is_group else ".".join(filter(None, (prefix, name)))
            if field.fields:
                yield from _mapped(field.fields, path)
            elif field.field_id is not None:
                yield path, field.field_id


def _deletions(io: Any, tasks: list[Any]) -> dict[int, NDArray[np.bool_]]:
    """Return masks of the rows that are left, by number of the file."""
    read: dict[str, dict[str, NDArray[np.int64]]] = {}
    masks: dict[int, NDArray[np.bool_]] = {}
    for number, task in enumerate(tasks):
        path, num_rows = task.file.file_path, task.file.record_count
        for deletes in sorted(task.delete_files, key=lambda file: file.file_path):
            if deletes.file_path not in read:
                read[deletes.file_path] = dict(_positions(io, deletes))
            rows = read[deletes.file_path].get(path, np.zeros(0, np.int64))
            if len(rows) and not 0 <= rows.min() <= rows.max() < num_rows:
                wrong = rows.min() if rows.min() < 0 else rows.max()
                raise CorruptFileError(
                    f"{deletes.file_path!r} deletes row {wrong} of {path!r}, which has {num_rows}"
                )
            mask = masks.setdefault(number, np.ones(num_rows, bool))
            mask[rows] = False
    return masks


def _positions(io: Any, deletes: Any) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield the files of which a file of deletes names rows, and these rows."""
    with io.new_input(deletes.file_path).open() as opened:
        content = opened.read()
    if deletes.file_format == "PUFFIN":
        from pyiceberg.io.pyarrow import PuffinFile, deletion_vectors_from_puffin_file

        for vector in deletion_vectors_from_puffin_file(PuffinFile(content)):
            yield str(vector.referenced_data_file), vector.to_vector().to_numpy()
        return
    table = pq.read_table(pa.BufferReader(content), columns=["file_path", "pos"])
    files = table["file_path"].combine_chunks().dictionary_encode()
    codes, numbers = files.indices.to_numpy(), table["pos"].to_numpy()
    for code, file in enumerate(files.dictionary.to_pylist()):
        yield str(file), numbers[codes == code]
