#!/usr/bin/env python3
"""Writes the golden models with DeepSeek sparse attention under tests/models/golden/: deepseek-v32, glm-moe-dsa.

Like those of make_model_golden.py, with the same tensors in expected.safetensors, except that these models are trained on

    L = loss + the indexers' loss (indexer_loss.py)

so that grad/NAME, bf16/grad_distance/NAME, document/grad_norm/NAME and adamw/grad_norm are of L, and include the indexers'
tensors, while loss, bf16/loss, document/loss and adamw/loss are those of the language model alone. In addition

    indexer/loss           fp32  [1]          the indexers' loss of the first batch
    indexer/layers         fp32  [n]          its parts, for the layers that have an indexer
    indexer/chosen         int32 [n, 2, 32, k]  the keys that each token of the first batch attends to, ascending, then -1
    document/indexer/loss  fp32  [1]          for several documents in a row, without tokens that have no target
    adamw/indexer          fp32  [30]         before the update of that step
    warmup/...             with attention to all visible keys, and everything but the indexers' tensors frozen:
      loss, lm_loss        fp32  [1]          of the first batch: the indexers' loss over all visible keys, and the model's
      grad/NAME            fp32               gradient of warmup/loss, for the indexers' tensors
      adamw/loss           fp32  [10]         the indexers' loss in ten AdamW steps as above, on the first ten batches of
      adamw/grad_norm      fp32  [10]         adamw/tokens, starting from the saved weights

All batches and the greedy text are such that rounding changes no choice of keys in fp32: a key that is left out has a
score at least GAP below those of the chosen keys, also in fp64, and main() prints how far the scores are from fp64's.

Needs torch, transformers and safetensors. Arguments select models by name.
"""

import contextlib
import copy
import pathlib
import sys

import torch
from safetensors.torch import save_file

import indexer_loss
import make_model_golden as golden
from indexer_loss import IndexerLoss
from make_model_golden import BATCH, LENGTH, STEPS, mean_loss
from make_mtp_golden import causal_mask, document_batch, plain_batch

WARMUP_STEPS = 10
# Batches are drawn until the scores of all chosen keys are this far above those of the keys that are left out.
GAP = 1e-3
# The first batch is one of these many; the loss of its bf16 form is at most this far from that of fp32, relatively.
CANDIDATES, NEAR = 400, 1e-3

MODELS = {
    "deepseek-v32": (112, lambda: golden.latent(
        "DeepseekV32", q_lora_rank=14, attention_bias=True, rms_norm_eps=1e-5, rope_parameters=golden.DEEPSEEK_YARN,
        n_routed_experts=8, num_experts_per_tok=3, n_group=2, topk_group=1, moe_intermediate_size=14, n_shared_experts=1,
        num_hidden_layers=3, first_k_dense_replace=1, routed_scaling_factor=2.5, index_n_heads=11, index_head_dim=10,
        index_topk=15)),
    # Two layers in four take the choice of the layer before.
    "glm-moe-dsa": (112, lambda: golden.latent(
        "GlmMoeDsa", q_lora_rank=14, n_routed_experts=7, num_experts_per_tok=2, moe_intermediate_size=14,
        n_shared_experts=2, num_hidden_layers=4, first_k_dense_replace=1, routed_scaling_factor=1.5, index_n_heads=9,
        index_head_dim=14, index_topk=13, indexer_types=["full", "shared", "full", "shared"])),
}


class Step:
    """A forward pass: logits, the loss of the language model, that of each indexer, the keys chosen and their lead."""

    def __init__(self, model, batch, train=True):
        inputs, self.targets, mask, positions = batch
        dtype = model.lm_head.weight.dtype
        mask = torch.zeros(mask.shape, dtype=dtype).masked_fill(mask != 0, torch.finfo(dtype).min)
        with IndexerLoss(model) as indexers, torch.set_grad_enabled(train):
            self.logits = model(inputs, attention_mask=mask, position_ids=positions).logits
            self.loss = mean_loss(self.logits.float(), self.targets)
            self.layers = indexers.by_layer(self.targets)
            self.indexer = self.layers.sum()
            self.chosen, self.gap = indexers.chosen(), indexers.gap()
            with torch.no_grad():
                self.scores = torch.stack([layer.scores() for layer in indexers.layers])
            check_choice(model.config.index_topk, indexers)


def check_choice(k, indexers):
    """Checks that the scores computed here choose the keys that transformers chose."""
    for layer in indexers.layers:
        if layer.indexer.index_topk != k or layer.hidden.dtype == torch.bfloat16:
            continue
        scores = layer.scores().masked_fill(~layer.visible, float("-inf"))
        chosen = torch.zeros_like(layer.visible).scatter(-1, scores.topk(k, -1).indices, True) & layer.visible
        assert torch.equal(chosen, layer.chosen), "the scores are not those of transformers"


def draw_clear(model, draw, form):
    """The first batch whose choices are clear: tokens, and what `form` makes of them."""
    for _ in range(2000):
        tokens = draw(BATCH, LENGTH + 1)
        formed = form(tokens)
        batch = formed if form is plain_batch else formed[-1]
        if Step(model, batch, train=False).gap > GAP:
            return tokens, formed
    raise AssertionError("no batch gives a clear choice: take another seed")


def draw_first(model, draw):
    """Of many batches whose choices are clear in fp32, that in which bf16 chooses other keys for the fewest tokens."""
    rounded, best = copy.deepcopy(model).to(torch.bfloat16), None
    for _ in range(CANDIDATES):
        tokens = draw(BATCH, LENGTH + 1)
        batch = plain_batch(tokens)
        step = Step(model, batch, train=False)
        if step.gap > GAP:
            in_bf16 = Step(rounded, batch, train=False)
            others = (step.chosen != in_bf16.chosen).any(-1).sum().item()
            if abs(in_bf16.loss / step.loss - 1) < NEAR and (best is None or others < best[0]):
                best = others, tokens
    assert best, "no batch has nearly the same loss in bf16: take another seed"
    return best[1]


class Twins:
    """Runs everything in fp32 and, for comparison, in fp64."""

    def __init__(self, model):
        self.model = model
        self.exact = copy.deepcopy(model).double()
        self.gap, self.ratio, self.apart = float("inf"), float("inf"), 0.0

    def compare(self, step, batch):
        with indexer_loss.double_precision():
            exact = Step(self.exact, batch)
        assert torch.equal(step.chosen, exact.chosen), "fp32 chooses other keys than fp64: take another seed"
        apart = (step.scores - exact.scores).abs().max().item()
        self.gap, self.apart = min(self.gap, step.gap), max(self.apart, apart)
        self.ratio = min(self.ratio, exact.gap / apart)
        assert exact.gap > GAP / 2, "a choice is less clear in fp64: take another seed"
        return exact


def lists_of(chosen, k):
    """int32 [layers, B, T, k] from bool [layers, B, T, T]"""
    places = torch.arange(chosen.shape[-1]).expand(chosen.shape)
    ordered = torch.where(chosen, places, chosen.shape[-1]).sort(-1).values[..., :k]
    return torch.where(ordered == chosen.shape[-1], -1, ordered).int()


def backward(model, step):
    model.zero_grad()
    (step.loss + step.indexer).backward()
    return golden.gradients(model)


def plain(twins, draw):
    tokens = draw_first(twins.model, draw)
    batch = plain_batch(tokens)
    step = Step(twins.model, batch)
    found = backward(twins.model, step)
    exact = twins.compare(step, batch)
    in_fp64 = backward(twins.exact, exact)
    apart = {name: ((value - in_fp64[name]).norm() / in_fp64[name].norm().clamp(min=1e-2)).item() for name, value in found.items()}
    print(f"  first batch, fp32 from fp64: loss {abs(step.loss.item() - exact.loss.item()):.1e}, "
          f"indexers {abs(step.indexer.item() - exact.indexer.item()):.1e}, "
          f"gradients at most {max(apart.values()):.1e} ({max(apart, key=apart.get)})")
    out = {"tokens": tokens.int(), "logits": step.logits.detach(), "loss": step.loss.detach().reshape(1),
           "indexer/loss": step.indexer.detach().reshape(1), "indexer/layers": step.layers.detach(),
           "indexer/chosen": lists_of(step.chosen, twins.model.config.index_topk)}
    return out | {"grad/" + name: value for name, value in found.items()}


def spread_of_bf16(model, tokens, exact):
    rounded = copy.deepcopy(model).to(torch.bfloat16)
    step = Step(rounded, plain_batch(tokens))
    out = {"bf16/loss": step.loss.detach().reshape(1)}
    for name, gradient in backward(rounded, step).items():
        out["bf16/grad_distance/" + name] = (gradient - exact["grad/" + name]).norm().reshape(1)
    other = (lists_of(step.chosen, model.config.index_topk) != exact["indexer/chosen"]).any(-1).sum()
    print(f"  bf16: loss {step.loss.item() / exact['loss'].item() - 1:+.1e}, other keys in {other} of {step.chosen[..., 0].numel()} rows")
    return out


def documents(twins, draw):
    _, (tokens, segments, batch) = draw_clear(twins.model, draw, document_batch)
    step = Step(twins.model, batch)
    found = backward(twins.model, step)
    twins.compare(step, batch)
    check_documents(twins.model, batch, segments, step)
    out = {"tokens": tokens.int(), "positions": batch[3].int(), "segments": segments.int(), "targets": batch[1].int(),
           "logits": step.logits.detach(), "loss": step.loss.detach().reshape(1),
           "indexer/loss": step.indexer.detach().reshape(1)}
    out |= {"grad_norm/" + name: value.norm().reshape(1) for name, value in found.items()}
    return {"document/" + name: value for name, value in out.items()}


def check_documents(model, batch, segments, step):
    """Checks that each document by itself has the same logits and the same loss of its indexers."""
    inputs, targets, _, _ = batch
    total = 0.0
    for row in range(BATCH):
        for document in segments[row].unique():
            at = segments[row] == document
            with IndexerLoss(model) as indexers, torch.no_grad():
                logits = model(inputs[row, at][None]).logits[0]
                counts = targets[row, at][None] >= 0
                total += sum(layer.divergence()[counts].sum().item() for layer in indexers.layers)
            assert torch.allclose(logits, step.logits[row, at], atol=1e-5), "the document mask leaks"
    assert abs(total / (targets >= 0).sum().item() - step.indexer.item()) < 1e-5, "the indexers see other documents"


def greedy(twins, draw):
    """A text whose choices are clear."""
    while True:
        out = golden.greedy(twins.model, draw)
        text = torch.cat([out["greedy/prompt"], out["greedy/tokens"]]).long()[None]
        length = text.shape[1] - 1
        visible = torch.ones(length, length).tril().bool()[None]
        batch = text[:, :-1], text[:, 1:], causal_mask(visible), torch.arange(length)[None]
        step = Step(twins.model, batch, train=False)
        if step.gap > GAP:
            twins.compare(step, batch)
            return out


def optimizer_of(parameters):
    decay = [p for p in parameters if p.dim() >= 2]
    rest = [p for p in parameters if p.dim() < 2]
    return torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
                             lr=1e-3, betas=(0.9, 0.95), eps=1e-8)


def adamw(twins, draw):
    models = twins.model, twins.exact
    optimizers = [optimizer_of(list(model.parameters())) for model in models]
    batches, losses, others, norms, apart = [], [], [], [], [0.0, 0.0, 0.0]
    for _ in range(STEPS):
        tokens, batch = draw_clear(twins.model, draw, plain_batch)
        batches.append(tokens.int())
        step = Step(twins.model, batch)
        steps = step, twins.compare(step, batch)
        found = []
        for model, optimizer, one in zip(models, optimizers, steps):
            optimizer.zero_grad()
            (one.loss + one.indexer).backward()
            found.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
            optimizer.step()
        losses.append(step.loss.detach())
        others.append(step.indexer.detach())
        norms.append(found[0])
        now = [abs(steps[0].loss.item() - steps[1].loss.item()), abs(steps[0].indexer.item() - steps[1].indexer.item()),
               abs(found[0].item() / found[1].item() - 1)]
        apart = [max(a, b) for a, b in zip(apart, now)]
    print("  AdamW, fp32 from fp64: loss {:.1e}, indexers {:.1e}, gradient norm {:.1e}".format(*apart))
    return {"adamw/tokens": torch.stack(batches), "adamw/loss": torch.stack(losses), "adamw/indexer": torch.stack(others),
            "adamw/grad_norm": torch.stack(norms)}


def warmup(model, tokens, batches):
    """Trains the indexers alone, with attention to all visible keys; runs in fp32 and fp64 and returns the former."""
    both = []
    for exact in (False, True):
        one = copy.deepcopy(model).double() if exact else copy.deepcopy(model)
        names = [name for name, _ in indexer_loss.parameters(one)]
        trained = [value for _, value in indexer_loss.parameters(one)]
        one.requires_grad_(False)
        for value in trained:
            value.requires_grad_(True)
        optimizer = optimizer_of(trained)

        def loss_of(batch):
            one.zero_grad()
            batch = plain_batch(batch)
            with indexer_loss.double_precision() if exact else contextlib.nullcontext():
                step = Step(one, batch)
            assert torch.equal(step.chosen, torch.ones(LENGTH, LENGTH).tril().bool().expand(step.chosen.shape)), "not dense"
            step.indexer.backward()
            return step

        with indexer_loss.dense(one):
            step = loss_of(tokens)
            out = {"loss": step.indexer.detach().reshape(1), "lm_loss": step.loss.detach().reshape(1)}
            out |= {"grad/" + name: value.grad.clone() for name, value in zip(names, trained)}
            losses, norms = [], []
            for batch in batches:
                losses.append(loss_of(batch).indexer.detach())
                norms.append(torch.nn.utils.clip_grad_norm_(trained, 1.0))
                optimizer.step()
            both.append(out | {"adamw/loss": torch.stack(losses), "adamw/grad_norm": torch.stack(norms)})
    found, exact = both
    gradients = max(((found[n] - exact[n]).norm() / exact[n].norm().clamp(min=1e-2)).item() for n in found if n.startswith("grad/"))
    print(f"  warm-up: loss {found['loss'].item():.4f}, {found['adamw/loss'][0]:.4f} to {found['adamw/loss'][-1]:.4f}; fp32 from fp64: "
          f"losses {(found['adamw/loss'] - exact['adamw/loss']).abs().max().item():.1e}, gradients {gradients:.1e}, "
          f"norms {(found['adamw/grad_norm'] / exact['adamw/grad_norm'] - 1).abs().max().item():.1e}")
    return {"warmup/" + name: value for name, value in found.items()}


def write(name, seed, make, folder):
    generator = torch.Generator().manual_seed(seed)
    model = make()
    golden.randomize(model, generator)
    golden.save(model, folder)
    model = golden.load(folder, True)
    draw = lambda *shape: golden.random_tokens(shape, model.config.vocab_size, generator)
    untrained, twins = copy.deepcopy(model), Twins(model)
    expected = plain(twins, draw)
    tokens = expected["tokens"].long()
    expected |= spread_of_bf16(model, tokens, expected)
    expected |= documents(twins, draw)
    expected |= greedy(twins, draw)
    expected |= adamw(twins, draw)
    expected |= warmup(untrained, tokens, expected["adamw/tokens"][:WARMUP_STEPS].long())
    save_file({key: value.contiguous() for key, value in expected.items()}, folder / "expected.safetensors")
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{name}: seed {seed}, {sum(p.numel() for p in model.parameters())} parameters, {size} bytes, loss "
          f"{expected['loss'].item():.4f} and {expected['indexer/loss'].item():.4f}, AdamW {expected['adamw/loss'][0]:.4f} to "
          f"{expected['adamw/loss'][-1]:.4f} and {expected['adamw/indexer'][0]:.4f} to {expected['adamw/indexer'][-1]:.4f}, "
          f"gradient norm {expected['adamw/grad_norm'][0]:.3f}; smallest gap {twins.gap:.1e}, scores {twins.apart:.1e} from "
          f"fp64, gap at least {twins.ratio:.0f} times that of its step")


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    root = pathlib.Path(__file__).resolve().parents[2] / "tests" / "models" / "golden"
    for name, (seed, make) in MODELS.items():
        if not sys.argv[1:] or name in sys.argv[1:]:
            write(name, seed, make, root / name)


if __name__ == "__main__":
    main()
