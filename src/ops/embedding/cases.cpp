#include <tuple>

#include "ops/cases.h"
#include "ops/embedding/embedding.h"

namespace strata::device {

using namespace op_rows;

namespace {

// Parts of a vocabulary: all four, of which ranks have some, and two that do not begin with it.
struct EmbeddingParts {
  std::string name;
  int64_t count, begin;

  Operand starts() const {
    const int64_t first = begin;
    return i32_by(count, [first](int64_t part) { return static_cast<double>(first + 4 * part); });
  }
};
std::vector<EmbeddingParts> embedding_parts(const Sizes& s) {
  if (!s.ragged) return {{"_parts", 4, 0}};
  return {{"_parts", 4, 0}, {"_some_parts", 2, 7}};
}

}  // namespace

template <>
void cases<ops::Embedding>(Cases& to) {
  const ops::EmbeddingAttrs attrs{.scale = 2.5};
  for (const Sizes& s : Cases::sizes()) {
    const Operand tokens = i32(s.rows, 13), table = f32({13, s.width});
    const auto add = [&](const std::string& name, const ops::Embedding::In<Sample>& in) {
      to.add<ops::Embedding>("embedding" + name + s.name, in, attrs, {.ragged = s.ragged});
    };
    add("", {.tokens = tokens, .table = table});
    add("_positions",
        {.tokens = tokens, .table = table, .positions = i32(s.rows, 6), .position_table = f32({6, s.width})});
    for (const EmbeddingParts& parts : embedding_parts(s))
      add(parts.name, {.tokens = i32(s.rows, 16),
                       .table = f32({4 * parts.count, s.width}),
                       .vocab_start = parts.starts()});
  }
  to.time<ops::Embedding>({.tokens = timed_ids(kTimedTokens), .table = f32({kTimedVocabulary, kTimedWidth})});
}

template <>
void cases<ops::EmbeddingGrad>(Cases& to) {
  for (const Sizes& s : Cases::sizes()) {
    const Operand dy = act({s.rows, s.width}), tokens = i32(s.rows, 13);
    to.add<ops::EmbeddingGrad>("embedding_grad" + s.name, {.dy = dy, .ids = tokens},
                               {.rows = 13, .scale = 2.5}, {.ragged = s.ragged});
    to.add<ops::EmbeddingGrad>("embedding_grad_padding" + s.name, {.dy = dy, .ids = tokens},
                               {.rows = 13, .padding_id = 7}, {.ragged = s.ragged});
    for (const EmbeddingParts& parts : embedding_parts(s))
      to.add<ops::EmbeddingGrad>("embedding_grad" + parts.name + s.name,
                                 {.dy = dy, .ids = i32(s.rows, 16), .vocab_start = parts.starts()},
                                 {.rows = 16, .scale = 2.5, .padding_id = 9, .rows_of_part = 4},
                                 {.ragged = s.ragged});
  }
  to.time<ops::EmbeddingGrad>({.dy = timed_rows(), .ids = timed_ids(kTimedTokens, kTimedTokens)},
                              {.rows = kTimedTokens});
}

}  // namespace strata::device
