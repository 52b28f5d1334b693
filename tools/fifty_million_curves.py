#!/usr/bin/env python3
"""fifty_million_curves.py RUNS OUT.svg: plots held-out losses of the runs in a folder, by step and by training FLOPs.

Reads RUNS/*/metrics.jsonl from tools/fifty-million.sh and prints the last loss of each run.
"""

import json
import math
import pathlib
import sys

METRIC = "eval/held-out/loss"
COLOURS = ["#1f6fb4", "#d4622a", "#2c8a57", "#8a4fa3", "#7a6a2f"]
WIDTH, HEIGHT, TOP, BOTTOM, LEFT, GAP, RIGHT = 960, 420, 56, 52, 64, 70, 24


def curve(folder):
    """[(step, cumulative FLOPs, loss)] of a run; if a step was repeated, the later line."""
    flops, points = 0.0, {}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        if "flops_per_s" in row:
            flops = row["flops_per_s"] * row["step_ms"] / 1e3  # per step; every step costs the same
        if METRIC in row:
            points[row["step"]] = row[METRIC]
    return [(step, step * flops, loss) for step, loss in sorted(points.items())]


def ticks(least, most, wanted=5):
    """Round numbers between `least` and `most`."""
    raw = (most - least) / wanted
    power = 10 ** math.floor(math.log10(raw))
    step = min((m * power for m in (1, 2, 2.5, 5, 10)), key=lambda s: abs(s - raw))
    first = math.ceil(least / step - 1e-9)
    return [i * step for i in range(first, math.floor(most / step + 1e-9) + 1)]


def panel(out, curves, left, width, column, title, text_of):
    most_x = max(points[-1][column] for points in curves.values())
    losses = [point[2] for points in curves.values() for point in points]
    low, high = math.floor(2 * min(losses)) / 2, math.ceil(2 * max(losses)) / 2
    x = lambda value: left + width * value / most_x
    y = lambda loss: HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (loss - low) / (high - low)
    for tick in ticks(low, high):
        out.append(f'<line class="grid" x1="{left}" x2="{left + width}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
        out.append(f'<text x="{left - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for tick in ticks(0, most_x, 4):
        out.append(f'<line class="axis" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 5}"/>')
        out.append(f'<text x="{x(tick):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{text_of(tick)}</text>')
    out.append(f'<line class="axis" x1="{left}" x2="{left + width}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}"/>')
    out.append(f'<text x="{left + width / 2}" y="{HEIGHT - 10}" text-anchor="middle">{title}</text>')
    for colour, points in zip(COLOURS, curves.values()):
        line = " ".join(f"{x(p[column]):.1f},{y(p[2]):.1f}" for p in points)
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{line}"/>')
        out.extend(f'<circle cx="{x(p[column]):.1f}" cy="{y(p[2]):.1f}" r="2.5" fill="{colour}"/>' for p in points)


def picture(curves):
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
           'font-family="sans-serif" font-size="13" fill="#333">',
           "<style>.grid{stroke:#ddd}.axis{stroke:#888}</style>",
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>']
    width = (WIDTH - LEFT - GAP - RIGHT) / 2
    panel(out, curves, LEFT, width, 0, "step", lambda tick: f"{tick:g}")
    panel(out, curves, LEFT + width + GAP, width, 1, "training FLOPs (10¹²)",
          lambda tick: f"{tick / 1e12:g}")
    out.append(f'<text x="{LEFT}" y="20" font-weight="bold">Held-out loss (nats a token)</text>')
    at = LEFT
    for colour, (name, points) in zip(COLOURS, curves.items()):
        label = f"{name}, at last {points[-1][2]:.3f}"
        out.append(f'<line x1="{at}" x2="{at + 22}" y1="38" y2="38" stroke="{colour}" stroke-width="3"/>')
        out.append(f'<text x="{at + 28}" y="42">{label}</text>')
        at += 60 + 7.2 * len(label)
    return "\n".join(out + ["</svg>", ""])


def main():
    runs, target = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    curves = {file.parent.name: curve(file.parent) for file in sorted(runs.glob("*/metrics.jsonl"))}
    curves = {name: points for name, points in curves.items() if len(points) > 1}
    if not curves:
        sys.exit(f"{runs}: no run has two or more evaluations of {METRIC}")
    target.write_text(picture(curves))
    for name, points in curves.items():
        step, flops, loss = points[-1]
        print(f"{name}: {loss:.4f} at step {step}, {flops:.3g} FLOPs")


if __name__ == "__main__":
    main()
