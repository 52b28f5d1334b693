#!/usr/bin/env python3
"""Checks an exported Hugging Face directory: it loads in transformers without a warning, and loss and greedy text equal
those of `strata eval` and `strata generate`.

    python3 tools/golden/check_hf_export.py build/release/bin/strata EXPORTED_DIRECTORY [PROMPT]

Needs torch, transformers and tokenizers. Not part of the tests, which need no Python.
"""
import json
import logging
import os
import random
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

LENGTH = 48
said = []


class Listener(logging.Handler):
    def emit(self, record):
        if record.levelno >= logging.WARNING:
            said.append(record.getMessage())


def strata(program, *words):
    json_flag = [] if words[0] == "tokenizer" else ["--json"]
    out = subprocess.run([program, *words, *json_flag], check=True, capture_output=True, text=True).stdout
    return json.loads(out.splitlines()[0])


def main():
    program, folder = sys.argv[1:3]
    prompt = sys.argv[3] if len(sys.argv) > 3 else "the"
    transformers.logging.get_logger("transformers").addHandler(Listener())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
        tokenizer = AutoTokenizer.from_pretrained(folder)
    said.extend(str(w.message) for w in caught if "transformers" in (w.filename or ""))
    assert not said, said
    assert not any(info.get(k) for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    model.eval()

    random.seed(1)
    vocab = len(tokenizer)
    ids = [random.randrange(1, vocab) for _ in range(1000)]
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "t.bin")
        np.array(ids, dtype=np.uint32).tofile(path)
        with open(path[:-4] + ".json", "w") as meta:
            json.dump({"dtype": "u32", "vocab_size": model.config.vocab_size}, meta)
        found = strata(program, "eval", "--model", folder, "--tokens", path, "--sequence-length", str(LENGTH),
                       "--set", "precision.compute=fp32")
    total, count = 0.0, 0
    with torch.no_grad():
        for begin in range(0, len(ids) - 1, LENGTH):
            window = torch.tensor([ids[begin:begin + LENGTH + 1]])
            logits = model(window[:, :-1]).logits[0].double()
            total += torch.nn.functional.cross_entropy(logits, window[0, 1:], reduction="sum").item()
            count += window.shape[1] - 1
    print(f"loss: strata {found['loss']:.6f}, transformers {total / count:.6f}, {count} tokens")
    assert found["tokens"] == count
    assert abs(found["loss"] - total / count) < 1e-4

    text = "Ünïcode and\nlines, <|endoftext|> 123"
    encoded = strata(program, "tokenizer", "encode", "--tokenizer", os.path.join(folder, "tokenizer.json"), "--text", text) \
        if os.path.exists(os.path.join(folder, "tokenizer.json")) else None
    if encoded is not None:
        assert encoded["ids"] == tokenizer(text, add_special_tokens=False)["input_ids"]
    start = tokenizer(prompt, return_tensors="pt")
    made = model.generate(**start, max_new_tokens=20, do_sample=False, pad_token_id=0)[0][start.input_ids.shape[1]:].tolist()
    eos = model.generation_config.eos_token_id
    made = made[:made.index(eos)] if eos in made else made
    ours = strata(program, "generate", "--model", folder, "--prompt", prompt, "--max-tokens", "20", "--temperature", "0",
                  "--set", "precision.compute=fp32")["ids"]
    print("greedy: strata", ours, "transformers", made)
    assert ours == made
    print("equal, no warnings")


if __name__ == "__main__":
    main()
