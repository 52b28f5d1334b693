#include "train/generate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <unordered_set>

#include "base/error.h"
#include "base/random.h"

namespace strata::train {
namespace {

constexpr uint32_t kSamplingStream = 0x5a4d;

int32_t most_probable(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// As transformers' RepetitionPenaltyLogitsProcessor: divides positive and multiplies negative logits of seen
// tokens.
void penalize(std::span<float> logits, std::span<const int32_t> history, double penalty) {
  const std::unordered_set<int32_t> seen(history.begin(), history.end());
  for (const int32_t id : seen) {
    if (static_cast<size_t>(id) >= logits.size()) continue;
    float& logit = logits[static_cast<size_t>(id)];
    logit = static_cast<float>(logit > 0 ? logit / penalty : logit * penalty);
  }
}

}  // namespace

int32_t sample_token(std::span<float> logits, std::span<const int32_t> history,
                     const SamplingOptions& options, uint64_t draw) {
  if (options.vocab_limit > 0 && static_cast<size_t>(options.vocab_limit) < logits.size()) {
    logits = logits.first(static_cast<size_t>(options.vocab_limit));
  }
  if (options.repetition_penalty != 1.0) penalize(logits, history, options.repetition_penalty);
  if (options.temperature <= 0) return most_probable(logits);

  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  auto by_logit = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)];
    const float y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  size_t kept = order.size();
  if (options.top_k > 0) kept = std::min(kept, static_cast<size_t>(options.top_k));
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(), by_logit);
  order.resize(kept);
  std::vector<double> weights(kept);
  const double top = logits[static_cast<size_t>(order[0])];
  for (size_t i = 0; i < kept; ++i) {
    weights[i] = std::exp((logits[static_cast<size_t>(order[i])] - top) / options.temperature);
  }
  auto total_of = [&] { return std::accumulate(weights.begin(), weights.end(), 0.0); };
  if (options.top_p < 1.0) {
    const double wanted = options.top_p * total_of();
    double sum = 0;
    size_t n = 0;
    while (n < weights.size() && sum < wanted) sum += weights[n++];
    weights.resize(std::max<size_t>(1, n));
  }
  if (options.min_p > 0) {
    size_t n = 1;
    while (n < weights.size() && weights[n] >= options.min_p * weights[0]) ++n;
    weights.resize(n);
  }
  const auto bits = philox({options.seed, kSamplingStream}, draw);
  const double uniform = (static_cast<double>(bits[0]) + 0x1p-32 * bits[1]) * 0x1p-32;
  double left = uniform * total_of();
  for (size_t i = 0; i + 1 < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order[weights.size() - 1];
}

std::vector<program::Request> generation_requests(int64_t chunk) {
  return {{.kind = program::Kind::kPrefill, .sequences = 1, .sequence_length = chunk},
          {.kind = program::Kind::kDecode, .sequences = 1, .sequence_length = 1}};
}

int64_t cache_room_for(int64_t tokens, int64_t chunk) {
  return (tokens + chunk - 1) / chunk * chunk;
}

Generator::Generator(program::Executor& executor, size_t prefill, size_t decode)
    : executor_(executor),
      prefill_(prefill),
      decode_(decode),
      chunk_(executor.program(prefill).request.sequence_length),
      room_(executor.set().options.cache_room),
      positions_(std::min(room_, executor.set().options.model.max_positions)) {}

void Generator::feed(size_t program, std::span<const int32_t> tokens, int64_t position) {
  const int64_t rows = executor_.program(program).request.sequence_length;
  auto* ids = reinterpret_cast<int32_t*>(executor_.batch_input(program, "tokens", 0));
  auto* places = reinterpret_cast<int32_t*>(executor_.batch_input(program, "positions", 0));
  for (int64_t i = 0; i < rows; ++i) {
    // Rows past the prompt's end are computed and overwritten later: they only must stay inside the tables.
    ids[i] = i < static_cast<int64_t>(tokens.size()) ? tokens[static_cast<size_t>(i)] : 0;
    places[i] = static_cast<int32_t>(std::min(position + i, positions_ - 1));
  }
  *executor_.data_as<int32_t>("cache_position") = static_cast<int32_t>(position);
  *executor_.data_as<int32_t>("last_row") = static_cast<int32_t>(tokens.size()) - 1;
  executor_.run(program, program::Segment::kFirst);
}

std::vector<int32_t> Generator::generate(std::span<const int32_t> prompt, const SamplingOptions& options,
                                         const std::function<bool(int32_t)>& on_token) {
  if (prompt.empty())
    throw ConfigError("[generate] the prompt is empty; give at least one token to go on from");
  if (static_cast<int64_t>(prompt.size()) > positions_) {
    throw ConfigError("[generate] the prompt has {} tokens and there is room for {}; shorten it",
                      prompt.size(), positions_);
  }
  std::vector<int32_t> history(prompt.begin(), prompt.end());
  int64_t position = 0;
  for (size_t at = 0; at < prompt.size(); at += static_cast<size_t>(chunk_)) {
    const auto part = prompt.subspan(at, std::min(static_cast<size_t>(chunk_), prompt.size() - at));
    feed(prefill_, part, position);
    position += static_cast<int64_t>(part.size());
  }
  const int64_t vocab = executor_.set().options.model.vocab_size;
  std::vector<int32_t> made;
  std::vector<float> logits(static_cast<size_t>(vocab));
  while (static_cast<int64_t>(made.size()) < options.max_tokens) {
    std::memcpy(logits.data(), executor_.data("logits"), logits.size() * sizeof(float));
    const int32_t token = sample_token(logits, history, options, made.size());
    if (options.stop_id && token == *options.stop_id) break;
    made.push_back(token);
    history.push_back(token);
    if (on_token && !on_token(token)) break;
    if (position >= positions_ || static_cast<int64_t>(made.size()) == options.max_tokens) break;
    feed(decode_, std::span(&history.back(), 1), position++);
  }
  return made;
}

}  // namespace strata::train
