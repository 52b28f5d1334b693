#include "ops/statistics/statistics.h"

#include <algorithm>

#include "ops/rules.h"

namespace strata::ops {
namespace {

// The cost while the group is off, as in most steps.
Cost cost_of_load() {
  return {0, sizeof(int64_t)};
}

template <typename Op>
void require_mask(const View<Op>& node) {
  require(node, node.in.mask->shape == Shape{1}, "the mask must be i64[1]");
}

}  // namespace

const OpDef Statistics::def = define<Statistics>({
    .name = "statistics",
    .family = "statistics",
    .infer = [](const auto& node) -> Outputs<Statistics> {
      const Value& x = *node.in.x;
      require_mask(node);
      require(node, x.dtype == DType::kF32 || x.dtype == DType::kBF16 || x.dtype == DType::kF16,
              "x must be fp32, bf16 or fp16");
      const auto& [group, part, row, largest, first] = node.attrs;
      const bool by_columns = part >= 0 || row > 0;
      require(node, !by_columns || x.shape.rank() > 0, "a number has no columns");
      require(node,
              part < 0 || (x.segment_dim() == x.shape.rank() - 1 &&
                           part < static_cast<int64_t>(std::max<size_t>(1, x.segments.size()))),
              "the columns have no such part");
      if (row > 0) {
        const int64_t columns =
            part >= 0 ? x.parts(x.shape.rank() - 1)[static_cast<size_t>(part)] : x.shape[x.shape.rank() - 1];
        require(node, columns % row == 0, "rows must divide the columns");
      }
      return {.table = {DType::kF64, {kStatisticsNumbers}}};
    },
    .cost = [](const auto&) { return cost_of_load(); },
});

const OpDef TakeSample::def = define<TakeSample>({
    .name = "take_sample",
    .family = "statistics",
    .infer = [](const auto& node) -> Outputs<TakeSample> {
      require_mask(node);
      return {.sample = {DType::kF32, {std::min(kMostSampled, node.in.x->shape.elements())}}};
    },
    .cost = [](const auto&) { return cost_of_load(); },
});

const OpDef SampleChange::def = define<SampleChange>({
    .name = "sample_change",
    .family = "statistics",
    .infer = [](const auto& node) -> Outputs<SampleChange> {
      require_mask(node);
      require(node, node.in.sample->shape == Shape{std::min(kMostSampled, node.in.x->shape.elements())},
              "the sample must be of x");
      return {.table = {DType::kF64, {kStatisticsNumbers}}};
    },
    .cost = [](const auto&) { return cost_of_load(); },
});

const OpDef SquaresAndDigests::def = define<SquaresAndDigests>({
    .name = "squares_and_digests",
    .family = "update",
    .infer = [](const auto& node) -> Outputs<SquaresAndDigests> {
      const int64_t blocks = (node.in.x->shape.elements() + kDigestBlock - 1) / kDigestBlock;
      return {.partials = {DType::kF64, {blocks}}, .digests = {DType::kI64, {blocks}}};
    },
    .cost = [](const auto& node) { return streamed(node, 2); },
});

const OpDef JoinDigests::def = define<JoinDigests>({
    .name = "join_digests",
    .family = "update",
    .infer = [](const auto&) -> Outputs<JoinDigests> {
      return {.digest = {DType::kI64, {1}}};
    },
    .cost = [](const auto& node) { return streamed(node, 2); },
});

}  // namespace strata::ops
