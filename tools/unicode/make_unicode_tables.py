#!/usr/bin/env python3
"""Writes src/data/tokenizer/unicode_tables.inc: the character classes of the Hugging Face tokenizers library.

System libraries have other versions of Unicode, and a single different letter changes how text is split. Therefore every
class is extracted from the library by splitting a text with every code point.

    python tools/unicode/make_unicode_tables.py src/data/tokenizer/unicode_tables.inc
"""
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn").split()
SCRIPTS = ("Han Hiragana Katakana Hangul Latin Greek Cyrillic Arabic Hebrew Thai Devanagari Bengali Armenian "
           "Georgian Tamil Telugu").split()
EXPECTED = {"L": 141028, "N": 1911, "M": 2501, "P": 855, "S": 8514, "Lu": 1858, "Ll": 2258, "Lt": 31, "Lm": 404,
            "Lo": 136477, "Nd": 760}

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, POINTS))


def members(splitter):
    """Code points that the splitter keeps, each as a separate segment or in a run."""
    return sorted(ord(c) for piece, _ in splitter.pre_tokenize_str(TEXT) for c in piece)


def regex_members(pattern):
    return members(pre_tokenizers.Split(Regex(pattern), "removed", invert=True))


def added_token_word_members():
    """Word characters that prevent the match of an added token with single_word."""
    tokenizer = Tokenizer(models.BPE(vocab={}, merges=[]))
    tokenizer.add_tokens([AddedToken("\x01\x02", single_word=True, normalized=False)])
    found = tokenizer.encode_batch(["\x01\x02" + chr(c) for c in POINTS])
    return [c for c, encoding in zip(POINTS, found) if not encoding.ids]


def alone(splitter):
    """Code points that the splitter separates from adjacent letters."""
    pieces = splitter.pre_tokenize_str("".join(f"{chr(c)}a" for c in POINTS if c != 0x61))
    return sorted(ord(piece) for piece, _ in pieces if len(piece) == 1 and piece != "a")


def not_normalized(category):
    """Code points that are newer than the library's normalizers, which neither decompose nor reorder them."""
    ours, theirs = normalizers.NFKD().normalize_str, lambda text: unicodedata.normalize("NFKD", text)
    mark = "a\u0345"  # combining class 240, sorted after nearly every other mark
    return [c for c in POINTS
            if (category.get(c, "Cn") != "Cn" and unicodedata.category(chr(c)) == "Cn")
            or ours(chr(c)) != theirs(chr(c)) or ours(mark + chr(c)) != theirs(mark + chr(c))]


def removed_by(normalizer):
    return [c for c in POINTS if normalizer.normalize_str(chr(c)) == ""]


def bert(**parts):
    return normalizers.BertNormalizer(**{"clean_text": False, "handle_chinese_chars": False, "strip_accents": False,
                                         "lowercase": False, **parts})


def ranges(points):
    out = []
    for c in points:
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def wrap(items, width=108):
    lines, line = [], " "
    for item in items:
        if len(line) + len(item) + 2 > width:
            lines.append(line)
            line = " "
        line += f" {item},"
    return "\n".join(lines + [line])


def range_table(name, points, comment):
    body = wrap(f"{{{a:#x}, {b:#x}}}" for a, b in ranges(points))
    return f"// {comment}\ninline constexpr CodePointRange {name}[] = {{\n{body}\n}};\n"


def main(path):
    category = {}
    for name in CATEGORIES:
        if name == "Cn":
            continue
        for c in regex_members(rf"\p{{{name}}}"):
            assert c not in category, (hex(c), name, category[c])
            category[c] = name
    for name, count in EXPECTED.items():
        assert sum(v.startswith(name) for v in category.values()) == count, name
    runs = []
    for c in range(0x110000):
        value = category.get(c, "Cs" if 0xD800 <= c < 0xE000 else "Cn")
        if not runs or runs[-1][1] != value:
            runs.append((c, value))
    white = regex_members(r"\s")
    assert len(white) == 25
    lower = [(c, normalizers.Lowercase().normalize_str(chr(c))) for c in POINTS]
    lower = [(c, t) for c, t in lower if t != chr(c)]
    assert [c for c, t in lower if len(t) != 1] == [0x130]
    steps = []
    for c, t in lower:
        delta = ord(t[0]) - c
        if c == 0x130:
            continue
        last = steps[-1] if steps else None
        if last and last[3] == delta and c - last[1] == (last[2] or c - last[1]) and c - last[1] in (1, 2):
            last[2] = c - last[1]
            last[1] = c
        else:
            steps.append([c, c, 0, delta])
    with open(path, "w") as out:
        out.write("// Made by tools/unicode/make_unicode_tables.py (Unicode 16.0); do not edit.\n"
                  "// General categories as runs: a run starts at kCategoryStart[i] and has kCategory[i].\n"
                  "inline constexpr uint32_t kCategoryStart[] = {\n" + wrap(f"{c:#x}" for c, _ in runs) + "\n};\n"
                  "inline constexpr Category kCategory[] = {\n" + wrap(f"k{v}" for _, v in runs) + "\n};\n")
        out.write(range_table("kWhiteSpace", white, r"\s"))
        out.write(range_table("kRegexWord", regex_members(r"\w"), r"\w of regular expressions"))
        out.write(range_table("kAddedTokenWord", added_token_word_members(), r"word characters next to added tokens"))
        out.write(range_table("kPunctuation", alone(pre_tokenizers.Punctuation("isolated")),
                              "the Punctuation pre-tokenizer"))
        out.write(range_table("kNumeric", alone(pre_tokenizers.Digits(individual_digits=True)),
                              "the Digits pre-tokenizer, which knows a newer Unicode than regular expressions"))
        out.write(range_table("kNotNormalized", not_normalized(category),
                              "code points that the library's normalizers do not know (they stop at Unicode 12)"))
        out.write(range_table("kBertRemoved", removed_by(bert(clean_text=True)), "what BertNormalizer's clean_text drops"))
        out.write(range_table("kBertAccent", removed_by(bert(strip_accents=True)),
                              "what BertNormalizer's strip_accents drops, behind NFD"))
        out.write(range_table("kCombiningMark", removed_by(normalizers.StripAccents()), "what StripAccents drops"))
        for script in SCRIPTS:
            out.write(range_table(f"kScript{script}", regex_members(rf"\p{{{script}}}"), f"\\p{{{script}}}"))
        out.write("// Lower case: every `step`th code point of [first, last] moves by `delta`; U+0130 becomes two.\n"
                  "inline constexpr LowerRange kLowerCase[] = {\n"
                  + wrap(f"{{{a:#x}, {b:#x}, {s or 1}, {d}}}" for a, b, s, d in steps) + "\n};\n")


if __name__ == "__main__":
    main(sys.argv[1])
