// strata bench decode: time per token against the bytes that it must read.
#include <algorithm>
#include <map>
#include <numeric>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/parallel.h"
#include "benchmarks/bench_model.h"
#include "benchmarks/benchmarks.h"
#include "config/objective.h"
#include "device/open/open.h"
#include "inference/generate.h"
#include "ops/attention/attention.h"
#include "ops/linear/linear.h"

namespace strata::benchmarks {
namespace {

using program::Segment;

constexpr int64_t kPosition = 512;  // tokens in the cache, unless the model has fewer positions
constexpr int64_t kBatch = 8;
constexpr double kReadGoal = 0.9, kBatchGoal = 5;
constexpr int kRounds = 4;
constexpr double kSeconds = 0.4;  // per round, for each measurement

// Bytes of weights and cache read per token.
int64_t bytes_of_token(const program::Program& program, int64_t position) {
  int64_t bytes = 0;
  for (const graph::Node& node : program.graph.nodes()) {
    if (node.op == &ops::Linear::def)
      bytes += program.graph.value(graph::inputs_of<ops::Linear>(node).weight).bytes();
    if (node.op == &ops::CachedAttention::def) {
      const graph::Value& cache = program.graph.value(graph::inputs_of<ops::CachedAttention>(node).keys);
      bytes += 2 * (position + 1) * cache.shape[2] * size_of(cache.dtype);
    }
  }
  return bytes;
}

// Total seconds so far by kernel family, largest first.
std::vector<std::pair<std::string, double>> family_seconds(const program::Executor& executor, size_t index) {
  std::map<std::string, double> sums;
  const program::Program& program = executor.program(index);
  const auto& timings = executor.timings(index, Segment::kForward);
  for (size_t i = 0; i < timings.size(); ++i) {
    const auto node = static_cast<size_t>(program.segment(Segment::kForward)[i].node);
    sums[std::string(program.graph.nodes()[node].op->family)] += timings[i].seconds;
  }
  std::vector<std::pair<std::string, double>> sorted(sums.begin(), sums.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return sorted;
}

// Fills in arbitrary small values, because untouched pages may all map to one physical page.
void fill_weights(program::Executor& executor) {
  std::vector<float> numbers(1 << 20);
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = 0.001f * static_cast<float>(static_cast<int64_t>(i) * 7919 % 41 - 20);
  const int64_t most = std::ssize(numbers) * 4;
  for (const program::Persistent& value : executor.set().persistent) {
    if (value.role != graph::Role::kParameter) continue;
    for (int64_t at = 0; at < value.bytes; at += most)
      executor.upload(value.name, numbers.data(), std::min(most, value.bytes - at), at);
  }
}

void decode_case(BenchContext& context, const std::vector<std::string>& sets, const std::string& name) {
  const BenchCase bench = case_of_sets(sets);
  if (bench.model.architecture != models::Architecture::kDecoder) {
    throw ConfigError("[bench decode] the model is {} ({}): expected a decoder", config::kind_of(bench.model),
                      bench.model.family->name);
  }
  const int64_t position = std::min(kPosition, bench.model.max_positions - 1);
  program::CompileOptions options;
  options.model = bench.model;
  options.activations = bench.dtype;
  options.cache_slots = kBatch;
  const auto device = device::open(device::Kind::kCpu, 0, context.threads);
  options.target = device->target();
  options.cache_capacity = inference::cache_capacity_for(position + 1, inference::kPrefillChunk);
  set_compute_threads(context.threads);
  flush_denormals();
  program::Executor executor(
      program::compile({{.kind = program::Kind::kDecode, .sequences = 1, .sequence_length = 1},
                        {.kind = program::Kind::kDecode, .sequences = kBatch, .sequence_length = 1}},
                       options),
      device);
  fill_weights(executor);
  executor.run(0, {Segment::kEncode});
  const auto place = static_cast<int32_t>(position);
  const std::vector<int32_t> tokens(kBatch, 5), places(kBatch, place);
  for (const size_t index : {size_t{0}, size_t{1}}) {
    const size_t count = index == 0 ? 1 : kBatch;
    executor.upload_column(index, Column::kTokens, 0, std::span(tokens).first(count));
    executor.upload_column(index, Column::kPositions, 0, std::span(places).first(count));
  }
  std::vector<int32_t> slots(kBatch);
  std::iota(slots.begin(), slots.end(), 0);
  executor.write("cache_position", places);
  executor.write("cache_slot", slots);
  if (options.model.has_states()) executor.write("cache_count", std::vector<int32_t>(kBatch, 1));
  const int64_t bytes_to_read = bytes_of_token(executor.program(0), position);
  const auto read_all = device->reading_loop(bytes_to_read);
  // Interleaved, since other load may share the machine; the best repetition of each is used, since load only
  // slows it down.
  double bandwidth = 0;
  std::vector<double> seconds, batches, reads;
  const auto timed = [&](size_t index) {
    const double begin = monotonic_seconds();
    executor.run_script(index);
    return monotonic_seconds() - begin;
  };
  timed(0);
  timed(1);
  executor.reset_timings();
  for (int round = 0; round < kRounds; ++round) {
    bandwidth = std::max(bandwidth, device->measure_peaks(kSeconds).memory_bytes_per_s);
    for (const double end = monotonic_seconds() + kSeconds; monotonic_seconds() < end;) {
      seconds.push_back(timed(0));
      reads.push_back(read_all());
      batches.push_back(timed(1));
    }
  }
  for (std::vector<double>* const all : {&seconds, &reads, &batches}) std::sort(all->begin(), all->end());
  const double token = seconds[seconds.size() / 2], best = seconds.front();
  const auto bytes = static_cast<double>(bytes_to_read);
  const double share = bytes / best / bandwidth, of_reading = reads.front() / best;
  const double batch = static_cast<double>(kBatch) * best / batches.front();
  context.print(
      "  {:<14} {:>5} {:>10} {:>9.2f} ms {:>9.2f} ms {:>9.1f} {:>9.1f} {:>9.1f} {:>7.1f} % {:>7.1f} % "
      "{:>8.2f} x\n",
      name, name_of(bench.dtype), human_bytes(bytes), 1e3 * token, 1e3 * best, 1 / token, bytes / best / 1e9,
      bandwidth / 1e9, 100 * share, 100 * of_reading, batch);
  const auto families_of = [&](size_t index, const char* what) {
    const auto seconds_of = family_seconds(executor, index);
    double all = 0;
    for (const auto& [family, sum] : seconds_of) all += sum;
    nlohmann::ordered_json families;
    std::string shares;
    for (const auto& [family, sum] : seconds_of) {
      families[family] = sum / all;
      shares += fmt::format("{}{} {:.1f} %", shares.empty() ? "" : ", ", family, 100 * sum / all);
    }
    context.print("    {}: {}\n", what, shares);
    return families;
  };
  const auto families = families_of(0, "one text");
  const auto batch_families = families_of(1, "8 texts");
  context.result["cases"].push_back({{"model", name},
                                     {"dtype", name_of(bench.dtype)},
                                     {"bytes_per_token", bytes},
                                     {"token_seconds", token},
                                     {"best_token_seconds", best},
                                     {"tokens_per_s", 1 / token},
                                     {"bytes_per_s", bytes / best},
                                     {"memory_bytes_per_s", bandwidth},
                                     {"share", share},
                                     {"of_reading_loop", of_reading},
                                     {"reading_loop_goal", kReadGoal},
                                     {"batch_of_8", batch},
                                     {"batch_goal", kBatchGoal},
                                     {"families", families},
                                     {"batch_families", batch_families}});
}

}  // namespace

void bench_decode(BenchContext& context) {
  context.print(
      "\n  one text, {} tokens in the cache, interleaved with a triad over memory, a loop that reads the\n"
      "  same bytes (goal {:.0f} % of its rate) and {} texts in one batch (goal {:g} x the tokens);\n"
      "  rates are of the best repetitions\n",
      kPosition, 100 * kReadGoal, kBatch, kBatchGoal);
  context.print("  {:<14} {:>5} {:>10} {:>12} {:>12} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10}\n", "model",
                "dtype", "bytes", "median", "best", "tokens/s", "GB/s", "triad", "share", "reading",
                "8 texts");
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

}  // namespace strata::benchmarks
