"""Matmuls of quantized operands for make_precision_golden.py: values of codes times scales, summed in fp64 by NumPy."""

import numpy as np

import precision_formats as formats
from precision_blocks import block, blocks_of, nvfp4, spread

ROWS, COLS, DEPTH = 12, 10, 300
SEED, STREAM_A, STREAM_B = 0x0123456789ABCDEF, 31, 32


def matrix(rows, columns, stream):
    """Rows and columns of many sizes, zeros, an outlier, subnormal numbers."""
    words = formats.random_words(SEED, stream, 0, np.arange(rows * columns).reshape(rows, columns))
    x = (words >> np.uint32(8)).astype(np.float32) * np.float32(2**-23) - np.float32(1)
    row, column = np.indices(x.shape)
    x *= np.exp2(row * 7 % 23 - 11 + column % 5 - 2).astype(np.float32)
    x[1] = 0
    if columns > 37:
        x[2, 37] = 30000
    x[3] = (words[3] & np.uint32(0x807FFFFF)).view(np.float32)
    x[5] = -0.0
    x[:, 7] = 0
    if rows > 140:
        x[140, 8] = -70000
    return x


def tensor(x):
    factor = formats.largest("e4m3") / np.maximum(np.abs(x).max(), np.float32(1e-12))
    codes = formats.encode("e4m3", x * factor)
    return formats.values("e4m3")[codes].astype(np.float64) * np.float64(np.float32(1) / factor)


def blocks(x, rows):
    codes, scales = block(x, "e4m3", rows, False)
    return formats.values("e4m3")[codes].astype(np.float64) * spread(scales, rows, 128, x.shape)


def mxfp8(x):
    """OCP Microscaling with the exponent rounded up, as Transformer Engine has it: blocks whose scale would be 2^-127 stay
    unscaled."""
    least = blocks_of(x, 1, 32) / formats.largest("e4m3")
    significand, exponent = np.frexp(least.astype(np.float64))
    exponent = np.where(significand == 0.5, exponent - 1, exponent)
    tiny = least <= np.float32(2.0**-127)
    exponent = np.where(tiny, -127, np.maximum(exponent, -126))
    applied = spread(np.where(tiny, 1.0, np.exp2(exponent.astype(np.float64))), 1, 32, x.shape)
    codes = formats.encode("e4m3", (x / applied).astype(np.float32))
    return formats.values("e4m3")[codes].astype(np.float64) * spread(np.exp2(exponent.astype(np.float64)), 1, 32, x.shape)


def fp4(x, rows):
    codes, scales = nvfp4(x, rows)
    of_tensor = np.abs(x).max() / (formats.largest("e4m3") * formats.largest("e2m1"))
    values = formats.values("e2m1")[codes].astype(np.float64) * spread(formats.values("e4m3")[scales], rows, 16, x.shape)
    return values * np.float64(of_tensor)


RECIPES = {
    "tensor": (tensor, tensor, False),
    "block": (lambda x: blocks(x, 1), lambda x: blocks(x, 128), False),
    "block depth first": (lambda x: blocks(x, 1), lambda x: blocks(x, 128), True),
    "mxfp8": (mxfp8, mxfp8, False),
    "nvfp4": (lambda x: fp4(x, 1), lambda x: fp4(x, 16), False),
    "nvfp4 depth first": (lambda x: fp4(x, 1), lambda x: fp4(x, 16), True),
}


def make_matmuls():
    a = matrix(ROWS, DEPTH, STREAM_A)
    out = {}
    with np.errstate(all="ignore"):
        for name, (of_a, of_b, depth_first) in RECIPES.items():
            b = of_b(matrix(*((DEPTH, COLS) if depth_first else (COLS, DEPTH)), STREAM_B))
            b = b if depth_first else b.T
            left = of_a(a)
            out[name] = {"sums": (left @ b).ravel().tolist(), "sizes": (np.abs(left) @ np.abs(b)).ravel().tolist()}
    return {"seed": SEED, "streams": [STREAM_A, STREAM_B], "rows": ROWS, "cols": COLS, "depth": DEPTH, "recipes": out}
