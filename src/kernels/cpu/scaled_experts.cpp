#include "kernels/cpu/scaled_experts.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/bf16_block.h"
#include "kernels/cpu/bf16_dot.h"
#include "kernels/cpu/experts_run.h"
#include "kernels/cpu/parts.h"
#include "quantize/quantizer.h"
#include "tensor/arena.h"

namespace strata::cpu {
namespace {

using detail::BlockOutput;
using detail::CodedOperand;
using detail::DecodedOperand;
using detail::divide_up;
using detail::ExpertsGradBlock;
using detail::ExpertsRows;
using detail::ExpertsRun;
using detail::kEdgeDepth;
using detail::SumScales;
using quantize::kWhole;
using quantize::ScaleRule;
using Role = ExpertsRole;

constexpr int64_t kGroup = kEdgeDepth;  // pairs that a weight gradient quantises together
constexpr int64_t kTileColumns = 128;   // of a group at a time

bool is_forward(Role role) {
  return role == Role::kIn || role == Role::kOut;
}
bool a_by_slot(Role role) {
  return role == Role::kInGradInput || role == Role::kInGradWeight || role == Role::kOut;
}

CodedOperand a_of(const ScaledExpertsSpec& s) {
  const ExpertsSpec& e = s.experts;
  const int64_t rows = a_by_slot(e.role) ? e.all_slots() : e.tokens;
  if (detail::is_weight_grad(e.role))
    return {{s.a, !s.a_along_pairs}, s.a_along_pairs ? rows : e.outputs, s.a_along_pairs ? e.outputs : rows};
  return {{s.a}, rows, detail::depth_of(e)};
}
CodedOperand b_of(const ScaledExpertsSpec& s) {
  const ExpertsSpec& e = s.experts;
  if (detail::is_weight_grad(e.role)) {
    const int64_t rows = a_by_slot(e.role) ? e.tokens : e.all_slots();
    return {{s.b, !s.b_along_pairs}, s.b_along_pairs ? rows : e.inputs, s.b_along_pairs ? e.inputs : rows};
  }
  if (is_forward(e.role)) return {{s.b}, e.experts * e.outputs, e.inputs};
  return {{s.b, !s.b_along_columns}, e.inputs, e.experts * e.outputs};
}

void check(const ScaledExpertsSpec& s) {
  detail::check_experts(s.experts);
  const bool grads_weight = detail::is_weight_grad(s.experts.role);
  STRATA_CHECK(
      (!s.hadamard && !s.stochastic) || (s.a_along_pairs && s.b_along_pairs),
      "[scaled_experts] only groups of pairs that are quantised again pass a transform or random bits");
  STRATA_CHECK(!s.b_along_columns || (!grads_weight && !is_forward(s.experts.role)),
               "[scaled_experts] only input gradients read a weight along columns");
  for (const auto& [rule, along] : {std::pair{s.a, s.a_along_pairs}, {s.b, s.b_along_pairs}}) {
    STRATA_CHECK(!along || grads_weight, "[scaled_experts] only weight gradients quantise along pairs");
    if (!grads_weight) continue;
    const bool whole = rule.block() == quantize::BlockShape{kWhole, kWhole};
    STRATA_CHECK(
        along || whole,
        "[scaled_experts] a weight gradient reads scales along rows: expected a rule for its groups of pairs");
    if (!along) continue;
    const quantize::BlockShape block = along->block();
    STRATA_CHECK(block.rows == 1 && (block.columns <= kGroup || block.columns == kWhole),
                 "[scaled_experts] groups of pairs have blocks of {} x {}: expected rows of at most {}",
                 block.rows, block.columns, kGroup);
    STRATA_CHECK(
        along->needs() != ScaleRule::Needs::kTensor || rule.needs() == ScaleRule::Needs::kTensor,
        "[scaled_experts] groups of pairs need the tensor's greatest magnitude, which its rule does not have");
  }
}

// The depth from `deep` to the next change of an operand's edge factors.
int64_t until_edge(const CodedOperand& operand, int64_t deep) {
  return operand.edges_change ? kEdgeDepth - deep % kEdgeDepth : kWhole;
}

// Panels of fp32 or in VNNI layout.
struct FloatPanels {
  using Value = float;
  static int64_t values(int64_t depth, int64_t width) { return depth * width; }
  static constexpr auto multiply = detail::multiply_block_scaled;
};
struct PairPanels {
  using Value = BF16;
  static int64_t values(int64_t depth, int64_t width) { return detail::panel_values(depth, width); }
  static constexpr auto multiply = detail::multiply_pairs_scaled;
};

template <typename Panels>
void multiply_rows(const ScaledExpertsPlan& plan, const ExpertsRun& run, const DecodedOperand& a,
                   const DecodedOperand& b, const ExpertsRows& rows, int64_t worker) {
  using Value = typename Panels::Value;
  const ExpertsSpec& spec = run.spec;
  const auto [mr, nr] = run.plan.shape;
  const bool forward = is_forward(spec.role);
  const int64_t depth = detail::depth_of(spec), of_expert = rows.expert * spec.outputs;
  // Where the expert's part of w begins.
  const int64_t first_col = (forward ? of_expert : 0) + rows.col, first_deep = forward ? 0 : of_expert;
  auto* const a_panels = reinterpret_cast<Value*>(run.a_of(worker));
  auto* const b_panels = reinterpret_cast<Value*>(run.b_of(worker));
  int64_t deep = 0;
  do {  // at least once: without depth the result is zero
    const int64_t now = std::min(
        {run.plan.depth_step, depth - deep, until_edge(plan.a, deep), until_edge(plan.b, first_deep + deep)});
    b.pack(b_panels, nr, nullptr, first_col, rows.cols, first_deep + deep, now);
    const float* const a_edges = a.edges(deep);
    for (int64_t first = 0; first < rows.count; first += detail::kExpertRowStep) {
      const int64_t count = std::min(detail::kExpertRowStep, rows.count - first);
      const int32_t* const lines = rows.of_a + first;
      a.pack(a_panels, mr, lines, 0, count, deep, now);
      float scales[detail::kExpertRowStep];
      for (int64_t i = 0; i < count; ++i) scales[i] = a_edges[lines[i]];
      const BlockOutput out{.data = rows.to + (rows.of_c == nullptr ? first * rows.stride : 0),
                            .stride = rows.stride,
                            .accumulate = rows.accumulate || deep > 0};
      Panels::multiply(out, rows.of_c == nullptr ? nullptr : rows.of_c + first,
                       SumScales{scales, b.edges(first_deep + deep) + first_col}, a_panels,
                       Panels::values(now, mr), b_panels, Panels::values(now, nr), count, rows.cols, now,
                       nullptr);
    }
    deep += now;
  } while (deep < depth);
}

// How an operand's groups are treated before they are rounded.
struct GroupTreatment {
  const std::optional<ScaleRule>& along;
  std::optional<quantize::HadamardSigns> hadamard;
  std::optional<quantize::StochasticBits> stochastic;
  const RowPlaces& places;
};

// An operand of a weight gradient, [pairs, columns] by the rows of `lines`, in groups of pairs.
class GroupedOperand {
 public:
  GroupedOperand(const CodedOperand& coded, const ScaledMatrix& matrix, const int32_t* lines,
                 const GroupTreatment& treatment, const detail::RegroupedPlan& groups, std::byte* scratch,
                 void* scales)
      : source_(coded, matrix, scales),
        matrix_(matrix),
        lines_(lines),
        treatment_(treatment),
        along_(treatment.along),
        columns_(along_ ? coded.depth : coded.count),
        groups_(groups),
        scratch_(scratch) {
    if (!along_) source_.prepare();
  }

  // Tiles of columns that have to be quantised before packing.
  int64_t tiles() const { return along_ ? divide_up(columns_, kTileColumns) : 0; }
  // Quantises one tile of a group: pairs [at, at + count).
  void quantize_tile(int64_t group, int64_t at, int64_t count, int64_t tile) const {
    const int64_t first = tile * kTileColumns, columns = std::min(kTileColumns, columns_ - first);
    alignas(kBufferAlignment) float values[kGroup * kTileColumns];
    for (int64_t p = 0; p < count; ++p)
      source_.values(lines_[at + p], first, columns, values + p * kTileColumns);
    const auto layout = layout_of(*along_, columns_, count);
    const ScaledMatrix to = matrix_of(group);
    auto* const codes = static_cast<std::byte*>(const_cast<void*>(to.codes)) + first * layout.code_row_bytes;
    auto* const scales = static_cast<std::byte*>(const_cast<void*>(to.scales)) +
                         first * layout.scale_columns * size_of(layout.scale_type);
    quantize::Source source{.data = values, .rows = count, .columns = columns, .stride = kTileColumns};
    int32_t places[2 * kGroup];
    std::vector<quantize::ColumnRun> runs;
    if (treatment_.stochastic) {
      place_tile(at, count, first, columns, places, runs);
      source.places = places;
      source.pitch = treatment_.places.pitch;
      source.runs = runs;
      if (treatment_.places.runs.empty()) source.first = first;
    }
    const quantize::Treatment treatment{*along_, treatment_.stochastic, treatment_.hadamard};
    float of_columns[kTileColumns];
    const bool by_column = along_->needs() == ScaleRule::Needs::kRows;
    if (by_column) {
      quantize::find_greatest(source, treatment, quantize::Along::kColumns, of_columns);
      if (along_->is_nvfp4_by_row()) std::copy_n(of_columns, columns, greatest_of(group) + first);
    }
    quantize::quantize(source, std::nullopt,
                       quantize::Request{.treatment = treatment,
                                         .to = {codes, scales},
                                         .greatest = by_column ? of_columns : matrix_.greatest});
    const CodedOperand coded({*along_}, columns_, count);
    DecodedOperand(coded, to, edges_of(group)).prepare(first, first + columns);
  }

  // Packs columns [first, first + count) of a group of `depth` pairs, and returns their edge factors.
  template <typename T>
  const float* pack(T* to, int64_t panel, int64_t group, int64_t at, int64_t depth, int64_t first,
                    int64_t count) const {
    if (!along_) {
      source_.pack(to, panel, lines_ + at, first, count, 0, depth);
      return source_.edges(0) + first;
    }
    const CodedOperand coded({*along_}, columns_, depth);
    const ScaledMatrix matrix = matrix_of(group);
    const DecodedOperand operand(coded, matrix, edges_of(group));
    operand.pack(to, panel, nullptr, first, count, 0, depth);
    return operand.edges(0) + first;
  }

 private:
  // Places of a group's rows, and the tile's part of the runs of columns.
  void place_tile(int64_t at, int64_t count, int64_t first, int64_t columns, int32_t* places,
                  std::vector<quantize::ColumnRun>& runs) const {
    STRATA_CHECK(treatment_.places.places != nullptr, "[scaled_experts] rows without places");
    for (int64_t p = 0; p < count; ++p)
      std::copy_n(treatment_.places.places + 2 * int64_t{lines_[at + p]}, 2, places + 2 * p);
    const auto all = treatment_.places.runs;
    for (size_t i = 0; i < all.size(); ++i) {
      const int64_t begin = std::max(all[i].begin, first),
                    end = i + 1 < all.size() ? all[i + 1].begin : columns_;
      if (begin < std::min(end, first + columns))
        runs.push_back({begin - first, all[i].number + begin - all[i].begin});
    }
  }

  ScaledMatrix matrix_of(int64_t group) const {
    return {.codes = scratch_ + groups_.codes_at + group * groups_.codes_bytes,
            .scales = scratch_ + groups_.scales_at + group * groups_.scales_bytes,
            .greatest = along_->is_nvfp4_by_row() ? greatest_of(group) : matrix_.greatest};
  }
  float* greatest_of(int64_t group) const {
    return reinterpret_cast<float*>(scratch_ + groups_.greatest_at + group * groups_.greatest_bytes);
  }
  std::byte* edges_of(int64_t group) const {
    return scratch_ + groups_.edges_at + group * groups_.edges_bytes;
  }

  DecodedOperand source_;
  const ScaledMatrix& matrix_;
  const int32_t* lines_;
  GroupTreatment treatment_;
  const std::optional<ScaleRule>& along_;
  int64_t columns_;
  const detail::RegroupedPlan& groups_;
  std::byte* scratch_;
};

// Quantises all groups of both operands along their pairs.
void quantize_groups(const ExpertsRun& run, const int32_t* first_group, const GroupedOperand& a,
                     const GroupedOperand& b) {
  const int32_t* const begins = run.begins(0);
  const int64_t experts = run.spec.experts, tiles = a.tiles() + b.tiles();
  parallel_for(first_group[experts] * tiles, [&](int64_t task) {
    const int64_t group = task / tiles, tile = task % tiles;
    const int64_t expert =
        std::upper_bound(first_group, first_group + experts + 1, static_cast<int32_t>(group)) - first_group -
        1;
    const int64_t at = begins[expert] + (group - first_group[expert]) * kGroup;
    const int64_t count = std::min<int64_t>(kGroup, begins[expert + 1] - at);
    if (tile < a.tiles()) return a.quantize_tile(group, at, count, tile);
    b.quantize_tile(group, at, count, tile - a.tiles());
  });
}

template <typename Panels>
void multiply_block(const ExpertsRun& run, const int32_t* first_group, const GroupedOperand& a,
                    const GroupedOperand& b, const ExpertsGradBlock& block, int64_t worker) {
  using Value = typename Panels::Value;
  const auto [mr, nr] = run.plan.shape;
  const int32_t* const begins = run.begins(0);
  auto* const a_panels = reinterpret_cast<Value*>(run.a_of(worker));
  auto* const b_panels = reinterpret_cast<Value*>(run.b_of(worker));
  bool accumulate = run.spec.accumulate;
  int64_t group = first_group[block.expert];
  for (int64_t at = begins[block.expert]; at < begins[block.expert + 1]; at += kGroup, ++group) {
    const int64_t depth = std::min<int64_t>(kGroup, begins[block.expert + 1] - at);
    const SumScales scales{a.pack(a_panels, mr, group, at, depth, block.row, block.rows),
                           b.pack(b_panels, nr, group, at, depth, block.col, block.cols)};
    const BlockOutput out{.data = block.to, .stride = run.spec.inputs, .accumulate = accumulate};
    Panels::multiply(out, nullptr, scales, a_panels, Panels::values(depth, mr), b_panels,
                     Panels::values(depth, nr), block.rows, block.cols, depth, nullptr);
    accumulate = true;
  }
}

template <typename Panels>
void run_with(const ScaledExpertsPlan& plan, const ExpertsRun& run, const ScaledMatrix& a, const int32_t* ids,
              const ScaledMatrix& b, const RowPlaces& places, std::byte* scratch) {
  const Role role = run.spec.role;
  if (!detail::is_weight_grad(role)) {
    const DecodedOperand of_a(plan.a, a, scratch + plan.a_scales_at),
        of_b(plan.b, b, scratch + plan.b_scales_at);
    of_a.prepare();
    of_b.prepare();
    return run_expert_rows(run, ids, [&](const ExpertsRows& rows, int64_t worker) {
      multiply_rows<Panels>(plan, run, of_a, of_b, rows, worker);
    });
  }
  const bool slots_of_a = a_by_slot(role);
  const ScaledExpertsSpec& spec = plan.spec;
  const GroupedOperand of_a(plan.a, a, slots_of_a ? run.order.slots : run.order.token_of,
                            {spec.a_along_pairs, spec.hadamard, spec.stochastic, places}, plan.a_groups,
                            scratch, scratch + plan.a_scales_at);
  const GroupedOperand of_b(plan.b, b, slots_of_a ? run.order.token_of : run.order.slots,
                            {spec.b_along_pairs, spec.hadamard, {}, places}, plan.b_groups, scratch,
                            scratch + plan.b_scales_at);
  auto* const first_group = reinterpret_cast<int32_t*>(scratch + plan.groups_at);
  const int32_t* const begins = run.begins(0);
  first_group[0] = 0;
  for (int64_t e = 0; e < run.spec.experts; ++e)
    first_group[e + 1] = first_group[e] + static_cast<int32_t>(divide_up(begins[e + 1] - begins[e], kGroup));
  quantize_groups(run, first_group, of_a, of_b);
  run_expert_grads(run, [&](const ExpertsGradBlock& block, int64_t worker) {
    multiply_block<Panels>(run, first_group, of_a, of_b, block, worker);
  });
}

}  // namespace

ScaledExpertsPlan plan_scaled_experts(const ScaledExpertsSpec& spec, const hardware::DeviceSpec& device) {
  check(spec);
  ScaledExpertsPlan plan{
      .spec = spec, .run = {}, .a = a_of(spec), .b = b_of(spec), .a_groups = {}, .b_groups = {}};
  const ExpertsSpec& experts = spec.experts;
  const bool grads_weight = detail::is_weight_grad(experts.role);
  plan.run.spec = experts;
  plan.run.pairs = detail::multiplies_pairs_fast(device.isa);
  plan.run.shape = plan.run.pairs ? detail::kPairPanels : detail::panel_shape_of(device.isa);
  const bool edges_change = plan.a.edges_change || plan.b.edges_change;
  detail::plan_experts_run(
      plan.run, {.depth_step = grads_weight || edges_change ? kEdgeDepth : 0, .packs_a = true}, device);
  int64_t at = align_up(plan.run.scratch_bytes, kBufferAlignment);
  const auto take = [&](int64_t bytes) {
    const int64_t place = at;
    at += align_up(bytes, kBufferAlignment);
    return place;
  };
  plan.a_scales_at = take(spec.a_along_pairs ? 0 : plan.a.scratch_bytes);
  plan.b_scales_at = take(spec.b_along_pairs ? 0 : plan.b.scratch_bytes);
  if (grads_weight) {
    plan.groups_at = take((experts.experts + 1) * int64_t{sizeof(int32_t)});
    // Of every expert with pairs, one group may be shorter.
    const int64_t slots = experts.all_slots(), groups = slots / kGroup + std::min(experts.experts, slots);
    const auto plan_groups = [&](const std::optional<ScaleRule>& along,
                                 int64_t columns) -> detail::RegroupedPlan {
      if (!along) return {};
      const CodedOperand group({*along}, columns, kGroup);
      detail::RegroupedPlan made{.codes_bytes = align_up(group.layout.code_bytes(), kBufferAlignment),
                                 .scales_bytes = align_up(group.layout.scale_bytes(), kBufferAlignment),
                                 .edges_bytes = align_up(group.scratch_bytes, kBufferAlignment)};
      if (along->is_nvfp4_by_row())
        made.greatest_bytes = align_up(columns * int64_t{sizeof(float)}, kBufferAlignment);
      made.codes_at = take(groups * made.codes_bytes);
      made.scales_at = take(groups * made.scales_bytes);
      made.edges_at = take(groups * made.edges_bytes);
      made.greatest_at = take(groups * made.greatest_bytes);
      return made;
    };
    plan.a_groups = plan_groups(spec.a_along_pairs, experts.outputs);
    plan.b_groups = plan_groups(spec.b_along_pairs, experts.inputs);
  }
  plan.scratch_bytes = at;
  return plan;
}

void run_scaled_experts(const ScaledExpertsPlan& plan, const ScaledMatrix& a, const int32_t* ids,
                        const int32_t* offsets, const ScaledMatrix& b, void* c, void* scratch,
                        const RowPlaces& places) {
  const ExpertsRun run = detail::start_experts(plan.run, nullptr, ids, offsets, nullptr, c, scratch);
  auto* const memory = static_cast<std::byte*>(scratch);
  if (plan.run.pairs) return run_with<PairPanels>(plan, run, a, ids, b, places, memory);
  run_with<FloatPanels>(plan, run, a, ids, b, places, memory);
}

}  // namespace strata::cpu
