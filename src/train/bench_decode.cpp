// strata bench decode: what a token costs against the bytes that it must read.
#include <algorithm>

#include "base/clock.h"
#include "base/parallel.h"
#include "kernels/cpu/measure.h"
#include "ops/ops.h"
#include "train/bench.h"
#include "train/bench_model.h"
#include "train/generate.h"

namespace strata::train {
namespace {

using program::Segment;

constexpr int64_t kPosition = 512;  // tokens in the cache
constexpr double kSeconds = 2;

// Weights and cache that one token reads.
int64_t bytes_of_token(const program::Program& program) {
  int64_t bytes = 0;
  for (const graph::Node& node : program.graph.nodes()) {
    if (node.op == &ops::kLinear) bytes += program.graph.value(node.inputs[1]).bytes();
    if (node.op == &ops::kCachedAttention) {
      const graph::Value& cache = program.graph.value(node.inputs[1]);
      bytes += 2 * (kPosition + 1) * cache.shape[2] * size_of(cache.dtype);
    }
  }
  return bytes;
}

// Any small numbers, but in memory of their own: pages that nobody wrote may all be the same one.
void fill_weights(const program::Executor& executor) {
  for (const program::Persistent& value : executor.set().persistent) {
    if (value.role != graph::Role::kParameter) continue;
    auto* const data = executor.data_as<float>(value.name);
    parallel_ranges(value.bytes / 4, 1 << 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) data[i] = 0.001f * static_cast<float>(i * 7919 % 41 - 20);
    });
  }
}

void decode_case(BenchContext& context, const std::vector<std::string>& sets, const std::string& name) {
  const BenchCase bench = case_of_sets(sets);
  program::CompileOptions options;
  options.model = bench.model;
  options.activations = bench.dtype;
  options.threads = context.threads;
  options.cache_room = cache_room_for(kPosition + 1, kPrefillChunk);
  set_compute_threads(context.threads);
  flush_denormals();
  program::Executor executor(
      program::compile({{.kind = program::Kind::kDecode, .sequences = 1, .sequence_length = 1}}, options));
  fill_weights(executor);
  executor.run(0, Segment::kEncode);
  *reinterpret_cast<int32_t*>(executor.batch_input(0, "tokens", 0)) = 5;
  *reinterpret_cast<int32_t*>(executor.batch_input(0, "positions", 0)) = static_cast<int32_t>(kPosition);
  *executor.data_as<int32_t>("cache_position") = static_cast<int32_t>(kPosition);
  // In turns with the bandwidth, since others share the machine.
  double bandwidth = 0;
  std::vector<double> seconds;
  executor.run(0, Segment::kFirst);
  for (int round = 0; round < 3; ++round) {
    bandwidth = std::max(bandwidth, cpu::measure_device(context.threads, 0.5).memory_bytes_per_s);
    for (const double end = monotonic_seconds() + kSeconds / 3; monotonic_seconds() < end;) {
      const double begin = monotonic_seconds();
      executor.run(0, Segment::kFirst);
      seconds.push_back(monotonic_seconds() - begin);
    }
  }
  std::sort(seconds.begin(), seconds.end());
  const double token = seconds[seconds.size() / 2];
  const auto bytes = static_cast<double>(bytes_of_token(executor.program(0)));
  const double share = bytes / token / bandwidth;
  context.print("  {:<26} {:>5} {:>10} {:>9.2f} ms {:>9.1f} {:>10.1f} {:>10.1f} {:>9.1f} %\n", name,
                name_of(bench.dtype), human_bytes(bytes), 1e3 * token, 1 / token, bytes / token / 1e9,
                bandwidth / 1e9, 100 * share);
  context.result["cases"].push_back({{"model", name},
                                     {"dtype", name_of(bench.dtype)},
                                     {"bytes_per_token", bytes},
                                     {"token_seconds", token},
                                     {"tokens_per_s", 1 / token},
                                     {"bytes_per_s", bytes / token},
                                     {"memory_bytes_per_s", bandwidth},
                                     {"share", share}});
}

}  // namespace

void bench_decode(BenchContext& context) {
  context.print("\n  one text, {} tokens in the cache; the triad's bandwidth is measured in turns with it\n",
                kPosition);
  context.print("  {:<26} {:>5} {:>10} {:>12} {:>9} {:>10} {:>10} {:>11}\n", "model", "dtype", "bytes",
                "token", "tokens/s", "GB/s", "triad", "share");
  if (!context.sets.empty()) return decode_case(context, context.sets, "chosen");
  for (const char* dtype : {"fp32", "bf16"}) {
    const std::string compute = fmt::format("precision.compute=\"{}\"", dtype);
    decode_case(context, {"model.preset=\"llama3-29m\"", "training.sequence_length=1024", compute},
                "llama3-29m");
    decode_case(context,
                {"model.family=\"llama3\"", "model.vocab_size=32000", "model.hidden_size=1536",
                 "model.intermediate_size=4096", "model.num_hidden_layers=16", "model.num_attention_heads=12",
                 "model.num_key_value_heads=4", "model.max_position_embeddings=2048", compute},
                "llama3, 500M");
  }
}

}  // namespace strata::train
