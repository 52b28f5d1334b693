#!/usr/bin/env python3
"""Checks every golden model of tests/models/golden with the program: the output of `strata checkpoint export` loads in
transformers without a warning and has the logits of the original, and `strata eval` computes the loss of transformers
(check_encoders.py checks the losses of BERT and T5, which need a tokenizer). This finds windows, caps and scalings that
are missing in the exported config.json.

    python3 tools/golden/check_families.py build/release/bin/strata [MODEL ...]

Needs torch and transformers. Not part of the tests, which need no Python.
"""
import json
import logging
import pathlib
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

LENGTH = 48
said = []


class Listener(logging.Handler):
    def emit(self, record):
        if record.levelno >= logging.WARNING:
            said.append(record.getMessage())


def load(folder):
    said.clear()
    config = json.loads((folder / "config.json").read_text())
    kind = config["model_type"]
    # The grouped matmuls of transformers require widths that are multiples of 16 bytes.
    has_experts = config.keys() & {"num_experts_per_tok", "num_experts_per_token"}
    plain = {"experts_implementation": "eager"} if has_experts else {}
    auto = {"bert": AutoModelForMaskedLM, "t5": AutoModelForSeq2SeqLM, "switch_transformers": AutoModelForSeq2SeqLM}.get(kind, AutoModelForCausalLM)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, info = auto.from_pretrained(folder, dtype=torch.float32, output_loading_info=True,
                                                           attn_implementation="eager", **plain)
    said.extend(str(w.message) for w in caught if "transformers" in (w.filename or ""))
    if config.get("num_nextn_predict_layers"):  # transformers knows these only for published depths, and lists others in a report
        further = tuple(f"model.layers.{config['num_hidden_layers'] + i}." for i in range(config["num_nextn_predict_layers"]))
        info["unexpected_keys"] = [key for key in info["unexpected_keys"] if not key.startswith(further)]
        said[:] = [line for line in said if "LOAD REPORT" not in line]
    assert not any(info.get(k) for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    return model.eval()


def check(program, folder, scratch):
    original = load(folder)
    about_the_original = set(said)  # such as Llama 4's published scaling, with two equal frequencies
    out = scratch / folder.name
    subprocess.run([program, "checkpoint", "export", folder, out, "--dtype", "fp32"], check=True, capture_output=True)
    exported = load(out)
    assert not set(said) - about_the_original, said
    config = exported.config
    if config.model_type in ("bert", "t5", "switch_transformers"):
        ids = torch.randint(1, config.vocab_size, (2, 24), generator=torch.Generator().manual_seed(3))
        both = {"decoder_input_ids": ids[:, :13]} if config.is_encoder_decoder else {}
        with torch.no_grad():
            apart = (exported(ids, **both).logits - original(ids, **both).logits).abs().max().item()
        assert apart <= 1e-5, apart
        print(f"{folder.name}: {type(exported).__name__}, logits {apart:.1e} from the original's")
        return
    length = min(LENGTH, getattr(config, "max_position_embeddings", LENGTH))  # Mamba-2 has no such key
    ids = torch.randint(1, config.vocab_size, (1000,), generator=torch.Generator().manual_seed(3))
    loss, count = 0.0, 0
    with torch.no_grad():
        for begin in range(0, len(ids) - 1, length):
            window = ids[begin:begin + length + 1][None]
            logits = exported(window[:, :-1]).logits
            # gelu_new is exported as gelu_pytorch_tanh: the same function with another rounding.
            assert torch.allclose(logits, original(window[:, :-1]).logits, rtol=0, atol=1e-5), "logits differ"
            loss += torch.nn.functional.cross_entropy(logits[0].double(), window[0, 1:], reduction="sum").item()
            count += window.shape[1] - 1
    tokens = scratch / "tokens.bin"
    ids.numpy().astype(np.uint16).tofile(tokens)
    tokens.with_suffix(".json").write_text(json.dumps({"dtype": "u16", "vocab_size": config.vocab_size}))
    said_by_strata = subprocess.run([program, "eval", "--model", out, "--tokens", tokens, "--sequence-length", str(length),
                                     "--set", "precision.compute=fp32", "--json"], check=True, capture_output=True, text=True)
    found = json.loads(said_by_strata.stdout.splitlines()[0])
    assert found["tokens"] == count
    assert abs(found["loss"] - loss / count) < 2e-5, (found["loss"], loss / count)
    print(f"{folder.name}: {type(exported).__name__}, loss {found['loss']:.6f}, transformers {loss / count:.6f}")


def main():
    transformers.logging.get_logger("transformers").addHandler(Listener())
    golden = pathlib.Path(__file__).resolve().parents[2] / "tests" / "models" / "golden"
    with tempfile.TemporaryDirectory() as scratch:
        for folder in sorted(path for path in golden.iterdir() if path.is_dir()):
            if not sys.argv[2:] or folder.name in sys.argv[2:]:
                check(sys.argv[1], folder, pathlib.Path(scratch))


if __name__ == "__main__":
    main()
