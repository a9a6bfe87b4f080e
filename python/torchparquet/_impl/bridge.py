"""The installed pyarrow, and the bridge that fits its Arrow libraries."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

OLDEST = "22.0"

_FROM_SOURCE = (
    "pip install scikit-build-core setuptools-scm pybind11 cmake ninja && pip install "
    "--no-build-isolation --no-deps --force-reinstall ."
)


def find_bridge() -> Path:
    """Return the bridge to the Arrow libraries of the installed pyarrow, which this loads."""
    try:
        # Loads the Arrow libraries, so that the bridge finds them wherever pyarrow lies.
        import pyarrow
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise ImportError(
            "torchparquet needs pyarrow, and none is installed; "
            f'run: pip install "pyarrow>={OLDEST}"'
        ) from None
    bridges = _bridges()
    release = pyarrow.cpp_build_info.so_version
    if release not in bridges:
        raise ImportError(_no_bridge(pyarrow.__version__, sorted(bridges)))
    return bridges[release]


def _bridges() -> dict[str, Path]:
    """Return the bridges by the release that they fit, such as "2600"; without loading any."""
    # They lie beside the extension, which an editable installation has elsewhere.
    extension = find_spec("torchparquet._impl._core")
    if extension is None or extension.origin is None:
        raise ImportError("torchparquet is not built: its extension _core is missing")
    found = Path(extension.origin).parent.glob("_arrow_*.so")
    return {path.stem.removeprefix("_arrow_"): path for path in found}


def _no_bridge(installed: str, releases: list[str]) -> str:
    fitting = [f"{int(release[:-2])}.{int(release[-2:])}" for release in releases]
    message = f"torchparquet does not fit pyarrow {installed}, which is installed"
    if fitting:
        message += (
            f", but pyarrow {', '.join(fitting)}; "
            f'run: pip install "pyarrow=={fitting[-1]}.*"; or build it'
        )
    else:
        message += "; build it"
    return f"{message} for the installed pyarrow, in a checkout, by: {_FROM_SOURCE}"
