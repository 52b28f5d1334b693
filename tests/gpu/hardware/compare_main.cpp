// gpu_compare FOLDER [PART…]: compares instructions on the executor and on a GPU.
//
// Appends each line as soon as it is known: FOLDER/compare.csv (one line per instruction), FOLDER/mma.csv,
// FOLDER/mma.bin (the GPU's results of mma) and FOLDER/mma_samples.txt (some of them with operands, as in
// tests/gpu/data), and prints differences. With FOLDER/mma.replay, results of mma are read from mma.bin instead of
// computed on a GPU.
#include <fmt/core.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <mutex>
#include <thread>

#include "hardware/compare.h"
#include "hardware/matrix_compare.h"

namespace strata::gpu_tests {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMatrices = 128;  // per shape and spread

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Runs work(0) … work(count - 1), each once, on all cores.
void in_parallel(size_t count, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next = 0;
  std::vector<std::jthread> threads;
  for (unsigned n = 0; n < std::max(std::thread::hardware_concurrency(), 1u); ++n) {
    threads.emplace_back([&] {
      for (size_t at = next++; at < count; at = next++) work(at);
    });
  }
}

std::string quoted(std::string text) {
  for (char& one : text) {
    if (one == '"' || one == '\n') one = ' ';
  }
  return '"' + text + '"';
}

std::string described(const Difference& difference) {
  if (!difference.found) return "";
  std::string text;
  for (const uint64_t operand : difference.operands) text += fmt::format("{:#x} ", operand);
  return fmt::format("{}-> executor {:#x} card {:#x}", text, difference.executor, difference.card);
}

class Report {
 public:
  explicit Report(const std::string& folder) : folder_(folder) {
    const std::string file = folder + "/compare.csv";
    const bool begun = std::ifstream(file).peek() != std::ifstream::traits_type::eof();
    csv_.open(file, std::ios::app);
    if (!csv_) throw std::runtime_error(fmt::format("{}: cannot be written", file));
    if (!begun) {
      csv_ << "part,instruction,signature,note,rows,equal,nan_bits,open,kinds,ulp_1,ulp_2,ulp_3_4,ulp_5_16,"
              "ulp_more,largest_ulp,largest_error,worst,examples,error,seconds\n";
    }
  }

  void add(const Case& one, const Outcome& outcome, double seconds) {
    const std::lock_guard lock(mutex_);
    csv_ << fmt::format("{},{},{},{},{},{},{},{},{}", one.part, quoted(one.instruction), one.signature,
                        one.note, outcome.rows, outcome.equal, outcome.nan_bits, outcome.open, outcome.kinds);
    std::string examples;
    for (const Difference& example : outcome.examples) examples += described(example) + "; ";
    for (const uint64_t count : outcome.by_ulp) csv_ << ',' << count;
    csv_ << fmt::format(",{},{:.3g},{},{},{},{:.3f}\n", outcome.largest_ulp, outcome.largest_error,
                        described(outcome.worst), examples, quoted(outcome.error), seconds)
         << std::flush;
    ++cases_;
    const std::string name =
        one.note.empty() ? one.instruction : fmt::format("{} ({})", one.instruction, one.note);
    if (!outcome.error.empty()) {
      ++refused_;
      fmt::print("  not compared: {}: {}\n", name, outcome.error.substr(0, 160));
      std::fflush(stdout);
      return;
    }
    const std::string first = outcome.examples.empty() ? "" : described(outcome.examples[0]);
    const uint64_t differing = outcome.rows - outcome.equal - outcome.nan_bits - outcome.open;
    if (outcome.open > 0) fmt::print("  left open by PTX: {}: {} of {}\n", name, outcome.open, outcome.rows);
    if (differing > 0) {
      fmt::print("  differs: {}: {} of {}, by {} ulp at most, {} of other kinds; {}; worst {}\n", name,
                 differing, outcome.rows, outcome.largest_ulp, outcome.kinds, first,
                 described(outcome.worst));
    } else {
      ++equal_;
      if (outcome.nan_bits > 0)
        fmt::print("  bits of NaN: {}: {} of {}: {}\n", name, outcome.nan_bits, outcome.rows, first);
    }
    std::fflush(stdout);
  }

  void end_part(const std::string& part, double seconds) {
    fmt::print("{}: {} instructions, {} equal, {} differ, {} not compared; {:.1f} s\n", part, cases_, equal_,
               cases_ - equal_ - refused_, refused_, seconds);
    std::fflush(stdout);
    cases_ = equal_ = refused_ = 0;
  }

 private:
  std::string folder_;
  std::ofstream csv_;
  std::mutex mutex_;
  size_t cases_ = 0, equal_ = 0, refused_ = 0;
};

DeviceOptions unchecked(MmaSum mma = MmaSum::kEachProduct) {
  return {.seed = 1, .checks = {.races = false, .unwritten = false}, .mma = mma};
}

Outcome compare_case(const Case& one) {
  Outcome outcome;
  try {
    const std::vector<uint64_t> operands = operands_of(one);
    std::vector<uint64_t> executor, card;
    try {
      executor = evaluate(*make_executor(unchecked()), one.instruction, widths_of(one), operands);
    } catch (const std::exception& error) {
      outcome.error = fmt::format("executor: {}", error.what());
    }
    try {
      card = evaluate(*make_hardware(), one.instruction, widths_of(one), operands);
    } catch (const std::exception& error) {
      outcome.error += fmt::format("{}card: {}", outcome.error.empty() ? "" : "; ", error.what());
    }
    if (outcome.error.empty()) outcome = compare(one, operands, executor, card);
  } catch (const std::exception& error) {
    outcome.error = error.what();
  }
  return outcome;
}

void compare_part(const std::string& part, Report& report) {
  const auto begin = Clock::now();
  const std::vector<Case> cases = cases_of(part);
  in_parallel(cases.size(), [&](size_t at) {
    const auto case_begin = Clock::now();
    const Outcome outcome = compare_case(cases[at]);
    report.add(cases[at], outcome, seconds_since(case_begin));
  });
  report.end_part(part, seconds_since(begin));
}

void compare_matrices(const std::string& folder) {
  const auto begin = Clock::now();
  const std::vector<MatrixShape> shapes = matrix_shapes();
  const std::vector<std::string> spreads = matrix_spreads();
  constexpr size_t kWords = kMatrices * 128;
  std::vector<uint32_t> replay;
  if (std::ifstream file(folder + "/mma.replay", std::ios::binary); file) {
    replay.resize(shapes.size() * spreads.size() * kWords);
    file.read(reinterpret_cast<char*>(replay.data()), static_cast<std::streamsize>(replay.size() * 4));
  }
  std::ofstream csv(folder + "/mma.csv");
  csv << matrix_report_header();
  // All results of the GPU first: they are small, and models can be fitted to them later.
  std::vector<std::vector<uint32_t>> results(shapes.size() * spreads.size());
  std::ofstream binary(folder + "/mma.bin", std::ios::binary);
  for (size_t n = 0; n < results.size(); ++n) {
    const MatrixShape& shape = shapes[n / spreads.size()];
    const auto at = replay.begin() + static_cast<int64_t>(n * kWords);
    results[n] = replay.empty() ? multiply_matrices(*make_hardware(), shape,
                                                    draw_matrices(shape, n % spreads.size(), kMatrices))
                                : std::vector<uint32_t>(at, at + static_cast<int64_t>(kWords));
    binary.write(reinterpret_cast<const char*>(results[n].data()),
                 static_cast<std::streamsize>(results[n].size() * 4));
  }
  binary.close();
  std::mutex mutex;
  std::vector<std::string> samples(results.size());
  in_parallel(results.size(), [&](size_t n) {
    const MatrixShape& shape = shapes[n / spreads.size()];
    const size_t spread = n % spreads.size();
    const MatrixBatch batch = draw_matrices(shape, spread, kMatrices);
    const std::vector<uint32_t> executor = multiply_matrices(*make_executor(unchecked()), shape, batch);
    const std::vector<uint32_t> hopper =
        multiply_matrices(*make_executor(unchecked(MmaSum::kHopper)), shape, batch);
    const std::string text = matrix_report(shape, spread, batch, executor, hopper, results[n]);
    samples[n] = matrix_samples(shape, batch, executor, results[n]);
    const std::lock_guard lock(mutex);
    csv << text << std::flush;
    for (const char* kind : {"hopper,", "model,"}) {  // the first model is the best
      const size_t at = text.find(kind);
      fmt::print("  {}", text.substr(at, text.find('\n', at) - at + 1));
    }
  });
  std::ofstream samples_file(folder + "/mma_samples.txt");
  for (const std::string& one : samples) samples_file << one;
  fmt::print("mma: {} shapes, {} spreads; {:.1f} s\n", shapes.size(), spreads.size(), seconds_since(begin));
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    fmt::print(stderr, "usage: gpu_compare FOLDER [PART…]; parts: ");
    for (const std::string& part : case_parts()) fmt::print(stderr, "{} ", part);
    fmt::print(stderr, "mma\n");
    return 2;
  }
  const std::string& folder = arguments[0];
  std::vector<std::string> parts(arguments.begin() + 1, arguments.end());
  if (parts.empty()) {
    parts = case_parts();
    parts.emplace_back("mma");
  }
  const bool replay = static_cast<bool>(std::ifstream(folder + "/mma.replay"));
  if (!replay) make_hardware();  // fails here without a GPU
  Report report(folder);
  for (const std::string& part : parts) {
    if (part == "mma")
      compare_matrices(folder);
    else
      compare_part(part, report);
  }
  return 0;
}

}  // namespace
}  // namespace strata::gpu_tests

int main(int argc, char** argv) {
  try {
    return strata::gpu_tests::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_compare: {}\n", error.what());
    return 1;
  }
}
