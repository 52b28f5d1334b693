#!/usr/bin/env python3
"""Writes tests/data/checkpoint/gguf/MODEL-fp32.gguf for hybrids of tests/models/golden, with llama.cpp's converter.

    python3 tools/golden/make_gguf_hybrids.py build/release/bin/strata path/to/llama.cpp [MODEL ...]

Keys and tensors are the converter's, in the order of `strata checkpoint export --format gguf`, so that the test can compare bytes;
only what check_gguf.py lists as intended differences comes from strata, and no tokenizer is written. Needs torch, transformers,
tokenizers and gguf.
"""
import json
import pathlib
import shutil
import sys
import tempfile

import gguf
import numpy as np
from check_gguf import EXPECTED, contents, convert, export

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "data" / "checkpoint" / "gguf"
# The converter does not accept the sizes of the others.
MODELS = ["qwen3-next", "qwen3-5", "qwen3-5-moe", "mamba2", "granite-hybrid", "falcon-h1", "lfm2-moe", "olmo3", "minimax-m2",
          "glm-moe-dsa"]


def write(path, ours, theirs):
    (keys, tensors), (converted, values) = contents(ours), contents(theirs)
    arch = keys["general.architecture"]
    writer = gguf.GGUFWriter(path, arch)
    kinds = gguf.GGUFReader(ours).fields
    assert tensors.keys() == values.keys(), tensors.keys() ^ values.keys()
    for key, ours_value in keys.items():
        if key == "general.architecture":
            continue
        name = key.removeprefix(arch + ".")
        value = ours_value if name in EXPECTED or key.startswith(("general.", "tokenizer.")) else converted[key]
        types = kinds[key].types
        if types[0] == gguf.GGUFValueType.ARRAY:
            writer.add_key_value(key, value, types[0], types[1])
        else:
            writer.add_key_value(key, value, types[0])
    for name in tensors:
        writer.add_tensor(name, np.ascontiguousarray(values[name]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    program, llama_cpp = sys.argv[1:3]
    for model in sys.argv[3:] or MODELS:
        with tempfile.TemporaryDirectory() as scratch:
            scratch = pathlib.Path(scratch)
            plain, folder = scratch / "plain" / model, scratch / model
            shutil.copytree(ROOT / "tests" / "models" / "golden" / model, plain)
            ours = export(program, plain, scratch / "ours.gguf", "--format", "gguf")
            hf = export(program, plain, folder)
            # The converter needs a tokenizer.
            (hf / "tokenizer.json").write_text((OUT / "tokenizer.json").read_text())
            (hf / "tokenizer_config.json").write_text(json.dumps(
                {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}))
            theirs = scratch / "theirs.gguf"
            convert(llama_cpp, hf, theirs, "gpt-2")
            write(OUT / f"{model}-fp32.gguf", ours, theirs)
            print(model, (OUT / f"{model}-fp32.gguf").stat().st_size, flush=True)


if __name__ == "__main__":
    main()
