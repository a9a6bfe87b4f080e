"""Options of a data set: public, frozen, checked when they are made."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from torchparquet._impl.checks import (
    checked_bool,
    checked_int,
    checked_names,
    checked_word,
    optional_int,
    plain_number,
    set_checked,
    shown,
)

if TYPE_CHECKING:
    import os

    import torch.distributed as dist
    from numpy.typing import NDArray
    from torch._C._distributed_c10d import Store
    from torch.distributed.device_mesh import DeviceMesh

Balance = Literal["rows", "bytes"]
Strategy = Literal["concat", "split", "best_fit"]
Boundaries = Literal["tokens", "cu_seqlens", "both", "none"]
Edges = Literal["drop", "repeat", "pad"]
First = Literal["global", "windows"]
Number = int | float | bool
# The cost of rows by their lengths: a word, a and b of aL + bL², or a function on int64 `[n]`.
Cost = Literal["linear"] | tuple[float, float] | Callable[[Any], Any]
_MAX = 2**31


@dataclass(frozen=True)
class Order:
    """How an epoch's row groups are divided among ranks, for the few who need another way.

    Attributes:
        balance: The quantity that ranks get equal amounts of: "rows", or "bytes" of the compressed
            columns, closer to the cost of reading. "bytes" does not go with `even="split"`.
        within_rank: Shard row groups in file order and permute each rank's own, so that it reads
            the same files in every epoch and node-local caches stay useful. It needs `shuffle`.
        canonical_world_size: A number of ranks whose global batches other worlds keep: every world
            whose number of ranks divides it, with the same product of ranks and `batch_size`. With
            both `drop_last` and `even="none"` it must equal the number of ranks.
    """

    balance: Balance = "rows"
    within_rank: bool = False
    canonical_world_size: int | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        checked_word("balance", self.balance, get_args(Balance))
        checked_bool("within_rank", self.within_rank)
        size = optional_int("canonical_world_size", self.canonical_world_size, 1, _MAX)
        set_checked(self, canonical_world_size=size)


@dataclass(frozen=True)
class Ranks:
    """Which processes are the data-parallel ranks, where torch.distributed's world is not.

    Attributes:
        mesh: Rank and world size are those of its data-parallel dimensions. Processes that differ
            only in other dimensions (tensor, context, pipeline) read the same.
        dims: The data-parallel dimensions of the mesh: a name, or several that count as one rank,
            row-major. None for "dp", or "dp_replicate" and "dp_shard", or the only dimension.
        group: A process group whose ranks these are.
        check: Compare the ranks before the second batch, see `ParquetDataset.check_ranks_agree`.
        store: A store of torch.distributed, for `even="dynamic"`: processes that get the same one
            share the rows of a pass. None for that of torch.distributed's initialisation.
    """

    mesh: DeviceMesh | None = None
    dims: str | Sequence[str] | None = None
    group: dist.ProcessGroup | None = None
    check: bool = True
    store: Store | None = None

    def __post_init__(self) -> None:
        """Check what can be checked without torch.distributed."""
        checked_bool("check", self.check)
        if self.mesh is not None and self.group is not None:
            raise ValueError("Ranks takes a mesh or a group, not both")
        if self.dims is None:
            return
        names = (self.dims,) if isinstance(self.dims, str) else self.dims
        set_checked(self, dims=checked_names(names, "dims"))
        if self.mesh is None:
            raise ValueError(f"dims needs mesh, got dims={self.dims!r}")


@dataclass(frozen=True)
class Ahead:
    """Functions that threads or processes apply to batches ahead of the loop.

    Order and states stay exact. Give either `threads` or `processes`. Twice as many batches are
    held in addition to `max_memory`.

    Attributes:
        function: The function on a batch, as `transform` takes it. None if only processors or
            `Column(decode=)` are to be applied ahead.
        threads: How many threads: for functions that release the GIL, such as image decoders.
        processes: How many processes: for functions that hold the GIL. Functions must be picklable.
            Tensors are sent both ways through shared memory. Not with DataLoader workers.
    """

    function: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    threads: int | None = None
    processes: int | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        threads = optional_int("threads", self.threads, 1, 1025)
        set_checked(
            self, threads=threads, processes=optional_int("processes", self.processes, 1, 1025)
        )
        if (self.threads is None) == (self.processes is None):
            raise ValueError(
                "Ahead needs either threads or processes, got "
                f"threads={self.threads}, processes={self.processes}"
            )
        if self.function is not None and not callable(self.function):
            raise TypeError(f"the function of Ahead must be callable, got {shown(self.function)}")

    @property
    def num_workers(self) -> int:
        """How many threads or processes apply the functions."""
        return self.threads or self.processes or 0


@dataclass(frozen=True)
class Pack:
    """How lists of any length, the documents, become sequences of one length.

    Each row group is packed by itself, in file order, so its last sequence may have padding. A row
    of the data set is then a sequence: `batch_size`, lengths, shares, shuffle windows and states
    count sequences. Every token is in one sequence. Empty documents add nothing.

    Attributes:
        columns: The list column to pack, or several, of the same lengths in each row, that are
            packed alike, such as tokens and the mask of their loss; names of `columns=`, if given.
        length: L, the tokens of a sequence. Each column becomes a tensor ``[B, L]``.
        strategy: ``"concat"``: a document that does not fit continues in the next sequence.
            ``"split"``: it starts the next sequence. ``"best_fit"``: the documents of a window are
            placed where they leave the least space, longest first. In the last two, only documents
            longer than L are cut, and padding fills the rest.
        separator: The value that ends each document, such as the tokenizer's end of text: a number
            for the first column, with 0 for the others, or a dict from column to number. With
            `tokenizer`, also the token as text: ``"<|endoftext|>"``.
        padding: The value of padding: a number for all columns, or a dict from column to number.
        window: The number of consecutive documents of a row group that ``"best_fit"`` places
            together, or fewer if they have 4 million tokens. Each decode thread holds one window.
        boundaries: The tensors that mark the documents of the first column; the rest of a document
            in another sequence is another document. ``"tokens"``: ``"<column>.document"``, int32
            ``[B, L]``, the number of a token's document in its sequence, -1 for padding, and
            ``"<column>.position"``, int32 ``[B, L]``, its place in the document, from 0.
            ``"cu_seqlens"``, for attention over variable lengths, which takes a batch as one row of
            ``B * L`` tokens: ``"cu_seqlens"``, int32 ``[N + 1]``, where the N documents begin, and
            the end, and ``"max_seqlen"``, an int; padding counts as a document. ``"both"``, or
            ``"none"``.
        pad_documents_to: Padding follows each document, or part of one, up to a multiple of so
            many tokens, as context parallelism needs (twice its ranks); `length` must be one too.
            The padding is -1 in ``"<column>.document"`` and belongs to its document in
            ``"cu_seqlens"``; ``"seqlens"``, int32 ``[N]``, has the documents' lengths without it, 0
            for other padding.
        tokenizer: Makes tokens, int64, of a column of strings, UTF-8; the column in the batch keeps
            its name. A tokenizer of Hugging Face: of tokenizers, a fast one of transformers, the
            path of a ``tokenizer.json`` or of its folder, or a name in the local cache. An
            ``Encoding`` of tiktoken. Or a function from a list of str to as many lists of int
            below 2**31, with an attribute ``fingerprint``, a str that changes when its tokens do.
            Truncation and padding are off. The data set tokenises all texts when it is made; with
            ``even="dynamic"`` and no folder for tokens, while it reads, anew in each epoch.
        add_special_tokens: Add the tokens that a tokenizer of Hugging Face puts around a text.
        token_cache: A folder on disk that keeps tokens, a Parquet file for each file of the data
            set, for all ranks, processes and later runs. What is there is not tokenised again. None
            for ``"<cache_dir>.tokens"`` or, without `cache_dir`, to hold the tokens in memory: they
            must fit half of `max_memory`, and each rank makes all of them; with ``even="dynamic"``
            they are held only until a batch has them.
        chat: The column has conversations, lists of messages that are structs of ``role`` and
            ``content``, and the tokenizer is a fast one of transformers, whose chat template makes
            each a document; or a function from a list of conversations, lists of dicts, to as many
            pairs of tokens and loss. ``"<column>.loss"``, bool ``[B, L]``, is True for tokens that
            the template marks as the assistant's, by ``{% generation %}``.
    """

    columns: str | Sequence[str]
    length: int
    strategy: Strategy = "concat"
    separator: Number | str | Mapping[str, Number] | None = None
    padding: Number | Mapping[str, Number] = 0
    window: int = 16_384
    boundaries: Boundaries = "tokens"
    pad_documents_to: int = 1
    tokenizer: Any = field(default=None, hash=False)
    add_special_tokens: bool = False
    token_cache: str | os.PathLike[str] | None = None
    chat: bool = False

    def __post_init__(self) -> None:
        """Check the arguments and give them one form."""
        if not isinstance(self.columns, str):
            set_checked(self, columns=checked_names(self.columns, "columns of Pack"))
        elif not self.columns:
            raise ValueError(f"columns of Pack must not be empty; got {self.columns!r}")
        checked_word("strategy", self.strategy, get_args(Strategy))
        checked_word("boundaries", self.boundaries, get_args(Boundaries))
        set_checked(
            self,
            length=checked_int("length", self.length, 1, _MAX),
            window=checked_int("window", self.window, 1, _MAX),
            pad_documents_to=checked_int("pad_documents_to", self.pad_documents_to, 1, _MAX),
            padding=self._by_column("padding", dict.fromkeys(self.names, self.padding)),
        )
        if self.length % self.pad_documents_to:
            raise ValueError(
                "length must be a multiple of pad_documents_to, got "
                f"length={self.length}, pad_documents_to={self.pad_documents_to}"
            )
        self._check_tokenizer()
        if self.separator is not None and not isinstance(self.separator, str):
            of_number = dict.fromkeys(self.names, 0) | {self.names[0]: self.separator}
            set_checked(self, separator=self._by_column("separator", of_number))

    def _check_tokenizer(self) -> None:
        checked_bool("add_special_tokens", self.add_special_tokens)
        checked_bool("chat", self.chat)
        if self.chat and self.add_special_tokens:
            raise ValueError("add_special_tokens does not go with chat: a template writes them")
        if self.tokenizer is not None:
            if len(self.names) > 1:
                raise ValueError(f"tokenizer takes one column of strings, got {list(self.names)}")
            return
        needing = {
            f"separator={self.separator!r}": isinstance(self.separator, str),
            "add_special_tokens": self.add_special_tokens,
            "chat": self.chat,
            "token_cache": self.token_cache is not None,
        }
        for name, is_given in needing.items():
            if is_given:
                raise ValueError(f"{name} needs a tokenizer")

    @property
    def names(self) -> tuple[str, ...]:
        """The packed columns, one or more."""
        return (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)

    def separator_of(self, column: str) -> Number | None:
        """Return the value that follows each document in a column; None for none."""
        return None if self.separator is None else dict(self.separator)[column]  # type: ignore[arg-type]

    def padding_of(self, column: str) -> Number:
        """Return the value of padding in a column."""
        return dict(self.padding)[column]  # type: ignore[arg-type]

    def _by_column(self, argument: str, of_number: Any) -> tuple[tuple[str, Number], ...]:
        """Return the values of an argument, column by column."""
        given = getattr(self, argument)
        values = dict(given) if isinstance(given, tuple | Mapping) else of_number
        if set(values) != set(self.names):
            raise ValueError(
                f"{argument} must have a number for each packed column, {list(self.names)}; got "
                f"{given!r}"
            )
        return _pairs(argument, {name: values[name] for name in self.names}, given)


@dataclass(frozen=True)
class Window:
    """How consecutive rows become samples: each is a window of rows around one row, its anchor.

    A window never crosses the border of an episode, but borders of row groups and files. Anchors
    count as rows for all other arguments, and ``row.id`` has theirs.

    Attributes:
        columns: The windowed columns, names of a batch. Each becomes a tensor ``[B, T, ...]``, with
            T of ``past + 1 + future``; strings and other lists a `Jagged` of B rows of T lists.
            Columns that are not named have the values of the anchors, ``[B, ...]``.
        by: The column of episodes, numbers or strings: consecutive rows of one value are one. None
            if all rows are one episode.
        order: The column that must not descend within an episode, such as a time. None to take
            rows as they are stored.
        past: Rows before the anchor.
        future: Rows after the anchor.
        stride: Every so many of an episode's possible anchors is one, from the first.
        edges: The treatment of the ends of episodes. ``"drop"``: only rows whose whole window
            is in the episode are anchors. Otherwise all are. ``"repeat"``: the first or last row
            stands for those beyond. ``"pad"``: zeros do, and ``"window.valid"``, bool ``[B, T]``,
            is False there.
        offsets: The rows of a window relative to the anchor, instead of `past` and `future`: T
            numbers, ascending; or a dict from column to such numbers. With a dict, columns that it
            leaves out have `past` and `future`, and masks are ``"<column>.window.valid"``.
        tolerance: None: offsets count rows. A number: offsets are differences of `order`, in
            seconds for timestamps and in the column's own unit for numbers. The row nearest to each
            is taken; one farther away than this counts as beyond the ends.
    """

    columns: str | Sequence[str]
    by: str | None = None
    order: str | None = None
    past: int = 0
    future: int = 0
    stride: int = 1
    edges: Edges = "drop"
    offsets: Sequence[float] | Mapping[str, Sequence[float]] | None = None
    tolerance: float | None = None

    def __post_init__(self) -> None:
        """Check the arguments and give them one form."""
        columns = (self.columns,) if isinstance(self.columns, str) else self.columns
        set_checked(self, columns=checked_names(columns, "columns of Window"))
        for name in ("by", "order"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise TypeError(f"{name} of Window must be a column or None, got {shown(value)}")
        checked_word("edges", self.edges, get_args(Edges))
        for name, low in (("past", 0), ("future", 0), ("stride", 1)):
            set_checked(self, **{name: checked_int(name, getattr(self, name), low, _MAX)})
        tolerance = plain_number(self.tolerance)
        if tolerance is not None:
            if not isinstance(tolerance, int | float) or not 0 <= tolerance < math.inf:
                raise ValueError(f"tolerance must be 0 or more, or None; got {tolerance!r}")
            if self.order is None:
                raise ValueError("tolerance is in the unit of a column: name it, as order=")
        set_checked(self, tolerance=tolerance)
        if self.offsets is not None:
            set_checked(self, offsets=self._checked_offsets())
        elif tolerance is not None:
            raise ValueError("tolerance goes with offsets=, in the unit of order=")

    def _checked_offsets(self) -> tuple[Any, ...]:
        """Return offsets, or pairs of a column and its offsets."""
        given: Any = self.offsets
        is_by_column = isinstance(given, Mapping) or (
            isinstance(given, tuple) and len(given) > 0 and isinstance(given[0], tuple)
        )
        if not is_by_column:
            if self.past or self.future:
                raise ValueError("Window takes offsets, or past and future, not both")
            return self._numbers(given)
        pairs = tuple((name, self._numbers(of)) for name, of in dict(given).items())
        named = [name for name, _ in pairs]
        unknown = [name for name in named if name not in self.columns]
        left = [name for name in self.columns if name not in named]
        if unknown or not named:
            raise ValueError(f"offsets must name columns of Window, got {unknown}")
        if left and self.tolerance is not None:
            raise ValueError(f"with tolerance, every column needs offsets; without are {left}")
        return pairs

    def _numbers(self, given: Any) -> tuple[float, ...]:
        numbers = [plain_number(one) for one in (given if isinstance(given, Iterable) else ())]
        kinds = int if self.tolerance is None else (int, float)
        if not numbers or not all(
            isinstance(one, kinds) and not isinstance(one, bool) and abs(one) < _MAX
            for one in numbers
        ):
            of = "numbers of rows; in seconds they need tolerance=" if kinds is int else "numbers"
            raise ValueError(f"offsets must be {of}, got {given!r:.200}")
        if sorted(set(numbers)) != numbers:
            raise ValueError(f"offsets must ascend, got {given!r:.200}")
        return tuple(numbers)

    @property
    def offsets_of(self) -> dict[str, Sequence[float]]:
        """The offsets of each windowed column."""
        default: Sequence[float] = range(-self.past, self.future + 1)
        given: Any = self.offsets or default
        if not isinstance(given[0], tuple):
            return dict.fromkeys(self.columns, given)
        return dict.fromkeys(self.columns, default) | dict(given)

    @property
    def mask_of(self) -> dict[str, str]:
        """The name of the mask of each windowed column; empty if there is none."""
        if self.edges != "pad":
            return {}
        of_columns = self.offsets is not None and isinstance(self.offsets[0], tuple)  # type: ignore[index]
        name = "{}.window.valid" if of_columns else "window.valid"
        return {column: name.format(column) for column in self.columns}


@dataclass(frozen=True)
class ByLength:
    """A `batch_size` by the lengths of lists: batches of similar rows, or steps of equal cost.

    With `max_tokens`, or `bucket_boundaries` and `bucket_batch_sizes`, a batch has rows of one row
    group with lists of similar length. Each row group is cut into batches by itself, and always in
    the same way; `shuffle` permutes batches. Shares, shuffle windows, lengths and states count
    batches. A list column in `padding` becomes a tensor ``[B, L]``, padded to the longest list of
    the batch. ``"<column>.length"``, int64 ``[B]``, has the lengths.

    With `rows` and `cost`, batches are those of ``batch_size=rows``, lists included: shares,
    windows, lengths and states count rows. Each rank deals the rows of a shuffle window into its
    steps so that step k costs about the same on all ranks.

    Attributes:
        column: The list column whose lengths count. It is padded, but not with `rows`.
        max_tokens: The most entries, padding included, of a batch's ``[B, L]`` tensor of this
            column. Rows are sorted by length, and batches filled up. A longer row raises.
        bucket_boundaries: Lengths, ascending: rows below the first share batches, then those below
            the second, and so on, and those from the last one on.
        bucket_batch_sizes: Rows of a batch, for each of the buckets, one more than boundaries.
        max_rows: With `max_tokens`, the most rows of a batch; None for no limit.
        padding: The value of padding: a number for `column`, or a dict from list column to number.
            None for 0.
        multiple_of: L is rounded up to a multiple of this, within `max_tokens`.
        rows: Rows of every batch, with `cost`.
        cost: The measure of what a step costs; it needs ``shuffle=True``. ``"linear"``: a row of
            length L costs L. A pair (a, b): it costs aL + bL². Or a function from lengths, int64
            ``[n]``, to costs ``[n]``, finite and not negative, each of its own length alone. A
            batch costs as much as its rows; with padding, as if all rows had the padded length.
            Windows are of equally many rows on all ranks, and row groups are dealt so that windows
            cost about the same. None to leave the steps to chance.
    """

    column: str
    max_tokens: int | None = None
    bucket_boundaries: Sequence[int] | None = None
    bucket_batch_sizes: Sequence[int] | None = None
    max_rows: int | None = None
    padding: Number | Mapping[str, Number] | None = None
    multiple_of: int = 1
    rows: int | None = None
    cost: Cost | None = None

    def __post_init__(self) -> None:
        """Check the arguments and give them one form."""
        if not isinstance(self.column, str):
            raise TypeError(f"column must be a str; got {self.column!r}")
        for name in ("max_tokens", "max_rows", "rows"):
            set_checked(self, **{name: optional_int(name, getattr(self, name), 1, _MAX)})
        set_checked(self, multiple_of=checked_int("multiple_of", self.multiple_of, 1, _MAX))
        for name in ("bucket_boundaries", "bucket_batch_sizes"):
            if (values := getattr(self, name)) is not None:
                set_checked(self, **{name: tuple(checked_int(name, v, 1, _MAX) for v in values)})
        self._check_cost()
        given: Any = 0 if self.padding is None else self.padding
        named = dict(given) if isinstance(given, tuple | Mapping) else {self.column: given}
        padded = {} if self.rows else {self.column: 0} | named
        set_checked(self, padding=_pairs("padding", padded, given))
        boundaries, sizes = self.bucket_boundaries, self.bucket_batch_sizes
        ways = [self.max_tokens, boundaries, self.rows]
        if sum(way is not None for way in ways) != 1:
            raise ValueError(
                "ByLength needs either max_tokens or bucket_boundaries, or rows and cost; got "
                f"max_tokens={self.max_tokens}, bucket_boundaries={boundaries}, rows={self.rows}"
            )
        if (boundaries is None) != (sizes is None) or len(sizes or ()) != len(boundaries or ()) + (
            boundaries is not None
        ):
            raise ValueError(
                "bucket_batch_sizes must have one size more than there are bucket_boundaries; got "
                f"{sizes} and {boundaries}"
            )
        if boundaries is not None and list(boundaries) != sorted(set(boundaries)):
            raise ValueError(f"bucket_boundaries must ascend; got {boundaries}")
        if self.max_tokens is None and self.max_rows is not None:
            raise ValueError(f"max_rows goes with max_tokens; got max_rows={self.max_rows}")

    def _check_cost(self) -> None:
        cost: Any = self.cost
        if isinstance(cost, list | tuple):
            numbers = tuple(map(plain_number, cost))
            if len(numbers) != 2 or not all(
                isinstance(number, Number) and 0 <= number < math.inf for number in numbers
            ):
                raise ValueError(
                    f"a cost of aL + bL² needs two numbers, finite and not negative; got {cost!r}"
                )
            set_checked(self, cost=numbers)
        elif not (cost is None or callable(cost) or (isinstance(cost, str) and cost == "linear")):
            raise ValueError(
                f'cost must be "linear", a pair (a, b) or a function of lengths; got {shown(cost)}'
            )
        if self.rows is None:
            return
        if cost is None:
            raise ValueError(
                f"rows needs cost=; without it, give the data set batch_size={self.rows}"
            )
        given: Any = self.padding  # () in a copy
        if given not in (None, ()) or self.multiple_of != 1:
            raise ValueError(
                "padding and multiple_of do not go with rows, whose lists are not padded: "
                "to_padded() pads those of a batch"
            )

    @property
    def padding_of(self) -> dict[str, Number]:
        """The value of padding of each column that is padded."""
        return dict(self.padding or ())  # type: ignore[arg-type]


def _pairs(
    argument: str, values: Mapping[str, Any], given: object
) -> tuple[tuple[str, Number], ...]:
    """Return numbers by column as pairs."""
    pairs = tuple((name, plain_number(value)) for name, value in values.items())
    if not all(isinstance(value, Number) for _, value in pairs):
        raise TypeError(f"{argument} must be a number or a dict of numbers; got {given!r}")
    return pairs


@dataclass(frozen=True)
class Excluding:
    """A `rows=` that leaves out files and row groups that cannot be read.

    The others are divided as always, so ranks take even steps. `metrics()` counts what is left out.
    States are of the data without it.

    Attributes:
        path: A file that `torchparquet verify --exclusions` has written. Its names are those below
            the verified directory; those that the data set does not have are passed over, but not
            all of them.
    """

    path: str | os.PathLike[str]

    def __post_init__(self) -> None:
        """Check the path."""
        if not isinstance(self.path, str) and not hasattr(self.path, "__fspath__"):
            raise TypeError(f"the path of Excluding must be a path, got {shown(self.path)}")


@dataclass(frozen=True)
class Split:
    """One part of a random split of the rows.

    A row's part follows from the seed and from its global number or, with `by`, from its value in
    that column, so that all rows of a user are in one part. It never depends on other rows: files
    that are added after the others leave the rows before them where they are.

    Attributes:
        name: The part to read.
        parts: The fraction of rows, or of values of `by`, of each part; together 1.
        seed: Another seed makes another split.
        by: A column of numbers, strings or bytes. Rows with a null there are in one part. None to
            split by row.
    """

    name: str
    parts: Mapping[str, float]
    seed: int = 0
    by: str | None = None

    def __post_init__(self) -> None:
        """Check every field."""
        parts: Any = self.parts
        if not isinstance(parts, Mapping) or not parts:
            raise TypeError(f"split needs a dict of fractions, got {self.parts!r}")
        if self.name not in self.parts:
            raise ValueError(f"split has no part {self.name!r}: {dict(self.parts)!r}")
        fractions = list(self.parts.values())
        if not all(fraction > 0 for fraction in fractions) or not math.isclose(
            sum(fractions), 1, abs_tol=1e-9
        ):
            raise ValueError(f"the fractions of a split must add up to 1: {dict(self.parts)!r}")
        checked_int("the seed of a split", self.seed, 0, 2**63)
        if self.by is not None and not isinstance(self.by, str):
            raise TypeError(f"a split is by the name of a column, got {self.by!r}")


@dataclass(frozen=True)
class Unique:
    """Batches, or the steps of all ranks together, in which no key is twice.

    Attributes:
        column: The column of the keys: numbers, bools or strings, without nulls and NaN.
        across_ranks: Have no key twice in the batches that all ranks have in one step, as where
            embeddings of all ranks are negatives of each other. The number of ranks must be known
            when the data set is made, and a state fits the same number, or with
            `Order(canonical_world_size=)` others.
    """

    column: str
    across_ranks: bool = False

    def __post_init__(self) -> None:
        """Check the arguments."""
        if not isinstance(self.column, str):
            raise TypeError(f"the column of Unique must be a str; got {self.column!r}")
        checked_bool("across_ranks", self.across_ranks)


@dataclass(frozen=True)
class Shuffle:
    """A permutation of all rows in each epoch, as ``shuffle="global"`` gives it.

    Attributes:
        order: ``"global"``.
        first: The order of epoch 0: ``"global"`` too, so that its first batch waits for the pass
            that stores decoded rows; or ``"windows"`` of 8 row groups, or as many as memory holds,
            whose rows are permuted together, read from the files while another thread stores rows.
    """

    order: Literal["global"] = "global"
    first: First = "global"

    def __post_init__(self) -> None:
        """Check the arguments."""
        if self.order != "global":
            raise ValueError(f'shuffle must be True, False or "global", got {self.order!r}')
        checked_word("first", self.first, get_args(First))


@dataclass(frozen=True)
class Balanced:
    """Samples of classes in exact proportion, whatever the classes' numbers of rows are.

    After n samples, each reader (a rank, or a DataLoader worker of one) has had n times its
    proportion of each class, to within one sample. Within its class every row is read equally
    often, to within one. Rows of other classes, and with a null, are left out.

    Attributes:
        column: The column of the classes: numbers, bools or strings.
        proportions: The share of samples of each class, of any scale: ``{0: 1, 1: 3}``.
        length: The samples of an epoch, rounded down to whole rounds of the proportions. None for
            as many as read no row twice: all rows of the rarest class, measured by proportion.
    """

    column: str
    proportions: Mapping[Any, float]
    length: int | None = None

    def __post_init__(self) -> None:
        """Check the arguments and give them one form."""
        if not isinstance(self.column, str):
            raise TypeError(f"the column of Balanced must be a str; got {self.column!r}")
        given: Any = self.proportions
        pairs = tuple(given.items()) if isinstance(given, Mapping) else given
        if not isinstance(pairs, tuple) or not pairs or len(pairs) >= 2**16:
            raise TypeError(f"Balanced needs a dict of proportions by class, got {given!r:.200}")
        for value, part in pairs:
            number = plain_number(part)
            if not isinstance(number, Number) or not (number > 0 and math.isfinite(number)):
                raise ValueError(
                    "proportions must be above 0 and finite; leave out a class of which no row "
                    f"is to be read: class {value!r} has {part!r}"
                )
        plain = tuple((plain_number(value), plain_number(part)) for value, part in pairs)
        set_checked(self, proportions=plain, length=optional_int("length", self.length, 1, _MAX))


@dataclass(frozen=True, eq=False)
class Weights:
    """Samples of rows in proportion to weights: each row as often as expected, to within one.

    A row of weight w is expected ``length * w / (sum of all weights)`` times. The epoch has it the
    next lower or higher whole number of times, which an offset decides that each epoch draws anew.

    Attributes:
        of: The column of the weights, or an array of a weight for each row of all files, by row
            number as ``row.id`` has it. Weights must be above 0 and finite.
        length: The samples of an epoch. None for as many as there are rows.
    """

    of: str | Sequence[float] | NDArray[Any]
    length: int | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        if not isinstance(self.of, str) and not hasattr(self.of, "__len__"):
            raise TypeError(f"Weights needs a column or an array; got {shown(self.of)}")
        set_checked(self, length=optional_int("length", self.length, 1, _MAX))
