#!/usr/bin/env python3
"""Writes tests/data/optim/score_clip.json: projections to queries and keys as QK-clip leaves them.

Models of one layer in NumPy's fp64, up to the scores of their attention, with the batch of tests/program/mesh_model.h. The
rule is that of Kimi K2's report (Moonshot AI 2025, section 2.1, algorithm 1): with S the greatest scaled score of a head and
g = limit / S where S is above the limit, rows of q and k take sqrt(g); of latent attention the rotated part of q takes g, and
the rotated key, which all heads share, stays. Where heads share keys, a key head takes the square root of its group's least g,
and a query head min(1, g / that root). The script checks that no head exceeds the limit afterwards.

Run with NumPy installed; the file is committed.
"""

import json
import pathlib

import numpy as np

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/data/optim/score_clip.json"
VOCAB, HIDDEN, HEADS, LENGTH, SEQUENCES, MICRO_BATCHES = 31, 16, 4, 24, 12, 2
EPS, THETA, LIMIT = 1e-5, 10000.0, 50.0
random = np.random.default_rng(11)


def batch():
    micro, sequence, place = np.meshgrid(range(MICRO_BATCHES), range(SEQUENCES), range(LENGTH), indexing="ij")
    tokens = (sequence * 131 + place * 37 + micro * 11 + 30) % VOCAB
    begins = np.where(place < LENGTH // 3, 0, LENGTH // 3)
    shape = (MICRO_BATCHES * SEQUENCES, LENGTH)
    return tokens.reshape(shape), begins.reshape(shape), (place - begins).reshape(shape)


def rms(x):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPS)


def layer_norm(x):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + EPS)


def rotate(x, positions, adjacent):
    """x [sequences, length, heads, width]"""
    half = x.shape[-1] // 2
    angles = (positions[..., None] * THETA ** (-np.arange(half) / half))[:, :, None, :]
    first, second = (x[..., 0::2], x[..., 1::2]) if adjacent else (x[..., :half], x[..., half:])
    turned = [first * np.cos(angles) - second * np.sin(angles), second * np.cos(angles) + first * np.sin(angles)]
    if not adjacent:
        return np.concatenate(turned, axis=-1)
    return np.stack(turned, axis=-1).reshape(x.shape)


def by_heads(x, heads):
    return x.reshape(*x.shape[:2], heads, -1)


def greatest(q, k):
    """By head, over pairs of a row and a key of its document at or before it."""
    _, begins, _ = batch()
    k = np.repeat(k, q.shape[2] // k.shape[2], axis=2)
    scores = np.einsum("bihd,bjhd->bhij", q, k) / np.sqrt(q.shape[-1])
    place = np.arange(LENGTH)
    seen = (place[None, None, :] <= place[None, :, None]) & (place[None, None, :] >= begins[:, :, None])
    return np.where(seen[:, None], scores, -np.inf).max(axis=(0, 2, 3))


def normal(*shape, scale=1.0):
    return (random.normal(size=shape) * scale).astype(np.float32).astype(np.float64)


def of_heads(factors, width):
    return np.repeat(np.asarray(factors), width)[:, None]


class Fused:
    """[q | k | v] of hidden states; GPT-2 with biases and without rotation, or Llama."""

    width = 4

    def __init__(self, name, kv_heads, learned):
        self.name, self.kv_heads, self.learned = name, kv_heads, learned
        kv = kv_heads * self.width
        scales = np.concatenate([of_heads([0.3, 1.5, 4, 0.9], self.width), np.ones((2 * kv, 1))])
        self.weights = {"embedding.weight": normal(VOCAB, HIDDEN)}
        self.weights["layers.0.attention.qkv.weight"] = normal(len(scales), HIDDEN) * scales
        if learned:
            self.weights["positions.weight"] = normal(LENGTH, HIDDEN)
            self.weights["layers.0.attention.qkv.bias"] = normal(len(scales)) * scales[:, 0]

    def scores(self, weights):
        tokens, _, positions = batch()
        x = weights["embedding.weight"][tokens]
        if self.learned:
            x = x + weights["positions.weight"][positions]
        x = layer_norm(x) if self.learned else rms(x)
        qkv = x @ weights["layers.0.attention.qkv.weight"].T
        if self.learned:
            qkv = qkv + weights["layers.0.attention.qkv.bias"]
        kv = self.kv_heads * self.width
        q, k = by_heads(qkv[..., : HEADS * self.width], HEADS), by_heads(qkv[..., HEADS * self.width :][..., :kv], self.kv_heads)
        if not self.learned:
            q, k = rotate(q, positions, False), rotate(k, positions, False)
        return greatest(q, k)

    def clipped(self, weights, factors):
        least = factors.reshape(self.kv_heads, -1).min(axis=1)
        of_keys = np.sqrt(least)
        of_queries = np.minimum(1, factors / np.repeat(of_keys, HEADS // self.kv_heads))
        rows = np.concatenate([of_heads(of_queries, self.width), of_heads(of_keys, self.width),
                               np.ones((self.kv_heads * self.width, 1))])
        out = {"layers.0.attention.qkv.weight": weights["layers.0.attention.qkv.weight"] * rows}
        if self.learned:
            out["layers.0.attention.qkv.bias"] = weights["layers.0.attention.qkv.bias"] * rows[:, 0]
        return out


class Latent:
    """DeepSeek's attention; query_rank 0: queries of hidden states."""

    rank, plain, rotary, value = 12, 6, 4, 8

    def __init__(self, name, query_rank):
        self.name, self.query_rank, self.kv_heads = name, query_rank, HEADS
        scales = of_heads([0.3, 1.5, 4, 0.9], self.plain + self.rotary)
        at = "layers.0.attention."
        self.weights = {
            "embedding.weight": normal(VOCAB, HIDDEN),
            at + "down.weight": normal(query_rank + self.rank + self.rotary, HIDDEN),
            at + "q.weight": normal(len(scales), query_rank or HIDDEN) * scales,
            at + "kv.weight": normal(HEADS * (self.plain + self.value), self.rank),
        }

    def scores(self, weights):
        tokens, _, positions = batch()
        at = "layers.0.attention."
        x = rms(weights["embedding.weight"][tokens])
        down = x @ weights[at + "down.weight"].T
        of_query, latent, shared = np.split(down, [self.query_rank, self.query_rank + self.rank], axis=-1)
        q = by_heads((rms(of_query) if self.query_rank else x) @ weights[at + "q.weight"].T, HEADS)
        plain = by_heads((rms(latent) @ weights[at + "kv.weight"].T)[..., : HEADS * self.plain], HEADS)
        q = np.concatenate([q[..., : self.plain], rotate(q[..., self.plain :], positions, True)], axis=-1)
        shared = np.repeat(rotate(shared[:, :, None, :], positions, True), HEADS, axis=2)
        return greatest(q, np.concatenate([plain, shared], axis=-1))

    def clipped(self, weights, factors):
        at = "layers.0.attention."
        rows_of_q = np.concatenate([np.concatenate([np.full(self.plain, np.sqrt(g)), np.full(self.rotary, g)])
                                    for g in factors])[:, None]
        rows_of_kv = np.concatenate([of_heads(np.sqrt(factors), self.plain), np.ones((HEADS * self.value, 1))])
        return {at + "q.weight": weights[at + "q.weight"] * rows_of_q,
                at + "kv.weight": weights[at + "kv.weight"] * rows_of_kv}


def main():
    cases = []
    for model in (Fused("multi_head", HEADS, True), Fused("grouped", 2, False), Fused("one_key_head", 1, False),
                  Latent("latent", 0), Latent("latent_queries", 10)):
        scores = model.scores(model.weights)
        factors = np.where(scores > LIMIT, LIMIT / scores, 1)
        clipped = model.clipped(model.weights, factors)
        after = model.scores(model.weights | clipped)
        assert (after <= scores * factors * (1 + 1e-9)).all(), (model.name, scores, after)
        assert 0 < (factors < 1).sum() < HEADS, (model.name, scores)
        flat = lambda lists: {name: [float(str(np.float32(x))) for x in values.ravel()] for name, values in lists.items()}
        cases.append({"name": model.name, "kv_heads": model.kv_heads, "query_rank": getattr(model, "query_rank", 0),
                      "scores": scores.tolist(), "after": after.tolist(), "weights": flat(model.weights),
                      "clipped": flat(clipped)})
        print(model.name, scores.round(1), after.round(1))
    OUT.write_text(json.dumps({"limit": LIMIT, "cases": cases}) + "\n")


if __name__ == "__main__":
    main()
