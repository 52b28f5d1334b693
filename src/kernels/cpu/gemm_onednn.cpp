#include "kernels/cpu/gemm_onednn.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/with_threads.h"
#include "tensor/arena.h"

namespace strata::cpu::detail {
namespace {

using Desc = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;

dnnl::memory::data_type type_of(DType dtype) {
  return dtype == DType::kBF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

Desc matrix(int64_t rows, int64_t cols, DType dtype, int64_t row_step, int64_t col_step) {
  return Desc({rows, cols}, type_of(dtype), dnnl::memory::dims{row_step, col_step});
}

// The fp32 master as the right operand of its role's GEMM.
Desc plain_weight(GemmRole role, int64_t n, int64_t k, DType dtype) {
  return role == GemmRole::kForward ? matrix(k, n, dtype, 1, k) : matrix(n, k, dtype, k, 1);
}

template <typename Body>
auto translated(const char* what, Body body) {
  try {
    return body();
  } catch (const dnnl::error& error) {
    throw WorldError("[gemm] oneDNN refuses {}: {} (status {}); use the panels engine instead", what,
                     error.what(), static_cast<int>(error.status));
  }
}

// Packed weight as the right operand of its role's GEMM. bf16: VNNI blocks of 16 pairs of depth by 64
// columns, which the library prefers for every size on processors with bf16 instructions. fp32: the library's
// choice.
Desc encoded_weight(GemmRole role, int64_t n, int64_t k, DType dtype) {
  const bool forward = role == GemmRole::kForward;
  const int64_t depth = forward ? k : n, columns = forward ? n : k;
  if (dtype == DType::kBF16) return Desc({depth, columns}, type_of(dtype), Tag::BA16a64b2a);
  constexpr int64_t kNominalTokens = 1024;  // the layout must not depend on the number of tokens
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const Desc a = matrix(kNominalTokens, depth, dtype, depth, 1);
  const Desc any({depth, columns}, type_of(dtype), Tag::any);
  const Desc c = matrix(kNominalTokens, columns, dtype, columns, 1);
  return dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, any, c), engine).weights_desc();
}

// Id of the fp32 layout, in terms of W[n, k]. The operand is Wᵀ in the forward GEMM and W in the gradient, so
// for a square weight the descriptors of both roles may be equal.
std::string id_of(const Desc& desc, const WeightEncoding& encoding) {
  const auto& blocking = desc.data.format_desc.blocking;
  const int n = encoding.role == GemmRole::kForward ? 1 : 0, k = 1 - n;
  std::string id = fmt::format("onednn:{}:{}x{}:{},{}", name_of(encoding.dtype), desc.data.dims[n],
                               desc.data.dims[k], blocking.strides[n], blocking.strides[k]);
  for (int i = 0; i < blocking.inner_nblks; ++i)
    id += fmt::format(":{}{}", blocking.inner_blks[i], blocking.inner_idxs[i] == n ? 'n' : 'k');
  return id;
}

}  // namespace

bool onednn_has_native_bf16() {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  constexpr auto kNeeded = static_cast<unsigned>(dnnl_cpu_isa_avx512_core_bf16);
  return (isa & kNeeded) == kNeeded;
}

void plan_onednn_encoding(WeightEncoding& encoding) {
  if (encoding.dtype == DType::kBF16) {
    const bool forward = encoding.role == GemmRole::kForward;
    const int64_t depth = forward ? encoding.k : encoding.n, columns = forward ? encoding.n : encoding.k;
    encoding.plain = false;
    // Blocks in terms of W[n, k], because the roles of a square weight differ.
    encoding.id =
        fmt::format("onednn:bf16:{}x{}:{}", encoding.n, encoding.k, forward ? "16k:64n:2k" : "16n:64k:2n");
    encoding.bytes =
        align_up(depth, kEncodedDepth) * align_up(columns, kEncodedColumns) * size_of(DType::kBF16);
    return;
  }
  translated("a weight layout", [&] {
    const Desc wanted = encoded_weight(encoding.role, encoding.n, encoding.k, encoding.dtype);
    encoding.plain = wanted == plain_weight(encoding.role, encoding.n, encoding.k, DType::kF32);
    encoding.id = encoding.plain ? "plain" : id_of(wanted, encoding);
    encoding.bytes = encoding.plain ? 0 : static_cast<int64_t>(wanted.get_size());
    return 0;
  });
}

struct OneDnnPacker::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::reorder reorder;
  dnnl::memory from, to;
};

OneDnnPacker::OneDnnPacker(const WeightEncoding& encoding) : state_(std::make_unique<State>()) {
  translated("a weight's reorder", [&] {
    State& s = *state_;
    const Desc from = plain_weight(encoding.role, encoding.n, encoding.k, DType::kF32);
    const Desc to = encoded_weight(encoding.role, encoding.n, encoding.k, encoding.dtype);
    STRATA_CHECK(static_cast<int64_t>(to.get_size()) == encoding.bytes,
                 "[gemm] the library packs a weight of {} x {} in {} bytes: expected {}", encoding.n,
                 encoding.k, to.get_size(), encoding.bytes);
    s.reorder = dnnl::reorder(dnnl::reorder::primitive_desc(s.engine, from, s.engine, to));
    s.from = dnnl::memory(from, s.engine, nullptr);
    s.to = dnnl::memory(to, s.engine, nullptr);
    return 0;
  });
}

OneDnnPacker::~OneDnnPacker() = default;
OneDnnPacker::OneDnnPacker(OneDnnPacker&&) noexcept = default;

void OneDnnPacker::pack(void* dst, const float* master) {
  State& s = *state_;
  s.from.set_data_handle(const_cast<float*>(master));
  s.to.set_data_handle(dst);
  const std::array<dnnl_exec_arg_t, 2> args{{{DNNL_ARG_FROM, s.from.get()}, {DNNL_ARG_TO, s.to.get()}}};
  const dnnl_status_t status =
      dnnl_primitive_execute(s.reorder.get(), s.stream.get(), static_cast<int>(args.size()), args.data());
  STRATA_CHECK(status == dnnl_success, "[gemm] oneDNN's reorder of a weight failed with status {}",
               static_cast<int>(status));
  s.stream.wait();
}

namespace {

// Copies a strided operand through scratch, because the library's fast kernels take only dense rows.
struct DensePass {
  int64_t rows = 0;  // 0: no copy needed
  int64_t row_bytes = 0, stride_bytes = 0;
  int64_t at = 0;  // in the scratch

  int64_t bytes() const { return align_up(rows * row_bytes, kBufferAlignment); }
  void copy(std::byte* to, int64_t to_stride, const std::byte* from, int64_t from_stride) const {
    constexpr int64_t kBytesPerTask = 1 << 20;
    parallel_ranges(rows, std::max<int64_t>(1, kBytesPerTask / std::max<int64_t>(row_bytes, 1)),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t r = begin; r < end; ++r)
                        std::memcpy(to + r * to_stride, from + r * from_stride,
                                    static_cast<size_t>(row_bytes));
                    });
  }
};

DensePass pass_of(int64_t rows, int64_t columns, int64_t stride, DType dtype) {
  if (stride == columns) return {};
  return {.rows = rows, .row_bytes = columns * size_of(dtype), .stride_bytes = stride * size_of(dtype)};
}

// The three operands of a GEMM, as descriptors of the library.
struct Operands {
  Desc a, b, c;
};

Operands operands_of(const GemmSpec& spec, int64_t x_stride, int64_t y_stride) {
  switch (spec.role) {
    case GemmRole::kForward:
      return {matrix(spec.m, spec.k, spec.dtype, x_stride, 1),
              encoded_weight(spec.role, spec.n, spec.k, spec.dtype),
              matrix(spec.m, spec.n, spec.out_dtype, y_stride, 1)};
    case GemmRole::kInputGrad:
      return {matrix(spec.m, spec.n, spec.dtype, y_stride, 1),
              encoded_weight(spec.role, spec.n, spec.k, spec.dtype),
              matrix(spec.m, spec.k, spec.out_dtype, x_stride, 1)};
    case GemmRole::kWeightGrad:
      break;
  }
  return {matrix(spec.n, spec.m, spec.dtype, 1, y_stride), matrix(spec.m, spec.k, spec.dtype, x_stride, 1),
          matrix(spec.n, spec.k, DType::kF32, spec.k, 1)};
}

dnnl::matmul::primitive_desc product_of(const GemmSpec& spec, const Operands& operands,
                                        const dnnl::engine& engine) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (spec.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  const auto& [a, b, c] = operands;
  const Desc bias = matrix(1, spec.n, DType::kF32, spec.n, 1);
  const auto desc = spec.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  return {desc, attributes, engine};
}

// The library's primitive for a GEMM and the memory it needs.
struct Chosen {
  Operands operands;
  dnnl::matmul::primitive_desc product;
  DensePass dense_a, dense_c;
  int64_t scratch_bytes = 0;
};

Chosen choose(const GemmSpec& spec, const dnnl::engine& engine) {
  Chosen chosen;
  chosen.operands = operands_of(spec, spec.x_stride, spec.y_stride);
  chosen.product = product_of(spec, chosen.operands, engine);
  // Packed weights with strided rows fall back to the library's reference loops, a thousand times slower.
  if (std::string_view(chosen.product.impl_info_str()).starts_with("ref")) {
    chosen.operands = operands_of(spec, spec.k, spec.n);
    chosen.product = product_of(spec, chosen.operands, engine);
    const bool forward = spec.role == GemmRole::kForward;
    chosen.dense_a = forward ? pass_of(spec.m, spec.k, spec.x_stride, spec.dtype)
                             : pass_of(spec.m, spec.n, spec.y_stride, spec.dtype);
    chosen.dense_c = forward ? pass_of(spec.m, spec.n, spec.y_stride, spec.out_dtype)
                             : pass_of(spec.m, spec.k, spec.x_stride, spec.out_dtype);
  }
  chosen.dense_a.at =
      align_up(static_cast<int64_t>(chosen.product.scratchpad_desc().get_size()), kBufferAlignment);
  chosen.dense_c.at = chosen.dense_a.at + chosen.dense_a.bytes();
  chosen.scratch_bytes = chosen.dense_c.at + chosen.dense_c.bytes();
  return chosen;
}

// For a processor that the library cannot be queried about: the operand that a weight gradient transposes,
// and each thread's blocks of the other operands.
int64_t estimated_scratch(const GemmSpec& spec, int threads) {
  constexpr int64_t kBlocks = int64_t{256} << 10;
  const int64_t turned = spec.role == GemmRole::kWeightGrad ? spec.m * spec.n * size_of(spec.dtype) : 0;
  return align_up(turned + threads * kBlocks, kBufferAlignment);
}

}  // namespace

int64_t onednn_scratch_bytes(const GemmSpec& spec, const hardware::DeviceSpec& device) {
  const bool amx_here = (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) &
                         static_cast<unsigned>(dnnl_cpu_isa_avx512_core_amx)) ==
                        static_cast<unsigned>(dnnl_cpu_isa_avx512_core_amx);
  const bool as_here = spec.dtype != DType::kBF16 ||
                       (device.isa.avx512_bf16 == onednn_has_native_bf16() && device.isa.amx == amx_here);
  if (!as_here) return estimated_scratch(spec, device.threads);
  return translated("a GEMM", [&] {
    const WithThreads scope(std::max(1, device.threads));
    return choose(spec, dnnl::engine(dnnl::engine::kind::cpu, 0)).scratch_bytes;
  });
}

struct OneDnnGemm::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul product;
  dnnl::memory a, b, bias, c, scratch;
  std::array<dnnl_exec_arg_t, 5> args{};
  size_t arg_count = 0;
  DensePass dense_a, dense_c;
  int64_t scratch_bytes = 0;
  std::string name;
};

OneDnnGemm::OneDnnGemm(const GemmSpec& spec, int threads) : state_(std::make_unique<State>()) {
  translated("a GEMM", [&] {
    const WithThreads scope(threads);
    State& s = *state_;
    const Chosen chosen = choose(spec, s.engine);
    s.product = dnnl::matmul(chosen.product);
    s.name = chosen.product.impl_info_str();
    s.dense_a = chosen.dense_a;
    s.dense_c = chosen.dense_c;
    s.scratch_bytes = chosen.scratch_bytes;
    s.a = dnnl::memory(chosen.operands.a, s.engine, nullptr);
    s.b = dnnl::memory(chosen.operands.b, s.engine, nullptr);
    s.c = dnnl::memory(chosen.operands.c, s.engine, nullptr);
    s.scratch = dnnl::memory(chosen.product.scratchpad_desc(), s.engine, nullptr);
    auto add = [&](int role, const dnnl::memory& memory) { s.args[s.arg_count++] = {role, memory.get()}; };
    add(DNNL_ARG_SRC, s.a);
    add(DNNL_ARG_WEIGHTS, s.b);
    add(DNNL_ARG_DST, s.c);
    add(DNNL_ARG_SCRATCHPAD, s.scratch);
    if (spec.bias) {
      s.bias = dnnl::memory(matrix(1, spec.n, DType::kF32, spec.n, 1), s.engine, nullptr);
      add(DNNL_ARG_BIAS, s.bias);
    }
    return 0;
  });
}

OneDnnGemm::~OneDnnGemm() = default;
OneDnnGemm::OneDnnGemm(OneDnnGemm&&) noexcept = default;

int64_t OneDnnGemm::scratch_bytes() const {
  return state_->scratch_bytes;
}

std::string OneDnnGemm::name() const {
  return "onednn:" + state_->name;
}

void OneDnnGemm::run(const GemmArgs& args) {
  State& s = *state_;
  auto* const scratch = static_cast<std::byte*>(args.scratch);
  const void* a = args.a;
  if (s.dense_a.rows > 0) {
    s.dense_a.copy(scratch + s.dense_a.at, s.dense_a.row_bytes, static_cast<const std::byte*>(a),
                   s.dense_a.stride_bytes);
    a = scratch + s.dense_a.at;
  }
  s.a.set_data_handle(const_cast<void*>(a));
  s.b.set_data_handle(const_cast<void*>(args.b));
  s.c.set_data_handle(s.dense_c.rows > 0 ? scratch + s.dense_c.at : args.c);
  s.scratch.set_data_handle(args.scratch);
  if (args.bias) s.bias.set_data_handle(const_cast<float*>(args.bias));
  const dnnl_status_t status =
      dnnl_primitive_execute(s.product.get(), s.stream.get(), static_cast<int>(s.arg_count), s.args.data());
  STRATA_CHECK(status == dnnl_success, "[gemm] oneDNN's {} failed with status {}", s.name,
               static_cast<int>(status));
  s.stream.wait();
  if (s.dense_c.rows > 0) {
    s.dense_c.copy(static_cast<std::byte*>(args.c), s.dense_c.stride_bytes, scratch + s.dense_c.at,
                   s.dense_c.row_bytes);
  }
}

}  // namespace strata::cpu::detail
