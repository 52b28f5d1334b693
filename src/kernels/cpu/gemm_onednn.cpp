#include "kernels/cpu/gemm_onednn.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>

#include "base/error.h"
#include "base/parallel.h"
#include "tensor/arena.h"

namespace strata::cpu::detail {
namespace {

using Desc = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;

// The layout of a weight must not depend on the number of tokens: it is asked for at this one.
constexpr int64_t kNominalTokens = 1024;

dnnl::memory::data_type type_of(DType dtype) {
  return dtype == DType::kBF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

Desc matrix(int64_t rows, int64_t cols, DType dtype, int64_t row_step, int64_t col_step) {
  return Desc({rows, cols}, type_of(dtype), dnnl::memory::dims{row_step, col_step});
}

// The weight as the right operand of its role's product, as the master lies.
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

Desc preferred_weight(GemmRole role, int64_t n, int64_t k, DType dtype) {
  const bool forward = role == GemmRole::kForward;
  const int64_t depth = forward ? k : n;
  const int64_t cols = forward ? n : k;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const Desc a = matrix(kNominalTokens, depth, dtype, depth, 1);
  const Desc any({depth, cols}, type_of(dtype), Tag::any);
  const Desc c = matrix(kNominalTokens, cols, dtype, cols, 1);
  const dnnl::matmul::primitive_desc product(dnnl::matmul::desc(a, any, c), engine);
  return product.weights_desc();
}

// The layout in terms of W[n, k], whichever side of its role's product is which: the operand is Wᵀ in the
// forward product and W in the gradient, so of a square weight both descriptors may look the same.
std::string id_of(const Desc& desc, const WeightEncoding& encoding) {
  const auto& blocking = desc.data.format_desc.blocking;
  const int n = encoding.role == GemmRole::kForward ? 1 : 0, k = 1 - n;
  std::string id = fmt::format("onednn:{}:{}x{}:{},{}", name_of(encoding.dtype), desc.data.dims[n],
                               desc.data.dims[k], blocking.strides[n], blocking.strides[k]);
  for (int i = 0; i < blocking.inner_nblks; ++i)
    id += fmt::format(":{}{}", blocking.inner_blks[i], blocking.inner_idxs[i] == n ? 'n' : 'k');
  return id;
}

class OneDnnPacker : public WeightEncoding::Packer {
 public:
  OneDnnPacker(const Desc& from, const Desc& to)
      : engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_),
        reorder_(dnnl::reorder::primitive_desc(engine_, from, engine_, to)),
        from_(from, engine_, nullptr),
        to_(to, engine_, nullptr) {}

  void pack(void* dst, const float* master) override {
    from_.set_data_handle(const_cast<float*>(master));
    to_.set_data_handle(dst);
    const std::array<dnnl_exec_arg_t, 2> args{{{DNNL_ARG_FROM, from_.get()}, {DNNL_ARG_TO, to_.get()}}};
    const dnnl_status_t status =
        dnnl_primitive_execute(reorder_.get(), stream_.get(), static_cast<int>(args.size()), args.data());
    STRATA_CHECK(status == dnnl_success, "[gemm] oneDNN's reorder of a weight failed with status {}",
                 static_cast<int>(status));
    stream_.wait();
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::reorder reorder_;
  dnnl::memory from_;
  dnnl::memory to_;
};

}  // namespace

bool onednn_has_native_bf16() {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  constexpr auto kNeeded = static_cast<unsigned>(dnnl_cpu_isa_avx512_core_bf16);
  return (isa & kNeeded) == kNeeded;
}

void plan_onednn_encoding(WeightEncoding& encoding) {
  translated("a weight layout", [&] {
    const Desc wanted = preferred_weight(encoding.role, encoding.n, encoding.k, encoding.dtype);
    const Desc plain = plain_weight(encoding.role, encoding.n, encoding.k, DType::kF32);
    encoding.plain = wanted == plain;
    encoding.id = encoding.plain ? "plain" : id_of(wanted, encoding);
    encoding.bytes = encoding.plain ? 0 : static_cast<int64_t>(wanted.get_size());
    if (!encoding.plain) encoding.packer = std::make_shared<OneDnnPacker>(plain, wanted);
    return 0;
  });
}

namespace {

// Rows of one operand that lie apart, while the library's fast kernels take dense ones only: it passes
// through the scratch memory.
struct DensePass {
  int64_t rows = 0;  // 0: the operand lies as the library wants it
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

// The three operands of a product as the library sees them.
struct Operands {
  Desc a, b, c;
};

Operands operands_of(const GemmSpec& spec, int64_t x_stride, int64_t y_stride) {
  switch (spec.role) {
    case GemmRole::kForward:
      return {matrix(spec.m, spec.k, spec.dtype, x_stride, 1),
              preferred_weight(spec.role, spec.n, spec.k, spec.dtype),
              matrix(spec.m, spec.n, spec.out_dtype, y_stride, 1)};
    case GemmRole::kInputGrad:
      return {matrix(spec.m, spec.n, spec.dtype, y_stride, 1),
              preferred_weight(spec.role, spec.n, spec.k, spec.dtype),
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

}  // namespace

struct OneDnnGemm::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul product;
  dnnl::memory a, b, bias, c, scratch;
  std::array<dnnl_exec_arg_t, 5> args{};
  int arg_count = 0;
  DensePass dense_a, dense_c;
  int64_t scratch_bytes = 0;
  std::string name;
};

OneDnnGemm::OneDnnGemm(const GemmSpec& spec) : state_(std::make_unique<State>()) {
  translated("a GEMM", [&] {
    State& s = *state_;
    Operands operands = operands_of(spec, spec.x_stride, spec.y_stride);
    auto chosen = product_of(spec, operands, s.engine);
    // Packed weights against rows that lie apart are left to the library's plain loops, a thousand times
    // slower.
    if (std::string_view(chosen.impl_info_str()).starts_with("ref")) {
      operands = operands_of(spec, spec.k, spec.n);
      chosen = product_of(spec, operands, s.engine);
      const bool forward = spec.role == GemmRole::kForward;
      s.dense_a = forward ? pass_of(spec.m, spec.k, spec.x_stride, spec.dtype)
                          : pass_of(spec.m, spec.n, spec.y_stride, spec.dtype);
      s.dense_c = forward ? pass_of(spec.m, spec.n, spec.y_stride, spec.out_dtype)
                          : pass_of(spec.m, spec.k, spec.x_stride, spec.out_dtype);
    }
    s.product = dnnl::matmul(chosen);
    s.name = chosen.impl_info_str();
    s.dense_a.at = align_up(static_cast<int64_t>(chosen.scratchpad_desc().get_size()), kBufferAlignment);
    s.dense_c.at = s.dense_a.at + s.dense_a.bytes();
    s.scratch_bytes = s.dense_c.at + s.dense_c.bytes();
    s.a = dnnl::memory(operands.a, s.engine, nullptr);
    s.b = dnnl::memory(operands.b, s.engine, nullptr);
    s.c = dnnl::memory(operands.c, s.engine, nullptr);
    s.scratch = dnnl::memory(chosen.scratchpad_desc(), s.engine, nullptr);
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
      dnnl_primitive_execute(s.product.get(), s.stream.get(), s.arg_count, s.args.data());
  STRATA_CHECK(status == dnnl_success, "[gemm] oneDNN's {} failed with status {}", s.name,
               static_cast<int>(status));
  s.stream.wait();
  if (s.dense_c.rows > 0) {
    s.dense_c.copy(static_cast<std::byte*>(args.c), s.dense_c.stride_bytes, scratch + s.dense_c.at,
                   s.dense_c.row_bytes);
  }
}

}  // namespace strata::cpu::detail
