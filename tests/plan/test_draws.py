"""Draws in exact proportion, against the definition and frozen values."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchparquet._impl.plan.draws import Draws, Proportion, random_words

weight = st.one_of(
    st.integers(1, 6),
    st.integers(1, 10**6),
    st.floats(1e-4, 1.0),
    st.fractions(Fraction(1, 50), 3, max_denominator=50),
).map(Fraction)  # type: ignore[arg-type]
weights_lists = st.lists(weight, min_size=1, max_size=7)
keys = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))


def drawn(weights: Any, key: Any, num: int) -> list[int]:
    draws = Draws(Proportion([Fraction(w) for w in weights]), key)
    return [draws.next() for _ in range(num)]


@settings(max_examples=60, deadline=None)
@given(weights_lists, keys)
@pytest.mark.long
def test_no_source_is_ever_a_whole_draw_off(weights: Any, key: Any) -> None:
    counts = [0] * len(weights)
    for num, source in enumerate(drawn(weights, key, 700), 1):
        counts[source] += 1
        for count, own in zip(counts, weights, strict=True):
            assert abs(count - num * own / sum(weights)) < 1


@settings(max_examples=60, deadline=None)
@given(weights_lists, keys, st.lists(st.integers(1, 300), min_size=1, max_size=40))
def test_no_source_is_a_whole_row_off_when_many_are_granted_at_once(
    weights: Any, key: Any, batches: Any
) -> None:
    proportion = Proportion(weights)
    counts, total = [0] * len(weights), 0
    for num, rows in enumerate(batches):
        after = proportion.granted(counts, rows, random_words(key, num, len(weights)))
        total += rows
        assert sum(after) == total
        for old, new, own in zip(counts, after, weights, strict=True):
            assert new >= old
            assert abs(new - total * own / sum(weights)) < 1
        counts = after


@settings(max_examples=40, deadline=None)
@given(weights_lists, keys, st.integers(0, 1500))
def test_draws_go_on_from_counts_alone(weights: Any, key: Any, cut: Any) -> None:
    whole = drawn(weights, key, cut + 50)
    counts = [whole[:cut].count(source) for source in range(len(weights))]
    draws = Draws(Proportion(weights), key, counts)
    assert [draws.next() for _ in range(50)] == whole[cut:]


def test_seed_and_epoch_change_the_sequence_and_where_it_starts() -> None:
    sequences = [
        tuple(drawn([8, 1, 1], (seed, epoch), 40)) for seed in range(8) for epoch in (0, 1)
    ]
    assert len(set(sequences)) == len(sequences)
    # A rare source does not wait until it is due.
    assert len({sequence.index(1) for sequence in sequences}) > 4


def test_frozen_values() -> None:
    """Runs that are resumed by another release draw the same."""
    assert drawn([0.7, 0.2, 0.1], (1, 0), 30) == FROZEN[0]
    assert drawn([3, 2, 2], (5, 9), 30) == FROZEN[1]
    words = random_words((7, 8), 3, 3)
    assert words == FROZEN[2]
    granted = Proportion([Fraction(1), Fraction(1), Fraction(1)]).granted([0, 0, 0], 4, words)
    assert granted == FROZEN[3]


@pytest.mark.parametrize("num_before", [1, 1023, 5000])
def test_draws_before_shift_the_random_words(num_before: int) -> None:
    proportion = Proportion([Fraction(1), Fraction(1)])
    shifted = Draws(proportion, (1, 2), None, num_before)
    assert [shifted.next() for _ in range(200)] != drawn([1, 1], (1, 2), 200)


FROZEN: list[list[int]] = [
    [int(digit) for digit in "100000100220010000100200100001"],
    [int(digit) for digit in "012102021002010102021200110202"],
    [17221918327678194607, 1898316175624033873, 13907634480453759292],
    [1, 2, 1],
]
