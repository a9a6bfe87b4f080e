"""Work that one rank of a job does for all, such as the listing of a store.

Ranks that make the same data set at about the same time ask for the same listing and the same
footers. The first of them gets these and leaves them in the store of torch.distributed. The others
take them from there, so a job of a thousand ranks lists once and reads each footer once. No rank
has to come: whoever finds nothing works by itself.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from torchparquet._impl.ranks.job_start import await_keys, job_start

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

    from torchparquet._impl.ranks.job_start import Peers

# A store takes no value above 8 MiB, and the process that holds it has only so much memory.
_PART_CHARACTERS = 4 << 20
_MOST_PARTS = 64
_NOTHING = "-"
# Tell the starts of a job under torchrun apart. Ranks of which torchrun counts other restarts,
# as it may on other nodes, work for themselves.
_OF_START = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")


def done_once(peers: Peers | None, what: str, work: Callable[[], bytes]) -> bytes:
    """Return the result of `work`, done once for the n-th calls of all ranks for one `what`."""
    if peers is None:
        return work()
    identity = [peers.ranks, what, [os.environ.get(name) for name in _OF_START]]
    digest = hashlib.blake2b(json.dumps(identity).encode(), digest_size=8).hexdigest()
    place = f"torchparquet/work/{digest}/{job_start(peers).number(digest)}"
    if peers.store.add(f"{place}/takers", 1) > 1:
        found = _await(peers.store, f"{place}/result")
        return work() if found is None else found
    left = _NOTHING
    try:
        made = work()
        packed = base64.b64encode(zlib.compress(made)).decode()
        parts = range(0, len(packed), _PART_CHARACTERS)
        if len(parts) <= _MOST_PARTS:
            for part, begin in enumerate(parts):
                text = packed[begin : begin + _PART_CHARACTERS]
                peers.store.set(f"{place}/result/{part}", text)
            left = str(len(parts))
    finally:
        # Also after a failure: others wait.
        peers.store.set(f"{place}/result", left)
    return made


def _await(store: Store, key: str) -> bytes | None:
    """Return the result of another rank; None if it left none within the store's timeout."""
    limit = store.timeout.total_seconds()  # type: ignore[attr-defined]
    if not await_keys(store, [key], limit):
        return None
    left = bytes(store.get(key)).decode()
    if left == _NOTHING:
        return None
    parts = [bytes(store.get(f"{key}/{number}")) for number in range(int(left))]
    return zlib.decompress(base64.b64decode(b"".join(parts)))
