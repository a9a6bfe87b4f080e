"""Credentials that a service gives for a while: of a role, and of a catalog of Iceberg."""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.files.remote.conftest import Bucket
from torchparquet import ParquetDataset

# Short, so that a test sees them end; each is used for half of it.
SECONDS = 2.0


def test_a_role_is_assumed_again(bucket: Bucket, tree: Path) -> None:
    """By the names of Polars, whose providers return such pairs."""
    boto3 = pytest.importorskip("boto3")
    url, endpoint = bucket.upload(tree), bucket.options["endpoint_url"]
    given: list[str] = []

    def assumed() -> tuple[dict[str, str], float]:
        client = boto3.client(
            "sts",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id="AKIA",
            aws_secret_access_key="s",
        )
        role = "arn:aws:iam::123456789012:role/reader"
        made = client.assume_role(RoleArn=role, RoleSessionName="train", DurationSeconds=900)
        credentials = made["Credentials"]
        given.append(credentials["AccessKeyId"])
        options = {
            "aws_access_key_id": credentials["AccessKeyId"],
            "aws_secret_access_key": credentials["SecretAccessKey"],
            "aws_session_token": credentials["SessionToken"],
            "aws_endpoint_url": endpoint,
        }
        assert credentials["Expiration"].timestamp() > time.time() + 600
        return options, time.time() + SECONDS

    dataset = ParquetDataset(url, batch_size=64, storage_options=assumed)
    epochs = [[batch["id"].tolist() for batch in dataset]]
    while len(given) < 3:
        epochs.append([batch["id"].tolist() for batch in dataset])
    assert sorted(id_ for batch in epochs[0] for id_ in batch) == list(range(400))
    assert epochs == [epochs[0]] * len(epochs)
    assert len(set(given)) == len(given)
    assert bucket.filesystem  # holds the server's bucket until here


def test_a_provider_of_polars(bucket: Bucket, tree: Path, monkeypatch: Any) -> None:
    polars = pytest.importorskip("polars")
    url = bucket.upload(tree)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.options["endpoint_url"])
    role = {"RoleArn": "arn:aws:iam::123456789012:role/reader", "RoleSessionName": "train"}
    provider = polars.CredentialProviderAWS(assume_role=role)
    dataset = ParquetDataset(url, batch_size=64, storage_options=provider)
    assert sorted(id_ for batch in dataset for id_ in batch["id"].tolist()) == list(range(400))


class RestCatalogServer(ThreadingHTTPServer):
    """As much of Iceberg's REST protocol as loading one table takes; it vends credentials."""

    def __init__(self, table: Any) -> None:
        """Serve a table that exists."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.table, self.keys = table, list[str]()


class _Handler(BaseHTTPRequestHandler):
    server: RestCatalogServer

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        answer: dict[str, Any] = {"defaults": {}, "overrides": {}}
        if "/tables/" in self.path:
            table, keys = self.server.table, self.server.keys
            keys.append(f"AKIA{len(keys)}")
            answer = {
                "metadata-location": table.metadata_location,
                "metadata": json.loads(table.metadata.model_dump_json()),
                "config": {
                    "s3.access-key-id": keys[-1],
                    "s3.secret-access-key": "secret",
                    "s3.session-token": f"token {len(keys)}",
                    "s3.session-token-expires-at-ms": str(int((time.time() + SECONDS) * 1000)),
                },
            }
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def served(bucket: Bucket, tmp_path: Path) -> Iterator[RestCatalogServer]:
    """A table in a bucket, and its server."""
    pytest.importorskip("sqlalchemy")
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    options = {
        "s3.endpoint": bucket.options["endpoint_url"],
        "s3.access-key-id": "AKIA",
        "s3.secret-access-key": "secret",
        "s3.region": "us-east-1",
    }
    made = sql.SqlCatalog(
        "made", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"{bucket.url}/w", **options
    )
    made.create_namespace("n")
    rows = pa.table({"id": pa.array(range(300), pa.int64())})
    table = made.create_table("n.t", rows.schema)
    for begin in (0, 100, 200):
        table.append(rows.slice(begin, 100))
    with RestCatalogServer(table) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("is_scan", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_catalog_vends_again(served: RestCatalogServer, bucket: Bucket, is_scan: bool) -> None:
    rest = pytest.importorskip("pyiceberg.catalog.rest")
    options = {"s3.endpoint": bucket.options["endpoint_url"], "s3.region": "us-east-1"}
    catalog = rest.RestCatalog("rest", uri=f"http://127.0.0.1:{served.server_port}", **options)
    table = catalog.load_table("n.t")
    dataset = ParquetDataset(table.scan("id < 250") if is_scan else table, batch_size=32)
    copied = pickle.loads(pickle.dumps(dataset))
    num_rows, num_before = 250 if is_scan else 300, len(served.keys)
    while len(served.keys) < num_before + 2:
        for one in (dataset, copied):
            ids = [id_ for batch in one for id_ in batch["id"].tolist()]
            assert sorted(ids) == list(range(num_rows))
