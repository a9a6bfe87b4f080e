"""The arguments that commands share: paths, sizes, options of a plan, `--json` and `--debug`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from torchparquet._impl.files.remote.storage import StorageArguments
from torchparquet._impl.plan.plan_options import requested_window
from torchparquet._impl.reading.read_options import parse_size
from torchparquet.tools.screen import check_plot, make_console, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from torchparquet._impl.batches.pack import Strategy
    from torchparquet._impl.sequences.by_length import ByLength
    from torchparquet.dataset import ParquetDataset

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass
class Session:
    """The state of one run of the command line."""

    debug: bool = False


def _set_debug(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(Session).debug = True


# Accepted before and after the name of the command.
DEBUG = click.Option(
    ["--debug"], is_flag=True, expose_value=False, callback=_set_debug, help="Show tracebacks."
)
_JSON = click.Option(
    ["--json", "as_json"], is_flag=True, help="Print JSON, and nothing else, on standard output."
)


def report_command(
    show: Callable[[Console, dict[str, Any]], None],
) -> Callable[[Callable[..., dict[str, Any]]], click.Command]:
    """Make a command of a function that returns a report, for people by `show`, or as JSON.

    The exit code is 1 if the report says that something does not hold.
    """

    def decorate(function: Callable[..., dict[str, Any]]) -> click.Command:
        @wraps(function)
        def run(as_json: bool, **options: Any) -> int:
            report = function(**options)
            if as_json:
                print_json(report)
            else:
                show(make_console(), report)
            return 0 if report.get("holds", True) else 1

        command = click.command()(run)
        command.params += [_JSON, DEBUG]
        return command

    return decorate


def _checked_plot(
    context: click.Context, parameter: click.Parameter, path: str | None
) -> str | None:
    try:
        if path is not None:
            check_plot(path)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return path


plot_option = click.option(
    "--plot",
    metavar="FILE",
    callback=_checked_plot,
    help="Draw the report too: FILE.png or FILE.svg.",
)
_paths = click.argument("paths", nargs=-1, required=True, metavar="PATH...")


def _storage(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> StorageArguments:
    """Return the options of a store from texts such as key=value and client_kwargs.name=value."""
    options: dict[str, Any] = {}
    for text in values:
        name, sign, value = text.partition("=")
        outer, dot, inner = name.partition(".")
        if not sign or not outer or (dot and not inner):
            # The text may be a secret.
            raise click.BadParameter("it must be KEY=VALUE")
        parsed = _parsed(value)
        if dot:
            options.setdefault(outer, {})[inner] = parsed
        else:
            options[outer] = parsed
    return StorageArguments(options or None)


def _parsed(text: str) -> Any:
    """Return a text as JSON if it is an object, a list, true, false or null."""
    if text in ("true", "false", "null") or text[:1] in ("{", "["):
        try:
            return json.loads(text)
        except ValueError as error:
            raise click.BadParameter(f"its value is no JSON ({error})") from None
    return text


storage_option = click.option(
    "--storage-option",
    "storage",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_storage,
    help="Option of the store of the URLs; may be repeated. KEY.NAME sets a nested option.",
)


def paths_argument(function: Function) -> Function:
    """Add the paths of files, and the options of their store as `storage`."""
    return _paths(storage_option(function))


column_option = click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME",
    help="Read this column; may be repeated. Default: all that can be read.",
)


def byte_size(text: str) -> int:
    """Return the bytes of a plain number or of a size such as 512MiB; the type of an option."""
    try:
        return parse_size("it", int(text) if text.isdecimal() else text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def max_memory_option(default: str, text: str) -> Callable[[Function], Function]:
    """Return the option `--max-memory`."""
    return click.option(
        "--max-memory",
        type=byte_size,
        default=default,
        show_default=True,
        metavar="SIZE",
        help=text,
    )


_WHOLE = click.IntRange(min=0)
_POSITIVE = click.IntRange(min=1)
batch_size_option = click.option(
    "--batch-size",
    type=_POSITIVE,
    default=1024,
    show_default=True,
    metavar="N",
    help="Rows per batch and rank.",
)
num_workers_option = click.option(
    "--num-workers",
    type=click.IntRange(0, 2**16 - 1),
    default=0,
    show_default=True,
    metavar="N",
    help="DataLoader workers of each rank.",
)


def world_size_option(*, multiple: bool = False) -> Callable[[Function], Function]:
    """Return the option `--world-size`; some commands take it several times."""
    default: Any = (1,) if multiple else 1
    return click.option(
        "--world-size",
        "world_sizes" if multiple else "world_size",
        type=_POSITIVE,
        default=default,
        show_default=True,
        multiple=multiple,
        metavar="N",
        help="Ranks; may be repeated." if multiple else "Ranks.",
    )


class _Window(click.ParamType):  # type: ignore[type-arg]
    """A number of row groups, or of rows."""

    name = "window"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        """Return what `ParquetDataset` takes as `shuffle_window`."""
        window = int(value) if str(value).isdecimal() else str(value)
        try:
            requested_window(window)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return window


class _Numbers(click.ParamType):  # type: ignore[type-arg]
    """Several whole numbers with commas between."""

    name = "numbers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[int]:
        """Return the numbers."""
        try:
            return [int(number) for number in str(value).split(",")]
        except ValueError:
            self.fail(f"it must be numbers such as 64,256, got {value!r}", param, ctx)


_ORDER_OPTIONS = (
    click.option("--epoch", type=_WHOLE, default=0, show_default=True, metavar="N"),
    click.option("--seed", type=_WHOLE, default=0, show_default=True, metavar="N"),
    click.option(
        "--shuffle/--no-shuffle", help="Permute row groups and rows, as shuffle=True does."
    ),
    click.option(
        "--shuffle-window",
        type=_Window(),
        metavar="K",
        help='Row groups whose rows are permuted together, or "N rows".  '
        "[default: 8, or those that fit memory]",
    ),
    max_memory_option("1GiB", "Bound of the batches in flight, and so of shuffle windows."),
    click.option(
        "--even",
        type=click.Choice(["split", "drop", "pad", "none"]),
        default="split",
        show_default=True,
        help="Rule that gives ranks the same number of steps.",
    ),
    click.option("--drop-last", is_flag=True, help="Leave out batches that are not full."),
    click.option("--where", metavar="SQL", help="Read the rows for which this is true."),
    click.option(
        "--pack",
        multiple=True,
        metavar="NAME",
        help="Pack the lists of this column into sequences; may be repeated.",
    ),
    click.option(
        "--pack-length",
        type=_POSITIVE,
        default=2048,
        show_default=True,
        metavar="L",
        help="Tokens of a packed sequence.",
    ),
    click.option(
        "--pack-strategy",
        type=click.Choice(["concat", "split", "best_fit"]),
        default="concat",
        show_default=True,
        help="How documents are packed.",
    ),
    click.option(
        "--pack-separator", type=int, metavar="N", help="A token that follows each document."
    ),
    click.option(
        "--by-length",
        metavar="NAME",
        help="Batch rows by the length of their lists in this column, as ByLength does.",
    ),
    click.option(
        "--max-tokens",
        type=_POSITIVE,
        metavar="N",
        help="Entries of a batch by length, padding included.",
    ),
    click.option("--max-rows", type=_POSITIVE, metavar="N", help="Rows of a batch by length."),
    click.option(
        "--bucket-boundaries",
        type=_Numbers(),
        metavar="N,...",
        help="Lengths at which the next bucket begins.",
    ),
    click.option(
        "--bucket-batch-sizes",
        type=_Numbers(),
        metavar="N,...",
        help="Rows of a batch of each bucket, one more than there are boundaries.",
    ),
    click.option(
        "--multiple-of",
        type=_POSITIVE,
        default=1,
        show_default=True,
        metavar="N",
        help="Batches by length are padded to a multiple of this.",
    ),
    click.option(
        "--canonical-world-size",
        type=_POSITIVE,
        metavar="N",
        help="Ranks whose global batches other worlds keep.",
    ),
)
# Options that need another one.
_PARTS = {
    "pack": ("pack_length", "pack_strategy", "pack_separator"),
    "by_length": (
        "max_tokens",
        "max_rows",
        "bucket_boundaries",
        "bucket_batch_sizes",
        "multiple_of",
    ),
}


def order_options(function: Function) -> Function:
    """Add the options that shape the order of an epoch; `Order` holds them."""
    for option in reversed(_ORDER_OPTIONS):
        function = option(function)
    return function


@dataclass(frozen=True)
class Order:
    """The options that shape the order of an epoch, named as `ParquetDataset`'s arguments."""

    batch_size: int
    epoch: int
    seed: int
    shuffle: bool
    shuffle_window: int | str | None
    max_memory: int
    even: str
    drop_last: bool
    where: str | None = None
    pack: tuple[str, ...] = ()
    pack_length: int = 2048
    pack_strategy: Strategy = "concat"
    pack_separator: int | None = None
    by_length: str | None = None
    max_tokens: int | None = None
    max_rows: int | None = None
    bucket_boundaries: list[int] | None = None
    bucket_batch_sizes: list[int] | None = None
    multiple_of: int = 1
    canonical_world_size: int | None = None

    def __post_init__(self) -> None:
        """Check that no option is given in vain."""
        context = click.get_current_context()
        given = {
            name
            for name in context.params
            if context.get_parameter_source(name) is not ParameterSource.DEFAULT
        }
        for whole, parts in _PARTS.items():
            for part in parts:
                if part in given and whole not in given:
                    raise click.UsageError(f"{_option(part)} needs {_option(whole)} NAME")
        if {"by_length", "batch_size"} <= given:
            raise click.UsageError(
                "--by-length does not go with --batch-size: give --max-tokens, or "
                "--bucket-boundaries and --bucket-batch-sizes"
            )

    @property
    def _by_length(self) -> ByLength | None:
        from torchparquet._impl.sequences.by_length import ByLength

        if self.by_length is None:
            return None
        return ByLength(
            self.by_length,
            self.max_tokens,
            self.bucket_boundaries,
            self.bucket_batch_sizes,
            self.max_rows,
            multiple_of=self.multiple_of,
        )

    def columns(
        self, named: Sequence[str], paths: Sequence[str], storage: StorageArguments
    ) -> list[str] | None:
        """Return the columns to read: the named ones, or all that can be read."""
        from torchparquet._impl.files.manifest_reading import read_manifest
        from torchparquet.tools.tensors import readable_columns

        if self.pack:
            return None
        return list(named) or readable_columns(read_manifest(list(paths), storage=storage))

    def dataset(self, paths: Any, world_size: int, **options: Any) -> ParquetDataset:
        """Return the data set of rank 0 of a world."""
        from torchparquet._impl.batches.pack import Pack
        from torchparquet.dataset import ParquetDataset

        return ParquetDataset(
            paths,
            batch_size=self._by_length or self.batch_size,
            shuffle=self.shuffle,
            shuffle_window=self.shuffle_window,
            seed=self.seed,
            even=self.even,  # type: ignore[arg-type]
            drop_last=self.drop_last,
            where=self.where,
            canonical_world_size=self.canonical_world_size,
            pack=Pack(self.pack, self.pack_length, self.pack_strategy, self.pack_separator)
            if self.pack
            else None,
            max_memory=self.max_memory,
            rank=0,
            world_size=world_size,
            **options,
        )


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
