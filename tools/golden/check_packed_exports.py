#!/usr/bin/env python3
"""Checks exports in 8 and 4 bits with the readers of transformers: `strata checkpoint export --dtype fp8_block` and `mxfp4`
of golden models load without a warning about tensors, are quantised where config.json says so, and every weight that
transformers dequantises (to bf16) is the one that Strata dequantises, rounded to bf16, bit for bit.

    python3 tools/golden/check_packed_exports.py build/release/bin/strata [MODEL ...]

Needs torch, transformers and accelerate. Without a GPU transformers dequantises such models as it loads them, which is what
this uses. Not part of the tests, which need no Python.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, FineGrainedFP8Config, Mxfp4Config

# mxfp4 is for gpt-oss; the golden one is narrower than a block of 32, so a wider one with random weights takes its place.
MODELS = {
    "fp8_block": ["deepseek-v2-moe", "deepseek-v3", "deepseek-v3-moe", "glm4-moe", "llama-untied", "mistral", "olmo2", "qwen2", "qwen3", "qwen3-5", "qwen3-moe", "qwen3-next"],
    "mxfp4": ["gpt-oss-wide"],
}


def tensors_of(folder):
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            tensors.update({name: file.get_tensor(name) for name in file.keys()})
    return tensors


def load(folder, dtype, **config):
    has_experts = json.loads((folder / "config.json").read_text()).keys() & {"num_experts_per_tok", "num_experts_per_token"}
    plain = {"experts_implementation": "eager"} if has_experts else {}
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, output_loading_info=True, **config, **plain)
    assert not any(info.get(k) for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    return model.eval()


def write_wide(golden, folder):
    config = json.loads((golden / "gpt-oss" / "config.json").read_text())
    config.update(hidden_size=64, intermediate_size=96, head_dim=16)
    torch.manual_seed(1)
    AutoModelForCausalLM.from_config(AutoConfig.for_model(**config)).save_pretrained(folder)


def check(program, golden, dtype, scratch):
    packed, unpacked = scratch / f"{golden.name}-{dtype}", scratch / f"{golden.name}-fp32"
    for source, target, kind in ((golden, packed, dtype), (packed, unpacked, "fp32")):
        subprocess.run([program, "checkpoint", "export", source, target, "--dtype", kind], check=True, capture_output=True)
    codes = [name for name, tensor in tensors_of(packed).items() if tensor.dtype in (torch.float8_e4m3fn, torch.uint8)]
    assert codes, "no weight is quantised"
    config = {"fp8_block": FineGrainedFP8Config, "mxfp4": Mxfp4Config}[dtype](dequantize=True)
    theirs = dict(load(packed, torch.bfloat16, quantization_config=config).named_parameters())
    ours = dict(load(unpacked, torch.float32).named_parameters())
    assert theirs.keys() == ours.keys(), theirs.keys() ^ ours.keys()
    elements = 0
    for name, tensor in theirs.items():
        assert tensor.dtype in (torch.bfloat16, torch.float32), (name, tensor.dtype)
        expected = ours[name].to(tensor.dtype)
        assert torch.equal(tensor, expected), (name, (tensor.float() - expected.float()).abs().max())
        elements += tensor.numel()
    print(f"{golden.name} as {dtype}: {len(codes)} tensors of codes, {elements:,} weights equal")


def main():
    transformers.logging.disable_progress_bar()
    golden = pathlib.Path(__file__).resolve().parents[2] / "tests" / "models" / "golden"
    with tempfile.TemporaryDirectory() as scratch:
        for dtype, models in MODELS.items():
            for name in models:
                if sys.argv[2:] and name not in sys.argv[2:]:
                    continue
                model = golden / name
                if not model.exists():
                    model = pathlib.Path(scratch) / name
                    write_wide(golden, model)
                check(sys.argv[1], model, dtype, pathlib.Path(scratch))


if __name__ == "__main__":
    main()
