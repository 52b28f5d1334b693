#!/usr/bin/env python3
"""Writes tests/data/text/texts.jsonl: results of Python, datatrove and spaCy on hard texts.

    python tools/golden/make_text.py tests/data/text/texts.jsonl        # datatrove, spacy
"""
import json
import random
import sys

from datatrove.utils.text import PUNCTUATION_SET, simplify_text
from datatrove.utils.word_tokenizers import SpaCyTokenizer

spacy = SpaCyTokenizer("en")
TEXTS = [
    "", " ", "\n", "\n\n", "a", " a ", "a\n", "\na", "Hello.  World", "Hello. \n", 'Hello.  "', 'He said. "Go!" She went.',
    "Dr. Smith paid $5.00 (US$4.50) at 10a.m. in the U.S.A., didn't he? Yes... no.", "I can't won't shan't dont cant gonna im Im I'm.",
    "e.g. i.e. etc. vs. Mr. Mrs. Jan. 5th, 10km 3.5kg 12-34 a-b-c well-known and/or x:y x=y a<b", "http://www.example.com/a?b=c#d, (see https://x.org).",
    "foo@bar.com, www.test.co.uk/path; ftp://a.b.c/d.", "wow!!! really??? ....... hm..... a...b", "(((nested))) [[x]] {{y}} <<z>> 'quoted' \"double\" ‘a’ “b” «c»",
    ":-) :( <3 (*_*) ^_^ o_O :'-) ¯\\(ツ)/¯", "C++ C# F# .NET node.js O'Neil's dogs' dog’s rock’n’roll '90s ’em 'tis",
    "emoji 😀😃 👩‍👩‍👧 flags 🇩🇪🇫🇷 x😀y ☃snow °C 20°C. 5°F.", "السلام عليكم، كيف حالك؟ أنا بخير۔ شكرا! ١٢٣٫٤٥", "你好，世界。这是一个测试！对吗？「好的」", "ひらがなカタカナ漢字。テスト！",
    "Привет, мир! Как дела? 5км. т.е. хорошо…", "ΟΔΥΣΣΕΥΣ ΑΣ Σ ΑΣΑ α.Σ. Σ' ΑΣ’Β İstanbul IĞDIR ǅ ß ẞ", "café Café E\u0301te\u0301 n\u0303 \u0301x a \u0308 b Å K ﬁ ² ½ 한국어 각",
    "line1\r\nline2\rline3\x0bline4\x0cline5\x1cline6\x1dline7\x1eline8\x85line9\u2028line10\u2029end", "tab\tsep\u00a0nbsp\u3000ideo\u2003em\u200bzwsp\u1680ogham\u180eend\x1funit", "trailing newline\r\n", "\r", "\r\n", "\u2028", "\x85",
    "…", "....", "…… a… b…", "12,345.67 and 1.2.3 3,,4 5. 6,7 ٣٫٤ ௧௨ ²³ 1⎖2 1.", "A" * 300, "ab" * 100 + ".", "!" * 99, "." * 200, "(" * 50 + "x" + ")" * 50, "-" * 80, "a-" * 60, "a.B" * 60, "'" * 70,
    "it's It's IT'S its' 'S 's ’s ’S she'll he'd've we've y'all ain't o'clock ma'am", "a.b.c A.B.C. U.S. U.K. N.Y. Ph.D. a.m. p.m. A. b. 1. 2) (3) [4] 5:", "Inc. Co. Corp. Ltd. St. Ave. Gen. Gov. No. vs. approx.",
    "x+1=2 5+3 -5 +5 5- 3*4 2^8 a^b 1/2 m/s 5m/s 10km/h 100% %100 #tag @user &amp; a&b *b* _c_ `d` ~e~ |f|", "\ufeffBOM here\ufeff", "\u200e\u200fmarks\u200d", "\ud7ff\ue000\U0010ffff\U0001f9ff",
    "Who?What!Why.How", "End.\"Next\" End.) Next", "Sentence one.Sentence two. sentence Three.", "??!! ... ?! . . .", "।  हिन्दी वाक्य। दूसरा वाक्य॥ तीसरा", "។ល។ ខ្មែរ៕", "a\tb. \tc", "a. b", "a.\u00a0b", "a.\u3000。b",
    "\x00\x01nul\x02\x7f\x9f", "“He said ‘no’.” (Yes.) [No!] {Maybe?}", "1980s 5'10\" 6ft. 7in 8lb. 3MB 4GB. 12K. 50T 9am 9pm 10a.m 11p.m.", "don’t can’t I’m we’re they’ve he’d ’cause 'cause cos'", "ok:ok ok:Ok 1:2 a:1 A:b =a a= ==a a== <a> </a>",
    "—dash—dash–en--double---triple – — -- ~ a~b a—b a--b 1--2 1-a a-1", "IS_ALPHA-like IS_ALPHAx", "\U0001d15e\U0001d160 ᄀ각 가\u11a8", "ΌΣΟΣ ΣΑΣ. ΑΣ:Β ΑΣ\u0301 ΑΣ\u00adΒ Σ",
]
rng = random.Random(4)
PIECES = ["a", "Be", "the", "1", "23", ".", ",", "'", "’", "\"", "-", "—", "(", ")", "...", "…", "$", "%", "s", "'s", "n't", " ", " ", "  ", "\n", "\t", ":", ";", "/", "http://", ".com",
          "@", "#", "&", "km", "U.S.", "e.g.", "can't", "é", "中", "。", "😀", "?", "!", "=", "+", "*", "<", ">", "\u00a0", "İ", "Σ", "º", "²", "A", "Z", "_", "^", "~", "`", "«", "\u2028", ":)", "xD"]
TEXTS += ["".join(rng.choice(PIECES) for _ in range(rng.randint(1, 40))) for _ in range(400)]

with open(sys.argv[1], "w", encoding="ascii") as out:
    for text in TEXTS:
        words = text.split()
        simple = simplify_text(text)
        out.write(json.dumps({
            "text": text, "code_points": len(text), "split": words, "spacy": spacy.word_tokenize(text),
            "sentences": max(1, len(spacy.span_tokenize(text))) if text else 1,
            "symbols": "".join("01"[all(c in PUNCTUATION_SET for c in w)] for w in words),
            "alphas": "".join("01"[any(c.isalpha() for c in w)] for w in words),
            "splitlines": text.splitlines(), "newlines": text.split("\n"), "strip": text.strip(), "lower": text.lower(), "simplified": simple,
            "simplified_spacy": spacy.word_tokenize(simple)}) + "\n")
