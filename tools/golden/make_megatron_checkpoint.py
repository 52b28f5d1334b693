#!/usr/bin/env python3
"""Writes tests/data/checkpoint/megatron/: golden models in the layouts of Megatron-LM's torch checkpoints.

  llama/   tests/models/golden/llama-untied as Megatron-Core saves it on two tensor-parallel ranks, in fp16: norms fused
           into the following projections, `_extra_state`, query, key and value fused per group, gate and up fused per
           rank, the vocabulary padded to an even size
  gpt/     tests/models/golden/gpt2 as older versions save it on one rank, in bf16: nested dicts
  bert/, t5/   not whole models, only a few tensors that identify the families

The files also have the other contents of such checkpoints: argparse.Namespace, enums, random states. The layouts follow
Megatron-LM's documentation and its checkpoint tools; Megatron-LM itself is not needed. Needs torch and safetensors. Run it
in the repository's root.
"""

import argparse
import enum
import io
import json
import pathlib
import random
import shutil
import sys
import types
from collections import OrderedDict

import numpy as np
import torch
from safetensors.torch import load_file


def megatron_enum():
    """An enum that pickles as megatron.core.enums.ModelType."""
    for name in ("megatron", "megatron.core", "megatron.core.enums"):
        sys.modules[name] = types.ModuleType(name)
    model_type = enum.Enum("ModelType", {"encoder_or_decoder": 1}, module="megatron.core.enums")
    sys.modules["megatron.core.enums"].ModelType = model_type
    return model_type


def extras(args, step):
    return {"args": args, "checkpoint_version": 3.0, "iteration": step,
            "rng_state": [{"random_rng_state": random.getstate(), "np_rng_state": np.random.get_state(),
                           "torch_rng_state": torch.get_rng_state()[:16].clone(), "rng_tracker_states": {}}]}


def save(folder, rank, content):
    path = folder / f"mp_rank_{rank:02}"
    path.mkdir(parents=True)
    torch.save(content, path / "model_optim_rng.pt")


def llama(root, out, model_type):
    golden = root / "models" / "golden" / "llama-untied"
    config = json.loads((golden / "config.json").read_text())
    w = {k: v.half() for k, v in load_file(golden / "model.safetensors").items()}
    heads, groups, hd = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    vocabulary, tp = config["vocab_size"] + config["vocab_size"] % 2, 2
    args = argparse.Namespace(
        num_layers=config["num_hidden_layers"], hidden_size=config["hidden_size"], num_attention_heads=heads,
        group_query_attention=True, num_query_groups=groups, kv_channels=hd, ffn_hidden_size=config["intermediate_size"],
        max_position_embeddings=config["max_position_embeddings"], padded_vocab_size=vocabulary,
        position_embedding_type="rope", rotary_base=10000, rotary_percent=1.0, rotary_interleaved=False,
        normalization="RMSNorm", norm_epsilon=config["rms_norm_eps"], swiglu=True, add_bias_linear=False,
        add_qkv_bias=False, untie_embeddings_and_output_weights=True, tensor_model_parallel_size=tp,
        pipeline_model_parallel_size=1, num_experts=None, qk_layernorm=False, model_type=model_type.encoder_or_decoder,
        params_dtype=torch.float16, lr=3e-4, data_path=["a", "b"])
    pad = lambda x: torch.cat([x, torch.zeros(vocabulary - x.shape[0], x.shape[1], dtype=x.dtype)])
    for rank in range(tp):
        rows = lambda x: x.chunk(tp, 0)[rank].clone()
        columns = lambda x: x.chunk(tp, 1)[rank].clone()
        model = OrderedDict()
        model["embedding.word_embeddings.weight"] = rows(pad(w["model.embed_tokens.weight"]))
        for i in range(config["num_hidden_layers"]):
            hf, mc = f"model.layers.{i}.", f"decoder.layers.{i}."
            q, k, v = (w[hf + f"self_attn.{x}_proj.weight"].view(groups, -1, config["hidden_size"]) for x in "qkv")
            qkv = torch.cat([q, k, v], 1).reshape(-1, config["hidden_size"])
            model[mc + "self_attention.linear_proj.weight"] = columns(w[hf + "self_attn.o_proj.weight"])
            model[mc + "self_attention.linear_proj._extra_state"] = io.BytesIO(b"inert")
            model[mc + "self_attention.linear_qkv.layer_norm_weight"] = w[hf + "input_layernorm.weight"]
            model[mc + "self_attention.linear_qkv.weight"] = rows(qkv)
            model[mc + "self_attention.linear_qkv._extra_state"] = None
            model[mc + "mlp.linear_fc1.layer_norm_weight"] = w[hf + "post_attention_layernorm.weight"]
            model[mc + "mlp.linear_fc1.weight"] = torch.cat(
                [rows(w[hf + "mlp.gate_proj.weight"]), rows(w[hf + "mlp.up_proj.weight"])])
            model[mc + "mlp.linear_fc2.weight"] = columns(w[hf + "mlp.down_proj.weight"])
        model["decoder.final_layernorm.weight"] = w["model.norm.weight"]
        model["output_layer.weight"] = rows(pad(w["lm_head.weight"]))
        save(out / "llama" / "iter_0000040", rank, {"model": model} | extras(args, 40))
    (out / "llama" / "latest_checkpointed_iteration.txt").write_text("40")


def gpt(root, out, model_type):
    golden = root / "models" / "golden" / "gpt2"
    config = json.loads((golden / "config.json").read_text())
    w = {k.removeprefix("transformer."): v.bfloat16() for k, v in load_file(golden / "model.safetensors").items()}
    d, heads = config["n_embd"], config["n_head"]
    args = argparse.Namespace(
        num_layers=config["n_layer"], hidden_size=d, num_attention_heads=heads, ffn_hidden_size=4 * d,
        max_position_embeddings=config["n_positions"], padded_vocab_size=config["vocab_size"],
        position_embedding_type="learned_absolute", layernorm_epsilon=config["layer_norm_epsilon"],
        tensor_model_parallel_size=1, pipeline_model_parallel_size=1, model_type=model_type.encoder_or_decoder)
    encoder = OrderedDict()
    for i in range(config["n_layer"]):
        hf, mc = f"h.{i}.", f"layers.{i}."
        for theirs, ours in [("ln_1", "input_layernorm"), ("ln_2", "post_attention_layernorm")]:
            for kind in ("weight", "bias"):
                encoder[mc + ours + "." + kind] = w[hf + theirs + "." + kind]
        per_head = lambda x: x.view(3, heads, d // heads, *x.shape[1:]).transpose(0, 1).reshape(x.shape).clone()
        encoder[mc + "self_attention.query_key_value.weight"] = per_head(w[hf + "attn.c_attn.weight"].t().contiguous())
        encoder[mc + "self_attention.query_key_value.bias"] = per_head(w[hf + "attn.c_attn.bias"])
        for theirs, ours in [("attn.c_proj", "self_attention.dense"), ("mlp.c_fc", "mlp.dense_h_to_4h"),
                             ("mlp.c_proj", "mlp.dense_4h_to_h")]:
            encoder[mc + ours + ".weight"] = w[hf + theirs + ".weight"].t()
            encoder[mc + ours + ".bias"] = w[hf + theirs + ".bias"]
    for kind in ("weight", "bias"):
        encoder["final_layernorm." + kind] = w["ln_f." + kind]
    model = {"language_model": {
        "embedding": {"word_embeddings": {"weight": w["wte.weight"]}, "position_embeddings": {"weight": w["wpe.weight"]}},
        "encoder": encoder}}
    save(out / "gpt", 0, {"model": model} | extras(args, 7))


def others(out):
    args = argparse.Namespace(num_layers=1, hidden_size=2, num_attention_heads=1, padded_vocab_size=3, max_position_embeddings=4)
    embedding = {"embedding.word_embeddings.weight": torch.ones(3, 2), "embedding.position_embeddings.weight": torch.ones(4, 2)}
    of_bert = {"embedding.tokentype_embeddings.weight": torch.ones(2, 2), "lm_head.dense.weight": torch.ones(2, 2)}
    of_t5 = {"encoder.final_layernorm.weight": torch.ones(2), "decoder.layers.0.cross_attention.linear_q.weight": torch.ones(2, 2)}
    for name, more in [("bert", of_bert), ("t5", of_t5)]:
        save(out / name, 0, {"model": OrderedDict(embedding | more), "args": args, "checkpoint_version": 3.0, "iteration": 1})


def main():
    random.seed(1)
    root = pathlib.Path(__file__).resolve().parents[2] / "tests"
    out = root / "data" / "checkpoint" / "megatron"
    shutil.rmtree(out, ignore_errors=True)
    model_type = megatron_enum()
    llama(root, out, model_type)
    gpt(root, out, model_type)
    others(out)


if __name__ == "__main__":
    main()
