#!/usr/bin/env python3
"""Writes the golden model directories under tests/models/golden/.

Each directory is a small random model as transformers saves it (config.json, model.safetensors in fp32), with sizes
that are no powers of two, a head size that is not d / heads, and three query heads to a key-value head, and

  expected.safetensors   what PyTorch and transformers compute with it, in fp32 with eager attention:
    tokens           int32 [2, 33]        inputs are the first 32 of each row, targets the last 32
    logits           fp32  [2, 32, V]
    loss             fp32  [1]            mean over the 64 targets
    grad/NAME        fp32                 gradient of that mean; NAME as in model.safetensors
    adamw/tokens     int32 [30, 2, 33]    a fresh batch for each step, starting from the saved weights
    adamw/loss       fp32  [30]           before the update of that step
    adamw/grad_norm  fp32  [30]           before clipping
                     torch.optim.AdamW: lr 1e-3, betas 0.9 and 0.95, eps 1e-8, weight decay 0.1 on tensors with two
                     or more dimensions, gradients clipped to a global norm of 1
    document/tokens     int32 [2, 33]     several documents in a row; each ends with the end-of-text id 0
    document/positions  int32 [2, 32]     start at 0 in each document
    document/segments   int32 [2, 32]     number of the document in the row; attention stays inside it
    document/targets    int32 [2, 32]     -1 where the target is another document's first token: not counted
    document/logits     fp32  [2, 32, V]
    document/loss       fp32  [1]         mean over the targets that count
    document/grad_norm/NAME  fp32 [1]     Euclidean norm of that tensor's gradient
    greedy/prompt    int32 [7]
    greedy/tokens    int32 [20]           what transformers' generate() adds to it at temperature 0

Needs torch, transformers and safetensors. Run it from the repository's root; the same versions give the same files.
"""

import pathlib
import shutil

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

END_OF_TEXT = 0
BATCH, LENGTH = 2, 32
STEPS = 30


def llama(tied):
    # transformers wants the hidden size to be a multiple of the heads, although the head size is another.
    sizes = dict(hidden_size=42, num_attention_heads=6, num_key_value_heads=2, intermediate_size=50, num_hidden_layers=3)
    if tied:
        sizes = dict(hidden_size=30, num_attention_heads=3, num_key_value_heads=1, intermediate_size=46, num_hidden_layers=2)
    config = LlamaConfig(
        vocab_size=131, head_dim=16, max_position_embeddings=128, rms_norm_eps=1e-5, tie_word_embeddings=tied,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        bos_token_id=END_OF_TEXT, eos_token_id=END_OF_TEXT, attn_implementation="eager", **sizes)
    return LlamaForCausalLM(config)


def gpt2():
    config = GPT2Config(
        vocab_size=97, n_positions=64, n_embd=36, n_head=3, n_layer=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=END_OF_TEXT, eos_token_id=END_OF_TEXT, attn_implementation="eager")
    return GPT2LMHeadModel(config)


def randomize(model, generator):
    """Weights large enough that every part of the model shows in the logits; no bias is 0 and no norm weight 1."""
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() >= 2:
            parameter.data = noise * (0.5 if "wte" in name or "embed_tokens" in name else parameter.shape[-1] ** -0.5)
        elif name.endswith("bias"):
            parameter.data = 0.1 * noise
        else:
            parameter.data = 1.0 + 0.2 * noise
    model.tie_weights()


def mean_loss(logits, targets):
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=-1)


def random_tokens(shape, vocabulary, generator):
    return torch.randint(1, vocabulary, shape, generator=generator)


def plain(model, tokens):
    model.zero_grad()
    logits = model(tokens[:, :-1]).logits
    loss = mean_loss(logits, tokens[:, 1:])
    loss.backward()
    out = {"tokens": tokens.int(), "logits": logits.detach(), "loss": loss.detach().reshape(1)}
    for name, parameter in model.named_parameters():
        out["grad/" + name] = parameter.grad.clone()
    return out


def documents(model, tokens):
    tokens = tokens.clone()
    # Documents of 1 to 20 tokens; the first row begins with an empty one, the second ends with an end of text.
    for row, ends in enumerate([[0, 5, 6, 27], [11, 31, 32]]):
        tokens[row, ends] = END_OF_TEXT
    inputs, targets = tokens[:, :-1], tokens[:, 1:].clone()
    ended = (inputs == END_OF_TEXT).int()
    segments = ended.cumsum(1) - ended
    positions = torch.zeros_like(inputs)
    for t in range(1, LENGTH):
        positions[:, t] = torch.where(segments[:, t] == segments[:, t - 1], positions[:, t - 1] + 1, 0)
    targets[inputs == END_OF_TEXT] = -1
    visible = (segments[:, :, None] == segments[:, None, :]) & torch.ones(LENGTH, LENGTH).tril().bool()
    mask = torch.where(visible, 0.0, torch.finfo(torch.float32).min)[:, None]

    model.zero_grad()
    logits = model(inputs, attention_mask=mask, position_ids=positions).logits
    loss = mean_loss(logits, targets)
    loss.backward()

    # Each document alone must give the same logits: the mask above says what it should.
    for row in range(BATCH):
        for document in segments[row].unique():
            where = segments[row] == document
            alone = model(inputs[row, where][None]).logits[0]
            assert torch.allclose(alone, logits[row, where], atol=1e-5), "the document mask leaks"

    out = {"tokens": tokens.int(), "positions": positions.int(), "segments": segments.int(), "targets": targets.int(),
           "logits": logits.detach(), "loss": loss.detach().reshape(1)}
    for name, parameter in model.named_parameters():
        out["grad_norm/" + name] = parameter.grad.norm().reshape(1)
    return {"document/" + name: value for name, value in out.items()}


def greedy(model, prompt):
    tokens = model.generate(prompt[None], max_new_tokens=20, do_sample=False, pad_token_id=END_OF_TEXT)[0]
    assert len(tokens) == len(prompt) + 20, "an end of text was generated: take another seed"
    best = model(tokens[None, :-1]).logits[0, len(prompt) - 1:].topk(2).values
    margin = (best[:, 0] - best[:, 1]).min().item()
    assert margin > 1e-2, f"two tokens are nearly equally likely ({margin}): take another seed"
    return {"greedy/prompt": prompt.int(), "greedy/tokens": tokens[len(prompt):].int()}


def adamw(model, batches):
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    losses, norms = [], []
    for tokens in batches:
        optimizer.zero_grad()
        loss = mean_loss(model(tokens[:, :-1]).logits, tokens[:, 1:])
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        optimizer.step()
        losses.append(loss.detach())
    return {"adamw/tokens": batches.int(), "adamw/loss": torch.stack(losses), "adamw/grad_norm": torch.stack(norms)}


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    root = pathlib.Path(__file__).resolve().parents[2] / "tests" / "models" / "golden"
    for name, make, seed in [("llama-untied", lambda: llama(False), 11), ("llama-tied", lambda: llama(True), 12),
                             ("gpt2", gpt2, 13)]:
        generator = torch.Generator().manual_seed(seed)
        model = make()
        randomize(model, generator)
        folder = root / name
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
        model.train()

        vocabulary = model.config.vocab_size
        draw = lambda *shape: random_tokens(shape, vocabulary, generator)
        expected = plain(model, draw(BATCH, LENGTH + 1))
        expected |= documents(model, draw(BATCH, LENGTH + 1))
        expected |= greedy(model, draw(7))
        expected |= adamw(model, draw(STEPS, BATCH, LENGTH + 1))
        save_file({key: value.contiguous() for key, value in expected.items()}, folder / "expected.safetensors")
        size = sum(file.stat().st_size for file in folder.iterdir())
        print(f"{name}: {sum(p.numel() for p in model.parameters())} parameters, {size} bytes, loss "
              f"{expected['loss'].item():.4f}, AdamW {expected['adamw/loss'][0]:.4f} to {expected['adamw/loss'][-1]:.4f}, "
              f"gradient norm {expected['adamw/grad_norm'][0]:.3f}")


if __name__ == "__main__":
    main()
