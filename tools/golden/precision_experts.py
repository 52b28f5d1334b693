"""nvfp4 for experts for make_precision_golden.py, in NumPy alone: rows with a scale each in place of the tensor's, and the six
matmuls of experts on them, summed in fp64.

The formula of a block is NVIDIA's (2025, "Pretraining Large Language Models with NVFP4"), with the greatest magnitude of the
row in place of the tensor's. Gradients are rounded stochastically by the place of a row's token in its sample. Weight gradients
decode the codes along rows, and quantise again along each 128 consecutive pairs of an expert, after a Hadamard transform."""

import ml_dtypes
import numpy as np

import precision_formats as formats
from precision_blocks import blocks_of, hadamard, nvfp4, spread
from precision_matmuls import matrix

SEED, STREAM, SIGNS = 0x0123456789ABCDEF, 51, 0xB38D
ROWS, COLUMNS = 150, 290
# Every token has two of four experts; the third has none, and the first more than 128.
TOKENS, K, EXPERTS, OUTPUTS, INPUTS = 150, 2, 4, 38, 70
GROUP = 128
# Of results: among the rows are a zero one, one with an outlier, and one of subnormal numbers.
SHOWN, SHOWN_OF_WEIGHTS = [0, 1, 2, 3, 64, 140, 149], list(range(0, EXPERTS * OUTPUTS, 11))


def by_row(x, words=None):
    """Codes, scales of blocks and the fp32 scale of each row."""
    most = formats.largest("e4m3") * formats.largest("e2m1")
    of_rows = np.maximum(np.abs(x).max(axis=1, keepdims=True) / most, np.float32(2**-121))
    wanted = blocks_of(x, 1, 16) / formats.largest("e2m1") / of_rows
    codes = formats.encode("e4m3", np.maximum(wanted, np.float32(2**-6)))
    scaled = x * spread(np.float32(1) / of_rows / formats.values("e4m3")[codes], 1, 16, x.shape)
    if words is None:
        return formats.encode("e2m1", scaled), codes, of_rows
    return formats.encode_stochastic("e2m1", scaled, words), codes, of_rows


def decoded(quantized, shape):
    codes, scales, of_rows = quantized
    return formats.values("e2m1")[codes] * spread(of_rows * formats.values("e4m3")[scales], 1, 16, shape)


def words_of(places, columns, stream):
    """Random words of rows whose sample and place there are known."""
    words = [formats.random_words(SEED, stream, int(sample), place * columns + np.arange(columns)) for sample, place in places]
    return np.stack(words) if words else np.zeros((0, columns), np.uint32)


def ids_of_pairs():
    token, choice = np.divmod(np.arange(TOKENS * K), K)
    ids = (token * token + 3 * choice) % EXPERTS
    return np.where(ids == 2, 0, ids)


def places_of_rows(count):
    """Three samples of 60 rows, the last one shorter; of pairs, the expert counts within the place."""
    rows = np.arange(TOKENS) if count == TOKENS else np.arange(count) // K
    place = rows % 60
    if count != TOKENS:
        place = place * EXPERTS + ids_of_pairs()
    return np.stack([7 + rows // 60, place], axis=-1)


def weights():
    x = matrix(EXPERTS * OUTPUTS, INPUTS, STREAM)
    codes, scales = nvfp4(x, 16)
    of_tensor = np.abs(x).max() / (formats.largest("e4m3") * formats.largest("e2m1"))
    return formats.values("e2m1")[codes] * spread(of_tensor * formats.values("e4m3")[scales], 16, 16, x.shape)


def rows_of(count, columns, stream, is_gradient):
    x = matrix(count, columns, stream)
    words = words_of(places_of_rows(count), columns, stream) if is_gradient else None
    return decoded(by_row(x, words), x.shape)


def along_pairs(values, places, stream, options):
    """Of the rows of an expert's pairs, in groups, as fp64."""
    parts = [np.zeros((0, values.shape[1]))]
    for at in range(0, len(values), GROUP):
        group = np.ascontiguousarray(values[at : at + GROUP].T)
        if options["hadamard"]:
            group = hadamard(group, SIGNS)
        words = None
        if places is not None and options["stochastic"]:
            words = np.ascontiguousarray(words_of(places[at : at + GROUP], values.shape[1], stream).T)
        parts.append(decoded(by_row(group, words), group.shape).T.astype(np.float64))
    return np.concatenate(parts)


def matmuls(options):
    ids, w = ids_of_pairs(), weights().astype(np.float64).reshape(EXPERTS, OUTPUTS, INPUTS)
    token = np.arange(TOKENS * K) // K
    streams = {"x": STREAM + 1, "dy": STREAM + 2, "again": STREAM + 3}

    def product(a, a_by_pair, of_expert, width):
        """Sums of a matmul with weights, and of the magnitudes of its terms."""
        results = np.zeros((2, TOKENS if a_by_pair else TOKENS * K, width))
        for pair in range(TOKENS * K):
            row, to = (pair, token[pair]) if a_by_pair else (token[pair], pair)
            b = of_expert(ids[pair])
            results[0, to] += a[row] @ b
            results[1, to] += np.abs(a[row]) @ np.abs(b)
        return results[:, SHOWN]

    def weight_gradient(dy_by_pair):
        dy = rows_of(TOKENS * K if dy_by_pair else TOKENS, OUTPUTS, streams["dy"], options["stochastic"])
        x = rows_of(TOKENS if dy_by_pair else TOKENS * K, INPUTS, streams["x"], False)
        results = np.zeros((2, EXPERTS * OUTPUTS, INPUTS))
        for expert in range(EXPERTS):
            pairs = np.flatnonzero(ids == expert)
            dy_rows, x_rows = (pairs, token[pairs]) if dy_by_pair else (token[pairs], pairs)
            a = along_pairs(dy[dy_rows], places_of_rows(len(dy))[dy_rows], streams["again"], options)
            b = along_pairs(x[x_rows], None, 0, options)
            of_expert = slice(expert * OUTPUTS, (expert + 1) * OUTPUTS)
            results[0, of_expert], results[1, of_expert] = a.T @ b, np.abs(a).T @ np.abs(b)
        return results[:, SHOWN_OF_WEIGHTS]

    def rows(by_pair, columns, what):
        return rows_of(TOKENS * K if by_pair else TOKENS, columns, streams[what], what == "dy" and options["stochastic"]).astype(np.float64)

    forward, backward = (lambda e: w[e].T), (lambda e: w[e])
    out = {"in": product(rows(False, INPUTS, "x"), False, forward, OUTPUTS),
           "in_grad_input": product(rows(True, OUTPUTS, "dy"), True, backward, INPUTS),
           "in_grad_weight": weight_gradient(True),
           "out": product(rows(True, INPUTS, "x"), True, forward, OUTPUTS),
           "out_grad_input": product(rows(False, OUTPUTS, "dy"), False, backward, INPUTS),
           "out_grad_weight": weight_gradient(False)}
    return {name: {"sums": [float(f"{sum:.10g}") for sum in sums.ravel()], "sizes": [float(f"{size:.3g}") for size in sizes.ravel()]}
            for name, (sums, sizes) in out.items()}


def quantizers(digest):
    out = []
    for dtype in ("f32", "bf16"):
        x = matrix(ROWS, COLUMNS, STREAM)
        if dtype == "bf16":
            x = x.astype(ml_dtypes.bfloat16).astype(np.float32)
        words = words_of(places_of_rows(ROWS), COLUMNS, STREAM)
        for along, rows, random in (("rows", x, words), ("columns", np.ascontiguousarray(x.T), np.ascontiguousarray(words.T))):
            for treatment in ("", "stochastic", "hadamard", "hadamard stochastic"):
                treated = hadamard(rows, SIGNS) if "hadamard" in treatment else rows
                codes, scales, of_rows = by_row(treated, random if "stochastic" in treatment else None)
                out.append({"dtype": dtype, "along": along, "treatment": treatment, "codes": digest(formats.pack_pairs(codes)),
                            "scales": digest(scales), "of_rows": digest(of_rows)})
    return out


def make_experts(digest):
    with np.errstate(all="ignore"):
        both, neither = {"hadamard": True, "stochastic": True}, {"hadamard": False, "stochastic": False}
        plain = matmuls(neither)
        return {"seed": SEED, "stream": STREAM, "signs": SIGNS, "rows": ROWS, "columns": COLUMNS, "quantizers": quantizers(digest),
                "tokens": TOKENS, "k": K, "experts": EXPERTS, "outputs": OUTPUTS, "inputs": INPUTS, "shown": SHOWN,
                "shown_of_weights": SHOWN_OF_WEIGHTS, "ids": ids_of_pairs().tolist(), "matmuls": matmuls(both),
                "plain": {name: plain[name] for name in ("in_grad_weight", "out_grad_weight")}}
