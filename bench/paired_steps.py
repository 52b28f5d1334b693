#!/usr/bin/env python3
"""Step times of two builds of the program, interleaved on the same machine.

    bench/paired_steps.py BEFORE AFTER [--turns 8] [--steps 8] [--case llama3 moe ranks …] [--json FILE]

A turn trains each case with both programs in sequence, in alternating order. The figure of a run is its fastest step after
the first two in metrics.jsonl (other load can only make steps slower). Prints for each case the geometric mean of the ratios
AFTER / BEFORE, and its 95 % interval by Student's t over the turns.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

MOE = ["model.preset=qwen3-30b-a3b"] + [f"model.override.{key}={value}" for key, value in {
    "head_dim": 32, "hidden_size": 256, "intermediate_size": 512, "moe_intermediate_size": 128,
    "num_attention_heads": 8, "num_experts": 16, "num_experts_per_tok": 4, "num_hidden_layers": 4,
    "num_key_value_heads": 4, "vocab_size": 2048}.items()]
LLAMA = ["model.preset=llama3-29m"]
SMALL = ["model.preset=llama3-5m"]
MOE_30M = ["model.preset=moe-30m-a10m", "training.sequence_length=256", "training.global_batch_size=8",
           "training.micro_batch_size=2"]
CASES = {  # key=value; ranks=N becomes an option
    "llama3": LLAMA + ["training.sequence_length=512", "training.global_batch_size=2", "training.micro_batch_size=2"],
    "moe": MOE + ["training.sequence_length=512", "training.global_batch_size=4", "training.micro_batch_size=4"],
    "ranks": SMALL + ["training.sequence_length=512", "training.global_batch_size=4", "training.micro_batch_size=2",
                      "parallel.zero=3", "ranks=2"],
    "experts": MOE_30M,
    "experts_on_two": MOE_30M + ["parallel.expert=2", "ranks=2"],
    "experts_on_four": MOE_30M + ["parallel.expert=4", "ranks=4"],
    "pipeline": SMALL + ["training.sequence_length=256", "training.global_batch_size=8", "training.micro_batch_size=2",
                         "parallel.pipeline=2", "ranks=2"],
}
# Two-sided 95 % points of Student's t, by degrees of freedom.
T95 = [math.inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
       2.131, 2.120, 2.110, 2.101, 2.093, 2.086]


def step_seconds(program, folder, words, steps):
    command = [program, "train", str(folder.parent / "text.txt"), "--set", f'run.folder="{folder}"',
               "--set", f"training.steps={steps}", "--set", 'eval.interval="never"',
               "--set", 'checkpoint.interval="never"', "--set", 'precision.compute="fp32"',
               "--set", "tokenizer.train.vocab_size=2000"]
    for word in words:
        key, value = word.split("=", 1)
        quoted = f'{key}="{value}"' if key == "model.preset" else word
        command += ["--ranks", value] if key == "ranks" else ["--set", quoted]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    seconds = [row["step_ms"] / 1e3 for row in map(json.loads, lines) if "step_ms" in row]
    return min(seconds[2:])


def interval(ratios):
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return math.exp(mean), 0, math.inf
    half = T95[min(len(logs) - 1, len(T95) - 1)] * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--json")
    options = parser.parse_args()
    text = "".join(path.read_text() for path in sorted(pathlib.Path("docs").glob("*.md")))
    found = {}
    for name in options.case:
        pairs = []
        for turn in range(options.turns):
            with tempfile.TemporaryDirectory() as scratch:
                scratch = pathlib.Path(scratch)
                (scratch / "text.txt").write_text(text)
                sides = [("before", options.before), ("after", options.after)]
                seconds = {side: step_seconds(program, scratch / side, CASES[name], options.steps)
                           for side, program in (sides if turn % 2 == 0 else sides[::-1])}
            pairs.append((seconds["before"], seconds["after"]))
        mean, low, high = interval([after / before for before, after in pairs])
        milliseconds = [1e3 * statistics.median(side) for side in zip(*pairs)]
        found[name] = {"ratio": mean, "low": low, "high": high, "turns": len(pairs), "milliseconds": milliseconds}
        print(f"{name:9} {mean:.3f} [{low:.3f}, {high:.3f}]  {milliseconds[0]:.1f} -> {milliseconds[1]:.1f} ms per step",
              flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
