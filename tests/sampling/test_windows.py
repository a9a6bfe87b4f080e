"""Windows over consecutive rows, against windows that plain Python cuts from lists."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from tests.fixtures.random_cases import in_random_cases
from tests.sampling.test_sampling import (
    WORLDS,
    World,
    made,
    write_two_files,
)
from torchparquet import ParquetDataset, Window, mix, verify_no_shard_overlap

pytestmark = pytest.mark.filterwarnings("ignore:this epoch has no step")


@dataclass(frozen=True)
class Data:
    """The columns of all rows; times are multiples of 1 / 8, so sums of them are exact."""

    row_groups: list[int]
    episodes: list[str]
    times: list[float]

    @property
    def rows(self) -> range:
        return range(len(self.episodes))

    def write(self, folder: str) -> None:
        """Write two files, if there are two row groups."""
        columns: dict[str, Any] = {
            "x": np.arange(len(self.rows), dtype=np.float32) + 1,
            "y": -np.arange(len(self.rows), dtype=np.float32) - 1,
            "count": np.arange(len(self.rows), dtype=np.uint16) + 1,
            "text": [f"row {row}" for row in self.rows],
            "label": list(self.rows),
            "episode": self.episodes,
            "time": self.times,
        }
        write_two_files(folder, pa.table(columns), self.row_groups)


@st.composite
def data_of(draw: st.DrawFn) -> Data:
    row_groups = draw(st.lists(st.integers(1, 25), min_size=1, max_size=6))
    lengths: list[int] = []
    num_rows = sum(row_groups)
    while sum(lengths) < num_rows:
        lengths.append(draw(st.sampled_from([1, 2, 5, 9, 60])))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    # A value may come back in another episode, though not in the next one.
    names = [f"episode {number % 3} {number // 5}" for number in range(len(lengths))]
    episodes = list(chain(*([name] * of for name, of in zip(names, lengths, strict=True))))
    times = [(rng.integers(0, 99) + np.cumsum(rng.integers(1, 8, of))) / 8 for of in lengths]
    return Data(row_groups, episodes[:num_rows], list(map(float, chain(*times)))[:num_rows])


@st.composite
def window_of(draw: st.DrawFn) -> Window:
    edges = draw(st.sampled_from(["drop", "repeat", "pad"]))
    columns = ["xy", "count"] + (["text"] if edges != "pad" else [])
    options: dict[str, Any] = {"edges": edges, "stride": draw(st.integers(1, 4))}
    numbers: st.SearchStrategy[float] = st.integers(-4, 6)
    kind = draw(st.sampled_from(["rows", "offsets", "by column", "times"]))
    if kind == "times":
        numbers = st.integers(-16, 16).map(lambda of: of / 16)
        options["tolerance"] = draw(st.integers(0, 6)) / 16
    offsets = st.lists(numbers, min_size=1, max_size=6, unique=True).map(sorted)
    if kind in ("rows", "by column"):
        options |= {"past": draw(st.integers(0, 3)), "future": draw(st.integers(0, 6))}
    if kind == "by column" or (kind == "times" and draw(st.booleans())):
        named = columns if kind == "times" else columns[: draw(st.integers(1, len(columns)))]
        options["offsets"] = {column: draw(offsets) for column in named}
    elif kind != "rows":
        options["offsets"] = draw(offsets)
    return Window(columns, by="episode", order="time", **options)


def cut(data: Data, window: Any) -> dict[int, dict[str, list[tuple[int, bool]]]]:
    """Return for each anchor, by column, the rows of its window and whether they are there."""
    offsets_of: dict[str, Any] = dict.fromkeys(
        window.columns, range(-window.past, window.future + 1)
    )
    if window.offsets is not None:
        by_column = isinstance(window.offsets[0], tuple)
        offsets_of |= dict(
            window.offsets if by_column else dict.fromkeys(offsets_of, window.offsets)
        )
    episodes: list[list[int]] = []
    for row in data.rows:
        if not row or data.episodes[row] != data.episodes[row - 1]:
            episodes.append([])
        episodes[-1].append(row)
    found: dict[int, dict[str, list[tuple[int, bool]]]] = {}
    for rows in episodes:
        anchors = {}
        for row in rows:
            cuts: dict[str, list[tuple[int, bool]]] = {}
            for column, offsets in offsets_of.items():
                cuts[column] = []
                for offset in offsets:
                    if window.tolerance is None:
                        near = min(max(row + offset, rows[0]), rows[-1])
                        cuts[column].append((near, near == row + offset))
                    else:
                        time = data.times[row] + offset
                        distances = [abs(data.times[of] - time) for of in rows]
                        near = rows[distances.index(min(distances))]
                        is_there = abs(data.times[near] - time) <= window.tolerance
                        cuts[column].append((near, is_there))
            is_whole = all(is_there for of in cuts.values() for _, is_there in of)
            if window.edges != "drop" or is_whole:
                anchors[row] = cuts
        found |= dict(list(anchors.items())[:: window.stride])
    return found


def anchors_of(batch: dict[str, Any], window: Window, cuts: dict[int, Any]) -> list[int]:
    """Return the anchors of a batch, of which every column must have the windows."""
    anchors: list[int] = batch["row.id"].tolist()
    assert batch["label"].tolist() == anchors
    pads = window.edges == "pad"
    for column in window.columns:
        wanted = [cuts[anchor][column] for anchor in anchors]
        kept = [[(row + 1) * (there or not pads) for row, there in of] for of in wanted]
        if column == "text":
            rows = [[f"row {row}" for row, _ in of] for of in wanted]
            assert batch[column].to_str() == rows
        elif column == "count":
            assert batch[column].dtype == torch.uint16
            assert batch[column].tolist() == kept
        else:
            assert batch[column].tolist() == [[[float(x), -float(x)] for x in of] for of in kept]
        if pads:
            given_offsets: Any = window.offsets
            own = given_offsets is not None and isinstance(given_offsets[0], tuple)
            mask = batch[f"{column}.window.valid" if own else "window.valid"]
            assert mask.tolist() == [[there for _, there in of] for of in wanted]
    return anchors


COLUMNS = {"xy": ["x", "y"], "count": "count", "text": "text", "label": "label"}


@in_random_cases(60, data_of(), WORLDS, window_of(), st.sampled_from([2**15, 2**30]))
def test_windows_are_those_that_python_cuts_from_lists(
    data: Data, world: World, window: Window, max_memory: int
) -> None:
    cuts = cut(data, window)
    options: dict[str, Any] = {"pack": window, "columns": COLUMNS, "max_memory": max_memory}
    with tempfile.TemporaryDirectory() as folder:
        data.write(folder)
        if not cuts:
            with pytest.raises(ValueError, match="no window fits an episode"):
                made(folder, world, 1, 0, **options)
            return

        def read(rank: int, even: str, size: int = world.size, state: Any = None) -> Any:
            dataset = made(folder, world, size, rank, even=even, **options)
            if state is not None:
                dataset.load_state_dict(state)
            batches = [anchors_of(batch, window, cuts) for batch in dataset]
            assert state is not None or len(batches) == len(dataset)
            return batches

        ranks = range(world.size)
        whole = [batch for rank in ranks for batch in read(rank, "none")]
        assert world.shuffle or all(batch == sorted(batch) for batch in whole)
        once = Counter(chain(*whole))
        assert once == Counter(cuts.keys())
        batches = [read(rank, world.even) for rank in ranks]
        assert len({len(of_rank) for of_rank in batches}) == 1
        delivered = Counter(chain(*chain(*batches)))
        assert set(delivered) <= set(cuts)
        assert world.even == "drop" or set(delivered) == set(cuts)
        assert world.even != "split" or (delivered - once).total() < world.size
        stop = min(world.stop, len(batches[0]))
        dataset = made(folder, world, world.size, 0, even=world.even, **options)
        begun = [anchors_of(batch, window, cuts) for batch in islice(dataset, stop)]
        assert begun == batches[0][:stop]
        state = dataset.state_dict()
        if 0 < stop < len(batches[0]):
            assert read(0, world.even, state=state) == batches[0][stop:]
            if world.even != "drop":
                both = set(chain(*(chain(*of_rank[:stop]) for of_rank in batches)))
                for rank in range(world.later_size):
                    both |= set(chain(*read(rank, world.even, world.later_size, state)))
                assert both == set(cuts)


def table_of(episodes: list[Any], times: list[Any], **columns: Any) -> pa.Table:
    numbers = np.arange(len(episodes), dtype=np.float32)
    return pa.table({"episode": episodes, "time": times, "x": numbers, **columns})


def windows_of(table: Any, batch_size: int = 100, **options: Any) -> list[Any]:
    window = Window("x", by="episode", order="time", **options)
    columns = ["x"] if isinstance(table, pa.Table) else None
    dataset = ParquetDataset(table, batch_size=batch_size, columns=columns, pack=window)
    return [window for batch in dataset for window in batch["x"].tolist()]


def test_a_window_of_one_row_is_the_row() -> None:
    table = table_of([0, 0, 1], [0, 1, 0])
    assert windows_of(table) == [[0.0], [1.0], [2.0]]


def test_the_shapes_of_windows_are_told() -> None:
    table = pa.table(
        {"x": [1.0, 2.0], "y": [1, 2], "z": pa.array([[1, 2]] * 2, pa.list_(pa.int8(), 2))}
    )
    dataset = ParquetDataset(table, batch_size=1, pack=Window(["x", "z"], past=1, edges="pad"))
    told = [field.description.split(", nulls")[0] for field in dataset.fields]
    shapes = {name: list(of.shape[1:]) for name, of in next(iter(dataset)).items()}
    assert told == ["float64 [B, 2]", "int64 [B]", "int8 [B, 2, 2]"]
    assert [shapes[name] for name in "xyz"] == [[2], [], [2, 2]]


def test_an_episode_of_one_row_has_its_row_again_and_again() -> None:
    table = table_of(["a", "b", "b"], [5, 1, 2])
    found = windows_of(table, past=1, future=2, edges="repeat")
    assert found == [[0.0] * 4, [1.0, 1.0, 2.0, 2.0], [1.0, 2.0, 2.0, 2.0]]
    assert windows_of(table, past=1) == [[1.0, 2.0]]


def test_rows_of_equal_times_keep_the_order_of_the_file() -> None:
    assert windows_of(table_of([0] * 3, [1, 1, 2]), future=1) == [[0.0, 1.0], [1.0, 2.0]]


def test_of_rows_of_equal_times_the_anchor_is_nearest() -> None:
    table = table_of([0] * 4, [0.0, 1.0, 1.0, 1.0])
    options: dict[str, Any] = {"offsets": [-1.0, 0.0], "tolerance": 0.1, "edges": "repeat"}
    assert windows_of(table, **options) == [[0.0, 0.0], [0.0, 1.0], [0.0, 2.0], [0.0, 3.0]]


@pytest.mark.parametrize("times", [[0, 2, 1, 5], [3.0, 2.5, 1.0, 0.5]])
def test_a_descending_order_names_the_row(tmp_path: Path, times: list[float]) -> None:
    pq.write_table(table_of([0, 0, 0, 1], times), tmp_path / "a.parquet", row_group_size=2)
    text = r"must not descend within an episode; sort the rows .* row group 1, row 0 has 1"
    if times[1] < times[0]:
        text = r"a.parquet', row group 0, row 1 has 2.5 after 3.0"
    with pytest.raises(ValueError, match=text):
        windows_of(tmp_path)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ((["a", None, "b"], [0, 1, 2]), "by= of Window needs a key in every row; leave out"),
        (([0, 0, 0], [0, None, 2]), "order= of Window needs a number in every row"),
        (([0, 0, 0], [0.0, float("nan"), 2.0]), "order= of Window needs a number in every row"),
        (([0, 0, 0], ["a", "b", "c"]), "needs a column of numbers: 'time' has strings"),
    ],
)
def test_keys_and_times_must_be_there(columns: tuple[list[Any], list[Any]], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        windows_of(table_of(*columns))


def test_times_of_any_unit_are_seconds() -> None:
    milliseconds = pa.array([0, 100, 205, 300, 700], pa.timestamp("ms"))
    table = table_of([0] * 5, milliseconds)
    options: dict[str, Any] = {"offsets": [-0.1, 0, 0.1], "tolerance": 0.01}
    assert windows_of(table, **options) == [[0.0, 1.0, 2.0], [1.0, 2.0, 3.0]]
    assert windows_of(table, **options, stride=2) == [[0.0, 1.0, 2.0]]
    found = windows_of(table, **options, edges="pad")
    assert found[3:] == [[2.0, 3.0, 0.0], [0.0, 4.0, 0.0]]


def test_masks_and_fills_are_windowed_as_their_columns() -> None:
    table = table_of([0] * 4, [0, 1, 2, 3], y=[7, None, 9, 10])
    window = Window("y", by="episode", past=1, edges="pad")
    options: dict[str, Any] = {"batch_size": 4, "columns": ["y"], "nulls": {"y": "mask"}}
    (batch,) = ParquetDataset(table, pack=window, **options)
    assert batch["y"].tolist() == [[0, 7], [7, 0], [0, 9], [9, 10]]
    assert batch["y.valid"].tolist() == [[False, True], [True, False], [False, True], [True, True]]
    assert batch["window.valid"].tolist() == [[False, True]] + [[True, True]] * 3


def test_windows_of_long_episodes_take_the_memory_of_a_block() -> None:
    table = table_of([0] * 50_000, list(range(50_000)))
    options: dict[str, Any] = {"batch_size": 100, "columns": ["x"], "num_threads": 1}
    window = Window("x", by="episode", order="time", past=5, future=5)
    dataset = ParquetDataset(table, pack=window, max_memory="64KiB", **options)
    assert dataset.manifest.row_group_num_rows.max() * 4 <= 2**16
    starts = [batch["x"][:, 0].tolist() for batch in dataset]
    assert list(chain(*starts)) == list(map(float, range(50_000 - 10)))
    with pytest.raises(ValueError, match=r"must hold at least two batches, \d+ bytes .* windows"):
        ParquetDataset(table, pack=window, max_memory="4KiB", **options)


def test_workers_share_the_windows_of_a_rank(tmp_path: Path) -> None:
    data = Data([40, 7, 53], ["a"] * 30 + ["b"] * 70, [float(row % 30) for row in range(30)] * 4)
    data = Data(data.row_groups, data.episodes, [*data.times[:30], *map(float, range(70))])
    data.write(str(tmp_path))
    window = Window(["xy", "text"], by="episode", order="time", past=2, future=3, edges="repeat")
    dataset = ParquetDataset(
        tmp_path,
        batch_size=7,
        columns=COLUMNS,
        pack=window,
        row_ids=True,
        shuffle=True,
        rank=1,
        world_size=2,
    )
    cuts = cut(data, window)
    loader = DataLoader(dataset, batch_size=None, num_workers=2)
    found = [anchors_of(batch, window, cuts) for batch in loader]
    assert len(found) == dataset.num_steps(num_workers=2)
    rows = list(chain(*found))
    assert len(set(rows)) == len(rows) == 50


def test_filters_join_what_is_left_of_an_episode(tmp_path: Path) -> None:
    table = table_of([0] * 6 + [1] * 3, list(range(9)), keep=[1, 0, 1, 1, 0, 1, 1, 1, 0])
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=4)
    window = Window("x", by="episode", order="time", future=1)
    dataset = ParquetDataset(
        tmp_path, batch_size=9, columns=["x"], filters=[("keep", "==", 1)], pack=window
    )
    (batch,) = dataset
    assert batch["x"].tolist() == [[0, 2], [2, 3], [3, 5], [6, 7]]


def test_a_mix_has_windows_of_each_data_set() -> None:
    datasets = [
        ParquetDataset(
            table_of([0] * 20, list(range(20)), y=[number] * 20),
            batch_size=4,
            columns=["x", "y"],
            pack=Window("x", by="episode", order="time", future=2),
        )
        for number in range(2)
    ]
    batch = next(iter(mix(datasets, weights=[1, 1], within_batch=True, batch_size=4)))
    assert batch["x"].shape == (4, 3)
    assert sorted(batch["y"].tolist()) == [0, 0, 1, 1]


def test_rows_one_by_one_are_windows() -> None:
    table = table_of([0] * 3, [0, 1, 2], text=["a", "b", "c"])
    window = Window(["x", "text"], by="episode", order="time", future=1)
    dataset = ParquetDataset(table, batch_size=2, columns=["x", "text"], pack=window)
    rows = list(dataset.unbatched())
    assert [row["x"].tolist() for row in rows] == [[0, 1], [1, 2]]
    assert [row["text"] for row in rows] == [["a", "b"], ["b", "c"]]


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_audit_counts_anchors(tmp_path: Path, shuffle: bool) -> None:
    pq.write_table(table_of([0] * 50, list(range(50))), tmp_path / "a.parquet", row_group_size=8)
    dataset = ParquetDataset(
        tmp_path,
        batch_size=4,
        columns=["x"],
        pack=Window("x", by="episode", order="time", past=3, future=1, stride=2),
        row_ids=True,
        shuffle=shuffle,
    )
    audit = verify_no_shard_overlap(dataset, read=True)
    assert audit.num_rows == 23


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"past": -1}, "past must be >= 0"),
        ({"stride": 0}, "stride must be >= 1"),
        ({"edges": "wrap"}, 'edges must be one of "drop", "repeat", "pad"'),
        ({"offsets": [0, 1], "future": 1}, "takes offsets, or past and future, not both"),
        ({"offsets": [1, 0]}, "offsets must ascend"),
        ({"offsets": [0.5]}, "in seconds they need tolerance="),
        ({"offsets": []}, "offsets must be numbers of rows"),
        ({"offsets": 5}, "offsets must be numbers of rows"),
        ({"offsets": {"y": [0]}}, r"must name columns of Window, got \['y'\]"),
        ({"tolerance": 0.1}, "tolerance goes with offsets="),
        ({"tolerance": -1.0, "offsets": [0]}, "tolerance must be 0 or more"),
        ({"tolerance": 1, "offsets": [0], "order": None}, "name it, as order="),
    ],
)
def test_a_window_that_cannot_be_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Window("x", **{"by": "episode", "order": "time"} | options)


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        (["y"], {}, r"must be columns of the batch, \['x', 'text'\]; got 'y'"),
        (["x"], {"past": 2**30}, "max_memory must hold at least two batches"),
        (["text"], {"edges": "pad"}, "needs columns of one shape"),
        (["x"], {"future": 9}, "no window fits an episode, the longest of which has 3 rows: short"),
        (["x"], {"offsets": [0.5], "tolerance": 0.1}, "no window fits .* take a larger tolerance"),
    ],
)
def test_windows_that_columns_do_not_have_are_refused(
    columns: list[str], options: dict[str, Any], text: str
) -> None:
    table = table_of([0] * 3, [0, 1, 2], text=["a", "b", "c"])
    window = Window(columns, by="episode", order="time", **options)
    with pytest.raises(ValueError, match=text):
        ParquetDataset(table, batch_size=2, columns=["x", "text"], pack=window)
