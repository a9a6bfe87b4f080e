"""StatefulDataLoader, DataLoader's options, compiled models and profiles, in real processes."""

from __future__ import annotations

import json
import shutil
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from clicks import ClickModel, open_clicks
from tests.frameworks.jobs.example_records import (
    NUM_ROWS,
    assert_even_steps,
    assert_no_row_is_missing,
    assert_same_steps,
    read_record,
    rows_of_epoch,
)
from tests.frameworks.jobs.recorded import ids_of
from tests.frameworks.jobs.running import documented, run


def test_a_stateful_loader_goes_on_bit_for_bit(clicks: Any, tmp_path: Path) -> None:
    pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
    (tmp_path / "clicks").symlink_to(clicks)
    _, train = documented("dataloader.md")
    run([*train, "--record", "whole"], tmp_path)
    whole = read_record(tmp_path / "whole")
    assert_even_steps(whole, 2)
    for epoch in range(2):
        # Two ranks of two workers, which are made even among each other.
        assert_no_row_is_missing(rows_of_epoch(whole, epoch), 4)

    shutil.rmtree(tmp_path / "checkpoints")
    run([*train, "--record", "record", "--stop-after", "13"], tmp_path)
    assert_same_steps(read_record(tmp_path / "record"), whole)
    run([*train, "--record", "rest"], tmp_path)
    rest = read_record(tmp_path / "rest")
    assert [line["step"] for line in rest[0]] == list(range(11, whole[0][-1]["step"] + 1))
    assert_same_steps(rest, whole)


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true")
def test_persistent_workers_and_pinned_memory(clicks: Any) -> None:
    """Two workers of one rank read what two ranks would, and take turns."""
    options = {"batch_size": 256, "even": "none"}
    dataset = open_clicks(str(clicks), **options)
    loader = DataLoader(
        dataset, batch_size=None, num_workers=2, persistent_workers=True, pin_memory=True
    )
    ranks = [open_clicks(str(clicks), rank=rank, world_size=2, **options) for rank in (0, 1)]
    for epoch in (0, 1, 7):
        for each in (dataset, *ranks):
            each.set_epoch(epoch)
        turns = zip_longest(*map(ids_of, ranks))
        expected = [rows for turn in turns for rows in turn if rows is not None]
        found = []
        for batch in loader:
            assert batch["dense"].is_pinned() == torch.cuda.is_available()
            found.append(batch["row.id"].tolist())
        assert found == expected
        assert sorted(chain.from_iterable(found)) == list(range(NUM_ROWS))


@pytest.mark.parametrize("drop_last", [True, False])
def test_a_model_is_compiled_once_for_each_size(clicks: Any, drop_last: bool) -> None:
    """Batches lie at changing places of recycled memory, which is no reason to compile anew."""
    sizes: list[int] = []

    def counting(graph: Any, inputs: Any) -> Any:
        sizes.append(len(inputs))
        return graph.forward

    torch._dynamo.reset()
    model = ClickModel()
    compiled = torch.compile(model, backend=counting)
    dataset = open_clicks(str(clicks), batch_size=256, drop_last=drop_last)
    with torch.no_grad():
        for _ in range(2):
            for batch in dataset:
                logits = compiled(batch["dense"], batch["sparse"])  # type: ignore[no-untyped-call]
                assert logits.equal(model(batch["dense"], batch["sparse"]))
    assert len(sizes) == (1 if drop_last else 2)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_the_trace_of_a_compiled_model_shows_the_waits(clicks: Any, tmp_path: Path) -> None:
    (tmp_path / "clicks").symlink_to(clicks)
    _, train = documented("dataloader.md", 1)
    output = run(train, tmp_path)
    assert "torchparquet.wait: 20 times" in output
    assert "train: 20 times" in output
    ranges = ranges_of(tmp_path / "trace.json", {"torchparquet.wait", "train"})
    assert [name for _, _, name in ranges] == ["torchparquet.wait", "train"] * 20
    ends = [end for _, end, _ in ranges]
    assert all(end <= begin for end, (begin, _, _) in zip(ends, ranges[1:], strict=False))


def ranges_of(trace: Path, names: set[str]) -> list[tuple[float, float, str]]:
    """Begin, end and name of each range, in the order of time."""
    events = json.loads(trace.read_text())["traceEvents"]
    found = [event for event in events if event["name"] in names and "dur" in event]
    ranges = [(event["ts"], event["ts"] + event["dur"], event["name"]) for event in found]
    return sorted(ranges)
