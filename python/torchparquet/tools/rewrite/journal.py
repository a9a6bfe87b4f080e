"""A note in the output directory, so that an interrupted rewrite resumes, and no other does."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from torchparquet.errors import one_line
from torchparquet.tools.rewrite.options import Layout
from torchparquet.tools.rewrite.output_place import OutputPlace

JOURNAL = "_rewrite.json"
_FORMAT = 1


def begun_layout(output: OutputPlace, request: dict[str, Any]) -> Layout | None:
    """Return the layout of the rewrite begun in the directory; None if none was begun."""
    text = output.read_text(JOURNAL)
    if text is None:
        others = output.names()
        if others and others != [JOURNAL + ".tmp"]:
            raise ValueError(
                f"--output must be a directory that is empty or of the same rewrite, "
                f"{output.shown!r} holds {others[0]!r}"
            )
        return None
    journal = _read(f"{output.shown}/{JOURNAL}", text)
    begun = journal["request"]
    differing = [key for key in request if begun.get(key) != request[key]]
    if differing:
        key = differing[0]
        what = (
            "of other input files, or they have changed"
            if key == "fingerprint"
            else f"with {key}={begun.get(key)!r}, not {request[key]!r}"
        )
        raise ValueError(f"{output.shown!r} holds a rewrite {what}; take another --output")
    layout = journal["layout"]
    return Layout(
        **{**layout, "encodings": tuple(layout["encodings"]), "codecs": tuple(layout["codecs"])}
    )


def _read(path: str, text: str) -> dict[str, Any]:
    try:
        journal = json.loads(text)
        version = journal.get("format")
    except (ValueError, AttributeError) as error:
        raise ValueError(
            f"{path!r}, the note of a rewrite, is damaged ({one_line(error)}); take "
            "another --output, or empty this one"
        ) from None
    if version != _FORMAT:
        raise ValueError(f"{path!r} was written by another version of torchparquet")
    return dict(journal)


def begin(output: OutputPlace, request: dict[str, Any], layout: Layout) -> None:
    """Write the note of a new rewrite."""
    journal = {"format": _FORMAT, "request": request, "layout": asdict(layout)}
    output.write_text(JOURNAL, json.dumps(journal, indent=2))
