#!/usr/bin/env python3
"""Writes tests/data/filter/decisions.jsonl: decisions of datatrove's filters on a small set of hard texts.

A line is {"text", "spacy": {case: result}, "whitespace": {case: result}}. A case is a filter with its arguments (CASES
below; the C++ test uses their names). A result is the reason for dropping a text, or {} for a kept text, with its XXH3
hash if it was rewritten. Whitespace: the same filters with str.split instead of spaCy's words.

Texts of a family differ by one item each; the file has the texts on both sides of every change of a decision.

    python tools/golden/make_filters.py tests/data/filter/decisions.jsonl          # datatrove, spacy, xxhash
"""
import json
import random
import sys

import xxhash

import datatrove.pipeline.filters.fineweb_quality_filter as fineweb
import datatrove.pipeline.filters.gopher_quality_filter as quality
import datatrove.pipeline.filters.gopher_repetition_filter as repetition
from datatrove.data import Document
from datatrove.pipeline.filters import C4QualityFilter, FineWebQualityFilter, GopherQualityFilter, GopherRepetitionFilter
from datatrove.utils.text import split_into_words

CASES = {
    "gopher_repetition": GopherRepetitionFilter(),
    "gopher_quality": GopherQualityFilter(),
    "gopher_quality_long": GopherQualityFilter(max_doc_words=60, min_doc_words=1, min_stop_words=3, stop_words=["the", "of", "sea", "The", "Σ"]),
    "c4_quality": C4QualityFilter(),
    "c4_quality_fineweb": C4QualityFilter(filter_no_terminal_punct=False),
    "c4_quality_open": C4QualityFilter(min_num_sentences=-1, min_words_per_line=-1, max_word_length=12, remove_citations=False,
                                       filter_curly_bracket=False, filter_lorem_ipsum=False),
    "c4_quality_sentences": C4QualityFilter(split_paragraph=False, min_num_sentences=2),
    "fineweb_quality": FineWebQualityFilter(),
    "fineweb_quality_zero": FineWebQualityFilter(line_punct_exclude_zero=True, short_line_length=12, char_duplicates_ratio=0.1, stop_chars=("!", "..", "»")),
}

rng = random.Random(7)
SYLLABLES = "ba be bi bo bu da de di do du ka ke ki ko ku la le li lo lu ma me mi mo mu na ne ni no nu ra re ri ro ru sa se si so su ta te ti to tu".split()
STOP = "the be to of and that have with".split()


def word():
    return "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(2, 4)))


def words(n):
    return [rng.choice(STOP) if rng.random() < 0.3 else word() for _ in range(n)]


def sentence(n=10):
    return " ".join(words(n)).capitalize() + rng.choice(".?!.")


def lines(n, per=12):
    return [sentence(per) for _ in range(n)]


PROSE = lines(12)
SHORT = lines(6)
PHRASES = {n: " ".join(words(n)) for n in range(1, 14)}
FILL = [sentence(12) for _ in range(40)]
NUMBERED = [f"{word()} {word()}" for _ in range(60)]


def repeated(phrase, k, of=14):
    """Prose with a phrase k times, never twice in a row."""
    out = []
    for i in range(of):
        out.append(FILL[i])
        if i < k:
            out.append(phrase + ",")
    return " ".join(out)


FAMILIES = {
    "words": lambda k: " ".join(words_fixed[:40 + k]) + ".",
    "symbols": lambda k: " ".join(words_fixed[:51]) + " -- ! ." + " …" * k,
    "short words": lambda k: " ".join(["a"] * (20 + 5 * k) + words_fixed[:60]) + " the of.",
    "long words": lambda k: " ".join(["bababababababa"] * (5 * k) + words_fixed[:40]) + " the of.",
    "hashes": lambda k: "\n".join(PROSE) + " #" * k,
    "dots": lambda k: "\n".join(PROSE) + "..." * k,
    "ellipses": lambda k: "\n".join(PROSE) + " …" * (k // 2) + "......" * (k // 3),
    "bullets": lambda k: "\n".join(f"{'-' if i % 2 else ' •'} {s}" if i < k else s for i, s in enumerate(FILL[:20])),
    "end ellipses": lambda k: "\r\n".join(f"{s}{'...' if i % 2 else '…  '}" if i < k else s for i, s in enumerate(FILL[:20])),
    "numbers": lambda k: " ".join(words_fixed[:60] + ["12"] * k) + " of the.",
    "stop words": lambda k: " ".join(w for w in words_fixed[:80] if w not in STOP) + " " + " ".join(["The", "the", "the", "of", "sea", "Σ"][:k]) + ".",
    "lines again": lambda k: "\n".join(FILL[:20] + NUMBERED[:1] * k),
    "long lines again": lambda k: "\n".join(FILL[:20] + FILL[:k]),
    "short lines again": lambda k: "\n".join(NUMBERED[:20] + NUMBERED[:k] + ["ok"] * (k // 2)),
    "paragraphs again": lambda k: "\n\n".join(FILL[:10] + NUMBERED[:k]  + NUMBERED[:k]),
    "long paragraphs again": lambda k: "\n\n\n".join(["\n".join(FILL[2 * i:2 * i + 2]) for i in range(10)] + ["\n".join(FILL[2 * i:2 * i + 2]) for i in range(k)]),
    "blank lines": lambda k: "\n" * k + "\n".join(FILL[:4]) + "\n" * k,
    "newlines": lambda k: "\n".join(SHORT).replace(" ", "\n", k),
    "sentences": lambda k: "\n".join(FILL[:k]),
    "one line": lambda k: " ".join(FILL[:k]) + "\n" + "no end here at all",
    "javascript": lambda k: "\n".join(FILL[:10]) + "\n" + ["Please turn on JavaScript.", "We have a privacy Policy here.", "It uses cooKies as we do.", "Terms of Use and more.",
                                                            "Lorem Ipsum dolor sit.", "lorem  ipsum dolor sit.", "a { b } is a set.", "İpsum lorem i̇psum.", "See [1][23] and [edit] or [citation needed] [x].",
                                                            "[12]", "two words.", "No. [٣] [] [ 1]", "He said 'so'", 'She said "so"', "And then...", "a " + "b" * 1000 + " c.", "a " + "b" * 1001 + " c.",
                                                            "USE OF COOKIES IS NOT { allowed }.", "{", "lorem ipsum"][k % 20],
    "line ends": lambda k: "\n".join(s if i < k else s[:-1] for i, s in enumerate(FILL[:30])),
    "stars": lambda k: "\n".join(s if i < k else s[:-1] + " " for i, s in enumerate(NUMBERED[:10] + FILL[:20])),
    "short lines": lambda k: "\n".join(NUMBERED[:2 * k] + FILL[:10]) + ".",
    "ends": lambda k: "\n".join(FILL[:9]) + "\n" + "one two three" + ["»", "..", "!", "。", "؟", "…", ".\r", ". ", "।", ":", '."', "?"][k % 12],
    "citations": lambda k: "\n".join(s[:-1] + "[1]" * k + ("[note]" if k > 3 else "") + "." for s in FILL[:6]) + "[citation needed]\n[edit]\n  [2]  a b c.  ",
}
for n in (2, 3, 4):
    FAMILIES[f"top {n}"] = lambda k, n=n: repeated(PHRASES[n], k)
for n in (5, 6, 7, 8, 9, 10, 12):
    FAMILIES[f"again {n}"] = lambda k, n=n: repeated(PHRASES[n], k)
    FAMILIES[f"again {n} joined"] = lambda k, n=n: repeated(PHRASES[n], k // 2) + " " + repeated(PHRASES[n].replace(" ", "", 1) + " so", k // 2)
words_fixed = words(120)

OTHERS = [" ", "\n", "\n\n", " \t\n ", "\u2028", "a", "...", "#", "a b", "the of " * 30, "the. of! " * 30, "ab " * 60, "word\u2028" * 60, "wörter sind schön und gut. " * 4 + " ".join(words_fixed),
          "\ufeff" + "\n".join(PROSE), "\r\n".join(PROSE), "\x0b".join(PROSE), "\x85".join(PROSE), "\u2029".join(PROSE) + "\u2029", "\n \n".join(PROSE), "\n\t\n\n".join(PROSE) + "  \n",
          " ".join(["السلام عليكم، كيف حالك؟ أنا بخير۔ شكرا لك كثيرا!"] * 3 + ["هذا نص آخر طويل قليلا."] * 2), "你好，世界。这是一个测试！对吗？「好的」我们去吧。\n第二行也有字。" * 3,
          "😀 😃 emoji text of the day. " * 9, "\n".join(f"{i}. {s}" for i, s in enumerate(FILL[:12])), "x" * 1001 + " the of and. " + "\n".join(PROSE), "http://example.com/" + "a" * 990 + "\n" + "\n".join(PROSE),
          "a bc d ef g. " * 3 + "ab c de f g. " * 3 + " ".join(words_fixed), " ".join("a b c d e f g h i j k l m n o p".split() * 4) + " " + " ".join(words_fixed),
          "\n".join(["* * * * *", "- - -", "====", "....", "!!!"] * 4 + PROSE), "I can't. You won't! They didn't? " * 4 + "\n".join(PROSE), "e.g. this, i.e. that. Mr. Smith's U.S. $5.00 " * 3 + "\n".join(FILL[:5])]


def decide(case, text):
    document = Document(text=text, id="0")
    try:
        result = CASES[case].filter(document)
    except ZeroDivisionError:
        return None  # datatrove fails
    if result is not True:
        return result[1]
    return {} if document.text == text else {"xxh3": xxhash.xxh3_64_hexdigest(document.text.encode())}


def all_decisions(text):
    out = {}
    for name, split in (("spacy", split_into_words), ("whitespace", lambda t, language=None: t.split())):
        fineweb.split_into_words = quality.split_into_words = repetition.split_into_words = split
        out[name] = {case: result for case in CASES if (result := decide(case, text)) is not None}
    return out


def reasons(decisions):
    return {(rule, case): r if isinstance(r, str) else "" for rule, d in decisions.items() for case, r in d.items()}


kept, seen = [], {}
for name, family in FAMILIES.items():
    before = None
    for k in range(28):
        text = family(k)
        decisions = all_decisions(text)
        always = name in ("javascript", "ends") and k < 20
        if always or (before and reasons(before[1]) != reasons(decisions)):
            kept += [before] if before and not always and (not kept or kept[-1][0] != before[0]) else []
            kept.append((text, decisions))
        before = (text, decisions)
for text in OTHERS:
    kept.append((text, all_decisions(text)))
with open(sys.argv[1], "w", encoding="ascii") as out:
    for text, decisions in kept:
        out.write(json.dumps({"text": text, **decisions}) + "\n")
        for key, reason in reasons(decisions).items():
            seen.setdefault((key[1], reason), set()).add(key[0])
for (case, reason), rules in sorted(seen.items()):
    print(case, reason or "kept", sorted(rules))
print(len(kept), "texts")
