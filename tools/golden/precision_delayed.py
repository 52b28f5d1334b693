"""Delayed scaling for make_precision_golden.py: Transformer Engine's DelayedScaling with amax_compute_algo "max" and margin
0, written from its documentation with ml_dtypes' casts.

A scale here is what values are multiplied with before they are rounded, as in Transformer Engine. A greatest magnitude that
is NaN or infinite counts as 0: it is this project's rule, where Transformer Engine keeps it in the history."""

import numpy as np

import precision_formats as formats

ROWS, COLUMNS, HISTORY = 70, 66, 4
SEED, STREAM = 0x0123456789ABCDEF, 41
# Sizes of a step's matrix: an outlier that leaves the history again, zeros for longer than it, the smallest numbers.
FACTORS = [1, 0.3, 200, 0.5, 0.25, 0.25, 0.125, 0.1, 0, 0, 0, 0, 0, 2, 1e-39, 1e-39, 1e-39, 1e-39, 1e-39, 3e4, 1]
NAN_STEP, INFINITE_STEP = 6, 7
# Of a history of 1,024 steps, every greatest magnitude is 2^-(step % 7) but these.
LONG_STEPS, LONG_EXCEPTIONS = 2400, {3: 100.0, 10: 0.0, 1100: np.inf, 1300: np.nan}


class Tensor:
    """A tensor's scale and the greatest magnitudes of its steps; entry 0 is where a step writes its own."""

    def __init__(self, name, steps):
        self.largest, self.scale, self.history = formats.largest(name), np.float32(1), np.zeros(steps, np.float32)

    def update(self, greatest):
        self.history[0] = greatest if np.isfinite(greatest) else 0
        most = self.history.max()
        self.history = np.roll(self.history, -1)
        self.history[0] = 0
        if most > 0:
            scale = self.largest / most
            self.scale = scale if np.isfinite(scale) else np.finfo(np.float32).max


def matrix(step):
    words = formats.random_words(SEED, STREAM, step, np.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS))
    x = (words >> np.uint32(8)).astype(np.float32) * np.float32(2**-23) - np.float32(1)
    x = x * np.float32(FACTORS[step])
    if step == NAN_STEP:
        x[3, 5] = np.nan
    if step == INFINITE_STEP:
        x[69, 65] = -np.inf
    return x


def bits(number):
    return int(np.float32(number).view(np.uint32))


def short_history(name, digest):
    tensor, steps = Tensor(name, HISTORY), []
    for step in range(len(FACTORS)):
        x = matrix(step)
        codes, greatest = formats.encode(name, x * tensor.scale), np.max(np.abs(x))
        steps.append({"inverse": bits(np.float32(1) / tensor.scale), "codes": digest(codes), "greatest": bits(greatest)})
        tensor.update(greatest)
    return steps


def long_history(name):
    """The steps after which the scale changes, and to what."""
    tensor, changes = Tensor(name, 1024), []
    for step in range(LONG_STEPS):
        before = tensor.scale
        tensor.update(np.float32(LONG_EXCEPTIONS.get(step, 2.0 ** -(step % 7))))
        if tensor.scale != before:
            changes.append([step, bits(tensor.scale)])
    return changes


def make_delayed(digest):
    with np.errstate(all="ignore"):
        return {"seed": SEED, "stream": STREAM, "rows": ROWS, "columns": COLUMNS, "history": HISTORY,
                "factors": [bits(factor) for factor in FACTORS], "nan_step": NAN_STEP, "infinite_step": INFINITE_STEP,
                "steps": {name: short_history(name, digest) for name in ("e4m3", "e5m2")},
                "long_steps": LONG_STEPS,
                "long_exceptions": [[step, bits(value)] for step, value in LONG_EXCEPTIONS.items()],
                "long": {name: long_history(name) for name in ("e4m3", "e5m2")}}
