#!/usr/bin/env python3
"""Writes the golden models with multi-token prediction under tests/models/golden/: deepseek-v3-mtp, glm4-moe-mtp.

A small random model saved by transformers, plus modules that predict further tokens under the names of the published
weights (model.layers.L.…, in deepseek-v3-mtp with copies of embedding and head), implemented here from DeepSeek-V3's
report (arXiv 2412.19437, §2.2):

    h(k) = block(M [norm(embedding of token i + k) ; norm(h(k-1))])    h(0): the input of the main model's head
    loss(k) = mean of -log p(token i + k + 1 | head(norm(h(k)))), over the tokens i that have such a token
    L = loss + weight / D * (loss(1) + … + loss(D))

The block is a layer of transformers' model; the module and the losses are implemented here. As in the published weights,
the embedding's half of M comes first, and the next module reads the output of the norm. If transformers has a class for
the modules (MtpModel), its logits must be the same. Contains the tensors tokens, loss and
document/{tokens,positions,segments,targets,loss} of make_model_golden.py and in addition

    predict/loss           fp32 [D]    loss(k) of the first batch
    grad/NAME              fp32        gradient of L
    document/predict/loss  fp32 [D]    for several documents in a row, without tokens of other documents
    document/grad/NAME     fp32        gradient of L for these documents
    adamw/predict          fp32 [30]   mean of loss(1) … loss(D) in the AdamW steps on L (adamw/loss, adamw/grad_norm)

Needs torch, transformers and safetensors.
"""

import pathlib

import torch
from safetensors.torch import load_file, save_file
from torch import nn

import make_model_golden as golden
from make_model_golden import BATCH, LENGTH, END_OF_TEXT, STEPS

WEIGHT = 0.3
MODELS = {
    "deepseek-v3-mtp": (1, 90, lambda: golden.latent(
        "DeepseekV3", q_lora_rank=14, n_routed_experts=6, num_experts_per_tok=2, n_group=2, topk_group=1,
        moe_intermediate_size=14, n_shared_experts=1, first_k_dense_replace=1, num_nextn_predict_layers=1)),
    "glm4-moe-mtp": (2, 91, lambda: golden.family(
        "Glm4Moe", head_dim=12, n_routed_experts=5, num_experts_per_tok=2, moe_intermediate_size=10, n_shared_experts=1,
        first_k_dense_replace=1, use_qk_norm=True, attention_bias=True, tie_word_embeddings=True,
        num_nextn_predict_layers=2)),
}


class Module(nn.Module):
    """The module at model.layers.L. in the files, without the copies of embedding and head."""

    def __init__(self, model):
        super().__init__()
        width, norm = model.config.hidden_size, type(model.model.norm)
        self.enorm, self.hnorm = norm(width, eps=model.config.rms_norm_eps), norm(width, eps=model.config.rms_norm_eps)
        self.eh_proj = nn.Linear(2 * width, width, bias=False)
        self.block = type(model.model.layers[-1])(model.config, len(model.model.layers) - 1)
        self.shared_head = nn.ModuleDict({"norm": norm(width, eps=model.config.rms_norm_eps)})

    def forward(self, embedded, hidden, mask, rotation, positions):
        x = self.eh_proj(torch.cat([self.enorm(embedded), self.hnorm(hidden)], -1))
        x = self.block(x, attention_mask=mask, position_embeddings=rotation, position_ids=positions)
        return self.shared_head["norm"](x[0] if isinstance(x, tuple) else x)


class Predicting(nn.Module):
    def __init__(self, model, depth):
        super().__init__()
        self.main = model
        self.modules_ahead = nn.ModuleList(Module(model) for _ in range(depth))

    def forward(self, tokens, targets, mask, positions):
        """loss, and loss(k) of each module, for tokens [B, T] and their next-token targets."""
        base = self.main.model
        hidden = base(tokens, attention_mask=mask, position_ids=positions).last_hidden_state
        loss = golden.mean_loss(self.main.lm_head(hidden), targets)
        rotation = base.rotary_emb(hidden, position_ids=positions)
        further, ahead = [], targets
        for module in self.modules_ahead:
            read = ahead.clamp(min=0)
            # The token one position further: the target of the next position, if this position has a next token.
            ahead = torch.where(targets >= 0, nn.functional.pad(ahead[:, 1:], (0, 1), value=-1), -1)
            hidden = module(base.embed_tokens(read), hidden, mask, rotation, positions)
            further.append(golden.mean_loss(self.main.lm_head(hidden), ahead))
        return loss, torch.stack(further)

    def total(self, *batch):
        loss, further = self(*batch)
        return loss + WEIGHT * further.mean(), loss, further

    def in_files(self):
        """(prefix of the module in memory, prefix in the files)."""
        first = len(self.main.model.layers)
        return [(f"modules_ahead.{k}.", f"model.layers.{first + k}.") for k in range(len(self.modules_ahead))]

    def file_name(self, name):
        for memory, file in self.in_files():
            if name.startswith(memory):
                return file + name[len(memory):].removeprefix("block.")
        return name.removeprefix("main.")

    def tensors(self, of):
        """All parameters (and router biases) by their names in the files, with separate experts."""
        out = {}
        for name, value in [*self.named_parameters(), *self.named_buffers()]:
            if isinstance(value, nn.Parameter) or name.endswith("e_score_correction_bias"):
                found = of(value)
                if found is None:
                    continue
                name = self.file_name(name)
                if ".experts." in name:
                    out |= golden.of_experts(self.main.config.model_type, name, found)
                else:
                    out[name] = found
        return {name: value.detach().clone().contiguous() for name, value in out.items()}


def causal_mask(visible):
    return torch.where(visible, 0.0, torch.finfo(torch.float32).min)[:, None]


def plain_batch(tokens):
    visible = torch.ones(LENGTH, LENGTH).tril().bool().expand(len(tokens), -1, -1)
    return tokens[:, :-1], tokens[:, 1:].clone(), causal_mask(visible), torch.arange(LENGTH).expand(len(tokens), -1)


def document_batch(tokens):
    tokens = tokens.clone()
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
    return tokens, segments, (inputs, targets, causal_mask(visible), positions)


def check_documents(model, batch, segments):
    """Checks that each document by itself has the same loss terms."""
    inputs, targets, _, _ = batch
    _, further = model(*batch)
    sums, counts = torch.zeros_like(further), torch.zeros_like(further)
    for row in range(BATCH):
        for document in segments[row].unique():
            at = segments[row] == document
            n = int(at.sum())
            visible = torch.ones(n, n).tril().bool()[None]
            alone = (inputs[row, at][None], targets[row, at][None], causal_mask(visible), torch.arange(n)[None])
            _, found = model(*alone)
            told = (targets[row, at] >= 0).sum()
            for k in range(len(further)):
                count = max(0, int(told) - 1 - k)
                if count > 0:
                    sums[k] += found[k] * count
                    counts[k] += count
    assert torch.allclose(sums / counts, further, atol=1e-5), "a document sees or tells another"


def check_against_transformers(model, tokens):
    """Checks that MtpModel, if transformers has it, computes the same hidden states with the same weights."""
    try:
        from transformers.modeling_layers import MtpModel
    except ImportError:
        print("  this transformers has no MtpModel: not compared")
        return
    inputs, targets, mask, positions = plain_batch(tokens)
    theirs = MtpModel(model.main, len(model.modules_ahead)).train()
    hidden = model.main.model(inputs, attention_mask=mask, position_ids=positions).last_hidden_state
    base, ours, ahead, found = model.main.model, hidden, targets, hidden
    for k, (mine, other) in enumerate(zip(model.modules_ahead, theirs.layers)):
        other.mtp_block.load_state_dict(mine.block.state_dict())
        for name in ("enorm", "hnorm", "eh_proj"):
            getattr(other, name).load_state_dict(getattr(mine, name).state_dict())
        other.post_norm.load_state_dict(mine.shared_head["norm"].state_dict())
        rotation = base.rotary_emb(hidden, position_ids=positions)
        embedded = base.embed_tokens(ahead.clamp(min=0))
        ours = mine(embedded, ours, mask, rotation, positions)
        found = other(embedded, found, position_embeddings=rotation, attention_mask=mask, position_ids=positions,
                      past_key_values=None)
        assert torch.allclose(ours, found, atol=1e-5), f"module {k} is not that of transformers"
        ahead = nn.functional.pad(ahead[:, 1:], (0, 1), value=-1)


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    root = pathlib.Path(__file__).resolve().parents[2] / "tests" / "models" / "golden"
    for name, (depth, seed, make) in MODELS.items():
        generator = torch.Generator().manual_seed(seed)
        main_model = make()
        folder = root / name
        main_model.save_pretrained(folder)
        main_model = golden.load(folder, True)
        model = Predicting(main_model, depth).train()
        model.config = main_model.config
        main_model.tie_weights()
        model.tie_weights = main_model.tie_weights
        golden.randomize(model, generator)
        # transformers has written the tensors of the main model; add those of the modules.
        shared = {"lm_head.weight"} if main_model.config.tie_word_embeddings else set()
        weights = {k: v for k, v in model.tensors(lambda value: value).items() if k not in shared}
        written = load_file(folder / "model.safetensors")
        assert set(written) <= set(weights), sorted(set(written) - set(weights))
        if not shared:  # as in the published files
            for _, prefix in model.in_files():
                weights[prefix + "embed_tokens.weight"] = weights["model.embed_tokens.weight"].clone()
                weights[prefix + "shared_head.head.weight"] = weights["lm_head.weight"].clone()
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

        draw = lambda *shape: golden.random_tokens(shape, main_model.config.vocab_size, generator)
        tokens = draw(BATCH, LENGTH + 1)
        check_against_transformers(model, tokens)

        def gradients(*batch):
            model.zero_grad()
            total, loss, further = model.total(*batch)
            total.backward()
            found = model.tensors(lambda value: value.grad if isinstance(value, nn.Parameter) else None)
            return loss.detach().reshape(1), further.detach(), {k: v for k, v in found.items() if k not in shared}

        loss, further, found = gradients(*plain_batch(tokens))
        expected = {"tokens": tokens.int(), "loss": loss, "predict/loss": further}
        expected |= {"grad/" + k: v for k, v in found.items()}
        in_row, segments, batch = document_batch(draw(BATCH, LENGTH + 1))
        check_documents(model, batch, segments)
        document_loss, document_further, found = gradients(*batch)
        expected |= {"document/tokens": in_row.int(), "document/positions": batch[3].int(),
                     "document/segments": segments.int(), "document/targets": batch[1].int(),
                     "document/loss": document_loss, "document/predict/loss": document_further}
        expected |= {"document/grad/" + k: v for k, v in found.items()}

        batches = draw(STEPS, BATCH, LENGTH + 1)
        decay = [p for p in model.parameters() if p.dim() >= 2]
        rest = [p for p in model.parameters() if p.dim() < 2]
        optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
                                      lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
        losses, predicted, norms = [], [], []
        for step in batches:
            optimizer.zero_grad()
            total, step_loss, step_further = model.total(*plain_batch(step))
            total.backward()
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
            optimizer.step()
            losses.append(step_loss.detach())
            predicted.append(step_further.detach().mean())
        expected |= {"adamw/tokens": batches.int(), "adamw/loss": torch.stack(losses),
                     "adamw/grad_norm": torch.stack(norms), "adamw/predict": torch.stack(predicted)}
        save_file({k: v.contiguous() for k, v in expected.items()}, folder / "expected.safetensors")
        print(f"{name}: loss {loss.item():.4f}, further {further.tolist()}, "
              f"{sum(file.stat().st_size for file in folder.iterdir())} bytes")


if __name__ == "__main__":
    main()
