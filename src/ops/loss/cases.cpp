#include <cmath>
#include <limits>

#include "ops/cases.h"
#include "ops/loss/loss.h"

namespace strata::device {

using namespace op_rows;

namespace {

// Every third row has no target.
Operand loss_targets(int64_t n, int64_t vocabulary = 13) {
  return i32_by(
      n, [vocabulary](int64_t i) { return i % 3 == 2 ? -1.0 : static_cast<double>(i * 7 % vocabulary); });
}
Operand loss_seed() {
  return f32_of({1}, [](int64_t) { return 0.375; });
}

// With a vocabulary of 13.
struct FusedLoss {
  std::string name;
  bool bias;
  double softcap;

  Operand biases() const { return bias ? f32({13}) : absent(); }
  ops::LinearCrossEntropyAttrs attrs() const { return {softcap}; }
};
const FusedLoss kFusedLosses[] = {{"", false, 0}, {"_softcap", false, 1.5}, {"_bias", true, 0}};

// A weight that is `parts` of a vocabulary of which the first begins at row `begin`; without begin it is all
// of it. Targets of the other parts too.
struct SplitLoss {
  std::string name;
  int64_t rows;  // of the weight
  std::optional<int64_t> begin;
  int64_t parts;
  int64_t whole;
  double softcap;
  bool bias;

  Operand starts() const {
    if (!begin) return absent();
    const int64_t first = *begin, size = rows / parts;
    return i32_by(parts, [first, size](int64_t part) { return static_cast<double>(first + part * size); });
  }
  Operand biases() const { return bias ? f32({rows}) : absent(); }
  ops::CrossEntropyAttrs attrs() const { return {softcap, whole}; }
};
std::vector<SplitLoss> split_losses(const Sizes& s) {
  std::vector<SplitLoss> all{{"", 13, {}, 1, 13, 0, false},
                             {"_softcap", 13, {}, 1, 13, 1.5, false},
                             {"_bias", 13, {}, 1, 13, 0, true},
                             {"_parts", 16, 0, 4, 16, 0, true},
                             {"_parts_softcap", 16, 0, 4, 16, 1.5, false}};
  // A shard that does not begin with the vocabulary cannot be cut further by its one part.
  const std::vector<SplitLoss> shards{{"_shard", 13, 13, 1, 39, 1.5, false},
                                      {"_shard_parts", 14, 13, 2, 39, 0, true},
                                      {"_last_shard", 13, 26, 1, 34, 0, true},
                                      {"_shard_of_padding", 13, 39, 1, 34, 1.5, false},
                                      {"_shard_parts_at_end", 14, 26, 2, 36, 1.5, false}};
  if (s.ragged) all.insert(all.end(), shards.begin(), shards.end());
  return all;
}

// Statistics that logits of `s.width` terms may have: greatest logits, sums of at least 1, targets below the
// greatest and in one of the parts.
Operand statistics_of(int64_t parts, const Sizes& s) {
  const int64_t tokens = s.rows;
  const double greatest = 0.8 * std::sqrt(static_cast<double>(s.width));
  return f32_of({parts, tokens, 3}, [parts, tokens, greatest](int64_t i) {
    const int64_t token = i / 3 % tokens, part = i / 3 / tokens;
    const double maximum = greatest + 0.1 * static_cast<double>((token * 5 + part * 3) % 11);
    if (i % 3 == 0) return maximum;
    if (i % 3 == 1) return 1 + 0.25 * static_cast<double>((token + part) % 9);
    return token % parts == part ? maximum - 0.125 * static_cast<double>(token % 4)
                                 : -std::numeric_limits<double>::infinity();
  });
}

// The operands of a gradient of the split form, those that the op has.
template <typename Op>
typename Op::template In<Sample> gradient_of(const SplitLoss& v, const Sizes& s) {
  typename Op::template In<Sample> in{};
  in.x = act({s.rows, s.width});
  in.weight = f32({v.rows, s.width});
  if constexpr (requires { in.weight_of_dx; }) in.weight_of_dx = same_as<Op>("weight");
  in.targets = loss_targets(s.rows, v.whole);
  in.statistics = statistics_of(v.parts, s);
  in.dstatistics = f32({v.parts, s.rows, 3});
  in.bias = v.biases();
  in.vocab_start = v.starts();
  return in;
}

template <typename Op>
void add_gradient(Cases& to, const std::string& name) {
  for (const Sizes& s : Cases::sizes()) {
    for (const SplitLoss& v : split_losses(s))
      to.add<Op>(name + v.name + s.name, gradient_of<Op>(v, s), v.attrs(), {.ragged = s.ragged});
  }
  // Time a single chunk: its rate depends only on the width. Time one width: most runs have the fused form,
  // and the matmuls take long to measure.
  constexpr int64_t kChunk = 512;
  auto in = gradient_of<Op>({"", kTimedVocabulary, {}, 1, kTimedVocabulary, 0, false},
                            {"", kChunk, kTimedWidth, 0, false});
  in.targets = timed_ids(kChunk);
  in.statistics = positive({1, kChunk, 3});
  to.time<Op>(in, {.vocabulary = kTimedVocabulary});
}

}  // namespace

template <>
void cases<ops::LinearCrossEntropy>(Cases& to) {
  const std::vector<OutputName<ops::LinearCrossEntropy>> unasked{"per_token", "greedy"};
  for (const Sizes& s : Cases::sizes()) {
    const auto add = [&](const FusedLoss& one, const std::string& name,
                         const std::vector<OutputName<ops::LinearCrossEntropy>>& left_out) {
      to.add<ops::LinearCrossEntropy>("linear_cross_entropy" + name,
                                      {.x = act({s.rows, s.width}),
                                       .weight = f32({13, s.width}),
                                       .targets = loss_targets(s.rows),
                                       .bias = one.biases()},
                                      one.attrs(), {.ragged = s.ragged, .left_out = left_out});
    };
    for (const FusedLoss& one : kFusedLosses) add(one, one.name + s.name, {});
    add(kFusedLosses[2], "_bias" + s.name + "_sums_only", unasked);
  }
  for (const int64_t width : {256, 512, 1024})
    to.time<ops::LinearCrossEntropy>(
        {.x = act({512, width}), .weight = f32({kTimedVocabulary, width}), .targets = timed_ids(512)}, {},
        {.left_out = unasked});
}

template <>
void cases<ops::LinearCrossEntropyTrain>(Cases& to) {
  using Op = ops::LinearCrossEntropyTrain;
  const auto with = [](int64_t rows, int64_t width, int64_t vocabulary) -> Op::In<Sample> {
    return {.x = act({rows, width}),
            .weight = f32({vocabulary, width}),
            .weight_of_dx = same_as<Op>("weight"),
            .targets = loss_targets(rows)};
  };
  for (const Sizes& s : Cases::sizes()) {
    for (const FusedLoss& one : kFusedLosses) {
      Op::In<Sample> in = with(s.rows, s.width, 13);
      in.bias = one.biases();
      to.add<Op>("linear_cross_entropy_train" + one.name + s.name, in, one.attrs(), {.ragged = s.ragged});
      in.seed = loss_seed();
      to.add<Op>("linear_cross_entropy_train_seed" + one.name + s.name, in, one.attrs(),
                 {.ragged = s.ragged});
    }
  }
  for (const int64_t width : {256, 512, 1024}) {
    Op::In<Sample> in = with(512, width, kTimedVocabulary);
    in.targets = timed_ids(512);
    to.time<Op>(in);
  }
}

template <>
void cases<ops::CrossEntropyStatistics>(Cases& to) {
  using Op = ops::CrossEntropyStatistics;
  for (const Sizes& s : Cases::sizes()) {
    for (const SplitLoss& v : split_losses(s)) {
      // No differences of parts, since the logit of a target in another part is infinite, and none of ragged
      // rows: where two greatest logits come close the maximum has a bend.
      std::vector<OutputName<Op>> differentiable;
      if (!v.begin && !s.ragged) differentiable.push_back("statistics");
      to.add<Op>("cross_entropy_statistics" + v.name + s.name,
                 {.x = act({s.rows, s.width}),
                  .weight = f32({v.rows, s.width}),
                  .targets = loss_targets(s.rows, v.whole),
                  .bias = v.biases(),
                  .vocab_start = v.starts()},
                 v.attrs(), {.ragged = s.ragged, .differentiable = differentiable});
    }
  }
  to.time<Op>({.x = act({512, kTimedWidth}),
               .weight = f32({kTimedVocabulary, kTimedWidth}),
               .targets = timed_ids(512)},
              {.vocabulary = kTimedVocabulary});
}

template <>
void cases<ops::CrossEntropyGradInput>(Cases& to) {
  add_gradient<ops::CrossEntropyGradInput>(to, "cross_entropy_grad_input");
}
template <>
void cases<ops::CrossEntropyGradWeight>(Cases& to) {
  add_gradient<ops::CrossEntropyGradWeight>(to, "cross_entropy_grad_weight");
}
template <>
void cases<ops::CrossEntropyGrad>(Cases& to) {
  add_gradient<ops::CrossEntropyGrad>(to, "cross_entropy_grad");
}

template <>
void cases<ops::CrossEntropyLoss>(Cases& to) {
  using Op = ops::CrossEntropyLoss;
  for (const Sizes& s : Cases::sizes()) {
    const Operand targets = loss_targets(s.rows);
    for (const int64_t parts : {1, 3})
      to.add<Op>((parts == 1 ? "cross_entropy_loss" : "cross_entropy_loss_parts") + s.name,
                 {.statistics = statistics_of(parts, s), .targets = targets}, {}, {.ragged = s.ragged});
    to.add<Op>("cross_entropy_loss_sums_only" + s.name,
               {.statistics = statistics_of(1, s), .targets = targets}, {},
               {.ragged = s.ragged, .left_out = {"per_token", "greedy"}});
  }
  to.untimed<Op>(kFewNumbers);
}

template <>
void cases<ops::CrossEntropyLossGrad>(Cases& to) {
  using Op = ops::CrossEntropyLossGrad;
  for (const Sizes& s : Cases::sizes()) {
    for (const int64_t parts : {1, 3}) {
      const std::string name = (parts == 1 ? "" : "_parts") + s.name;
      Op::In<Sample> in{.statistics = statistics_of(parts, s), .targets = loss_targets(s.rows)};
      to.add<Op>("cross_entropy_loss_grad" + name, in, {}, {.ragged = s.ragged});
      in.seed = loss_seed();
      to.add<Op>("cross_entropy_loss_grad_seed" + name, in, {}, {.ragged = s.ragged});
    }
  }
  to.untimed<Op>(kFewNumbers);
}

}  // namespace strata::device
