"""Ranks check, through a store and not by a collective, that all read the same data alike."""

from __future__ import annotations

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from torchparquet._impl.ranks.peers import Peers, digest
from torchparquet.errors import RankMismatchError

_WARN_AFTER_SECONDS = 8.0
_SLACK_SECONDS = 10.0
_MAX_SHOWN = 8
_MAX_CHARACTERS = 200

_logger = logging.getLogger("torchparquet")


class RankNote(NamedTuple):
    """The note that one rank leaves for the others."""

    share: int
    num_shares: int
    values: dict[str, str]
    failure: str | None = None


def begin_together(peers: Peers, own_note: Callable[[], RankNote]) -> None:
    """Begin on all ranks or on none. Every rank must call this, and all learn why one failed."""
    meeting = _Meeting(peers)
    try:
        own = own_note()
    except Exception as error:
        meeting.excuse(f"{type(error).__name__}: {error}")
        raise
    verdict = meeting.verdict(own)
    if verdict:
        raise RankMismatchError(verdict)


def tell_failure(peers: Peers, error: Exception) -> None:
    """Tell the ranks that compare next why this one cannot begin, unless it begins before that."""
    _Meeting(peers, is_ahead=True).excuse(f"{type(error).__name__}: {error}")


def start_of_job(peers: Peers) -> str:
    """Return the name of this start of the job; waits for all ranks that have not met before."""
    start = peers.start
    if not start.has_met_all:
        index = peers.ranks.index(peers.own)
        begin_together(peers, lambda: RankNote(index, len(peers.ranks), {}))
    return start.name


def disagreement(notes: Mapping[int, RankNote]) -> str:
    """Describe the differences between ranks; return "" if all agree."""
    failed = {rank: note.failure for rank, note in notes.items() if note.failure}
    if failed:
        return "a rank could not begin: " + _by_value(failed)
    names: dict[str, None] = {}
    for note in notes.values():
        names |= dict.fromkeys(note.values)
    found: list[str] = []
    for name in names:
        if name == "columns" and any(text.startswith("column ") for text in found):
            # It would only add their order, and details.
            continue
        of_rank = {rank: of.values.get(name, "missing") for rank, of in notes.items()}
        if len(set(of_rank.values())) > 1:
            found.append(f"{name} is {_by_value(of_rank)}")
    found = found or _wrong_shares(notes)
    if not found:
        return ""
    more = f"; and {len(found) - _MAX_SHOWN} more" if len(found) > _MAX_SHOWN else ""
    return (
        "ranks must read the same data in the same order (ranks=Ranks(check=False) skips this "
        f"comparison): {'; '.join(found[:_MAX_SHOWN])}{more}"
    )


def _wrong_shares(notes: Mapping[int, RankNote]) -> list[str]:
    """Describe the ranks of each share if shares have different numbers of ranks."""
    num_shares = next(iter(notes.values())).num_shares
    counts = Counter(note.share for note in notes.values())
    if len({counts[share] for share in range(num_shares)}) == 1:
        return []
    held = {rank: str(note.share) for rank, note in notes.items()}
    return [f"each data-parallel rank of {num_shares} must be held equally often; it is "
            f"{_by_value(held)}"]  # fmt: skip


def _by_value(of_rank: Mapping[int, str]) -> str:
    """Return "value on ranks ..., value on ranks ...", the most common value first."""
    holders = defaultdict(list)
    for rank in sorted(of_rank):
        holders[of_rank[rank]].append(rank)
    groups = sorted(holders.items(), key=lambda item: (-len(item[1]), item[1]))
    shown = [f"{shortened(value)} on {listed(ranks)}" for value, ranks in groups[:_MAX_SHOWN]]
    more = f", and {len(groups) - _MAX_SHOWN} more values" if len(groups) > _MAX_SHOWN else ""
    return ", ".join(shown) + more


def shortened(text: str) -> str:
    """Return `text`, or its two ends if it is long."""
    if len(text) <= _MAX_CHARACTERS:
        return text
    return f"{text[: _MAX_CHARACTERS - 20]} ... {text[-15:]}"


def listed(ranks: Sequence[int]) -> str:
    """Return ascending ranks as in "rank 3" or "ranks 0-5, 9"."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    more = f" and {len(texts) - _MAX_SHOWN} more" if len(texts) > _MAX_SHOWN else ""
    word = "rank" if len(ranks) == 1 else "ranks"
    return f"{word} {', '.join(texts[:_MAX_SHOWN])}{more}"


class _Meeting:
    """The n-th comparison of these ranks: each leaves a note, and the first compares them."""

    def __init__(self, peers: Peers, *, is_ahead: bool = False) -> None:
        """Take part in the next comparison; `is_ahead` is whether this rank may do so again."""
        self._peers = peers
        self._first = peers.ranks[0]
        self._is_first = peers.own == self._first
        self._start = start = peers.start
        self._number = start.next_number("agreement") if is_ahead else start.number("agreement")
        self._is_ahead = is_ahead

    def excuse(self, failure: str) -> None:
        """Tell the others that this rank cannot begin; give them a moment if they never met."""
        note = RankNote(0, 1, {}, failure)
        if not self._enter(_SLACK_SECONDS):
            return
        if self._start.excused_at == self._number and self._others_have_come():
            self._start.number("agreement")  # That comparison is over for them.
            self._number = self._start.next_number("agreement")
        if self._is_ahead:
            self._start.excused_at = self._number
        self._leave(note)
        if self._is_first:
            self._announce(disagreement({self._peers.own: note}))
            if not self._start.has_met_all:
                self._wait(self._notes_of_others, _SLACK_SECONDS)

    def verdict(self, own: RankNote) -> str:
        """Return the verdict for all ranks; "" if they agree."""
        if self._peers.store.check([self._over_key]):
            return self._peers.read(self._over_key)
        if not self._enter():
            return self._give_up([self._first])
        if self._start.excused_at == self._number:
            self._withdraw_excuse()
        self._leave(own)
        return self._judge(own) if self._is_first else self._await_verdict()

    def _judge(self, own: RankNote) -> str:
        keys = self._notes_of_others
        absent = self._wait(keys)
        if absent:
            verdict = self._give_up(absent)
        else:
            self._start.has_met_all = True
            notes = self._peers.read_all(list(keys.values()))
            others = dict(zip(keys, (RankNote(*json.loads(note)) for note in notes), strict=True))
            verdict = disagreement({self._peers.own: own} | others)
        self._announce(verdict)
        return verdict

    def _await_verdict(self) -> str:
        # After the first rank has joined, it knows which ranks are missing.
        absent = self._wait({self._first: f"{self._place}/{self._first}"})
        limit = self._peers.timeout_seconds + _SLACK_SECONDS
        if absent or self._wait({self._first: self._verdict_key}, limit):
            return self._give_up([self._first])
        self._start.has_met_all = True
        return str(json.loads(self._peers.read(self._verdict_key)))

    def _withdraw_excuse(self) -> None:
        """Take part after all; in the next comparison, if others have come to this one."""
        if self._others_have_come():
            self._number = self._start.number("agreement")
        elif self._is_first:
            self._peers.store.delete_key(self._verdict_key)

    def _others_have_come(self) -> bool:
        others = self._notes_of_others.values() if self._is_first else [self._verdict_key]
        return any(self._peers.store.check([key]) for key in others)

    def _enter(self, limit_seconds: float | None = None) -> bool:
        """Learn the name of this start of the job; False if the first rank did not come."""
        return bool(self._start.name) or self._start.learn_name(
            self._peers, lambda key: not self._wait({self._first: key}, limit_seconds)
        )

    @property
    def _place(self) -> str:
        return f"torchparquet/agreement/{self._start.name}/{self._number}"

    @property
    def _notes_of_others(self) -> dict[int, str]:
        return {rank: f"{self._place}/{rank}" for rank in self._peers.ranks[1:]}

    @property
    def _verdict_key(self) -> str:
        return f"{self._place}/verdict"

    @property
    def _over_key(self) -> str:
        """Of ranks that gave up waiting; one that comes late does not know the start's name."""
        return f"torchparquet/agreement/{digest(self._peers.identity)}/{self._number}/over"

    def _give_up(self, absent: Sequence[int]) -> str:
        """Tell ranks that come later, which would wait in vain, that this one has gone."""
        verdict = self._absence(absent)
        self._peers.store.set(self._over_key, verdict)
        return verdict

    def _announce(self, verdict: str) -> None:
        self._peers.store.set(self._verdict_key, json.dumps(verdict))

    def _leave(self, note: RankNote) -> None:
        self._peers.store.set(f"{self._place}/{self._peers.own}", json.dumps(note))

    def _wait(self, keys: Mapping[int, str], limit_seconds: float | None = None) -> list[int]:
        """Wait for the keys; return the ranks whose key never came."""
        peers = self._peers
        warned = limit_seconds is not None

        def look(waited: float) -> None:
            nonlocal warned
            if self._is_first:
                self._start.answer(peers)
            if waited > _WARN_AFTER_SECONDS and not warned:
                warned = True
                _logger.warning(self._absence(peers.absent(keys)))

        limit = peers.timeout_seconds if limit_seconds is None else limit_seconds
        return peers.wait(keys, limit, look)

    def _absence(self, absent: Sequence[int]) -> str:
        return (
            "ranks compare what they read when each asks for its second batch, and one that does "
            "not come, or waits in a collective call meanwhile, holds up all (one batch may be "
            "looked at on any rank; to read more on some ranks alone, give a data set of their own "
            "rank and world_size, or ranks=Ranks(check=False); for ranks that start late, give "
            "init_process_group a longer timeout than "
            f"{self._peers.timeout_seconds:g} seconds): "
            f"rank {self._peers.own} waited for {listed(absent)}"
        )


def warn_of_early_end(own: int, num_steps: Iterable[int]) -> None:
    """Log if this rank ends before others, which must not wait for it."""
    steps = list(num_steps)
    most = max(steps)
    if steps[own] == most:
        return
    _logger.warning(
        'even="none" lets step counts differ: rank %d ends after %d steps, rank %d goes on to %d. '
        "A collective in each step, such as DistributedDataParallel's gradients, would then wait "
        'for this rank: use even="split" or torch.distributed.algorithms.Join, or no collectives '
        "until all ranks have ended",
        own,
        steps[own],
        steps.index(most),
        most,
    )
