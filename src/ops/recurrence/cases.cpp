#include "ops/cases.h"

#include "ops/recurrence/recurrence.h"

namespace strata::device {

using namespace op_rows;

namespace {

using ops::RecurrenceAttrs;

constexpr int64_t kKeys = 4, kValues = 6, kValueHeads = 8;
constexpr int64_t kSequences = 4, kLength = 10;

// Operands of one kind of recurrence.
struct Recurring {
  std::string name;
  RecurrenceKind kind = RecurrenceKind::kDelta;
  int64_t key_heads = kValueHeads / 2;
  bool by_channel = false, l2_norm = true;
  int64_t sequences = kSequences, length = kLength, pieces = 1, chunk = 4;
  int64_t value_heads = kValueHeads;
  bool ragged = false;

  int64_t rows() const { return sequences * length; }
  bool delta() const { return kind == RecurrenceKind::kDelta; }
  RecurrenceAttrs attrs() const {
    return {.kind = kind,
            .key_dim = kKeys,
            .value_dim = kValues,
            .sequence_length = length,
            .pieces = pieces,
            .l2_norm = l2_norm && delta(),
            .scale = delta() ? 0.5 : 1.0,
            .chunk = chunk};
  }
  Operand mixed() const {
    const int64_t k = key_heads * kKeys, v = value_heads * kValues;
    return act({rows(), 2 * k + v}, delta() ? std::vector{k, k, v} : std::vector{v, k, k});
  }
  Operand dout() const { return act({rows(), value_heads * kValues}); }
  Operand g() const {
    return f32_of({rows(), value_heads * (by_channel ? kKeys : 1)},
                  [](int64_t i) { return -0.03 - 0.11 * static_cast<double>(i * 5 % 13); });
  }
  // Up to 2.
  Operand beta() const {
    return f32_of({rows(), value_heads},
                  [](int64_t i) { return 0.1 + 0.27 * static_cast<double>(i * 3 % 8); });
  }
  Operand skip() const { return delta() ? absent() : f32({value_heads}); }
  // Each sequence begins a document, and so does its row of a third of it.
  Operand positions() const {
    return i32_by(rows(), [length = length](int64_t i) {
      const int64_t row = i % length, second = (length + 2) / 3;
      return static_cast<double>(row < second ? row : row - second);
    });
  }
  // Documents that begin before the sequence, as of a range in the middle of one.
  Operand positions_of_piece() const {
    return i32_by(rows(), [length = length](int64_t i) {
      const int64_t row = i % length, sequence = i / length;
      return static_cast<double>(sequence % 2 == 1 && row >= 6 ? row - 6 : row + 3);
    });
  }
  Operand states() const { return f32({sequences * pieces, value_heads * kKeys * kValues}); }
  int64_t map_width() const { return (delta() ? kKeys * kKeys : 1) + kKeys * kValues; }
};

std::vector<Recurring> recurring() {
  const Recurring gdn{.name = ""}, kda{.name = "_channels", .key_heads = kValueHeads, .by_channel = true},
      ssd{.name = "_space", .kind = RecurrenceKind::kStateSpace};
  std::vector<Recurring> all{gdn, kda, ssd};
  // Plain keys; a chunk of more than 16 rows and one of fewer; a row a sequence.
  for (Recurring one : {gdn, kda, ssd}) {
    one.name += "_long";
    one.l2_norm = false;
    one.value_heads = 3;
    one.key_heads = one.by_channel ? 3 : 1;
    one.sequences = 2;
    one.length = 39;
    one.chunk = 20;
    one.ragged = true;
    all.push_back(one);
  }
  Recurring row = gdn;
  row.name = "_row";
  row.length = 1;
  row.ragged = true;  // its decay meets no state
  all.push_back(row);
  return all;
}

// The same with states before ranges.
std::vector<Recurring> in_pieces() {
  std::vector<Recurring> all;
  for (Recurring one : recurring()) {
    if (one.length % 2 != 0) continue;
    one.name += "_pieces";
    one.pieces = 2;
    all.push_back(one);
  }
  return all;
}

constexpr int64_t kTimedHead = 64, kTimedRecurrenceHeads = kTimedWidth / kTimedHead;
constexpr RecurrenceAttrs kTimedRecurrence{.key_dim = kTimedHead,
                                           .value_dim = kTimedHead,
                                           .sequence_length = kTimedTokens / 2,
                                           .l2_norm = true,
                                           .scale = 0.125};
Operand timed_mixed() {
  return timed_rows(3 * kTimedWidth, {kTimedWidth, kTimedWidth, kTimedWidth});
}
Operand timed_gates() {
  return f32_of({kTimedTokens, kTimedRecurrenceHeads},
                [](int64_t i) { return -0.01 * static_cast<double>(i % 7); });
}
Operand timed_positions() {
  return i32_by(kTimedTokens, [](int64_t i) { return static_cast<double>(i % (kTimedTokens / 2)); });
}

constexpr std::string_view kOfContext = "on the context axis only, next to the recurrence itself";

}  // namespace

template <>
void cases<ops::Recurrence>(Cases& to) {
  for (const Recurring& one : recurring())
    to.add<ops::Recurrence>("recurrence" + one.name,
                            {.mixed = one.mixed(),
                             .g = one.g(),
                             .beta = one.beta(),
                             .skip = one.skip(),
                             .positions = one.positions()},
                            one.attrs(), {.ragged = one.ragged});
  for (const Recurring& one : in_pieces())
    to.add<ops::Recurrence>("recurrence" + one.name,
                            {.mixed = one.mixed(),
                             .g = one.g(),
                             .beta = one.beta(),
                             .positions = one.positions_of_piece(),
                             .before = one.states()},
                            one.attrs());
  to.time<ops::Recurrence>({.mixed = timed_mixed(),
                            .g = timed_gates(),
                            .beta = positive({kTimedTokens, kTimedRecurrenceHeads}),
                            .positions = timed_positions()},
                           kTimedRecurrence);
}

template <>
void cases<ops::RecurrenceGrad>(Cases& to) {
  for (const Recurring& one : recurring())
    to.add<ops::RecurrenceGrad>("recurrence_grad" + one.name,
                                {.dout = one.dout(),
                                 .mixed = one.mixed(),
                                 .g = one.g(),
                                 .beta = one.beta(),
                                 .skip = one.skip(),
                                 .positions = one.positions()},
                                one.attrs(), {.ragged = one.ragged});
  for (const Recurring& one : in_pieces())
    to.add<ops::RecurrenceGrad>("recurrence_grad" + one.name,
                                {.dout = one.dout(),
                                 .mixed = one.mixed(),
                                 .g = one.g(),
                                 .beta = one.beta(),
                                 .positions = one.positions_of_piece(),
                                 .before = one.states(),
                                 .dlast = one.states()},
                                one.attrs());
  to.time<ops::RecurrenceGrad>({.dout = timed_rows(),
                                .mixed = timed_mixed(),
                                .g = timed_gates(),
                                .beta = positive({kTimedTokens, kTimedRecurrenceHeads}),
                                .positions = timed_positions()},
                               kTimedRecurrence);
}

template <>
void cases<ops::RecurrenceSkipGrad>(Cases& to) {
  for (const Recurring& one : recurring()) {
    if (!one.delta())
      to.add<ops::RecurrenceSkipGrad>("recurrence_skip_grad" + one.name,
                                      {.dout = one.dout(), .mixed = one.mixed()}, one.attrs(),
                                      {.ragged = one.ragged});
  }
  to.untimed<ops::RecurrenceSkipGrad>(kPass);
}

template <>
void cases<ops::RecurrenceMap>(Cases& to) {
  for (const Recurring& one : in_pieces()) {
    for (const bool begins : {false, true})
      to.add<ops::RecurrenceMap>("recurrence_map" + one.name + (begins ? "_begins" : ""),
                                 {.mixed = one.mixed(),
                                  .g = one.g(),
                                  .beta = one.beta(),
                                  .positions = begins ? one.positions() : one.positions_of_piece()},
                                 one.attrs());
  }
  to.untimed<ops::RecurrenceMap>(kOfContext);
}

template <>
void cases<ops::RecurrenceStateGrad>(Cases& to) {
  for (const Recurring& one : in_pieces()) {
    for (const bool begins : {false, true})
      to.add<ops::RecurrenceStateGrad>("recurrence_state_grad" + one.name + (begins ? "_begins" : ""),
                                       {.dout = one.dout(),
                                        .mixed = one.mixed(),
                                        .g = one.g(),
                                        .beta = one.beta(),
                                        .positions = begins ? one.positions() : one.positions_of_piece()},
                                       one.attrs());
  }
  to.untimed<ops::RecurrenceStateGrad>(kOfContext);
}

template <>
void cases<ops::ComposeMaps>(Cases& to) {
  for (const Recurring& one : in_pieces())
    to.add<ops::ComposeMaps>("compose_maps" + one.name,
                             {.map = f32({kSequences * 3, one.value_heads * one.map_width()})}, [&] {
                               RecurrenceAttrs attrs = one.attrs();
                               attrs.pieces = 3;
                               return attrs;
                             }());
  to.untimed<ops::ComposeMaps>(kOfContext);
}

template <>
void cases<ops::ComposeStateGrads>(Cases& to) {
  for (const Recurring& one : in_pieces())
    to.add<ops::ComposeStateGrads>("compose_state_grads" + one.name,
                                   {.map = f32({kSequences * 2, one.value_heads * one.map_width()}),
                                    .dbefore = f32({kSequences * 2, one.value_heads * kKeys * kValues})},
                                   one.attrs());
  to.untimed<ops::ComposeStateGrads>(kOfContext);
}

template <>
void cases<ops::CachedRecurrence>(Cases& to) {
  for (const Recurring& one : recurring()) {
    if (one.sequences != kSequences) continue;  // four of the counts below
    const std::vector<int64_t> counts =
        one.length == 1 ? std::vector<int64_t>{1, 0, 1, 1} : std::vector<int64_t>{10, 0, 7, 1};
    to.add<ops::CachedRecurrence>("cached_recurrence" + one.name,
                                  {.mixed = one.mixed(),
                                   .g = one.g(),
                                   .beta = one.beta(),
                                   .skip = one.skip(),
                                   .cache = f32({7, one.value_heads * kKeys * kValues}),
                                   .position = i32_of({3, 0, 0, 5}),
                                   .slot = i32_of({4, 6, 0, 1}),
                                   .count = i32_of(counts)},
                                  one.attrs(), {.updates = {{"cache", "cache"}}, .ragged = one.ragged});
  }
  to.untimed<ops::CachedRecurrence>(kText);
}

}  // namespace strata::device
