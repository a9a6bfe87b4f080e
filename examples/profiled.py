"""A compiled model, and a trace that shows where its steps wait for data.

    python examples/clicks.py clicks
    python examples/profiled.py clicks trace.json

Open the trace in https://ui.perfetto.dev: waits are ranges named torchparquet.wait.
"""

from __future__ import annotations

import argparse

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from clicks import ClickModel, loss_of, open_clicks


def main() -> None:
    """Train one epoch, trace 20 of its steps, and say how long they waited."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", help="directory of the click log")
    parser.add_argument("trace", help="JSON file to write the trace to")
    arguments = parser.parse_args()
    # With batches of one size the model is compiled once.
    dataset = open_clicks(arguments.data, batch_size=256, drop_last=True)
    model = torch.compile(ClickModel())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with profile(
        activities=[ProfilerActivity.CPU],  # and CUDA
        schedule=schedule(wait=10, warmup=5, active=20, repeat=1),
        on_trace_ready=lambda profiler: report(profiler, arguments.trace),
    ) as profiler:
        for batch in dataset:
            with record_function("train"):
                loss = loss_of(model, batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            profiler.step()


def report(profiler: profile, trace: str) -> None:
    """Write the trace, and print how much of the steps was spent where."""
    profiler.export_chrome_trace(trace)
    for event in profiler.key_averages():
        if event.key in ("torchparquet.wait", "train"):
            print(f"{event.key}: {event.count} times, {event.cpu_time_total / 1000:.1f} ms in all")


if __name__ == "__main__":
    main()
