// The objectives: what a model learns from a window of tokens.
// Causal: predicts each token from those before it. Masked (Devlin et al., "BERT", 2019): tokens are chosen
// at random and predicted from all others; of the chosen, 80 % become the mask token, 10 % a random one and
// 10 % are unchanged. Span corruption (Raffel et al., "T5", 2020): spans are cut out of a text, each leaves a
// sentinel in the source, and the target is every sentinel with the span that it replaces.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/function_ref.h"

namespace strata::data {

enum class Objective : uint8_t { kCausal, kMasked, kSpanCorruption };

struct ObjectiveOptions {
  Objective kind = Objective::kCausal;
  double mask_rate = 0.15;  // share of the tokens that are chosen, or cut out
  double mean_span = 3.0;   // tokens of a span
  // Masked.
  int32_t mask = 0;
  std::vector<uint8_t> special{};  // [vocabulary of the tokenizer]: not 0 where the id is never chosen
  // Span corruption.
  std::vector<int32_t> sentinels{};  // in the order of use
  int32_t start = 0;                 // first token of the decoder
  int32_t end_of_text = 0;           // after the source and after the target
};

// What a row takes of a corpus, and its places.
struct RowShape {
  int64_t window;           // tokens from the begin of a row to that of the next
  int64_t look_ahead;       // tokens that it reads after them
  int64_t tokens;           // places of tokens and targets: of the decoder if there is an encoder
  int64_t encoder_length;   // places of an encoder; 0: there is none
  double target_share = 1;  // of the places of targets: those that have one, on average
};
// `sequence_length`: of the encoder's row with span corruption, else of the tokens. ConfigError as
// span_lengths.
RowShape row_shape(const ObjectiveOptions& options, int64_t sequence_length);

// For span corruption with `source` places: the tokens of a window, and the places of its target. The search
// follows t5.data.preprocessors.random_spans_helper if a window has at least one span. ConfigError for a rate
// outside (0, 1), spans too short to be separated at this rate, and fewer than 3 places.
struct SpanLengths {
  int64_t window;
  int64_t target;
};
SpanLengths span_lengths(int64_t source, double rate, double mean_span);

// How many of `tokens` (at least 2) are cut out, and in how many spans: functions of the numbers only.
struct SpanCounts {
  int64_t noise;
  int64_t spans;
};
SpanCounts span_counts(int64_t tokens, double rate, double mean_span);

// ConfigError where the options cannot make rows of this length: no rate, too few sentinels.
void check_objective(const ObjectiveOptions& options, int64_t sequence_length);

// The id of [MASK] or <mask>. ConfigError naming these where the tokenizer has neither.
int32_t find_mask_token(FunctionRef<std::optional<int32_t>(std::string_view)> id_of);
// The ids of <extra_id_0>, <extra_id_1>, … up to the last one present, whatever their order in the vocabulary
// (T5's go down from its end). ConfigError if there is none.
std::vector<int32_t> find_sentinels(FunctionRef<std::optional<int32_t>(std::string_view)> id_of);

}  // namespace strata::data
