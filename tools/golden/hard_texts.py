"""Hard strings for tokenizers: real-world text on which splitters, normalizers and merges go wrong."""
TEXTS = [
    "", " ", "  ", "\n", "\r\n", "\t", "a", " a", "a ", " a ", "  a  b  ", "Hello world", "Hello, world!  It's 2024.",
    # contractions and quotes
    "don't DON'T we'll WE'LL I'm i'M they've y'all's 'tis ''s '", "it’s “quoted” ‘single’ «guillemets» „low“",
    # combining marks: composed, decomposed, stacked, without a base, in the wrong order
    "café cafe\u0301", "\u0301alone", "e\u0301\u0302\u0323 e\u0323\u0302\u0301", "Z̸̡̢a̷l̵g̶o̷ t̴e̵x̶t̵",
    "ậ A\u030a \u212b \u00c5", "한국어 \u1112\u1161\u11ab\u1100\u116e\u11a8", "が か\u3099 ﾊﾟ ﾊﾟﾋﾟ", "नमस्ते दुनिया क्षत्रिय", "ｶﾞｷﾞ①②㌔",
    # scripts
    "日本語のテキスト、漢字とかな交じり文。", "中文没有空格，标点是全角的！", "中a文b 123中", "Привет, мир! Ёлка ёж", "Ελληνικά: άέήίόύώ ΣΑΣ ς",
    "שלום עולם! בְּרֵאשִׁית", "السلام عليكم ورحمة الله وبركاته ١٢٣", "mixed ‏שלום‎ LTR \u202eRTL\u202c end", "สวัสดีครับ ภาษาไทยไม่มีช่องว่าง",
    "ພາສາລາວ ကမ္ဘာ ភាសាខ្មែរ", "தமிழ் తెలుగు ಕನ್ನಡ മലയാളം বাংলা ગુજરાતી ਪੰਜਾਬੀ", "አማርኛ ქართული հայերեն ᏣᎳᎩ ᚠᚢᚦ", "Türkçe İstanbul ISPARTA ıi",
    "Straße STRASSE ﬁ ﬂ ﬃ Ǆ ǅ ǆ ŉ", "ʰ ʱ ˀ ª º ¹ ² ³ ½ Ⅷ ⅷ ٣ ४ 𝟙𝟚 𝔘𝔫𝔦 ℵ", "Tiếng Việt: được, nghĩa, trường",
    # emoji: modifiers, ZWJ sequences, flags, keycaps, tags, variation selectors
    "😀😃 👍🏽 👨‍👩‍👧‍👦 👩🏾‍🚀 🏳️‍🌈 🇩🇪🇫🇷🇩 1️⃣ #️⃣ ☺︎ ☺️ ❤️‍🔥", "🏴󠁧󠁢󠁥󠁮󠁧󠁿 ©\u200d® ©︎", "a😀b 😀 c", "\u200d\u200d x\u200dy",
    # white space and invisible characters
    "a\u00a0b\u2003c\u3000d\u200be\u2060f\ufeffg", "\u2028line\u2029para\u0085nel", "a\tb\t\tc\x0bd\x0ce", "x\n\n\ny\r\n\r\nz\r\rw",
    " \n \n  x", "tail   ", "tail \n", "\n\n", "   \n   ", "a \u00ad soft\u00adhyphen \u180e \u061c", "\u2581under ▁ ▁▁a▁b ▁",
    # control characters, NUL, noncharacters, private use, unassigned
    "nul\x00inside", "\x00", "\x01\x02\x7f\x80\x9f", "esc\x1b[31mred\x1b[0m \x07", "\ufffe\uffff\U0010ffff \ue000 \U000f0000",
    "\u0378\u0379 \U0001fbff \U000e0001", "\ufffd replacement \ufffd",
    # numbers
    "1 12 123 1234 12345 1234567890", "3.14159 1,000,000 1e-10 0xFF ²³ ½¾", "2024-02-29T12:34:56.789Z +49 (0)30", "١٢٣٤٥ १२३ 一二三",
    # code and markup
    "def f(x):\n    return x + 1  # comment\n\n\nclass A:\n\tpass\n", "for (int i = 0; i < n; ++i) { a[i] += b[i] * c; }\r\n",
    "<p class=\"x\">a &amp; b</p><!-- c --><br/>", "https://example.org/a/b?c=d&e=%20f#g user@example.org", "C:\\path\\to\\file.txt //share/x",
    "{\"key\": [1, 2.5, null, true], \"s\": \"\\u00e9\\n\"}", "HTTPServer getURLFor camelCase snake_case kebab-case SCREAMING_CASE",
    "__init__ __ _ -- --- ---- ... …… !!! ??? *** ~~~ === ///", "a+b=c a-b a*b a/b a^b a%b a&b a|b ~a !a @a #a $a `a`", "<?php echo $x->y; ?> λx.x∘y ∀ε>0 ∃δ",
    # runs
    "a" * 300, "-" * 129, " " * 77 + "x", "\n" * 40, "ab" * 200, "the " * 60, "日" * 120, "é" * 150, "😀" * 40, "0" * 100, "\t" * 33 + "x",
    "=" * 64 + "\n" + "-" * 64 + "\n", "aA" * 60, "x" * 101 + " " + "y" * 100, "ẍ̃" * 30,
    # special tokens inside text: whole, truncated, doubled, in other letter cases
    "<s>text</s>", "a<s> b </s>c", "<unk>", "x <unk> y", "<|endoftext|>", "a<|endoftext|>b <|endoftext|> c", "<|endoftext", "endoftext|>",
    "<|ENDOFTEXT|>", "[CLS] a [SEP] b [MASK] [UNK][PAD]", "<pad><mask> <extra_id_0>", "<0x41> <0xFF>", "<sym>a <sym> b<sym>", "<SYM>x", "word<sep>word",
    "[INST] hi [/INST]", "<SPECIAL_20>", "<s></s><s></s>",
    # ordinary text in English and other languages
    "The quick brown fox jumps over the lazy dog. The dog barks; the fox runs!", "Dr. Smith's e-mail (sent 3 p.m.) didn't arrive—why?",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.", "Voix ambiguë d’un cœur qui, au zéphyr, préfère les jattes de kiwis.",
    "kalo mithean ingeron struction the thean kalo, mi kalo.", "thean. Kalo! INGERON", "  the  kalo\n\n mi  ", "KALO Mi tHe",
]
