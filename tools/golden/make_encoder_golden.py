#!/usr/bin/env python3
"""Writes the golden directories of models with an encoder (BERT, T5, Switch) under tests/models/golden/.

Like make_model_golden.py, but stores every input under its name in the program, each [rows, length]:

  inputs/NAME              int32   tokens, targets (-1: ignored), positions, kv_begin; for T5 also encoder_tokens and
                                   encoder_kv_begin (of the encoder) and cross_kv_begin (the document that a row reads)
  logits, loss, grad/NAME, bf16/…  for these inputs, as in make_model_golden.py
  adamw/inputs/NAME        int32   [30, rows, length], then adamw/loss and adamw/grad_norm
  document/inputs/NAME     int32   several documents in a row, attention inside each; then document/logits, document/loss
                                   and document/grad_norm/NAME
  greedy/prompt, greedy/tokens     for T5: the encoder's text, and the output of generate()
  balanced/...             for Switch: encoder_aux, decoder_aux, encoder_z and decoder_z, and grad/NAME of the loss with
                           them

For Switch, each document has the full capacity of an expert, as if it were the only one.

Needs torch, transformers and safetensors. Arguments select models by name; the same versions write the same files.
"""

import copy
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import (BertConfig, BertForMaskedLM, SwitchTransformersConfig, SwitchTransformersForConditionalGeneration,
                          T5Config, T5ForConditionalGeneration)

ROWS, LENGTH, SOURCE, TARGET, STEPS = 2, 32, 24, 13, 30
PAD, END = 0, 1


def bert(**settings):
    config = BertConfig(vocab_size=61, hidden_size=36, num_hidden_layers=2, num_attention_heads=3, intermediate_size=50,
                        max_position_embeddings=40, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
                        pad_token_id=PAD, attn_implementation="eager", **settings)
    return BertForMaskedLM(config)


def t5(**settings):
    config = T5Config(vocab_size=61, d_model=24, d_kv=10, d_ff=34, num_layers=2, num_decoder_layers=3, num_heads=3,
                      relative_attention_num_buckets=8, relative_attention_max_distance=14, dropout_rate=0.0,
                      decoder_start_token_id=PAD, attn_implementation="eager", **settings)
    return T5ForConditionalGeneration(config)


def switch(**settings):
    # Some experts exceed their capacity; the third of four layers has no experts.
    config = SwitchTransformersConfig(
        vocab_size=61, d_model=24, d_kv=10, d_ff=34, num_layers=4, num_sparse_encoder_layers=2, num_decoder_layers=4,
        num_sparse_decoder_layers=1, num_heads=3, num_experts=5, expert_capacity=4, router_jitter_noise=0.0,
        relative_attention_num_buckets=8, relative_attention_max_distance=14, dropout_rate=0.0, decoder_start_token_id=PAD,
        router_z_loss_coef=0.003, router_aux_loss_coef=0.02, attn_implementation="eager", **settings)
    return SwitchTransformersForConditionalGeneration(config)


# "t5-gated" is T5 1.1 as in transformers 5: tied in memory, without scaling of the head's input.
MODELS = {
    "bert": (bert, 51),
    "t5": (t5, 52),
    "t5-gated": (lambda: t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False), 53),
    # A seed with which rounding does not affect the choice of experts: see steady().
    "switch": (switch, 73),
}


def randomize(model, generator):
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() >= 2:
            table = "embeddings" in name or "shared" in name or "relative" in name
            # Gives logits a usual size even if the head's input is not scaled.
            large = getattr(model.config, "scale_decoder_outputs", True) or "shared" not in name
            parameter.data = noise * ((0.5 if large else 0.15) if table else parameter.shape[-1] ** -0.5)
        elif name.endswith("bias"):
            parameter.data = 0.1 * noise
        else:
            parameter.data = 1.0 + 0.2 * noise
    model.tie_weights()


def additive(seen):
    return torch.where(seen, 0.0, torch.finfo(torch.float32).min)[:, None]


def same(a, b):
    return a[:, :, None] == b[:, None, :]


def has_experts(model):
    return model.config.model_type == "switch_transformers"


def alone(inputs, row, start):
    """The document that begins there as a separate batch, and its positions in the row."""
    where = inputs["kv_begin"][row] == start
    document = {name: inputs[name][row, where][None] for name in ("tokens", "positions")}
    document["kv_begin"] = torch.zeros_like(document["tokens"])
    if "cross_kv_begin" in inputs:
        of = inputs["encoder_kv_begin"][row] == inputs["cross_kv_begin"][row, where][0]
        document["encoder_tokens"] = inputs["encoder_tokens"][row, of][None]
        document["encoder_kv_begin"] = torch.zeros_like(document["encoder_tokens"])
        document["cross_kv_begin"] = torch.zeros_like(document["tokens"])
    return document, where


def forward(model, inputs):
    """Logits of the inputs, with attention masks from the kv_begin inputs."""
    if has_experts(model) and inputs["kv_begin"].any():
        # Documents in a row would share the experts' capacity.
        rows = []
        for row, begins_of_row in enumerate(inputs["kv_begin"]):
            rows.append(torch.cat([forward(model, alone(inputs, row, start)[0])[0] for start in begins_of_row.unique()]))
        return torch.stack(rows)
    if has_experts(model):
        return model(input_ids=inputs["encoder_tokens"], decoder_input_ids=inputs["tokens"], use_cache=False).logits
    begin = inputs["kv_begin"]
    cast = lambda mask: mask.to(model.dtype).clamp(min=torch.finfo(model.dtype).min)
    if model.config.model_type == "bert":
        return model(inputs["tokens"], attention_mask=cast(additive(same(begin, begin))),
                     position_ids=inputs["positions"]).logits
    source = inputs["encoder_kv_begin"]
    encoded = model.encoder(inputs["encoder_tokens"], attention_mask=cast(additive(same(source, source)))).last_hidden_state
    causal = same(begin, begin) & torch.ones(begin.shape[1], begin.shape[1]).tril().bool()
    return model(encoder_outputs=(encoded,), attention_mask=cast(additive(same(inputs["cross_kv_begin"], source))),
                 decoder_input_ids=inputs["tokens"], decoder_attention_mask=cast(additive(causal)), use_cache=False).logits


def mean_loss(logits, targets):
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]).float(), targets.reshape(-1),
                                             ignore_index=-1)


def gradients(model):
    # An expert without tokens has no gradient.
    return {name: (torch.zeros_like(parameter) if parameter.grad is None else parameter.grad).float().clone()
            for name, parameter in model.named_parameters()}


def balanced(model, inputs):
    """The router losses of transformers, and the gradients of the total loss."""
    model.zero_grad()
    out = model(input_ids=inputs["encoder_tokens"], decoder_input_ids=inputs["tokens"], use_cache=False,
                labels=inputs["targets"], output_router_logits=True)
    out.loss.backward()
    found = {"balanced/encoder_aux": out.encoder_aux_loss, "balanced/decoder_aux": out.decoder_aux_loss,
             "balanced/encoder_z": out.encoder_z_loss, "balanced/decoder_z": out.decoder_z_loss}
    found = {name: value.detach().reshape(1) for name, value in found.items()}
    return found | {"balanced/grad/" + name: value for name, value in gradients(model).items()}


def with_gradients(model, inputs):
    model.zero_grad()
    logits = forward(model, inputs)
    loss = mean_loss(logits, inputs["targets"])
    loss.backward()
    return logits.detach(), loss.detach().reshape(1), gradients(model)


def stored(prefix, inputs):
    return {prefix + "inputs/" + name: value.int() for name, value in inputs.items()}


def begins(ends, length):
    """The begin of the document at each position, for rows of documents with these ends."""
    rows = []
    for row in ends:
        starts = [0] + row[:-1]
        rows.append(torch.cat([torch.full((end - start,), start) for start, end in zip(starts, row)]))
        assert len(rows[-1]) == length
    return torch.stack(rows)


def make_inputs(model, draw, ends=None):
    """A batch without documents, or with documents that end at `ends` (BERT: of the rows; T5: of source and target)."""
    if model.config.model_type == "bert":
        begin = begins(ends, LENGTH) if ends else torch.zeros(ROWS, LENGTH, dtype=torch.long)
        tokens, targets = draw(ROWS, LENGTH), draw(ROWS, LENGTH)
        targets[torch.arange(ROWS * LENGTH).reshape(ROWS, LENGTH) % 4 != 1] = -1
        if ends:
            tokens[0, 3] = tokens[1, 30] = PAD
        return {"tokens": tokens, "targets": targets, "positions": torch.arange(LENGTH) - begin, "kv_begin": begin}
    sources = begins(ends[0], SOURCE) if ends else torch.zeros(ROWS, SOURCE, dtype=torch.long)
    begin = begins(ends[1], TARGET) if ends else torch.zeros(ROWS, TARGET, dtype=torch.long)
    targets = draw(ROWS, TARGET)
    place = torch.arange(TARGET)
    before = torch.cat([torch.full((ROWS, 1), PAD), targets[:, :-1]], 1)
    tokens = torch.where(place == begin, PAD, before)
    cross_kv_begin = torch.zeros_like(begin)
    if ends:
        for row in range(ROWS):
            for document, start in enumerate([0] + ends[1][row][:-1]):
                cross_kv_begin[row, begin[row] == start] = ([0] + ends[0][row][:-1])[document]
        targets[0, 4] = -1
    return {"tokens": tokens, "targets": targets, "positions": place - begin, "kv_begin": begin,
            "encoder_tokens": draw(ROWS, SOURCE), "encoder_kv_begin": sources, "cross_kv_begin": cross_kv_begin}


DOCUMENTS = {"bert": [[1, 6, 7, 28, 32], [12, 31, 32]],
             "switch_transformers": ([[5, 6, 24], [23, 24]], [[4, 5, 13], [12, 13]]),
             "t5": ([[5, 6, 24], [23, 24]], [[4, 5, 13], [12, 13]])}


def documents_alone(model, inputs, logits):
    """Checks the masks of forward(): each document by itself has the same logits."""
    begin = inputs["kv_begin"]
    for row in range(ROWS):
        for start in begin[row].unique():
            document, where = alone(inputs, row, start)
            apart = (forward(model, document)[0] - logits[row, where]).abs().max().item()
            assert apart < 5e-5, f"the document mask leaks {apart}"


def adamw(model, batches):
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    losses, norms = [], []
    for inputs in batches:
        optimizer.zero_grad()
        loss = mean_loss(forward(model, inputs), inputs["targets"])
        loss.backward()
        for parameter in model.parameters():
            # An expert without tokens has a zero gradient; its update is not skipped.
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        optimizer.step()
        losses.append(loss.detach())
    out = {"adamw/inputs/" + name: torch.stack([batch[name] for batch in batches]).int() for name in batches[0]}
    return out | {"adamw/loss": torch.stack(losses), "adamw/grad_norm": torch.stack(norms)}


def steady(model, batches, expected):
    """Whether the curve is insensitive to rounding: a token with nearly tied experts changes it."""
    moved = copy.deepcopy(model)
    noise = torch.Generator().manual_seed(1)
    for parameter in moved.parameters():
        parameter.data *= 1 + 1e-6 * torch.randn(parameter.shape, generator=noise)
    again = adamw(moved, batches)
    return (torch.allclose(again["adamw/loss"], expected["adamw/loss"], atol=1e-4, rtol=0)
            and torch.allclose(again["adamw/grad_norm"], expected["adamw/grad_norm"], rtol=5e-4))


def greedy(model, draw):
    """The first source with a greedy text that has no end-of-text token and no nearly tied tokens."""
    for _ in range(400):
        prompt = draw(9)
        if has_experts(model):
            # Token by token no expert is full; with whole texts some would be.
            out = model.eval().generate(prompt[None], max_new_tokens=14, do_sample=False, use_cache=True,
                                        output_scores=True, return_dict_in_generate=True)
            model.train()
            tokens, best = out.sequences[0], torch.cat(out.scores).topk(2).values
            if len(tokens) == 15 and END not in tokens and (best[:, 0] - best[:, 1]).min().item() > 1e-2:
                return {"greedy/prompt": prompt.int(), "greedy/tokens": tokens[1:].int()}
            continue
        tokens = model.generate(prompt[None], max_new_tokens=14, do_sample=False, use_cache=False)[0]  # its cache needs stacks of equal depth
        best = model(input_ids=prompt[None], decoder_input_ids=tokens[None, :-1], use_cache=False).logits[0].topk(2).values
        if len(tokens) == 15 and END not in tokens and (best[:, 0] - best[:, 1]).min().item() > 1e-2:
            return {"greedy/prompt": prompt.int(), "greedy/tokens": tokens[1:].int()}
    raise AssertionError("no source gives a clear text: take another seed")


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    root = pathlib.Path(__file__).resolve().parents[2] / "tests" / "models" / "golden"
    for name, (make, seed) in MODELS.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        generator = torch.Generator().manual_seed(seed)
        model = make()
        randomize(model, generator)
        model.train()
        folder = root / name
        model.save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        draw = lambda *shape: torch.randint(2, model.config.vocab_size, shape, generator=generator)

        inputs = inputs_of_loss = make_inputs(model, draw)
        logits, loss, exact = with_gradients(model, inputs)
        expected = stored("", inputs) | {"logits": logits, "loss": loss}
        expected |= {"grad/" + name: gradient for name, gradient in exact.items()}
        rounded = copy.deepcopy(model).to(torch.bfloat16)
        _, rounded_loss, rounded_gradients = with_gradients(rounded, inputs)
        expected["bf16/loss"] = rounded_loss.float()
        for key, gradient in rounded_gradients.items():
            expected["bf16/grad_distance/" + key] = (gradient - exact[key]).norm().reshape(1)
        inputs = make_inputs(model, draw, DOCUMENTS[model.config.model_type])
        logits, loss, of_documents = with_gradients(model, inputs)
        documents_alone(model, inputs, logits)
        expected |= stored("document/", inputs) | {"document/logits": logits, "document/loss": loss}
        expected |= {"document/grad_norm/" + key: value.norm().reshape(1) for key, value in of_documents.items()}
        if model.config.model_type != "bert":
            expected |= greedy(model, draw)
        if has_experts(model):
            expected |= balanced(model, inputs_of_loss)
        batches, start = [make_inputs(model, draw) for _ in range(STEPS)], copy.deepcopy(model)
        expected |= adamw(model, batches)
        assert steady(start, batches, expected), "another rounding gives another curve: take another seed"
        save_file({key: value.contiguous() for key, value in expected.items()}, folder / "expected.safetensors")
        size = sum(file.stat().st_size for file in folder.iterdir())
        print(f"{name}: {sum(p.numel() for p in model.parameters())} parameters, {size} bytes, loss "
              f"{expected['loss'].item():.4f}, AdamW {expected['adamw/loss'][0]:.4f} to {expected['adamw/loss'][-1]:.4f}")


if __name__ == "__main__":
    main()
