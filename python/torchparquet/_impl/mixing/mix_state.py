"""The state of a mix, as a dict of JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from torchparquet._impl.mixing.mix_order import MixOptions, MixProgress

_FORMAT = 1


def dump(
    options: MixOptions, next_options: MixOptions, progress: MixProgress, sources: list[Any] | None
) -> dict[str, Any]:
    """Return the state of an epoch; later steps do not change it."""
    state = {
        "format": _FORMAT,
        **_identity(options),
        "weights": [str(weight) for weight in options.weights],
        "next_weights": [str(weight) for weight in next_options.weights],
        "progress": progress.to_dict(),
        "sources": sources,
    }
    return dict(copied(state))


def check(state: Any, options: MixOptions) -> None:
    """Raise unless a state is that of a mix with these options, except their weights."""
    if not isinstance(state, dict):
        raise TypeError(f"state must be a dict, got {type(state).__name__}")
    if state.get("format") != _FORMAT or "progress" not in state:
        raise ValueError(f"state must be that of a mix, got keys {sorted(state)}")
    own_identity = _identity(options)
    keys = [*own_identity, "weights", "next_weights", "sources"]
    missing = [name for name in keys if name not in state]
    if missing:
        raise ValueError(f"state must be that of a mix, but lacks {missing}")
    for name, own in own_identity.items():
        if state[name] != own:
            later = "; one that joins later is there from the start, with weight 0"
            raise ValueError(
                f"state must be of the same mix, got {name}={state[name]!r}, here {own!r}"
                + (later if name == "num_datasets" else "")
            )
    num = len(options.weights)
    sizes = [len(state["weights"]), len(state["next_weights"])]
    sizes.append(len(MixProgress.read(state["progress"]).rounds))
    sizes += [] if state["sources"] is None else [len(state["sources"])]
    if set(sizes) != {num}:
        raise ValueError(f"state must be of {num} data sets throughout, got {sizes}")


def fractions(texts: Sequence[str]) -> tuple[Fraction, ...]:
    """Return the weights of a state."""
    return tuple(Fraction(text) for text in texts)


def copied(value: Any) -> Any:
    """Return a copy of dicts and lists, so that the state cannot change."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def _identity(options: MixOptions) -> dict[str, Any]:
    """Return the values that a state must share with the mix that loads it, by name."""
    return {
        "num_datasets": len(options.weights),
        "seed": options.seed,
        "stopping": options.stopping,
        "batch_size": options.batch_size,
    }
