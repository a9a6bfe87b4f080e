"""The mutations of a file: damage without a plan, and lies in the format's own terms."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from tests.fixtures.thrift_bytes import (
    COLUMN_META_DATA,
    FILE_NUM_ROWS,
    FILE_ROW_GROUPS,
    GROUP_COLUMNS,
    GROUP_NUM_ROWS,
    META_COMPRESSED_BYTES,
    META_DATA_OFFSET,
    META_DICTIONARY_OFFSET,
    META_NUM_VALUES,
    PAGE_CRC,
    Number,
    all_replaced,
    chunk_begin,
    footer,
    footer_begin,
    lists,
    num_bytes,
    numbers,
    pages_of,
    resized,
)

HOSTILE_NUMBERS = (
    *range(-3, 12),
    *(base + step for base in (32, 64, 127, 255, 2**15, 2**16, 2**24) for step in (-1, 0, 1)),
    *(sign * 2**bits + step for bits in (31, 32) for sign in (-1, 1) for step in (-1, 0, 1)),
    *(2**40, 2**56, 2**62, 2**63 - 1, -(2**40), -(2**62), -(2**63)),
)
HOSTILE_BYTES = (
    b"\0",
    b"\xff",
    b"\x7f",
    b"\x80",
    *(count.to_bytes(4, "little") for count in (0, 1, 2**16, 2**31 - 1, 2**31, 2**32 - 1)),
    *(bits.to_bytes(8, "little") for bits in (0, 2**63 - 1, 2**63, 2**64 - 1)),
    b"\xff\xff\xff\xff\x0f",  # headers of the longest runs, packed and repeated
    b"\xfe\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
)


FLIPPED_CHECKED_BIT = "flip a checked bit"


class Mutation(NamedTuple):
    """A damaged file."""

    kind: str
    content: bytes


@dataclass
class Target:
    """A file to mutate, and where in it stands what. Parts that cannot be parsed are unknown."""

    name: str
    content: bytes
    footer_begin: int = 0
    footer: dict[int, Any] = field(default_factory=dict)
    bodies: list[tuple[int, int]] = field(default_factory=list)
    footer_numbers: list[Number] = field(default_factory=list)
    page_numbers: list[Number] = field(default_factory=list)
    has_checksums: bool = False

    @staticmethod
    def parse(name: str, content: bytes) -> Target:
        """Find the numbers and the pages."""
        target = Target(name, content, footer_begin(content))
        try:
            target.footer = footer(content)
            target.footer_numbers = list(numbers(target.footer))
            pages = [page for chunk in target.chunks() for page in pages_of(content, chunk)]
        except (IndexError, KeyError, ValueError):
            return target
        target.bodies = sorted((page.begin, page.end) for page in pages if page.begin < page.end)
        target.page_numbers = [number for page in pages for number in numbers(page.header)]
        target.has_checksums = all(PAGE_CRC in page.header for page in pages)
        return target

    def chunks(self) -> list[dict[int, Any]]:
        """The ColumnMetaData of all column chunks."""
        groups = self.footer.get(FILE_ROW_GROUPS, [])
        return [column[COLUMN_META_DATA] for group in groups for column in group[GROUP_COLUMNS]]

    def differs_in_checked_bytes_only(self, content: bytes) -> bool:
        """True if all that was changed are bodies of pages that have a checksum."""
        borders = [0, *(border for body in self.bodies for border in body), len(self.content)]
        outside = list(pairwise(borders))[::2]
        return (
            self.has_checksums
            and len(content) == len(self.content) != 0
            and content != self.content
            and all(content[begin:end] == self.content[begin:end] for begin, end in outside)
        )


def flip_checked_bit(target: Target, rng: random.Random) -> Mutation:
    """Flip one bit of a page's body; the file has checksums, and each bit is as likely."""
    lengths = [end - begin for begin, end in target.bodies]
    ((begin, end),) = rng.choices(target.bodies, lengths)
    damaged = bytearray(target.content)
    damaged[rng.randrange(begin, end)] ^= 1 << rng.randrange(8)
    return Mutation(FLIPPED_CHECKED_BIT, bytes(damaged))


def mutate(target: Target, rng: random.Random) -> Mutation:
    """Damage the file in one way, or in two."""
    kind = rng.choice(list(_MUTATIONS))
    content = _MUTATIONS[kind](target, rng)
    if rng.random() < 0.1:
        content = _flip_bits(Target(target.name, content, target.footer_begin), rng)
    return Mutation(kind, content)


def _anywhere(target: Target, rng: random.Random) -> int:
    """An offset; parts that are short are as likely as parts that are long."""
    size = len(target.content)
    part = rng.randrange(4)
    if part == 0 and 0 < target.footer_begin < size:
        return rng.randrange(target.footer_begin, size)
    if part == 1 and target.page_numbers:
        return max(0, min(rng.choice(target.page_numbers).begin + rng.randint(-2, 2), size - 1))
    if part == 2 and target.bodies:
        return _near_begin(*rng.choice(target.bodies), rng)
    return rng.randrange(size)


def _near_begin(begin: int, end: int, rng: random.Random) -> int:
    """An offset where lengths, widths and run headers stand."""
    return begin + min(end - begin - 1, int(rng.expovariate(0.1)))


def _overwritten(content: bytes, at: int, new: bytes) -> bytes:
    new = new[: len(content) - at]
    return content[:at] + new + content[at + len(new) :]


def _flip_bits(target: Target, rng: random.Random) -> bytes:
    damaged = bytearray(target.content)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        if damaged:
            damaged[min(_anywhere(target, rng), len(damaged) - 1)] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def _overwrite(target: Target, rng: random.Random) -> bytes:
    new = rng.choice(HOSTILE_BYTES) if rng.random() < 0.7 else rng.randbytes(rng.randint(1, 12))
    return _overwritten(target.content, _anywhere(target, rng), new)


def _overwrite_bodies(target: Target, rng: random.Random) -> bytes:
    content = target.content
    if not target.bodies:
        return _overwrite(target, rng)
    for _ in range(rng.choice((1, 1, 3))):
        begin, end = rng.choice(target.bodies)
        at = _near_begin(begin, end, rng)
        new = rng.choice((rng.choice(HOSTILE_BYTES), rng.randbytes(1), rng.randbytes(6)))
        content = _overwritten(content, at, new[: end - at])
    return content


def _truncate(target: Target, rng: random.Random) -> bytes:
    """Cut the file's end off, or what stands before the footer."""
    at = _anywhere(target, rng)
    end = target.content[target.footer_begin :] if rng.random() < 0.7 else b""
    return target.content[:at] + end


def _span(target: Target, rng: random.Random) -> tuple[int, int]:
    begin = _anywhere(target, rng)
    return begin, min(begin + rng.choice((1, 2, 8, 64, 500)), len(target.content))


def _remove(target: Target, rng: random.Random) -> bytes:
    begin, end = _span(target, rng)
    return target.content[:begin] + target.content[end:]


def _repeat(target: Target, rng: random.Random) -> bytes:
    begin, end = _span(target, rng)
    return target.content[:end] + target.content[begin:]


def _copy_over(target: Target, rng: random.Random) -> bytes:
    begin, end = _span(target, rng)
    return _overwritten(target.content, _anywhere(target, rng), target.content[begin:end])


def _hostile(value: int, rng: random.Random) -> int:
    near = (value - 1, value + 1, 2 * value, value // 2, -value, value + rng.randint(-20, 20))
    number = rng.choice(near) if rng.random() < 0.5 else rng.choice(HOSTILE_NUMBERS)
    return max(-(2**63), min(number, 2**63 - 1))


def _lie(target: Target, rng: random.Random, among: Sequence[Number]) -> bytes:
    if not among:
        return _overwrite(target, rng)
    chosen = rng.sample(among, min(len(among), rng.choice((1, 1, 1, 2, 3))))
    lies = {number: _hostile(number.value, rng) for number in chosen}
    return all_replaced(target.content, _places_kept_right(target, lies) | lies)


def _places_kept_right(target: Target, lies: dict[Number, int]) -> dict[Number, int]:
    """Offsets and sizes of column chunks as they are once those numbers take more room or less."""
    grown = {n.begin: num_bytes(value) - (n.end - n.begin) for n, value in lies.items()}
    right = {}
    for chunk in target.chunks():
        begin, size = chunk_begin(chunk), chunk[META_COMPRESSED_BYTES]
        inside = sum(more for at, more in grown.items() if begin <= at < begin + size.value)
        right[size] = size.value + inside
        for key in (META_DATA_OFFSET, META_DICTIONARY_OFFSET):
            if key in chunk:
                offset = chunk[key]
                right[offset] = offset.value + sum(
                    more for at, more in grown.items() if at < offset.value
                )
    return {number: value for number, value in right.items() if value != number.value}


def _lie_in_footer(target: Target, rng: random.Random) -> bytes:
    return _lie(target, rng, target.footer_numbers)


def _lie_in_page_headers(target: Target, rng: random.Random) -> bytes:
    return _lie(target, rng, target.page_numbers)


def _lie_about_lists(target: Target, rng: random.Random) -> bytes:
    heads = list(lists(target.footer))
    if not heads:
        return _overwrite(target, rng)
    items = rng.choice(heads)
    size = rng.choice((0, len(items) - 1, len(items) + 1, 2**16, 999_999, 2**31 - 1, 2**32 - 1))
    return resized(target.content, items, max(0, size))


def _lie_about_rows(target: Target, rng: random.Random) -> bytes:
    """All counts of a row group tell the same wrong number of rows, or all but one."""
    groups = target.footer.get(FILE_ROW_GROUPS)
    if not groups:
        return _overwrite(target, rng)
    group = rng.choice(groups)
    chunks = [column[COLUMN_META_DATA] for column in group[GROUP_COLUMNS]]
    counts = [target.footer[FILE_NUM_ROWS], group[GROUP_NUM_ROWS]]
    counts += [chunk[META_NUM_VALUES] for chunk in chunks]
    if rng.random() < 0.3:
        counts.remove(rng.choice(counts))
    delta = _hostile(group[GROUP_NUM_ROWS].value, rng) - group[GROUP_NUM_ROWS].value
    limits = -(2**63), 2**63 - 1
    return all_replaced(
        target.content,
        {count: max(limits[0], min(count.value + delta, limits[1])) for count in counts},
    )


_MUTATIONS: dict[str, Callable[[Target, random.Random], bytes]] = {
    "flip bits": _flip_bits,
    "overwrite": _overwrite,
    "overwrite pages": _overwrite_bodies,
    "truncate": _truncate,
    "remove": _remove,
    "repeat": _repeat,
    "copy over": _copy_over,
    "lie in footer": _lie_in_footer,
    "lie in page headers": _lie_in_page_headers,
    "lie about lists": _lie_about_lists,
    "lie about rows": _lie_about_rows,
}
MUTATION_KINDS = (*_MUTATIONS, FLIPPED_CHECKED_BIT)
