"""Against the least that reading needs: pread and the codec alone, or pread alone."""

from __future__ import annotations

from generated.generated_files import click_logs, floats
from passes.ceiling import least_work_side
from passes.sides import Content, take_turns
from report.verdicts import OURS, Outcome, Row, Setting, ratio
from routes.contenders import side, torchparquet_route

CEILING = 0.8
PREAD = 0.75


def ceiling(setting: Setting) -> Outcome:
    """Against pread, the codec and one store of each output byte.

    Both sides read every byte of the output; then, for the readers alone, neither does.
    """
    outcome = Outcome()
    for codec, path in click_logs(setting).items():
        for read in (True, False):
            name = "pread, codec, store" + (", read" if read else "")
            least = least_work_side(name, path, setting.num_threads, "codec", read=read)
            route = torchparquet_route(setting.num_threads)
            ours = side(route, path, setting.batch_size, read=read)
            # A contender that only counts rows does not tell their bytes.
            content: Content = "same" if read else "same in each"
            passes = take_turns([ours, least], setting.repeats, content=content)
            case = f"{codec}, {'bytes read' if read else 'rows counted'}"
            outcome.verdicts.append(ratio(case, passes[OURS], (name, passes[name]), CEILING))
    return outcome


def pread(setting: Setting) -> Outcome:
    """Against reading the bytes of uncompressed columns to memory that is used again."""
    path = floats(setting, "none")
    name = "pread, read"
    least = least_work_side(name, path, setting.num_threads, "pread")
    ours = side(torchparquet_route(setting.num_threads), path, None)
    passes = take_turns([ours, least], setting.repeats)
    return Outcome([ratio("none", passes[OURS], (name, passes[name]), PREAD)])


ROWS = (
    Row(
        "ceiling",
        "click log, batches of 8192",
        "the ceiling: pread and codec alone over the same pages, and each output byte stored once",
        ceiling,
    ),
    Row(
        "pread",
        "64 float32 columns, PLAIN, not nullable, uncompressed, whole row groups",
        "pread of the same bytes by as many threads into reused memory",
        pread,
    ),
)
