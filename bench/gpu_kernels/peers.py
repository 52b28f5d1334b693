"""Times PyTorch's counterparts of the kernels of kernels_bench, at the same shapes and with the same method; writes one line of JSON each.

Usage: peers.py RESULTS [PARTS]
"""

import json
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

DEVICE = "cuda"
TOKENS = 8192
torch.backends.cuda.matmul.allow_tf32 = False
flush = torch.empty(256 << 20, dtype=torch.uint8, device=DEVICE)
results = open(sys.argv[1], "w", encoding="utf-8")
parts = sys.argv[2] if len(sys.argv) > 2 else ""


def wants(part):
    return not parts or part in parts


def time(work, runs=9):
    """The median of several runs in microseconds, with the cache flushed before each."""
    for _ in range(2):
        work()
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(runs)]
    for index, (begin, end) in enumerate(events):
        flush.fill_(index)
        begin.record()
        work()
        end.record()
    torch.cuda.synchronize()
    return sorted(begin.elapsed_time(end) for begin, end in events)[runs // 2] * 1e3


def report(op, shape, kernel, work):
    try:
        line = {"op": op, "shape": shape, "kernel": kernel, "us": round(time(work), 2)}
    except Exception as error:  # continue with the others if one peer is missing
        line = {"op": op, "shape": shape, "kernel": kernel, "failed": str(error)[:200]}
    results.write(json.dumps(line) + "\n")
    results.flush()


def random(*shape, dtype=torch.bfloat16, scale=1.0):
    return ((torch.rand(*shape, device=DEVICE, dtype=torch.float32) * 2 - 1) * scale).to(dtype)


def gemms():
    layers = [
        (8192, 8192, 8192), (8192, 4096, 4096), (8192, 14336, 4096), (8192, 4096, 14336), (8192, 2048, 2048),
        (8192, 8192, 2048), (8192, 1024, 1024), (8192, 3072, 1024), (8192, 32768, 2048),
    ]
    for m, n, k in layers:
        x, w, dy = random(m, k), random(n, k), random(m, n)
        report("gemm_nt", f"{m}x{n}x{k}", "torch.matmul", lambda: torch.matmul(x, w.t()))
        report("gemm_nn", f"{m}x{k}x{n}", "torch.matmul", lambda: torch.matmul(dy, w))
        report("gemm_tn", f"{n}x{k}x{m}", "torch.mm to fp32", lambda: torch.mm(dy.t(), x, out_dtype=torch.float32))
        report("gemm_tn", f"{n}x{k}x{m}", "torch.matmul to bf16", lambda: torch.matmul(dy.t(), x))
        del x, w, dy
    x, w = random(2048, 2048, dtype=torch.float32), random(2048, 2048, dtype=torch.float32)
    report("gemm_nt_f32", "2048x2048x2048", "torch.matmul", lambda: torch.matmul(x, w.t()))
    report("gemm_nn_f32", "2048x2048x2048", "torch.matmul", lambda: torch.matmul(x, w))
    report("gemm_tn_f32", "2048x2048x2048", "torch.matmul", lambda: torch.matmul(x.t(), w))


def attentions():
    problems = [
        (1, 8192, 32, 8, 128, True), (4, 2048, 32, 8, 128, True), (4, 2048, 32, 8, 128, False), (1, 8192, 32, 32, 64, True),
        (8, 1024, 16, 16, 64, True), (4, 2048, 32, 8, 64, True), (4, 2048, 16, 16, 96, True), (4, 2048, 16, 8, 256, True),
    ]
    for batch, length, heads, kv_heads, dim, causal in problems:
        q = random(batch, length, heads, dim, scale=2).transpose(1, 2).requires_grad_()
        k = random(batch, length, kv_heads, dim, scale=2).transpose(1, 2).requires_grad_()
        v = random(batch, length, kv_heads, dim).transpose(1, 2).requires_grad_()
        dout = random(batch, length, heads, dim).transpose(1, 2)
        shape = f"{batch}x{length} heads {heads}/{kv_heads}x{dim}" + (" causal" if causal else "")
        for name, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION)):
            def forward():
                with sdpa_kernel(backend):
                    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=heads != kv_heads)
            try:
                out = forward()
            except Exception as error:
                results.write(json.dumps({"op": "attention_forward", "shape": shape, "kernel": name, "failed": str(error)[:200]}) + "\n")
                continue
            with torch.no_grad():
                report("attention_forward", shape, name, forward)
            report("attention_backward", shape, name, lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True))


    q, k, v, dout = (random(2, 16, 1024, 128, dtype=torch.float32).requires_grad_() for _ in range(4))
    for name, backend in (("efficient", SDPBackend.EFFICIENT_ATTENTION),):
        with sdpa_kernel(backend):
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            shape = "2x1024 heads 16/4x128 causal f32"
            with torch.no_grad():
                report("attention_forward", shape, name, lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
        report("attention_backward", shape, name, lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True))


def experts():
    for tokens, per_token, count, outputs, inputs in ((8192, 2, 8, 7168, 4096), (8192, 8, 64, 1024, 2048)):
        slots = tokens * per_token
        # Rows sorted by expert, in roughly equal numbers.
        sizes = slots // count + 16 * torch.randint(-4, 5, (count,))
        offsets = sizes.cumsum(0).clamp_(max=slots)
        offsets[-1] = slots
        offsets = offsets.to(device=DEVICE, dtype=torch.int32)
        x, dy, w = random(slots, inputs), random(slots, outputs), random(count, outputs, inputs)
        shape = f"{tokens}x{per_token} of {count} {outputs}x{inputs}"
        grouped = torch._grouped_mm
        report("experts_forward", shape, "grouped_mm of sorted rows", lambda: grouped(x, w.transpose(-2, -1), offs=offsets))
        report("experts_grad_input", shape, "grouped_mm, no sum", lambda: grouped(dy, w, offs=offsets))
        report("experts_grad_weight", shape, "grouped_mm to bf16", lambda: grouped(dy.t(), x, offs=offsets))
        del x, dy, w


def rows():
    for columns in (4096, 14336):
        a, b = random(TOKENS, columns), random(TOKENS, columns)
        out, wide = torch.empty_like(a), random(TOKENS, columns, dtype=torch.float32)
        shape = f"{TOKENS}x{columns}"
        report("copy", shape, "copy_", lambda: out.copy_(a))
        report("add", shape, "torch.add", lambda: torch.add(a, b, out=out))
        report("cast_bf16_f32", shape, "copy_", lambda: out.copy_(wide))
        report("transpose", shape, "contiguous", lambda: a.t().contiguous())
        report("column_sums", shape, "sum(0)", lambda: a.sum(0, dtype=torch.float32))
    for dim, norm in ((1024, "rms_norm"), (2048, "rms_norm"), (4096, "rms_norm"), (2048, "layer_norm")):
        x, residual, dy, dh = (random(TOKENS, dim) for _ in range(4))
        weight, bias = random(dim).requires_grad_(), random(dim).requires_grad_()
        x.requires_grad_()
        shape = f"{TOKENS}x{dim}"
        function = (lambda h: F.rms_norm(h, (dim,), weight, 1e-5)) if norm == "rms_norm" else (lambda h: F.layer_norm(h, (dim,), weight, bias, 1e-5))
        leaves = (x, weight) if norm == "rms_norm" else (x, weight, bias)
        out = function(x)
        with torch.no_grad():
            report(norm + "_forward", shape, "F." + norm, lambda: function(x))
            report("residual_" + norm + "_forward", shape, "add, F." + norm, lambda: function(x + residual))
        report(norm + "_backward", shape, "F." + norm, lambda: torch.autograd.grad(out, leaves, dy, retain_graph=True))

        def with_residual():
            gradients = torch.autograd.grad(out, leaves, dy, retain_graph=True)
            return gradients[0] + dh
        report("residual_" + norm + "_backward", shape, "F." + norm + ", add", with_residual)
    for heads, kv_heads, dim in ((32, 8, 128), (32, 8, 64)):
        qk = random(TOKENS, heads + kv_heads, dim)
        cosine, sine = random(TOKENS, 1, dim), random(TOKENS, 1, dim)

        def rope():
            half = torch.cat((-qk[..., dim // 2 :], qk[..., : dim // 2]), -1)
            return qk * cosine + half * sine
        report("rope", f"{TOKENS}x{heads}+{kv_heads}x{dim}", "eager", rope)
    for width in (5632, 14336):
        x, dy = random(TOKENS, 2 * width, scale=4).requires_grad_(), random(TOKENS, width)

        def swiglu():
            gate, up = x.chunk(2, -1)
            return F.silu(gate) * up
        out = swiglu()
        with torch.no_grad():
            report("swiglu_forward", f"{TOKENS}x{width}", "eager", swiglu)
        report("swiglu_backward", f"{TOKENS}x{width}", "eager", lambda: torch.autograd.grad(out, x, dy, retain_graph=True))
        del x, dy, out
    for vocab, dim in ((32768, 2048), (131072, 2048)):
        ids = (vocab ** torch.rand(TOKENS, device=DEVICE) - 1).long().clamp_(0, vocab - 1)
        table, dy = random(vocab, dim, dtype=torch.float32).requires_grad_(), random(TOKENS, dim, dtype=torch.float32)
        out = F.embedding(ids, table)
        with torch.no_grad():
            report("embedding_forward", f"{vocab}x{dim}", "F.embedding, to bf16", lambda: F.embedding(ids, table).bfloat16())
        report("embedding_backward", f"{vocab}x{dim}", "F.embedding (clears)", lambda: torch.autograd.grad(out, table, dy, retain_graph=True))
        del table, dy, out
    for tokens, vocab in ((8192, 32768), (2048, 131072)):
        logits = random(tokens, vocab, scale=8).requires_grad_()
        targets = torch.randint(0, vocab, (tokens,), device=DEVICE)
        shape = f"{tokens}x{vocab}"

        def both():
            loss = F.cross_entropy(logits, targets, reduction="sum")
            return torch.autograd.grad(loss, logits)
        report("cross_entropy", shape, "F.cross_entropy", both)
        with torch.no_grad():
            report("cross_entropy_forward", shape, "F.cross_entropy", lambda: F.cross_entropy(logits, targets, reduction="sum"))
        del logits
    n = 1 << 26
    p = random(n, dtype=torch.float32).requires_grad_()
    p.grad = random(n, dtype=torch.float32)
    optimizer = torch.optim.AdamW([p], lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    copy = torch.empty(n, dtype=torch.bfloat16, device=DEVICE)

    def step():
        optimizer.step()
        with torch.no_grad():
            copy.copy_(p)
    report("adamw", str(n), "fused AdamW, copy_", step)
    report("norm", str(n), "vector_norm", lambda: torch.linalg.vector_norm(p.grad))


print(torch.__version__, torch.cuda.get_device_name())
if wants("gemm"):
    gemms()
if wants("attention"):
    attentions()
if wants("experts"):
    experts()
if wants("rows"):
    rows()
