#!/usr/bin/env python3
"""Writes tests/data/filter/two_languages.bin, a tiny fastText classifier, and prints its predictions for the test's
texts.

    python tools/golden/make_fasttext.py tests/data/filter/two_languages.bin      # fasttext-wheel
"""
import random
import sys
import tempfile

import fasttext

rng = random.Random(2)
EN = "the of and that with have this from they were been their which would there about could".split()
DE = "der die und das mit haben dieser von sie waren ihre welche würde dort über könnte nicht".split()
with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
    for _ in range(400):
        file.write("__label__en " + " ".join(rng.choices(EN, k=8)) + "\n")
        file.write("__label__de " + " ".join(rng.choices(DE, k=8)) + "\n")
    file.flush()
    model = fasttext.train_supervised(file.name, dim=2, bucket=20, minn=0, maxn=0, epoch=10, lr=0.5, thread=1, seed=1)
model.save_model(sys.argv[1])
for text in ["the of and that have been there", "der die und das nicht", "the die of das", "xyzzy"]:
    print(text, model.f.predict(text + "\n", -1, 0.0, "strict"))
