// kernels_bench KERNELS RESULTS [PARTS]: checks and times the kernels of src/kernels/gpu on the first GPU.
// KERNELS is a folder of machine code, RESULTS a file with one JSON object per line; PARTS contains the names
// of the parts to run.
#include <cmath>
#include <cstring>

#include "bench.h"

namespace strata::gpu_bench {

void Check::value(double is, double expected, double scale) {
  const double error = std::fabs(is - expected) / std::max(scale, std::fabs(expected));
  if (!(error <= worst_)) worst_ = std::isnan(error) ? INFINITY : error;
}

Bench::Bench(const std::string& kernels, const std::string& results, const std::string& only)
    : driver_(kernels), only_(only), file_(std::fopen(results.c_str(), "w")) {
  digests_ = driver_.allocate<uint64_t>(2 * 512 * 8);
  driver_.keep_all();
}

RandomArray Bench::random(DType dtype, int64_t n, float scale) {
  RandomArray array{
      .at = driver_.allocate(n * size_of(dtype)), .dtype = dtype, .seed = ++seed_, .scale = scale};
  const FillArgs args{.to = array.at, .n = n, .seed = array.seed, .scale = scale};
  driver_.launch({.module = "checks",
                  .kernel = dtype == DType::kBF16 ? "fill_bf16" : "fill_f32",
                  .grid_x = 2048,
                  .threads = 256},
                 args);
  return array;
}
int32_t* Bench::ids(int64_t n, uint32_t limit, uint64_t seed) {
  int32_t* const to = driver_.allocate<int32_t>(n * 4);
  const FillArgs args{.to = to, .n = n, .seed = seed, .scale = static_cast<float>(limit)};
  driver_.launch({.module = "checks", .kernel = "fill_ids", .grid_x = 256, .threads = 256}, args);
  return to;
}
void* Bench::output(DType dtype, int64_t n) {
  void* const to = driver_.allocate(n * size_of(dtype));
  driver_.fill(to, 0xff, n * size_of(dtype));
  return to;
}
double Bench::read(DType dtype, const void* from, int64_t i) {
  unsigned char bytes[8] = {};
  driver_.read(bytes, static_cast<const unsigned char*>(from) + i * size_of(dtype), size_of(dtype));
  if (dtype == DType::kBF16) {
    BF16 value;
    std::memcpy(&value, bytes, 2);
    return static_cast<float>(value);
  }
  float value;
  std::memcpy(&value, bytes, 4);
  return value;
}
Bench::Digest Bench::digest(DType dtype, const void* from, int64_t n) {
  constexpr int kBlocks = 512;
  const DigestArgs args{.from = from, .out = digests_, .n = n};
  driver_.launch({.module = "checks",
                  .kernel = dtype == DType::kBF16 ? "digest_bf16" : "digest_f32",
                  .grid_x = kBlocks,
                  .threads = 256},
                 args);
  std::vector<uint64_t> parts(2 * kBlocks);
  driver_.read(parts.data(), digests_, 2 * kBlocks * 8);
  Digest all;
  for (int i = 0; i < kBlocks; ++i) {
    all.sum += parts[static_cast<size_t>(2 * i)] * static_cast<uint64_t>(i + 1);
    all.not_finite += parts[static_cast<size_t>(2 * i + 1)];
  }
  return all;
}

double Bench::report(const std::string& op, const std::string& shape, const std::string& note, double flops,
                     double bytes, const std::function<void()>& work) {
  const double us = driver_.time(work);
  std::fprintf(file_, R"({"op":"%s","shape":"%s","kernel":"%s","us":%.2f,"tflops":%.1f,"gbs":%.0f})",
               op.c_str(), shape.c_str(), note.c_str(), us, flops / us / 1e6, bytes / us / 1e3);
  std::fputc('\n', file_);
  std::fflush(file_);
  return us;
}

void Bench::verify(const std::string& op, const std::string& shape, const Check& check,
                   const std::vector<Output>& outputs, const std::function<void()>& work) {
  std::vector<Digest> first;
  uint64_t not_finite = 0;
  for (const Output& one : outputs) {
    first.push_back(digest(one.dtype, one.at, one.n));
    not_finite += first.back().not_finite;
    driver_.fill(const_cast<void*>(one.at), 0xff, one.n * size_of(one.dtype));
  }
  work();
  bool same = true;
  for (size_t i = 0; i < outputs.size(); ++i)
    same = same && digest(outputs[i].dtype, outputs[i].at, outputs[i].n) == first[i];
  const bool good = check.good() && not_finite == 0 && same;
  if (!good) ++failures_;
  std::fprintf(
      file_, R"({"check":"%s","shape":"%s","good":%s,"error":%.3g,"not_finite":%llu,"same_bits":%s})",
      op.c_str(), shape.c_str(), good ? "true" : "false", check.worst() > 1e30 ? 1e30 : check.worst(),
      static_cast<unsigned long long>(not_finite), same ? "true" : "false");
  std::fputc('\n', file_);
  std::fflush(file_);
}

}  // namespace strata::gpu_bench

int main(int count, char** arguments) {
  using namespace strata::gpu_bench;
  if (count < 3) {
    std::fprintf(stderr, "usage: kernels_bench KERNELS RESULTS [PARTS]\n");
    return 2;
  }
  Bench bench(arguments[1], arguments[2], count > 3 ? arguments[3] : "");
  std::printf("%s, %d multiprocessors\n", bench.driver().name().c_str(),
              bench.driver().traits().multiprocessors);
  if (bench.wants("gemm")) bench_gemm(bench, false);
  if (bench.wants("attention")) bench_attention(bench, false);
  if (bench.wants("experts")) bench_experts(bench);
  if (bench.wants("rows")) bench_rows(bench);
  if (bench.wants("wgmma") && bench.driver().traits().wgmma) {
    bench_gemm(bench, true);
    bench_attention(bench, true);
  }
  std::printf("%d checks failed\n", bench.failures());
  return bench.failures() == 0 ? 0 : 1;
}
