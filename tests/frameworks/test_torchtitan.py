"""torchtitan's dataloader: against its own base class, and as its Trainer and Validator use it."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp

from tests.fixtures.parquet_files import write_numbered_documents
from tests.frameworks.jobs.running import documented, run, torchrun

pytest.importorskip("torchtitan")
from torchtitan.components.dataloader import BaseDataLoader

from torchparquet import mix
from torchparquet.frameworks.torchtitan import ParquetDataLoader

SEQ_LEN, NUM_DOCUMENTS = 15, 400
LENGTHS = [1 + number * 7 % 23 for number in range(NUM_DOCUMENTS)]
PROGRAM = "examples/torchtitan_loop.py"


class Tokenizer:
    eos_id = 99_999


@pytest.fixture(scope="module")
def data(tmp_path_factory: Any) -> str:
    """Documents whose tokens all differ, in row groups of 50."""
    folder = tmp_path_factory.mktemp("titan")
    write_numbered_documents(folder / "a.parquet", LENGTHS, row_group_size=50)
    return str(folder)


def build(
    data: str, rank: int = 0, ranks: int = 1, batch: int = 4, seq_len: int = SEQ_LEN, **config: Any
) -> ParquetDataLoader:
    """Build a loader as the Trainer does."""
    made = ParquetDataLoader.Config(dataset_path=data, **config)
    loader: ParquetDataLoader = made.build(
        dp_world_size=ranks,
        dp_rank=rank,
        tokenizer=Tokenizer(),
        seq_len=seq_len,
        local_batch_size=batch,
        snapshot_every_n_steps=10,
    )
    return loader


def predicted(loader: Any) -> Counter[tuple[int, int]]:
    """Each token with its label, once for each time that it was delivered."""
    found: Counter[tuple[int, int]] = Counter()
    for inputs, labels in loader:
        assert list(inputs) == ["input", "positions"]
        for tensor in (*inputs.values(), labels):
            assert tensor.dtype == torch.int64
            assert tensor.shape[1:] == (SEQ_LEN,)
        counts = labels != -100
        found.update(zip(inputs["input"][counts].tolist(), labels[counts].tolist(), strict=True))
    return found


def pairs(with_eos: bool = False) -> Counter[tuple[int, int]]:
    """Neighbours in documents."""
    found: Counter[tuple[int, int]] = Counter()
    begin = 0
    for length in LENGTHS:
        document = [*range(begin, begin + length), *([Tokenizer.eos_id] * with_eos)]
        found.update(itertools.pairwise(document))
        begin += length
    return found


def test_it_is_one_of_torchtitan_s(data: str) -> None:
    loader = build(data)
    assert isinstance(loader, BaseDataLoader)
    inputs, labels = next(iter(loader))
    assert inputs["input"].shape == labels.shape == (4, SEQ_LEN)


@pytest.mark.parametrize("add_eos", [False, True])
def test_labels_are_the_next_tokens_of_documents(data: str, add_eos: bool) -> None:
    """Documents fit into a sequence: each pair of neighbours is there once, and no other."""
    options: Any = {"infinite": False, "drop_last": False, "seq_len": 30, "add_eos": add_eos}
    loader = build(data, strategy="best_fit", **options)
    found: Counter[tuple[int, int]] = Counter()
    for inputs, labels in loader:
        tokens, positions = inputs["input"], inputs["positions"]
        counts = labels != -100
        found.update(zip(tokens[counts].tolist(), labels[counts].tolist(), strict=True))
        # The place in a document follows from the token itself.
        begins = np.cumsum([0, *LENGTHS])
        own = tokens[counts].numpy()
        expected = own - begins[np.searchsorted(begins, own, side="right") - 1]
        assert positions[counts].tolist() == expected.tolist()
    assert found == pairs(add_eos)


def test_only_answers_are_predicted(data: str) -> None:
    options: Any = {"infinite": False, "drop_last": False, "strategy": "split"}
    every = predicted(build(data, **options))
    answers = predicted(build(data, loss_column="answers", **options))
    assert answers == Counter({pair: n for pair, n in every.items() if pair[1] % 2 == 0})


@pytest.mark.parametrize("ranks", [1, 3])
def test_finite_data_end_alike_on_all_ranks(data: str, ranks: int) -> None:
    loaders = [build(data, rank, ranks, infinite=False) for rank in range(ranks)]
    steps = [sum(1 for _ in loader) for loader in loaders]
    assert len(set(steps)) == 1
    assert steps[0] > 5
    again = [sum(1 for _ in loader) for loader in loaders]
    assert again == steps
    # The Validator has its own way to say so.
    config = replace(ParquetDataLoader.Config(dataset_path=data), infinite=False)
    assert config.infinite is False
    endless = iter(build(data, infinite=True))
    assert [next(endless) for _ in range(3 * steps[0] * ranks)]


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_a_checkpoint_of_three_ranks_goes_on_with_others(
    data: str, tmp_path: Path, ranks: int
) -> None:
    options: Any = {"infinite": False, "drop_last": False}
    whole = predicted(build(data, **options))
    before: Counter[tuple[int, int]] = Counter()
    states = []
    for rank in range(3):
        loader = build(data, rank, 3, 2, **options)
        before += predicted(itertools.islice(loader, 7))
        states.append(loader.state_dict())
    assert states[0] == states[1] == states[2]
    path = tmp_path / "at_step_7"
    dcp.save({"dataloader": states[0]}, checkpoint_id=path, no_dist=True)  # type: ignore[attr-defined]
    after: Counter[tuple[int, int]] = Counter()
    for rank in range(ranks):
        loader = build(data, rank, ranks, 3, **options)
        dcp.load({"dataloader": loader}, checkpoint_id=path, no_dist=True)  # type: ignore[attr-defined]
        after += predicted(loader)
    assert set(before + after) == set(whole)
    # A rank that is short of a row repeats one.
    assert (before + after).total() - whole.total() <= 4 * SEQ_LEN * ranks


def test_subclasses_make_mixes(data: str) -> None:
    class Mixed(ParquetDataLoader):
        def open_dataset(self, config: Any, **options: Any) -> Any:
            whole = super().open_dataset(config, **options)
            some = super().open_dataset(config, **options | {"filters": "tokens is not null"})
            return mix([whole, some], weights=[3, 1])

    config = ParquetDataLoader.Config(dataset_path=data)
    arguments: Any = {"tokenizer": None, "seq_len": SEQ_LEN, "local_batch_size": 2}
    loader = Mixed(config, dp_world_size=1, dp_rank=0, **arguments)
    batches = iter(loader)
    for _ in range(5):
        next(batches)
    other = Mixed(config, dp_world_size=1, dp_rank=0, **arguments)
    other.load_state_dict(loader.state_dict())
    assert torch.equal(next(iter(other))[1], next(batches)[1])


def test_what_it_cannot_honour_is_refused(data: str) -> None:
    with pytest.raises(ValueError, match=r"dataset_path, and needs no name.*dataset='c4'"):
        build(data, dataset="c4")
    with pytest.raises(ValueError, match=r"dataset_path=None"):
        build(None)  # type: ignore[arg-type]
    config = ParquetDataLoader.Config(dataset_path=data, add_eos=True)
    options: Any = {"seq_len": 8, "local_batch_size": 1, "dp_rank": 0, "dp_world_size": 1}
    with pytest.raises(ValueError, match="add_eos needs a tokenizer with an eos_id"):
        config.build(tokenizer=None, **options)
    with (
        pytest.warns(UserWarning, match="no step"),
        pytest.raises(ValueError, match="smaller local_batch_size, or drop_last=False"),
    ):
        list(build(data, batch=100_000))
    loader = build(data)
    loader.load_state_dict({})
    with pytest.raises(ValueError, match=r"exclude_from_loading.*dp_rank_0"):
        loader.load_state_dict({"dp_rank_0": b"", "world_size": 1})
    with pytest.raises(ValueError, match="state"):
        build(data, seq_len=7).load_state_dict(loader.state_dict())


def losses(output: str) -> dict[int, float]:
    told = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return {line["step"]: line["loss"] for line in told}


def test_the_example_learns_and_goes_on(tmp_path: Path) -> None:
    write, train = documented("torchtitan.md")
    run(write, tmp_path)
    whole = losses(run(train, tmp_path))
    assert list(whole) == list(range(1, len(whole) + 1))
    assert sum(list(whole.values())[-5:]) / 5 < 0.8 * whole[1]
    run(torchrun(2, PROGRAM, "documents", "stopped", "--stop-after", 20), tmp_path)
    rest = losses(run(torchrun(4, PROGRAM, "documents", "stopped"), tmp_path))
    assert next(iter(rest)) == 21
    assert abs(max(rest) - max(whole)) <= 1
    assert sum(list(rest.values())[-5:]) / 5 < 0.85 * whole[1]
