#!/usr/bin/env python3
"""Kills ranks of launched runs at random, and measures what that costs.

    tools/launch-trials.py kills [--kills 1000] [--minutes 20]   SIGKILLs over 1 to 4 ranks; the result has the same bits
    tools/launch-trials.py recovery [--kills 20]                 llama3-29m on 4 ranks: from the kill to the end of the first new step
    tools/launch-trials.py lost [--kills 200] [--minutes 40]     1 - ETTR against a Monte Carlo and the closed formula
    tools/launch-trials.py table                                 the results as Markdown

Needs build/release/bin/strata with its MPI module. It can be stopped at any time and continues where it stopped; results are in
build/launch-trials, one file for each state of the sources, with the folders of runs that failed. The seed is fixed; times are the machine's.
"""

import argparse
import hashlib
import json
import math
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
STRATA = ROOT / "build/release/bin/strata"
TINY = """[model]
family = "llama3"
vocab_size = 300
hidden_size = 64
intermediate_size = 128
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
max_position_embeddings = 128
[data]
train = ["text.txt"]
[training]
sequence_length = 64
global_batch_size = 12
micro_batch_size = 1
[device]
threads = 1
[log]
layers = "never"
"""


def lines_of(path):
    if not path.exists():
        return []
    out = []
    for line in path.read_text().splitlines():
        try:
            out.append(json.loads(line))
        except json.JSONDecodeError:
            pass  # a line that is being written
    return out


def last_step(run):
    """The newest step in metrics.jsonl, by its end only."""
    path = run / "metrics.jsonl"
    if not path.exists():
        return 0
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 8192))
        for line in reversed(file.read().split(b"\n")):
            try:
                step = json.loads(line).get("step")
            except json.JSONDecodeError:
                continue
            if step:
                return step
    return 0


def ranks_of(run):
    """Processes that train in this folder, but for launchers."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if len(words) > 2 and words[0].endswith(b"strata") and words[1] == b"train" and any(os.fsencode(run) in w for w in words):
            found.append(int(entry.name))
    return found


def digest(run):
    out = hashlib.sha256()
    newest = run / "checkpoints" / (run / "checkpoints/latest").read_text().strip()
    for file in sorted(newest.glob("*.safetensors")):
        out.update(file.read_bytes())
    return out.hexdigest()


class Trial:
    def __init__(self, folder, sets, ranks):
        self.folder, self.ranks = folder, ranks
        self.run = folder / "run"
        self.sets = [f'run.folder="{self.run}"', *sets]

    def start(self, launched=True):
        sets = [word for one in self.sets for word in ("--set", one)]
        verb = ["launch", "-n", str(self.ranks), "--max-restarts", "100000"] if launched else ["train", "--ranks", str(self.ranks)]
        log = open(self.folder / f"{verb[0]}.log", "ab")
        env = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                            "OMPI_MCA_rmaps_base_oversubscribe": "1"}
        return subprocess.Popen([str(STRATA), *verb, "run.toml", *sets], cwd=self.folder, env=env, stdout=log, stderr=log)

    def kill_one(self, choose, pause, steps=1):
        """SIGKILLs a rank some time after new steps; the time of the kill, or None if the run ended before."""
        before = last_step(self.run)
        while self.process.poll() is None and last_step(self.run) < before + steps:
            time.sleep(0.02)
        time.sleep(pause)
        ranks = ranks_of(self.run)
        if self.process.poll() is not None or not ranks:
            return None
        try:
            os.kill(choose.choice(ranks), signal.SIGKILL)
        except ProcessLookupError:
            return None
        return time.time()


def prepare(folder, text, more=""):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "run.toml").write_text(text + more)
    words = random.Random(3)
    (folder / "text.txt").write_text(" ".join(words.choice(("red", "green", "blue", "one", "two", "three", "sun", "moon")) for _ in range(60000)))
    return folder


def results(name):
    tree = subprocess.run([ROOT / "tools/source-id.sh"], capture_output=True, text=True, check=True).stdout.strip()
    path = ROOT / "build/launch-trials" / tree / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def record(path, line):
    with open(path, "a") as file:
        file.write(json.dumps(line) + "\n")


def kills(options):
    path = results("kills")
    end = time.time() + 60 * options.minutes
    done = lines_of(path)
    made = sum(line["kills"] for line in done)
    while made < options.kills and time.time() < end:
        number = len(done)
        choose = random.Random(1000 + number)
        ranks = 1 + number % 4
        layouts = {1: [""], 2: ["replicate = 2", "shard = 2\nzero = 1"], 3: ["shard = 3\nzero = 3"], 4: ["shard = 2\nzero = 2\ntensor = 2", "replicate = 4"]}
        layout = choose.choice(layouts[ranks])
        steps = 1500
        # Without rules: after a resume there is one snapshot only, so a rollback may go elsewhere than in the clean run.
        sets = [f"training.steps={steps}", 'checkpoint.interval="200 steps"', 'recovery.copies="5 steps"', 'recovery.rules="none"']
        folder = prepare(ROOT / "build/launch-trials/work", TINY, f"[parallel]\n{layout}\n")
        clean = Trial(folder, sets, ranks)
        clean.run = folder / "clean"
        clean.sets[0] = f'run.folder="{clean.run}"'
        if clean.start(launched=False).wait() != 0:
            sys.exit(f"the clean run failed: {folder}/train.log")
        trial = Trial(folder, sets, ranks)
        trial.process = trial.start()
        killed = 0
        while trial.process.poll() is None and time.time() < end + 120:
            # Every other time after a new copy: three attempts without one would end the run.
            if killed < 25 and trial.kill_one(choose, choose.random() * 0.4, steps=1 if killed % 2 else 8):
                killed += 1
            elif killed >= 25:
                time.sleep(0.1)
        code = trial.process.wait()
        ledger = lines_of(trial.run / "ledger.jsonl")
        metrics = [line["step"] for line in lines_of(trial.run / "metrics.jsonl") if "step" in line and "event" not in line]
        line = {"ranks": ranks, "layout": layout, "kills": killed, "exit": code,
                "same_bits": code == 0 and digest(trial.run) == digest(clean.run),
                "all_steps": metrics == list(range(1, steps + 1)),
                "from": {name: sum(1 for one in ledger if one.get("from") == name) for name in ("start", "copies", "disk")},
                "most_lost": max((one.get("lost_steps") or 0 for one in ledger), default=0)}
        if not (line["same_bits"] and line["all_steps"]):
            line["kept"] = str(path.parent / f"failed-{number}")
            shutil.rmtree(line["kept"], ignore_errors=True)
            shutil.move(folder, line["kept"])
        record(path, line)
        print(line, flush=True)
        done.append(line)
        made += killed
    print(f"{made} of {options.kills} kills")
    return all(line["same_bits"] and line["all_steps"] for line in done)


def recovery(options):
    path = results("recovery")
    folder = prepare(ROOT / "build/launch-trials/work29", (ROOT / "examples/llama3-29m.toml").read_text())
    sets = ['data.train=["text.txt"]', "data.valid=[]", "training.steps=1000000", "training.global_batch_size=4", "training.micro_batch_size=1",
            "device.threads=1", 'recovery.copies="2 steps"', 'checkpoint.interval="10min"', 'eval.interval="never"', "eval.sample_prompts=[]",
            "parallel.shard=4", "parallel.zero=1"]
    trial = Trial(folder, sets, 4)
    trial.process = trial.start()
    choose = random.Random(5)
    killed = 0
    while killed < options.kills and trial.process.poll() is None:
        if trial.kill_one(choose, choose.random() * 2):
            killed += 1
    before = last_step(trial.run)
    while trial.process.poll() is None and last_step(trial.run) <= before:
        time.sleep(0.05)
    trial.process.send_signal(signal.SIGINT)
    trial.process.wait()
    ledger = lines_of(trial.run / "ledger.jsonl")
    seconds = [one["recovery_s"] for one in ledger if one.get("recovery_s") is not None]
    step_ms = [line["step_ms"] for line in lines_of(trial.run / "metrics.jsonl") if "step_ms" in line]
    line = {"kills": killed, "recovery_s": seconds, "median_s": statistics.median(seconds), "step_s": statistics.median(step_ms) / 1e3,
            "load": os.getloadavg()[0], "from": [one.get("from") for one in ledger]}
    record(path, line)
    print(line)
    return True


def simulate(rng, steps, step_s, mtbf, copy_every, copy_s, restart_s):
    """Share of time lost by a run that fails at random: a Monte Carlo with the costs that were measured."""
    now, step, kept = 0.0, 0, 0
    fails = rng.uniform(*mtbf)
    while step < steps:
        ends = now + step_s + (copy_s if (step + 1) % copy_every == 0 else 0)
        if ends < fails:
            now, step = ends, step + 1
            if step % copy_every == 0:
                kept = step
            continue
        now = fails + restart_s
        step = kept
        fails = now + rng.uniform(*mtbf)
    return 1 - steps * step_s / now


def lost(options):
    path = results("lost")
    end = time.time() + 60 * options.minutes
    folder = prepare(ROOT / "build/launch-trials/worklost", TINY)
    every = 20
    sets = ["training.steps=100000000", 'checkpoint.interval="10min"', f'recovery.copies="{every} steps"', "parallel.replicate=2",
            'recovery.rules="none"', "optimizer.lr=1e-5", 'eval.interval="never"']
    trial = Trial(folder, sets, 2)
    trial.process = trial.start()
    choose = random.Random(11)
    between = (8.0, 15.0)
    killed = 0
    while killed < options.kills and time.time() < end:
        before = last_step(trial.run)
        while last_step(trial.run) <= before and trial.process.poll() is None:
            time.sleep(0.02)
        if trial.process.poll() is not None:
            sys.exit(f"the run has ended: {folder}/launch.log")
        time.sleep(choose.uniform(*between))
        ranks = ranks_of(trial.run)
        if ranks:
            os.kill(choose.choice(ranks), signal.SIGKILL)
            killed += 1
    trial.process.send_signal(signal.SIGINT)
    trial.process.wait()
    line = lost_time(trial.run, every, between)
    record(path, line)
    print(line)
    return math.isclose(line["lost"], line["monte_carlo"], rel_tol=0.2)


def lost_time(run, every, between):
    """What a run has lost by its files, and by the models with its own costs."""
    ledger = lines_of(run / "ledger.jsonl")
    metrics = [line for line in lines_of(run / "metrics.jsonl") if "step_ms" in line]
    steps = len(metrics)
    copy_s = statistics.mean(line.get("copy_ms", 0) or 0 for line in metrics) * every / 1e3
    restart_s = statistics.mean(one["recovery_s"] for one in ledger if one.get("recovery_s") is not None)
    # Between the ends of two steps of one attempt: with what the loop does between them, and without copies.
    starts = {one["from_step"] for one in ledger}
    times = [b["time"] - a["time"] for a, b in zip(metrics, metrics[1:]) if a["step"] not in starts]
    step_s = statistics.mean(times) - copy_s / every
    killed = sum(one["exit"] == 137 for one in ledger)
    measured = 1 - steps * step_s / (ledger[-1]["ended"] - ledger[0]["began"])
    rng = random.Random(13)
    modelled = statistics.mean(simulate(rng, steps, step_s, between, every, copy_s, restart_s) for _ in range(20))
    mean = sum(between) / 2
    formula = 1 - (1 - (restart_s + every * step_s / 2) / (mean + restart_s)) / (1 + copy_s / (every * step_s))
    return {"kills": killed, "steps": steps, "step_s": step_s, "copy_s": copy_s, "restart_s": restart_s, "lost": measured,
            "monte_carlo": modelled, "formula": formula, "load": os.getloadavg()[0]}


def table(_):
    done = lines_of(results("kills"))
    print("| ranks | runs | kills | same bits | from copies | from disk | most steps lost |\n| --- | --- | --- | --- | --- | --- | --- |")
    for ranks in range(1, 5):
        own = [line for line in done if line["ranks"] == ranks]
        print(f"| {ranks} | {len(own)} | {sum(line['kills'] for line in own)} | {sum(line['same_bits'] for line in own)} | "
              f"{sum(line['from']['copies'] for line in own)} | {sum(line['from']['disk'] for line in own)} | "
              f"{max((line['most_lost'] for line in own), default=0)} |")
    for name in ("recovery", "lost"):
        for line in lines_of(results(name)):
            print(f"{name}: {json.dumps(line)}")
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"kills": (kills, 1000, 20), "recovery": (recovery, 20, 20), "lost": (lost, 200, 40), "table": (table, 0, 0)}
    parser.add_argument("part", choices=parts)
    parser.add_argument("--kills", type=int)
    parser.add_argument("--minutes", type=float)
    options = parser.parse_args()
    run, count, minutes = parts[options.part]
    options.kills = options.kills if options.kills is not None else count
    options.minutes = options.minutes if options.minutes is not None else minutes
    return 0 if run(options) else 1


if __name__ == "__main__":
    sys.exit(main())
