"""Draws docs/images/order.svg: how the row groups of four files become batches of two ranks.

python docs/draw_order.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import PlanOptions
from torchparquet._impl.plan.share import Share
from torchparquet._impl.sequences.delivered_rows import delivered_rows

TARGET = Path(__file__).parent / "images" / "order.svg"
# Rows of the row groups of each file.
FILES = ((6, 6, 6), (6, 3), (6, 6), (5, 4))
ROWS = np.array([rows for file in FILES for rows in file])
OPTIONS = PlanOptions(6, shuffle=True, seed=4, shuffle_window=2, world_size=2, drop_last=False)
COLOURS = ("#7aa6c2", "#4f7f9f", "#2f5f80", "#d9a26a", "#b8793b", "#9bbf85", "#6c9a55")
COLOURS += ("#c58fa8", "#a0607f")
CELL, GAP, LEFT, WIDTH = 14, 6, 150, 885


class Drawing:
    """Lines of SVG, one step of the way below the other."""

    def __init__(self) -> None:
        """Begin at the top."""
        self.lines: list[str] = []
        self.y = 16

    def label(self, text: str) -> None:
        """Write at the left of the present step."""
        self.lines.append(f'<text x="8" y="{self.y + 11}">{text}</text>')

    def cells(self, x: int, groups: list[int]) -> int:
        """Draw one cell for each row, in its row group's colour; return where they end."""
        for group in groups:
            self.lines.append(
                f'<rect x="{x}" y="{self.y}" width="{CELL}" height="{CELL}" '
                f'fill="{COLOURS[group]}"/>'
            )
            x += CELL
        return x

    def caption(self, x: int, text: str) -> None:
        """Write below cells that begin at `x`."""
        self.lines.append(f'<text x="{x}" y="{self.y + CELL + 12}" class="small">{text}</text>')

    def step(self, height: int) -> None:
        """Go down."""
        self.y += height

    def text(self) -> str:
        """Return the whole drawing."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.y}" '
            'role="img" aria-label="Row groups become batches">'
        )
        style = (
            "<style>text{font:15px sans-serif;fill:#555}.small{font-size:14px}"
            "rect{stroke:#fff}</style>"
        )
        return "\n".join([head, style, *self.lines, "</svg>", ""])


def order_drawing() -> str:
    """Return the drawing of one epoch, as the plan has it."""
    plan, drawing = EpochPlan(ROWS, OPTIONS), Drawing()
    drawing.label("files, row groups")
    x, group = LEFT, 0
    for number, file in enumerate(FILES):
        drawing.caption(x, f"part-{number}.parquet")
        for rows in file:
            x = drawing.cells(x, [group] * rows) + 2
            group += 1
        x += 2 * GAP
    drawing.step(58)
    drawing.label("order of the epoch")
    x = LEFT
    for position, group in enumerate(plan.order.tolist()):
        drawing.caption(x, f"rank {position % OPTIONS.world_size}")
        x = drawing.cells(x, [group] * int(ROWS[group])) + GAP
    drawing.step(58)
    for rank in range(OPTIONS.world_size):
        share = plan.share(rank)
        _draw_share(drawing, f"share of rank {rank}", share)
        _draw_batches(drawing, share)
    return drawing.text()


def _draw_share(drawing: Drawing, label: str, share: Share) -> None:
    drawing.label(label)
    x, chunk = LEFT, 0
    chunks, counts = share.in_windows()
    for count in counts.tolist():
        drawing.caption(x, "window" if count > 1 else "window of one")
        for place in range(chunk, chunk + count):
            x = drawing.cells(x, [int(chunks.row_group[place])] * int(chunks.num_rows[place])) + 2
        chunk += count
        x += 2 * GAP
    drawing.step(44)


def _draw_batches(drawing: Drawing, share: Share) -> None:
    drawing.label("its batches")
    groups = [int(group) for window in delivered_rows(share) for group in window.row_group]
    x = LEFT
    for step in range(share.num_steps):
        begin, end = share.rows_of_first(step), share.rows_of_first(step + 1)
        drawing.caption(x, f"step {step}")
        x = drawing.cells(x, groups[begin:end]) + 2 * GAP
    drawing.step(62)


if __name__ == "__main__":
    TARGET.write_text(order_drawing())
