#!/usr/bin/env python3
"""Writes tests/data/tokenizer/golden: results of Hugging Face tokenizers (0.23) on hard texts.

    python tools/golden/make_tokenizer_golden.py tests/data/tokenizer/golden

corpus.txt          the training text of all tokenizers
NAME.json           a trained tokenizer, as written by the library (gpt2, llama3, qwen) or without white space
cases.json          {"tokenizers": {NAME: [[text, ids, ids with special tokens, decoded text], …]},
                     "splits": {PATTERN: [[text, [pieces]], …]}}
"""
import json
import pathlib
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CLASSIC = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+"
           r"|\s+(?!\S)|\s+")
WORDS = (r"[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]*[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]+{0}"
         r"|[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]+[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]*{0}"
         r"|{1}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
PATTERNS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": CLASSIC.format(r"\p{N}{1,3}"),
    "qwen": CLASSIC.format(r"\p{N}"),
    "qwen3.5": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
               r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "nanochat": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]"
                r"|\s+(?!\S)|\s+",
    "o200k": WORDS.format("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"\p{N}{1,3}"),
    "tekken": WORDS.format("", r"\p{N}"),
}
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
            r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""]
# The table of hard splits, then individual cases.
SPLIT_TEXTS = ["  two  spaces\n\n\nx", "a \n b", "a\n \n  b", "a   ", "12345 67", "x  12", "x  !y", "don't DON'T",
               "HTTPServer's", "'\u017f", "cafe\u0301", "\t\tcode();\r\n", "a\u3000b", "//\n/x", "日AB", "\u0301AB",
               "ǅx ʰA", "'", "''s", "'Ll'rE'", "\x85\u2028\r", "\u200b\ufeffa", "½²Ⅷ٣", "1 2  3", " \u0301", "x\u0301'S"]
POOL = list("aAbBzZsStTdDmMlLrRvVeE''''   \n\n\r\t.,!/-’“0123456789") + [
    "'s", "'ſ", "'LL", "don't", " \n", "\u3000", "\u00a0", "\u200b", "\ufeff", "é", "e\u0301", "\u0301", "ǅ", "ʰ", "ß",
    "İ", "K", "日本", "ア", "한", "\u1112\u1161\u11ab", "Ж", "α", "א", "ع", "ก", "\u0e31", "\u093f", "²", "½", "Ⅷ", "٣",
    "😀", "👨‍👩‍👧", "\U0001f1e9", "\x00", "\x01", "\x7f", "\x85", "\u2028", "\x1c", "ﬁ", "Å", "\U00011f02", "\U0001e4d0",
    "\U00031350", "\u1acf", "\u0378", "\uffff", "𝔸", "<w>", "<l>", "<r>", "<both>", "<|endoftext|>", "    ", "Über",
    "U\u0308ber", "//\n/"]


def corpus(rng):
    syllables = "ka lo mi the an ing er on st re tion qu z ou ea ch".split()
    words = ["".join(rng.choice(syllables) for _ in range(rng.randint(1, 3))) for _ in range(150)]
    extra = ["don't", "DON'T", "we'll", "I'm", "naïve", "café", "Über", "“quoted”", "–", "日本語", "東京", "한국어",
             "Привет", "мир", "Ελληνικά", "עברית", "हिन्दी", "😀", "x+=1;", "//", "__init__", "HTTPServer", "3.1415"]
    lines = []
    for _ in range(260):
        line = [rng.choice(extra) if rng.random() < 0.2 else
                str(rng.randint(0, 99999)) if rng.random() < 0.06 else
                words[min(int(rng.expovariate(0.03)), 149)] for _ in range(rng.randint(0, 12))]
        if rng.random() < 0.3 and line:
            line[0] = line[0].capitalize()
        lines.append(rng.choice(["", "", "", "  ", "\t"]) + " ".join(line) + rng.choice([".", "", "!", "  "])
                     + rng.choice(["\n", "\n", "\r\n", "\n\n"]))
    return "".join(lines)


def split_on(*regexes, behavior="isolated", invert=False):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r), behavior, invert) for r in regexes]
                                   + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def byte_level(prefix=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix)


TOKENIZERS = {  # name: pre-tokenizer, normalizer, ignore_merges
    "gpt2": (byte_level(), None, False),
    "llama3": (split_on(PATTERNS["llama3"]), None, False),
    "qwen": (split_on(PATTERNS["qwen"]), normalizers.NFC(), False),
    "o200k": (split_on(PATTERNS["o200k"], behavior="removed", invert=True), None, True),
    "deepseek": (split_on(*DEEPSEEK), None, False),
    "prefix": (byte_level(True), normalizers.Sequence([normalizers.NFKC(), normalizers.Strip()]), False),
    "starcoder": (pre_tokenizers.Sequence([pre_tokenizers.Digits(True), byte_level()]), normalizers.Lowercase(), False),
    "falcon": (pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), byte_level(),
                                        pre_tokenizers.Digits(False),
                                        pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")]),
               normalizers.NFD(), False),
    "engine": (split_on("(" + PATTERNS["o200k"] + ")"), None, False),  # the parentheses keep scanners from recognizing it
}


def train(name, path):
    pre_tokenizer, normalizer, ignore_merges = TOKENIZERS[name]
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.train([str(path)], trainers.BpeTrainer(
        vocab_size=520, min_frequency=2, show_progress=False, special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def llama2():
    """A character model with byte fallback, as in Llama 2 and Mistral."""
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for byte in range(256):
        vocab[f"<0x{byte:02X}>"] = 3 + byte
    merges = [("▁", "t"), ("h", "e"), ("▁t", "he"), ("▁", "▁"), ("▁▁", "▁▁"), ("i", "n"), ("in", "g"), ("▁", "a")]
    for token in sorted({c for pair in merges for c in "".join(pair)} | set("abcdefgé.,日")):
        vocab[token] = len(vocab)
    for a, b in merges:
        vocab[a + b] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def main(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(20)
    path = folder / "corpus.txt"
    path.write_bytes(corpus(rng).encode())
    texts = SPLIT_TEXTS + ["", " ", "<|endoftext|>", "a<w>b <w> c", "x  <l>  <r>  y", " <both> <both>  ", "a" * 300,
                           "the kalo" * 40, "-" * 200]
    texts += ["".join(rng.choice(POOL) for _ in range(rng.randint(1, 14))) for _ in range(180)]
    cases = {}
    for name in [*TOKENIZERS, "llama2"]:
        tokenizer = llama2() if name == "llama2" else train(name, path)
        if name in ("gpt2", "llama3", "qwen"):
            tokenizer.save(str(folder / f"{name}_trained.json"))
        if name != "llama2":
            tokenizer.add_tokens([
                AddedToken("<w>", single_word=True, normalized=True), AddedToken("<l>", lstrip=True, normalized=False),
                AddedToken("<r>", rstrip=True), AddedToken("    ", normalized=False), AddedToken("Über", normalized=True),
                AddedToken("<both>", lstrip=True, rstrip=True, special=True)])
            tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                                            processors.TemplateProcessing(
                single="<both> $A <|endoftext|>",
                special_tokens=[("<both>", tokenizer.token_to_id("<both>")), ("<|endoftext|>", 0)])])
        tokenizer.save(str(folder / f"{name}.json"), pretty=False)
        cases[name] = [[text, tokenizer.encode(text, add_special_tokens=False).ids, tokenizer.encode(text).ids,
                        tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids,
                                         skip_special_tokens=False)]
                       for text in texts[:: 1 if name in ("gpt2", "llama3", "qwen") else 2]]
    splits = {name: [[text, [piece for piece, _ in pre_tokenizers.Split(Regex(regex), "isolated").pre_tokenize_str(text)]]
                     for text in SPLIT_TEXTS + texts[-60:]] for name, regex in PATTERNS.items()}
    (folder / "cases.json").write_text(json.dumps({"tokenizers": cases, "splits": splits}, separators=(",", ":")))


if __name__ == "__main__":
    main(sys.argv[1])
