#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/version.h"
#include "device/open/open.h"
#include "device/reference/bindings.h"
#include "ops/case_tensors.h"
#include "self_test/cases.h"
#include "self_test/expected.h"
#include "self_test/parts.h"

namespace strata::self_test {
namespace {

using device::OpCase;
using ops::PlacedCase;
using ops::Tensor;

constexpr size_t kMostFailures = 20;  // of one part: a broken card would fail in each case

bool is_opaque(const OpCase& one, size_t output) {
  return std::find(one.opaque.begin(), one.opaque.end(), static_cast<int>(output)) != one.opaque.end();
}

// Reports progress every five seconds.
class Progress {
 public:
  Progress(const Options& options, size_t all) : options_(options), all_(all) {}
  void at(size_t done, const Part& part) {
    if (monotonic_seconds() < next_) return;
    next_ = monotonic_seconds() + 5;
    options_.progress(
        fmt::format("{}: {} of {} cases, {} failures", part.name, done, all_, part.failures.size()));
  }

 private:
  const Options& options_;
  size_t all_;
  double next_ = monotonic_seconds() + 5;
};

// The distance between a value of this type and the next larger one, at this magnitude.
double unit_in_last_place(DType dtype, double magnitude) {
  const int digits = dtype == DType::kF64 ? 53 : dtype == DType::kBF16 ? 8 : dtype == DType::kF16 ? 11 : 24;
  const int least = dtype == DType::kF64    ? -1074
                    : dtype == DType::kBF16 ? -133
                    : dtype == DType::kF16  ? -24
                                            : -149;
  if (magnitude == 0 || !std::isfinite(magnitude)) return std::ldexp(1, least);
  return std::ldexp(1, std::max(std::ilogb(magnitude) - digits + 1, least));
}

double root_mean_square(const Tensor& tensor) {
  double sum = 0;
  for (const double value : tensor.values) sum += value * value;
  return tensor.values.empty() ? 0 : std::sqrt(sum / static_cast<double>(tensor.values.size()));
}

// Compares a case with its record.
class Recorded {
 public:
  Recorded(const ExpectedCase& one, double tolerance, bool same_sums)
      : one_(one), tolerance_(tolerance), same_sums_(same_sums) {}

  bool is_exact() const { return !one_.approximate && (!one_.mma || same_sums_); }
  // Empty if all is within the bound; else the first element that is not.
  std::string compare(const OpCase& of, const std::vector<Tensor>& found) const {
    if (found.size() != one_.outputs.size()) return of.name + ": the record has other outputs";
    for (size_t o = 0; o < found.size(); ++o) {
      if (is_opaque(of, o)) continue;
      const std::vector<uint8_t> bytes = bytes_of(found[o]);
      if (bytes.size() != one_.outputs[o].size())
        return fmt::format("{}: output {} has {} bytes, {} in the record", of.name, o, bytes.size(),
                           one_.outputs[o].size());
      if (bytes == one_.outputs[o]) continue;
      const Tensor wanted = with_bytes(found[o], one_.outputs[o]);
      const double typical = root_mean_square(wanted);
      for (size_t i = 0; i < wanted.values.size(); ++i) {
        const double is = found[o].values[i], right = wanted.values[i];
        if (is_within(found[o].dtype, is, right, typical)) continue;
        return fmt::format("{}: output {}, element {} is {:.9g}, the executor has {:.9g} ({}; kernels: {})",
                           of.name, o, i, is, right, bound(), fmt::join(one_.kernels, ", "));
      }
    }
    return {};
  }

 private:
  static Tensor with_bytes(const Tensor& like, const std::vector<uint8_t>& bytes) {
    graph::Value value;
    value.dtype = like.dtype;
    value.shape = like.shape;
    return ops::load(value, reinterpret_cast<const std::byte*>(bytes.data()));
  }
  // Differences of approximate instructions in a sum are in proportion to its terms, so the unit is that of a typical
  // element where the result is smaller.
  bool is_within(DType dtype, double is, double right, double typical) const {
    if (is == right || (std::isnan(is) && std::isnan(right))) return true;
    if (is_exact()) return false;
    const double difference = std::abs(is - right);
    if (one_.mma && !same_sums_) return difference <= tolerance_ * (1 + std::abs(right));
    return difference <= 2 * unit_in_last_place(dtype, std::max(std::abs(right), typical));
  }
  std::string bound() const {
    if (is_exact()) return "expected: the same bits";
    if (one_.mma && !same_sums_) return fmt::format("expected: within {}", tolerance_);
    return "expected: at most 2 units in the last place of a typical element";
  }

  const ExpectedCase& one_;
  double tolerance_;
  bool same_sums_;
};

// Runs a case twice, with outputs and scratch memory that hold NaN first and zeros. Empty if the device has no kernel for it.
struct TwoRuns {
  std::vector<Tensor> found, again;
};
std::optional<TwoRuns> run_twice(const DevicePtr& device, const OpCase& one,
                                 const std::vector<Tensor>& inputs) {
  const auto run = [&](int poison) {
    return ops::run_case(
        one, inputs, [&](graph::Graph graph) { return device::OpRun(std::move(graph), device); }, poison);
  };
  try {
    return TwoRuns{run(0xff), run(0)};
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

// One failure a case is enough.
std::string difference(const OpCase& one, const TwoRuns& runs, const std::vector<Tensor>& wanted) {
  for (size_t o = 0; o < runs.found.size(); ++o) {
    if (is_opaque(one, o)) continue;
    for (size_t i = 0; i < runs.found[o].values.size(); ++i) {
      const double value = runs.found[o].values[i], second = runs.again[o].values[i],
                   right = wanted[o].values[i];
      if (!ops::is_near(value, right, one.tolerance))
        return fmt::format("{}: output {}, element {} is {}, expected {} within {}", one.name, o, i, value,
                           right, one.tolerance);
      if (value != second)
        return fmt::format(
            "{}: output {}, element {} is {} and then {}: it depends on the content of memory or on the order in "
            "which threads run",
            one.name, o, i, value, second);
    }
  }
  return {};
}

std::vector<PlacedCase> placed_cases_of_ops() {
  std::vector<PlacedCase> all;
  for (const OpCase& one : cases_of_ops()) {
    all.push_back({one, one});
    for (PlacedCase& placed : ops::placed_cases(one)) all.push_back(std::move(placed));
  }
  return all;
}

}  // namespace

std::vector<OpCase> cases_of_ops() {
  std::vector<OpCase> all;
  for (const OpCase& one : device::op_cases()) {
    all.push_back(one);
    if (const auto half = device::in_bf16(one)) all.push_back(*half);
  }
  return all;
}

std::vector<uint8_t> bytes_of(const Tensor& output) {
  std::vector<uint8_t> bytes(output.values.size() * static_cast<size_t>(size_of(output.dtype)));
  ops::store(output, reinterpret_cast<std::byte*>(bytes.data()));
  return bytes;
}

std::optional<std::vector<Tensor>> run_as(const DevicePtr& device, const OpCase& one, int multiprocessors) {
  hardware::DeviceSpec as = device->spec();
  as.multiprocessors = multiprocessors;
  try {
    return ops::run_case(one, ops::inputs_of(one),
                         [&](graph::Graph graph) { return device::OpRun(std::move(graph), device, as); });
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

void test_kernels(const DevicePtr& device, const Options& options, TimeLimit limit, Part& part) {
  if (options.expected.empty()) {
    part.state = State::kNotRun;
    part.summary = "no record of the executor's results (--expected; bench/gpu.sh of a bundle has one)";
    return;
  }
  const Expected expected = read_expected(options.expected);
  if (expected.program != program_version())
    throw DataError(
        "[--expected] found the results of version {}, expected {}: use the file of the same bundle",
        expected.program, program_version());
  // mma adds alike on GPUs of one major compute capability (measured, tests/gpu/README.md).
  const bool same_sums = device->spec().architecture / 10 == expected.architecture / 10;
  size_t ran = 0, exact = 0;
  const std::vector<OpCase> all = cases_of_ops();
  Progress progress(options, expected.cases.size());
  for (const OpCase& one : all) {
    const auto found = expected.cases.find(one.name);
    if (found == expected.cases.end()) continue;
    if (limit.over() || part.failures.size() == kMostFailures) {
      part.state = State::kCut;
      break;
    }
    const auto outputs = run_as(device, one, expected.multiprocessors);
    const Recorded recorded(found->second, one.tolerance, same_sums);
    if (!outputs) {
      part.failures.push_back(one.name + ": the device has no kernel for it, but the executor had");
    } else if (std::string wrong = recorded.compare(one, *outputs); !wrong.empty()) {
      part.failures.push_back(std::move(wrong));
    }
    exact += recorded.is_exact() ? 1 : 0;
    progress.at(++ran, part);
  }
  part.facts = {{"cases", expected.cases.size()},
                {"ran", ran},
                {"compared_bit_by_bit", exact},
                {"sums_of_mma_known", same_sums},
                {"planned_for_multiprocessors", expected.multiprocessors}};
  part.summary =
      fmt::format("{} of {} cases ran, {} of them compared bit by bit, {} differ from the executor", ran,
                  expected.cases.size(), exact, part.failures.size());
}

void test_ops(const DevicePtr& device, const Options& options, TimeLimit limit, Part& part) {
  const hardware::DeviceSpec processor = device::open(device::Kind::kCpu)->spec();
  const std::vector<PlacedCase> all = placed_cases_of_ops();
  size_t ran = 0;
  std::vector<std::string> refused;
  Progress progress(options, all.size());
  for (const PlacedCase& one : all) {
    if (limit.over() || part.failures.size() == kMostFailures) {
      part.state = State::kCut;
      break;
    }
    const std::vector<Tensor> inputs = ops::inputs_of(one.placed);
    const auto runs = run_twice(device, one.placed, inputs);
    if (!runs) {
      refused.push_back(one.placed.name);
      continue;
    }
    const auto wanted = ops::run_case(one.apart, inputs, [&](graph::Graph graph) {
      return device::OpRun(std::move(graph), device::reference_bindings(), processor);
    });
    if (std::string wrong = difference(one.placed, *runs, wanted); !wrong.empty())
      part.failures.push_back(std::move(wrong));
    progress.at(++ran, part);
  }
  part.facts = {{"cases", all.size()}, {"ran", ran}, {"without_kernel", refused}};
  part.summary = fmt::format("{} of {} cases ran, {} differ from the reference, {} have no kernel yet", ran,
                             all.size(), part.failures.size(), refused.size());
}

}  // namespace strata::self_test
