#!/usr/bin/env python3
"""Checks an exported Hugging Face directory of a BERT or T5: it loads in transformers without a warning, and has the loss
of `strata eval` on the same masked tokens (drawn again here). BERT's fill-mask finds its mask token, and T5's greedy
text equals that of `strata generate`.

    python3 tools/golden/check_encoders.py build/release/bin/strata EXPORTED_DIRECTORY [TEXT]

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
from transformers import AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoTokenizer, pipeline

LENGTH = 48
MASK_RATE = 0.15
SPAN_RATE, MEAN_SPAN = 0.2, 1000.0  # one span at the end of each window, so nothing is random
said = []


class Listener(logging.Handler):
    def emit(self, record):
        if record.levelno >= logging.WARNING:
            said.append(record.getMessage())


def strata(program, *words):
    out = subprocess.run([program, *words], check=True, capture_output=True, text=True).stdout
    return json.loads(out.splitlines()[0])


def philox(stream, counter, high):
    """base/random.cpp, for seed 0."""
    x, k0, k1 = [counter & 0xFFFFFFFF, counter >> 32, stream, high], 0, 0
    for _ in range(10):
        p0, p1 = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [(p1 >> 32) ^ x[1] ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ x[3] ^ k1, p0 & 0xFFFFFFFF]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return x


class Draws:
    """data/rows.h: the random numbers of a window."""

    def __init__(self, row):
        self.row, self.at = row, 0

    def next(self):
        value = philox(0x6D61736B, self.row, self.at // 4)[self.at % 4]
        self.at += 1
        return value


def mask(ids, row, tokenizer, special):
    """A window's tokens, some of them masked, and the targets."""
    draws, tokens, targets = Draws(row), list(ids), [-100] * len(ids)
    for j, token in enumerate(ids):
        if draws.next() / 2**32 >= MASK_RATE or token in special:
            continue
        targets[j] = token
        what = draws.next() / 2**32
        if what < 0.8:
            tokens[j] = tokenizer.mask_token_id
        elif what < 0.9:
            tokens[j] = draws.next() * len(tokenizer) >> 32
    return tokens, targets


def masked_loss(model, tokenizer, ids):
    special = set(tokenizer.all_special_ids)
    total, count = 0.0, 0
    for row, begin in enumerate(range(0, len(ids), LENGTH)):
        tokens, targets = mask(ids[begin:begin + LENGTH], row, tokenizer, special)
        if len(tokens) < 2:
            continue
        logits = model(torch.tensor([tokens])).logits[0].double()
        total += torch.nn.functional.cross_entropy(logits, torch.tensor(targets), reduction="sum", ignore_index=-100).item()
        count += sum(target != -100 for target in targets)
    return total, count


def span_loss(model, tokenizer, ids):
    end, sentinel = tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<extra_id_0>")
    noise_of = lambda n: min(max(round(n * SPAN_RATE), 1), n - 1)
    window = LENGTH - 1
    while window + 1 - noise_of(window + 1) + 2 <= LENGTH:
        window += 1
    total, count = 0.0, 0
    for begin in range(0, len(ids), window):
        piece = ids[begin:begin + window]
        if len(piece) < 2:
            continue
        kept = len(piece) - noise_of(len(piece))
        target = [sentinel, *piece[kept:], end]
        loss = model(input_ids=torch.tensor([[*piece[:kept], sentinel, end]]), labels=torch.tensor([target])).loss
        total, count = total + loss.item() * len(target), count + len(target)
    return total, count


def main():
    program, folder = sys.argv[1:3]
    text = sys.argv[3] if len(sys.argv) > 3 else "the"
    transformers.logging.get_logger("transformers").addHandler(Listener())
    with open(os.path.join(folder, "config.json")) as config:
        is_bert = json.load(config)["model_type"] == "bert"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, info = (AutoModelForMaskedLM if is_bert else AutoModelForSeq2SeqLM).from_pretrained(
            folder, dtype=torch.float32, output_loading_info=True)
        tokenizer = AutoTokenizer.from_pretrained(folder)
    said.extend(str(w.message) for w in caught if "transformers" in (w.filename or ""))
    assert not said, said
    assert not any(info.get(k) for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    model.eval()

    random.seed(1)
    ids = [random.randrange(len(tokenizer)) for _ in range(1001)]
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "t.bin")
        np.array(ids, dtype=np.uint32).tofile(path)
        with open(path[:-4] + ".json", "w") as meta:
            json.dump({"dtype": "u32", "vocab_size": model.config.vocab_size}, meta)
        rates = [f"data.mask_rate={MASK_RATE}"] if is_bert else [f"data.mask_rate={SPAN_RATE}", f"data.mean_span={MEAN_SPAN}"]
        sets = [word for rate in [*rates, "precision.compute=fp32"] for word in ("--set", rate)]
        found = strata(program, "eval", "--model", folder, "--tokens", path, "--sequence-length", str(LENGTH), *sets, "--json")
    with torch.no_grad():
        total, count = (masked_loss if is_bert else span_loss)(model, tokenizer, ids)
    print(f"loss: strata {found['loss']:.6f}, transformers {total / count:.6f}, {count} tokens")
    assert found["tokens"] == count, found
    assert abs(found["loss"] - total / count) < 1e-4

    encoded = strata(program, "tokenizer", "encode", "--tokenizer", os.path.join(folder, "tokenizer.json"), "--text", text)
    assert encoded["ids"] == tokenizer(text, add_special_tokens=False)["input_ids"]
    if is_bert:
        answers = pipeline("fill-mask", model=model, tokenizer=tokenizer)(f"{text} {tokenizer.mask_token} {text}")
        print("fill-mask:", [(answer["token_str"], round(answer["score"], 3)) for answer in answers])
    else:
        # Its cache needs stacks of equal depth.
        made = model.generate(**tokenizer(text, return_tensors="pt"), max_new_tokens=20, do_sample=False,
                              use_cache=False)[0][1:].tolist()
        made = made[:made.index(tokenizer.eos_token_id)] if tokenizer.eos_token_id in made else made
        ours = strata(program, "generate", "--model", folder, "--prompt", text, "--max-tokens", "20", "--temperature", "0",
                      "--set", "precision.compute=fp32", "--json")["ids"]
        print("greedy: strata", ours, "transformers", made)
        assert ours == made
    assert not said, said
    print("equal, no warnings")


if __name__ == "__main__":
    main()
