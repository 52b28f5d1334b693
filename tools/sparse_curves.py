#!/usr/bin/env python3
"""sparse_curves.py RUNS OUT.svg: draws the runs of tools/sparse.sh.

Left: held-out loss by training tokens, of dense training and of sparse training after it with and without a warm-up of the
indexer. Right: the share of dense attention that the indexer's keys hold, by step of the warm-up. Prints the losses before
and after.
"""

import json
import pathlib
import sys

METRIC = "eval/held-out/loss"
TOKENS_PER_STEP = 8 * 512  # examples/sparse.toml
NAMES = {"dense": "dense", "sparse": "sparse after a warm-up", "cold": "sparse without one"}
COLOURS = {"dense": "#1f6fb4", "sparse": "#2c8a57", "cold": "#d4622a"}
WIDTH, HEIGHT, TOP, BOTTOM, LEFT, GAP, RIGHT = 960, 420, 56, 52, 64, 70, 24


def rows(folder):
    found = {}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        if "step" in row:
            found.setdefault(row["step"], {}).update(row)
    return [found[step] for step in sorted(found)]


def losses(folder, first):
    """[(tokens, loss)] of a run that began after `first` tokens."""
    return [(first + row["step"] * TOKENS_PER_STEP, row[METRIC]) for row in rows(folder) if METRIC in row]


class Panel:
    def __init__(self, out, left, width, x_range, y_range, title):
        self.out, self.left, self.width = out, left, width
        self.x_range, self.y_range = x_range, y_range
        bottom = HEIGHT - BOTTOM
        for i in range(5):
            y = y_range[0] + (y_range[1] - y_range[0]) * i / 4
            out.append(f'<line class="grid" x1="{left}" x2="{left + width}" y1="{self.y(y):.1f}" y2="{self.y(y):.1f}"/>')
            out.append(f'<text x="{left - 8}" y="{self.y(y) + 4:.1f}" text-anchor="end">{y:.3g}</text>')
            x = x_range[0] + (x_range[1] - x_range[0]) * i / 4
            out.append(f'<line class="axis" x1="{self.x(x):.1f}" x2="{self.x(x):.1f}" y1="{bottom}" y2="{bottom + 5}"/>')
            out.append(f'<text x="{self.x(x):.1f}" y="{bottom + 20}" text-anchor="middle">{x:,.0f}</text>')
        out.append(f'<line class="axis" x1="{left}" x2="{left + width}" y1="{bottom}" y2="{bottom}"/>')
        out.append(f'<text x="{left + width / 2}" y="{HEIGHT - 10}" text-anchor="middle">{title}</text>')

    def x(self, value):
        return self.left + self.width * (value - self.x_range[0]) / (self.x_range[1] - self.x_range[0])

    def y(self, value):
        low, high = self.y_range
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (value - low) / (high - low)

    def line(self, points, colour):
        text = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        self.out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{text}"/>')


def main():
    runs, target = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    dense = losses(runs / "dense", 0)
    curves = {"dense": dense}
    start = dense[-1][0]
    before = {"sparse": "warmup-final", "cold": "with-indexer"}
    after = {"sparse": "sparse-final", "cold": "cold-final"}
    loss_of = lambda name: json.loads((runs / f"{name}.json").read_text())["loss"]
    for name in ("sparse", "cold"):
        curves[name] = [(start, loss_of(before[name]))] + losses(runs / name, start)
    share = [(row["step"], row["indexer_share"]) for row in rows(runs / "warmup") if "indexer_share" in row]

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
           'font-family="sans-serif" font-size="13" fill="#333">',
           "<style>.grid{stroke:#ddd}.axis{stroke:#888}</style>", f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>']
    width = (WIDTH - LEFT - GAP - RIGHT) / 2
    every = [loss for points in curves.values() for _, loss in points]
    last = max(points[-1][0] for points in curves.values())
    left = Panel(out, LEFT, width, (0, 1e5 * -(-last // 1e5)), (min(every) - 0.1, max(every) + 0.1), "training tokens")
    for name, points in curves.items():
        left.line(points, COLOURS[name])
    right = Panel(out, LEFT + width + GAP, width, (0, 4 * -(-share[-1][0] // 4)), (0, 1), "step of the warm-up")
    right.line(share, COLOURS["sparse"])
    out.append(f'<text x="{LEFT}" y="20" font-weight="bold">Held-out loss (nats a token)</text>')
    out.append(f'<text x="{LEFT + width + GAP}" y="20" font-weight="bold">Share of attention of the 64 chosen keys of 512</text>')
    at = LEFT
    for name, points in curves.items():
        label = f"{NAMES[name]}: {points[-1][1]:.3f}"
        out.append(f'<line x1="{at}" x2="{at + 18}" y1="38" y2="38" stroke="{COLOURS[name]}" stroke-width="3"/>')
        out.append(f'<text x="{at + 22}" y="42">{label}</text>')
        at += 44 + 6.8 * len(label)
    target.write_text("\n".join(out + ["</svg>", ""]))

    print(f"dense: {dense[-1][1]:.4f}")
    for name in ("sparse", "cold"):
        print(f"{NAMES[name]}: {loss_of(before[name]):.4f} before, {loss_of(after[name]):.4f} after training")
    print(f"share of attention of the chosen keys: {share[0][1]:.3f} before, {share[-1][1]:.3f} after the warm-up")


if __name__ == "__main__":
    main()
