#!/usr/bin/env python3
"""Writes tests/models/golden/rope.json: frequencies and magnitudes of rotary embedding that transformers computes from a
config.json, for every kind of scaling. Needs torch and transformers."""

import json
import pathlib

import torch
from transformers import LlamaConfig, Phi3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

POSITIONS = 4096
SCALINGS = {
    "default": None,
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 3.0},
    "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 512},
    "yarn": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 512},
    "yarn-tuned": {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 128, "beta_fast": 16,
                   "beta_slow": 2, "mscale": 0.707, "mscale_all_dim": 1.0, "truncate": False},
    "yarn-attention-factor": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 2048,
                              "attention_factor": 1.3},
    "longrope": {"rope_type": "longrope", "short_factor": [1.0 + 0.01 * i for i in range(16)],
                 "long_factor": [1.0 + 0.3 * i for i in range(16)], "original_max_position_embeddings": 1024},
}


def main():
    cases = []
    for name, scaling in SCALINGS.items():
        cls = Phi3Config if name == "longrope" else LlamaConfig
        sizes = dict(vocab_size=64, hidden_size=64, num_attention_heads=2, num_key_value_heads=2, intermediate_size=64,
                     num_hidden_layers=1, max_position_embeddings=POSITIONS, pad_token_id=None)
        if cls is Phi3Config:
            sizes["original_max_position_embeddings"] = 1024
        text = sizes | {"model_type": cls.model_type, "rope_theta": 50000.0, "rope_scaling": scaling}
        for length in [256, POSITIONS] + ([2 * POSITIONS] if name == "dynamic" else []):
            config = cls(**(sizes | {"rope_parameters": {"rope_theta": 50000.0} | (scaling or {"rope_type": "default"})}))
            if scaling is None:
                exponents = torch.arange(0, 32, 2, dtype=torch.int64).float() / 32
                frequencies, magnitude = 1.0 / (50000.0**exponents), 1.0
            else:
                frequencies, magnitude = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, "cpu", seq_len=length)
            cases.append({"name": f"{name} {length}", "config": json.dumps(text), "positions": length,
                          "frequencies": frequencies.tolist(), "magnitude": magnitude})
    path = pathlib.Path(__file__).resolve().parents[2] / "tests" / "models" / "golden" / "rope.json"
    path.write_text(json.dumps(cases, indent=1) + "\n")
    print(len(cases), "cases")


if __name__ == "__main__":
    main()
