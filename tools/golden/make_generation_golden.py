#!/usr/bin/env python3
"""Writes tests/inference/generation.json: results of transformers for the options of generate().

  sampling   cases of logits, history and options → the candidate ids and their probabilities, from the processors of
             transformers in the order in which generate() applies them
  greedy     model (of tests/evaluation/tasks) → prompts and the ids that generate() adds to each, one prompt at a time

Needs torch, transformers and tokenizers, and the models of make_task_golden.py. Run it in the repository's root.
"""

import json
import pathlib

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

ROOT = pathlib.Path(__file__).resolve().parents[2] / "tests"
CASES = [
    dict(),
    dict(temperature=0.6),
    dict(top_k=5),
    dict(top_k=1),
    dict(top_p=0.7),
    dict(top_p=0.01),
    dict(min_p=0.15),
    dict(repetition_penalty=1.7),
    dict(repetition_penalty=0.6, temperature=1.3),
    dict(temperature=2.5, top_k=12, top_p=0.8),
    dict(temperature=0.4, top_k=20, min_p=0.02),
    dict(temperature=1.4, top_k=18, top_p=0.85, min_p=0.1, repetition_penalty=1.2),
    dict(temperature=0.9, top_p=0.9, min_p=0.3),
]
PROMPTS = ["The", "How do I open a jar? I", "", "A man runs along the beach with a board. He is tall and he waits for a wave "
           "that never comes, and then he goes home.", "Почему небо синее?", "to", "12 34 56"]


def sampling_cases(model):
    generator = torch.Generator().manual_seed(3)
    cases = []
    for switches in CASES:
        logits = (2 * torch.randn(40, generator=generator)).round(decimals=2)
        logits[7] = logits[11]  # a tie
        history = torch.randint(0, 40, (9,), generator=generator)
        config = GenerationConfig(do_sample=True, **({"top_k": 0} | switches))
        model._prepare_special_tokens(config, kwargs_has_attention_mask=True, device="cpu")
        processors = model._get_logits_processor(config, input_ids_seq_length=len(history), device="cpu")
        scores = processors(history[None], logits[None].clone())[0]
        probabilities = torch.softmax(scores.double(), dim=-1)
        kept = [i for i in range(40) if torch.isfinite(scores[i])]
        cases.append({"switches": switches, "logits": logits.tolist(), "history": history.tolist(), "ids": kept,
                      "probabilities": [probabilities[i].item() for i in kept]})
    return cases


def greedy_texts(name):
    model = AutoModelForCausalLM.from_pretrained(ROOT / "evaluation" / "tasks" / name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "evaluation" / "tasks" / name)
    texts = []
    for prompt in PROMPTS:
        ids = tokenizer.encode(prompt)
        if not ids:
            ids = [tokenizer.eos_token_id]
        out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), do_sample=False,
                             max_new_tokens=30, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.eos_token_id)
        made = out[0, len(ids):].tolist()
        if made and made[-1] == tokenizer.eos_token_id:
            made.pop()
        texts.append({"prompt": prompt, "ids": made})
    return texts


def main():
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(ROOT / "evaluation" / "tasks" / "gpt2")
    with open(ROOT / "inference" / "generation.json", "w") as file:
        json.dump({"sampling": sampling_cases(model), "greedy": {name: greedy_texts(name) for name in ("llama", "gpt2")}},
                  file)
        file.write("\n")


if __name__ == "__main__":
    main()
