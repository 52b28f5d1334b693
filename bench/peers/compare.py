#!/usr/bin/env python3
"""Runs Strata and its peers interleaved and prints the ratios.

    bench/peers/compare.sh [--model llama3-29m] [--dtype bf16 fp32] [--peers compile compile-max eager llm.c]
                           [--rounds 3] [--steps 10] [--warmup 3] [--json FILE] [--ranks 2]

A round runs every contestant once, each in a separate process that has the whole machine. Ratios are taken within a
round, so that a change of the machine's speed does not affect them; the median over the rounds is printed with its range.
In bf16, compile-max also has bf16 weights and optimizer state, PyTorch's fastest mode. With LLMC_DIR set and --model
gpt2-124m, llm.c takes part.

With --ranks N the same batch is split over N ranks of one thread each: ours as threads and under mpirun, data parallel and
ZeRO-3, against PyTorch's DistributedDataParallel and fully_shard over gloo; the ratios are to the better of these.
"""

import argparse
import array
import json
import os
import pathlib
import platform
import random
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "peers"
STRATA = ROOT / "build" / "release" / "bin" / "strata"
SHAPES = {"llama3-5m": (4096, 8), "llama3-29m": (8192, 8), "gpt2-124m": (50257, 4)}  # vocabulary, batch
LENGTH = 512


def run(command, **keywords):
    """Runs a command. Returns its last line of output and its peak resident memory in MB."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **keywords)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"{' '.join(map(str, command))} failed with status {status}")
    return output.strip().splitlines()[-1], usage.ru_maxrss // 1024


def token_file(folder, vocabulary, count):
    """Random tokens, the same each time."""
    folder.mkdir(parents=True, exist_ok=True)
    tokens = folder / "tokens.bin"
    if not tokens.exists():
        draw = random.Random(1)
        array.array("H", (draw.randrange(vocabulary) for _ in range(count))).tofile(tokens.open("wb"))
    return tokens


def write_config(folder, model, tokens, batch, micro_batch, steps, dtype):
    """Writes a run's configuration, with the lines `model` in [model]. Returns its path and that of the run's metrics."""
    config = folder / "run.toml"
    config.write_text(f"""
[run]
folder = "{folder}/run"
[model]
{model}
[data]
train = ["{tokens}"]
pack = "stream"
[training]
sequence_length = {LENGTH}
micro_batch_size = {micro_batch}
global_batch_size = {batch}
steps = {steps}
[precision]
compute = "{dtype}"
[eval]
interval = "never"
""")
    shutil.rmtree(folder / "run", ignore_errors=True)
    return config, folder / "run" / "metrics.jsonl"


# Settings of mpirun: allow more ranks than processors, without binding, and do not read memory of other processes
# (containers forbid it).
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
       "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}


def timed_run(config, metrics, tokens, warmup, launcher=(), options=()):
    """Times a run with `tokens` per step: the median step after the warm-up, the end of the first step, peak memory."""
    begin = time.monotonic()
    log = open(WORK / "strata.log", "w")
    process = subprocess.Popen([*launcher, STRATA, "train", config, *options], stdout=log, stderr=log,
                               env=os.environ | MPI)
    first, ended = None, 0
    while not ended:  # the first step has ended when the metrics contain it
        if first is None and metrics.exists() and '"loss"' in metrics.read_text():
            first = time.monotonic() - begin
        ended, status, usage = os.wait4(process.pid, os.WNOHANG if first is None else 0)
        time.sleep(0.005)
    if status != 0:
        raise SystemExit("strata train failed:\n" + (WORK / "strata.log").read_text())
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    step_s = statistics.median(line["step_ms"] for line in lines if line.get("step", 0) > warmup and "loss" in line) / 1000
    return {"program": "strata", "step_s": step_s, "tokens_per_s": tokens / step_s, "first_step_s": first,
            "peak_rss_mb": usage.ru_maxrss // 1024, "mfu_measured": lines[-1].get("mfu_measured")}


def strata(model, dtype, steps, warmup, launcher=(), options=(), micro_batch=None):
    vocabulary, batch = SHAPES[model]
    folder = WORK / f"strata-{model}"
    tokens = token_file(folder, vocabulary, batch * LENGTH * 64)
    config, metrics = write_config(folder, f'preset = "{model}"', tokens, batch, micro_batch or batch, steps + warmup,
                                   dtype)
    return {"model": model, "dtype": dtype} | timed_run(config, metrics, batch * LENGTH, warmup, launcher, options)


def pytorch(model, dtype, mode, steps, warmup, options=()):
    line, _ = run([sys.executable, ROOT / "bench/peers/pytorch_peer.py", "--model", model, "--dtype", dtype,
                   "--mode", mode, "--steps", str(steps), "--warmup", str(warmup), *options])
    return json.loads(line)


def llmc(steps, warmup):
    line, memory = run([ROOT / "bench/peers/llmc_peer.sh", "--steps", str(steps), "--warmup", str(warmup)])
    return json.loads(line) | {"peak_rss_mb": memory}


def contestants_alone(args):
    contestants = {}
    for dtype in args.dtype:
        contestants[f"strata {dtype}"] = lambda d=dtype: strata(args.model, d, args.steps, args.warmup)
        for mode in [m for m in ["compile", "compile-max", "eager"] if m in args.peers]:
            own = "bf16-weights" if mode == "compile-max" and dtype == "bf16" else dtype
            contestants[f"pytorch {mode} {dtype}"] = lambda d=own, m=mode: pytorch(
                args.model, d, m, args.steps, args.warmup)
    if args.model == "gpt2-124m" and "llm.c" in args.peers and os.environ.get("LLMC_DIR"):
        contestants["llm.c fp32"] = lambda: llmc(max(1, args.steps // 4), min(1, args.warmup))
    return contestants


def contestants_on_ranks(args):
    contestants = {}
    ranks = str(args.ranks)
    _, batch = SHAPES[args.model]
    for dtype in args.dtype:
        for name, launcher, options in [
                ("data parallel", (), ("--ranks", ranks, "--set", "parallel.zero=0")),
                ("ZeRO-3", (), ("--ranks", ranks, "--set", "parallel.zero=3")),
                ("ZeRO-3 MPI", ("mpirun", "-n", ranks), ("--set", "parallel.zero=3"))]:
            contestants[f"strata {name} {dtype}"] = lambda d=dtype, l=launcher, o=options: strata(
                args.model, d, args.steps, args.warmup, l, (*o, "--set", "device.threads=1"), batch // args.ranks)
        for mode in [m for m in ["compile", "eager"] if m in args.peers]:
            for layout in ["ddp", "fsdp2"]:
                contestants[f"pytorch {layout} {mode} {dtype}"] = lambda d=dtype, m=mode, l=layout: pytorch(
                    args.model, d, m, args.steps, args.warmup, ("--layout", l, "--ranks", ranks, "--threads", "1"))
    return contestants


def print_ratios(contestants, rounds, dtypes):
    for dtype in dtypes:
        for name in contestants:
            if name.startswith("strata") or (name.split()[-1] != dtype and not name.startswith("llm.c")):
                continue
            ratios = [r[f"strata {dtype}"]["tokens_per_s"] / r[name]["tokens_per_s"] for r in rounds]
            print(f"strata {dtype} / {name:22} {statistics.median(ratios):5.2f}  ({min(ratios):.2f} to {max(ratios):.2f})")


def print_ratios_of_ranks(contestants, rounds, dtypes):
    """The ratio of each of ours to the best peer in the same round."""
    for dtype in dtypes:
        mine = [name for name in contestants if name.startswith("strata") and name.endswith(dtype)]
        peers = [name for name in contestants if name.startswith("pytorch") and name.endswith(dtype)]
        for name in mine:
            ratios = [r[name]["tokens_per_s"] / max(r[peer]["tokens_per_s"] for peer in peers) for r in rounds]
            print(f"{name:26} / best peer {statistics.median(ratios):5.2f}  ({min(ratios):.2f} to {max(ratios):.2f})")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=SHAPES, default="llama3-29m")
    parser.add_argument("--dtype", nargs="+", choices=["fp32", "bf16"], default=["bf16", "fp32"])
    peers = ["compile", "compile-max", "eager", "llm.c"]
    parser.add_argument("--peers", nargs="+", choices=peers, default=peers)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path, help="also writes every single result here")
    args = parser.parse_args()

    contestants = contestants_on_ranks(args) if args.ranks > 1 else contestants_alone(args)
    load = os.getloadavg()[0]
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} processors, load {load:.1f} before the start")
    if load > 0.5:
        print("The machine is not idle: only the ratios are meaningful, and they are imprecise.")
    rounds = []
    for number in range(args.rounds):
        results = {}
        for name, contest in contestants.items():
            results[name] = contest()
            memory, first = results[name].get("peak_rss_mb"), results[name].get("first_step_s")
            print(f"round {number + 1}  {name:26} {results[name]['tokens_per_s']:9.0f} tokens/s"
                  + (f"  first step {first:6.2f} s" if first else "") + (f"  {memory:6d} MB" if memory else ""), flush=True)
        rounds.append(results)
    if args.json:
        args.json.write_text(json.dumps(rounds, indent=1))
    (print_ratios_of_ranks if args.ranks > 1 else print_ratios)(contestants, rounds, args.dtype)


if __name__ == "__main__":
    main()
