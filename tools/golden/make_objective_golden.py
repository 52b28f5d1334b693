#!/usr/bin/env python3
"""Writes tests/data/objective.json: the rates at which transformers' DataCollatorForLanguageModeling selects and replaces
tokens, and the lengths of span corruption by the formulas of Raffel et al. 2020. Needs transformers and numpy."""

import json
import pathlib

import numpy as np
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

ROOT = pathlib.Path(__file__).resolve().parents[2]
RATES = [(0.15, 3.0), (0.15, 8.0), (0.15, 1.0), (0.1, 2.0), (0.25, 5.0), (0.3, 1.5), (0.5, 3.0), (0.5, 10.0), (0.5, 32.0)]
LENGTHS = [24, 31, 50, 64, 100, 114, 128, 229, 256, 300, 512, 568, 777, 1000, 1024, 1025, 2048, 4096]


def collator_counts(rate, batches=64, rows=32, length=512):
    """Counts the replacements of selectable tokens in random ids, some of them special."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(ROOT / "tests/data/tokenizer/kinds/bert.json"), unk_token="[UNK]", sep_token="[SEP]",
        pad_token="[PAD]", cls_token="[CLS]", mask_token="[MASK]")
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=rate, return_tensors="np", seed=1)
    collator.create_rng()
    special = np.array(sorted(tokenizer.all_special_ids))
    rng = np.random.default_rng(2)
    counts = dict.fromkeys(["plain", "chosen", "special_chosen", "mask", "same", "special", "other"], 0)
    for _ in range(batches):
        ids = rng.integers(len(tokenizer), size=(rows, length))
        is_special = np.isin(ids, special)
        inputs, labels = collator.numpy_mask_tokens(ids.copy())
        chosen = labels != -100
        assert (labels[chosen] == ids[chosen]).all() and (inputs[~chosen] == ids[~chosen]).all()
        mask = chosen & (inputs == tokenizer.mask_token_id)
        same = chosen & (inputs == ids)
        counts["plain"] += int((~is_special).sum())
        counts["chosen"] += int(chosen.sum())
        counts["special_chosen"] += int((chosen & is_special).sum())
        counts["mask"] += int(mask.sum())
        counts["same"] += int(same.sum())
        became_special = chosen & np.isin(inputs, special) & ~mask
        counts["special"] += int(became_special.sum())
        counts["other"] += int((chosen & ~mask & ~same & ~became_special).sum())
    return {"rate": rate, "vocabulary": len(tokenizer), "special_ids": special.tolist(),
            "mask_id": tokenizer.mask_token_id} | counts


def spans(tokens, rate, mean):
    noise = min(max(int(np.round(tokens * rate)), 1), tokens - 1)
    return noise, max(int(np.round(noise / mean)), 1)


def lengths(source, rate, mean):
    """None if a window during the search would have no span, a case that the published search does not handle."""
    def both(tokens):
        noise = int(round(tokens * rate))
        count = int(round(noise / mean))
        return None if count == 0 else (tokens - noise + count + 1, noise + count + 1)

    tokens = source - 1
    if both(tokens) is None:
        return None
    while both(tokens + 1)[0] <= source:
        tokens += 1
    encoded, target = both(tokens)
    if rate == 0.5 and target > encoded:
        tokens, target = tokens - 1, target - 1
    return {"source": source, "rate": rate, "mean_span": mean, "window": tokens, "target": target}


def main():
    table = [row for rate, mean in RATES for length in LENGTHS if (row := lengths(length, rate, mean))]
    counts = [{"rate": rate, "mean_span": mean,
               "counts": [spans(n, rate, mean) for n in range(2, 130)]} for rate, mean in RATES]
    golden = {"collator": [collator_counts(rate) for rate in (0.15, 0.4)], "lengths": table, "counts": counts}
    path = ROOT / "tests" / "data" / "samples/objective.json"
    path.write_text(json.dumps(golden, separators=(",", ":")).replace('{"', '\n{"') + "\n")
    print(golden["collator"], len(table), "lengths", lengths(512, 0.15, 3.0))


if __name__ == "__main__":
    main()
