"""JAX on any number of processes, each of which reads its share.

    python examples/clicks.py clicks
    python examples/jax_loop.py clicks checkpoint.json

For two processes on one machine, start both of these:

    python examples/jax_loop.py clicks checkpoint.json --coordinator localhost:9911 --process 0 2
    python examples/jax_loop.py clicks checkpoint.json --coordinator localhost:9911 --process 1 2

A run that was stopped goes on after its checkpoint when the same command is given again.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from clicks import DENSE
from torchparquet import Column, Order, ParquetDataset

Arrays = dict[str, jax.Array]
GLOBAL_BATCH, MOST_PROCESSES, SAVE_EVERY = 500, 4, 10


def ahead(
    dataset: ParquetDataset, put: Callable[[Any], Arrays], num_batches: int = 2
) -> Iterator[tuple[Arrays, dict[str, Any]]]:
    """Yield batches that were put on devices while earlier ones are worked on.

    Each comes with the state of the data set after it, since the data set itself is ahead.
    """
    queue: deque[tuple[Arrays, dict[str, Any]]] = deque()
    for batch in dataset:
        queue.append((put(batch), dataset.state_dict()))
        if len(queue) > num_batches:
            yield queue.popleft()
    yield from queue


def loss_of(weights: Arrays, batch: Arrays) -> jax.Array:
    """Return the mean loss over the rows of all processes."""
    logits = batch["dense"] @ weights["slope"] + weights["bias"]
    return jnp.mean(jnp.logaddexp(0, logits) - batch["label"] * logits)


@jax.jit
def step_of(weights: Arrays, batch: Arrays) -> tuple[Arrays, jax.Array]:
    """Return the weights after a step, and the loss before it."""
    loss, slopes = jax.value_and_grad(loss_of)(weights, batch)
    return jax.tree.map(lambda weight, slope: weight - 0.5 * slope, weights, slopes), loss


def train(arguments: Namespace) -> None:
    """Train two epochs, or what is left of them."""
    rows = NamedSharding(Mesh(jax.devices(), ("data",)), PartitionSpec("data"))
    dataset = ParquetDataset(
        arguments.data,
        batch_size=GLOBAL_BATCH // jax.process_count(),
        # JAX has no 64-bit numbers unless it is told to, and would cut them: read 32 bits.
        columns={"dense": DENSE, "label": Column("clicked", dtype="float32")},
        shuffle=True,
        drop_last=True,  # one shape for all steps, which is compiled once
        rank=jax.process_index(),
        world_size=jax.process_count(),
        order=Order(canonical_world_size=MOST_PROCESSES),
    )

    def put(batch: Any) -> Arrays:
        """Return the batch of all processes, of which this one gives its rows."""
        return {
            name: jax.make_array_from_process_local_data(rows, value.numpy())
            for name, value in batch.items()
        }

    weights = {"slope": jnp.zeros(len(DENSE)), "bias": jnp.zeros(())}
    number, checkpoint = 0, Path(arguments.checkpoint)
    if checkpoint.exists():
        saved = json.loads(checkpoint.read_text())
        weights = {name: jnp.asarray(saved[name]) for name in weights}
        number = saved["step"]
        dataset.load_state_dict(saved["data"])
    for _ in range(dataset.epoch, 2):
        for batch, state in ahead(dataset, put):
            weights, loss = step_of(weights, batch)
            number += 1
            if jax.process_index() == 0:
                print(json.dumps({"step": number, "loss": float(loss)}), flush=True)
                if number % SAVE_EVERY == 0:
                    values = {name: weight.tolist() for name, weight in weights.items()}
                    checkpoint.write_text(json.dumps(values | {"step": number, "data": state}))
            if number == arguments.stop_after:
                return


def main() -> None:
    """Be one process of the job."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("data", help="directory of the click log")
    parser.add_argument("checkpoint", help="a file of JSON")
    parser.add_argument("--coordinator", help="host and port of the first process")
    parser.add_argument("--process", type=int, nargs=2, metavar=("INDEX", "COUNT"))
    parser.add_argument("--stop-after", type=int, metavar="STEP")
    arguments = parser.parse_args()
    if arguments.coordinator:  # on TPUs and under Slurm, JAX finds all of these by itself
        index, count = arguments.process
        jax.distributed.initialize(arguments.coordinator, count, index)
    train(arguments)


if __name__ == "__main__":
    main()
