"""The arguments that commands share, and the data that they name."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.manifest_reading import read_manifest
from torchparquet._impl.files.remote.storage import NO_STORAGE, StorageArguments
from torchparquet._impl.plan.plan_options import requested_window
from torchparquet._impl.reading.read_options import parse_size
from torchparquet.cli.columns import readable_columns
from torchparquet.cli.screen import checked_plot, make_console
from torchparquet.dataset import ParquetDataset
from torchparquet.options import Balanced, ByLength, Order, Pack, Shuffle, Unique, Weights, Window

if TYPE_CHECKING:
    from rich.console import Console

Function = TypeVar("Function", bound=Callable[..., Any])

# Options that need another one, by that one.
_PARTS = {
    "pack": (
        *("pack_length", "pack_strategy", "pack_separator"),
        *("tokenizer", "token_cache", "chat"),
    ),
    "window": tuple(f"window_{of}" for of in ["by", "order", "past", "future", "stride", "edges"]),
    "by_length": (
        *("max_tokens", "max_rows", "multiple_of"),
        *("bucket_boundaries", "bucket_batch_sizes", "cost"),
    ),
    "balanced": ("proportion",),
    "unique": ("across_ranks",),
}


def _number_or_token(text: str) -> int | str:
    return int(text) if text.lstrip("-").isdigit() else text


@dataclass(frozen=True)
class Data:
    """The data that a command's arguments name."""

    paths: Sequence[str]
    storage: StorageArguments = NO_STORAGE
    columns: Sequence[str] = ()

    def manifest(self) -> Manifest:
        """Read the footers."""
        return read_manifest(list(self.paths), storage=self.storage)

    def dataset(
        self, world_size: int, *, batch_size: int, epoch: int, **order: Any
    ) -> ParquetDataset:
        """Return the data set of rank 0, of the named columns or of all that can be read."""
        parts: dict[str, dict[str, Any]] = {}
        for whole, names in _PARTS.items():
            for name in names:
                if _is_given(name) and not order[whole]:
                    needing, needed = (f"--{of.replace('_', '-')}" for of in (name, whole))
                    raise click.UsageError(f"{needing} needs {needed} NAME")
            parts[whole] = {name.removeprefix(f"{whole}_"): order.pop(name) for name in names}
        by_length, packed, windowed = (order.pop(of) for of in ("by_length", "pack", "window"))
        if packed and windowed:
            raise click.UsageError("--pack does not go with --window: give one of them")
        pack: Pack | Window | None = Pack(packed, **parts["pack"]) if packed else None
        if windowed:
            pack = Window(windowed, **parts["window"])
        of_length = parts["by_length"]
        if by_length and _is_given("batch_size"):
            if of_length["cost"] is None:
                raise click.UsageError(
                    "--by-length does not go with --batch-size: give --max-tokens, or "
                    "--bucket-boundaries and --bucket-batch-sizes, or --cost too"
                )
            of_length["rows"] = batch_size
        elif of_length["cost"] and not (of_length["max_tokens"] or of_length["bucket_boundaries"]):
            raise click.UsageError(
                "--cost needs --batch-size, --max-tokens or --bucket-boundaries: give one of them"
            )
        balanced, weights = order.pop("balanced"), order.pop("weights")
        if balanced and weights:
            raise click.UsageError("--balanced does not go with --weights: give one of them")
        length = order.pop("samples")
        if length and not (balanced or weights):
            raise click.UsageError("--samples needs --balanced NAME or --weights NAME")
        sample: Balanced | Weights | None = Weights(weights, length) if weights else None
        if balanced:
            sample = Balanced(balanced, dict(parts["balanced"]["proportion"]), length)
        unique = order.pop("unique")
        first = order.pop("global_first")
        if order.pop("is_global"):
            order["shuffle"] = Shuffle("global", first)
        elif _is_given("global_first"):
            raise click.UsageError("--global-first needs --global")
        columns = None if packed else list(self.columns) or readable_columns(self.manifest())
        return ParquetDataset(
            self.paths,
            batch_size=ByLength(by_length, **of_length) if by_length else batch_size,
            columns=columns,
            pack=pack,
            sample=sample,
            unique=Unique(unique, **parts["unique"]) if unique else None,
            order=Order(canonical_world_size=order.pop("canonical_world_size")),
            rank=0,
            world_size=world_size,
            storage_options=self.storage.named,
            filesystem=self.storage.filesystem,
            **order,
        )


def _is_given(name: str) -> bool:
    source = click.get_current_context().get_parameter_source(name)
    return source is not ParameterSource.DEFAULT


def _storage(texts: tuple[str, ...]) -> StorageArguments:
    """Return the options of a store from texts such as key=value and client_kwargs.name=value."""
    options: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        outer, dot, inner = name.partition(".")
        if not sign or not outer or (dot and not inner):
            # The text may be a secret.
            raise ValueError("it must be KEY=VALUE")
        parsed: Any = value
        if value in ("true", "false", "null") or value[:1] in ("{", "["):
            try:
                parsed = json.loads(value)
            except ValueError as error:
                raise ValueError(f"its value is no JSON ({error})") from None
        if dot:
            options.setdefault(outer, {})[inner] = parsed
        else:
            options[outer] = parsed
    return StorageArguments(options or None)


def _size(text: str) -> int:
    return parse_size("it", int(text) if text.isdecimal() else text)


def _window(text: str) -> int | str:
    window = int(text) if text.isdecimal() else text
    requested_window(window)
    return window


def _numbers(text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise ValueError(f"it must be numbers such as 64,256, got {text!r}") from None


def _proportions(texts: tuple[str, ...]) -> list[tuple[Any, float]]:
    """Return classes with their proportions, from texts such as 1=0.5, cat=0.5 and "1"=0.5."""
    found = []
    for text in texts:
        value, sign, part = text.rpartition("=")
        if not sign:
            raise ValueError(f"it must be VALUE=PART, got {text!r}")
        is_quoted = len(value) > 1 and value[0] == value[-1] == '"'
        is_plain = value in ("true", "false") or value.removeprefix("-").isdecimal()
        found.append((json.loads(value) if is_plain or is_quoted else value, float(part)))
    return found


def _cost(text: str) -> Any:
    if text == "linear":
        return text
    try:
        a, b = map(float, text.split(","))
    except ValueError:
        raise ValueError(f"it must be linear, or A,B such as 1,0.002, got {text!r}") from None
    return a, b


option = partial(click.option, show_default=True)


def number_option(
    *names: str, least: int = 1, most: int | None = None, **more: Any
) -> Callable[[Function], Function]:
    """Return an option that is a whole number."""
    return option(*names, type=click.IntRange(least, most), **{"metavar": "N", **more})


def parsed_option(
    name: str, metavar: str, text: str, parse: Callable[[Any], Any], **more: Any
) -> Callable[[Function], Function]:
    """Return an option whose value a function parses, or refuses by ValueError."""

    def callback(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        try:
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return option(*name.split(), metavar=metavar, help=text, callback=callback, **more)


def size_option(name: str, default: str | None, text: str) -> Callable[[Function], Function]:
    """Return an option that is a number of bytes, plain or such as 512MiB."""
    return parsed_option(name, "SIZE", text, _size, default=default)


column_option = click.option(
    *("--column", "columns"),
    multiple=True,
    metavar="NAME",
    help="Read this column; may be repeated. Default: all that can be read.",
)
plot_option = parsed_option(
    "--plot", "FILE", "Draw the report too: FILE.png or FILE.svg.", checked_plot
)
filter_option = click.option(
    *("--filter", "filters"), metavar="SQL", help="Read the rows for which this is true."
)
max_memory_option = size_option(
    "--max-memory", "1GiB", "Bound of the batches in flight, and so of shuffle windows."
)
num_threads_option = number_option("--num-threads", most=1024, help="Decode threads.")
batch_size_option = number_option("--batch-size", default=1024, help="Rows per batch and rank.")
num_workers_option = number_option(
    "--num-workers", least=0, most=2**16 - 1, default=0, help="DataLoader workers of each rank."
)
world_size_option = number_option("--world-size", default=1, help="Ranks.")
tokenizer_option = click.option(
    "--tokenizer",
    metavar="NAME",
    help="Make tokens of a packed column of texts: a tokenizer.json, its folder, or a name in "
    "the local cache of Hugging Face.",
)

# Of a data set: named as the arguments of `ParquetDataset`, or of their options.
_DATASET_OPTIONS = (
    batch_size_option,
    num_workers_option,
    column_option,
    number_option("--epoch", least=0, default=0, help="Epoch that is read."),
    number_option("--seed", least=0, default=0, help="Of orders and samples."),
    click.option(
        "--shuffle/--no-shuffle", help="Permute row groups and rows, as shuffle=True does."
    ),
    click.option(
        "--global", "is_global", is_flag=True, help='Permute all rows, as shuffle="global" does.'
    ),
    option(
        "--global-first",
        type=click.Choice(["global", "windows"]),
        default="global",
        help="Order of epoch 0 of --global: windows reads it while the rows are stored.",
    ),
    click.option(
        "--cache-dir", metavar="DIR", help="The folder that keeps the decoded rows of --global."
    ),
    parsed_option(
        "--shuffle-window",
        "K",
        'Row groups whose rows are permuted together, or "N rows".  '
        "[default: 8, or those that fit memory]",
        _window,
    ),
    max_memory_option,
    option(
        "--even",
        type=click.Choice(["split", "drop", "pad", "none"]),
        default="split",
        help="Rule that gives ranks the same number of steps.",
    ),
    click.option("--drop-last", is_flag=True, help="Leave out batches that are not full."),
    filter_option,
    click.option(
        "--pack",
        multiple=True,
        metavar="NAME",
        help="Pack the lists of this column into sequences; may be repeated.",
    ),
    number_option("--pack-length", default=2048, metavar="L", help="Tokens of a packed sequence."),
    option(
        "--pack-strategy",
        type=click.Choice(["concat", "split", "best_fit"]),
        default="concat",
        help="How documents are packed.",
    ),
    click.option(
        "--pack-separator",
        type=_number_or_token,
        metavar="N",
        help="A token that follows each document; with --tokenizer also as text.",
    ),
    tokenizer_option,
    click.option("--token-cache", metavar="FOLDER", help="The folder that keeps the tokens."),
    click.option("--chat", is_flag=True, help="The packed column has conversations."),
    click.option(
        "--window",
        multiple=True,
        metavar="NAME",
        help="Make windows of rows of this column, as Window does; may be repeated.",
    ),
    click.option("--window-by", metavar="NAME", help="The column of episodes."),
    click.option("--window-order", metavar="NAME", help="The column of times in an episode."),
    number_option("--window-past", least=0, default=0, help="Rows before the anchor."),
    number_option("--window-future", least=0, default=0, help="Rows after the anchor."),
    number_option("--window-stride", default=1, help="Rows from one anchor to the next."),
    option(
        "--window-edges",
        type=click.Choice(["drop", "repeat", "pad"]),
        default="drop",
        help="What windows do at the ends of an episode.",
    ),
    click.option(
        "--by-length",
        metavar="NAME",
        help="Batch rows by the length of their lists in this column, as ByLength does.",
    ),
    number_option("--max-tokens", help="Entries of a batch by length, padding included."),
    number_option("--max-rows", help="Rows of a batch by length."),
    parsed_option(
        "--bucket-boundaries", "N,...", "Lengths at which the next bucket begins.", _numbers
    ),
    parsed_option(
        "--bucket-batch-sizes",
        "N,...",
        "Rows of a batch of each bucket, one more than there are boundaries.",
        _numbers,
    ),
    number_option(
        "--multiple-of", default=1, help="Batches by length are padded to a multiple of this."
    ),
    parsed_option(
        "--cost",
        "linear|A,B",
        "Give steps of batches by length, or of --batch-size rows, equal cost: a row of length L "
        "costs L, or AL + BL².",
        _cost,
    ),
    click.option(
        "--balanced",
        metavar="NAME",
        help="Sample the classes of this column in proportion, as Balanced does.",
    ),
    parsed_option(
        "--proportion",
        "VALUE=PART",
        "Part of the samples that a class has; may be repeated. Quotes make a number a string: "
        "'\"1\"=0.5'.",
        _proportions,
        multiple=True,
    ),
    click.option("--weights", metavar="NAME", help="Sample rows by their weights in this column."),
    number_option("--samples", help="Samples of an epoch, balanced or weighted."),
    click.option(
        "--unique", metavar="NAME", help="Keep equal keys of this column out of one batch."
    ),
    click.option(
        "--across-ranks",
        is_flag=True,
        help="With --unique: keep equal keys out of the batches that ranks have in one step.",
    ),
    number_option("--canonical-world-size", help="Ranks whose global batches other worlds keep."),
)


def dataset_options(function: Function) -> Function:
    """Add the options of a data set, which `Data.dataset` takes, and `num_workers`."""
    for one in reversed(_DATASET_OPTIONS):
        function = one(function)
    return function


def _set_debug(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        context.obj.add("debug")


# Accepted before and after the name of the command.
DEBUG = click.Option(
    ["--debug"], is_flag=True, expose_value=False, callback=_set_debug, help="Show tracebacks."
)
_JSON = click.Option(
    ["--json", "as_json"], is_flag=True, help="Print JSON, and nothing else, on standard output."
)
_storage_option = parsed_option(
    "--storage-option storage",
    "KEY=VALUE",
    "Option of the store of the URLs; may be repeated. KEY.NAME sets a nested option.",
    _storage,
    multiple=True,
)


def report_command(
    show: Callable[[Console, dict[str, Any]], None], *, needs_paths: bool = True
) -> Callable[[Callable[..., dict[str, Any]]], click.Command]:
    """Make a command of a function from `Data` to a report, for people by `show`, or as JSON.

    The exit code is 1 if the report says that something does not hold.
    """
    metavar = "PATH..." if needs_paths else "[PATH...]"
    paths = click.Argument(["paths"], nargs=-1, required=needs_paths, metavar=metavar)

    def decorate(function: Callable[..., dict[str, Any]]) -> click.Command:
        @wraps(function)
        def run(as_json: bool, columns: Sequence[str] = (), **options: Any) -> int:
            data = Data(options.pop("paths"), options.pop("storage"), columns)
            report = function(data, **options)
            if as_json:
                text = json.dumps(report, indent=2, allow_nan=False)  # an error prints nothing
                sys.stdout.write(text + "\n")
            else:
                show(make_console(), report)
            return 0 if report.get("holds", True) else 1

        command = click.command()(_storage_option(run))
        command.params = [paths, *command.params, _JSON, DEBUG]
        return command

    return decorate
