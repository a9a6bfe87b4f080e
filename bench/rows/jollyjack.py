"""64 float32 columns against JollyJack, which fills arrays that are used again."""

from __future__ import annotations

from generated.generated_files import floats
from passes.sides import CommandSide, take_turns
from report.verdicts import OURS, Outcome, Row, Setting, SkippedError, median, ratio, seconds
from routes.contenders import side, torchparquet_route
from routes.rival_environment import jollyjack_pass, rival_versions, rivals_python

TARGETS = {"none": 1.2, "lz4": 1.2, "snappy": 1.2, "zstd": 1.0}
_ROUTES = ("one array", "prefetch", "one per thread")


def measure(setting: Setting) -> Outcome:
    """Against the fastest of JollyJack's routes, in each codec."""
    versions = rival_versions(setting, ("jollyjack", "pyarrow"))
    if versions.get("jollyjack") is None:
        raise SkippedError("jollyjack is not installed")
    outcome = Outcome(versions={f"{name}, beside": v for name, v in versions.items() if v})
    for codec in setting.codecs:
        path = floats(setting, codec)
        command = jollyjack_pass(rivals_python(setting), path, setting.num_threads)
        sides = [CommandSide(route, [*command, route]) for route in _ROUTES]
        ours = side(torchparquet_route(setting.num_threads), path, None)
        passes = take_turns([ours, *sides], setting.repeats)
        name = min(_ROUTES, key=lambda route: median(passes[route], seconds))
        against = (f"JollyJack, {name}", passes[name])
        outcome.verdicts.append(ratio(codec, passes[OURS], against, TARGETS[codec]))
    return outcome


ROWS = (
    Row(
        "jollyjack",
        "64 float32 columns, PLAIN, not nullable, whole row groups",
        "JollyJack into reused arrays, the fastest of three routes",
        measure,
    ),
)
