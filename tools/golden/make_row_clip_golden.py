#!/usr/bin/env python3
"""Writes tests/data/optim/row_clip.json: gradients as optax's adaptive_grad_clip limits them.

The matrices have an output a row, as here; optax has them a column. Run with jax and optax (0.2.8) installed; the file is
committed.
"""

import json
import pathlib

import jax.numpy as jnp
import numpy as np
import optax

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/data/optim/row_clip.json"


def main():
    random = np.random.default_rng(7)
    cases = []
    for limit in (0.01, 0.16):
        weights = random.normal(size=(6, 5)) * np.array([1, 0.1, 1e-3, 1e-5, 0, 3])[:, None]
        gradient = random.normal(size=(6, 5)) * np.array([1e-3, 1e-4, 1e-6, 1, 1, 0])[:, None]
        weights, gradient = weights.astype(np.float32), gradient.astype(np.float32)
        clip = optax.adaptive_grad_clip(limit)
        clipped, _ = clip.update(jnp.asarray(gradient.T), clip.init(None), jnp.asarray(weights.T))
        lists = {"weights": weights, "gradient": gradient, "clipped": np.asarray(clipped).T}
        cases.append({"limit": limit} | {name: values.tolist() for name, values in lists.items()})
    OUT.write_text(json.dumps(cases) + "\n")


if __name__ == "__main__":
    main()
