"""Megatron-Core's micro-batches, against its own dataset's masks and its GPT on CPUs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from tests.fixtures.parquet_files import write_numbered_documents
from tests.frameworks.jobs.running import documented, run, torchrun

pytest.importorskip("megatron.core")
from megatron.core import parallel_state
from megatron.core.datasets.gpt_dataset import _get_ltor_masks_and_position_ids
from megatron.core.packed_seq_params import PackedSeqParams

from torchparquet.frameworks.megatron import ParquetDataLoader

LENGTH, END = 16, 9_999
LENGTHS = [1 + number * 7 % 15 for number in range(300)]
PROGRAM = "examples/megatron_gpt.py"


@pytest.fixture(scope="module")
def data(tmp_path_factory: Any) -> str:
    """Documents whose tokens all differ, in row groups of 50."""
    folder = tmp_path_factory.mktemp("megatron")
    write_numbered_documents(folder / "a.parquet", LENGTHS, row_group_size=50)
    return str(folder)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """One rank, with model parallelism initialised."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    yield
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()


def open_loader(data: str, **options: Any) -> ParquetDataLoader:
    return ParquetDataLoader(data, **{"length": LENGTH, "micro_batch_size": 4} | options)


def one_epoch(loader: ParquetDataLoader) -> Iterator[dict[str, Any]]:
    return islice(loader, len(loader.dataset))


def predicted(batch: dict[str, Any]) -> Counter[tuple[int, int]]:
    counts = batch["loss_mask"] > 0
    tokens, labels = batch["tokens"][counts].tolist(), batch["labels"][counts].tolist()
    return Counter(zip(tokens, labels, strict=True))


def test_masks_are_those_of_its_own_dataset(data: str, group: None) -> None:
    """Full sequences of whole documents, as it resets positions and masks after the separator."""
    num_compared = 0
    for batch in one_epoch(open_loader(data, separator=END, strategy="split")):
        assert list(batch) == ["tokens", "labels", "loss_mask", "position_ids", "attention_mask"]
        dtypes = [batch[name].dtype for name in batch]
        assert dtypes == [torch.int64, torch.int64, torch.float32, torch.int64, torch.bool]
        assert batch["attention_mask"].shape == (4, 1, LENGTH, LENGTH)
        for row in range(4):
            tokens = batch["tokens"][row]
            if tokens[-1] != END:  # padding is told apart by no token of theirs
                continue
            num_compared += 1
            mask, loss_mask, positions = _get_ltor_masks_and_position_ids(
                tokens, END, True, True, True, True
            )
            assert torch.equal(batch["attention_mask"][row], mask)
            assert torch.equal(batch["loss_mask"][row], loss_mask)
            assert torch.equal(batch["position_ids"][row], positions)
            counts = loss_mask > 0
            assert torch.equal(batch["labels"][row][counts], tokens.roll(-1)[counts])
    assert num_compared > 20


@pytest.mark.parametrize("packed", [False, True])
def test_each_pair_of_neighbours_is_predicted_once(data: str, group: None, packed: bool) -> None:
    loader = open_loader(data, packed=packed, drop_last=False)
    found: Counter[tuple[int, int]] = Counter()
    for batch in one_epoch(loader):
        found += predicted(batch)
    begins = np.cumsum([0, *LENGTHS])
    documents = (range(begin, end) for begin, end in pairwise(begins.tolist()))
    assert found == Counter(pair for document in documents for pair in pairwise(document))
    answers: Counter[tuple[int, int]] = Counter()
    for batch in one_epoch(open_loader(data, loss_column="answers", drop_last=False)):
        answers += predicted(batch)
    assert answers == Counter({pair: n for pair, n in found.items() if pair[1] % 2 == 0})


@pytest.mark.parametrize("num_context_ranks", [1, 2])
def test_packed_sequences_say_where_documents_are(
    data: str, group: None, monkeypatch: Any, num_context_ranks: int
) -> None:
    # As `initialize_model_parallel(context_parallel_size=2)` of two ranks would have it.
    sizes = lambda: num_context_ranks  # noqa: E731
    monkeypatch.setattr(parallel_state, "get_context_parallel_world_size", sizes)
    begins = np.cumsum([0, *LENGTHS]).tolist()
    for batch in one_epoch(open_loader(data, packed=True)):
        params = batch["packed_seq_params"]
        assert isinstance(params, PackedSeqParams)
        assert params.qkv_format == "thd"
        assert "attention_mask" not in batch
        assert batch["tokens"].shape == batch["labels"].shape == (1, 4 * LENGTH)
        ends = params.cu_seqlens_q
        assert ends.dtype == torch.int32
        assert torch.equal(ends, params.cu_seqlens_kv)
        # As NeMo takes it: what comes before the first of the least is valid.
        places = batch["cu_seqlens"].squeeze()[: batch["cu_seqlens_argmin"].item()]
        assert batch["max_seqlen"].squeeze() == params.max_seqlen_q
        if num_context_ranks == 1:
            assert torch.equal(places, ends)
        else:
            unpadded = batch["cu_seqlens_unpadded"].squeeze()
            assert torch.equal(unpadded[: batch["cu_seqlens_unpadded_argmin"].item()], ends)
            assert torch.equal(places, params.cu_seqlens_q_padded)
            assert torch.equal(places, params.cu_seqlens_kv_padded)
            assert not (places % (2 * num_context_ranks)).any()
            assert len(places) == len(ends)
        if num_context_ranks == 1:
            assert params.cu_seqlens_q_padded is None
        assert places[-1] == 4 * LENGTH
        assert params.max_seqlen_q == params.max_seqlen_kv == int(places.diff().max())
        tokens = batch["tokens"][0].tolist()
        for place, length in zip(places.tolist(), ends.diff().tolist(), strict=False):
            document = tokens[place : place + length]
            if any(document) and length:
                assert document[0] in begins
                assert document[-1] + 1 in begins
                assert document == list(range(document[0], document[0] + length))
        assert not batch["loss_mask"][0][places[1:].long() - 1].any()


def test_a_mask_that_is_not_wanted_is_no_key(data: str, group: None) -> None:
    batch = next(iter(open_loader(data, attention_mask=False)))
    assert list(batch) == ["tokens", "labels", "loss_mask", "position_ids"]


def test_consumed_samples_are_not_read_again(data: str, group: None) -> None:
    options: Any = {"shuffle": True, "seed": 3}
    whole = open_loader(data, **options)
    num_batches = len(whole.dataset)
    batches = [batch["tokens"] for batch in islice(whole, 2 * num_batches + 5)]
    for num_done in (0, 7, num_batches, num_batches + 3):
        rest = open_loader(data, consumed_samples=4 * num_done, **options)
        for expected, batch in zip(batches[num_done:], rest, strict=False):
            assert torch.equal(batch["tokens"], expected)
    half = open_loader(data, **options)
    assert sum(1 for _ in islice(half, 9)) == 9
    other = open_loader(data, **options)
    other.load_state_dict(half.state_dict())
    assert torch.equal(next(iter(other))["tokens"], batches[9])


def test_what_it_cannot_honour_is_refused(data: str, group: None) -> None:
    with pytest.raises(ValueError, match=r"multiple of .*4 \* 1.*load that. Got 6"):
        open_loader(data, consumed_samples=6)
    for name, words in {
        "sampler": "shuffle=, seed= and filters=",
        "rank": "group= names",
        "batch_size": "micro_batch_size=",
    }.items():
        with pytest.raises(TypeError, match=f"takes no {name}: {words}"):
            open_loader(data, **{name: 1})
    open_loader(data, group=parallel_state.get_data_parallel_group())
    parallel_state.destroy_model_parallel()
    with pytest.raises(ValueError, match=r"initialize_model_parallel\(\) first, or give group="):
        open_loader(data)
    given = open_loader(data, group=dist.group.WORLD)
    assert next(iter(given))["tokens"].shape == (4, LENGTH)


def test_other_dimensions_read_the_same(tmp_path: Path, data: str) -> None:
    """Four ranks: two of data, two of context or tensor parallelism."""
    run(torchrun(4, Path(__file__).parent / "jobs" / "megatron_job.py", data), tmp_path)


def told(output: str) -> dict[int, dict[str, Any]]:
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return {line["consumed_samples"]: line for line in lines}


def test_the_example_learns_and_goes_on(tmp_path: Path) -> None:
    write, train = documented("megatron.md")
    run(write, tmp_path)
    whole = told(run(train, tmp_path))
    losses = [line["loss"] for line in whole.values()]
    assert len(losses) == 100
    assert sum(losses[-5:]) / 5 < 0.8 * losses[0]
    options = ["--consumed-samples", 1440, "--train-samples", 1520]
    rest = told(run(torchrun(2, PROGRAM, "documents", *options), tmp_path))
    assert list(rest) == [1456, 1472, 1488, 1504, 1520]
    assert all(whole[at]["first"] == line["first"] for at, line in rest.items())
