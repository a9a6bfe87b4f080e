"""The one pyarrow minor release whose Arrow libraries the extension links."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

REQUIRED = "26.0"


def check_pyarrow() -> None:
    """Make sure that the installed pyarrow is the one the extension was built against.

    Raises:
        ImportError: Another one is installed, or none; says which, which is needed, and the
            command that mends it.
    """
    mend = f'run: pip install "pyarrow=={REQUIRED}.*"'
    try:
        installed = version("pyarrow")
    except PackageNotFoundError:
        message = f"torchparquet needs pyarrow {REQUIRED}.*, none is installed; {mend}"
        raise ImportError(message) from None
    if installed.split(".")[:2] != REQUIRED.split("."):
        raise ImportError(
            f"torchparquet was built against pyarrow {REQUIRED}.*, "
            f"pyarrow {installed} is installed; {mend}"
        )
    # Loads the Arrow libraries, so that the extension finds them wherever pyarrow lies.
    import pyarrow  # noqa: F401
