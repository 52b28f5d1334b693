#include "device/gpu/attention.h"

namespace strata::device {

GpuAttention::GpuAttention(gpu::AttentionShape shape, const Strides& strides, const Form& form)
    : shape_(shape) {
  shape_.softcap = form.softcap > 0;
  const int64_t vector = 16 / size_of(shape.dtype);
  const bool whole = strides.q % vector == 0 && strides.k % vector == 0 && strides.v % vector == 0 &&
                     strides.out % vector == 0;
  plain_ = gpu::needs_plain_attention(shape_, form.bias_width > 0, whole);
  gpu::AttentionArgs& args = args_.attention;
  args.q_stride = strides.q;
  args.k_stride = strides.k;
  args.v_stride = strides.v;
  args.out_stride = strides.out;
  args.batch = static_cast<int32_t>(shape.batch);
  args.length = static_cast<int32_t>(shape.length);
  args.kv_length = static_cast<int32_t>(shape.kv_length);
  args.heads = static_cast<int32_t>(shape.heads);
  args.kv_heads = static_cast<int32_t>(shape.kv_heads);
  args.head_dim = static_cast<int32_t>(shape.head_dim);
  args.value_dim = static_cast<int32_t>(shape.value_dim);
  args.scale = static_cast<float>(form.scale);
  args.softcap = static_cast<float>(form.softcap);
  args_.bias_width = static_cast<int32_t>(form.bias_width);
  args_.bias_zero = static_cast<int32_t>(form.bias_zero);
  args_.slices = 1;
  ranges_.batch = args.batch;
  ranges_.length = args.length;
  ranges_.kv_length = args.kv_length;
  ranges_.causal = form.causal ? 1 : 0;
  ranges_.window = static_cast<int32_t>(form.window);
  ranges_.chunked = form.chunked ? 1 : 0;
  ranges_.repeat = static_cast<int32_t>(form.repeat);
  rows_at_ = scratch_.take(shape.batch * shape.length * 2 * size_of(DType::kI32));
  tiles_at_ = scratch_.take(shape.batch * gpu::blocks_of(shape.length, 64) * 4 * size_of(DType::kI32));
  find_ranges_ = gpu::attention_ranges(shape_);
  forward_ = plain_ ? gpu::plain_attention_forward(shape_) : gpu::attention_forward(shape_);
  if (plain_) {
    delta_ = gpu::plain_attention_delta(shape_);
    plain_backward_ = gpu::plain_attention_backward(shape_);
  } else {
    backward_ = gpu::attention_backward(shape_);
  }
  if (form.bias_width > 0) bias_gradient_ = gpu::plain_bias_gradient(shape_, form.bias_width);
}

int64_t GpuAttention::bias_parts_bytes() const {
  return bias_gradient_.count * shape_.heads * args_.bias_width * size_of(DType::kF32);
}

gpu::PlainAttentionArgs GpuAttention::begin(const Launch& launch, std::byte* scratch,
                                            const GpuAttentionInputs& in) const {
  gpu::PlainAttentionArgs now = args_;
  auto* const rows = reinterpret_cast<int32_t*>(scratch + rows_at_);
  auto* const tiles = reinterpret_cast<int32_t*>(scratch + tiles_at_);
  now.attention.rows = rows;
  now.attention.tiles = tiles;
  now.attention.entries = in.entries;
  now.bias = in.bias;
  now.position = in.position;
  gpu::AttentionRangesArgs ranges = ranges_;
  ranges.rows = rows;
  ranges.tiles = tiles;
  ranges.kv_begin = in.kv_begin;
  ranges.kv_end = in.kv_end;
  ranges.sequence_end = in.sequence_end;
  ranges.position = in.position;
  start(launch, find_ranges_, ranges);
  return now;
}

void GpuAttention::forward(const Launch& launch, gpu::PlainAttentionArgs args) const {
  if (plain_) {
    args.slices = gpu::plain_slices(shape_, shape_.value_dim);
    start(launch, forward_, args);
  } else {
    start(launch, forward_, args.attention);
  }
}

void GpuAttention::backward(const Launch& launch, gpu::PlainAttentionArgs args, float* dbias,
                            std::byte* parts) const {
  if (!plain_) {
    for (const gpu::KernelLaunch& kernel : backward_) start(launch, kernel, args.attention);
    return;
  }
  start(launch, delta_, args.attention);
  if (dbias != nullptr) {
    args.dbias = reinterpret_cast<float*>(parts);
    args.bias_parts = bias_gradient_.count;
    start(launch, bias_gradient_.parts, args);
    const int64_t columns = shape_.heads * args.bias_width;
    start(launch, bias_gradient_.sum,
          gpu::ColumnPartsArgs{.parts = args.dbias,
                               .out = dbias,
                               .count = bias_gradient_.count,
                               .columns = columns,
                               .stride = columns,
                               .accumulate = 0});
  }
  args.slices = plain_backward_.of_dim;
  start(launch, plain_backward_.dq, args);
  start(launch, plain_backward_.dk, args);
  args.slices = plain_backward_.of_value;
  start(launch, plain_backward_.dv, args);
}

}  // namespace strata::device
