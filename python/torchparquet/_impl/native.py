"""The extension as Python sees it: the only module that imports `_core`."""

import functools
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from torchparquet._impl.bridge import find_bridge

try:
    from torchparquet._impl._core import *  # noqa: F403  # all of it, for every room
    from torchparquet._impl._core import has_libcurl, load_arrow, offer_libcurl, offer_libdeflate
except ModuleNotFoundError as error:
    if error.name != "torchparquet._impl._core":
        raise
    raise ImportError(
        "torchparquet is not built: its extension _core is missing; in a checkout run: "
        "pip install ."
    ) from None


_Options = TypeVar("_Options")


def filled(options: _Options, **values: Any) -> _Options:
    """Return options of the extension with values for some of its attributes."""
    for name, value in values.items():
        setattr(options, name, value)
    return options


@functools.cache
def has_http() -> bool:
    """Return True if there is a libcurl: linked, in the wheel of `pycurl`, or the system's."""
    _offer("pycurl", "pycurl.libs/libcurl-*.so.*", offer_libcurl)
    return bool(has_libcurl())


@functools.cache
def load_bridge() -> str:
    """Load the bridge to Arrow; return its release, as in "26.0". Whoever reads files calls it."""
    release: str = load_arrow(str(find_bridge()))
    # Gzip pages are read by the libdeflate in the wheel of `deflate`, or by the system's; by
    # Arrow if there is none.
    _offer("deflate", "_deflate*.so", offer_libdeflate)
    return release


def _offer(package: str, pattern: str, offer: Callable[[str], None]) -> None:
    """Offer the libraries that a package's wheel holds, in its folder or beside it."""
    spec = find_spec(package)
    if spec is not None and spec.origin is not None:
        for folder in list(Path(spec.origin).parents)[:2]:
            for library in folder.glob(pattern):
                offer(str(library))
