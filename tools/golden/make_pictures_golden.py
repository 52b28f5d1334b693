#!/usr/bin/env python3
"""Writes tests/data/checkpoint/llama4-pictures/: a small random Llama4ForConditionalGeneration, with config.json as in
published models (text_config and vision_config, rope_theta and rope_scaling), and

  expected.safetensors   results of transformers for text inputs, in fp32:
    tokens    int32 [2, 33]     inputs are the first 32 of each row
    logits    fp32  [2, 32, V]

Needs torch, transformers and safetensors.
"""

import json
import pathlib

import torch
from safetensors.torch import save_file
from transformers import Llama4Config, Llama4ForConditionalGeneration

from make_model_golden import BATCH, END_OF_TEXT, LENGTH, LLAMA3, random_tokens, randomize

TEXT = dict(vocab_size=61, hidden_size=24, num_attention_heads=3, num_key_value_heads=1, head_dim=10, intermediate_size=18,
            intermediate_size_mlp=34, num_hidden_layers=4, max_position_embeddings=64, num_local_experts=5,
            interleave_moe_layer_step=2, attention_chunk_size=7, floor_scale=5, attn_scale=0.4, bos_token_id=END_OF_TEXT,
            eos_token_id=END_OF_TEXT, pad_token_id=None)
PICTURES = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, vision_output_dim=16,
                image_size=28, patch_size=14, projector_input_dim=16, projector_output_dim=16)


def main():
    torch.set_num_threads(1)
    folder = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "checkpoint" / "llama4-pictures"
    generator = torch.Generator().manual_seed(91)
    config = Llama4Config(text_config=dict(TEXT, rope_parameters=dict(LLAMA3)), vision_config=PICTURES, boi_token_index=58,
                          eoi_token_index=59, image_token_index=60)
    model = Llama4ForConditionalGeneration(config)
    randomize(model, generator)
    model.save_pretrained(folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    text = config["text_config"]
    rope = text.pop("rope_parameters")
    text["rope_theta"], text["rope_scaling"] = rope.pop("rope_theta"), rope
    for derived in ("layer_types", "moe_layers", "no_rope_layer_interval"):
        text.pop(derived)
    text["no_rope_layers"] = []
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config, indent=2) + "\n")
    (folder / "generation_config.json").unlink(missing_ok=True)

    model = Llama4ForConditionalGeneration.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    tokens = random_tokens((BATCH, LENGTH + 1), 58, generator)
    with torch.no_grad():
        logits = model(input_ids=tokens[:, :-1]).logits
    save_file({"tokens": tokens.int(), "logits": logits.contiguous()}, folder / "expected.safetensors")
    print(f"{sum(file.stat().st_size for file in folder.iterdir())} bytes, logits {logits.abs().max():.3f} at most")


if __name__ == "__main__":
    main()
