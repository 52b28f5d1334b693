#!/usr/bin/env python3
"""Writes src/data/text/spacy_tables.inc: the tables of spaCy's blank English tokenizer.

Four patterns (prefix, suffix, infix, URL) in PCRE2's syntax, and the exceptions: strings with their tokens, and for those
that the patterns would split, the result of that split. spaCy is MIT-licensed (see NOTICE).

    python tools/text/make_spacy_tables.py src/data/text/spacy_tables.inc       # needs spacy
"""
import re
import sre_parse
import sys

import spacy
from spacy.attrs import ORTH
from spacy.tokenizer import Tokenizer

tokenizer = spacy.blank("en").tokenizer
assert tokenizer.token_match is None and tokenizer.faster_heuristics


def pcre(method):
    pattern = method.__self__.pattern.removeprefix("(?u)")
    assert method.__self__.flags == re.UNICODE
    pattern = re.sub(r"\\U([0-9a-fA-F]{8})|\\u([0-9a-fA-F]{4})",
                     lambda m: r"\x{%x}" % int(m.group(1) or m.group(2), 16), pattern)
    return pattern


def literal(text):
    """C++ string literals of at most 100 columns."""
    out, line = [], ""
    for byte in text.encode():
        c = chr(byte)
        piece = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}.get(c) or (
            c if 32 <= byte < 127 and c != "?" else "\\%03o" % byte)
        if len(line) + len(piece) > 102:
            out.append(f'    "{line}"')
            line = ""
        line += piece
    return "\n".join(out + [f'    "{line}"'])


# Without rules: the split of an exception by the patterns only.
plain = Tokenizer(tokenizer.vocab, rules={}, prefix_search=tokenizer.prefix_search,
                  suffix_search=tokenizer.suffix_search, infix_finditer=tokenizer.infix_finditer,
                  token_match=tokenizer.token_match, url_match=tokenizer.url_match)
exceptions, sequences = [], []
for text, parts in tokenizer.rules.items():
    if text.isspace():
        continue  # a run of white space is one token anyway
    assert not any(c.isspace() for c in text)
    exceptions.append("\t".join(part[ORTH] for part in parts))
    if tokenizer.find_prefix(text) or tokenizer.find_infix(text) or tokenizer.find_suffix(text):
        sequences.append("\t".join([text] + [token.text for token in plain(text)]))

# spacy_rules.cpp searches for suffixes in the last six characters, and for dots.
for pattern in spacy.blank("en").Defaults.suffixes:
    assert pattern == r"\.\.+" or sre_parse.parse(pattern).getwidth()[1] <= 6, pattern

lines = [f"// Made by tools/text/make_spacy_tables.py from spaCy {spacy.__version__}; do not edit.",
         "// Copyright (C) 2016-2024 ExplosionAI GmbH, 2016 spaCy GmbH, 2015 Matthew Honnibal; MIT license, see NOTICE."]
for name, method in (("kPrefixPattern", tokenizer.prefix_search), ("kSuffixPattern", tokenizer.suffix_search),
                     ("kInfixPattern", tokenizer.infix_finditer), ("kUrlPattern", tokenizer.url_match)):
    lines += [f"inline constexpr char {name}[] =", literal(pcre(method)) + ";"]
lines += ["// A line an exception: its parts, tabs between them.", "inline constexpr char kExceptions[] =",
          literal("\n".join(sorted(exceptions))) + ";"]
lines += ["// Exceptions that the patterns would cut: the exception, then the tokens they cut it into.",
          "inline constexpr char kSequences[] =", literal("\n".join(sorted(sequences))) + ";"]
with open(sys.argv[1], "w", encoding="ascii") as file:
    file.write("\n".join(lines) + "\n")
print(len(exceptions), "exceptions,", len(sequences), "sequences")
