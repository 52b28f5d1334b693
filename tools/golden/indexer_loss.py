"""The loss of DeepSeek sparse attention's indexers, written from the report on DeepSeek-V3.2 (arXiv 2512.02556):

    I[t,s] = Σ_h w[t,h] · relu(q[t,h] · k[s])
    loss   = Σ over layers, mean over tokens: KL(p[t] || softmax(I[t])), over the keys that attention sees

p is the main attention summed over heads and normalized to 1. The indexer learns from this loss alone, and the rest of
the model does not learn from it: p and the indexer's inputs are constants. transformers runs its indexers without
gradients, so the loss is computed here from what they and the attention read, with their weights.

    with IndexerLoss(model) as indexers:
        model(tokens)
        indexers.loss(targets)

Only tokens with a target count. The same class measures how far the choice of keys is from another one.
"""

import contextlib

import torch


def rotate(x, cos, sin, adjacent):
    """Rotates the first dimensions of x [..., T, heads, D] by the angles whose cosines are in cos [..., T, pairs]."""
    pairs = cos.shape[-1]
    cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)
    turned, rest = x[..., :2 * pairs], x[..., 2 * pairs:]
    if adjacent:
        a, b = turned[..., 0::2], turned[..., 1::2]
        turned = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    else:
        a, b = turned[..., :pairs], turned[..., pairs:]
        turned = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    return torch.cat([turned, rest], -1)


class Layer:
    """An indexer with its inputs and choice, and the probabilities of the attention that it serves."""

    def __init__(self, indexer, adjacent):
        self.indexer, self.adjacent = indexer, adjacent

    def keep_inputs(self, module, arguments, chosen):
        hidden, latent, (cos, sin), mask = arguments[:4]
        pairs = cos.shape[-1] // 2
        self.hidden, self.latent = hidden.detach(), latent.detach()
        self.cos, self.sin = cos[..., :pairs], sin[..., :pairs]
        self.visible = mask if mask.dtype == torch.bool else mask == 0
        self.visible = self.visible.expand(len(hidden), -1, -1)
        self.chosen = torch.zeros_like(self.visible).scatter(-1, chosen.long(), True) & self.visible

    def keep_probabilities(self, module, arguments, out):
        self.attention = out[1].detach()

    def scores(self):
        """I [B, T, T], with gradients of the indexer's weights alone."""
        of, (batch, length, _) = self.indexer, self.hidden.shape
        heads, size = of.weights_proj.weight.shape[0], of.wk.weight.shape[0]
        q = (self.latent @ of.wq_b.weight.T).view(batch, length, heads, size)
        k = self.hidden @ of.wk.weight.T
        k = k - k.mean(-1, keepdim=True)
        k = k * (k.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * of.k_norm.weight + of.k_norm.bias
        q = rotate(q, self.cos, self.sin, self.adjacent)
        k = rotate(k.unsqueeze(-2), self.cos, self.sin, self.adjacent).squeeze(-2)
        products = torch.einsum("bthd,bsd->bths", q.float(), k.float()).relu()
        weights = (self.hidden @ of.weights_proj.weight.T).float()
        return torch.einsum("bth,bths->bts", weights, products) * (heads * size) ** -0.5

    def divergence(self):
        """KL(p || softmax(I)) of each token [B, T]."""
        wanted = self.attention.float().sum(1) * self.chosen
        wanted = wanted / wanted.sum(-1, keepdim=True)
        found = self.scores().masked_fill(~self.chosen, float("-inf")).log_softmax(-1)
        terms = torch.xlogy(wanted, wanted) - wanted * found.masked_fill(~self.chosen, 0.0)
        return terms.sum(-1)


class IndexerLoss(contextlib.AbstractContextManager):
    """Listens to the indexers of a transformers model with eager attention; layers that reuse a choice have no loss."""

    def __init__(self, model):
        self.layers, self.hooks = [], []
        for block in model.model.layers:
            indexer = block.self_attn.indexer
            if indexer is not None:
                layer = Layer(indexer, adjacent=model.config.model_type == "glm_moe_dsa")
                self.layers.append(layer)
                self.hooks.append(indexer.register_forward_hook(layer.keep_inputs))
                self.hooks.append(block.self_attn.register_forward_hook(layer.keep_probabilities))

    def __exit__(self, *_):
        for hook in self.hooks:
            hook.remove()

    def by_layer(self, targets):
        """The loss of each layer [layers], for targets [B, T] that are -1 for tokens without one."""
        counts = targets >= 0
        return torch.stack([layer.divergence()[counts].sum() / counts.sum() for layer in self.layers])

    def loss(self, targets):
        return self.by_layer(targets).sum()

    def chosen(self):
        """bool [layers, B, T, T]"""
        return torch.stack([layer.chosen for layer in self.layers])

    @torch.no_grad()
    def gap(self):
        """The smallest difference between the score of a chosen key and of a visible one that is not chosen."""
        least = float("inf")
        for layer in self.layers:
            scores = layer.scores()
            left_out = layer.visible & ~layer.chosen
            rows = left_out.any(-1)
            worst_chosen = scores.masked_fill(~layer.chosen, float("inf")).amin(-1)
            best_left_out = scores.masked_fill(~left_out, float("-inf")).amax(-1)
            if rows.any():
                least = min(least, (worst_chosen - best_left_out)[rows].min().item())
        return least


def parameters(model):
    """(name, parameter) of all indexers."""
    return [(name, value) for name, value in model.named_parameters() if ".indexer." in name]


@contextlib.contextmanager
def dense(model):
    """Lets every token attend to all that are visible to it, as while the indexers warm up."""
    indexers = [block.self_attn.indexer for block in model.model.layers if block.self_attn.indexer is not None]
    before = [indexer.index_topk for indexer in indexers]
    for indexer in indexers:
        indexer.index_topk = 1 << 30
    try:
        yield
    finally:
        for indexer, k in zip(indexers, before):
            indexer.index_topk = k


@contextlib.contextmanager
def double_precision():
    """Lets transformers' modules, which compute parts in fp32 whatever a model's type, use fp64 for these parts."""
    kept = torch.float32, torch.float, torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = kept
