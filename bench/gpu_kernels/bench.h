// Shared by the parts of the benchmark: random operands, results written immediately, and checks of values.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "checks.h"
#include "driver.h"
#include "tensor/dtype.h"

namespace strata::gpu_bench {

// An array of random values that the host can regenerate. operator[] returns element i as stored on the
// device.
struct RandomArray {
  void* at = nullptr;
  DType dtype = DType::kF32;
  uint64_t seed = 0;
  float scale = 1;
  double operator[](int64_t i) const {
    const float value = random_value(static_cast<uint64_t>(i), seed) * scale;
    return dtype == DType::kBF16 ? static_cast<float>(BF16(value)) : value;
  }
};

// The largest error of sampled values, relative to the expected magnitude or `scale`, whichever is larger.
class Check {
 public:
  explicit Check(double tolerance) : tolerance_(tolerance) {}
  void value(double is, double expected, double scale);
  bool good() const { return worst_ <= tolerance_; }
  double worst() const { return worst_; }

 private:
  double tolerance_, worst_ = 0;
};

class Bench {
 public:
  Bench(const std::string& kernels, const std::string& results, const std::string& only);

  Driver& driver() { return driver_; }
  bool wants(const std::string& part) const { return only_.empty() || only_.find(part) != std::string::npos; }

  RandomArray random(DType dtype, int64_t n, float scale = 1);
  int32_t* ids(int64_t n, uint32_t limit, uint64_t seed);
  // Filled with a pattern that no kernel produces.
  void* output(DType dtype, int64_t n);
  double read(DType dtype, const void* from, int64_t i);
  struct Digest {
    uint64_t sum = 0, not_finite = 0;
    bool operator==(const Digest&) const = default;
  };
  Digest digest(DType dtype, const void* from, int64_t n);

  // Times `work` and writes a line. `flops` and `bytes` are per run, or 0. `note` describes the kernel.
  double report(const std::string& op, const std::string& shape, const std::string& note, double flops,
                double bytes, const std::function<void()>& work);
  // Writes the result of a check. Also runs `work` again, after which the digests of `outputs` must be
  // unchanged.
  struct Output {
    DType dtype;
    const void* at;
    int64_t n;
  };
  void verify(const std::string& op, const std::string& shape, const Check& check,
              const std::vector<Output>& outputs, const std::function<void()>& work);
  int failures() const { return failures_; }

 private:
  Driver driver_;
  std::string only_;
  std::FILE* file_;
  uint64_t seed_ = 0;
  uint64_t* digests_;
  int failures_ = 0;
};

// `wgmma`: only the kernels of sm_90a; else those of all devices.
void bench_gemm(Bench& bench, bool wgmma);
void bench_attention(Bench& bench, bool wgmma);
void bench_experts(Bench& bench);
void bench_rows(Bench& bench);

}  // namespace strata::gpu_bench
