"""Quantizers in blocks for make_precision_golden.py, in NumPy alone. Scales are what codes are multiplied with."""

import numpy as np

import precision_formats as formats


def blocks_of(x, rows, columns):
    x = np.pad(np.abs(x), ((0, -x.shape[0] % rows), (0, -x.shape[1] % columns)))
    return x.reshape(x.shape[0] // rows, rows, x.shape[1] // columns, columns).max(axis=(1, 3))


def spread(scales, rows, columns, shape):
    return np.repeat(np.repeat(scales, rows, axis=0), columns, axis=1)[: shape[0], : shape[1]]


def block(x, name, rows, power_of_two):
    """DeepSeek-V3's blocks (its technical report, 3.3) with DeepGEMM's floor of 1e-4 and its scales of powers of two."""
    scales = np.maximum(blocks_of(x, rows, 128), np.float32(1e-4)) / formats.largest(name)
    if power_of_two:
        # Exact: log2() rounds.
        significand, exponent = np.frexp(scales)
        powers = np.ldexp(np.float32(1), np.where(significand == 0.5, exponent - 1, exponent))
        scales = np.where(np.isfinite(scales), powers, scales).astype(np.float32)
    return formats.encode(name, x / spread(scales, rows, 128, x.shape)), scales


def nvfp4(x, rows, words=None):
    """NVFP4 as torchao computes it, also for blocks of 16 rows (NVIDIA 2025, "Pretraining Large Language Models with NVFP4":
    weights) and with stochastic rounding (gradients)."""
    of_tensor = np.abs(x).max() / (formats.largest("e4m3") * formats.largest("e2m1"))
    wanted = blocks_of(x, rows, 16) / formats.largest("e2m1") / of_tensor
    codes = formats.encode("e4m3", np.maximum(wanted, np.float32(2**-6)))
    scales = formats.values("e4m3")[codes]
    scaled = x * spread(np.float32(1) / of_tensor / scales, rows, 16, x.shape)
    if words is None:
        return formats.encode("e2m1", scaled), codes
    return formats.encode_stochastic("e2m1", scaled, words), codes


def hadamard(x, of_signs):
    """Every 16 whole elements of a row: signs by the bits of `of_signs`, four rounds of sums and differences in fp32, a quarter."""
    whole = x.shape[1] // 16 * 16
    signs = np.array([-1 if of_signs >> i & 1 else 1 for i in range(16)], np.float32)
    y = x[:, :whole].reshape(x.shape[0], -1, 16) * signs
    for apart in (8, 4, 2, 1):
        y = y.reshape(*y.shape[:2], 16 // (2 * apart), 2, apart)
        y = np.stack([y[..., 0, :] + y[..., 1, :], y[..., 0, :] - y[..., 1, :]], axis=-2).reshape(x.shape[0], -1, 16)
    y = y * np.float32(0.25)
    return np.concatenate([y.reshape(x.shape[0], whole), x[:, whole:]], axis=1)
