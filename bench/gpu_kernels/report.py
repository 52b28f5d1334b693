"""Prints the results of kernels_bench and its peers side by side.

Usage: report.py KERNELS.jsonl PEERS.jsonl
"""

import json
import sys


def lines(path):
    try:
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.strip()]
    except (OSError, ValueError) as error:
        print(f"{path}: {error}")
        return []


kernels, peers = lines(sys.argv[1]), lines(sys.argv[2])
checks = [line for line in kernels if "check" in line]
for line in checks:
    if not line["good"]:
        print("FAILED", json.dumps(line))
print(f"{sum(line['good'] for line in checks)} of {len(checks)} checks passed")
for line in peers:
    if "failed" in line:
        print("peer failed:", line["op"], line["shape"], line["kernel"], line["failed"][:80])
print(f"{'op':<28}{'shape':<32}{'kernel':<34}{'us':>9}{'TF/s':>7}{'GB/s':>7}  peers: us (their time / ours)")
for line in kernels:
    if "us" not in line:
        continue
    op = line["op"].removesuffix("_other")
    rivals = [peer for peer in peers if peer["op"] == op and peer["shape"] == line["shape"] and "us" in peer]
    text = ", ".join(f"{peer['kernel']} {peer['us']:.0f} ({peer['us'] / line['us']:.2f})" for peer in rivals)
    print(f"{line['op'][:27]:<28}{line['shape'][:31]:<32}{line['kernel'][:33]:<34}{line['us']:>9.1f}{line['tflops']:>7.0f}{line['gbs']:>7.0f}  {text}")
