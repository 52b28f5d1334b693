#!/usr/bin/env python3
"""Writes tests/data/tokenizer/golden/text_ends.json: the ids from Hugging Face tokenizers (0.22) for special tokens that are
spelled out in a text and treated as text (encode_special_tokens), and the begin- and end-of-text tokens that transformers
(4.57) finds in the files of a tokenizer.

    python tools/golden/make_text_ends_golden.py tests/data/tokenizer

{"special_as_text": {FILE: [[text, ids], …]}, "ends": [{"files": {NAME: content}, "eos", "bos", "prompt": ids of "a"}, …]}
"""
import json
import pathlib
import sys
import tempfile

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoTokenizer

FILES = ["golden/" + n for n in "deepseek engine falcon gpt2 llama2 llama3 o200k prefix qwen starcoder".split()]
FILES += ["kinds/" + n for n in "bert clip olmo2 llama2_legacy".split()]  # unigram models still recognize their special tokens


def special_as_text(root):
    out = {}
    for name in FILES:
        path = root / (name + ".json")
        tokenizer = Tokenizer.from_file(str(path))
        special = [a["content"] for a in json.loads(path.read_text())["added_tokens"] if a["special"]]
        texts = []
        for s in special[:4]:
            texts += [f"one {s}two{s}{s} three", s, f" {s} \n{s}x", s[:-1] + s, s + s[1:]]
        texts.append("".join(special[:5]) + " a " + " ".join(special[:5]))
        tokenizer.encode_special_tokens = True
        out[name] = [[t, tokenizer.encode(t, add_special_tokens=False).ids] for t in texts]
    return out


SPECIAL = ["<|endoftext|>", "<s>", "</s>", "<|im_end|>"]  # the ids 256 to 259


def byte_tokenizer(before):
    letters = {}
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    more = [b for b in range(256) if b not in keep]
    for b in range(256):
        letters[chr(b if b in keep else 256 + more.index(b))] = b
    tokenizer = Tokenizer(models.BPE(vocab=letters, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(s, normalized=False, special=True) for s in SPECIAL])
    if before:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{before} $A", pair=f"{before} $A $B", special_tokens=[(before, tokenizer.token_to_id(before))])
    return tokenizer


CASES = [
    dict(eos_token="<|im_end|>", bos_token=None),
    dict(eos_token="<|endoftext|>"),
    dict(eos_token={"__type": "AddedToken", "content": "</s>", "lstrip": False, "normalized": False, "rstrip": False,
                    "single_word": False}, bos_token="<s>"),
    dict(eos_token="</s>", bos_token="<s>", before="<s>"),
    dict(eos_token="<|endoftext|>", bos_token="<|endoftext|>", before="<|endoftext|>"),
    dict(eos_token="</s>", bos_token="<s>", add_bos_token=True, tokenizer_class="LlamaTokenizerFast"),
    dict(eos_token="</s>", bos_token="<s>", add_bos_token=True, before="<s>", tokenizer_class="LlamaTokenizerFast"),
    dict(eos_token="</s>", bos_token="<s>", add_bos_token=False, tokenizer_class="LlamaTokenizerFast"),
    dict(map=dict(eos_token="<|im_end|>", bos_token="<s>")),
]


def ends():
    out = []
    for case in CASES:
        config = dict(case)
        before, special_map = config.pop("before", None), config.pop("map", None)
        config.setdefault("tokenizer_class", "PreTrainedTokenizerFast")
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            byte_tokenizer(before).save(str(folder / "tokenizer.json"), pretty=False)
            (folder / "tokenizer_config.json").write_text(json.dumps(config))
            if special_map:
                (folder / "special_tokens_map.json").write_text(json.dumps(special_map))
            files = {f.name: f.read_text() for f in sorted(folder.iterdir())}
            tokenizer = AutoTokenizer.from_pretrained(str(folder))
            out.append(dict(files=files, eos=tokenizer.eos_token_id, bos=tokenizer.bos_token_id,
                            prompt=tokenizer("a")["input_ids"]))
            print(case, tokenizer.eos_token_id, tokenizer.bos_token_id, out[-1]["prompt"])
    return out


def main():
    root = pathlib.Path(sys.argv[1])
    golden = dict(special_as_text=special_as_text(root), ends=ends())
    (root / "golden/text_ends.json").write_text(json.dumps(golden, ensure_ascii=True, separators=(",", ":")) + "\n")


main()
