"""A piece of the store: a file, or memory without a name, that says what it has.

records | items | digests of blocks | what it is, as JSON | its size | a sum | the magic
"""

from __future__ import annotations

import json
import os
import tempfile

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.native import digests_of_blocks, map_bytes, read_ahead
from torchparquet._impl.plan.plan_options import Int64Array
from torchparquet._impl.sampling.store.records import Layout

# A disk that is colder than memory reads so much for little more than a page.
BLOCK_BYTES = 64 << 10
_MAGIC = b"tpqrows1"


class Piece:
    """A piece that is mapped to memory."""

    def __init__(self, descriptor: int, name: str) -> None:
        """Map a file; ValueError unless it is whole and was written as the piece of this name."""
        whole = _mapped(descriptor) if os.fstat(descriptor).st_size >= 24 else np.zeros(0, np.uint8)
        if whole[-8:].tobytes() != _MAGIC:
            raise ValueError("it is cut short, or no such file")
        head_bytes = int(whole[-24:-16].view("<u8")[0])
        head_begin = len(whole) - 24 - head_bytes
        try:
            head = json.loads(whole[max(0, head_begin) : -24].tobytes())
            self.layout = Layout.parsed(head["layout"])
            content_bytes: int = head["bytes"]
            digests_end = content_bytes + 8 * -(-content_bytes // BLOCK_BYTES)
            is_whole, written_as = digests_end == head_begin, head["name"]
        except (ValueError, KeyError, TypeError):
            is_whole = False
        if not is_whole or _sum(whole[content_bytes:-24].tobytes()) != whole[-16:].tobytes():
            raise ValueError("it does not say what it has")
        if written_as != name:
            raise ValueError("it is one of other rows")
        self.content = whole[:content_bytes]
        self.digests = np.frombuffer(whole[content_bytes:digests_end].tobytes(), "<u8")

    def is_damaged(self, blocks: Int64Array) -> bool:
        """True if a block, of these numbers, is not as it was written."""
        begins = blocks * BLOCK_BYTES
        sizes = np.minimum(len(self.content) - begins, BLOCK_BYTES)
        read_ahead(self.content.ctypes.data + begins.astype(np.uint64), sizes)
        for block in blocks.tolist():
            own = self.content[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES]
            if digests_of_blocks(own, BLOCK_BYTES)[0] != self.digests[block]:
                return True
        return False


def finish_piece(descriptor: int, layout: Layout, name: str, content_bytes: int) -> None:
    """Write the digests of the blocks of a piece after its content, and what it is."""
    digests = np.zeros(0, np.uint64)
    if content_bytes:
        digests = digests_of_blocks(_mapped(descriptor)[:content_bytes], BLOCK_BYTES)
    head = {"name": name, "bytes": content_bytes, "layout": layout.parts}
    tail = digests.astype("<u8").tobytes() + json.dumps(head).encode()
    sizes = np.array([len(tail) - 8 * len(digests)], "<u8").tobytes()
    write_at(descriptor, content_bytes, np.frombuffer(tail + sizes + _sum(tail), np.uint8))


def unnamed_memory() -> int:
    """Return the descriptor of memory that has no name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("torchparquet-rows", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def write_at(descriptor: int, place: int, content: NDArray[np.uint8]) -> None:
    """Write all of an array at a place of a file."""
    left: memoryview = content.reshape(-1).data
    while len(left):
        count = os.pwrite(descriptor, left, place)
        left, place = left[count:], place + count


def _mapped(descriptor: int) -> NDArray[np.uint8]:
    return map_bytes(descriptor, os.fstat(descriptor).st_size)


def _sum(content: bytes) -> bytes:
    digest = digests_of_blocks(np.frombuffer(content, np.uint8), max(1, len(content)))
    return bytes(digest.astype("<u8").tobytes() + _MAGIC)
