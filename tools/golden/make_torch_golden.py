#!/usr/bin/env python3
"""Writes tests/data/checkpoint/torch/: valid and invalid files written by torch.save.

  state.bin, state-protocol-5.bin   a state dict of every dtype and layout; state.safetensors holds the same values,
                                    row-major
  llama-tied/                       tests/models/golden/llama-tied as two pytorch_model shards with an index, and with
                                    the copy of the tied head and the rotary table of older files
  evil.bin                          a pickle that would run a command: it would create a file `called` in the working directory
  module.bin                        a whole module instead of its state dict
  nested.bin                        a training checkpoint with the state dict under "model"
  legacy.bin                        the format before PyTorch 1.6
  compressed.bin                    state.bin with its entries compressed

Needs torch and safetensors. Run it in the repository's root.
"""

import json
import os
import pathlib
import shutil
import zipfile
from collections import OrderedDict

import torch
from safetensors.torch import load_file, save_file


def states():
    g = torch.Generator().manual_seed(5)
    w = torch.randn(5, 7, generator=g)
    cube = torch.randn(3, 4, 5, generator=g)
    state = OrderedDict(
        plain=w, tied=w, rows=w[2:4], columns=w[:, 1:6:2], transposed=w.t(), permuted=cube.permute(2, 0, 1),
        parameter=torch.nn.Parameter(torch.randn(6, generator=g)), scalar=torch.tensor(3), empty=torch.zeros(0, 4),
        bf16=torch.randn(3, 3, generator=g).bfloat16(), fp16=torch.randn(3, 3, generator=g).half().t(),
        fp64=torch.randn(2, generator=g).double(), mask=torch.tensor([[True, False], [False, True]]),
        bytes=torch.arange(5, dtype=torch.uint8), shorts=torch.arange(-2, 2, dtype=torch.int16),
        ints=torch.arange(3, dtype=torch.int32), one=torch.randn(1, 1, 4, generator=g).expand(1, 1, 4))
    state._metadata = {"": {"version": 1}}
    return state


class Evil:
    def __reduce__(self):
        return (os.system, ("touch called",))


def main():
    root = pathlib.Path(__file__).resolve().parents[2] / "tests"
    out = root / "data" / "checkpoint" / "torch"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    state = states()
    torch.save(state, out / "state.bin")
    torch.save(state, out / "state-protocol-5.bin", pickle_protocol=5)
    save_file({k: v.detach().clone().contiguous() for k, v in state.items()}, out / "state.safetensors")
    torch.save({"weight": torch.ones(2), "rest": Evil()}, out / "evil.bin")
    torch.save(torch.nn.Linear(2, 3), out / "module.bin")
    torch.save({"epoch": 3, "model": {"weight": torch.ones(2)}}, out / "nested.bin")
    torch.save({"weight": torch.ones(2)}, out / "legacy.bin", _use_new_zipfile_serialization=False)
    with zipfile.ZipFile(out / "state.bin") as source, \
            zipfile.ZipFile(out / "compressed.bin", "w", zipfile.ZIP_DEFLATED) as target:
        for entry in source.infolist():
            target.writestr(zipfile.ZipInfo(entry.filename), source.read(entry), zipfile.ZIP_DEFLATED)

    golden = root / "models" / "golden" / "llama-tied"
    folder = out / "llama-tied"
    folder.mkdir()
    shutil.copy(golden / "config.json", folder)
    weights = load_file(golden / "model.safetensors")
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
    names = sorted(weights)
    file_of = {}
    for i, part in enumerate([names[:len(names) // 2], names[len(names) // 2:]]):
        name = f"pytorch_model-{i + 1:05}-of-00002.bin"
        torch.save({key: weights[key] for key in part}, folder / name)
        file_of |= {key: name for key in part}
    total = sum(t.numel() * t.element_size() for t in weights.values())
    (folder / "pytorch_model.bin.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": file_of}, indent=2) + "\n")


if __name__ == "__main__":
    main()
