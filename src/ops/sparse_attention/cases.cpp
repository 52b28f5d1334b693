#include "ops/cases.h"

#include <algorithm>

#include "ops/attention/case_operands.h"
#include "ops/sparse_attention/sparse_attention.h"

namespace strata::device {

using namespace op_rows;

namespace {

Operand i32_matrix(Shape shape, std::function<double(int64_t)> content) {
  return {.dtype = DType::kI32, .shape = shape, .content = std::move(content)};
}

// ±1/8, ±3/8 and ±5/8: dots of an odd number of columns are at least 1/64 away from the bend of relu.
Operand odd_eighths(Shape shape) {
  Operand operand = act(shape);
  operand.content = [](int64_t i) { return static_cast<double>(2 * ((i * 7 + i / 5 * 3) % 6) - 5) / 8; };
  return operand;
}

// Rows of sequences and the keys that they see.
struct Indexed {
  std::string name = {};
  int64_t sequences = heads::kSequences, length = heads::kLength, count = 3;
  int64_t heads = 4, size = 5;   // of the indexer
  bool documents = false;        // the second begins at a third of the keys
  bool ties = false;             // keys are equal in threes
  int64_t ranks = 1, rank = -1;  // rank -1: no constants
  bool ragged = false;

  int64_t rows() const { return sequences * length; }
  int64_t keys() const { return length * ranks; }  // of a sequence
  int64_t place(int64_t row) const {
    const int64_t i = row % length, piece = length / 2;
    if (ranks == 1) return i;
    return i < piece ? rank * piece + i : (2 * ranks - 1 - rank) * piece + i - piece;
  }
  int64_t begin_of(int64_t row) const {
    const int64_t second = (keys() + 2) / 3;
    return documents && place(row) >= second ? second : 0;
  }
  // Every third place, from 0 to 2 of them, is not chosen; the third row of a sequence sees nothing.
  int64_t chosen_at(int64_t row, int64_t i, int64_t count_of_keys) const {
    if (row % length == 2) return -1;
    int64_t left = i;
    for (int64_t j = begin_of(row); j <= place(row) && i < count_of_keys; ++j) {
      if ((j + row) % 3 == 0 && j != place(row)) continue;
      if (left-- == 0) return j;
    }
    return -1;
  }

  ops::IndexerAttrs attrs() const {
    return {.sequence_length = length, .kv_length = keys(), .count = count, .scale = 0.7, .ranks = ranks};
  }
  Operand q() const { return act({rows(), heads * size}); }
  Operand k() const {
    Operand keys_of = act({sequences * keys(), size});
    if (ties)
      keys_of.content = [size = size](int64_t i) {
        return static_cast<double>((i / size / 3 * 5 + i % size * 7) % 11 - 5) / 8;
      };
    return keys_of;
  }
  Operand weights() const {
    return f32_of({rows(), heads}, [](int64_t i) { return 0.9 - 0.31 * static_cast<double>(i * 5 % 7); });
  }
  OptionalOperand kv_begin() const {
    if (!documents) return {};
    return i32_by(rows(), [one = *this](int64_t row) { return static_cast<double>(one.begin_of(row)); });
  }
  OptionalOperand rank_block() const {
    if (rank < 0) return {};
    return rank_at({{Axis::kShard, 7}, {Axis::kContext, rank}});
  }
  Operand chosen() const {
    return i32_matrix({rows(), count}, [one = *this](int64_t i) {
      return static_cast<double>(one.chosen_at(i / one.count, i % one.count, one.count));
    });
  }
  Operand targets() const {
    return i32_by(rows(), [](int64_t row) { return row % 5 == 3 ? -1.0 : 4.0; });
  }
};

std::vector<Indexed> indexed() {
  return {{.name = ""},
          {.name = "_documents", .documents = true},
          {.name = "_ties", .ties = true},
          {.name = "_all", .count = 9, .documents = true},
          {.name = "_first_rank", .documents = true, .ranks = 3, .rank = 0},
          {.name = "_inner_rank", .count = 7, .ranks = 3, .rank = 2},
          {.name = "_one_rank", .count = 2, .rank = 0},
          {.name = "_long",
           .sequences = 1,
           .length = 131,
           .count = 37,
           .heads = 5,
           .size = 19,
           .documents = true,
           .ragged = true},
          {.name = "_row", .sequences = 3, .length = 1, .count = 2, .heads = 1, .size = 3, .ragged = true}};
}

constexpr int64_t kTimedChosen = 128, kTimedIndexHeads = 4, kTimedIndexSize = 64;
constexpr ops::IndexerAttrs kTimedIndexer{
    .sequence_length = kTimedTokens, .kv_length = kTimedTokens, .count = kTimedChosen, .scale = 0.125};
Operand timed_index_rows(int64_t of_heads = kTimedIndexHeads) {
  return timed_rows(of_heads * kTimedIndexSize);
}
Operand timed_index_weights() {
  return f32({kTimedTokens, kTimedIndexHeads});
}
// Spread over all keys before the row.
Operand timed_chosen() {
  return i32_matrix({kTimedTokens, kTimedChosen}, [](int64_t i) {
    const int64_t keys = i / kTimedChosen + 1, at = i % kTimedChosen;
    if (keys <= kTimedChosen) return at < keys ? static_cast<double>(at) : -1.0;
    return static_cast<double>(at * keys / kTimedChosen);
  });
}

}  // namespace

template <>
void cases<ops::SelectKeys>(Cases& to) {
  for (const Indexed& one : indexed())
    to.add<ops::SelectKeys>("select_keys" + one.name,
                            {.q = one.q(),
                             .k = one.k(),
                             .weights = one.weights(),
                             .kv_begin = one.kv_begin(),
                             .rank = one.rank_block()},
                            one.attrs(), {.ragged = one.ragged});
  to.time<ops::SelectKeys>(
      {.q = timed_index_rows(), .k = timed_index_rows(1), .weights = timed_index_weights()}, kTimedIndexer);
}

template <>
void cases<ops::CachedSelectKeys>(Cases& to) {
  constexpr int64_t kEntries = 7, kCapacity = 30;
  const auto add = [&](const std::string& name, int64_t length, int64_t count,
                       const std::vector<int64_t>& positions) {
    const Indexed one{.length = length, .count = count};
    to.add<ops::CachedSelectKeys>("cached_select_keys" + name,
                                  {.q = one.q(),
                                   .k = act({one.rows(), one.size}),
                                   .weights = one.weights(),
                                   .cache = act({kEntries, kCapacity, one.size}),
                                   .position = i32_of(positions),
                                   .slot = i32_of({4, 6, 0, 1})},
                                  one.attrs(), {.updates = {{"cache", "cache"}}, .replicated_only = true});
  };
  add("", heads::kLength, 4, {3, 0, 6, 24});
  add("_of_one_token", 1, 5, {29, 0, 6, 4});
  add("_all", heads::kLength, 40, {3, 0, 6, 24});
  to.untimed<ops::CachedSelectKeys>(kText);
}

namespace {

// Heads of attention to chosen keys.
struct Sparse {
  Indexed rows = {};
  std::string name = {};
  int64_t kv_heads = heads::kKv / heads::kHeadDim, value_dim = 0;
  int64_t query_heads = heads::kHeads, head_dim = heads::kHeadDim;
  bool mass = true;

  int64_t value_size() const { return value_dim > 0 ? value_dim : head_dim; }
  ops::SparseAttentionAttrs attrs() const {
    return {.head_dim = head_dim,
            .value_dim = value_dim,
            .sequence_length = rows.length,
            .kv_length = rows.keys(),
            .scale = 0.3,
            .mass = mass};
  }
  Operand q() const { return act({rows.rows(), query_heads * head_dim}); }
  Operand kv() const {
    const int64_t k = kv_heads * head_dim, v = kv_heads * value_size();
    return act({rows.sequences * rows.keys(), k + v}, {k, v});
  }
  Operand out() const { return act({rows.rows(), query_heads * value_size()}); }
  Operand lse() const {
    return f32_of({rows.sequences, query_heads, rows.length},
                  [](int64_t i) { return 2.5 + 0.1 * static_cast<double>(i % 7); });
  }
};

std::vector<Sparse> sparse_forms() {
  const Indexed ranks{.count = 8, .ranks = 3, .rank = 1};
  return {{},
          {.name = "_without_mass", .mass = false},
          {.rows = {.documents = true}, .name = "_narrow_values", .value_dim = 6},
          {.rows = {.count = 9}, .name = "_all_wide_values", .kv_heads = 8, .value_dim = 12},
          {.rows = ranks, .name = "_rank"},
          {.rows = {.sequences = 1, .length = 131, .count = 37, .ragged = true},
           .name = "_long",
           .kv_heads = 1,
           .value_dim = 17,
           .query_heads = 3,
           .head_dim = 21},
          {.rows = {.sequences = 3, .length = 1, .count = 2, .ragged = true},
           .name = "_row",
           .kv_heads = 1,
           .query_heads = 1,
           .head_dim = 5}};
}

constexpr ops::SparseAttentionAttrs kTimedSparse{.head_dim = heads::kTimedHeadDim,
                                                 .sequence_length = kTimedTokens,
                                                 .kv_length = kTimedTokens,
                                                 .scale = 0.125};
Operand timed_sparse_keys() {
  return act({kTimedTokens, 2 * kTimedKvWidth}, {kTimedKvWidth, kTimedKvWidth});
}

}  // namespace

template <>
void cases<ops::SparseAttention>(Cases& to) {
  for (const Sparse& one : sparse_forms())
    to.add<ops::SparseAttention>("sparse_attention" + one.name,
                                 {.q = one.q(), .kv = one.kv(), .chosen = one.rows.chosen()}, one.attrs(),
                                 {.ragged = one.rows.ragged});
  to.time<ops::SparseAttention>({.q = timed_rows(), .kv = timed_sparse_keys(), .chosen = timed_chosen()},
                                kTimedSparse);
}

template <>
void cases<ops::SparseAttentionGrad>(Cases& to) {
  for (const Sparse& one : sparse_forms())
    to.add<ops::SparseAttentionGrad>("sparse_attention_grad" + one.name,
                                     {.dout = one.out(),
                                      .out = one.out(),
                                      .lse = one.lse(),
                                      .q = one.q(),
                                      .kv = one.kv(),
                                      .chosen = one.rows.chosen()},
                                     one.attrs(), {.ragged = one.rows.ragged});
  to.time<ops::SparseAttentionGrad>({.dout = timed_rows(),
                                     .out = timed_rows(),
                                     .lse = f32({1, heads::kTimedHeads, kTimedTokens}),
                                     .q = timed_rows(),
                                     .kv = timed_sparse_keys(),
                                     .chosen = timed_chosen()},
                                    kTimedSparse);
}

namespace {

// Cases of the loss, or of its gradient: over chosen keys and over all.
template <typename Op>
void add_loss_cases(Cases& to, const std::string& name) {
  using Given = typename Op::template In<Sample>;
  for (const Indexed& one : indexed()) {
    if (one.ties) continue;  // only of the choice
    Given in{};
    in.q = odd_eighths(one.q().shape);
    in.k = odd_eighths(one.k().shape);
    in.weights = one.weights();
    in.targets = one.targets();
    in.kv_begin = one.kv_begin();
    in.rank = one.rank_block();
    Given dense = in;
    in.chosen = one.chosen();
    // Some are 0; entries of -1 do not count.
    in.mass = constant(
        f32_of({one.rows(), one.count}, [](int64_t i) { return 0.4 * static_cast<double>(i * 3 % 5); }));
    const ops::IndexerLossAttrs attrs{.indexer = one.attrs(), .coefficient = 0.6};
    to.add<Op>(name + one.name, in, attrs, {.ragged = one.ragged});
    if (one.count > one.keys()) continue;
    const Sparse main{.rows = one, .kv_heads = one.heads == 4 ? 2 : 1, .query_heads = 4, .head_dim = 5};
    dense.main_q = constant(main.q());
    dense.main_kv = constant(main.kv());
    dense.main_lse = constant(main.lse());
    ops::IndexerLossAttrs whole = attrs;
    whole.head_dim = main.head_dim;
    whole.main_scale = 0.4;
    to.add<Op>(name + "_dense" + one.name, dense, whole, {.ragged = one.ragged});
    if constexpr (requires { dense.seed; }) {
      dense.seed = f32_of({1}, [](int64_t) { return 32.0; });
      to.add<Op>(name + "_dense_seeded" + one.name, dense, whole, {.ragged = one.ragged});
    }
  }
  Given timed{};
  timed.q = timed_index_rows();
  timed.k = timed_index_rows(1);
  timed.weights = timed_index_weights();
  timed.targets = zeros({kTimedTokens}, DType::kI32);
  timed.chosen = timed_chosen();
  timed.mass = positive({kTimedTokens, kTimedChosen});
  to.time<Op>(timed, {.indexer = kTimedIndexer});
}

}  // namespace

template <>
void cases<ops::IndexerLoss>(Cases& to) {
  add_loss_cases<ops::IndexerLoss>(to, "indexer_loss");
}

template <>
void cases<ops::IndexerLossGrad>(Cases& to) {
  add_loss_cases<ops::IndexerLossGrad>(to, "indexer_loss_grad");
}

}  // namespace strata::device
