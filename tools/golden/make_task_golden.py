#!/usr/bin/env python3
"""Writes tests/evaluation/tasks/: evaluation tasks and their scores by lm-evaluation-harness.

  hellaswag.jsonl, arc.jsonl, piqa.jsonl, lambada.jsonl
                 questions written for these tests in the formats of the published data sets, with difficult texts:
                 WikiHow markup, capitals, other scripts, double spaces, long contexts, a text of one word;
                 lambada.jsonl also has texts with a last word that one of the models predicts
  llama, gpt2    tiny random models saved by transformers: one with a begin-of-text token before every text,
                 one without. Both have fewer positions than the longest question has tokens
  expected.json  model → task → metrics (acc, acc_norm, perplexity and the standard errors of the accuracies) and
                 samples: per question the harness's log-likelihoods and whether they are greedy

Needs torch, transformers, tokenizers and lm_eval (0.4.13). Run it in the repository's root; the same versions write the
same files.
"""

import json
import pathlib
import shutil
import tempfile

import lm_eval
import torch
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "evaluation" / "tasks"
TOKENIZERS = ROOT / "tests" / "data" / "tokenizer" / "golden"
TASKS = {"hellaswag": "hellaswag/hellaswag.yaml", "arc_easy": "arc/arc_easy.yaml", "piqa": "piqa/piqa.yaml",
         "lambada_openai": "lambada/lambada_openai.yaml"}
FILES = {"hellaswag": "hellaswag.jsonl", "arc_easy": "arc.jsonl", "piqa": "piqa.jsonl", "lambada_openai": "lambada.jsonl"}

HELLASWAG = [
    ("Baking a loaf", "A woman puts flour into a bowl.", "she", ["adds water and salt.", "flies over the lake.",
     "paints the bowl [substeps] blue.", "sings to the   flour."], 0),
    ("Removing ice from car", "Then, the man writes over the snow covering the window of a car, and a woman wearing "
     "winter clothes smiles.", "then", [", the man adds wax to the windshield and cuts it.", ", a person boards a ski "
     "lift, while two men supporting the head of the person.", ", the man puts on a christmas coat, knitted with "
     "netting.", ", the man continues removing the snow on his car."], 3),
    ("Health", "[header] How to sleep well [title] Go to bed early. [step] The body likes [substeps] a rhythm.  It "
     "does not like   surprises.", "", ["[step] Drink warm milk.", "[title] Wake up late. [step] Stay there.",
     "Never close the eyes.", "Read [a] book [about] the sea."], 1),
    ("Family Life", "[header] Wie man gut schläft [title] Früh ins Bett gehen.", "ÜBER NACHT RUHEN ΟΔΟΣ", ["Trinkt "
     "Milch.", "Läuft schnell weg.", "Schläft am Tag.", "Ißt nichts."], 2),
    ("Playing chess", " Two people sit at a table. " * 12, "One of them", ["moves a pawn.", "eats the king.", "stands.",
     "falls asleep on the board and does not wake up until the evening."], 0),
    ("Surfing", "A man [runs along the\nbeach] with a board.", "iS tall and HE", ["waits.", "waits for a wave.",
     "waits for a wave that never comes.", "goes home."], 1),
    ("Knitting", "The hands hold two needles.", "đespite the cold they", ["knit.", "rest.", "shake a lot.", "burn."], 2),
    ("Running", "People line up at the start.", "a", ["shot is fired.", "dog wins.", "man ties his shoe.",
     "tree falls."], 0),
]
ARC = [
    ("Which of these is a mammal?", ["A whale", "A trout", "A frog", "A hawk"], "ABCD", "A"),
    ("What do plants take from the air?", ["iron", "carbon dioxide", "sand"], "123", "2"),
    ("Water boils at sea level at", ["0 °C", "50 °C", "100 °C", "200 °C", "no temperature"], "ABCDE", "C"),
    ("An astronomer sees that a planet turns faster after a meteorite hit it. Which is the most likely effect?",
     ["Its density falls.", "Its years grow longer.", "Its days grow shorter.", "Its gravity grows."], "ABCD", "C"),
    ("Почему небо синее?  ", ["Из-за рассеяния света", "Из-за моря", "Никто не знает"], "ABC", "A"),
    ("Where does the energy of a food chain come from? " * 6, ["the sun", "the soil"], "12", "1"),
]
PIQA = [
    ("How do I open a jar?", "Turn the lid to the left.", "Turn the lid to the right.", 0),
    ("To cool a drink,", "put it in the oven", "put it in the fridge", 1),
    ("dry wet shoes", "Stuff them with newspaper, and change the paper every hour until it stays dry.",
     "Stuff them with wet leaves.", 0),
    ("clean a window  ", "use vinegar 🙂", "use oil", 0),
    ("When boiling butter, when it's ready, you can", "Pour it onto a plate", "Pour it into a jar", 1),
]
LAMBADA = [
    "The old man looked at the sea, and the sea looked back at him, and neither of them said a word",
    "She opened the door and there stood her brother, whom she had not seen for years. \"Come in,\" she said to her brother",
    "He called the dog, but there was no  dog",
    "\"Give me the money,\" said the thief, and he gave him all his money",
    "Der Wind wehte über die Felder, und niemand hörte den Wind",
    "alone",
    "The end of the line\nis here ",
    "We walked and walked until we came to the end of the road. " * 9 + "There was no more road",
]


def write_jsonl(name, rows):
    with open(OUT / name, "w") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def randomize(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() >= 2:
            parameter.data = noise * (0.5 if "wte" in name or "embed_tokens" in name else parameter.shape[-1] ** -0.5)
        elif name.endswith("bias"):
            parameter.data = 0.1 * noise
        else:
            parameter.data = 1.0 + 0.2 * noise
    model.tie_weights()


def make_models():
    llama = LlamaForCausalLM(LlamaConfig(
        vocab_size=283, hidden_size=24, num_attention_heads=3, num_key_value_heads=1, head_dim=8, intermediate_size=40,
        num_hidden_layers=2, max_position_embeddings=160, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}))
    gpt2 = GPT2LMHeadModel(GPT2Config(
        vocab_size=520, n_positions=128, n_embd=24, n_head=3, n_layer=2, bos_token_id=0, eos_token_id=0))
    for seed, (name, model, tokenizer, config) in enumerate([
            ("llama", llama, "llama2.json", {"bos_token": "<s>", "eos_token": "</s>"}),
            ("gpt2", gpt2, "gpt2_trained.json", {"eos_token": "<|endoftext|>"})]):
        randomize(model, 7 + seed)
        model.save_pretrained(OUT / name)
        shutil.copy(TOKENIZERS / tokenizer, OUT / name / "tokenizer.json")
        with open(OUT / name / "tokenizer_config.json", "w") as file:
            json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False} | config, file)
            file.write("\n")


def greedy_texts():
    """Texts with a last word that a model predicts, a few for each model."""
    texts = []
    for name, kind in (("llama", LlamaForCausalLM), ("gpt2", GPT2LMHeadModel)):
        model = kind.from_pretrained(OUT / name)
        tokenizer = AutoTokenizer.from_pretrained(OUT / name)
        found = 0
        words = " ".join(LAMBADA[:4] + [b for _, b, *_ in PIQA]).split()
        for i in range(3000):
            context = " ".join(words[i * (k + 3) * 7919 // (k + 1) % len(words)] for k in range(4 + i % 7))
            ids = tokenizer.encode(context)
            with torch.no_grad():
                best = model(torch.tensor([ids])).logits[0, -1].argmax().item()
            whole = tokenizer.decode(ids + [best], skip_special_tokens=True)
            word = whole[len(context):]
            good = word.startswith(" ") and word.strip().isalpha() and tokenizer.encode(whole) == ids + [best]
            if good and not any(text.endswith(word) for text in texts):
                texts.append(whole)
                found += 1
            if found == 3:
                break
        print(name, "greedy texts:", texts)
    return texts


def evaluate(model):
    manager = TaskManager()
    folder = pathlib.Path(lm_eval.__file__).parent / "tasks"
    lm = HFLM(pretrained=str(OUT / model), device="cpu", dtype="float32", batch_size=1)
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        for task, file in TASKS.items():
            yaml = pathlib.Path(temporary) / f"local_{task}.yaml"
            yaml.write_text(
                f"include: {folder / file}\ntask: local_{task}\ntag: null\ndataset_path: json\ndataset_name: null\n"
                f"dataset_kwargs:\n  data_files:\n    test: {OUT / FILES[task]}\ntraining_split: null\n"
                f"validation_split: null\ntest_split: test\n")
            found = lm_eval.simple_evaluate(
                model=lm, tasks=[str(yaml)], task_manager=manager, log_samples=True, bootstrap_iters=10)
            (name,) = found["results"]
            metrics = {key.split(",")[0]: value for key, value in found["results"][name].items()
                       if key.split(",")[0] in ("acc", "acc_norm", "perplexity", "acc_stderr", "acc_norm_stderr")}
            samples = []
            for sample in sorted(found["samples"][name], key=lambda s: s["doc_id"]):
                samples.append({"loglikelihoods": [r[0][0] for r in sample["resps"]],
                                "greedy": [bool(r[0][1]) for r in sample["resps"]],
                                "acc": sample["acc"], "acc_norm": sample.get("acc_norm")})
            results[task] = {"metrics": metrics, "samples": samples}
            print(model, task, metrics)
    return results


def main():
    torch.set_num_threads(1)
    OUT.mkdir(parents=True, exist_ok=True)
    make_models()
    write_jsonl("hellaswag.jsonl", [
        {"ind": i, "activity_label": activity, "ctx_a": a, "ctx_b": b, "ctx": f"{a} {b}", "endings": endings,
         "source_id": "ours", "split": "val", "split_type": "indomain", "label": str(label)}
        for i, (activity, a, b, endings, label) in enumerate(HELLASWAG)])
    write_jsonl("arc.jsonl", [
        {"id": f"ours_{i}", "question": question, "choices": {"text": texts, "label": list(labels)}, "answerKey": key}
        for i, (question, texts, labels, key) in enumerate(ARC)])
    write_jsonl("piqa.jsonl", [{"goal": g, "sol1": a, "sol2": b, "label": label} for g, a, b, label in PIQA])
    write_jsonl("lambada.jsonl", [{"text": text} for text in LAMBADA + greedy_texts()])
    with open(OUT / "expected.json", "w") as file:
        json.dump({model: evaluate(model) for model in ("llama", "gpt2")}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
