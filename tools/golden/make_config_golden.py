#!/usr/bin/env python3
"""Records the values that transformers reads from config.json files with missing keys or nulls.

    tools/golden/make_config_golden.py        # writes tests/models/golden/configs.json (needs only transformers)

Each row changes the config.json of a golden model: a key is missing, null, or set. `expected` has the attributes of the
class that differ from those of the unchanged file, `gone` the attributes that it then lacks; `refused` marks files that
transformers does not read.
"""
import copy
import json
import pathlib
import re
import sys

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

transformers.logging.set_verbosity_error()
GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests/models/golden"
# One file per class, and those in which other keys determine the layers.
BASES = ["bert", "deepseek-v2-moe", "deepseek-v3-moe", "gemma2", "gemma3", "glm4-moe", "gpt-neox", "gpt-oss", "gpt2",
         "llama-tied", "llama-biases-yarn", "llama4", "mistral", "mixtral", "olmo", "olmo-clip", "olmo2", "olmoe",
         "phi3", "qwen2", "qwen2-moe", "qwen3", "qwen3-moe", "stablelm", "starcoder2", "switch", "t5", "t5-gated",
         "olmo3", "smollm3", "smollm3-windows", "minimax-m2", "deepseek-v32", "glm-moe-dsa", "qwen3-next", "qwen3-5", "qwen3-5-moe",
         "kimi-linear", "mamba2", "nemotron-h", "granite-hybrid", "falcon-h1", "lfm2-moe", "olmo-hybrid"]
# Keys that do not affect the mathematics of this program.
IGNORED = {"architectures", "model_type", "dtype", "torch_dtype", "transformers_version", "use_cache", "_name_or_path",
           "rope_scaling", "rope_theta", "rope_parameters", "rope_local_base_freq", "output_router_logits",
           "chunk_size", "mamba_chunk_size"}
ACTIVATIONS = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh", "swish": "silu"}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}


def rope_of(parameters):
    kept = ("rope_theta", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings",
            "beta_fast", "beta_slow", "truncate")
    out = {"rope_type": parameters.get("rope_type", "default")}
    out.update({k: parameters[k] for k in kept if parameters.get(k) is not None})
    return out


def plain(value):
    """As it is written in JSON, which has no infinity."""
    if isinstance(value, str):
        return ACTIVATIONS.get(value, value)
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return {"__float__": "Infinity"} if value == float("inf") else value


def decoded(value):
    if value == {"__float__": "Infinity"}:
        return float("inf")
    if isinstance(value, list):
        return [decoded(each) for each in value]
    return value


def read(config, keys):
    """The attributes of the class that reads a config.json; None: refused."""
    config = {key: decoded(value) for key, value in copy.deepcopy(config).items()}
    cls = CONFIG_MAPPING[config.pop("model_type")]
    try:
        whole = cls.from_dict(config)
        if hasattr(whole, "text_config") and not isinstance(whole.text_config, dict):
            whole = whole.text_config
        values = whole.to_dict()
    except Exception as error:  # refusals raise many kinds of exceptions
        print("  refused:", type(error).__name__, str(error).replace("\n", " ")[:90], file=sys.stderr)
        return None
    out = {k: plain(values[k]) for k in keys if k in values}
    rope = values.get("rope_parameters") or {}
    if "full_attention" in rope:
        out["rope"], out["window_rope"] = rope_of(rope["full_attention"]), rope_of(rope["sliding_attention"])
    elif rope:
        out["rope"] = rope_of(rope)
        if "partial_rotary_factor" in rope:
            out["partial_rotary_factor"] = rope["partial_rotary_factor"]
    return out


def changes_of(name, config):
    for key in sorted(config):
        if key in ("architectures", "model_type", "dtype", "torch_dtype", "transformers_version", "use_cache",
                   "output_router_logits"):
            continue
        if key == "num_hidden_layers" and "mlp_layer_types" in config:  # the lists have an entry for each layer
            yield {"without": [key] + [k for k in ("mlp_layer_types", "indexer_types", "layer_types") if k in config]}
            continue
        yield {"without": [key]}
        if config[key] is not None:
            yield {"set": {key: None}}
    ropes = [k for k in ("rope_theta", "rope_scaling", "rope_parameters", "rotary_emb_base", "rope_local_base_freq",
                         "rotary_pct", "partial_rotary_factor") if k in config]
    if not ropes:
        return
    yield {"without": ropes}
    for given in ({"rope_theta": 777.0}, {"rope_theta": 777.0, "rope_scaling": None}, {"rope_theta": None},
                  {"rope_scaling": YARN}, {"rope_theta": 777.0, "rope_scaling": YARN},
                  {"rope_parameters": {"rope_type": "default", "rope_theta": 555.0}},
                  {"rope_theta": 777.0, "rope_parameters": {"rope_type": "default", "rope_theta": 555.0}},
                  {"rope_theta": 777.0, "rope_parameters": {"rope_type": "default"}},
                  {"rope_parameters": None, "rope_scaling": YARN}):
        yield {"without": ropes, "set": given}
    if name == "gpt-neox":
        for given in ({"rotary_emb_base": 20}, {"rotary_emb_base": 20, "rope_theta": 777.0},
                      {"rotary_emb_base": None, "rope_theta": 777.0}, {"rotary_emb_base": 20, "rope_theta": None},
                      {"rotary_emb_base": 20, "rope_scaling": YARN},
                      {"rotary_emb_base": 20, "rope_parameters": {"rope_type": "default", "rope_theta": 555.0}},
                      {"rotary_pct": 0.5}, {"rotary_pct": 0.5, "partial_rotary_factor": 1.0},
                      {"partial_rotary_factor": 1.0}, {"rotary_pct": None}):
            yield {"without": ropes, "set": given}
    if name == "gemma3":
        for given in ({"rope_theta": 777.0, "rope_local_base_freq": 55.0},
                      {"rope_local_base_freq": None, "rope_theta": 777.0},
                      {"rope_scaling": {"rope_type": "linear", "factor": 8.0}, "rope_theta": 777.0},
                      {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 5.0}}},
                      {"rope_parameters": {"full_attention": None, "sliding_attention": None}}):
            yield {"without": ropes, "set": given}
        for pattern in ("sliding_window_pattern", "_sliding_window_pattern"):
            yield {"without": ["layer_types", "sliding_window_pattern", "_sliding_window_pattern"], "set": {pattern: 2}}
    if name == "olmo3":
        for given in ({"rope_scaling": YARN, "rope_theta": 777.0},
                      {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 5.0}}},
                      {"rope_parameters": {"full_attention": None, "sliding_attention": None}}):
            yield {"without": ropes, "set": given}
        yield {"without": ["layer_types"], "set": {"num_hidden_layers": 6}}
    if name == "smollm3":
        for given in ({"no_rope_layer_interval": 3}, {"use_sliding_window": True, "sliding_window": 5},
                      {"sliding_window": 5}):
            yield {"without": ["no_rope_layers", "layer_types"], "set": given}
    if name == "minimax-m2":
        for given in ({"rotary_dim": 6}, {"rotary_dim": 6, "partial_rotary_factor": 1.0},
                      {"rotary_dim": 6, "rope_theta": 777.0}, {"partial_rotary_factor": 0.5}):
            yield {"without": ropes, "set": given}
        yield {"set": {"rotary_dim": 4}}
    if name in ("deepseek-v32", "glm-moe-dsa"):
        dense = ["first_k_dense_replace", "mlp_layer_types"]
        for given in ({"first_k_dense_replace": 2}, {"first_k_dense_replace": 99},
                      {"first_k_dense_replace": 2, "mlp_layer_types": config["mlp_layer_types"]}):
            yield {"without": dense, "set": given}
        yield {"set": {"head_dim": 99}}
    if name == "glm-moe-dsa":
        for given in ({"index_topk_freq": 2}, {"index_topk_freq": 2, "index_skip_topk_offset": 1},
                      {"index_topk_freq": 0},
                      {"index_topk_pattern": "FFSS"}, {"index_topk_pattern": ["full", "shared", "shared", "full"]},
                      {"index_topk_pattern": None, "index_topk_freq": 2}):
            yield {"without": ["indexer_types"], "set": given}
        yield {"set": {"index_topk_freq": 4}}  # indexer_types decide
    if name == "deepseek-v3-moe":
        yield {"set": {"rope_interleave": None}}


def main():
    rows = []
    for base in BASES:
        config = json.loads((GOLDEN / base / "config.json").read_text())
        keys = sorted(set(config) - IGNORED - ({"first_k_dense_replace"} if "mlp_layer_types" in config else set()))
        whole = read(config, keys)
        assert whole is not None, base
        rows.append({"base": base, "expected": whole})
        for change in changes_of(base, config):
            changed = {k: v for k, v in config.items() if k not in change.get("without", [])}
            changed.update(change.get("set", {}))
            found = read(changed, keys)
            row = {"base": base, **change}
            if found is None:
                row["refused"] = True
            else:
                row["expected"] = {k: v for k, v in found.items() if k not in whole or whole[k] != v}
                if gone := [k for k in whole if k not in found]:
                    row["gone"] = gone  # the class lacks this attribute
            rows.append(row)
    # Vision-language models: the sizes are in text_config, and published files set only a few of them.
    text = json.loads((GOLDEN / "gemma3/config.json").read_text())
    keys = sorted(set(text) - IGNORED)
    few = {k: text[k] for k in ("hidden_size", "intermediate_size", "num_hidden_layers", "sliding_window", "model_type")}
    for part in (text, few, {k: v for k, v in few.items() if k != "model_type"},
                 {**few, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}):
        config = {"model_type": "gemma3", "text_config": part}
        found = read(config, keys)
        rows.append({"config": config, **({"refused": True} if found is None else {"expected": found})})
    lines = ",\n".join(json.dumps(row, sort_keys=False) for row in rows)
    (GOLDEN / "configs.json").write_text("[\n" + lines + "\n]\n")
    refused = sum("refused" in row for row in rows)
    print(f"transformers {transformers.__version__}: {len(rows)} files, {refused} of them refused")


if __name__ == "__main__":
    main()
