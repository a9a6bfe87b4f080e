"""The arguments that commands share: paths, sizes, options of a plan, `--json` and `--debug`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from torchparquet._impl.files.manifest_reading import read_manifest
from torchparquet._impl.files.remote.storage import StorageArguments
from torchparquet._impl.plan.plan_options import requested_window
from torchparquet._impl.reading.read_options import parse_size
from torchparquet.dataset import ParquetDataset
from torchparquet.options import ByLength, Order, Pack
from torchparquet.tools.screen import check_plot, make_console, print_json
from torchparquet.tools.tensors import readable_columns

if TYPE_CHECKING:
    from rich.console import Console

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


def parsed_by(parse: Callable[[Any], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a callback of an option whose value a function parses, or refuses by ValueError."""

    def callback(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        try:
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


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


def _plot(path: str) -> str:
    check_plot(path)
    return path


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


option = partial(click.option, show_default=True)
# An option that may be given several times.
options = partial(click.option, multiple=True)


def number_option(
    *names: str, least: int = 1, most: int | None = None, **more: Any
) -> Callable[[Function], Function]:
    """Return an option that is a whole number."""
    kind = click.IntRange(least, most)
    return click.option(*names, type=kind, **{"metavar": "N", "show_default": True, **more})


def size_option(name: str, default: str | None, text: str) -> Callable[[Function], Function]:
    """Return an option that is a number of bytes, plain or such as 512MiB."""
    return option(name, default=default, metavar="SIZE", callback=parsed_by(_size), help=text)


storage_option = options(
    "--storage-option",
    "storage",
    metavar="KEY=VALUE",
    callback=parsed_by(_storage),
    help="Option of the store of the URLs; may be repeated. KEY.NAME sets a nested option.",
)
column_option = options(
    "--column",
    "columns",
    metavar="NAME",
    help="Read this column; may be repeated. Default: all that can be read.",
)
plot_option = option(
    "--plot",
    metavar="FILE",
    callback=parsed_by(_plot),
    help="Draw the report too: FILE.png or FILE.svg.",
)
batch_size_option = number_option("--batch-size", default=1024, help="Rows per batch and rank.")
num_workers_option = number_option(
    "--num-workers", least=0, most=2**16 - 1, default=0, help="DataLoader workers of each rank."
)
world_size_option = number_option("--world-size", default=1, help="Ranks.")


def paths_argument(function: Function) -> Function:
    """Add the paths of files, and the options of their store as `storage`."""
    paths = click.argument("paths", nargs=-1, required=True, metavar="PATH...")
    return paths(storage_option(function))


# What shapes the order of an epoch, named as the arguments of `ParquetDataset`, or of `Pack`,
# `ByLength` and `Order`.
_ORDER_OPTIONS = (
    number_option("--epoch", least=0, default=0),
    number_option("--seed", least=0, default=0),
    click.option(
        "--shuffle/--no-shuffle", help="Permute row groups and rows, as shuffle=True does."
    ),
    option(
        "--shuffle-window",
        metavar="K",
        callback=parsed_by(_window),
        help='Row groups whose rows are permuted together, or "N rows".  '
        "[default: 8, or those that fit memory]",
    ),
    size_option(
        "--max-memory", "1GiB", "Bound of the batches in flight, and so of shuffle windows."
    ),
    option(
        "--even",
        type=click.Choice(["split", "drop", "pad", "none"]),
        default="split",
        help="Rule that gives ranks the same number of steps.",
    ),
    click.option("--drop-last", is_flag=True, help="Leave out batches that are not full."),
    option("--filter", "filters", metavar="SQL", help="Read the rows for which this is true."),
    options(
        "--pack",
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
    option("--pack-separator", type=int, metavar="N", help="A token that follows each document."),
    option(
        "--by-length",
        metavar="NAME",
        help="Batch rows by the length of their lists in this column, as ByLength does.",
    ),
    number_option("--max-tokens", help="Entries of a batch by length, padding included."),
    number_option("--max-rows", help="Rows of a batch by length."),
    option(
        "--bucket-boundaries",
        metavar="N,...",
        callback=parsed_by(_numbers),
        help="Lengths at which the next bucket begins.",
    ),
    option(
        "--bucket-batch-sizes",
        metavar="N,...",
        callback=parsed_by(_numbers),
        help="Rows of a batch of each bucket, one more than there are boundaries.",
    ),
    number_option(
        "--multiple-of", default=1, help="Batches by length are padded to a multiple of this."
    ),
    number_option("--canonical-world-size", help="Ranks whose global batches other worlds keep."),
)
# Options that need another one.
_PACK = ("length", "strategy", "separator")
_BY_LENGTH = ("max_tokens", "max_rows", "bucket_boundaries", "bucket_batch_sizes", "multiple_of")


def order_options(function: Function) -> Function:
    """Add the options that shape the order of an epoch, which `open_dataset` takes."""
    for one in reversed(_ORDER_OPTIONS):
        function = one(function)
    return function


def open_dataset(
    paths: Sequence[str],
    columns: Sequence[str],
    storage: StorageArguments,
    world_size: int,
    *,
    batch_size: int,
    epoch: int,
    **order: Any,
) -> ParquetDataset:
    """Return the data set of rank 0 of a world, of the named columns or of all that can be read."""
    by_length, packed = order.pop("by_length"), order.pop("pack")
    lengths = {name: order.pop(name) for name in _BY_LENGTH}
    of_pack = {name: order.pop(f"pack_{name}") for name in _PACK}
    for name, whole, value in [
        *((f"pack_{name}", "pack", packed) for name in _PACK),
        *((name, "by_length", by_length) for name in _BY_LENGTH),
    ]:
        if _is_given(name) and not value:
            raise click.UsageError(f"{_option(name)} needs {_option(whole)} NAME")
    if by_length and _is_given("batch_size"):
        raise click.UsageError(
            "--by-length does not go with --batch-size: give --max-tokens, or "
            "--bucket-boundaries and --bucket-batch-sizes"
        )
    return ParquetDataset(
        paths,
        batch_size=ByLength(by_length, **lengths) if by_length else batch_size,
        columns=None
        if packed
        else list(columns) or readable_columns(read_manifest(list(paths), storage=storage)),
        pack=Pack(packed, **of_pack) if packed else None,
        order=Order(canonical_world_size=order.pop("canonical_world_size")),
        rank=0,
        world_size=world_size,
        storage_options=storage.options,
        filesystem=storage.filesystem,
        **order,
    )


def _is_given(name: str) -> bool:
    source = click.get_current_context().get_parameter_source(name)
    return source is not ParameterSource.DEFAULT


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
