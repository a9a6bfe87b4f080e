"""The state of a data set: where an epoch stands, small enough for any checkpoint.

A state counts batches that were delivered. It is the same on all ranks, so that of one is enough;
only DataLoader workers, which deliver each their own batches, have states of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from torchparquet._impl.plan.elastic import Leg
from torchparquet._impl.plan.plan_options import window_text
from torchparquet.errors import one_line

FORMAT = "torchparquet.ParquetDataset"
VERSION = 2
_MAX_NAMES_LENGTH = 200
_COUNT = 2**62

# The ways to deal with a state of other files or rows.
OtherData: TypeAlias = Literal["error", "next_epoch"]


@dataclass(frozen=True)
class Identity:
    """Facts in which two data sets must agree for the states of one to fit the other.

    Attributes:
        data: The manifest's content fingerprint: each node may have its own copy of the files.
        table: The version of the table that the files are of; "" if they are of none.
        files: What `data` is of, in numbers and names; only to say what differs.
    """

    data: str
    columns: str
    names: str
    order: Mapping[str, Any]
    table: str = ""
    files: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class State:
    """The position of an epoch.

    Attributes:
        legs: The worlds that have read it, the last with its batches delivered: by each rank, or
            by one worker.
        worker: The DataLoader worker whose batches were counted; None for a rank's.
        taken: With `even="dynamic"` the positions that the rank has taken; else None.
        rank: The rank that has taken them.
        has_ended: True if it has delivered all that it took, and no more was left.
    """

    epoch: int
    legs: tuple[Leg, ...]
    worker: int | None
    window: tuple[int, int]
    taken: tuple[int, ...] | None = None
    rank: int = 0
    has_ended: bool = False


def shortened_names(names: list[str]) -> str:
    """Return the names on one line of a bounded length, the first and the last if they are many."""
    text = ", ".join(names)
    half = _MAX_NAMES_LENGTH // 2 - 3
    return text if len(text) <= _MAX_NAMES_LENGTH else f"{text[:half]} ... {text[-half:]}"


def dump(state: State, identity: Identity) -> dict[str, Any]:
    """Return the state as JSON has it: dicts with str keys, lists, int, str, bool and None."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "data": identity.data,
        **({"table": identity.table} if identity.table else {}),
        "files": dict(identity.files),
        "columns": {"digest": identity.columns, "names": identity.names},
        "order": {**identity.order, "window": list(state.window)},
        "epoch": state.epoch,
        "legs": [list(leg if leg.num_rows else leg[:-1]) for leg in state.legs],
        "worker": state.worker,
        **(
            {}
            if state.taken is None
            else {"rank": state.rank, "taken": list(state.taken), "has_ended": state.has_ended}
        ),
    }


def of_data(value: Any, identity: Identity) -> Any:
    """Return what `dump` made as if it were of the data of `identity`; else the value itself."""
    if not isinstance(value, Mapping) or value.get("format") != FORMAT:
        return value
    return {**value, "data": identity.data, "table": identity.table}


def parse(value: object, identity: Identity, requested_window: tuple[int, int] | None) -> State:
    """Read what `dump` has made, possibly for another data set."""
    if not isinstance(value, Mapping):
        raise TypeError(f"state must be a dict that state_dict() returned, got {value!r:.200}")
    if value.get("format") != FORMAT:
        raise ValueError(f"state must be that of a ParquetDataset, got {dict(value)!r:.200}")
    version = value.get("version")
    if version != VERSION:
        raise ValueError(
            f"state must be of version {VERSION}, got version {version!r}: it was saved by "
            "another release of torchparquet; load it with that release, or begin a new run"
        )
    state = _state(value)
    differences = _differences(value, identity, requested_window)
    if differences:
        raise ValueError("state does not fit this data set: " + "; ".join(differences))
    return state


def _state(value: Mapping[str, Any]) -> State:
    try:
        legs = tuple(_leg(leg) for leg in value["legs"])
        first, second = value["order"]["window"]
        worker = value["worker"]
        state = State(
            _count(value["epoch"]),
            legs,
            None if worker is None else _count(worker),
            (_count(first), _count(second)),
        )
        if value["order"]["even"] == "dynamic":
            state = replace(
                state,
                taken=tuple(map(_count, value["taken"])),
                rank=_count(value["rank"]),
                has_ended=value["has_ended"] is True,
            )
        if not legs or not isinstance(value["columns"]["digest"], str):
            raise ValueError("no leg")
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"state is damaged ({type(error).__name__}: {one_line(error)}): {dict(value)!r:.300}"
        ) from error
    return state


def _leg(value: Any) -> Leg:
    world_size, num_workers, batch_size, num_steps, *rows = value
    (num_rows,) = rows or [0]
    if batch_size is not None and _count(num_rows) >= _count(batch_size, 1):
        raise ValueError(f"{num_rows} rows of a batch of {batch_size}")
    return Leg(
        _count(world_size, 1),
        _count(num_workers, 1),
        batch_size,
        _count(num_steps),
        _count(num_rows),
    )


def _count(value: Any, low: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value < _COUNT:
        raise ValueError(f"the saved state is damaged: a count must be an int >= 0, got {value!r}")
    return value


def _differences(
    value: Mapping[str, Any], identity: Identity, requested_window: tuple[int, int] | None
) -> list[str]:
    found = []
    tables = str(value.get("table", "")), identity.table
    if tables[0] != tables[1]:
        found.append(f"{tables[0] or 'no table'} in the state, {tables[1] or 'no table'} here")
    elif value.get("data") != identity.data:
        found.append(_other_data(value.get("files"), identity.files))
    columns = value["columns"]
    if columns["digest"] != identity.columns:
        theirs, ours = columns.get("names"), identity.names
        what = f"columns are {theirs!r} in the state, {ours!r} here"
        same = "the columns' dtypes, nulls or other options differ"
        found.append(same if theirs == ours else what)
    theirs = dict(value["order"])
    window = theirs.pop("window")
    # Less memory may have put a bound on windows of whole row groups.
    told = window_text(*window)
    wanted = told if requested_window is None else window_text(*requested_window)
    if told != wanted:
        found.append(f"shuffle_window is {told} in the state, {wanted} here")
    for name in sorted(set(theirs) | set(identity.order)):
        if theirs.get(name) != identity.order.get(name):
            here = identity.order.get(name)
            found.append(f"{name} is {theirs.get(name)!r} in the state, {here!r} here")
    return found


def _other_data(theirs: Any, ours: Mapping[str, Any]) -> str:
    theirs = theirs if isinstance(theirs, Mapping) else {}
    found = [
        f"{name} are {theirs[name]!r} in the state, {ours[name]!r} here"
        for name in ours
        if name in theirs and theirs[name] != ours[name]
    ]
    same = "names and numbers are the same, but the content, the selection or the packing is not"
    unknown = "names, content, selection or packing differ"
    return (
        f"other files or rows: {'; '.join(found) or (same if theirs else unknown)} "
        '(load_state_dict(state, other_data="next_epoch") begins the next epoch with this data)'
    )
