#include "data/samples/objective.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace strata::data {
namespace {

// Halves to the even number, as the reference rounds.
int64_t rounded(double x) {
  return static_cast<int64_t>(std::nearbyint(x));
}

void check_rates(double rate, double mean_span) {
  if (!(rate > 0 && rate < 1)) {
    throw ConfigError("[data.mask_rate] found {}, expected a number above 0 and below 1", rate);
  }
  if (!(mean_span >= 1)) {
    throw ConfigError("[data.mean_span] found {}, expected a number of at least 1", mean_span);
  }
  // As many spans stay as are cut out, and each has a token at least.
  if (rate / mean_span > 1 - rate) {
    throw ConfigError(
        "[data.mean_span] found {} with data.mask_rate = {}: the text between the spans would be shorter "
        "than a token; expected at least {:.2f}",
        mean_span, rate, rate / (1 - rate));
  }
}

}  // namespace

SpanCounts span_counts(int64_t tokens, double rate, double mean_span) {
  STRATA_CHECK(tokens >= 2, "{} tokens", tokens);
  const int64_t noise = std::clamp<int64_t>(rounded(static_cast<double>(tokens) * rate), 1, tokens - 1);
  const int64_t most = std::min(noise, tokens - noise);
  return {noise, std::clamp<int64_t>(rounded(static_cast<double>(noise) / mean_span), 1, most)};
}

SpanLengths span_lengths(int64_t source, double rate, double mean_span) {
  check_rates(rate, mean_span);
  if (source < 3) {
    throw ConfigError(
        "[training.sequence_length] found {}, expected at least 3 for span corruption: a token, a sentinel "
        "and the end of the text",
        source);
  }
  const auto target = [=](int64_t tokens) {
    const SpanCounts counts = span_counts(tokens, rate, mean_span);
    return counts.noise + counts.spans + 1;
  };
  const auto length = [=](int64_t tokens) {
    const SpanCounts counts = span_counts(tokens, rate, mean_span);
    return tokens - counts.noise + counts.spans + 1;
  };
  int64_t window = source - 1;
  while (length(window + 1) <= source) ++window;
  // At a rate of one half, source and target may be meant to be of one length.
  if (rate == 0.5 && target(window) > length(window)) return {window - 1, target(window) - 1};
  return {window, target(window)};
}

RowShape row_shape(const ObjectiveOptions& options, int64_t sequence_length) {
  switch (options.kind) {
    case Objective::kMasked:
      return {sequence_length, 0, sequence_length, 0, options.mask_rate};
    case Objective::kSpanCorruption: {
      const auto [window, target] = span_lengths(sequence_length, options.mask_rate, options.mean_span);
      return {window, 0, target, sequence_length};
    }
    case Objective::kCausal:
      break;
  }
  return {sequence_length, 1, sequence_length, 0};
}

void check_objective(const ObjectiveOptions& options, int64_t sequence_length) {
  if (options.kind == Objective::kCausal) return;
  check_rates(options.mask_rate, options.kind == Objective::kMasked ? 1e9 : options.mean_span);
  if (options.kind == Objective::kMasked) {
    STRATA_CHECK(!options.special.empty(), "masked tokens without a vocabulary");
    return;
  }
  const RowShape shape = row_shape(options, sequence_length);
  const int64_t spans = span_counts(shape.window, options.mask_rate, options.mean_span).spans;
  const auto sentinels = static_cast<int64_t>(options.sentinels.size());
  if (spans > sentinels) {
    throw ConfigError(
        "[data.objective] found {} sentinels in the tokenizer, <extra_id_0> to <extra_id_{}>; span "
        "corruption of training.sequence_length = {} makes {} spans, each with its own; raise "
        "data.mean_span, shorten the sequence or take a tokenizer with more",
        sentinels, sentinels - 1, sequence_length, spans);
  }
}

int32_t find_mask_token(FunctionRef<std::optional<int32_t>(std::string_view)> id_of) {
  for (const std::string_view name : {"[MASK]", "<mask>"}) {
    if (const auto id = id_of(name)) return *id;
  }
  throw ConfigError(
      "[data.objective] the tokenizer has no mask token, expected [MASK] or <mask>, which masked training "
      "puts in the place of chosen tokens; take a tokenizer that has it, or leave tokenizer.path out and one "
      "is trained with it");
}

std::vector<int32_t> find_sentinels(FunctionRef<std::optional<int32_t>(std::string_view)> id_of) {
  std::vector<int32_t> ids;
  while (true) {
    const std::string name = fmt::format("<extra_id_{}>", ids.size());
    auto id = id_of(name);
    if (!id) id = id_of("\u2581" + name);  // a SentencePiece token, in mT5
    if (!id) break;
    ids.push_back(*id);
  }
  if (ids.empty()) {
    throw ConfigError(
        "[data.objective] the tokenizer has no sentinels, expected <extra_id_0>, <extra_id_1>, …, which span "
        "corruption puts in the place of spans; take a tokenizer that has them (of a T5 model its "
        "tokenizer.json, not spiece.model, which lacks them), or leave tokenizer.path out and one is trained "
        "with them");
  }
  return ids;
}

}  // namespace strata::data
