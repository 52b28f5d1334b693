#!/usr/bin/env python3
"""Writes tests/data/checkpoint/gguf/: small models written by the `gguf` package.

For two SentencePiece tokenizers of tests/data/tokenizer/kinds, files without tensors. For models of tests/models/golden,
a tokenizer.json (for the first two) and the file that llama.cpp's converter would write: keys from gguf.Keys, names from
gguf's table of tensor names, interleaved query and key rows for llama, transposed Conv1D weights for GPT-2, 1 added to
Gemma's norms, vectors and position tables in fp32. Fields and tensors are in the order of
`strata checkpoint export --format gguf`, so the files are equal byte for byte.

Needs torch, safetensors, sentencepiece and gguf. Run it in the repository's root.
"""

import json
import pathlib
import re
import shutil

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file

K = gguf.Keys


def tokenizer(vocabulary):
    """A byte-level BPE with a few merges, a special token, an added token, and unused ids."""
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)] + ["\u0120"]
    merges = [("t", "h"), ("th", "e"), ("\u0120", "the")]
    tokens = ["<|endoftext|>", "<note>"] + letters + [a + b for a, b in merges]
    assert len(tokens) < vocabulary
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [
            dict(id=i, content=tokens[i], single_word=False, lstrip=False, rstrip=False, normalized=False, special=i == 0)
            for i in range(2)],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {t: i for i, t in enumerate(tokens)}, "merges": [list(m) for m in merges]},
    }, tokens, [a + " " + b for a, b in merges]


def fields(writer, config, arch, kind):
    writer.add_type("model")
    writer.add_name(kind)
    n = lambda *names: next((config[k] for k in names if config.get(k) is not None), None)
    width, heads = n("hidden_size", "n_embd"), n("num_attention_heads", "n_head")
    head_dim = config.get("head_dim") or width // heads
    llama_like = arch not in ("gpt2", "gptneox")
    writer.add_block_count(n("num_hidden_layers", "n_layer"))
    writer.add_context_length(n("max_position_embeddings", "n_positions"))
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(n("intermediate_size_mlp", "intermediate_size") or 4 * width)
    writer.add_head_count(heads)
    if llama_like:
        writer.add_head_count_kv(1 if arch == "deepseek2" else config["num_key_value_heads"])
    if arch != "gpt2":
        rope = config["rope_parameters"]
        rope = rope.get("full_attention", rope)
        writer.add_rope_freq_base(rope["rope_theta"])
        if "sliding_attention" in config["rope_parameters"]:
            writer.add_rope_freq_base_swa(config["rope_parameters"]["sliding_attention"]["rope_theta"])
        if arch == "deepseek2":
            writer.add_rope_dimension_count(config["qk_rope_head_dim"])
        if arch in ("llama", "llama4", "gptneox", "phi3", "stablelm", "glm4moe"):
            writer.add_rope_dimension_count(int(rope.get("partial_rotary_factor", 1) * head_dim))
        if rope["rope_type"] == "yarn":
            writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
            writer.add_rope_scaling_factor(rope["factor"])
            writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        if rope["rope_type"] == "longrope":
            original = rope["original_max_position_embeddings"]
            writer.add_rope_scaling_orig_ctx_len(original)
            scale = config["max_position_embeddings"] / original
            writer.add_rope_scaling_attn_factors((1 + np.log(scale) / np.log(original)) ** 0.5)
    if llama_like and arch not in ("olmo", "starcoder2", "stablelm"):
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    else:
        writer.add_layer_norm_eps(1e-5 if arch == "olmo" else n("layer_norm_epsilon", "layer_norm_eps", "norm_epsilon"))
    if arch == "deepseek2":
        rank, rotary = config["kv_lora_rank"], config["qk_rope_head_dim"]
        writer.add_q_lora_rank(config["q_lora_rank"])
        writer.add_kv_lora_rank(rank)
        writer.add_key_length(rank + rotary)
        writer.add_value_length(rank)
        writer.add_key_length_mla(config["qk_nope_head_dim"] + rotary)
        writer.add_value_length_mla(config["v_head_dim"])
    elif llama_like and arch not in ("stablelm", "olmoe", "qwen2moe"):
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if arch in ("llama", "llama4", "deepseek2"):
        writer.add_vocab_size(config["vocab_size"])
    if "num_experts_per_tok" in config:
        writer.add_expert_count(n("num_local_experts", "num_experts", "n_routed_experts"))
        writer.add_expert_used_count(config["num_experts_per_tok"])
        if arch == "llama4":
            writer.add_interleave_moe_layer_step(config["interleave_moe_layer_step"])
        if arch in ("deepseek2", "glm4moe"):
            writer.add_expert_group_count(config["n_group"])
            writer.add_expert_group_used_count(config["topk_group"])
            writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
            writer.add_leading_dense_block_count(config["first_k_dense_replace"])
            writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
            writer.add_expert_shared_count(config["n_shared_experts"])
            writer.add_expert_weights_scale(config["routed_scaling_factor"])
            writer.add_expert_weights_norm(config["norm_topk_prob"])
        if arch == "llama4":
            writer.add_expert_feed_forward_length(config["intermediate_size"])
        if arch in ("qwen2moe", "qwen3moe", "gpt-oss"):
            writer.add_expert_feed_forward_length(n("moe_intermediate_size", "intermediate_size"))
        if arch == "qwen2moe":
            writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    if arch in ("gptneox", "stablelm"):
        writer.add_parallel_residual(config["use_parallel_residual"])
    if arch == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if arch in ("gemma2", "gemma3", "gpt-oss"):
        writer.add_sliding_window(config["sliding_window"])
    if arch == "gemma3":
        writer.add_sliding_window_pattern([each == "sliding_attention" for each in config["layer_types"]])


def pairs(weight, heads):
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


PARTS = [
    # GPT-2; GPT-NeoX; Llama and its successors; GPT-2 and StarCoder2
    "ln_1", "attn.c_attn", "attn.c_proj", "ln_2",
    "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm",
    "attention.query_key_value", "attention.dense", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h",
    "self_attn.qkv_proj", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
    "self_attn.q_norm", "self_attn.k_norm", "mlp.gate_up_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
    "mlp.c_fc", "mlp.c_proj",
    # experts: one tensor per matrix for all experts of a layer
    "self_attn.sinks", "block_sparse_moe.gate", "mlp.gate", "mlp.router",
    "feed_forward.router", "mlp.gate.e_score_correction", "experts.gate_proj", "experts.up_proj", "experts.down_proj",
    "mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj", "mlp.shared_expert.down_proj", "mlp.shared_expert_gate",
    "mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj", "mlp.shared_experts.down_proj",
    "feed_forward.shared_expert.gate_proj", "feed_forward.shared_expert.up_proj", "feed_forward.shared_expert.down_proj",
    "feed_forward.gate_proj", "feed_forward.up_proj", "feed_forward.down_proj"]
LATENT = ["q_b_proj", "q_a_proj", "q_a_layernorm", "kv_a_proj_with_mqa", "kv_a_layernorm", "k_b_proj", "v_b_proj", "o_proj"]
BEFORE = ["transformer.wte", "transformer.wpe", "gpt_neox.embed_in", "model.embed_tokens"]
AFTER = ["transformer.ln_f", "gpt_neox.final_layer_norm", "model.norm", "embed_out", "lm_head"]


def of_experts(weights):
    """Stacks the experts of a layer, outputs first, with separate gates and ups; names get a suffix."""
    out, parts = {}, {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}
    for name, value in weights.items():
        layer, _, part = name.partition(".experts.") if ".experts." in name else (None, None, None)
        if name.endswith("self_attn.sinks"):
            out[name + ".weight"] = value
        elif layer is None:
            out[name] = value
        elif part.startswith("0."):
            part = part.split(".")[1]
            stacked = torch.stack([weights[f"{layer}.experts.{e}.{part}.weight"] for e in range(
                sum(other.startswith(layer + ".experts.") and other.endswith(f".{part}.weight") for other in weights))])
            out[f"{layer.replace('block_sparse_moe', 'mlp')}.experts.{parts.get(part, part)}.weight"] = stacked
        elif not part[0].isdigit():
            kind = "bias" if part.endswith("_bias") else "weight"
            value = value.transpose(1, 2) if kind == "weight" else value
            if part.startswith("down_proj"):
                out[f"{layer}.experts.down_proj.{kind}"] = value
            else:
                gate, up = (value[:, ::2], value[:, 1::2]) if ".mlp." in name else value.chunk(2, dim=1)
                out[f"{layer}.experts.gate_proj.{kind}"], out[f"{layer}.experts.up_proj.{kind}"] = gate, up
    return out


def of_latents(weights, config):
    """Separates keys and values of a head, and transposes the keys."""
    out = {}
    for name, value in weights.items():
        if not name.endswith("kv_b_proj.weight"):
            out[name] = value
            continue
        parts = value.reshape(config["num_attention_heads"], -1, value.shape[1])
        keys, values = parts.split([config["qk_nope_head_dim"], config["v_head_dim"]], dim=1)
        out[name.replace("kv_b", "k_b")], out[name.replace("kv_b", "v_b")] = keys.transpose(1, 2), values
    return out


def place(name):
    """Embeddings, then the layers, then the last norm and the head; a weight before its bias."""
    base, kind = name.rsplit(".", 1)
    if base in BEFORE:
        return 0, 0, BEFORE.index(base), kind != "weight"
    if base in AFTER:
        return 2, 0, AFTER.index(base), kind != "weight"
    layer, part = re.fullmatch(r"(?:transformer\.h|gpt_neox\.layers|model\.layers)\.(\d+)\.(.*)", base).groups()
    if ".experts." in part:
        # Gate and up weights are ordered by the tensor that contains both, followed by its biases.
        part = part.removeprefix("mlp.").removeprefix("feed_forward.")
        if part != "experts.down_proj" and GROUPED:
            return 1, int(layer), PARTS.index("experts.gate_proj"), kind != "weight", PARTS.index(part)
    if GROUPED == "latent" and part.startswith("self_attn."):
        return 1, int(layer), PARTS.index("self_attn.q_proj"), LATENT.index(part.removeprefix("self_attn."))
    return 1, int(layer), PARTS.index(part), kind != "weight"


def expressible(kind, config, weights):
    """Changes a model to one that GGUF can represent, such as Gemma 3 with other windows. Returns the weights if they
    change, too."""
    if kind == "olmoe":  # the same number of key heads as query heads
        config["num_key_value_heads"] = config["num_attention_heads"]
        repeats = lambda name: config["num_attention_heads"] if re.search(r"\.(k_proj|v_proj|k_norm)\.", name) else 1
        changed = {name: value.repeat(repeats(name), *[1] * (value.dim() - 1)) for name, value in weights.items()}
    elif kind == "qwen2-moe":  # experts in every layer
        config["mlp_only_layers"] = []
        changed = {name: value for name, value in weights.items() if not name.startswith("model.layers.1.mlp.")}
        changed |= {name.replace(".0.", ".1.", 1): -value for name, value in weights.items() if name.startswith("model.layers.0.mlp.")}
    else:
        changed = None
    if kind in ("gemma2", "gemma3"):
        config["query_pre_attn_scalar"] = config["head_dim"]
    if kind == "gpt-oss":
        config["swiglu_limit"] = 7.0
    if kind == "llama4":
        config |= {"attention_chunk_size": 8192, "floor_scale": 8192, "attn_scale": 0.1}
    if kind == "olmoe":
        config["clip_qkv"] = None
    return config, changed


def sentencepiece_vocabulary(out, name, of_json):
    """Writes a file with only a tokenizer: tokens and scores from the SentencePiece file, as in llama.cpp's converter;
    added tokens from the tokenizer.json with the same tokens."""
    from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2
    kinds = out.parents[1] / "tokenizer" / "kinds"
    model = (kinds / f"{name}.model").read_bytes()
    pieces, proto = SentencePieceProcessor(model_proto=model), sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model)
    spec, unigram = proto.normalizer_spec, proto.trainer_spec.model_type == 1
    size = pieces.get_piece_size()
    T = gguf.TokenType
    added = {t["id"]: t["special"] for t in json.loads((kinds / f"{of_json}.json").read_text())["added_tokens"]}
    tokens, scores, types = [], [], []
    for i in range(size):
        tokens.append(pieces.id_to_piece(i))
        scores.append(-1000.0 if i in added else pieces.get_score(i))
        types.append(T.UNKNOWN if pieces.is_unknown(i) else T.BYTE if pieces.is_byte(i) else T.NORMAL if i not in added else
                     T.CONTROL if added[i] else T.USER_DEFINED)
    writer = gguf.GGUFWriter(out / f"{name}.gguf", "llama")
    writer.add_tokenizer_model("t5" if unigram else "llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens + [f"[PAD{i}]" for i in range(size, size + 3)])
    writer.add_token_scores(scores + [-10000.0] * 3)
    writer.add_token_types(types + [T.UNUSED] * 3)
    writer.add_add_space_prefix(spec.add_dummy_prefix)
    if unigram:
        writer.add_remove_extra_whitespaces(spec.remove_extra_whitespaces)
        writer.add_precompiled_charsmap(spec.precompiled_charsmap)
    writer.add_unk_token_id(pieces.unk_id())
    if not unigram:
        writer.add_bos_token_id(pieces.bos_id())
    writer.add_eos_token_id(pieces.eos_id())
    writer.add_add_bos_token(not unigram)
    writer.add_add_eos_token(unigram)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    root = pathlib.Path(__file__).resolve().parents[2] / "tests"
    out = root / "data" / "checkpoint" / "gguf"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for name, of_json in (("spm_bpe_bytes", "llama2_legacy"), ("spm_unigram_rules", "t5")):
        sentencepiece_vocabulary(out, name, of_json)
    models = [("llama-tied", "llama", "fp16"), ("llama-untied", "llama", "bf16"), ("gpt2", "gpt2", "fp32"),
              ("llama-biases-yarn", "llama", "fp16"), ("mistral", "llama", "fp16"), ("qwen2", "qwen2", "fp16"),
              ("qwen3", "qwen3", "fp16"), ("olmo", "olmo", "fp16"), ("olmo2", "olmo2", "fp16"),
              ("gemma2", "gemma2", "fp16"), ("gemma3", "gemma3", "fp16"), ("phi3", "phi3", "fp16"),
              ("gpt-neox", "gptneox", "fp16"), ("starcoder2", "starcoder2", "fp16"),
              ("stablelm", "stablelm", "fp16"), ("mixtral", "llama", "fp16"), ("olmoe", "olmoe", "fp16"),
              ("qwen2-moe", "qwen2moe", "fp16"), ("glm4-moe", "glm4moe", "fp16"), ("qwen3-moe", "qwen3moe", "fp16"), ("gpt-oss", "gpt-oss", "bf16"),
              ("deepseek-v3-moe", "deepseek2", "fp16"), ("llama4", "llama4", "fp16")]
    for kind, arch, word in models:
        golden = root / "models" / "golden" / kind
        weights = load_file(golden / "model.safetensors")
        config, changed = expressible(kind, json.loads((golden / "config.json").read_text()), weights)
        if kind.startswith(("gemma", "gpt-oss", "llama4", "olmoe", "qwen2-moe")):
            (out / f"{kind}-config.json").write_text(json.dumps(config, indent=2) + "\n")
        if changed:
            save_file({name: value.contiguous() for name, value in changed.items()}, out / f"{kind}-model.safetensors")
        write(out, kind, arch, word, config, changed or weights)


def write(out, kind, arch, word, config, weights):
    path = out / f"{kind}-{word}.gguf"
    writer = gguf.GGUFWriter(path, arch)
    fields(writer, config, arch, kind)
    writer.add_file_type({"fp32": gguf.LlamaFileType.ALL_F32, "fp16": gguf.LlamaFileType.MOSTLY_F16,
                          "bf16": gguf.LlamaFileType.MOSTLY_BF16}[word])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    if kind in ("llama-tied", "llama-untied"):
        text, tokens, merges = tokenizer(config["vocab_size"])
        (out / "tokenizer.json").write_text(json.dumps(text, ensure_ascii=False, indent=1) + "\n")
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        T = gguf.TokenType
        size = config["vocab_size"]
        writer.add_token_list(tokens + [f"[PAD{i}]" for i in range(len(tokens), size)])
        writer.add_token_types([T.CONTROL, T.USER_DEFINED] + [T.NORMAL] * (len(tokens) - 2) +
                               [T.UNUSED] * (size - len(tokens)))
        writer.add_token_merges(merges)
        writer.add_bos_token_id(config["bos_token_id"])
        writer.add_eos_token_id(config["eos_token_id"])
        writer.add_add_bos_token(False)
        writer.add_add_eos_token(False)
    else:
        writer.add_tokenizer_model("no_vocab")

    rope = config.get("rope_parameters", {})
    if arch == "llama4":
        half = config["head_dim"] // 2
        waves = 2 * np.pi * rope["rope_theta"] ** (np.arange(half) / half)
        whole = waves < rope["original_max_position_embeddings"] / rope["high_freq_factor"]
        writer.add_tensor("rope_freqs.weight", np.where(whole, 1.0, rope["factor"]).astype(np.float32))
    if kind == "phi3":
        for length in ("long", "short"):
            writer.add_tensor(f"rope_factors_{length}.weight",
                              np.array(config["rope_parameters"][length + "_factor"], dtype=np.float32))
    table = gguf.get_tensor_name_map(next(a for a, n in gguf.MODEL_ARCH_NAMES.items() if n == arch), 16)
    heads, groups = config.get("num_attention_heads"), config.get("num_key_value_heads")
    global GROUPED
    GROUPED = "latent" if arch == "deepseek2" else any(name.endswith("gate_up_proj") for name in weights)
    weights = of_experts(weights)
    weights = {name.replace("e_score_correction_bias", "e_score_correction.bias"): value for name, value in weights.items()}
    if arch == "deepseek2":
        weights = of_latents(weights, config)
    for name in sorted(weights, key=place):
        value = weights[name]
        if arch in ("llama", "olmo") and ".q_proj." in name:
            value = pairs(value, heads)
        if arch in ("llama", "olmo") and ".k_proj." in name:
            value = pairs(value, groups)
        if arch == "gpt2" and name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
            value = value.t()
        if arch == "gptneox" and "query_key_value" in name:
            value = value.reshape(heads, 3, -1, *value.shape[1:]).transpose(0, 1).reshape(value.shape)
        if arch in ("gemma2", "gemma3") and name.endswith("norm.weight"):
            value = value + 1
        theirs = table.get_name(name, try_suffixes=(".weight", ".bias"))
        assert theirs, name
        value = value.contiguous()
        plain = theirs == "position_embd.weight" or ".ffn_gate_inp" in theirs or theirs.endswith("_exps.bias")
        if value.dim() > 1 and not plain and word != "fp32":
            if word == "fp16":
                writer.add_tensor(theirs, value.half().numpy())
            else:
                writer.add_tensor(theirs, value.bfloat16().view(torch.uint8).numpy(),
                                  raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(theirs, value.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(path.name, path.stat().st_size)


if __name__ == "__main__":
    main()
