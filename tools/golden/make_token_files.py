#!/usr/bin/env python3
"""Writes tests/data/token_files/: Megatron pairs and .ds files, written by datatrove's classes.

Documents d = 0 … 11 of d * 5 % 13 tokens; token j overall is j * 7 % 60000, or j * 7001 % 100000 in the wide files. Only
the .ds files have documents without tokens: Megatron's preprocessing writes no sequence for them.
metric.txt: token counts in the form in which humanize writes them to .ds.metadata.
Needs datatrove. Usage: make_token_files.py FOLDER
"""
import pathlib
import sys

import humanize
from datatrove.pipeline.tokens.megatron_tokenizer import MegatronTokenizedFile
from datatrove.pipeline.tokens.tokenizer import TokenizedFile


def documents(step: int, size: int):
    count = 0
    for d in range(12):
        length = d * 5 % 13
        yield [(count + j) * step % size for j in range(length)]
        count += length


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, width, step, size in [("narrow", 2, 7, 60000), ("wide", 4, 7001, 100000)]:
        stored = TokenizedFile(str(folder), f"{name}.ds", tokenizer_name_or_path="tokenizer.json",
                               save_final_metadata=True, token_size=width)
        pair = MegatronTokenizedFile(str(folder), f"{name}_pair", token_size=width)
        for tokens in documents(step, size):
            stored.write(tokens, None)
            if tokens:
                pair.write(tokens)
        stored.close()
        pair.close()
    counts = [0, 1, 9, 10, 66, 99, 100, 999, 1000, 1234, 9994, 9995, 9996, 99949, 99950, 123456, 999499, 999500,
              999999, 10**6, 1234567, 15 * 10**8, 999999999, 10**12, 5 * 10**14 + 7]
    lines = [f"{count} {humanize.metric(count, unit='T')}\n" for count in counts]
    (folder / "metric.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
