"""Run by torchrun: each rank reads all of a store, several times, by a cache that both share."""

from __future__ import annotations

import json
import sys

from tests.remote.reading import digests, open_dataset

NUM_EPOCHS = 4


def main() -> None:
    """Read as the arguments say, and compare with the digests that they give."""
    url, options, expected = map(json.loads, sys.argv[1:])
    for _ in range(NUM_EPOCHS):
        dataset = open_dataset(url, shuffle=True, seed=7, **options)
        assert digests(dataset) == expected


if __name__ == "__main__":
    main()
