"""Quantizers for make_precision_golden.py: torchao's, and NumPy where it has none.

Results along columns are those of the transposed matrix. Scales are what codes are multiplied with."""

import numpy as np
import torch
from torchao.float8.float8_scaling_utils import hp_tensor_to_float8_dynamic
from torchao.float8.float8_training_tensor import LinearMMConfig
from torchao.float8.float8_utils import ScalingGranularity
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.prototype.mx_formats.mx_tensor import DTYPE_FP6_E2M3, DTYPE_FP6_E3M2, to_mx
from torchao.prototype.mx_formats.nvfp4_tensor import nvfp4_quantize, per_tensor_amax_to_scale

import precision_formats as formats
from precision_blocks import block, hadamard, nvfp4

ROWS, COLUMNS = 150, 290
SEED, STREAM, STEP, FIRST, SIGNS = 0x0123456789ABCDEF, 3, 9, 12345, 0xB38D
TORCH = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
MX = TORCH | {"e2m3": DTYPE_FP6_E2M3, "e3m2": DTYPE_FP6_E3M2, "e2m1": torch.float4_e2m1fn_x2}
MODES = {"floor": ScaleCalculationMode.FLOOR, "round_up": ScaleCalculationMode.RCEIL,
         "ceil": ScaleCalculationMode.CEIL, "even": ScaleCalculationMode.EVEN}
ELEMENTS = np.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS)


def matrix(special):
    """Rows and columns of many sizes, zeros, outliers, subnormal numbers; `special`: NaN and infinities too."""
    words = formats.random_words(SEED, STREAM, 0, ELEMENTS)
    x = (words >> np.uint32(8)).astype(np.float32) * np.float32(2**-23) - np.float32(1)
    row, column = np.indices(x.shape)
    x *= np.exp2(row * 7 % 23 - 11 + column % 5 - 2).astype(np.float32)
    x[1] = 0
    x[2, 37] = 30000
    x[3] = (words[3] & np.uint32(0x807FFFFF)).view(np.float32)
    x[5] = -0.0
    x[:, 7] = 0
    x[140, 8] = -70000
    if special:
        x[6, 100], x[8, 20], x[131, 280] = np.nan, np.inf, -np.inf
    return x


def padded(x, multiple):
    return np.pad(x, ((0, 0), (0, -x.shape[1] % multiple)))


def without_sign_of_nan(name, codes):
    nan = {"e4m3": (codes & 0x7F) == 0x7F, "e5m2": (codes & 0x7F) > 0x7C}[name]
    return np.where(nan, formats.NAN_CODES[name], codes).astype(np.uint8)


def as_tensor(x, dtype):
    tensor = torch.from_numpy(np.ascontiguousarray(x))
    return tensor.to(torch.bfloat16) if dtype == "bf16" else tensor


def scaled_casts(x, dtype, name, by_row):
    granularity = ScalingGranularity.AXISWISE if by_row else ScalingGranularity.TENSORWISE
    cast = hp_tensor_to_float8_dynamic(as_tensor(x, dtype), TORCH[name], LinearMMConfig(), scaling_granularity=granularity,
                                       axiswise_dim=-1 if by_row else None, round_scales_to_power_of_2=by_row)
    scales = np.float32(1) / cast._scale.numpy().reshape(-1, 1)
    return without_sign_of_nan(name, cast._data.view(torch.uint8).numpy()), scales


def mx(x, dtype, name, mode):
    columns = x.shape[1]
    x = padded(x, 32)
    scales, codes = to_mx(as_tensor(x, dtype), MX[name], 32, MODES[mode])
    scales = scales.view(torch.uint8).numpy()
    if name in TORCH:
        codes = without_sign_of_nan(name, codes.view(torch.uint8).numpy())
    else:
        codes = codes.reshape(x.shape[0], -1).numpy()
        if name == "e2m1":
            codes = np.stack([codes & 15, codes >> 4], axis=-1).reshape(x.shape)
        # These have no code for NaN; torchao leaves the one that its arithmetic on bits gives.
        blocks = np.repeat(scales, 32, axis=1)
        lost = (blocks == 255) if mode == "round_up" else (blocks == 255) & ~np.isfinite(x)
        codes = np.where(lost, 0, codes).astype(np.uint8)
    return codes[:, :columns], scales


def nvfp4_torchao(x, dtype):
    columns = x.shape[1]
    x = as_tensor(padded(x, 16), dtype)
    scales, codes = nvfp4_quantize(x, 16, per_tensor_amax_to_scale(x.abs().max()))
    codes = np.stack([codes.numpy() & 15, codes.numpy() >> 4], axis=-1).reshape(x.shape)
    return codes[:, :columns], scales.view(torch.uint8).numpy()


def cases():
    """Yields rule, name of the matrix, type of the source, and what computes codes and scales from rows and their elements'
    numbers."""
    for dtype in ("f32", "bf16"):
        for name in TORCH:
            yield f"tensor {name}", "plain", dtype, lambda x, at, d=dtype, n=name: scaled_casts(x, d, n, False)
            yield f"row {name}", "special", dtype, lambda x, at, d=dtype, n=name: scaled_casts(x, d, n, True)
        for name in MX:
            for mode in MODES:
                yield (f"mx {name} {mode}", "special", dtype, lambda x, at, d=dtype, n=name, m=mode: mx(x, d, n, m))
        for power in (False, True):
            tail = " power_of_two" if power else ""
            yield f"block_row e4m3{tail}", "special", dtype, lambda x, at, p=power: block(x, "e4m3", 1, p)
            yield f"block_square e4m3{tail}", "special", dtype, lambda x, at, p=power: block(x, "e4m3", 128, p)
        yield "nvfp4_row", "plain", dtype, lambda x, at, d=dtype: nvfp4_torchao(x, d)
        yield "nvfp4_square", "plain", dtype, lambda x, at: nvfp4(x, 16)
        yield "nvfp4_row stochastic", "plain", dtype, lambda x, at: nvfp4(x, 1, formats.random_words(SEED, STREAM, STEP, FIRST + at))
        yield "nvfp4_row hadamard", "plain", dtype, lambda x, at: nvfp4(hadamard(x, SIGNS), 1)


def make_quantizers(digest):
    matrices = {"plain": matrix(False), "special": matrix(True)}
    out = []
    for rule, which, dtype, compute in cases():
        x = matrices[which]
        if dtype == "bf16":
            x = torch.from_numpy(x).to(torch.bfloat16).float().numpy()
        for along, rows, elements in (("rows", x, ELEMENTS), ("columns", np.ascontiguousarray(x.T), ELEMENTS.T)):
            with np.errstate(all="ignore"):
                codes, scales = compute(rows, elements)
            if rule == "nvfp4_row":
                ours = nvfp4(rows, 1)
                assert (ours[0] == codes).all() and (ours[1] == scales).all()
            if scales.dtype == np.float32:
                scales = np.where(np.isnan(scales), np.float32(np.nan), scales)
            if codes.max() < 16 and "nvfp4" in rule or "e2m1" in rule:
                codes = formats.pack_pairs(codes)
            parts = [digest(codes[i : i + 32]) for i in range(0, len(codes), 32)]
            out.append({"rule": rule, "matrix": which, "dtype": dtype, "along": along, "codes": parts,
                        "scales": [digest(scales[i : i + 32]) for i in range(0, len(scales), 32)]})
    return {"seed": SEED, "stream": STREAM, "step": STEP, "first": FIRST, "signs": SIGNS, "rows": ROWS, "columns": COLUMNS,
            "cases": out}
