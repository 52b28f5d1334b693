#!/usr/bin/env python3
"""precision_gap.py RUNS OUT: writes OUT.csv and OUT.svg from the finished runs of tools/precision-gap.sh, and prints gaps.

A gap is the relative difference of the held-out loss to that of the bf16 run of the same model and seed.
"""

import csv
import datetime
import json
import pathlib
import statistics
import sys

METRIC = "eval/held-out/loss"
# The most that a recipe may cost, as a share of the loss; for block the mean over its seeds.
LIMITS = {"block": 0.0025, "nvfp4": 0.015, "fp16": 0.0025, "bf16_weights": 0.0025}
LIMIT_OF_8_BITS = 0.005
# bf16 itself, and controls that are expected to be worse.
PLAIN = ("bf16", "bf16_micro", "bf16_weights_nearest", "nvfp4_plain", "tensor_hopper")
WIDTH, ROW, TOP, LEFT, RIGHT = 760, 24, 64, 210, 30


def last_loss(folder):
    """(step, held-out loss) of the last evaluation."""
    found = None
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        if METRIC in row:
            found = row["step"], row[METRIC]
    return found


def read(runs):
    """{(model, recipe, seed): (step, loss)}"""
    losses = {}
    for mark in sorted(runs.glob("*/*/gap-finished")):
        recipe, seed = mark.parent.name.rsplit("-", 1)
        if (found := last_loss(mark.parent)) is not None:
            losses[mark.parent.parent.name, recipe, int(seed)] = found
    return losses


def gaps(losses):
    """{(model, recipe): [gap of each seed]} of all but bf16 itself."""
    found = {}
    for (model, recipe, seed), (_, loss) in sorted(losses.items()):
        plain = losses.get((model, "bf16", seed))
        if recipe != "bf16" and plain:
            found.setdefault((model, recipe), []).append(loss / plain[1] - 1)
    return found


def limit_of(recipe):
    return None if recipe in PLAIN else LIMITS.get(recipe, LIMIT_OF_8_BITS)


def picture(found):
    rows = list(found.items())
    most = max([abs(gap) for _, all_gaps in rows for gap in all_gaps] + [limit_of(recipe) or 0 for (_, recipe), _ in rows])
    most = 1.1 * (most or 0.001)
    height = TOP + ROW * len(rows) + 30
    x = lambda gap: LEFT + (WIDTH - LEFT - RIGHT) * (gap + most) / (2 * most)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
           'font-family="sans-serif" font-size="13" fill="#333">',
           f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
           '<text x="16" y="22" font-weight="bold">Held-out loss against bf16 (%)</text>',
           '<text x="16" y="42">points: seeds; red: the limit of the recipe, of the mean</text>',
           f'<line x1="{x(0):.1f}" x2="{x(0):.1f}" y1="{TOP - 10}" y2="{height - 24}" stroke="#888"/>']
    for tick in (-most / 1.1, 0, most / 1.1):
        out.append(f'<text x="{x(tick):.1f}" y="{height - 8}" text-anchor="middle">{100 * tick:.2f}</text>')
    for i, ((model, recipe), all_gaps) in enumerate(rows):
        y = TOP + ROW * i
        out.append(f'<text x="16" y="{y + 5}">{model}, {recipe}</text>')
        if (limit := limit_of(recipe)) is not None:
            out.append(f'<line x1="{x(limit):.1f}" x2="{x(limit):.1f}" y1="{y - 8}" y2="{y + 8}" stroke="#c0392b" stroke-width="2"/>')
        out.extend(f'<circle cx="{x(gap):.1f}" cy="{y}" r="4" fill="#1f6fb4"/>' for gap in all_gaps)
    return "\n".join(out + ["</svg>", ""])


def main():
    runs, target = pathlib.Path(sys.argv[1]), sys.argv[2]
    losses = read(runs)
    if not losses:
        print(f"{runs}: no run is finished")
        return
    today = datetime.date.today().isoformat()
    with open(target + ".csv", "w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["date", "model", "recipe", "seed", "steps", "held_out_loss", "gap_percent", "limit_percent"])
        for (model, recipe, seed), (step, loss) in sorted(losses.items()):
            plain, limit = losses.get((model, "bf16", seed)), limit_of(recipe)
            gap = f"{100 * (loss / plain[1] - 1):.4f}" if plain and recipe != "bf16" else ""
            table.writerow([today, model, recipe, seed, step, f"{loss:.6f}", gap, "" if limit is None else f"{100 * limit:g}"])
    for model in sorted({key[0] for key in losses}):
        seeds = [loss for (of, recipe, _), (_, loss) in losses.items() if of == model and recipe == "bf16"]
        if seeds:
            noise = f", standard deviation {100 * statistics.stdev(seeds) / statistics.mean(seeds):.2f} %" if len(seeds) > 1 else ""
            print(f"{model}, bf16: held-out loss {statistics.mean(seeds):.4f} ({len(seeds)} seeds{noise})")
    found = gaps(losses)
    for (model, recipe), all_gaps in found.items():
        mean, limit = statistics.mean(all_gaps), limit_of(recipe)
        verdict = "" if limit is None else f", limit {100 * limit:g} %: {'within' if mean <= limit else 'BEYOND'}"
        print(f"{model}, {recipe}: {100 * mean:+.3f} % ({len(all_gaps)} seeds){verdict}")
    if found:
        pathlib.Path(target + ".svg").write_text(picture(found))


if __name__ == "__main__":
    main()
