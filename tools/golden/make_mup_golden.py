#!/usr/bin/env python3
"""Writes tests/train/mup/NAME: small models that the `mup` package (Yang et al. 2022, github.com/microsoft/mup) trains.

Each model is twice as wide as its base in every dimension that grows: width, FFN and head size. It is built from the
package's parts: MuReadout or MuSharedReadout (logits multiplied by base width / width), scores scaled by
sqrt(base head size) / head size, Gemma's embedding scale sqrt(d) with the base's d, MuAdamW's learning rates and weight
decays. The files contain the same model without multipliers, as an ordinary transformers directory:

  config.json, model.safetensors   the multipliers folded into the rows of q (or the norm of q), the head, or the last norm
  expected.safetensors
    tokens     int32 [20, 2, 33]   a batch per step; inputs are the first 32 of a row, targets the last 32
    loss       fp32  [20]          before the update of that step, by the package's model
    logits     fp32  [2, 32, V]    of the first batch after the last step
    sizes      int32 [2]           base width, base head size

The script checks that the ordinary model has the package's logits. lr 2e-3, betas 0.9 and 0.95, eps 1e-12 (a folded
multiplier scales gradients, which affects Adam only through eps), weight decay 0.1 on tensors with two or more
dimensions, no clipping.

Needs torch, transformers, safetensors and mup 1.0.0. Arguments select models by name.
"""

import pathlib
import sys

import mup
import torch
import transformers
from safetensors.torch import save_file

BATCH, LENGTH, STEPS, VOCABULARY = 2, 32, 20, 53
RATE, DECAY = 2e-3, 0.1
WIDTH, HEAD, HEADS = 24, 8, 3  # of the base


def config_of(name, scale, **settings):
    """A model `scale` times as wide as the base."""
    sizes = dict(vocab_size=VOCABULARY, bos_token_id=0, eos_token_id=0, pad_token_id=None, attn_implementation="eager")
    if name == "GPT2":
        sizes |= dict(n_embd=WIDTH * scale, n_head=HEADS, n_layer=2, n_positions=64, n_inner=34 * scale, resid_pdrop=0.0,
                      embd_pdrop=0.0, attn_pdrop=0.0)
    else:
        sizes |= dict(hidden_size=WIDTH * scale, num_attention_heads=HEADS, num_key_value_heads=1, head_dim=HEAD * scale,
                      intermediate_size=34 * scale, num_hidden_layers=2, max_position_embeddings=64)
    if name.startswith("Gemma"):
        sizes |= dict(query_pre_attn_scalar=HEAD * scale, sliding_window=6,
                      layer_types=["sliding_attention", "full_attention"], final_logit_softcapping=None)
    return getattr(transformers, name + "Config")(**(sizes | settings))


MODELS = {
    "llama-untied": ("Llama", dict(tie_word_embeddings=False, attention_bias=True)),
    "gpt2": ("GPT2", {}),
    "qwen3": ("Qwen3", dict(tie_word_embeddings=False)),
    "gemma3": ("Gemma3Text", {}),
}


def build(name, scale, settings):
    kind = "GPT2LMHeadModel" if name == "GPT2" else name.removesuffix("Text") + "ForCausalLM"
    return getattr(transformers, kind)(config_of(name, scale, **settings))


def with_multipliers(name, scale, settings):
    """The model in the package's form: with its readout, scores scaled by 1 / head size."""
    model = build(name, scale, settings)
    table = model.get_input_embeddings().weight
    if model.config.tie_word_embeddings:
        model.lm_head = mup.MuSharedReadout(table, bias=False)
    else:
        model.lm_head = mup.MuReadout(model.config.hidden_size, VOCABULARY, bias=False)
    for module in model.modules():
        if type(module).__name__.endswith("Attention"):
            module.scaling = HEAD ** 0.5 / (HEAD * scale)
        if type(module).__name__ == "Gemma3TextScaledWordEmbedding":
            module.scalar_embed_scale = WIDTH ** 0.5
            module.embed_scale = torch.tensor(WIDTH ** 0.5)
    return model


def randomize(model, generator):
    """Scales weights so that every part affects scores and logits."""
    gemma = model.config.model_type.startswith("gemma")
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() >= 2:
            table = any(part in name for part in ("wte", "wpe", "embed_tokens"))
            parameter.data = noise * (0.5 if table or "lm_head" in name else WIDTH ** -0.5)
        elif name.endswith("bias"):
            parameter.data = 0.1 * noise
        else:
            parameter.data = (0.0 if gemma else 1.0) + 0.2 * noise


def folded(model, name, scale, settings):
    """The ordinary model that is equivalent to `model`."""
    plain = build(name, scale, settings)
    state = {key: value.clone() for key, value in model.state_dict().items() if "lm_head" not in key}
    gemma = model.config.model_type.startswith("gemma")
    tied = model.config.tie_word_embeddings
    table = 1 / scale ** 0.5 if gemma else 1.0  # the ordinary model multiplies by a larger square root
    query = scale ** -0.5
    readout = 1 / (scale * table) if tied else 1 / scale

    def norm(key, factor):
        state[key] = factor * (state[key] + 1) - 1 if gemma else factor * state[key]

    has_norms = any("q_norm" in key for key in state)
    for key in list(state):
        if "embed_tokens.weight" in key:
            state[key] *= table
        elif key.endswith("q_norm.weight"):
            norm(key, query)
        elif "q_proj" in key and not has_norms:
            state[key] *= query
        elif "c_attn" in key:
            state[key][..., :model.config.n_embd] *= query
        elif tied and key in ("model.norm.weight", "transformer.ln_f.weight"):
            norm(key, readout)
        elif tied and key == "transformer.ln_f.bias":
            state[key] *= readout
    if tied:
        state["lm_head.weight"] = state["transformer.wte.weight" if name == "GPT2" else "model.embed_tokens.weight"]
    else:
        state["lm_head.weight"] = model.lm_head.weight.detach() * readout
    plain.load_state_dict(state)
    return plain


def mean_loss(logits, targets):
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    root = pathlib.Path(__file__).resolve().parents[2] / "tests" / "train" / "mup"
    for number, (folder, (name, settings)) in enumerate(MODELS.items()):
        if sys.argv[1:] and folder not in sys.argv[1:]:
            continue
        generator = torch.Generator().manual_seed(100 + number)
        model = with_multipliers(name, 2, settings)
        mup.set_base_shapes(model, with_multipliers(name, 1, settings), delta=with_multipliers(name, 3, settings),
                            rescale_params=False)
        randomize(model, generator)
        model.train()
        tokens = torch.randint(1, VOCABULARY, (STEPS, BATCH, LENGTH + 1), generator=generator)

        plain = folded(model, name, 2, settings)
        plain.save_pretrained(root / folder)
        matrices = [p for p in model.parameters() if p.dim() >= 2]
        vectors = [p for p in model.parameters() if p.dim() < 2]
        optimizer = mup.MuAdamW([{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}],
                                lr=RATE, betas=(0.9, 0.95), eps=1e-12)
        losses = []
        for batch in tokens:
            optimizer.zero_grad()
            logits = model(batch[:, :-1]).logits
            if not losses:
                assert torch.allclose(plain(batch[:, :-1]).logits, logits, atol=2e-5), "the folded model is another"
            loss = mean_loss(logits, batch[:, 1:])
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        expected = {"tokens": tokens.int(), "loss": torch.stack(losses), "sizes": torch.tensor([WIDTH, HEAD]).int(),
                    "logits": model(tokens[0, :, :-1]).logits.detach()}
        save_file({key: value.contiguous() for key, value in expected.items()}, root / folder / "expected.safetensors")
        groups = sorted({(group["lr"], group["weight_decay"]) for group in optimizer.param_groups if group["params"]})
        print(f"{folder}: loss {losses[0]:.4f} to {losses[-1]:.4f}; learning rate and decay of the package {groups}")


if __name__ == "__main__":
    main()
