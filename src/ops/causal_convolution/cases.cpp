#include "ops/causal_convolution/causal_convolution.h"

#include "ops/cases.h"

namespace strata::device {

using namespace op_rows;

namespace {

// Four sequences of twelve rows, of which each has the documents [0, 5), [5, 6) and [6, 12).
constexpr int64_t kConvolvedRows = 48, kConvolvedLength = 12;
Operand convolved_positions() {
  return i32_by(kConvolvedRows, [](int64_t i) {
    const int64_t at = i % kConvolvedLength;
    return static_cast<double>(at >= 6 ? at - 6 : at == 5 ? 0 : at);
  });
}
// A rank's rows of longer sequences: its first piece continues a document, its second begins one at row 2.
Operand continued_positions() {
  return i32_by(kConvolvedRows, [](int64_t i) {
    const int64_t at = i % kConvolvedLength;
    return static_cast<double>(at < 6 ? 1 + at : at >= 8 ? at - 8 : 20 + at);
  });
}

struct ConvolutionCase {
  std::string name;
  int64_t channels, taps;
  bool silu, biased;
  int64_t pieces = 1;
  bool continues = false;  // rows precede the pieces
  std::vector<int64_t> segments = {};

  ops::CausalConvolutionAttrs attrs() const { return {kConvolvedLength, pieces, silu}; }
  Operand rows() const { return act({kConvolvedRows, channels}, segments); }
  Operand weight() const { return along_rows(f32({channels, taps}, segments)); }
  Operand bias() const { return biased ? along_rows(f32({channels}, segments)) : absent(); }
  Operand positions() const { return continues ? continued_positions() : convolved_positions(); }
  Operand before() const {
    if (!continues) return absent();
    return act({kConvolvedRows / kConvolvedLength * pieces * (taps - 1), channels}, segments);
  }
  bool ragged() const { return channels % 2 != 0; }

 private:
  static Operand along_rows(Operand operand) {
    operand.segments_along = 0;
    return operand;
  }
};
std::vector<ConvolutionCase> forms_of_convolution() {
  return {{"", 40, 4, true, true},
          {"_linear", 40, 3, false, false},
          {"_two_taps", 24, 2, true, false},
          {"_one_tap", 24, 1, false, true},
          {"_many_taps", 40, 16, true, true},
          {"_pieces", 40, 4, true, true, 2},
          {"_continued", 40, 4, true, true, 2, true},
          {"_short_pieces", 24, 4, true, false, 6, true},
          {"_parts", 48, 4, true, false, 1, false, {16, 16, 16}},
          {"_ragged", 23, 4, true, true, 2, true}};
}

// As the linear layers of Qwen3-Next have them, at the width of timed rows.
constexpr int64_t kTimedLength = 256;
const ops::CausalConvolutionAttrs kTimedConvolution{kTimedLength, 1, true};
Operand timed_positions() {
  return i32_by(kTimedTokens, [](int64_t i) { return static_cast<double>(i % kTimedLength); });
}
Operand timed_taps() {
  return f32({kTimedWidth, 4});
}

}  // namespace

template <>
void cases<ops::CausalConvolution>(Cases& to) {
  for (const ConvolutionCase& one : forms_of_convolution())
    to.add<ops::CausalConvolution>("causal_convolution" + one.name,
                                   {.x = one.rows(),
                                    .weight = one.weight(),
                                    .bias = one.bias(),
                                    .positions = one.positions(),
                                    .before = one.before()},
                                   one.attrs(), {.ragged = one.ragged()});
  to.time<ops::CausalConvolution>({.x = timed_rows(), .weight = timed_taps(), .positions = timed_positions()},
                                  kTimedConvolution);
}

template <>
void cases<ops::CausalConvolutionGradInput>(Cases& to) {
  for (const ConvolutionCase& one : forms_of_convolution())
    to.add<ops::CausalConvolutionGradInput>("causal_convolution_grad_input" + one.name,
                                            {.dy = one.rows(),
                                             .x = one.rows(),
                                             .weight = one.weight(),
                                             .bias = one.bias(),
                                             .positions = one.positions(),
                                             .before = one.before()},
                                            one.attrs(), {.ragged = one.ragged()});
  to.time<ops::CausalConvolutionGradInput>(
      {.dy = timed_rows(), .x = timed_rows(), .weight = timed_taps(), .positions = timed_positions()},
      kTimedConvolution);
}

template <>
void cases<ops::CausalConvolutionGradWeight>(Cases& to) {
  for (const ConvolutionCase& one : forms_of_convolution())
    to.add<ops::CausalConvolutionGradWeight>("causal_convolution_grad_weight" + one.name,
                                             {.dy = one.rows(),
                                              .x = one.rows(),
                                              .weight = one.weight(),
                                              .bias = one.bias(),
                                              .positions = one.positions(),
                                              .before = one.before()},
                                             one.attrs(), {.ragged = one.ragged()});
  to.time<ops::CausalConvolutionGradWeight>(
      {.dy = timed_rows(), .x = timed_rows(), .weight = timed_taps(), .positions = timed_positions()},
      kTimedConvolution);
}

template <>
void cases<ops::ConvolutionTails>(Cases& to) {
  to.add<ops::ConvolutionTails>("convolution_tails", {.x = act({kConvolvedRows, 40})},
                                {kConvolvedLength, 1, 4});
  to.add<ops::ConvolutionTails>("convolution_tails_of_pieces", {.x = act({kConvolvedRows, 40})},
                                {kConvolvedLength, 4, 4});
  to.untimed<ops::ConvolutionTails>(kRows);
}

template <>
void cases<ops::ConvolutionTailsGrad>(Cases& to) {
  for (const int64_t pieces : {1, 4})
    to.add<ops::ConvolutionTailsGrad>(
        pieces == 1 ? "convolution_tails_grad" : "convolution_tails_grad_of_pieces",
        {.dtails = act({kConvolvedRows / kConvolvedLength * pieces * 3, 40})}, {kConvolvedLength, pieces, 4});
  to.untimed<ops::ConvolutionTailsGrad>(kRows);
}

template <>
void cases<ops::ShiftPieces>(Cases& to) {
  for (const bool back : {false, true})
    to.add<ops::ShiftPieces>(back ? "shift_pieces_back" : "shift_pieces", {.x = act({4 * 6 * 3, 40})},
                             {6, 3, back});
  to.untimed<ops::ShiftPieces>(kRows);
}

template <>
void cases<ops::CachedConvolution>(Cases& to) {
  const auto add = [&](const std::string& name, int64_t rows, int64_t taps, bool biased, bool silu,
                       const std::vector<int64_t>& positions, const std::vector<int64_t>& counts) {
    const auto sequences = static_cast<int64_t>(positions.size());
    to.add<ops::CachedConvolution>("cached_convolution" + name,
                                   {.x = act({sequences * rows, 40}),
                                    .weight = f32({40, taps}),
                                    .bias = biased ? f32({40}) : absent(),
                                    .cache = act({7, taps - 1, 40}),
                                    .position = i32_of(positions),
                                    .slot = i32_of({4, 6, 0, 1, 2}),
                                    .count = i32_of(counts)},
                                   {silu}, {.updates = {{"cache", "cache"}}});
  };
  add("", 1, 4, true, true, {0, 1, 2, 3, 700}, {1, 1, 1, 1, 1});
  add("_three_taps", 1, 3, false, false, {0, 1, 2, 3, 700}, {1, 1, 1, 0, 1});
  add("_prompts", 6, 4, false, true, {0, 1, 0, 12, 2}, {6, 2, 1, 5, 0});
  to.untimed<ops::CachedConvolution>(kText);
}

}  // namespace strata::device
