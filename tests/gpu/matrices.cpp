#include "matrices.h"

#include <fmt/core.h>

#include "evaluate.h"

namespace strata::gpu_tests {
namespace {

bool is_tensor(const MatrixShape& shape) {
  return shape.type == "tf32";
}

std::string mma_body(const MatrixShape& shape) {
  const unsigned a = shape.depth / (is_tensor(shape) ? 2 : 4), stride = a + a / 2 + 4;
  std::string body = fmt::format(
      "mov.u32 %r0, %tid.x;\nmov.u32 %r31, %ctaid.x;\nmov.u32 %r30, %ntid.x;\nmad.lo.s32 %r0, %r31, %r30, "
      "%r0;\n"
      "mul.wide.u32 %x0, %r0, {};\nadd.s64 %x0, %x0, %in;\nmul.wide.u32 %x1, %r0, 16;\nadd.s64 %x1, %x1, "
      "%out;\n",
      stride * 4);
  for (unsigned n = 0; n < stride; ++n) body += fmt::format("ld.global.b32 %r{}, [%x0+{}];\n", n + 1, n * 4);
  const auto list = [](unsigned first, unsigned count) {
    std::string text = "{";
    for (unsigned n = 0; n < count; ++n) text += fmt::format("{}%r{}", n == 0 ? "" : ", ", first + n);
    return text + "}";
  };
  const std::string c = list(1 + a + a / 2, 4);
  return body +
         fmt::format(
             "mma.sync.aligned.{}.row.col.f32.{}.{}.f32 {}, {}, {}, {};\nst.global.v4.b32 [%x1], {};\n",
             shape.name, shape.type, shape.type, c, list(1, a), list(1 + a, a / 2), c, c);
}

// The words of every lane, in the fragment layout of the PTX ISA. The low bits of tf32 are ignored.
std::vector<uint32_t> packed(const MatrixShape& shape, const MatrixBatch& batch) {
  const unsigned depth = shape.depth, a_words = depth / (is_tensor(shape) ? 2 : 4);
  std::vector<uint32_t> words;
  for (size_t m = 0; m < batch.count; ++m) {
    const uint32_t* a = batch.a.data() + m * 16 * depth;
    const uint32_t* b = batch.b.data() + m * depth * 8;
    const uint32_t* c = batch.c.data() + m * kMatrixResults;
    for (unsigned lane = 0; lane < 32; ++lane) {
      const unsigned group = lane / 4, place = lane % 4;
      for (unsigned n = 0; n < a_words; ++n) {
        const uint32_t* row = a + (group + n % 2 * 8) * depth;
        const unsigned column = place * 2 + n / 2 * 8;
        words.push_back(is_tensor(shape) ? row[place + n / 2 * 4] << 13 | 0x1fff
                                         : row[column] | row[column + 1] << 16);
      }
      for (unsigned n = 0; n < a_words / 2; ++n) {
        const unsigned row = place * 2 + n * 8;
        words.push_back(is_tensor(shape) ? b[(place + n * 4) * 8 + group] << 13
                                         : b[row * 8 + group] | b[(row + 1) * 8 + group] << 16);
      }
      for (unsigned n = 0; n < 4; ++n) words.push_back(c[(group + n / 2 * 8) * 8 + place * 2 + n % 2]);
    }
  }
  return words;
}

}  // namespace

std::vector<MatrixShape> matrix_shapes() {
  return {{"m16n8k16", "bf16", 16, kBrain},  {"m16n8k8", "bf16", 8, kBrain},
          {"m16n8k16", "f16", 16, kHalf},    {"m16n8k8", "f16", 8, kHalf},
          {"m16n8k8", "tf32", 8, kTensor32}, {"m16n8k4", "tf32", 4, kTensor32}};
}

std::vector<uint32_t> multiply_matrices(GpuDevice& device, const MatrixShape& shape,
                                        const MatrixBatch& batch) {
  const std::vector<uint32_t> in = packed(shape, batch);
  const KernelId kernel = device.load(kernel_text(mma_body(shape)), "mma.ptx", "test");
  const uint64_t from = device.allocate(in.size() * 4, "in"),
                 to = device.allocate(batch.count * kMatrixResults * 4, "out");
  device.write(from, in.data(), in.size() * 4);
  std::vector<uint32_t> lanes(batch.count * kMatrixResults), out(lanes.size());
  device.write(to, lanes.data(), lanes.size() * 4);
  device.launch(kernel, {.grid = {static_cast<unsigned>(batch.count / 4)}, .block = {128}}, to, from);
  device.read(to, lanes.data(), lanes.size() * 4);
  device.free(from);
  device.free(to);
  for (size_t n = 0; n < lanes.size(); ++n) {
    const size_t lane = n % kMatrixResults / 4, word = n % 4;
    out[n / kMatrixResults * kMatrixResults + (lane / 4 + word / 2 * 8) * 8 + lane % 4 * 2 + word % 2] =
        lanes[n];
  }
  return out;
}

}  // namespace strata::gpu_tests
