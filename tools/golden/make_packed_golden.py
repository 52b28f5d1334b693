#!/usr/bin/env python3
"""Writes the golden directories with quantized weights under tests/data/checkpoint/packed/.

deepseek-v3-fp8   all matrices of a layer except the router in F8_E4M3, with an fp32 scale per 128 x 128 block
gpt-oss-mxfp4     the experts' matrices in MXFP4: NAME_blocks and NAME_scales

Each is a small random model with weights rounded to the format by torch, config.json and model.safetensors as in
published models, and

  expected.safetensors   results of transformers with weights unpacked by its own code, in fp32:
    tokens    int32 [2, 33]     inputs are the first 32 of each row
    logits    fp32  [2, 32, V]
    weight/NAME  fp32           one matrix, unpacked

Needs torch, transformers and safetensors.
"""

import pathlib

import torch
from safetensors.torch import load_file, save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from make_model_golden import BATCH, LENGTH, YARN, family, latent, load, random_tokens, randomize

BLOCK = 128
E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def fp8_blocks(weight):
    """Numbers in E4M3, their scales, and the numbers they represent."""
    rows, columns = weight.shape
    grid = (rows + BLOCK - 1) // BLOCK, (columns + BLOCK - 1) // BLOCK
    numbers, scales = torch.empty_like(weight, dtype=torch.float8_e4m3fn), torch.empty(grid)
    exact = torch.empty_like(weight)
    for i in range(grid[0]):
        for j in range(grid[1]):
            at = slice(i * BLOCK, (i + 1) * BLOCK), slice(j * BLOCK, (j + 1) * BLOCK)
            scales[i, j] = weight[at].abs().max() / 448
            numbers[at] = (weight[at] / scales[i, j]).to(torch.float8_e4m3fn)
            exact[at] = numbers[at].float() * scales[i, j]
    return numbers, scales, exact


def mxfp4(weight):
    """Blocks and scales of the experts' [E, inputs, outputs], and the numbers unpacked by transformers."""
    lines = weight.transpose(1, 2).reshape(weight.shape[0], weight.shape[2], -1, 32)
    power = torch.floor(torch.log2(lines.abs().amax(-1))).clamp(min=-100) - 2
    near = (lines / 2.0 ** power[..., None]).clamp(-6, 6)
    codes = (near.abs()[..., None] - E2M1).abs().argmin(-1) + 8 * (near < 0)
    blocks = (codes[..., 0::2] | codes[..., 1::2] << 4).to(torch.uint8)
    scales = (power + 127).to(torch.uint8)
    return blocks, scales, convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)


def is_fp8(name, weight):
    return weight.dim() == 2 and name.startswith("model.layers.") and not name.endswith("mlp.gate.weight")


def write(name, make, seed, pack):
    folder = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "checkpoint" / "packed" / name
    generator = torch.Generator().manual_seed(seed)
    model = make()
    randomize(model, generator)
    model.save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    packed, exact = pack(weights)
    save_file(weights | exact, folder / "model.safetensors", {"format": "pt"})
    model = load(folder, True)
    tokens = random_tokens((BATCH, LENGTH + 1), model.config.vocab_size, generator)
    with torch.no_grad():
        logits = model(tokens[:, :-1]).logits
    expected = {"tokens": tokens.int(), "logits": logits}
    shown = sorted(exact, key=lambda key: -exact[key].numel())[0]
    expected["weight/" + shown] = exact[shown]
    rest = {key: value for key, value in weights.items() if key not in exact}
    save_file({key: value.contiguous() for key, value in (rest | packed).items()}, folder / "model.safetensors",
              {"format": "pt"})
    save_file({key: value.contiguous() for key, value in expected.items()}, folder / "expected.safetensors")
    print(f"{name}: {sum(file.stat().st_size for file in folder.iterdir())} bytes, {shown} shown")


def pack_fp8(weights):
    packed, exact = {}, {}
    for name, weight in weights.items():
        if is_fp8(name, weight):
            packed[name], packed[name + "_scale_inv"], exact[name] = fp8_blocks(weight)
    return packed, exact


def pack_mxfp4(weights):
    packed, exact = {}, {}
    for name, weight in weights.items():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            packed[name + "_blocks"], packed[name + "_scales"], exact[name] = mxfp4(weight)
    return packed, exact


def main():
    torch.set_num_threads(1)
    write("deepseek-v3-fp8",
          lambda: latent("DeepseekV3", hidden_size=136, intermediate_size=150, q_lora_rank=14, n_routed_experts=4,
                         num_experts_per_tok=2, n_group=1, topk_group=1, moe_intermediate_size=14, n_shared_experts=1,
                         first_k_dense_replace=1, num_mtp_layers=0), 81, pack_fp8)
    write("gpt-oss-mxfp4",
          lambda: family("GptOss", hidden_size=32, head_dim=10, num_local_experts=3, num_experts_per_tok=2,
                         intermediate_size=64, sliding_window=6, rope_parameters=YARN | {"truncate": False}), 82,
          pack_mxfp4)


if __name__ == "__main__":
    main()
