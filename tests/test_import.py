"""The effects of `import torchparquet`, the pyarrow that it takes, and its public names."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
import textwrap
import tomllib
from importlib import metadata
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

import torchparquet
from tests.fixtures.forked_programs import ran
from tests.fixtures.shape_files import shape_files
from tests.fixtures.tree import ROOT, completed
from torchparquet._impl import _core, bridge, native

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def run(program: str, *options: str, **variables: str) -> CompletedProcess[str]:
    """Run a program with options of Python before it, and variables of its environment."""
    return completed(*options, "-c", textwrap.dedent(program), **variables)


# The import


@pytest.mark.long
def test_import_starts_and_prints_nothing(record_property: Any, capsys: Any) -> None:
    """Measured over torch and pyarrow, which have to be there; the figure is only reported."""
    result = run(
        """
        import os, sys, time
        import numpy, pyarrow, torch, torch.distributed, torch.utils.data
        def held():
            return [len(os.listdir(f"/proc/self/{kind}")) for kind in ("task", "fd")]
        before, modules, begin = held(), set(sys.modules), time.perf_counter()
        import torchparquet
        seconds = time.perf_counter() - begin
        assert held() == before
        unwanted = {"click", "duckdb", "rich", "pandas", "psutil"}
        unwanted |= {"pyarrow.dataset", "pyarrow.parquet"}
        assert not unwanted & set(sys.modules), unwanted & set(sys.modules)
        print(f"{1000 * seconds:.0f} ms, {len(set(sys.modules) - modules)} modules")
        """,
        "-W",
        "error",
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert re.fullmatch(r"\d+ ms, \d+ modules\n", result.stdout)
    record_property("import", result.stdout.strip())
    with capsys.disabled():
        print(f"\nimport torchparquet, over torch and pyarrow: {result.stdout.strip()}")


def test_torch_is_imported_with_the_first_public_name() -> None:
    result = run(
        """
        import sys
        import torchparquet
        from torchparquet.errors import CorruptFileError
        print("torch" in sys.modules, hasattr(torchparquet, "no_such_name"), "torch" in sys.modules)
        print(torchparquet.CorruptFileError is CorruptFileError, torchparquet.features.Clip)
        try:
            from torchparquet import ParquetDataSet
        except ImportError as error:
            print(error.name)
        """
    )
    assert result.stdout.splitlines() == [
        "False False True",
        "True <class 'torchparquet.features.Clip'>",
        "torchparquet",
    ], result.stderr


# The release of pyarrow


def assert_names_the_ways_out(text: str, installed: str) -> None:
    bridges = Path(_core.__file__).parent.glob("_arrow_*.so")
    releases = sorted(path.stem.removeprefix("_arrow_") for path in bridges)
    fitting = [f"{release[:-2]}.{int(release[-2:])}" for release in releases]
    assert f"pyarrow {installed}, which is installed" in text
    assert all(release in text for release in fitting)
    assert f'pip install "pyarrow=={fitting[-1]}.*"' in text
    assert "in a checkout, by: pip install" in text


@pytest.mark.parametrize(
    ("version", "release"),
    [("21.0.0", "2100"), ("26.9.0", "2609"), ("260.0", "26000"), ("99.0.0.dev1", "9900")],
)
def test_a_pyarrow_without_a_bridge_is_refused(
    monkeypatch: Any, version: str, release: str
) -> None:
    monkeypatch.setattr(pyarrow, "__version__", version)
    monkeypatch.setattr(pyarrow, "cpp_build_info", SimpleNamespace(so_version=release))
    with pytest.raises(ImportError) as caught:
        bridge.find_bridge()
    assert_names_the_ways_out(str(caught.value), version)


def test_no_pyarrow_is_refused(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match="none is installed") as caught:
        bridge.find_bridge()
    assert f'pip install "pyarrow>={bridge.OLDEST}"' in str(caught.value)


def test_the_first_data_set_checks_the_pyarrow() -> None:
    result = ran(
        """
        import pyarrow, torchparquet
        import types
        table = pyarrow.table({"x": [1]})
        pyarrow.__version__ = "1.2.3"
        pyarrow.cpp_build_info = types.SimpleNamespace(so_version="102")
        try:
            torchparquet.ParquetDataset(table, batch_size=1)
        except ImportError as error:
            print(error)
        """
    )
    assert result.returncode == 0, result.stderr
    assert_names_the_ways_out(result.stdout, "1.2.3")


def test_the_bridge_is_that_of_the_installed_pyarrow() -> None:
    assert pyarrow.__version__.startswith(f"{native.load_bridge()}.")
    assert bridge.find_bridge().name == f"_arrow_{pyarrow.cpp_build_info.so_version}.so"


def test_a_bridge_that_is_none_is_refused(tmp_path: Path) -> None:
    torn = tmp_path / "_arrow_2600.so"
    torn.write_bytes(bridge.find_bridge().read_bytes()[:10])
    with pytest.raises(ImportError, match="cannot be loaded"):
        _core.load_arrow(str(torn))
    with pytest.raises(ImportError, match="another build"):
        _core.load_arrow(_core.__file__)


def copy_of_the_package(folder: Path) -> Path:
    """Copy the package, which an editable installation has no copy of."""
    package = Path(torchparquet.__file__).parent
    if Path(_core.__file__).parent != package / "_impl":
        pytest.skip("the installation is editable")
    return shutil.copytree(package, folder / "torchparquet")


def import_errors_of(*paths: Path) -> list[str]:
    """Return the errors of imports, in turn, where each of the paths comes first."""
    result = run(
        f"""
        import json, sys
        errors = []
        for path in {list(map(str, paths))!r}:
            sys.path.insert(0, path)
            for name in [name for name in sys.modules if name.startswith("torchparquet")]:
                del sys.modules[name]
            try:
                import torchparquet._impl.native
                torchparquet._impl.native.load_bridge()
            except ImportError as error:
                errors.append(str(error))
        print(json.dumps(errors))
        """
    )
    assert result.returncode == 0, result.stderr
    errors: list[str] = json.loads(result.stdout)
    return errors


def test_an_installation_without_its_libraries_says_how_to_build_them(tmp_path: Path) -> None:
    without_extension, without_bridges = tmp_path / "a", tmp_path / "b"
    (copy_of_the_package(without_extension) / "_impl" / Path(_core.__file__).name).unlink()
    for library in copy_of_the_package(without_bridges).glob("_impl/_arrow_*.so"):
        library.unlink()
    extension, bridges = import_errors_of(without_extension, without_bridges)
    assert "its extension _core is missing" in extension
    assert f"does not fit pyarrow {pyarrow.__version__}, which is installed; build it" in bridges
    assert "in a checkout, by: pip install" in bridges


@pytest.mark.long
@pytest.mark.parametrize("num_bytes", [0, 10, 5_000, 50_000])
def test_an_installation_with_a_torn_bridge_says_so(tmp_path: Path, num_bytes: int) -> None:
    package = copy_of_the_package(tmp_path)
    torn = package / "_impl" / bridge.find_bridge().name
    torn.write_bytes(torn.read_bytes()[:num_bytes])
    (text,) = import_errors_of(tmp_path)
    assert "the bridge to Arrow cannot be loaded" in text
    assert str(torn) in text
    assert "pip install --force-reinstall --no-deps ." in text


@pytest.mark.long
def test_the_first_of_two_pyarrows_is_taken(tmp_path: Path) -> None:
    """Both are of one release, so the bridge could find the libraries of either."""
    package = Path(pyarrow.__file__).parent
    unneeded = shutil.ignore_patterns("include", "tests", "libarrow_flight*", "*.pxd", "*.pyx")
    shutil.copytree(package, tmp_path / "first" / "pyarrow", ignore=unneeded)
    files = shape_files(tmp_path / "files", 100, 1, 1)
    result = run(
        f"""
        import sys
        sys.path.insert(0, {str(tmp_path / "first")!r})
        from pathlib import Path
        from torchparquet import ParquetDataset
        dataset = ParquetDataset({files!r}, columns=["id"], batch_size=10)
        print(sum(len(batch["id"]) for batch in dataset))
        lines = Path("/proc/self/maps").read_text().splitlines()
        found = {{line.split()[-1] for line in lines if "/libarrow.so" in line}}
        print(*(Path(path).parents[1] for path in found))
        """
    )
    assert result.stdout.split() == ["100", str(tmp_path / "first")], result.stderr


def test_the_extension_links_no_arrow() -> None:
    """Its symbols would not be found, or those of another release would."""
    assert b"libarrow.so" not in Path(_core.__file__).read_bytes()
    assert b"libparquet.so" not in Path(_core.__file__).read_bytes()


@pytest.mark.long
@pytest.mark.parametrize("library_first", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(
    "library", ["torch", "pandas", "datasets", "ray", "pyarrow.dataset", "polars", "duckdb"]
)
def test_reading_next_to_libraries_with_arrow_or_cpp_of_their_own(
    library: str, library_first: bool, tmp_path: Path
) -> None:
    """A file in a codec of Arrow's, and one that Arrow refuses to open."""
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    first, second = (library, "torchparquet") if library_first else ("torchparquet", library)
    good, bad = tmp_path / "good.parquet", tmp_path / "bad.parquet"
    table = pyarrow.table({"a": range(1000), "b": [str(i) for i in range(1000)]})
    parquet.write_table(table, good, compression="brotli")
    bad.write_bytes(b"PAR1" + b"\x15" * 20 + b"\x08\0\0\0PAR1")
    done = run(
        f"""
        import {first}
        import {second}
        import pyarrow as pa, pyarrow.parquet as pq, pandas
        from torchparquet import ParquetDataset
        from torchparquet._impl.native import load_bridge
        assert pa.__version__.startswith(load_bridge() + "."), (pa.__version__, load_bridge())
        path = {str(good)!r}
        total = sum(int(b["a"].sum()) for b in ParquetDataset(path, batch_size=100))
        assert total == pq.read_table(path)["a"].to_numpy().sum(), total
        assert total == pandas.read_parquet(path)["a"].sum(), total
        try:
            list(ParquetDataset({str(bad)!r}, batch_size=100))
        except OSError as error:
            print(type(error).__name__, total)
        """
    )
    assert done.stdout == "CorruptFileError 499500\n", done.stderr


def pins_of(requirements: list[str]) -> list[str]:
    return [text for text in requirements if re.match(r"pyarrow\b", text)]


def test_no_release_of_pyarrow_is_excluded_but_old_ones() -> None:
    pin = f"pyarrow>={bridge.OLDEST}"
    assert pins_of(PROJECT["project"]["dependencies"]) == [pin]
    assert pins_of(PROJECT["build-system"]["requires"]) == [pin]
    releases = (ROOT / "packaging" / "pyarrow_releases.txt").read_text().split()
    assert releases[0].startswith(f"{bridge.OLDEST}.")
    (newest,) = pins_of((ROOT / "constraints.txt").read_text().splitlines())
    assert newest == f"pyarrow=={releases[-1]}"


# Public names


def test_public_names_are_those_that_the_documents_list() -> None:
    page = (ROOT / "docs/reference/api.md").read_text()
    sections = re.findall(r"^::: torchparquet\.(?:mix\.)?(\w+)$", page, re.MULTILINE)
    documented = {*sections, *re.findall(r"\w+Error\b", page)} - {"errors"}
    names: dict[Any, Any] = {}
    exec("from torchparquet import *", names)
    assert set(names) - {"__builtins__"} == documented
    assert set(dir(torchparquet)) == {*documented, "__version__"}
    assert all(names[name].__doc__ for name in documented)


def test_types_that_methods_return_are_public() -> None:
    dataset = torchparquet.ParquetDataset(pyarrow.table({"x": [1]}), batch_size=1)
    list(dataset)
    metrics = dataset.metrics()
    found = [metrics, metrics.ring, metrics.columns["x"], *metrics.codecs.values()]
    found += [dataset.manifest, *dataset.fields, dataset.topology(), dataset.plan()]
    found += [dataset.unbatched(), torchparquet.mix([dataset])]
    found += [torchparquet.verify_no_shard_overlap(dataset)]
    for kind in map(type, found):
        assert getattr(torchparquet, kind.__name__) is kind


def test_public_exceptions_derive_from_pythons_own() -> None:
    assert issubclass(torchparquet.CorruptFileError, OSError)
    assert issubclass(torchparquet.SchemaMismatchError, ValueError)
    assert issubclass(torchparquet.UnsupportedColumnError, TypeError)
    assert issubclass(torchparquet.NullValueError, ValueError)
    assert issubclass(torchparquet.ListLengthError, ValueError)
    assert issubclass(torchparquet.RankMismatchError, RuntimeError)


def test_version_is_that_of_the_installation() -> None:
    assert torchparquet.__version__ == metadata.version("torchparquet")
    assert "version" in PROJECT["project"]["dynamic"]  # of git's tags; none is written down


def test_forks_of_a_process_that_has_no_data_set_do_not_wait() -> None:
    done = run(
        """
        import os
        import numpy, pyarrow, pyarrow.dataset, torch, torch.distributed
        found = []
        register = os.register_at_fork
        def noting(**hooks):
            found.extend(hooks)
            register(**hooks)
        os.register_at_fork = noting
        import torchparquet
        print("before" in found)
        torchparquet.ParquetDataset(pyarrow.table({"x": [1]}), batch_size=1)
        print("before" in found)
        """
    )
    assert done.stdout.split() == ["False", "True"], done.stderr


def test_types_are_announced() -> None:
    assert (Path(torchparquet.__file__).parent / "py.typed").is_file()


@pytest.mark.long
def test_what_is_read_does_not_depend_on_the_processor(tmp_path: Path) -> None:
    program = f"""
        from tests.fixtures.shape_files import COLUMNS, digest_of
        from torchparquet import ParquetDataset
        from torchparquet._impl.native import instructions
        options = dict(columns=COLUMNS, batch_size=250, shuffle=True, shuffle_window=2)
        dataset = ParquetDataset({shape_files(tmp_path, 4000, 2, 3)!r}, row_ids=True, **options)
        print(instructions(), digest_of(dataset))
    """
    least, best, unknown = (
        run(program, TORCHPARQUET_INSTRUCTIONS=name) for name in ("baseline", "", "sse9")
    )
    assert least.stdout.startswith("baseline ")
    assert least.stdout.split()[1:] == best.stdout.split()[1:] != []
    message = "ImportError: TORCHPARQUET_INSTRUCTIONS must be baseline or avx2, got sse9"
    assert message in unknown.stderr
