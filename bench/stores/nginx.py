"""A store on this machine that answers as slowly as a distant one: nginx, with a script in Lua.

A request waits before its first byte, some of them long, and each connection has its bandwidth.
Objects are found by path-style addresses of S3, and listed by as much of ListObjectsV2 as readers
of one folder need, 1,000 keys a page.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from report.verdicts import SkippedError

BUCKET = "bucket"
NEEDED = "nginx, libnginx-mod-http-lua and libluajit2-5.1-2 of Debian (apt-get install)"
_MODULES = Path("/usr/lib/nginx/modules")
_MODULE_NAMES = ("ndk_http_module.so", "ngx_http_lua_module.so")
_START_SECONDS = 20


@dataclass(frozen=True)
class Distance:
    """How far away a store seems to be.

    Attributes:
        first_byte_ms: Before each answer.
        late_ms: Before the answers that are late instead.
        late_share: Of all.
        connection_kb_per_second: Bandwidth of each connection, in 1e3 bytes; 0 for no limit.
    """

    first_byte_ms: float
    late_ms: float = 600
    late_share: float = 0.01
    connection_kb_per_second: int = 60_000

    def __str__(self) -> str:
        """Returns it as tables show it."""
        late = f", {self.late_share:.0%} at {self.late_ms:g} ms" if self.late_share else ""
        rate = self.connection_kb_per_second
        return f"{self.first_byte_ms:g} ms{late}" + (f", {rate / 1e3:g} MB/s each" if rate else "")


@dataclass(frozen=True)
class Place:
    """Objects at some distance.

    Attributes:
        endpoint: Of S3, an address without a path.
        key: Of the object or, with a slash at its end, the folder.
    """

    endpoint: str
    key: str

    @property
    def path(self) -> str:
        """Bucket and key."""
        return f"{BUCKET}/{self.key}"

    @property
    def s3_url(self) -> str:
        """As users of S3 write it."""
        return f"s3://{self.path}"

    @property
    def http_url(self) -> str:
        """As it is on the web."""
        return f"{self.endpoint}/{self.path}"


_CONFIGURATION = """
%(modules)s
user root;
worker_processes 2;
daemon off;
pid %(folder)s/nginx.pid;
error_log %(folder)s/error.log error;
events { worker_connections 4096; }
http {
  log_format requests '$msec $request_method $request_uri $http_range $status';
  access_log %(log)s;
  default_type application/octet-stream;
  sendfile on;
  tcp_nodelay on;
  keepalive_requests 1000000000;
  client_body_temp_path %(folder)s/body;
  proxy_temp_path %(folder)s/proxy;
  fastcgi_temp_path %(folder)s/fastcgi;
  uwsgi_temp_path %(folder)s/uwsgi;
  scgi_temp_path %(folder)s/scgi;
  lua_package_path "%(folder)s/?.lua;/usr/share/lua/5.1/?.lua;;";
  init_by_lua_block { require "listing" }
  init_worker_by_lua_block { math.randomseed(1 + ngx.worker.id()) }
%(servers)s
}
"""
_SERVER = """
  server {
    listen 127.0.0.1:%(port)d backlog=1024;
    root %(folder)s/served;
    access_by_lua_block {
      local late = math.random() < %(late_share)g
      local seconds = late and %(late)g or %(delay)g
      if seconds > 0 then ngx.sleep(seconds) end
    }
    location / { %(limit)s try_files $uri =404; }
    location = /%(bucket)s { content_by_lua_block { require("listing").answer() } }
    location = /%(bucket)s/ { content_by_lua_block { require("listing").answer() } }
  }
"""
_LISTING = """
local keys = {
%s
}
local module = {}
function module.answer()
  local prefix = ngx.var.arg_prefix and ngx.unescape_uri(ngx.var.arg_prefix) or ""
  local after = ngx.unescape_uri(ngx.var["arg_continuation-token"] or "")
  local most = tonumber(ngx.var["arg_max-keys"]) or 1000
  local parts, count, last, more = {}, 0, "", ""
  for _, one in ipairs(keys) do
    if one[1] > after and one[1]:sub(1, #prefix) == prefix then
      if count == most then
        more = "<NextContinuationToken>" .. last .. "</NextContinuationToken>"
        break
      end
      count, last = count + 1, one[1]
      parts[count] = "<Contents><Key>" .. one[1] .. "</Key>"
        .. "<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;" .. one[2]
        .. "&quot;</ETag><Size>" .. one[3] .. "</Size><StorageClass>STANDARD</StorageClass>"
        .. "</Contents>"
    end
  end
  ngx.header["Content-Type"] = "application/xml"
  ngx.print('<?xml version="1.0" encoding="UTF-8"?>',
    '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>%s</Name><Prefix>',
    prefix, "</Prefix><KeyCount>", count, "</KeyCount><MaxKeys>", most, "</MaxKeys>", more,
    "<IsTruncated>", tostring(more ~= ""), "</IsTruncated>", table.concat(parts),
    "</ListBucketResult>")
end
return module
"""


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _listing(served: Path) -> str:
    lines = []
    for path in sorted((served / BUCKET).rglob("*")):
        if path.is_file():
            found = path.stat()
            # As nginx makes it.
            etag = f"{int(found.st_mtime):x}-{found.st_size:x}"
            key = path.relative_to(served / BUCKET).as_posix()
            lines.append(f'{{"{key}", "{etag}", "{found.st_size}"}},')
    return _LISTING % ("\n".join(lines), BUCKET)


def _configuration(
    folder: Path, distances: Sequence[Distance], ports: Sequence[int], log: Path | None
) -> str:
    servers = [
        _SERVER
        % {
            "port": port,
            "folder": folder,
            "bucket": BUCKET,
            "delay": distance.first_byte_ms / 1e3,
            "late": distance.late_ms / 1e3,
            "late_share": distance.late_share,
            "limit": f"limit_rate {distance.connection_kb_per_second * 1000};",
        }
        for distance, port in zip(distances, ports, strict=True)
    ]
    modules = "\n".join(f"load_module {_MODULES / name};" for name in _MODULE_NAMES)
    return _CONFIGURATION % {
        "modules": modules,
        "folder": folder,
        "servers": "".join(servers),
        "log": "off" if log is None else f"{log} requests",
    }


def _await(process: subprocess.Popen[bytes], ports: Sequence[int], folder: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    for port in ports:
        while True:
            with socket.socket() as trial:
                if trial.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if process.poll() is not None or time.monotonic() > deadline:
                log = folder / "error.log"
                raise RuntimeError(f"nginx does not run: {log.read_text() if log.exists() else ''}")
            time.sleep(0.01)


@contextmanager
def store(
    folder: Path,
    objects: Mapping[str, Path],
    distances: Sequence[Distance],
    log: Path | None = None,
) -> Iterator[list[str]]:
    """Runs nginx and yields an endpoint for each distance.

    Args:
        folder: For its files; empty.
        objects: Files and folders by their keys.
        distances: Of the same objects.
        log: A file to write that gets a line for each request: when it ended in seconds since
            1970, its method, address, range and status.

    Raises:
        SkippedError: nginx or its module is not installed.
    """
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if program is None or not all((_MODULES / name).exists() for name in _MODULE_NAMES):
        raise SkippedError(f"needs {NEEDED}")
    bucket = folder / "served" / BUCKET
    bucket.mkdir(parents=True)
    for key, path in objects.items():
        if path.is_dir():
            shutil.copytree(path, bucket / key)
        else:
            (bucket / key).symlink_to(path.resolve())
    (folder / "listing.lua").write_text(_listing(folder / "served"))
    ports = _free_ports(len(distances))
    (folder / "nginx.conf").write_text(_configuration(folder, distances, ports, log))
    with (folder / "output.log").open("wb") as output:
        process = subprocess.Popen(
            [program, "-p", str(folder), "-c", str(folder / "nginx.conf")],
            stdout=output,
            stderr=output,
        )
    try:
        _await(process, ports, folder)
        yield [f"http://127.0.0.1:{port}" for port in ports]
    finally:
        process.terminate()
        process.wait()
