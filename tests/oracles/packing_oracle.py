"""A slow packer: documents into sequences, one document after the other."""

from __future__ import annotations

import itertools
from typing import Any

MAX_WINDOW_TOKENS = 2**22

# Of a document: its number, and the tokens [begin, end) that a sequence has of it.
Part = tuple[int, int, int]


def packed(
    lengths: list[int], length: int, strategy: str, window: int, multiple: int = 1
) -> list[list[Part]]:
    """Return the parts of each sequence, where each takes a multiple of tokens.

    Lengths count the separators.
    """
    documents = [(number, tokens) for number, tokens in enumerate(lengths) if tokens]
    if strategy != "best_fit":
        return in_order(documents, length, multiple, keeps_whole=strategy == "split")
    sequences: list[list[Part]] = []
    part: list[tuple[int, int]] = []
    for document in documents:
        part.append(document)
        if len(part) == window or sum(tokens for _, tokens in part) >= MAX_WINDOW_TOKENS:
            sequences += best_fit(part, length, multiple)
            part = []
    return sequences + best_fit(part, length, multiple)


def in_order(
    documents: list[tuple[int, int]], length: int, multiple: int, *, keeps_whole: bool
) -> list[list[Part]]:
    """Return sequences of documents one after the other."""
    sequences: list[list[Part]] = [[]]
    room = length
    for number, tokens in documents:
        if keeps_whole and tokens > room != length:
            sequences.append([])
            room = length
        for token in range(tokens):
            if room == 0:
                sequences.append([])
                room = length
            last = sequences[-1]
            if last and last[-1][0] == number:
                last[-1] = (number, last[-1][1], token + 1)
            else:
                last.append((number, token, token + 1))
            room -= 1
        room -= room % multiple
    return [sequence for sequence in sequences if sequence]


def best_fit(documents: list[tuple[int, int]], length: int, multiple: int) -> list[list[Part]]:
    """Return sequences that a document is placed in where the least is left over."""
    sequences: list[list[Part]] = []
    rests: list[Part] = []
    for number, tokens in documents:
        cuts = [*range(0, tokens, length), tokens]
        parts = [(number, *cut) for cut in itertools.pairwise(cuts)]
        sequences += [[part] for part in parts if part[2] - part[1] == length]
        rests += [part for part in parts if part[2] - part[1] < length]
    rooms: list[list[Any]] = []  # room, when it came to be, sequence
    for turn, part in enumerate(sorted(rests, key=lambda part: part[1] - part[2])):
        size = -(-(part[2] - part[1]) // multiple) * multiple
        fitting = [room for room in rooms if room[0] >= size]
        if fitting:
            room = min(fitting)
            room[2].append(part)
            room[:2] = [room[0] - size, turn]
        else:
            sequences.append([part])
            rooms.append([length - size, turn, sequences[-1]])
    return sorted(sorted(sequence) for sequence in sequences)
