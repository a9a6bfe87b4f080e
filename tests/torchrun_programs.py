"""Run by torchrun: programs for it one after the other, so that torch is imported once."""

from __future__ import annotations

import json
import os
import runpy
import sys
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import torch.distributed as dist

from torchparquet.reading.interpreter_exit import end_rank

HERE = Path(__file__).parent


def main() -> NoReturn:
    """Run the programs of `sys.argv[1]`, JSON: a list of names with their arguments."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    host = os.environ["MASTER_ADDR"]
    agent = dist.TCPStore(host, int(os.environ["MASTER_PORT"]), is_master=False)
    servers = []
    for number, command in enumerate(json.loads(sys.argv[1])):
        # Each has a store of its own, where no key of an earlier one's group stands.
        if rank == 0:
            servers.append(dist.TCPStore(host, 0, is_master=True, wait_for_workers=False))
            agent.set(f"port {number}", str(servers[-1].port))
        os.environ["MASTER_PORT"] = agent.get(f"port {number}").decode()
        sys.argv = command
        print(f"rank {rank} runs {command[0]}", flush=True)
        runpy.run_path(str(HERE / command[0]), run_name="__main__")
    agent.set(f"done {rank}", "")
    if rank == 0:
        agent.wait([f"done {other}" for other in range(world_size)], timedelta(seconds=60))
    # What becomes of datasets as the interpreter exits has tests of its own.
    end_rank()


if __name__ == "__main__":
    main()
