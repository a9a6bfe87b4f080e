"""Several columns of lists as one: the batches that sparse features of recommenders take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, SupportsIndex

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from torchparquet._impl.checks import checked_row, set_checked, shortened
from torchparquet.jagged import Jagged


@dataclass(frozen=True, eq=False, repr=False)
class KeyedJagged:
    """B rows of F features, the keys; each row has a list of values for each key.

    A batch holds one for a group of columns with lists. The lists of the first key come first, row
    after row, then those of the second: list ``key * B + row`` is ``values[offsets[key * B + row]:
    offsets[key * B + row + 1]]``. TorchRec's KeyedJaggedTensor has the same parts. All features
    take one call where they share a table, or have a range of its rows each:

        F.embedding_bag(k.values, weight, k.offsets, include_last_offset=True).view(F, B, -1)

    ``len(k)`` is B. ``k["user"]`` is the `Jagged` of a key. ``k[2:5]``, ``k[mask]``, ``k[numbers]``
    and, of one row, ``k[3]`` are a KeyedJagged of fewer rows.

    Attributes:
        keys: The names of the F columns.
        values: ``[N]`` of any dtype.
        lengths: int32 ``[F * B]`` on the same device: the length of each list.
        weights: float32 ``[N]``, a weight for each value; None if the columns have none.
        length_per_key: The number of values of each key. None to count them when they are needed,
            which waits for a device.
    """

    keys: Sequence[str]
    values: Tensor
    lengths: Tensor
    weights: Tensor | None = None
    length_per_key: Sequence[int] | None = None

    def __post_init__(self) -> None:
        """Check that the parts fit each other, without a look at a device."""
        parts: dict[str, Any] = {"values": self.values, "lengths": self.lengths}
        parts |= {} if self.weights is None else {"weights": self.weights}
        wrong = [name for name, part in parts.items() if not isinstance(part, Tensor)]
        if wrong or isinstance(self.keys, str) or not self.keys:
            raise TypeError(
                "KeyedJagged takes keys, a sequence of names, and tensors of one dimension: "
                f"values, lengths and weights; not so are: {wrong or ['keys']}"
            )
        set_checked(self, keys=tuple(self.keys))
        num_keys, num_lists = len(self.keys), self.lengths.numel()
        if num_lists % num_keys:
            raise ValueError(
                f"lengths must be as many for each of {num_keys} keys; got {num_lists} lengths"
            )
        if self.weights is not None and self.weights.shape != self.values.shape:
            raise ValueError(
                f"weights must be one for each of {len(self.values)} values; got "
                f"{len(self.weights)}"
            )
        if self.length_per_key is not None:
            set_checked(self, length_per_key=tuple(self.length_per_key))
            if len(self.length_per_key) != num_keys:
                raise ValueError(
                    f"length_per_key must be one for each of {num_keys} keys; got "
                    f"{len(self.length_per_key)}"
                )

    def __len__(self) -> int:
        """Return the number of rows, B."""
        return self.lengths.shape[0] // len(self.keys)

    @property
    def offsets(self) -> Tensor:
        """The begin of each list in ``values``, and the end of the last, int64 ``[F * B + 1]``."""
        return _offsets_of(self.lengths)

    @cached_property
    def _begins(self) -> list[int]:
        """The begin of each key's values, and the end of the last one's."""
        per_key = self.length_per_key
        if per_key is None:
            per_key = self.lengths.view(len(self.keys), -1).sum(1).tolist()
        return list(accumulate(per_key, initial=0))

    def __getitem__(self, rows: str | SupportsIndex | slice | Tensor | Sequence[int]) -> Any:
        """Return the lists of one key, or a KeyedJagged of some rows.

        Args:
            rows: A key: a `Jagged` of its B lists, whose ``values`` are a view. Rows, as
                ``tensor[rows]`` takes them: see :meth:`select`.

        Raises:
            KeyError: There is no such key.
            IndexError: There is no such row.
        """
        if isinstance(rows, str):
            number = self._number_of(rows)
            values = self.values[self._begins[number] : self._begins[number + 1]]
            num_rows = len(self)
            lengths = self.lengths[number * num_rows : (number + 1) * num_rows]
            return Jagged(values, _offsets_of(lengths))
        if isinstance(rows, slice):
            return self.select(range(*rows.indices(len(self))))
        if isinstance(rows, Sequence) or (isinstance(rows, Tensor) and rows.ndim):
            return self.select(rows)  # type: ignore[arg-type]
        return self.select([checked_row(rows, len(self))])

    def __iter__(self) -> Iterator[KeyedJagged]:
        """Iterate over the rows, each as ``k[i]`` returns it."""
        return (self.select([row]) for row in range(len(self)))

    def weights_of(self, key: str) -> Tensor | None:
        """Return the weights of the values of a key, a view; None if there are none.

        Raises:
            KeyError: There is no such key.
        """
        number = self._number_of(key)
        if self.weights is None:
            return None
        return self.weights[self._begins[number] : self._begins[number + 1]]

    def select(self, rows: Tensor | Sequence[int]) -> KeyedJagged:
        """Return a copy of chosen rows in the given order; waits for a device.

        Args:
            rows: Row numbers, which may repeat and be negative, or a bool mask ``[B]``.

        Raises:
            IndexError: There is no such row, or a mask does not have B entries.
            ValueError: ``rows`` is not one-dimensional.
        """
        lists = torch.arange(self.lengths.shape[0], device=self.lengths.device)
        chosen = rows if isinstance(rows, Tensor) else torch.tensor(rows, dtype=torch.int64)
        if chosen.dim() != 1:
            raise ValueError(f"rows must be one-dimensional; got {rows!r}")
        chosen = lists.view(len(self.keys), -1)[:, chosen].flatten()
        found = Jagged(self.values, self.offsets).select(chosen)
        assert isinstance(found.values, Tensor)  # noqa: S101
        weights = self.weights
        if weights is not None:
            weights = Jagged(weights, self.offsets).select(chosen).values  # type: ignore[assignment]
        return KeyedJagged(self.keys, found.values, self.lengths[chosen], weights)

    @classmethod
    def cat(cls, parts: Sequence[KeyedJagged]) -> KeyedJagged:
        """Return the rows of several, which have the same keys, one after the other.

        Raises:
            ValueError: There is none, keys differ, or only some have weights.
        """
        if not parts or len({(part.keys, part.weights is None) for part in parts}) > 1:
            raise ValueError(
                "KeyedJagged.cat takes some of the same keys, all with weights or none"
            )
        keys = parts[0].keys

        def in_order(tensors: Sequence[Tensor]) -> Tensor:
            return torch.cat(
                [
                    tensor[part._begins[number] : part._begins[number + 1]]
                    for number in range(len(keys))
                    for part, tensor in zip(parts, tensors, strict=True)
                ]
            )

        values = in_order([part.values for part in parts])
        weights = None
        if parts[0].weights is not None:
            weights = in_order([part.weights for part in parts if part.weights is not None])
        lengths = torch.cat([part.lengths.view(len(keys), -1) for part in parts], 1).flatten()
        counts = [[end - begin for begin, end in pairwise(part._begins)] for part in parts]
        return cls(keys, values, lengths, weights, list(map(sum, zip(*counts, strict=True))))

    def to(
        self, device: torch.device | str | int | None = None, non_blocking: bool | None = None
    ) -> KeyedJagged:
        """Return the rows on another device, as :meth:`torch.Tensor.to` does.

        Args:
            device: The device of all parts.
            non_blocking: True if a copy may continue after the call; the source must not be
                overwritten meanwhile. None to do so from page-locked memory.

        Returns:
            A KeyedJagged that shares every tensor that did not have to change.
        """
        return self._mapped(
            lambda tensor: tensor.to(
                device=device,
                non_blocking=tensor.is_pinned() if non_blocking is None else non_blocking,
            )
        )

    def pin_memory(self) -> KeyedJagged:
        """Return the rows in page-locked memory; tensors that lie there already are not copied."""
        return self._mapped(lambda tensor: tensor.pin_memory())

    def record_stream(self, stream: torch.Stream) -> None:
        """Keep the memory of all parts until the work of a stream of their device is done."""
        for part in (self.values, self.lengths, self.weights):
            if part is not None:
                part.record_stream(stream)

    def to_kjt(self) -> Any:
        """Return TorchRec's KeyedJaggedTensor of the same tensors, without a copy.

        Its stride is B. The package ``torchrec`` must be installed.
        """
        from torchrec.sparse.jagged_tensor import KeyedJaggedTensor  # type: ignore[import-not-found]

        per_key = self.length_per_key
        return KeyedJaggedTensor(
            keys=list(self.keys),
            values=self.values,
            weights=self.weights,
            lengths=self.lengths,
            stride=len(self),
            length_per_key=None if per_key is None else list(per_key),
        )

    def __repr__(self) -> str:
        """Return the numbers of rows and values, and the keys."""
        dtype = str(self.values.dtype).removeprefix("torch.")
        place = "" if self.values.device.type == "cpu" else f" on {self.values.device}"
        weighted = "" if self.weights is None else " with weights"
        keys = shortened([repr(key) for key in self.keys])
        return (
            f"KeyedJagged({len(self)} rows of {len(self.keys)} keys, {self.values.shape[0]} {dtype}"
            f"{weighted}{place}: {keys})"
        )

    def _number_of(self, key: str) -> int:
        try:
            return self.keys.index(key)
        except ValueError:
            raise KeyError(f"{key!r} is none of the keys: {shortened(list(self.keys))}") from None

    def _mapped(self, made_of: Any) -> KeyedJagged:
        weights = None if self.weights is None else made_of(self.weights)
        values, lengths = made_of(self.values), made_of(self.lengths)
        return KeyedJagged(self.keys, values, lengths, weights, self.length_per_key)


def _offsets_of(lengths: Tensor) -> Tensor:
    offsets = torch.zeros(lengths.shape[0] + 1, dtype=torch.int64, device=lengths.device)
    torch.cumsum(lengths, 0, out=offsets[1:])
    return offsets


def _of_leaves(leaves: Any, context: Any) -> KeyedJagged:
    """Return a KeyedJagged of the leaves, which a function may have made of its tensors."""
    made = object.__new__(KeyedJagged)
    values, lengths, *weights = leaves
    keys, per_key = context
    parts = {"keys": keys, "values": values, "lengths": lengths, "length_per_key": per_key}
    set_checked(made, **parts, weights=weights[0] if weights else None)
    return made


def _leaves_of(rows: KeyedJagged) -> list[tuple[str, Any]]:
    parts = [("values", rows.values), ("lengths", rows.lengths)]
    return parts if rows.weights is None else [*parts, ("weights", rows.weights)]


pytree.register_pytree_node(
    KeyedJagged,
    lambda rows: ([leaf for _, leaf in _leaves_of(rows)], (rows.keys, rows.length_per_key)),
    _of_leaves,
    serialized_type_name="torchparquet.KeyedJagged",
    flatten_with_keys_fn=lambda rows: (
        [(pytree.GetAttrKey(name), leaf) for name, leaf in _leaves_of(rows)],
        (rows.keys, rows.length_per_key),
    ),
)
