"""Formats of at most 8 bits in NumPy, with ml_dtypes' casts, and this project's rules around them: the quantizer clamps
before it converts, NaN has no sign, formats without NaN get 0. For make_precision_golden.py."""

import ml_dtypes
import numpy as np

TYPES = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e8m0": ml_dtypes.float8_e8m0fnu,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "f16": np.float16,
}
NAN_CODES = {"e4m3": 0x7F, "e5m2": 0x7E, "e8m0": 0xFF, "e4m3fnuz": 0x80, "e5m2fnuz": 0x80}
MANTISSA_BITS = {"e4m3": 3, "e5m2": 2, "e2m1": 1}
LEAST_EXPONENT = {"e4m3": -6, "e5m2": -14, "e2m1": 0}


def largest(name):
    return np.float32(ml_dtypes.finfo(TYPES[name]).max)


def values(name):
    """The value of every code, as fp32."""
    if name == "f16":
        return np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    count = 16 if name == "e2m1" else 64 if name in ("e2m3", "e3m2") else 256
    return np.arange(count, dtype=np.uint8).view(TYPES[name]).astype(np.float32)


def encode(name, x):
    """Codes of fp32 numbers, to nearest even."""
    if name == "f16":  # the only one that overflows
        codes = x.astype(np.float16).view(np.uint16)
        sign = (x.view(np.uint32) >> 16 & 0x8000).astype(np.uint16)
        return np.where(np.isnan(x), sign | 0x7E00, codes).astype(np.uint16)
    if name == "e8m0":
        codes = np.minimum(x, largest(name)).astype(TYPES[name]).view(np.uint8)
        # ml_dtypes 0.6 rounds everything above 2^-127 up to 2^-126, and has no code for zero.
        small = (x >= 0) & (x < 2.0**-126)
        return np.where(small, (x >= 1.5 * 2.0**-127).astype(np.uint8), codes)
    most = largest(name)
    codes = np.clip(x, -most, most).astype(TYPES[name]).view(np.uint8)
    return np.where(np.isnan(x), NAN_CODES.get(name, 0), codes).astype(np.uint8)


def pack_pairs(codes):
    """e2m1, two a byte along the last axis, the first in the lower half."""
    if codes.shape[-1] % 2:
        codes = np.concatenate([codes, np.zeros((*codes.shape[:-1], 1), np.uint8)], axis=-1)
    return codes[..., 0::2] | codes[..., 1::2] << 4


def stored(name, codes):
    return pack_pairs(codes) if name == "e2m1" else codes


def philox(seed, stream, counter, counter_high):
    """Philox 4x32-10 (Salmon et al. 2011) of an array of counters: [n, 4] words."""
    counter = np.asarray(counter, np.uint64)
    mask = np.uint64(0xFFFFFFFF)
    x = [counter & mask, counter >> np.uint64(32), np.full_like(counter, stream), np.full_like(counter, counter_high)]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * x[0], np.uint64(0xCD9E8D57) * x[2]
        x = [p1 >> np.uint64(32) ^ x[1] ^ np.uint64(k0), p1 & mask, p0 >> np.uint64(32) ^ x[3] ^ np.uint64(k1), p0 & mask]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(x, axis=-1).astype(np.uint32)


# Known answers of the authors' library.
assert [hex(w) for w in philox(0, 0, [0], 0)[0]] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


def random_words(seed, stream, step, elements):
    elements = np.asarray(elements, np.uint64)
    words = philox(seed, stream, elements.reshape(-1) // np.uint64(4), step)
    return words[np.arange(elements.size), (elements.reshape(-1) % np.uint64(4)).astype(int)].reshape(elements.shape)


def encode_stochastic(name, x, words):
    """floor(|x| / quantum + u) quanta, computed in fp64 (exact), and then the cast of an exact value."""
    most = np.float64(largest(name))
    size = np.minimum(np.abs(x.astype(np.float64)), most)
    with np.errstate(all="ignore"):
        exponent = np.where(size > 0, np.floor(np.log2(np.where(size > 0, size, 1))), -200)
    exponent = np.where(size < 2.0**exponent, exponent - 1, np.where(size >= 2.0 ** (exponent + 1), exponent + 1, exponent))
    quantum = 2.0 ** (np.maximum(exponent, LEAST_EXPONENT[name]) - MANTISSA_BITS[name])
    share = size / quantum
    whole = np.floor(share)
    up = np.floor((share - whole) * 2**24) + (words >> np.uint32(8)).astype(np.float64) >= 2**24
    rounded = (whole + up) * quantum
    return encode(name, np.where(np.isnan(x), x, np.copysign(rounded, x)).astype(np.float32))
