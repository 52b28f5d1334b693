#!/usr/bin/env python3
"""Writes src/data/text/character_tables.inc: properties of code points for text filters, as in Python and datatrove.

The published filters are Python programs, so letters, spaces, categories, lower case and decompositions come from
CPython's tables (Unicode 14.0 in Python 3.11), decimal digits from the regex module, and the lists of punctuation from
datatrove and spaCy's sentencizer.

    python tools/unicode/make_text_tables.py src/data/text/character_tables.inc     # datatrove, spacy, regex
"""
import sys
import unicodedata

import regex
from datatrove.utils.text import PUNCTUATION, TERMINAL_PUNCTUATION
from spacy.pipeline import Sentencizer

SPACE, ALPHA, PUNCT, TERMINAL, END_MARK, CATEGORY_P, MN, DECIMAL = (1 << i for i in range(8))
POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def bits(c):
    ch = chr(c)
    category = unicodedata.category(ch)
    return (SPACE * ch.isspace() | ALPHA * ch.isalpha() | PUNCT * (ch in PUNCTUATION)
            | TERMINAL * (ch in TERMINAL_PUNCTUATION) | END_MARK * (ch in END_MARKS)
            | CATEGORY_P * category.startswith("P") | MN * (category == "Mn") | DECIMAL * (c in DIGITS))


def sigma_bits(c):
    """For the final form of a capital sigma: 1: a cased letter, 2: ignored."""
    before = (chr(c) + "\u03a3").lower()[-1] == "\u03c2"
    ignored = ("A" + chr(c) + "\u03a3").lower()[-1] == "\u03c2" and not before
    return 1 * before | 2 * ignored


def runs(of):
    out, last = [], None
    for c in POINTS:
        value = of(c)
        if value != last:
            out.append((c, value))
            last = value
    return out


def array(out, kind, name, values):
    out.append(f"inline constexpr {kind} {name}[] = {{")
    line = " "
    for value in values:
        if len(line) + len(value) > 106:
            out.append(line)
            line = " "
        line += f" {value},"
    out += [line.rstrip(","), "};"]


def lower_ranges():
    """Ranges of code points, every `step`-th, with a lower-case code point at a constant distance."""
    pairs = [(c, ord(low)) for c in POINTS if (low := chr(c).lower()) != chr(c) and len(low) == 1]
    out = []
    for c, low in pairs:
        if out:
            first, last, step, delta = out[-1]
            gap = c - last
            if low - c == delta and gap <= 2 and (first == last or gap == step):
                out[-1] = (first, c, gap, delta)
                continue
        out.append((c, c, 1, low - c))
    return out


def base_of(c):
    """Canonical decomposition without nonspacing marks."""
    return "".join(x for x in unicodedata.normalize("NFD", chr(c)) if unicodedata.category(x) != "Mn")


END_MARKS = set(Sentencizer(name="s").punct_chars)
DIGITS = {ord(d) for d in regex.findall(r"\p{Nd}", "".join(map(chr, POINTS)))}

lines = [f"// Made by tools/unicode/make_text_tables.py (Unicode {unicodedata.unidata_version}); do not edit.",
         "// Runs of equal class bits: a run starts at kClassStart[i] and has kClassBits[i]."]
table = runs(bits)
array(lines, "uint32_t", "kClassStart", [hex(c) for c, _ in table])
array(lines, "uint8_t", "kClassBits", [str(b) for _, b in table])
lines.append("// The same for what a final sigma depends on.")
table = runs(sigma_bits)
array(lines, "uint32_t", "kSigmaStart", [hex(c) for c, _ in table])
array(lines, "uint8_t", "kSigmaBits", [str(b) for _, b in table])
lines.append("// Lower case: every step-th code point from first to last moves by delta. U+0130, which becomes two, is not here.")
assert [c for c in POINTS if len(chr(c).lower()) > 1] == [0x130]
array(lines, "LowerRange", "kLower", [f"{{{f:#x}, {l:#x}, {s}, {d}}}" for f, l, s, d in lower_ranges()])
lines.append("// Canonical decompositions less nonspacing marks, where these differ from the code point and are not Hangul:")
lines.append("// at most three code points, 0 for none.")
bases = [(c, base_of(c)) for c in POINTS if not 0xAC00 <= c < 0xD7A4 and unicodedata.category(chr(c)) != "Mn"]
bases = [(c, base) for c, base in bases if base != chr(c)]
assert max(len(base) for _, base in bases) <= 3, max(len(base) for _, base in bases)
array(lines, "BaseForm", "kBase",
      ["{%#x, {%s}}" % (c, ", ".join(hex(ord(x)) for x in base)) for c, base in bases])
with open(sys.argv[1], "w", encoding="ascii") as file:
    file.write("\n".join(lines) + "\n")
for c in POINTS:  # remaining marks need reordering only if two of them are adjacent
    if unicodedata.combining(chr(c)) and unicodedata.category(chr(c)) != "Mn":
        print("kept combining", hex(c), unicodedata.category(chr(c)), unicodedata.combining(chr(c)))
print(len(table), len(bases), max(len(b) for _, b in bases))
