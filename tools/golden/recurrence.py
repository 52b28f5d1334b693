"""Prints the sums that tests/kernels/cpu/recurrence_test.cpp expects of transformers' recurrences and their gradients
(needs torch and transformers): of each result its product with cos(0.37 i)."""
import math

import torch
from transformers.models.kimi_linear.modeling_kimi_linear import recurrent_kimi_delta_attention
from transformers.models.mamba2.modeling_mamba2 import mamba2_chunk_scan
from transformers.models.qwen3_next.modeling_qwen3_next import torch_recurrent_gated_delta_rule

ROWS, HEADS, K, V = 20, 2, 3, 5


def numbers(stream, *shape, scale=1.0, shift=0.0):
    n = math.prod(shape)
    values = [shift + scale * math.sin(0.731 * i + 1.3 * stream) for i in range(n)]
    return torch.tensor(values, dtype=torch.float32).reshape(1, *shape).requires_grad_()


def total(x):
    flat = x.detach().double().flatten()
    return float((flat * torch.cos(0.37 * torch.arange(flat.numel(), dtype=torch.float64))).sum())


def show(name, out, *of):
    out.backward(numbers(9, *out.shape[1:]).detach())
    print(name, ", ".join(f"{x:.8g}" for x in [total(out)] + [total(x.grad) for x in of]))


q, k, v = numbers(1, ROWS, 1, K), numbers(2, ROWS, 1, K), numbers(3, ROWS, HEADS, V)
g, beta = numbers(4, ROWS, HEADS, scale=0.4, shift=-0.5), numbers(5, ROWS, HEADS, scale=0.9, shift=1.0)
show("head", torch_recurrent_gated_delta_rule(q, k, v, g, beta, use_qk_l2norm_in_kernel=True)[0], q, k, v, g, beta)

q, k, v = numbers(1, ROWS, HEADS, K), numbers(2, ROWS, HEADS, K), numbers(3, ROWS, HEADS, V)
g, beta = numbers(4, ROWS, HEADS, K, scale=0.4, shift=-0.5), numbers(5, ROWS, HEADS, scale=0.9, shift=1.0)
show("channel", recurrent_kimi_delta_attention(q, k, v, g, beta, None, False, use_qk_l2norm_in_kernel=True)[0],
     q, k, v, g, beta)

# g = A dt and β = dt: the gradient of dt has both.
q, k, v = numbers(1, ROWS, 1, K), numbers(2, ROWS, 1, K), numbers(3, ROWS, HEADS, V)
dt, a, d = numbers(5, ROWS, HEADS, scale=0.4, shift=0.5), torch.tensor([-1.5, -0.3]), torch.tensor([0.7, -0.2])
out = mamba2_chunk_scan(v, dt, a, k, q, 8, D=d)
show("space", out[0] if isinstance(out, tuple) else out, q, k, v, dt)
