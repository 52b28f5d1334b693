"""Sums of sparse attention, its indexer's loss and their gradients by PyTorch in fp64, for
tests/kernels/cpu/sparse_attention_test.cpp: of each tensor its dot with cos(0.37 i).

Usage: sparse_attention.py     (torch)
"""

import torch

ROWS, HEADS, SIZE, VALUES, COUNT = 20, 2, 5, 3, 6
INDEX_HEADS, INDEX_SIZE, SECOND = 3, 4, 13  # SECOND: where the second document begins
SCALE, INDEX_SCALE, COEFFICIENT = 0.6, 0.5, 1.5


def numbers(stream, *shape, scale=1.0, shift=0.0):
    n = torch.Size(shape).numel()
    i = torch.arange(n, dtype=torch.float64)
    return (shift + scale * torch.sin(0.731 * i + 1.3 * stream)).float().double().reshape(shape)


def total(x):
    x = x.detach().flatten()
    return (x * torch.cos(0.37 * torch.arange(len(x), dtype=torch.float64))).sum().item()


def show(name, *tensors):
    print(name, "{" + ", ".join(f"{total(x):.9g}" for x in tensors) + "}")


place = torch.arange(ROWS)
begin = torch.where(place >= SECOND, SECOND, 0)
sees = (place[None] <= place[:, None]) & (place[None] >= begin[:, None])
hidden = torch.where(sees, 0.0, -torch.inf)
counts = torch.arange(ROWS) % 5 != 3  # rows with a target

index_q = numbers(1, ROWS, INDEX_HEADS, INDEX_SIZE).requires_grad_()
keys = numbers(2, ROWS, INDEX_SIZE)
index_k = keys[place // 2 * 2].clone().requires_grad_()  # equal in pairs
weights = numbers(3, ROWS, INDEX_HEADS, shift=0.4).requires_grad_()


def scores():
    dots = torch.einsum("thd,sd->ths", index_q, index_k)
    return INDEX_SCALE * (weights[:, :, None] * torch.relu(dots)).sum(1)


# Stable: of equal scores the first.
order = torch.argsort(scores().detach() + hidden, dim=1, descending=True, stable=True)
ranks = torch.empty_like(order).scatter_(1, order, place.expand(ROWS, ROWS))
chosen = sees & (ranks < COUNT)
print("chosen", [[s for s in range(ROWS) if chosen[t, s]] for t in (7, 12, 19)])

q = numbers(4, ROWS, HEADS, SIZE).requires_grad_()
k = numbers(5, ROWS, HEADS, SIZE).requires_grad_()
v = numbers(6, ROWS, HEADS, VALUES).requires_grad_()
dout = numbers(7, ROWS, HEADS, VALUES)


def main(mask):
    return torch.softmax(SCALE * torch.einsum("thd,shd->hts", q, k) + torch.where(mask, 0.0, -torch.inf), -1)


p = main(chosen)
out = torch.einsum("hts,shd->thd", p, v)
(out * dout).sum().backward()
show("attention: out, mass, dq, dk, dv", out, p.sum(0)[chosen], q.grad, k.grad, v.grad)

for name, mask in (("over chosen keys", chosen), ("over all keys", sees)):
    wanted = main(mask).sum(0).detach()
    wanted = wanted / wanted.sum(1, keepdim=True)
    logs = torch.log_softmax(scores() + torch.where(mask, 0.0, -torch.inf), 1)
    terms = torch.where(mask & (wanted > 0), wanted * (wanted.clamp_min(1e-300).log() - logs.masked_fill(~mask, 0)), 0)
    loss = COEFFICIENT * terms[counts].sum()
    grads = torch.autograd.grad(loss, (index_q, index_k, weights))
    show(f"loss {name}: loss, dq, dk, dweights", loss, *grads)
