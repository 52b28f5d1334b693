#!/usr/bin/env python3
"""Writes tests/data/megatron/{u16,i32}.{bin,idx}: Megatron indexed datasets in Megatron-LM's format.

Three documents of 1, 2 and 1 sequences; the second dataset has i32 ids above 65,535. Needs no packages.
Usage: make_megatron_pair.py FOLDER
"""
import pathlib
import struct
import sys


def write_pair(prefix: pathlib.Path, code: int, letter: str, sequences, documents) -> None:
    width = struct.calcsize("<" + letter)
    tokens = [token for sequence in sequences for token in sequence]
    prefix.with_suffix(".bin").write_bytes(struct.pack(f"<{len(tokens)}{letter}", *tokens))
    lengths = [len(sequence) for sequence in sequences]
    pointers, at = [], 0
    for length in lengths:
        pointers.append(at)
        at += length * width
    index = b"MMIDIDX\x00\x00" + struct.pack("<QB", 1, code)
    index += struct.pack("<QQ", len(sequences), len(documents))
    index += struct.pack(f"<{len(lengths)}i", *lengths)
    index += struct.pack(f"<{len(pointers)}q", *pointers)
    index += struct.pack(f"<{len(documents)}q", *documents)
    prefix.with_suffix(".idx").write_bytes(index)


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    shape = [[0] * 5, [1] * 3, [2] * 7, [3] * 1]
    documents = [0, 1, 3, 4]
    narrow = [[(s * 100 + j) for j in range(len(part))] for s, part in enumerate(shape)]
    wide = [[(s * 100 + j) * 300 for j in range(len(part))] for s, part in enumerate(shape)]
    write_pair(folder / "u16", 8, "H", narrow, documents)
    write_pair(folder / "i32", 4, "i", wide, documents)


if __name__ == "__main__":
    main()
