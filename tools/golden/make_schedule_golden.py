#!/usr/bin/env python3
"""Writes tests/data/optim/schedules.csv: learning rates of the schedulers in transformers.

Schedulers of transformers count steps from 0 (their first optimizer step has rate 0 under warm-up). Strata counts from 1,
so step s here is their lambda(s). Columns: curve, decay shape, lr, warm-up, horizon, floor, decay ratio,
step, rate. Run with torch and transformers installed; the file is committed.
"""

import csv
import pathlib

import torch
import transformers

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/data/optim/schedules.csv"


def rates(make, lr, steps):
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=lr)
    scheduler = make(optimizer)
    out = []
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
        out.append(scheduler.get_last_lr()[0])
    return out


def cases():
    for lr, warmup, steps, floor in [(1e-3, 10, 60, 0.1), (3e-4, 0, 37, 0.0), (2.5, 7, 50, 0.25)]:
        yield ("cosine", "linear", lr, warmup, steps, floor, 0.1,
               lambda o, w=warmup, n=steps, f=floor: transformers.get_cosine_with_min_lr_schedule_with_warmup(
                   o, w, n, min_lr_rate=f))
    for lr, warmup, steps in [(1e-3, 10, 60), (0.5, 0, 23)]:
        yield ("linear", "linear", lr, warmup, steps, 0.0, 0.1,
               lambda o, w=warmup, n=steps: transformers.get_linear_schedule_with_warmup(o, w, n))
        yield ("constant", "linear", lr, warmup, steps, 0.1, 0.1,
               lambda o, w=warmup: transformers.get_constant_schedule_with_warmup(o, w))
        yield ("inverse_sqrt", "linear", lr, warmup, steps, 0.0, 0.1,
               lambda o, w=warmup: transformers.get_inverse_sqrt_schedule(o, w))
    for shape, name in [("linear", "linear"), ("cosine", "cosine"), ("1-sqrt", "sqrt")]:
        # With a floor, transformers starts the warm-up of wsd at the floor; Strata starts every curve at lr/warmup.
        for warmup, steps, ratio, floor in [(10, 60, 0.2, 0.0), (0, 40, 0.5, 0.1)]:
            decay = round(steps * ratio)
            yield ("wsd", name, 1e-3, warmup, steps, floor, ratio,
                   lambda o, w=warmup, n=steps, d=decay, t=shape, f=floor: transformers.get_wsd_schedule(
                       o, w, d, num_stable_steps=n - w - d, min_lr_ratio=f, decay_type=t))


def main():
    OUT.parent.mkdir(parents=True, exist_ok=True)
    with OUT.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["kind", "decay", "lr", "warmup", "steps", "floor", "decay_ratio", "step", "rate"])
        for kind, decay, lr, warmup, steps, floor, ratio, make in cases():
            # Up to the horizon: after it Strata keeps the rate constant, unlike transformers.
            for index, rate in enumerate(rates(make, lr, steps)):
                writer.writerow([kind, decay, lr, warmup, steps, floor, ratio, index + 1, repr(rate)])


if __name__ == "__main__":
    main()
