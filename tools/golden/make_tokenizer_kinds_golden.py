#!/usr/bin/env python3
"""Writes tests/data/tokenizer/kinds: small tokenizers in every file format, and the results of their libraries on hard texts.

    python tools/golden/make_tokenizer_kinds_golden.py tests/data/tokenizer/kinds

Needs tokenizers 0.23, sentencepiece 0.2, tiktoken 0.14 and mistral-common. All tokenizers are trained on invented text.
NAME.json, NAME.model, NAME.tiktoken    the tokenizers
texts.json                              the texts
cases.json                              {NAME: [[ids, ids with special tokens, decoded text], …]}, one entry per text
"""
import base64
import io
import json
import pathlib
import random
import sys

import sentencepiece
import tiktoken
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

from hard_texts import TEXTS
from make_tokenizer_golden import PATTERNS, byte_level, corpus

QUIET = {"show_progress": False}


def texts():
    rng = random.Random(4)
    words = [w for t in TEXTS for w in t.split(" ") if 0 < len(w) < 40]
    return TEXTS + ["".join(rng.choice(["", " ", " ", "  ", "\n"]) + rng.choice(words) for _ in range(rng.randint(2, 12)))
                    for _ in range(60)]


# Custom Unicode normalization as a SentencePiece rule file: ligatures, full width, white space, accents.
def rules():
    lines = [("FB01", "66 69"), ("212B", "C5"), ("2122", "54 4D"), ("A0", "20"), ("3000", "20"), ("9", "20"), ("A", "20"),
             ("D", "20"), ("200B", ""), ("FEFF", ""), ("BD", "31 2F 32"), ("65 301", "E9"), ("65 302", "EA"), ("65 301 302", "E9"),
             ("41 30A", "C5"), ("304B 3099", "304C"), ("FF8A", "30CF"), ("FF8A FF9F", "30D1"), ("2460", "31"), ("3314", "30AD 30ED"),
             ("1", ""), ("7F", ""), ("2026", "2E 2E 2E"), ("C4", "E4"), ("A9", "28 63 29")]
    lines += [(f"{0xFF01 + i:X}", f"{0x21 + i:X}") for i in range(94)]
    return "".join(f"{a}\t{b}\n" for a, b in lines)


def train_spm(text, folder, **options):
    tsv = folder / "rules.tsv"
    tsv.write_text(rules())
    out = io.BytesIO()
    if options.pop("with_rules", False):
        options["normalization_rule_tsv"] = str(tsv)
    else:
        options["normalization_rule_name"] = "identity"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text.splitlines()), model_writer=out, minloglevel=2, num_threads=1,
        **{"vocab_size": 400, "hard_vocab_limit": False, "character_coverage": 1.0, **options})
    tsv.unlink()
    return out.getvalue()


SPM = {
    "spm_bpe_bytes": dict(model_type="bpe", byte_fallback=True, vocab_size=600, remove_extra_whitespaces=False,
                          split_digits=True, allow_whitespace_only_pieces=True, character_coverage=0.98),
    "spm_bpe_rules": dict(model_type="bpe", with_rules=True, user_defined_symbols=["<sym>", "kalo", " the"], control_symbols=["<sep>"],
                          character_coverage=0.99),
    "spm_unigram_rules": dict(model_type="unigram", with_rules=True, user_defined_symbols=["<sym>", "ingeron"],
                              control_symbols=["<sep>"], character_coverage=0.99),
    "spm_unigram_bytes": dict(model_type="unigram", byte_fallback=True, remove_extra_whitespaces=False, add_dummy_prefix=False,
                              vocab_size=620, character_coverage=0.98),
    "spm_unigram_suffix": dict(model_type="unigram", treat_whitespace_as_suffix=True, split_by_whitespace=False, vocab_size=300),
}


def charsmap(model):
    from sentencepiece import sentencepiece_model_pb2
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model)
    return proto.normalizer_spec.precompiled_charsmap


def unigram_vocabulary(model):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [(processor.id_to_piece(i), processor.get_score(i)) for i in range(processor.get_piece_size())]


def template(tokenizer, single):
    names = [name for name in single.split() if not name.startswith("$")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, special_tokens=[(name, tokenizer.token_to_id(name)) for name in dict.fromkeys(names)])


def hf_tokenizers(text, models_by_name):
    lines = text.splitlines()
    out = {}

    def word_piece(normalizer, pre_tokenizer, **options):
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
        tokenizer.train_from_iterator(lines, trainers.WordPieceTrainer(
            vocab_size=500, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], **QUIET))
        tokenizer.decoder = decoders.WordPiece(**options)
        template(tokenizer, "[CLS] $A [SEP]")
        return tokenizer

    out["bert"] = word_piece(normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer())
    out["bert_cased"] = word_piece(normalizers.BertNormalizer(lowercase=False), pre_tokenizers.BertPreTokenizer(), cleanup=False)
    out["words"] = word_piece(normalizers.Sequence([normalizers.Nmt(), normalizers.NFKD(), normalizers.StripAccents()]),
                              pre_tokenizers.Whitespace())

    for name, byte_fallback in (("t5", False), ("unigram_bytes", True)):
        model = models_by_name["spm_unigram_bytes" if byte_fallback else "spm_unigram_rules"]
        tokenizer = Tokenizer(models.Unigram(unigram_vocabulary(model), unk_id=0, byte_fallback=byte_fallback))
        if name == "t5":
            tokenizer.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap(model)), normalizers.Replace(Regex(" {2,}"), " ")])
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always" if name == "t5" else "first", split=name == "t5")
        tokenizer.decoder = decoders.Metaspace(prepend_scheme="always") if name == "t5" else decoders.Sequence(
            [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")])
        tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
        tokenizer.add_tokens([AddedToken("<sym>", normalized=True), AddedToken("<sep>", lstrip=True, normalized=False)])
        template(tokenizer, "$A </s>")
        out[name] = tokenizer

    xlmr = Tokenizer(models.Unigram(unigram_vocabulary(models_by_name["spm_unigram_rules"]), unk_id=0))
    xlmr.normalizer = normalizers.Precompiled(charsmap(models_by_name["spm_unigram_rules"]))
    xlmr.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    xlmr.decoder = decoders.Metaspace()
    xlmr.add_special_tokens(["<s>", "</s>", "<unk>"])
    template(xlmr, "<s> $A </s>")
    out["xlmr"] = xlmr

    # Llama 2 in its two forms: with a normalizer, and with Metaspace that prepends only at the beginning of a text.
    processor = sentencepiece.SentencePieceProcessor(model_proto=models_by_name["spm_bpe_bytes"])
    vocabulary = {processor.id_to_piece(i): i for i in range(processor.get_piece_size())}
    merges = sorted((vocabulary[a + b], vocabulary[a], vocabulary[b], a, b) for piece in vocabulary if not processor.is_byte(vocabulary[piece])
                    for a, b in ((piece[:k], piece[k:]) for k in range(1, len(piece))) if a in vocabulary and b in vocabulary)
    for name in ("llama2_legacy", "llama2_first"):
        tokenizer = Tokenizer(models.BPE(vocabulary, [(a, b) for *_, a, b in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        if name == "llama2_legacy":
            tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
            tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                                   decoders.Strip(" ", 1, 0)])
        else:
            tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
            tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
        tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
        template(tokenizer, "<s> $A")
        out[name] = tokenizer

    clip = Tokenizer(models.BPE(unk_token="<|endoftext|>", end_of_word_suffix="</w>", continuing_subword_prefix=""))
    clip.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    clip.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(
        r"""'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"""), "removed", invert=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    clip.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=700, special_tokens=["<|startoftext|>", "<|endoftext|>"],
                                                        end_of_word_suffix="</w>", initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **QUIET))
    # The trainer omits the alphabet without end-of-word forms.
    state = json.loads(clip.to_str())
    for token in list(pre_tokenizers.ByteLevel.alphabet()):
        state["model"]["vocab"].setdefault(token + "</w>", len(state["model"]["vocab"]))
    clip = Tokenizer.from_str(json.dumps(state))
    clip.decoder = decoders.ByteLevel()
    clip.post_processor = processors.RobertaProcessing(("<|endoftext|>", 1), ("<|startoftext|>", 0), add_prefix_space=False, trim_offsets=False)
    out["clip"] = clip

    olmo = Tokenizer(models.BPE(continuing_subword_prefix=""))
    olmo.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(PATTERNS["llama3"]), "removed", invert=True),
                                                  pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    olmo.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=500, special_tokens=["<|endoftext|>"],
                                                        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **QUIET))
    olmo.decoder = decoders.ByteLevel()
    out["olmo2"] = olmo
    return out


def ranks(text, pattern):
    """Trains ranks: bytes first, in a special order, then one token per merge."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(PATTERNS[pattern]), "isolated"),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainers.BpeTrainer(
        vocab_size=560, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **QUIET))
    byte_of = {c: b for b, c in enumerate(
        chr(b) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174 else None for b in range(256))}
    free = iter(range(256, 400))
    for b in range(256):
        if not (33 <= b <= 126 or 161 <= b <= 172 or b >= 174):
            byte_of[chr(next(free))] = b
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return [bytes(byte_of[c] for c in token) for token, _ in vocabulary]


def main(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    text = corpus(random.Random(20))
    everything = texts()
    cases = {}
    spm = {name: train_spm(text, folder, **options) for name, options in SPM.items()}
    for name, model in spm.items():
        (folder / f"{name}.model").write_bytes(model)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        cases[name] = []
        for t in everything:
            ids = processor.encode(t)
            cases[name].append([ids, [processor.bos_id(), *ids], processor.decode(ids)])
    for name, tokenizer in hf_tokenizers(text, spm).items():
        tokenizer.save(str(folder / f"{name}.json"), pretty=False)
        tokenizer = Tokenizer.from_file(str(folder / f"{name}.json"))
        cases[name] = []
        for t in everything:
            ids = tokenizer.encode(t, add_special_tokens=False).ids
            cases[name].append([ids, tokenizer.encode(t).ids, tokenizer.decode(ids, skip_special_tokens=False)])
    patterns = {"gpt2": "gpt2", "cl100k": "llama3", "o200k": "o200k"}
    for name, pattern in patterns.items():
        tokens = ranks(text, pattern)
        if name == "o200k":  # a gap, as in p50k
            numbered = [(token, i if i < 300 else i + 1) for i, token in enumerate(tokens)]
        else:
            numbered = list(zip(tokens, range(len(tokens))))
        (folder / f"{name}.tiktoken").write_text("".join(f"{base64.b64encode(t).decode()} {i}\n" for t, i in numbered))
        encoding = tiktoken.Encoding(name, pat_str=PATTERNS[pattern], mergeable_ranks=dict(numbered), special_tokens={})
        cases[f"{name}.tiktoken"] = [[ids, ids, encoding.decode(ids)] for ids in map(encoding.encode_ordinary, everything)]
    tokens = ranks(text, "tekken")
    tokens = sorted(tokens[:256]) + tokens[256:]
    spare = [bytes([0xC3, 0xBF, i]) for i in range(3)]
    file = {"config": {"pattern": PATTERNS["tekken"], "num_vocab_tokens": len(tokens) + 3, "default_vocab_size": len(tokens) + 30,
                       "default_num_special_tokens": 30, "version": "v3"},
            "vocab": [{"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": None} for i, t in enumerate(tokens + spare)]}
    (folder / "tekken.json").write_text(json.dumps(file, separators=(",", ":")))
    tekken = Tekkenizer.from_file(folder / "tekken.json")
    cases["tekken"] = [[ids, tekken.encode(t, bos=True, eos=False), tekken.decode(ids)]
                       for t in everything for ids in [tekken.encode(t, bos=False, eos=False)]]
    (folder / "texts.json").write_text(json.dumps(everything, separators=(",", ":")))
    (folder / "cases.json").write_text(json.dumps(cases, separators=(",", ":")))


if __name__ == "__main__":
    main(sys.argv[1])
