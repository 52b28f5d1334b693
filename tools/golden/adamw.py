"""Prints the AdamW values that tests/kernels/cpu/optimizer_test.cpp expects (needs torch)."""
import torch

p = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5, 3.0]))
optimizer = torch.optim.AdamW([p], lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1, foreach=False)
for grad in [[0.1, -0.2, 0.3, 0.0], [-0.4, 0.05, 1.5, 1e-4], [0.02, 0.7, -2.0, -3e-3]]:
    p.grad = torch.tensor(grad)
    optimizer.step()
print(", ".join(f"{x:.9g}f" for x in p.tolist()))
