"""Steps of equal cost, row by row: which rows of which costs each share delivers, in what order.

A slow reference in lists of Python. It knows the rules, and shares nothing with the plan.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np

from tests.oracles.plan_oracle import ceil_div, flat, philox, reference, shuffled
from tests.oracles.window_oracle import GOLDEN, MASK64, mix, permuted


def quantized(costs: Any) -> Any:
    """Return costs by row group in whole numbers, of which the largest is 2**32 - 1."""
    most = float(np.float32(max(map(max, filter(None, costs)))))
    scale = (2**32 - 1) / most
    return [[int(np.rint(float(np.float32(cost)) * scale)) for cost in of] for of in costs]


def slot_size(row_group_rows: Any, options: Any) -> int:
    batch = options.batch_size
    rows = sum(sorted(row_group_rows)[-options.shuffle_window :])
    return int(max(rows // batch * batch, batch))


def dealt_in_turns(order: Any, costs: Any, num_shares: int, size: int) -> Any:
    """Return the order with row groups moved within blocks; `len(costs)` stands for none."""
    rows = {group: len(costs[group]) for group in order}
    mean = float(sum(map(sum, costs))) / sum(rows.values())
    excess = {group: float(sum(costs[group])) - rows[group] * mean for group in order}
    hole = len(costs)
    block = max(1, round(size * len(order) / sum(rows.values()))) * num_shares
    found: list[int] = []
    for begin in range(0, len(order), block):
        own = order[begin : begin + block]
        by_cost = sorted(own, key=lambda group: -excess[group])
        at_of = {group: at for at, group in enumerate(own)}
        place = {
            group: number + 2 * num_shares * (at_of[group] / len(own))
            for number, group in enumerate(by_cost)
        }
        own.sort(key=place.__getitem__)
        totals, turns = [0.0] * num_shares, []
        for at in range(0, len(own), num_shares):
            turn = [hole] * num_shares
            by_total = sorted(range(num_shares), key=totals.__getitem__)
            costliest = sorted(own[at : at + num_shares], key=lambda group: -excess[group])
            for share, group in zip(by_total, costliest, strict=False):
                turn[share] = group
                totals[share] += excess[group]
            turns.append(turn)
        full = [turn for turn in turns if hole not in turn]
        swap(full, totals, excess)
        if full:
            shares = sorted(range(num_shares), key=lambda share: at_of[full[0][share]])
            turns = [[turn[share] for share in shares] for turn in turns]
            full = sorted(turns[: len(full)], key=lambda turn: at_of[turn[0]])
            turns[: len(full)] = full
        found += [group for turn in turns for group in turn]
    return found


def swap(turns: Any, totals: list[float], excess: Any) -> None:
    """Swap row groups of the costliest share and the cheapest one, and of those between."""
    for _ in range(16):
        by_total = sorted(range(len(totals)), key=lambda share: -totals[share])
        num_better = 0
        for most, least in zip(by_total[: len(by_total) // 2], by_total[::-1], strict=False):
            wanted = (totals[most] - totals[least]) / 2
            choices = [
                (abs(excess[given[most]] - excess[taken[least]] - wanted), number, other)
                for number, given in enumerate(turns)
                for other, taken in enumerate(turns)
            ]
            if not choices or min(choices)[0] >= wanted:
                continue
            _, number, other = min(choices)
            given, taken = turns[number], turns[other]
            amount = excess[given[most]] - excess[taken[least]]
            given[most], taken[least] = taken[least], given[most]
            totals[most] -= amount
            totals[least] += amount
            num_better += 1
        if not num_better:
            return


def level_of(leading: Any, total: float) -> tuple[int, float]:
    for kept in range(len(leading)):
        level = (total - sum(leading[:kept])) / (len(leading) - kept)
        if leading[kept] <= level:
            return kept, level
    return len(leading), 0.0


def even_costs(parts: Any, num_steps: int, batch: int) -> list[float]:
    """Return costs that are even, but where a row of some part with cheap ones costs more."""
    tops = [sorted(part, reverse=True)[:num_steps] for part in parts]
    leading = [float(max(column)) for column in zip(*tops, strict=True)]
    total = float(sum(map(sum, parts))) / len(parts)
    num_led, _ = level_of(leading, total)
    beside = sum(sum(sorted(part)[: num_led * (batch - 1)]) for part in parts)
    least = [cost + float(beside) / len(parts) / max(num_led, 1) for cost in leading]
    _, level = level_of(least, total)
    return [max(cost, level) for cost in least]


def dealt_into_steps(costs: Any, targets: Any, batch: int, key: int) -> list[int]:
    """Return the places of rows in the order in which a window delivers them."""
    count = len(costs)
    num_steps = ceil_div(count, batch)
    turns = np.argsort(permuted(key, num_steps - 1)).tolist() if num_steps > 1 else []
    turns.append(num_steps - 1)
    if batch == 1:
        by_cost = sorted(range(count), key=lambda row: -costs[row])
        return [by_cost[turn] for turn in turns]
    if targets is None or len(targets) != num_steps:
        targets = even_costs([costs], num_steps, batch)
    draws = np.argsort(permuted((key + 1) & MASK64, count)).tolist()
    noisy = [cost * (1 + draw * (1 / 16 / count)) for cost, draw in zip(costs, draws, strict=True)]
    room = [batch] * (num_steps - 1) + [count - (num_steps - 1) * batch]
    targets = [target * (size / batch) for target, size in zip(targets, room, strict=True)]
    scale = float(sum(costs)) / max(float(np.sum(targets)), 1.0)
    lacking = [-target * scale for target in targets]
    steps: list[list[int]] = [[] for _ in targets]
    for row in sorted(range(count), key=lambda row: -noisy[row]):
        open_steps = [step for step in range(num_steps) if len(steps[step]) < room[step]]
        step = min(open_steps, key=lambda step: (lacking[step], step))
        steps[step].append(row)
        lacking[step] += costs[row]
    return [row for turn in turns for row in sorted(steps[turn])]


def expected_shares(costs: Any, options: Any) -> Any:
    """Return the rows of each share, (row group, row, valid), in the order of delivery.

    `costs` are those of the rows by row group, in whole numbers.
    """
    row_group_rows = [len(of) for of in costs]
    num_shares, batch = options.world_size * options.num_workers, options.batch_size
    size = slot_size(row_group_rows, options)
    order = dealt_in_turns(shuffled(len(costs), options), costs, num_shares, size)
    shares = [flat(chunks) for chunks in reference([*row_group_rows, 0], order, options)]
    (base,) = philox(options, [0, 0, 1, 1], 1)
    delivered: Any = [[] for _ in shares]
    for slot in range(ceil_div(max(map(len, shares)), size)):
        parts = [share[slot * size : (slot + 1) * size] for share in shares]
        of_part = [[costs[group][row] for group, row, _ in part] for part in parts]
        most = max(ceil_div(len(part), batch) for part in parts)
        full = [of for of in of_part if ceil_div(len(of), batch) == most]
        targets = even_costs(full, most, batch)
        key = mix((base + (slot + 1) * GOLDEN) & MASK64)
        for rows, part in zip(delivered, parts, strict=True):
            runs = [list(run) for _, run in groupby(part, lambda row: row[2])]
            for run in runs:
                own = [costs[group][row] for group, row, _ in run]
                wanted = targets if len(runs) == 1 else None
                rows += [run[place] for place in dealt_into_steps(own, wanted, batch, key)]
    return delivered
