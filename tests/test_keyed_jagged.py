"""KeyedJagged: its parts, its rows, and what torch and TorchRec make of it."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from torchparquet import KeyedJagged

# Two rows of three keys.
LISTS: dict[str, list[list[int]]] = {"a": [[1, 2], []], "b": [[3], [4, 5, 6]], "c": [[], []]}
VALUES = torch.arange(1, 7)
LENGTHS = torch.tensor([2, 0, 1, 3, 0, 0], dtype=torch.int32)
WEIGHTS = VALUES / 4


def made(weights: torch.Tensor | None = WEIGHTS, **options: Any) -> KeyedJagged:
    return KeyedJagged(list(LISTS), VALUES, LENGTHS, weights, **options)


def lists_of(keyed: KeyedJagged) -> dict[str, Any]:
    return {key: keyed[key].to_list() for key in keyed.keys}


@pytest.mark.parametrize("per_key", [None, [2, 4, 0]])
def test_lists_of_each_key(per_key: Any) -> None:
    keyed = made(length_per_key=per_key)
    assert lists_of(keyed) == LISTS
    assert len(keyed) == 2
    assert keyed.offsets.tolist() == [0, 2, 2, 3, 6, 6, 6]
    assert keyed["b"].values.data_ptr() == VALUES[2:].data_ptr()
    assert keyed.weights_of("b").tolist() == [0.75, 1, 1.25, 1.5]  # type: ignore[union-attr]
    assert made(None).weights_of("b") is None
    with pytest.raises(KeyError, match="'d' is none of the keys"):
        keyed["d"]


def test_rows() -> None:
    keyed = made()
    last = {key: lists[1:] for key, lists in LISTS.items()}
    ways: list[Any] = [1, -1, slice(1, None), [1], [-1], torch.tensor([1])]
    for rows in [*ways, torch.tensor([False, True])]:
        assert lists_of(keyed[rows]) == last
        assert keyed[rows].weights.tolist() == [1, 1.25, 1.5]
    twice = {key: [rows[1], rows[0], rows[1]] for key, rows in LISTS.items()}
    assert lists_of(keyed[[1, 0, 1]]) == twice
    assert lists_of(keyed[[]]) == {key: [] for key in LISTS}
    assert [lists_of(row) for row in keyed][1] == last
    for wrong in (2, -3, [2]):
        with pytest.raises(IndexError):
            keyed[wrong]
    with pytest.raises(ValueError, match="one-dimensional"):
        keyed.select(torch.zeros(2, 2, dtype=torch.int64))


def test_rows_of_several_are_joined() -> None:
    joined = KeyedJagged.cat([made()[1], made(), made()[:0]])
    assert lists_of(joined) == {key: [*rows[1:], *rows] for key, rows in LISTS.items()}
    assert joined.weights.tolist() == [0.25, 0.5, 1, 1.25, 1.5, 0.75, 1, 1.25, 1.5]  # type: ignore[union-attr]
    assert joined.length_per_key == (2, 7, 0)
    other = KeyedJagged(["a"], VALUES, LENGTHS)
    for parts in ([], [made(), made(None)], [made(), other]):
        with pytest.raises(ValueError, match="some of the same keys, all with weights or none"):
            KeyedJagged.cat(parts)


def test_one_bag_of_embeddings_per_list() -> None:
    """The sum of embeddings of all lists by one call."""
    keyed, weight = made(), torch.randn(7, 4)
    sums = torch.nn.functional.embedding_bag(
        keyed.values,
        weight,
        keyed.offsets,
        mode="sum",
        include_last_offset=True,
        per_sample_weights=keyed.weights,
    ).view(3, 2, 4)
    for number, (key, rows) in enumerate(LISTS.items()):
        weights = iter(keyed.weights_of(key).tolist())  # type: ignore[union-attr]
        for row, values in enumerate(rows):
            wanted = sum((weight[v] * next(weights) for v in values), torch.zeros(4))
            assert torch.allclose(sums[number, row], wanted)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_copies_keep_every_part(weights: Any) -> None:
    keyed = made(weights, length_per_key=[2, 4, 0])
    tree = pytree.tree_map(lambda tensor: tensor.clone(), {"k": keyed})["k"]
    leaves, _ = pytree.tree_flatten_with_path({"k": keyed})
    assert [pytree.keystr(at) for at, _ in leaves][:2] == ["['k'].values", "['k'].lengths"]
    for copied in (tree, pickle.loads(pickle.dumps(keyed)), keyed.to("cpu"), keyed.to()):
        assert lists_of(copied) == LISTS
        assert (copied.weights is None) == (weights is None)
        assert copied.length_per_key == (2, 4, 0)
    on_meta = keyed.to("meta", non_blocking=True)
    assert {on_meta.values.device.type, on_meta.lengths.device.type} == {"meta"}
    assert on_meta["b"].values.shape == (4,)
    assert "on meta" in repr(on_meta)


def test_parts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(TypeError, match=r"not so are: \['values'"):
        KeyedJagged(["a"], [1], LENGTHS)  # type: ignore[arg-type]
    names: list[Any] = ["ab", []]
    for keys in names:
        with pytest.raises(TypeError, match=r"not so are: \['keys'"):
            KeyedJagged(keys, VALUES, LENGTHS)
    with pytest.raises(ValueError, match="as many for each of 4 keys; got 6 lengths"):
        KeyedJagged(list("abcd"), VALUES, LENGTHS)
    with pytest.raises(ValueError, match="weights must be one for each of 6 values; got 2"):
        made(torch.ones(2))
    with pytest.raises(ValueError, match="length_per_key must be one for each of 3 keys; got 1"):
        made(length_per_key=[6])


def test_it_is_shown_in_a_line() -> None:
    shown = "KeyedJagged(2 rows of 3 keys, 6 int64 with weights: 'a', 'b', 'c')"
    assert repr(made()) == shown
    assert repr(made(None)) == shown.replace(" with weights", "")


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("per_key", [None, [2, 4, 0]])
def test_torchrec_has_the_same_lists(weights: Any, per_key: Any) -> None:
    pytest.importorskip("torchrec", reason="TorchRec is not installed")
    kjt = made(weights, length_per_key=per_key).to_kjt()
    assert kjt.keys() == list(LISTS)
    assert kjt.stride() == 2
    assert kjt.offsets().tolist() == made().offsets.tolist()
    assert kjt.values().data_ptr() == VALUES.data_ptr()
    assert kjt.length_per_key() == [2, 4, 0]
    for key, rows in LISTS.items():
        of_key = kjt[key]
        assert [part.tolist() for part in of_key.to_dense()] == rows
        if weights is not None:
            assert of_key.weights().tolist() == made().weights_of(key).tolist()  # type: ignore[union-attr]
