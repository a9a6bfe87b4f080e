"""A proxy that clients speak TLS with, and that connects them to whatever they ask for.

    python -m tests.servers.tls_proxy PORT CERTIFICATE

It prints a line for each connection. The certificate is in one file with its key.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from asyncio import StreamReader, StreamWriter
from contextlib import suppress


async def _copy(reader: StreamReader, writer: StreamWriter) -> None:
    """Copy until either side ends."""
    with suppress(OSError):
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
    writer.close()


async def _connect(reader: StreamReader, writer: StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    method, authority, _ = head.decode().split(" ", 2)
    print(method, authority, flush=True)
    host, _, port = authority.rpartition(":")
    there = await asyncio.open_connection(host, int(port))
    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))


async def serve(port: int, certificate: str) -> None:
    """Serve until the process is killed."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    server = await asyncio.start_server(_connect, "127.0.0.1", port, ssl=tls)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2]))
