#!/usr/bin/env python3
"""Writes tests/data/quantize/{formats,quantizer,delayed,matmuls,experts}.json: low-precision formats, quantizers and matmuls as others
compute them.

  formats.json     the value of every code, and digests (XXH3-64) of the codes of 2^20 chosen and of all 2^32 floats, by
                   ml_dtypes; codes rounded stochastically, by NumPy in fp64
  quantizer.json   digests of codes and scales of a matrix under every rule, along rows and along columns:
                   tensor, row: torchao's float8 casts; mx: torchao's to_mx in all its modes; nvfp4 in blocks of 1 x 16:
                   torchao's nvfp4_quantize; block (DeepSeek-V3, DeepGEMM), nvfp4 in blocks of 16 x 16, with Hadamard
                   transform and stochastic rounding: NumPy, written from papers and documentation with ml_dtypes' casts
  delayed.json     the scales of delayed scaling and digests of codes over many steps (precision_delayed.py)
  matmuls.json     sums of matmuls of quantized operands, in fp64 by NumPy alone
  experts.json     nvfp4 for experts: codes and scales of rows with a scale each, and the six matmuls (precision_experts.py)

Run in a virtual environment; the files are committed:

  python3 -m venv build/precision && build/precision/bin/pip install ml_dtypes==0.6.0 torch==2.11.0 torchao==0.18.0 xxhash numpy
  build/precision/bin/python tools/golden/make_precision_golden.py [formats|quantizer|delayed|matmuls|experts]      (formats: 15 minutes)
"""

import json
import pathlib
import sys

import numpy as np
import xxhash

import precision_formats as formats

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/data/quantize"
SEED, STREAM, STEP = 0x0123456789ABCDEF, 77, 5

# The lower halves of the 2^20 chosen floats; every upper half occurs with each. Values and midpoints of 8-bit formats
# have a lower half of 0, those of fp16 multiples of 0x1000: their neighbors are here too.
LOWER = [0, 1, 0xFFFF, 0x1000, 0x0FFF, 0x1001, 0x2000, 0x3000, 0x8000, 0x7FFF, 0x8001, 0xF000, 0xEFFF, 0xF001, 0x5A5A, 0xA000]


def digest(array):
    return xxhash.xxh3_64_hexdigest(np.ascontiguousarray(array).tobytes())


def chosen_floats():
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    return np.concatenate([upper | lower for lower in LOWER]).view(np.float32)


def make_formats():
    out = {}
    chosen = chosen_floats()
    with np.errstate(all="ignore"):
        for name in formats.TYPES:
            entry = {"values": [int(bits) for bits in formats.values(name).view(np.uint32)]} if name != "f16" else {}
            entry["chosen"] = digest(formats.stored(name, formats.encode(name, chosen)))
            entry["all"] = []
            for part in range(256):
                floats = (np.arange(1 << 24, dtype=np.uint32) + np.uint32(part << 24)).view(np.float32)
                entry["all"].append(digest(formats.stored(name, formats.encode(name, floats))))
            if name in formats.MANTISSA_BITS:
                words = formats.random_words(SEED, STREAM, STEP, 1001 + np.arange(chosen.size))
                entry["stochastic"] = digest(formats.stored(name, formats.encode_stochastic(name, chosen, words)))
            out[name] = entry
            print(name, flush=True)
    return {"seed": SEED, "stream": STREAM, "step": STEP, "first": 1001, "lower": LOWER, "formats": out}


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    what = sys.argv[1:] or ["formats", "quantizer", "delayed", "matmuls", "experts"]
    if "formats" in what:
        (OUT / "formats.json").write_text(json.dumps(make_formats(), indent=0) + "\n")
    if "quantizer" in what:
        from precision_quantizers import make_quantizers

        (OUT / "quantizer.json").write_text(json.dumps(make_quantizers(digest), indent=0) + "\n")
    if "delayed" in what:
        from precision_delayed import make_delayed

        (OUT / "delayed.json").write_text(json.dumps(make_delayed(digest), indent=0) + "\n")
    if "matmuls" in what:
        from precision_matmuls import make_matmuls

        (OUT / "matmuls.json").write_text(json.dumps(make_matmuls(), indent=0) + "\n")
    if "experts" in what:
        from precision_experts import make_experts

        (OUT / "experts.json").write_text(json.dumps(make_experts(digest)) + "\n")


if __name__ == "__main__":
    main()
