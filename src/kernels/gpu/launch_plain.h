// How the kernels of rarer ops and forms are launched (launch.h).
#pragma once

#include "kernels/gpu/args_attention.h"
#include "kernels/gpu/args_loss.h"
#include "kernels/gpu/args_parts.h"
#include "kernels/gpu/launch.h"

namespace strata::gpu {

// --- Attention of any shape and alignment, with a bias or without (attention_plain.cu)
// Whether the kernels of launch.h take the shape; `rows_of_16_bytes`: all strides of its operands are whole vectors.
bool needs_plain_attention(const AttentionShape& shape, bool bias, bool rows_of_16_bytes);
// `slices` of PlainAttentionArgs, for results of `dim` elements a head.
int32_t plain_slices(const AttentionShape& shape, int64_t dim);
KernelLaunch plain_attention_forward(const AttentionShape& shape);
KernelLaunch plain_attention_delta(const AttentionShape& shape);  // takes AttentionArgs
// dq, dk and dv, after delta; each with its own slices.
struct PlainAttentionBackward {
  KernelLaunch dq, dk, dv;
  int32_t of_dim = 1, of_value = 1;  // slices of dq and dk, and of dv
};
PlainAttentionBackward plain_attention_backward(const AttentionShape& shape);
// After delta. `sum` adds the parts, as columns of [heads · width].
struct BiasGradientPlan {
  KernelLaunch parts, sum;
  int32_t count = 1;
};
BiasGradientPlan plain_bias_gradient(const AttentionShape& shape, int64_t width);

// --- Around attention
KernelLaunch relative_bias(int64_t width, int64_t heads);
KernelLaunch relative_bias_backward(int64_t buckets, int64_t heads);
KernelLaunch document_ends(int64_t rows);
// unit: bytes, 2, 4 or 16. width: units of all parts of a row together.
KernelLaunch row_parts(int64_t unit, int64_t rows, int64_t width);
KernelLaunch latent_heads(DType dtype, const LatentHeadsArgs& args);
KernelLaunch latent_heads_backward(DType dtype, const LatentHeadsArgs& args);
KernelLaunch head_products(DType dtype, int64_t heads, const HeadProductsArgs& args);

// --- Norms of rows of any width, which norm_forward and norm_backward choose for rows that registers cannot hold in
// vectors.
KernelLaunch wide_norm_forward(NormKind kind, DType dtype, int64_t rows, int64_t dim);
NormGradPlan wide_norm_backward(NormKind kind, NormGradients wanted, DType dtype, int64_t rows, int64_t dim);

// --- The split loss
KernelLaunch split_loss_statistics(int64_t rows, int64_t parts, int64_t columns);
KernelLaunch split_loss_gradient(DType gradient, int64_t rows, int64_t parts, int64_t columns);
KernelLaunch loss_of_statistics(int64_t tokens);
KernelLaunch loss_of_statistics_gradient(int64_t tokens);
KernelLaunch targets_ahead(int64_t rows);
KernelLaunch loss_seed();

// --- Shards
KernelLaunch take_share(int64_t unit, int64_t units);
KernelLaunch vocab_start(int64_t parts);

}  // namespace strata::gpu
