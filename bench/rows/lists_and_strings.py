"""Lists and strings against pyarrow."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

from generated import generated_files
from passes.sides import ContentError, ForkedSide, take_turns
from report.verdicts import OURS, Outcome, Row, Setting, Verdict, median, ratio, seconds
from routes.contenders import LIKELY, fastest_routes, side, torchparquet_route, whole_row_groups
from torchparquet import Column

LISTS = 3.0
STRINGS = 2.0
_FINALISTS = 2


def _check_values(sides: list[ForkedSide]) -> None:
    """Compares the bytes of all values, in order; offsets differ, as batches do."""
    contents = [one.ask("examine").columns["x"] for one in sides]
    if len(set(contents)) > 1:
        raise ContentError(f"values differ: {[one.name for one in sides]}: {contents}")


def _verdict(
    setting: Setting, case: str, path: Path, column: Column, batch_size: int, target: float
) -> Verdict:
    routes = whole_row_groups(setting.num_threads)
    if setting.quick:
        routes = [route for route in routes if route.name in LIKELY]
    routes = fastest_routes(routes, path, None, _FINALISTS)
    ours = torchparquet_route(setting.num_threads, columns={"x": column})
    sides = [side(ours, path, batch_size), *(side(route, path, None) for route in routes)]
    _check_values(sides)
    passes = take_turns(sides, setting.repeats, content="same in each")
    mine = passes.pop(OURS)
    name = min(passes, key=lambda name: median(passes[name], seconds))
    return ratio(case, mine, (f"pyarrow, {name}", passes[name]), target)


def lists(setting: Setting) -> Outcome:
    """Blocks of tokens and vectors, to one tensor of shape [rows, length]."""
    works: dict[str, tuple[Callable[[Setting, str], Path], int, int]] = {
        "list<int32> of 2048": (generated_files.tokens, generated_files.TOKENS, 64),
        "fixed-size list<float32> of 768": (generated_files.vectors, generated_files.VECTOR, 1024),
    }
    outcome = Outcome()
    for (work, (make, length, batch_size)), codec in product(works.items(), setting.codecs):
        column = Column("x", length=length)
        case = f"{work}, batches of {batch_size}, {codec}"
        path = make(setting, codec)
        outcome.verdicts.append(_verdict(setting, case, path, column, batch_size, LISTS))
    return outcome


def strings(setting: Any) -> Outcome:
    """Strings to values and offsets."""
    outcome = Outcome()
    for encoding, codec in product(("plain", "dictionary"), setting.codecs):
        path = generated_files.strings(setting, codec, encoding)
        case = f"{encoding}, {codec}"
        outcome.verdicts.append(
            _verdict(setting, case, path, Column("x"), setting.batch_size, STRINGS)
        )
    return outcome


ROWS = (
    Row(
        "lists",
        "list<int32> token blocks of 2048; fixed-size list<float32>[768]",
        "pyarrow to a tensor, whole row groups",
        lists,
    ),
    Row(
        "strings",
        "strings of 16 bytes on average, plain and dictionary, batches of 8192",
        "pyarrow to values and offsets, whole row groups",
        strings,
    ),
)
