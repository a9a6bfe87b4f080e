"""Column(transform=...): values transformed on the way into a batch, and by hand."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
import xxhash
from numpy.typing import NDArray

from tests.columns.test_vocab import layout_of
from tests.fixtures.datasets import batches_of
from tests.fixtures.parquet_files import write
from torchparquet import ByLength, CastError, Column, Jagged, Pack, ParquetDataset
from torchparquet.features import Bucketize, Clip, Hash, Log1p, Scale, Transform, apply
from torchparquet.statistics import Statistics

NUM_ROWS = 3000
PLAIN: dict[str, Any] = {"use_dictionary": False}
LAYOUTS: dict[str, dict[str, Any]] = {
    "dictionary": {},
    "plain": PLAIN,
    "delta": PLAIN | {"column_encoding": "DELTA_BINARY_PACKED"},
    "split": PLAIN | {"column_encoding": "BYTE_STREAM_SPLIT"},
}


def bucket(value: Any, num_buckets: int, seed: int = 0) -> int:
    """By the package of the hash's author."""
    if isinstance(value, str):
        value = value.encode()
    if not isinstance(value, bytes):
        value = int(value).to_bytes(8, "little", signed=int(value) < 2**63)
    return xxhash.xxh64_intdigest(value, seed) % num_buckets


def read(path: Any, column: Column, **options: Any) -> Any:
    return torch.cat([batch["o"] for batch in batches_of(path, {"o": column}, **options)])


def written(path: Path, values: Any, **layout: Any) -> str:
    table = pa.table({"x": values})
    return write(
        path / "a.parquet", table, **{"row_group_size": 1100, "data_page_size": 700} | layout
    )


def numbers(dtype: str, seed: int = 0) -> NDArray[Any]:
    """Some of few different values, so that a dictionary has them, and the ends of the range."""
    rng = np.random.default_rng(seed)
    if dtype.startswith("float"):
        return (rng.integers(-30, 400, NUM_ROWS) / 8).astype(dtype)
    ends = np.iinfo(dtype)
    values = rng.integers(ends.min, ends.max, NUM_ROWS, dtype=dtype, endpoint=True)
    values[::2] = values[: NUM_ROWS // 20].repeat(10)
    values[:2] = ends.min, ends.max
    return values


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
def test_steps_are_those_of_numpy(tmp_path: Path, dtype: str, layout: str) -> None:
    if "int" not in dtype and layout == "delta":
        pytest.skip("DELTA_BINARY_PACKED is for integers")
    values = numbers(dtype)
    path = written(tmp_path, values, **LAYOUTS[layout])
    steps = [Clip(-0.5, 30), Log1p(), Scale(1.5, 0.25)]
    expected = (np.log1p(np.clip(values.astype("float64"), -0.5, 30)) - 1.5) / 0.25
    for batch_size in (70, None):
        for made in ("float32", "float64"):
            got = read(path, Column("x", transform=steps, dtype=made), batch_size=batch_size)
            assert got.dtype == getattr(torch, made)
            # The logarithms of two libraries differ by a bit.
            np.testing.assert_allclose(
                got.numpy(), expected.astype(made), float(16 * np.finfo(made).eps)
            )
    assert torch.equal(apply(steps, values), read(path, Column("x", transform=steps)))


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("layout", ["dictionary", "plain"])
def test_buckets_are_those_of_torch(tmp_path: Path, layout: str, right: bool) -> None:
    values = numbers("float64")
    borders = np.unique(values[1:200:9])[1:-1].tolist()
    values[::7] = np.nan
    path = written(tmp_path, values, **LAYOUTS[layout])
    expected = torch.bucketize(
        torch.from_numpy(values), torch.tensor(borders, dtype=torch.float64), right=right
    )
    transform = Bucketize(borders, right=right)
    assert torch.equal(read(path, Column("x", transform=transform)), expected)
    assert read(path, Column("x", transform=transform, dtype="int16")).dtype == torch.int16
    assert torch.equal(transform(values), expected)
    after = Column("x", transform=[Scale(3, 2), transform])
    assert torch.equal(
        read(path, after),
        torch.bucketize(
            torch.from_numpy((values - 3) / 2),
            torch.tensor(borders, dtype=torch.float64),
            right=right,
        ),
    )


@pytest.mark.parametrize("layout", ["dictionary", "plain", "delta", "split"])
@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
)
def test_hashes_of_integers(tmp_path: Path, dtype: str, layout: str) -> None:
    values = numbers(dtype)
    path = written(tmp_path, values, **LAYOUTS[layout])
    for num_buckets, seed in ((1, 0), (1000, 7), (2**40, 2**64 - 1)):
        transform = Hash(num_buckets, seed)
        expected = [bucket(one, num_buckets, seed) for one in values]
        assert read(path, Column("x", transform=transform)).tolist() == expected
        assert transform(values).tolist() == expected


def test_hashes_of_bools(tmp_path: Path) -> None:
    path = written(tmp_path, [True, False, None], data_page_size=1000)
    got = read(path, Column("x", transform=Hash(99), nulls=-1))
    assert got.tolist() == [bucket(1, 99), bucket(0, 99), -1]


@pytest.mark.parametrize("encoding", ["dictionary", "PLAIN", "DELTA_BYTE_ARRAY"])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary()])
def test_hashes_of_strings(tmp_path: Path, encoding: str, kind: Any) -> None:
    words = ["", "a", "über", "x" * 1000, *(f"user {i}" for i in range(40)), "nul\0"]
    values = [words[i * i % len(words)] for i in range(NUM_ROWS)]
    path = written(tmp_path, pa.array(values).cast(kind), **layout_of(encoding, "x"))
    transform = Hash(5000, seed=3)
    expected = [bucket(one, 5000, 3) for one in values]
    assert read(path, Column("x", transform=transform)).tolist() == expected
    assert transform(values).tolist() == expected
    assert transform("über").item() == bucket("über", 5000, 3)
    assert transform([["a", b"a"]]).tolist() == [[bucket("a", 5000, 3)] * 2]


def test_elements_of_lists(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    lists = [rng.integers(0, 90, rng.integers(0, 5)).tolist() for _ in range(NUM_ROWS)]
    texts = [[str(one) for one in some] for some in lists]
    table = pa.table({"n": lists, "s": texts, "k": np.arange(NUM_ROWS)})
    path = write(tmp_path / "a.parquet", table, row_group_size=700)
    columns = {
        "n": Column("n", transform=Scale(2, 4)),
        "s": Column("s", transform=Hash(30)),
        "group": Column(["n", "s", "k"], transform={"n": Hash(7), "s": Hash(11), "k": Hash(5)}),
    }
    at = 0
    for batch in batches_of(path, columns, batch_size=130):
        rows = range(at, at + len(batch["n"]))
        at = rows.stop
        flat = [one for row in rows for one in lists[row]]
        assert batch["n"].values.tolist() == [(one - 2) / 4 for one in flat]
        assert batch["s"].values.tolist() == [bucket(str(one), 30) for one in flat]
        assert batch["group"]["n"].values.tolist() == [bucket(one, 7) for one in flat]
        assert batch["group"]["s"].values.tolist() == [bucket(str(one), 11) for one in flat]
        assert batch["group"]["k"].values.tolist() == [bucket(row, 5) for row in rows]
    assert at == NUM_ROWS


def test_a_tensor_of_several_columns(tmp_path: Path) -> None:
    table = pa.table({"a": [1.0, 2.0, 4.0], "b": [10, 20, 30], "s": ["u", "v", "u"]})
    path = write(tmp_path / "a.parquet", table)
    scaled = Column(["a", "b"], transform={"b": [Scale(10, 10)]})
    assert read(path, scaled).tolist() == [[1.0, 0.0], [2.0, 1.0], [4.0, 2.0]]
    hashed = Column(["b", "s"], transform=Hash(50))
    expected = [[bucket(b, 50), bucket(s, 50)] for b, s in ((10, "u"), (20, "v"), (30, "u"))]
    assert read(path, hashed).tolist() == expected
    assert replace(Column("x", transform=Hash(5)), transform=Log1p()).dtype_name == "float32"
    assert scaled == pickle.loads(pickle.dumps(scaled))


def test_nulls_are_not_transformed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pa.table({"x": [None, 3.0], "s": ["u", None]}))
    scaled = Scale(1, 2)
    assert read(path, Column("x", transform=scaled)).isnan().tolist() == [True, False]
    assert read(path, Column("x", transform=scaled, nulls=9)).tolist() == [9, 1]
    assert read(path, Column("s", transform=Hash(5), nulls=4)).tolist() == [bucket("u", 5), 4]
    (batch,) = batches_of(path, {"o": Column("x", transform=scaled, nulls="mask")})
    assert batch["o.valid"].tolist() == [False, True]


def test_values_that_no_file_stores_are_transformed(tmp_path: Path) -> None:
    for key, day, table in (
        ("us", 1, pa.table({"x": [1.0], "s": ["v"], "l": [[1, 2]]})),
        ("de", 2, pa.table({"y": [1.0]})),
    ):
        write(tmp_path / f"land={key}" / f"day={day}" / "a.parquet", table)
    columns = {
        "land": Column("land", transform=Hash(100)),
        "day": Column("day", transform=Scale(1, 2)),
        "hash": Column("day", transform=Hash(100)),
        "x": Column("x", transform=[Log1p()], default=3, dtype="float64"),
        "s": Column("s", transform=Hash(100), default="w"),
        "l": Column("l", transform=Hash(100), default=[5]),
    }
    first, second = sorted(
        batches_of(tmp_path, columns, batch_size=1), key=lambda batch: batch["day"].item()
    )
    assert first["land"].item() == bucket("us", 100)
    assert second["land"].item() == bucket("de", 100)
    assert (first["day"].item(), second["day"].item()) == (0, 0.5)
    assert (first["hash"].item(), second["hash"].item()) == (bucket("1", 100), bucket("2", 100))
    assert second["x"].item() == pytest.approx(np.log1p(3.0), 1e-15)
    assert second["s"].item() == bucket("w", 100)
    assert second["l"].values.tolist() == [bucket(5, 100)]


def test_defaults_of_columns_with_transforms_of_their_own(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", pa.table({"a": ["u"], "b": ["u"], "i": [1], "x": [1.0]}))
    write(tmp_path / "b.parquet", pa.table({"z": [0]}))
    texts = Column(["a", "b"], transform={"a": Hash(10), "b": Hash(1000)}, default="zz")
    rows = [[bucket(word, 10), bucket(word, 1000)] for word in ("u", "zz")]
    assert read(tmp_path, texts).tolist() == rows
    numbers_too = Column(["i", "x"], transform={"i": Scale(1, 2)}, default=5, dtype="float64")
    assert read(tmp_path, numbers_too).tolist() == [[0.0, 1.0], [2.0, 5.0]]
    huge = Column("x", transform=Scale(0, 1e-30), default=1e10, dtype="float64")
    assert read(tmp_path, huge).tolist() == pytest.approx([1e30, 1e40])
    for column in (Column("a", transform=Hash(9), default=5), replace(texts, default=5)):
        with pytest.raises(ValueError, match="is a str or bytes"):
            read(tmp_path, column)


def test_a_key_without_a_transform_beside_others(tmp_path: Path) -> None:
    write(tmp_path / "k=3" / "a.parquet", pa.table({"x": [1.0]}))
    column = Column(["k", "x"], transform={"x": Scale(0, 2)})
    assert read(tmp_path, column).tolist() == [[3.0, 0.5]]


@pytest.mark.parametrize(
    "sizes", [{"max_tokens": 6}, {"bucket_boundaries": [2], "bucket_batch_sizes": [2, 2]}]
)
def test_lengths_of_lists_of_hashed_strings(tmp_path: Path, sizes: Any) -> None:
    lists = [["a"] * (i % 3 + 1) for i in range(20)]
    path = write(tmp_path / "a.parquet", pa.table({"l": lists, "m": lists}))
    column = Column("l", transform=Hash(50))
    batches = batches_of(path, {"o": column}, batch_size=ByLength("o", **sizes))
    assert sum(len(batch["o"]) for batch in batches) == 20
    for pack in (Pack("o", length=6, strategy="best_fit"), Pack(["o", "p"], length=6)):
        columns = {"o": column} | (
            {} if pack.names == ("o",) else {"p": replace(column, source="m")}
        )
        packed = torch.cat([b["o"] for b in batches_of(path, columns, batch_size=2, pack=pack)])
        assert (packed == bucket("a", 50)).sum() == sum(map(len, lists))


def test_shuffled_and_packed(tmp_path: Path) -> None:
    lists = [[i, i + 1, i + 2] for i in range(0, 900, 3)]
    path = write(tmp_path / "a.parquet", pa.table({"t": lists}))
    column = Column("t", transform=Hash(2**20))
    tokens = torch.cat(
        [b["t"] for b in batches_of(path, {"t": column}, pack=Pack("t", length=9), batch_size=4)]
    )
    assert tokens.flatten().tolist() == [bucket(i, 2**20) for i in range(900)]
    rows = written(tmp_path, np.arange(NUM_ROWS))
    shuffled = read(rows, Column("x", transform=Hash(2**40)), shuffle=True, seed=1, batch_size=64)
    expected = [bucket(i, 2**40) for i in range(NUM_ROWS)]
    assert shuffled.tolist() != expected
    assert sorted(shuffled.tolist()) == sorted(expected)


def test_files_of_different_kinds(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", pa.table({"x": pa.array([1], pa.int32())}))
    write(tmp_path / "b.parquet", pa.table({"x": pa.array([2], pa.int64())}))
    assert read(tmp_path, Column("x", transform=Hash(9))).tolist() == [bucket(1, 9), bucket(2, 9)]
    assert read(tmp_path, Column("x", transform=Scale(0, 2))).tolist() == [0.5, 1.0]


def test_files_of_nulls_alone(tmp_path: Path) -> None:
    for name, values in (("a", pa.nulls(2)), ("b", ["u", "v"]), ("c", pa.nulls(1, pa.string()))):
        write(tmp_path / f"{name}.parquet", pa.table({"x": values}))
    got = read(tmp_path, Column("x", transform=Hash(9), nulls=-1))
    assert got.tolist() == [-1, -1, bucket("u", 9), bucket("v", 9), -1]


def test_tensors_by_hand() -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.int16, torch.bool):
        values = torch.tensor([[0.0, 1.0], [1.0, 0.0]], requires_grad=dtype.is_floating_point).to(
            dtype
        )
        assert Scale(1, 2)(values).tolist() == [[-0.5, 0.0], [0.0, -0.5]]
    assert Scale(1, 2)(3).item() == 1.0
    assert Hash(7)(np.array([["a", "b"]])).tolist() == [[bucket("a", 7), bucket("b", 7)]]
    mixed = [1, 2**63, -3]
    assert Hash(99)(mixed).tolist() == [bucket(one, 99) for one in mixed]
    assert Hash(99)([b"a\0", "a"]).tolist() == [bucket(b"a\0", 99), bucket("a", 99)]
    assert Hash(99)(bytearray(b"ab")).item() == bucket(b"ab", 99)
    assert Hash(7)([]).tolist() == Scale(1, 2)(np.zeros(0)).tolist() == []


def test_times_are_in_the_unit(tmp_path: Path) -> None:
    path = written(tmp_path, pa.array([1500, 2500], pa.timestamp("ms")), data_page_size=1000)
    hours = Column("x", unit="s", transform=Scale(0, 0.5))
    assert read(path, hours).tolist() == [3.0, 5.0]
    with pytest.raises(CastError, match="no whole number of the unit"):
        read(path, Column("x", unit="s", transform=Hash(9)))


def test_a_state_of_other_transforms_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, np.arange(NUM_ROWS))

    def opened(transform: Any) -> ParquetDataset:
        return ParquetDataset(path, batch_size=10, columns={"o": Column("x", transform=transform)})

    iterator = iter(opened(Scale(1, 2)))
    next(iterator)
    state = iterator.state_dict()
    opened(Scale(1, 2)).load_state_dict(state)
    for other in (Scale(1, 3), [Scale(1, 2), Log1p()], Log1p()):
        with pytest.raises(ValueError, match="columns"):
            opened(other).load_state_dict(state)


def test_transforms_from_statistics(tmp_path: Path) -> None:
    values = numbers("float64", seed=3)
    path = written(tmp_path, values)
    found = Statistics.of(ParquetDataset(path, batch_size=100))["x"]
    scaled = read(path, Column("x", transform=found.scale(), dtype="float64"))
    np.testing.assert_allclose(scaled.numpy(), (values - values.mean()) / values.std(), 1e-9, 1e-9)
    clipped = read(path, Column("x", transform=found.clip(0.1, 0.9), dtype="float64"))
    low, high = np.quantile(values, [0.1, 0.9])
    np.testing.assert_allclose(clipped.numpy(), values.clip(low, high))
    buckets = read(path, Column("x", transform=found.bucketize(4)))
    shares = torch.bincount(buckets) / NUM_ROWS
    assert shares.tolist() == pytest.approx([0.25] * 4, abs=0.02)
    logged = ParquetDataset(
        path, batch_size=100, columns=[Column("x", transform=[Clip(0), Log1p()])]
    )
    of_logs = Statistics.of(logged)["x"]
    assert of_logs.mean == pytest.approx(np.log1p(values.clip(0)).mean())
    with pytest.raises(ValueError, match="numbers that differ"):
        Statistics.of(ParquetDataset(pa.table({"x": [1.0, 1.0]}), batch_size=1))["x"].scale()


@pytest.mark.parametrize(
    ("error", "make", "message"),
    [
        (TypeError, lambda: Column("x", transform=Transform()), "takes Clip, Log1p"),
        (TypeError, lambda: Column("x", transform=abs), "goes to the data set"),  # type: ignore[arg-type]
        (ValueError, lambda: Column("x", transform=[]), "leave it out for none"),
        (ValueError, lambda: Column("x", transform=[Log1p(), Hash(3)]), "the only transform"),
        (ValueError, lambda: Column("x", transform=[Bucketize([1]), Log1p()]), "the last"),
        (ValueError, lambda: Column("x", transform=Log1p(), dtype="int64"), "a dtype of floats"),
        (ValueError, lambda: Column("x", transform=Hash(3), dtype="float32"), "a dtype of ints"),
        (ValueError, lambda: Column("x", transform=Hash(200), dtype="int8"), "200 buckets do not"),
        (ValueError, lambda: Column("x", transform=Hash(3), vocab=["a"]), "neither with vocab"),
        (ValueError, lambda: Column("x", transform={"x": Hash(3)}), "of one tensor"),
        (ValueError, lambda: Column(["x", "y"], transform={"z": Hash(3)}), "not among them: 'z'"),
        (
            ValueError,
            lambda: Column(["x", "y"], transform={"x": Hash(3), "y": Log1p()}),
            "all end in buckets",
        ),
        (ValueError, lambda: Hash(0), "num_buckets must be >= 1"),
        (ValueError, lambda: Scale(0, 0), "std above 0"),
        (ValueError, lambda: Clip(2, 1), "low must be <= high"),
        (TypeError, lambda: Clip(float("nan")), "low must be a number"),
        (ValueError, lambda: Bucketize([2, 1]), "ascending"),
        (ValueError, lambda: Bucketize([]), "one number or more"),
        (TypeError, lambda: Hash(3)([1.5]), "takes integers"),
        (TypeError, lambda: Hash(3)(np.array([b"a"])), "give a list of bytes"),
        (TypeError, lambda: Hash(3)(np.ma.array([1], mask=[True])), "without a mask"),
        (TypeError, lambda: Hash(3)(Jagged.from_lists([[1]])), "by their `.values`"),
        (ValueError, lambda: Hash(3)([["a"], ["b", "c"]]), "of one length"),
        (ValueError, lambda: Clip(0, 10**400), "that float64 holds"),
        (TypeError, lambda: Bucketize(3.0), "a sequence of numbers"),  # type: ignore[arg-type]
        (TypeError, lambda: Column("x", transform=(("x",),)), "takes a mapping"),
        (TypeError, lambda: Log1p()(["a"]), "takes numbers"),
    ],
)
def test_what_does_not_fit(error: Any, make: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (Column("s", transform=Log1p()), "Log1p takes numbers; 'o' reads 's', which is string"),
        (Column("f", transform=Hash(3)), "Hash takes integers, strings and binary"),
        (Column("b", transform=Hash(3)), "Hash takes integers, strings and binary"),
    ],
)
def test_columns_that_a_transform_does_not_take(
    tmp_path: Path, column: Column, message: str
) -> None:
    table = pa.table({"s": ["a"], "f": [0.5], "b": pa.array([b"ab"], pa.binary(2))})
    path = write(tmp_path / "a.parquet", table)
    with pytest.raises(ValueError, match=message):
        ParquetDataset(path, batch_size=1, columns={"o": column})
