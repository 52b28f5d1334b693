#!/usr/bin/env python3
"""Writes stream.json to the golden models under tests/models/golden/: the expected run from such a directory.

Each model is loaded from its directory with from_pretrained and trained for six steps of two sequences of 32 tokens on a
plain stream: sample i reads tokens [32 i, 32 i + 33), in order. torch.optim.AdamW in fp32: constant lr 1e-3, betas 0.9
and 0.95, eps 1e-8, weight decay 0.1 on tensors with two or more dimensions, gradients clipped to a global norm of 1. The
file contains

  tokens      the stream
  loss        of each step, before its update
  grad_norm   of each step, before clipping

Needs torch, transformers and safetensors, and the directories of make_model_golden.py. Run it in the repository's root;
the same versions write the same files.
"""

import json
import pathlib

import torch
from transformers import AutoModelForCausalLM

LENGTH, BATCH, STEPS = 32, 2, 6


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    root = pathlib.Path(__file__).resolve().parents[2] / "tests" / "models" / "golden"
    for seed, folder in enumerate(sorted(path.parent for path in root.glob("*/config.json"))):
        model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
        model.train()
        generator = torch.Generator().manual_seed(100 + seed)
        tokens = torch.randint(1, model.config.vocab_size, (STEPS * BATCH * LENGTH + 1,), generator=generator)
        decay = [p for p in model.parameters() if p.dim() >= 2]
        rest = [p for p in model.parameters() if p.dim() < 2]
        optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
                                      lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
        losses, norms = [], []
        for step in range(STEPS):
            begins = [(step * BATCH + row) * LENGTH for row in range(BATCH)]
            rows = torch.stack([tokens[begin:begin + LENGTH + 1] for begin in begins])
            optimizer.zero_grad()
            logits = model(rows[:, :-1]).logits
            loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), rows[:, 1:].reshape(-1))
            loss.backward()
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
            losses.append(loss.item())
            optimizer.step()
        with open(folder / "stream.json", "w") as file:
            json.dump({"tokens": tokens.tolist(), "loss": losses, "grad_norm": norms}, file)
            file.write("\n")
        print(folder.name, losses, norms)


if __name__ == "__main__":
    main()
