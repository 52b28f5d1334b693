#!/usr/bin/env python3
"""tools/gpu-table.py BUILD: measures every GPU kernel and writes docs/gpu_kernels.csv.

Of machine code for each architecture: registers, spills and occupancy, by ptxas of the nvcc in PATH or CUDA_HOME. Of
runs on the twin of the driver: threads and shared memory of a block, sectors of global memory and passes of shared
memory, each to the least (tests/gpu/ptx/traffic.h). The runs are steps of models whose sizes fill tiles ("steps"); of
kernels that those do not start, the cases of all ops in `strata doctor --self-test`, whose sizes are small and odd
("cases"). BUILD is a build folder with the program, the GPU module, the twin and the PTX of src/kernels/gpu. Kernels that
nothing started have empty columns of moved data; their occupancy is that of their largest block. Takes about ten minutes.
"""
import csv
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "gpu_kernels.csv"
# Of a multiprocessor: shared memory in KiB (CUDA C++ Programming Guide, "Compute Capabilities"). All have 65,536 registers,
# 64 warps and 32 blocks.
ARCHITECTURES = {"80": 164, "90a": 228, "100a": 228}

# Models of sizes that fill tiles, with what selects kernels: heads, norms, activations, optimizers, losses.
LLAMA = {"num_hidden_layers": 1, "vocab_size": 512, "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 2,
         "num_key_value_heads": 1, "head_dim": 64, "max_position_embeddings": 128}
WIDE = {**LLAMA, "hidden_size": 256, "head_dim": 128}
GPT2 = {"n_layer": 1, "vocab_size": 512, "n_embd": 128, "n_head": 2, "n_positions": 128}
# Preset, its sizes, precision.compute, other keys.
RUNS = [
    ("llama3-5m", LLAMA, "bf16", []),
    ("llama3-5m", LLAMA, "fp32", []),
    ("llama3-5m", WIDE, "bf16", ['optimizer.name="muon"']),
    ("gpt2-124m", GPT2, "bf16", ['optimizer.name="lion"']),
    ("gpt2-124m", GPT2, "fp32", ['optimizer.name="adafactor"']),
    ("qwen3-0.6b", LLAMA, "bf16", ['optimizer.name="adamw8bit"']),
    ("qwen3-0.6b", LLAMA, "fp32", ['optimizer.name="adopt"']),
    ("gemma2-2b", {**LLAMA, "query_pre_attn_scalar": 64, "sliding_window": 64}, "bf16", []),
    ("mixtral-8x7b", {**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2}, "bf16", []),
    ("mixtral-8x7b", {**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2}, "fp32", []),
    ("gpt-oss-20b", {**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 64}, "bf16", []),
    ("deepseek3-6m", {"vocab_size": 512, "num_hidden_layers": 2}, "bf16", []),
    ("deepseek3-6m", {"vocab_size": 512, "num_hidden_layers": 2}, "fp32", []),
]


def nvcc():
    home = os.environ.get("CUDA_HOME")
    return f"{home}/bin/nvcc" if home else "nvcc"


def compiled(ptx: Path, architecture: str):
    """Registers and spilled bytes of each kernel of a module."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as out:
        done = subprocess.run(
            [nvcc(), "-cubin", "-Xptxas", "-v", "-Xptxas", "--suppress-debug-info", f"-arch=sm_{architecture}", "-o", out.name,
             str(ptx)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"nvcc of {ptx} for sm_{architecture}: {done.stderr}")
    found, kernel = {}, None
    for line in done.stderr.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)'", line):
            kernel = match[1]
            found[kernel] = {"registers": 0, "spills": 0}
        elif match := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            found[kernel]["spills"] = int(match[1]) + int(match[2])
        elif match := re.search(r"Used (\d+) registers", line):
            found[kernel]["registers"] = int(match[1])
            if match := re.search(r"(\d+) bytes smem", line):
                found[kernel]["shared"] = int(match[1])
    return found


def occupancy(threads, shared, registers, shared_kib):
    """Share of a multiprocessor's 64 warps that its blocks fill."""
    warps = -(-threads // 32)
    # Registers are given to warps in units of 256, shared memory to blocks in units of 128 bytes and 1 KiB for the system
    # (CUDA occupancy calculator).
    of_registers = 65536 // (-(-registers * 32 // 256) * 256) // warps
    of_shared = shared_kib * 1024 // (-(-shared // 128) * 128 + 1024)
    return min(32, 64 // warps, of_registers, of_shared) * warps / 64


def largest_blocks(ptx: Path):
    """Threads that the source allows in a block of each kernel."""
    found, kernel = {}, None
    for line in ptx.read_text().splitlines():
        if match := re.search(r"\.entry (\w+)\(", line):
            kernel = match[1]
            found[kernel] = 1024
        elif kernel and (match := re.match(r"\.maxntid (\d+)", line.strip())):
            found[kernel] = int(match[1])
        elif line.startswith("{"):
            kernel = None
    return found


def add_rows(total, csv_file: Path):
    """Adds what kernels moved in a run."""
    for row in csv.DictReader(csv_file.open()):
        one = total.setdefault(row["kernel"], dict.fromkeys(list(row)[1:], 0))
        for key, value in row.items():
            if key in ("threads", "shared_bytes"):
                one[key] = max(one[key], int(value))
            elif key == "most_excess":
                one[key] = value or one[key] or ""
            elif key != "kernel":
                one[key] += int(value)


def run(command, csv_file: Path, environment):
    """Runs on a twin with one multiprocessor, which writes what kernels moved."""
    environment = dict(environment, STRATA_TWIN=f"traffic={csv_file};multiprocessors=1")
    done = subprocess.run([str(part) for part in command], env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}")


def moved(build: Path):
    """What kernels moved in runs on the twin: in steps, and in cases of ops."""
    total, cases = {}, {}
    program = build / "bin" / "strata"
    with tempfile.TemporaryDirectory() as folder:
        # The self-test records in HOME that a card has passed.
        environment = dict(os.environ, LD_LIBRARY_PATH=str(build / "tests" / "gpu" / "twin"), HOME=folder,
                           XDG_CACHE_HOME=folder, XDG_CONFIG_HOME=folder)
        of_cases = Path(folder) / "cases.csv"
        of_ops = ThreadPoolExecutor(1).submit(run, [program, "doctor", "--self-test", "--minutes", "0"], of_cases, environment)
        tokens = Path(folder) / "tokens.bin"
        tokens.write_bytes(b"".join((n * n % 509).to_bytes(2, "little") for n in range(4096)))
        for number, (preset, sizes, compute, sets) in enumerate(RUNS):
            override = "".join(f"{key} = {value}\n" for key, value in sizes.items())
            toml = Path(folder) / f"{number}.toml"
            toml.write_text(f"""[run]
folder = "{folder}/run{number}"
[model]
preset = "{preset}"
[model.override]
{override}[data]
train = ["{tokens}"]
[training]
sequence_length = 128
global_batch_size = 1
micro_batch_size = 1
steps = 2
[schedule]
warmup_steps = 1
[precision]
compute = "{compute}"
[device]
kind = "cuda"
[recovery]
snapshot = "never"
""")
            csv_file = Path(folder) / f"{number}.csv"
            options = [option for one in sets for option in ("--set", one)]
            run([program, "train", toml, *options], csv_file, environment)
            add_rows(total, csv_file)
        of_ops.result()
        add_rows(cases, of_cases)
    return total, cases


def ratio(is_, least):
    return f"{is_ / least:.3f}" if least else ""


def main():
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    build = Path(sys.argv[1]).resolve()
    modules = sorted(build.glob("src/kernels/gpu/*_sm_80.ptx"))
    if not modules:
        sys.exit(f"{build}/src/kernels/gpu has no PTX: build gpu_kernels first")
    work = [(ptx, architecture) for ptx in modules for architecture in ARCHITECTURES]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        code = dict(zip(work, pool.map(lambda one: compiled(*one), work)))
    steps, cases = moved(build)
    header = ["kernel", "module", "threads", "shared_bytes"]
    header += [f"{what}_{a}" for a in ARCHITECTURES for what in ("registers", "spills", "occupancy")]
    header += ["measured", "launches", "sectors_to_least", "passes_to_least"]
    rows = []
    for ptx in modules:
        for kernel, most in largest_blocks(ptx).items():
            seen = steps.get(kernel) or cases.get(kernel)
            first = code[ptx, "80"][kernel]
            threads = seen["threads"] if seen else most
            shared = seen["shared_bytes"] if seen else first.get("shared", 0)
            row = [kernel, ptx.name.removesuffix("_sm_80.ptx"), threads, shared]
            for architecture, shared_kib in ARCHITECTURES.items():
                one = code[ptx, architecture][kernel]
                row += [one["registers"], one["spills"],
                        f"{occupancy(threads, shared, one['registers'], shared_kib):.2f}"]
            row += (["steps" if kernel in steps else "cases", seen["launches"], ratio(seen["sectors"], seen["least_sectors"]), ratio(seen["passes"], seen["least_passes"])]
                    if seen else ["", "", "", ""])
            rows.append(row)
    with TABLE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(sorted(rows))
    print(f"{len(rows)} kernels, {sum(1 for row in rows if row[-3] != '')} of them ran: {TABLE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
