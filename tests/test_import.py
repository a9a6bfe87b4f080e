"""The effects of `import torchparquet`, its version pins, and its public names."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import pytest

import torchparquet
from tests.fixtures.shape_files import shape_files
from tests.fixtures.tree import ROOT, child_environment
from torchparquet import _pyarrow, native

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PUBLIC = [
    "CastError",
    "Column",
    "CorruptFileError",
    "EncryptedFileError",
    "Jagged",
    "ListLengthError",
    "MixedDataset",
    "NullValueError",
    "ParquetDataset",
    "RankMismatchError",
    "SchemaMismatchError",
    "TransformError",
    "UnbatchedDataset",
    "UnsupportedColumnError",
    "mix",
    "verify_no_shard_overlap",
]


def run(program: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, "-c", textwrap.dedent(program)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


# The import


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


# The version of pyarrow


def assert_names_the_mend(text: str, installed: str) -> None:
    assert f"pyarrow {_pyarrow.REQUIRED}" in text
    assert installed in text
    assert f'pip install "pyarrow=={_pyarrow.REQUIRED}.*"' in text


@pytest.mark.parametrize("installed", ["25.0.0", "26.1.0", "260.0", "27.0.0.dev1"])
def test_another_pyarrow_is_refused(monkeypatch: Any, tmp_path: Path, installed: str) -> None:
    """The metadata of another version comes first on the path, as after a bad upgrade."""
    metadata = tmp_path / f"pyarrow-{installed}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: pyarrow\nVersion: {installed}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert importlib.metadata.version("pyarrow") == installed
    with pytest.raises(ImportError) as caught:
        _pyarrow.check_pyarrow()
    assert_names_the_mend(str(caught.value), installed)


def test_no_pyarrow_is_refused(monkeypatch: Any) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(_pyarrow, "version", missing)
    with pytest.raises(ImportError) as caught:
        _pyarrow.check_pyarrow()
    assert_names_the_mend(str(caught.value), "none is installed")


def test_the_import_itself_checks_before_the_extension_loads(tmp_path: Path) -> None:
    metadata = tmp_path / "pyarrow-1.2.3.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: pyarrow\nVersion: 1.2.3\n")
    result = run(
        f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        try:
            import torchparquet
        except ImportError as error:
            print(error)
        print("torchparquet._core" in sys.modules, "torch" in sys.modules)
        """
    )
    assert result.returncode == 0, result.stderr
    message, loaded = result.stdout.splitlines()
    assert_names_the_mend(message, "1.2.3")
    assert loaded == "False False"


def test_the_installed_pyarrow_is_accepted() -> None:
    _pyarrow.check_pyarrow()


def pins_of(requirements: list[str]) -> list[str]:
    return [text for text in requirements if re.match(r"pyarrow\b", text)]


def test_all_pins_of_pyarrow_are_one() -> None:
    major, minor = map(int, _pyarrow.REQUIRED.split("."))
    pin = f"pyarrow>={major}.{minor},<{major}.{minor + 1}"
    assert pins_of(PROJECT["project"]["dependencies"]) == [pin]
    assert pins_of(PROJECT["build-system"]["requires"]) == [pin]
    assert native.PYARROW_VERSION.split(".")[:2] == [str(major), str(minor)]
    constraints = (ROOT / "constraints.txt").read_text().splitlines()
    (exact,) = pins_of(constraints)
    assert exact.startswith(f"pyarrow=={major}.{minor}.")


# Public names


def test_public_names() -> None:
    assert torchparquet.__all__ == PUBLIC
    for name in PUBLIC:
        assert getattr(torchparquet, name).__doc__
    names: dict[Any, Any] = {}
    exec("from torchparquet import *", names)
    assert set(names) - {"__builtins__"} == set(PUBLIC)


def test_public_exceptions_derive_from_pythons_own() -> None:
    assert issubclass(torchparquet.CorruptFileError, OSError)
    assert issubclass(torchparquet.SchemaMismatchError, ValueError)
    assert issubclass(torchparquet.UnsupportedColumnError, TypeError)
    assert issubclass(torchparquet.NullValueError, ValueError)
    assert issubclass(torchparquet.ListLengthError, ValueError)
    assert issubclass(torchparquet.RankMismatchError, RuntimeError)


def test_version_is_that_of_the_project() -> None:
    assert torchparquet.__version__ == PROJECT["project"]["version"]


def test_types_are_announced() -> None:
    assert (Path(torchparquet.__file__).parent / "py.typed").is_file()


READ_ALL = """
    import sys
    from tests.fixtures.shape_files import COLUMNS, digest_of
    from torchparquet import ParquetDataset
    from torchparquet.native import instructions
    options = dict(columns=COLUMNS, batch_size=250, shuffle=True, shuffle_window=2, row_ids=True)
    print(instructions(), digest_of(ParquetDataset(sys.argv[1], **options)))
"""


def read_with(name: str, files: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(READ_ALL), files],
        env=child_environment(TORCHPARQUET_INSTRUCTIONS=name),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
def test_what_is_read_does_not_depend_on_the_processor(tmp_path: Path) -> None:
    files = shape_files(tmp_path, 4000, 2, 3)
    least, best = read_with("baseline", files), read_with("", files)
    assert least.stdout.startswith("baseline ")
    assert least.stdout.split()[1:] == best.stdout.split()[1:] != []


def test_instructions_of_no_processor() -> None:
    done = read_with("sse9", ".")
    assert (
        "ImportError: TORCHPARQUET_INSTRUCTIONS must be baseline or avx2, got sse9" in done.stderr
    )
