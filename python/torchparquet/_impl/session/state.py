"""The state of a data set: where an epoch stands, small enough for any checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from torchparquet._impl.batches.fields import Field, columns_digest
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.plan.elastic import Leg
from torchparquet._impl.plan.plan_options import PlanOptions, window_text
from torchparquet._impl.plan.step_costs import RowCosts
from torchparquet.errors import one_line

FORMAT = "torchparquet.ParquetDataset"
VERSION = 2
_MAX_NAMES_LENGTH = 200
_COUNT = 2**62

# The ways to deal with a state of other files or rows.
OtherData: TypeAlias = Literal["error", "next_epoch"]
# Facts in which two data sets must agree for the states of one to fit the other, as states have
# them; "files" only to say what differs.
Identity: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class State:
    """The position of an epoch."""

    epoch: int
    # The last with its batches delivered: by each rank, or by one worker.
    legs: tuple[Leg, ...]
    worker: int | None  # the DataLoader worker whose batches were counted; None for a rank's
    window: tuple[int, int]
    # With even="dynamic": the positions that the rank has taken, the rank, and whether it has
    # delivered all of them and no more was left. Of texts that are tokenised on the way, how many
    # sequences the first of these had.
    taken: tuple[int, ...] | None = None
    counts: tuple[int, ...] = ()
    rank: int = 0
    has_ended: bool = False


def identity_of(
    manifest: Manifest, fields: tuple[Field, ...], options: PlanOptions, costs: RowCosts | None
) -> Identity:
    """Return the identity of a data set: each node may have its own copy of the files."""
    names = _shortened([field.name for field in fields])
    chosen = "" if manifest.packed is None else manifest.packed.chosen
    # Samples have blocks in place of row groups.
    units = {"samples": chosen} if chosen else {"row groups": manifest.num_row_groups}
    return {
        "data": manifest.content_fingerprint,
        **({} if manifest.table is None else {"table": manifest.table.identity}),
        "files": {
            "files": len(manifest.files),
            **units,
            "rows": manifest.num_rows,
            "names": _shortened(manifest.names),
        },
        "columns": {"digest": columns_digest(fields), "names": names},
        "order": {
            "shuffle": options.shuffle,
            "seed": options.seed,
            "even": options.even,
            "drop_last": options.drop_last,
            "balance": options.order.balance,
            "within_rank": options.order.within_rank,
            "canonical_world_size": options.order.canonical_world_size,
            **({} if costs is None else {"cost": costs.digest}),
            **({"ranks_together": options.ranks_together} if options.ranks_together > 1 else {}),
        },
    }


def _shortened(names: list[str]) -> str:
    """Return the names on one line of a bounded length, the first and the last if they are many."""
    text = ", ".join(names)
    half = _MAX_NAMES_LENGTH // 2 - 3
    return text if len(text) <= _MAX_NAMES_LENGTH else f"{text[:half]} ... {text[-half:]}"


def dump(state: State, identity: Identity) -> dict[str, Any]:
    """Return the state as JSON has it: dicts with str keys, lists, int, str, bool and None."""
    claimed: dict[str, Any] = {}
    if state.taken is not None:
        claimed = {"rank": state.rank, "taken": list(state.taken), "has_ended": state.has_ended}
        claimed |= {"sequences": list(state.counts)} if state.counts else {}
    return {
        "format": FORMAT,
        "version": VERSION,
        **identity,
        "files": dict(identity["files"]),
        "columns": dict(identity["columns"]),
        "order": {**identity["order"], "window": list(state.window)},
        "epoch": state.epoch,
        "legs": [list(leg if leg.num_rows else leg[:-1]) for leg in state.legs],
        "worker": state.worker,
        **claimed,
    }


def of_data(value: Any, identity: Identity) -> Any:
    """Return what `dump` made as if it were of the data of `identity`; else the value itself."""
    if not isinstance(value, Mapping) or value.get("format") != FORMAT:
        return value
    known = {**value, "data": identity["data"], "table": identity.get("table")}
    order, cost = value.get("order"), identity["order"].get("cost")
    is_other = value.get("data") != identity["data"]
    if is_other and cost is not None and isinstance(order, Mapping) and "cost" in order:
        known["order"] = {**order, "cost": cost}  # other rows have other costs
    return known


def parse(value: object, identity: Identity, requested_window: tuple[int, int] | None) -> State:
    """Read what `dump` has made, possibly for another data set."""
    state = stated(value)
    assert isinstance(value, Mapping)  # noqa: S101
    differences = _differences(value, identity, requested_window)
    if differences:
        raise ValueError("state does not fit this data set: " + "; ".join(differences))
    return state


def stated(value: object) -> State:
    """Read what `dump` has made, for whatever data."""
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
    return _state(value)


def _state(value: Mapping[str, Any]) -> State:
    try:
        legs = tuple(map(_leg, value["legs"]))
        first, second = value["order"]["window"]
        worker = value["worker"]
        if not legs or not isinstance(value["columns"]["digest"], str):
            raise ValueError("it has no leg, or no digest of columns")
        state = State(
            _count(value["epoch"]),
            legs,
            None if worker is None else _count(worker),
            (_count(first), _count(second)),
        )
        if value["order"]["even"] != "dynamic":
            return state
        taken, rank = tuple(map(_count, value["taken"])), _count(value["rank"])
        if len(set(taken)) < len(taken):
            raise ValueError("a row group was taken twice")
        counts = tuple(map(_count, value.get("sequences", ())))
        if len(counts) > len(taken):
            raise ValueError("sequences are counted of row groups that were not taken")
        has_ended = value["has_ended"] is True
        return replace(state, taken=taken, rank=rank, has_ended=has_ended, counts=counts)
    except KeyError as error:
        reason = f"it lacks {error}"
    except TypeError:
        reason = "a part of it is of another kind"
    except ValueError as error:
        reason = one_line(error)
    raise ValueError(f"state is damaged, load an earlier one ({reason}): {dict(value)!r:.300}")


def _leg(value: Any) -> Leg:
    if len(value) not in (4, 5):
        raise ValueError(f"a leg has 4 or 5 numbers, got {value!r}")
    world_size, num_workers, batch_size, num_steps, num_rows = [*value, 0][:5]
    if batch_size is not None and _count(num_rows) >= _count(batch_size, 1):
        raise ValueError(f"{num_rows} rows of a batch of {batch_size}")
    world = _count(world_size, 1), _count(num_workers, 1), batch_size
    return Leg(*world, _count(num_steps), _count(num_rows))


def _count(value: Any, low: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value < _COUNT:
        raise ValueError(f"a count must be an int >= {low}, got {value!r}")
    return value


def _differences(
    value: Mapping[str, Any], identity: Identity, requested_window: tuple[int, int] | None
) -> list[str]:
    together = [of["order"].get("ranks_together", 1) for of in (value, identity)]
    if together[0] != together[1]:
        return [
            "Unique(across_ranks=True) has an order for each number of ranks, which is "
            f"{together[0]} in the state, {together[1]} here"
        ]
    found = other_data(value, identity)
    theirs, ours = value["columns"], identity["columns"]
    if theirs["digest"] != ours["digest"]:
        same = ["the columns' dtypes, nulls or other options differ"]
        found += _unequal("columns are", theirs.get("names"), ours["names"]) or same
    theirs, ours = dict(value["order"]), dict(identity["order"])
    window = theirs.pop("window")
    costs = theirs.pop("cost", None), ours.pop("cost", None)
    if costs[0] != costs[1]:
        place = "only here" if costs[0] is None else "only in the state"
        found.append(
            f"steps have equal cost, by ByLength(cost=...), {place}"
            if None in costs
            else "ByLength(cost=...) gives rows other costs than in the state"
        )
    # Less memory may have put a bound on windows of whole row groups.
    told = window_text(*window)
    wanted = told if requested_window is None else window_text(*requested_window)
    if told != wanted:
        found.append(f"shuffle_window is {told} in the state, {wanted} here")
    for name in sorted(set(theirs) | set(ours)):
        found += _unequal(f"{name} is", theirs.get(name), ours.get(name))
    return found


def other_data(value: Mapping[str, Any], identity: Identity) -> list[str]:
    """Return how the files and rows of a state differ from those of an identity."""
    tables = [of.get("table") or "no table" for of in (value, identity)]
    if tables[0] != tables[1]:
        return [f"{tables[0]} in the state, {tables[1]} here"]
    if value.get("data") != identity["data"]:
        return [_other_data(value.get("files"), identity["files"])]
    return []


def _unequal(subject: str, theirs: Any, ours: Any) -> list[str]:
    return [] if theirs == ours else [f"{subject} {theirs!r} in the state, {ours!r} here"]


def _other_data(theirs: Any, ours: Mapping[str, Any]) -> str:
    theirs = theirs if isinstance(theirs, Mapping) else {}
    found = [
        text
        for name in ours
        if name in theirs
        for text in _unequal(f"{name} are", theirs[name], ours[name])
    ]
    same = "names and numbers are the same, but the content, the selection or the packing is not"
    unknown = "names, content, selection or packing differ"
    return (
        f"other files or rows: {'; '.join(found) or (same if theirs else unknown)} "
        '(load_state_dict(state, other_data="next_epoch") begins the next epoch with this data)'
    )
