"""The user's functions on batches or rows: first on single columns, then on the whole."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import ForkingPickler
from typing import Any, TypeAlias

from torchparquet._impl.checks import shown
from torchparquet._impl.functions.decoders import Decoder, FunctionFailedError, Origin
from torchparquet.errors import printable

Processor: TypeAlias = Callable[[Any], Any]
Transform: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]


class Transforms:
    """The user's functions, which affect no order, state, fingerprint or comparison of ranks."""

    _lost: str | None = None  # why a spawned process has not found them

    def __init__(
        self,
        processors: Mapping[str, Processor] | None,
        transform: Transform | None,
        decoders: Mapping[str, Decoder] | None = None,
    ) -> None:
        """Check that the functions can be called."""
        if processors is not None and not isinstance(processors, Mapping):
            raise TypeError(f"processors must be a dict of callables, got {shown(processors)}")
        self._processors = dict(processors or {})
        self._transform = transform
        self._decoders = dict(decoders or {})
        for name, function in self._functions():
            if not callable(function):
                raise TypeError(f"{name} must be callable, got {shown(function)}")

    def check_names(self, names: Iterable[str]) -> None:
        """Check that each processor has a value."""
        present = list(names)
        for name in self._processors:
            if name not in present:
                raise ValueError(f"processors must be for {present}, got one for {name!r}")

    def apply(self, values: dict[str, Any], origin: Origin) -> dict[str, Any]:
        """Apply the functions to a batch or row, whose `origin` is asked for if one fails."""
        try:
            return self.run(values)
        except FunctionFailedError as error:
            raise error.of_batch(origin) from error.__cause__

    def run(self, values: dict[str, Any]) -> dict[str, Any]:
        """Apply the functions, as `apply` does."""
        if self._lost is not None:
            raise TypeError(self._lost)
        made, at = self._decoded(values), "processors"
        try:
            self.check_names(made)
            for name, processor in self._processors.items():
                at = f"processors[{name!r}]"
                made[name] = processor(made[name])
            if self._transform is not None:
                at = "transform"
                made = self._transform(made)
                if not isinstance(made, dict):
                    raise TypeError(f"transform must return a dict, got {type(made).__name__}")
        except Exception as error:
            text = f"{at} failed with {type(error).__name__}: {printable(str(error))}"
            raise FunctionFailedError(text + _way_out(error)) from error
        return made

    def _decoded(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the values with those of columns that are decoded."""
        made: dict[str, Any] = {}
        for name, value in values.items():
            decoder = self._decoders.get(name)
            if decoder is None:
                if not self._is_mask(name):
                    made[name] = value
                continue
            made |= decoder.run(name, value, values.get(f"{name}.valid"))
        return made

    def names_of(self, columns: Iterable[str]) -> list[str]:
        """Return the keys of a batch after decoding."""
        return [
            key
            for name in columns
            if not self._is_mask(name)
            for key in (self._decoders[name].names(name) if name in self._decoders else (name,))
        ]

    def _is_mask(self, name: str) -> bool:
        """True for the nulls of a column to decode."""
        decoder = self._decoders.get(name.removesuffix(".valid"))
        return decoder is not None and decoder.flags and name.endswith(".valid")

    def _functions(self) -> list[tuple[str, Any]]:
        named = [(f"processors[{name!r}]", of) for name, of in self._processors.items()]
        named += [(f"decode of {name!r}", of.decode) for name, of in self._decoders.items()]
        return named if self._transform is None else [*named, ("transform", self._transform)]

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes; while spawning a process, check that it can get them."""
        if get_spawning_popen() is None:
            return self.__dict__
        try:
            return {"pickled": _pickled(self.__dict__)}
        except Exception:
            for name, function in self._functions():
                try:
                    _pickled(function)
                except Exception as error:
                    raise TypeError(
                        "functions must be picklable to go to processes that are not "
                        "forked: define them at the top of a module, bound to values by "
                        f"functools.partial; {name} is not ({type(error).__name__}: {error})"
                    ) from error
            raise

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Set the attributes of a copy."""
        if "pickled" not in state:
            self.__dict__.update(state)
            return
        try:
            self.__dict__.update(pickle.loads(state["pickled"]))  # noqa: S301
        except Exception as error:
            # Raised here, it would end the process with a word on stderr alone.
            self._lost = (
                "a process that was spawned cannot find the functions of processors=, transform= "
                "or decode=. It imports them by name, and does not see those of a notebook, of "
                'an interactive session, or below `if __name__ == "__main__":`. Move them to a '
                f"module, a file beside the program, and import them. {type(error).__name__}: "
                f"{printable(str(error))}"
            )


def _way_out(error: Exception) -> str:
    """Return what to write if a function did not expect the value of strings or lists."""
    if "'Jagged'" not in str(error):
        return ""
    return (
        " (a column of strings or lists comes as a Jagged: text.to_str() returns strings, "
        "lists.to_list() lists, and Jagged.from_lists(...) makes a Jagged of either)"
    )


def _pickled(value: Any) -> bytes:
    return bytes(ForkingPickler.dumps(value))
