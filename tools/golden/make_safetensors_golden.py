#!/usr/bin/env python3
"""Writes golden files of the checkpoint tests with the reference library.

    pip install torch safetensors
    python tools/golden/make_safetensors_golden.py tests/data/checkpoint

mixed.safetensors   one tensor of each dtype, a scalar and an empty one; element i of a tensor is i (mod 2 for bool)
empty.safetensors   no tensors, no metadata
conv1d.safetensors  "weight" [3, 5] with element (r, c) = 10 r + c: the tests load it into transposed memory
"""
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    dtypes = {
        "f64": torch.float64, "i64": torch.int64, "f32": torch.float32, "i32": torch.int32, "bf16": torch.bfloat16,
        "f16": torch.float16, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool,
    }
    tensors = {f"layer.{name}": (torch.arange(6).reshape(2, 3) % 2 if name == "bool" else torch.arange(6).reshape(2, 3)).to(dtype)
               for name, dtype in dtypes.items()}
    tensors["scalar"] = torch.tensor(2.5)
    tensors["empty"] = torch.zeros(0, 4)
    tensors['quote"\\ü\n'] = torch.tensor([1.0])
    save_file(tensors, folder / "mixed.safetensors", metadata={"format": "pt"})
    save_file({}, folder / "empty.safetensors")
    rows, columns = torch.arange(3).reshape(3, 1), torch.arange(5).reshape(1, 5)
    save_file({"weight": (10 * rows + columns).float()}, folder / "conv1d.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
