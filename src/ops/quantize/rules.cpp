#include "ops/rules.h"
#include "ops/quantize/quantize.h"

#include <algorithm>
#include <utility>

namespace strata::ops {

using quantize::Format;
using quantize::ScaleRule;

namespace {

// Apart from the streams of other ops, which count layers.
constexpr uint32_t kStreamOfSigns = 0x51a40000u, kStreamOfRounding = 0x51a50000u;

}  // namespace

Placement placement_of_scales(const ScaleRule& rule, int dim) {
  const int64_t extent = dim == 0 ? rule.block().rows : rule.block().columns;
  return extent == quantize::kWhole ? kR : Placement::sharded(dim);
}

quantize::HadamardSigns hadamard_signs() {
  return quantize::hadamard_signs({.stream = kStreamOfSigns}, 0);
}

quantize::StochasticBits stochastic_bits(const QuantizeAttrs& attrs, bool along_columns) {
  return {.key = {.stream =
                      kStreamOfRounding + static_cast<uint32_t>(2 * attrs.stream + (along_columns ? 1 : 0))}};
}

void cut_columns(QuantizeAttrs& attrs, const graph::Value& x, const graph::Mesh& mesh) {
  for (const Axis axis : graph::kAllAxes) {
    if (mesh.size(axis) == 1 || x.placements[axis] != kS1) continue;
    attrs.axis = axis;
    attrs.columns = graph::cut_along(x, 1, mesh, axis);
  }
}

HeldColumns held_columns(const QuantizeAttrs& attrs, int64_t columns, int64_t rank) {
  if (!attrs.columns) return {.all = columns};
  HeldColumns held;
  for (const int64_t part : attrs.columns->parts) held.all += part;
  for (const graph::HeldSpan& span : graph::held_of(*attrs.columns, rank))
    held.runs.push_back({span.at, span.whole.begin});
  return held;
}

namespace {

void describe_rules(graph::AttributeText& to, const std::optional<ScaleRule>& rows,
                    const std::optional<ScaleRule>& columns, bool transforms_columns) {
  if (rows) to("rows", rows->str());
  if (columns) to("columns", columns->str());
  if (transforms_columns) to("hadamard", transforms_columns);
}

bool needs_rows(const ScaleRule& rule) {
  return rule.needs() == ScaleRule::Needs::kRows;
}

// A matrix of codes, and its scales. Blocks that do not divide the parts of a row or a column cross from one part into
// the next: then the scales have no parts, and no ranks can share them (precision_pass refuses that).
struct CodeSpecs {
  Spec codes, scales;
};
CodeSpecs code_specs(const ScaleRule& rule, int64_t rows, int64_t columns, std::vector<int64_t> segments,
                     int segment_dim) {
  const auto layout = quantize::layout_of(rule, rows, columns);
  std::vector<int64_t> scale_segments;
  const int64_t extent = segment_dim == 0 ? rule.block().rows : rule.block().columns;
  for (const int64_t part : segments) {
    if (extent == quantize::kWhole || part % extent != 0) {
      scale_segments.clear();
      break;
    }
    scale_segments.push_back(part / extent);
  }
  return {{.dtype = quantize::dtype_of(rule.format()),
           .shape = {rows, columns},
           .segments = std::move(segments),
           .segments_along = segment_dim},
          {.dtype = quantize::dtype_of(rule.scale_type()),
           .shape = {layout.scale_rows, layout.scale_columns},
           .segments = std::move(scale_segments),
           .segments_along = segment_dim}};
}

Spec spec_of_greatest(const std::optional<ScaleRule>& rule, int64_t parts, const Value& x, int dim) {
  if (!rule || rule->needs() == ScaleRule::Needs::kNothing) return Spec::none();
  if (!needs_rows(*rule)) return {.dtype = DType::kF32, .shape = {parts, 1}};
  const bool has_parts = !x.segments.empty() && x.segment_dim() == dim;
  return {.dtype = DType::kF32,
          .shape = {parts, x.shape[dim]},
          .segments = has_parts ? x.segments : std::vector<int64_t>{},
          .segments_along = 1};
}

template <typename Op>
void require_greatest(const View<Op>& node, const std::optional<ScaleRule>& rule, const graph::Ref& given,
                      int64_t rows) {
  const auto needs = rule ? rule->needs() : ScaleRule::Needs::kNothing;
  if (needs == ScaleRule::Needs::kNothing) return;
  if (rule->is_delayed()) {
    require(node, given && given->shape.rank() == 2 && given->shape[0] == 1 && given->shape[1] > 0,
            "the rule needs a history f32[1, 1 + steps]");
    return;
  }
  const int64_t count = needs == ScaleRule::Needs::kRows ? rows : 1;
  require(node, given && given->shape == Shape{1, count},
          "the rule needs greatest magnitudes f32[1, 1] or f32[1, rows]");
}

// The placement of greatest magnitudes of a result whose rows are dimension `dim` of x, where x is cut along `cut`.
Placement placement_of_greatest(const std::optional<ScaleRule>& rule, int dim, int cut) {
  return rule && needs_rows(*rule) && dim == cut ? kS1 : kS0;
}

}  // namespace

void QuantizeAttrs::describe(graph::AttributeText& to) const {
  describe_rules(to, along_rows, along_columns, transforms_columns);
  if (greatest_parts > 0) to("greatest_parts", greatest_parts);
  if (!stochastic) return;
  to("stochastic", stochastic);
  to("stream", stream);
  if (!columns) return;
  to("ranks", columns->ranks);
  for (const int64_t part : columns->parts) to("part", part);
}

void GreatestAttrs::describe(graph::AttributeText& to) const {
  describe_rules(to, along_rows, along_columns, transforms_columns);
  to("row_parts", row_parts);
  to("column_parts", column_parts);
}

const OpDef GreatestMagnitudes::def = define<GreatestMagnitudes>({
    .name = "greatest_magnitudes",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<GreatestMagnitudes> {
      const Value& x = *node.in.x;
      require(node, x.shape.rank() == 2, "x must be a matrix");
      return {.of_rows = spec_of_greatest(node.attrs.along_rows, node.attrs.row_parts, x, 0),
              .of_columns = spec_of_greatest(node.attrs.along_columns, node.attrs.column_parts, x, 1)};
    },
    .cost = [](const auto& node) { return streamed(node, 1); },
    .placements = [](const auto& node, Axis) -> Splits<GreatestMagnitudes> {
      Splits<GreatestMagnitudes> splits;
      for (const int cut : {0, 1})
        splits.push_back({{.x = Placement::sharded(cut)},
                          {.of_rows = placement_of_greatest(node.attrs.along_rows, 0, cut),
                           .of_columns = placement_of_greatest(node.attrs.along_columns, 1, cut)}});
      return splits;
    },
    .localize =
        [](const View<GreatestMagnitudes>& node) {
          GreatestAttrs attrs = node.attrs;
          attrs.row_parts = attrs.column_parts = 1;
          return attrs;
        },
});

const OpDef GreatestOfRanks::def = define<GreatestOfRanks>({
    .name = "greatest_of_ranks",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<GreatestOfRanks> {
      const Value& found = *node.in.found;
      require(node, found.shape.rank() == 2, "found must be f32[ranks, n]");
      return {.greatest = {DType::kF32, {1, found.shape[1]}, found.segments, false, found.segments_along}};
    },
    .cost = [](const auto& node) { return streamed(node, 1); },
    .placements = [](const auto&, Axis) -> Splits<GreatestOfRanks> {
      return {{{.found = kS1}, {.greatest = kS1}}};
    },
});

const OpDef Quantize::def = define<Quantize>({
    .name = "quantize",
    .family = "quantize",
    .infer = [](const auto& node) -> Outputs<Quantize> {
      const Value& x = *node.in.x;
      require(node, x.shape.rank() == 2, "x must be a matrix");
      require(node, x.dtype != DType::kF16, "x must be fp32 or bf16");
      const int64_t rows = x.shape[0], columns = x.shape[1];
      require(node, !node.attrs.stochastic || (node.in.places && node.in.places->shape == Shape{rows, 2}),
              "stochastic rounding needs the places of rows, i32[N, 2]");
      require(node, !node.attrs.columns || node.in.rank, "the columns of ranks need the per-rank constants");
      const int segment_dim = x.segments.empty() ? 1 : x.segment_dim();
      Outputs<Quantize> out{Spec::none(), Spec::none(), Spec::none(), Spec::none(), Spec::none()};
      if (const int64_t parts = node.attrs.greatest_parts; parts > 0) {
        require(node, node.attrs.along_rows && node.attrs.along_rows->is_delayed(),
                "only a delayed rule along rows leaves x's greatest magnitude to be found on the way");
        out.greatest = {.dtype = DType::kF32, .shape = {parts, 1}};
      }
      if (const auto& rule = node.attrs.along_rows) {
        require_greatest(node, rule, node.in.row_greatest, rows);
        require(node, rule->format() != Format::kE2M1 || columns % 2 == 0,
                "rows of codes of 4 bits must have an even number of elements");
        auto specs = code_specs(*rule, rows, columns, x.segments, segment_dim);
        out.row_codes = std::move(specs.codes);
        out.row_scales = std::move(specs.scales);
      }
      if (const auto& rule = node.attrs.along_columns) {
        require_greatest(node, rule, node.in.column_greatest, columns);
        require(node, rule->format() != Format::kE2M1 || rows % 2 == 0,
                "columns of codes of 4 bits must have an even number of elements");
        auto specs = code_specs(*rule, columns, rows, x.segments, 1 - segment_dim);
        out.column_codes = std::move(specs.codes);
        out.column_scales = std::move(specs.scales);
      }
      return out;
    },
    .cost = [](const auto& node) { return streamed(node, 8); },
    .placements = [](const auto& node, Axis) -> Splits<Quantize> {
      const auto& rows = node.attrs.along_rows;
      const auto& columns = node.attrs.along_columns;
      Splits<Quantize> splits;
      for (const int cut : {0, 1}) {
        // Random bits follow from where the columns are in the whole.
        if (node.attrs.stochastic && (node.attrs.columns || (cut == 1 && !node.in.rank))) continue;
        graph::Split<Quantize> split{
            {.x = Placement::sharded(cut), .row_greatest = kR, .column_greatest = kR},
            {.row_codes = Placement::sharded(cut),
             .row_scales = rows ? placement_of_scales(*rows, cut) : kR,
             .column_codes = Placement::sharded(1 - cut),
             .column_scales = columns ? placement_of_scales(*columns, 1 - cut) : kR,
             .greatest = kS0}};
        if (cut == 0) split.in.places = kS0;
        if (rows && needs_rows(*rows) && cut == 0) split.in.row_greatest = kS1;
        if (columns && needs_rows(*columns) && cut == 1) split.in.column_greatest = kS1;
        splits.push_back(split);
      }
      return splits;
    },
    .localize =
        [](const View<Quantize>& node) {
          QuantizeAttrs attrs = node.attrs;
          attrs.greatest_parts = std::min<int64_t>(attrs.greatest_parts, 1);
          if (attrs.stochastic) cut_columns(attrs, *node.in.x, node.graph.mesh());
          return attrs;
        },
});

}  // namespace strata::ops
