// Checks the placement options of ops: run on shards of the inputs, an op must produce shards of the results.
#include <gtest/gtest.h>

#include <cmath>

#include "fixtures/op_tensors.h"

namespace strata::ops {
namespace {

using graph::Placement;
using graph::PlacementOption;

// Sizes of the segments along a dimension: those of the value, or the whole dimension.
std::vector<int64_t> parts_along(const Tensor& tensor, int dim) {
  if (dim == tensor.segment_dim() && !tensor.segments.empty()) return tensor.segments;
  return {tensor.shape[dim]};
}

struct Strides {
  int64_t outer, inner;
};
Strides strides_of(const Shape& shape, int dim) {
  Strides strides{1, 1};
  for (int i = 0; i < dim; ++i) strides.outer *= shape[i];
  for (int i = dim + 1; i < shape.rank(); ++i) strides.inner *= shape[i];
  return strides;
}

Tensor slice(const Tensor& tensor, Placement placement, int index, int shards) {
  if (tensor.absent || placement.kind == Placement::Kind::kReplicated) return tensor;
  Tensor out = tensor;
  if (placement.kind == Placement::Kind::kPartial) {
    // Unequal terms that add up to the value.
    const double share = index + 1 < shards ? 0.25 : 1 - 0.25 * (shards - 1);
    for (double& value : out.values) value *= share;
    return out;
  }
  const auto indices =
      indices_of(parts_along(tensor, placement.dim), static_cast<size_t>(index), static_cast<size_t>(shards));
  const auto [outer, inner] = strides_of(tensor.shape, placement.dim);
  out.shape.set(placement.dim, static_cast<int64_t>(indices.size()));
  out.values.clear();
  if (placement.dim == tensor.segment_dim()) {
    for (int64_t& segment : out.segments) segment /= shards;
  }
  for (int64_t o = 0; o < outer; ++o) {
    for (const int64_t i : indices) {
      for (int64_t k = 0; k < inner; ++k)
        out.values.push_back(
            tensor.values[static_cast<size_t>((o * tensor.shape[placement.dim] + i) * inner + k)]);
    }
  }
  return out;
}

// Compares one shard's output with the whole.
void expect_shard(const Tensor& whole, const Tensor& shard, Placement placement, int index, int shards,
                  const std::string& where, double tolerance) {
  const Tensor wanted = slice(whole, placement, index, shards);
  ASSERT_EQ(wanted.shape, shard.shape) << where;
  for (size_t i = 0; i < wanted.values.size(); ++i) {
    ASSERT_TRUE(is_near(shard.values[i], wanted.values[i], tolerance))
        << where << ", element " << i << " of shard " << index << ": " << shard.values[i] << ", not "
        << wanted.values[i];
  }
}

bool divides(const std::vector<Tensor>& tensors, const std::vector<Placement>& placements, int shards) {
  for (size_t i = 0; i < tensors.size() && i < placements.size(); ++i) {
    if (tensors[i].absent || placements[i].kind != Placement::Kind::kSharded) continue;
    for (const int64_t part : parts_along(tensors[i], placements[i].dim)) {
      if (part % shards != 0) return false;
    }
  }
  return true;
}

std::vector<PlacementOption> options_of(const OpCase& one, const std::vector<Tensor>& inputs) {
  const device::OpGraph made = device::graph_of(one, operands_of(one, inputs));
  return one.op->placements({made.graph, made.graph.nodes()[0]}, graph::Axis::kReplicate);
}

Placement at(const std::vector<Placement>& placements, size_t i) {
  return i < placements.size() ? placements[i] : Placement::replicated();
}

// Runs the op on shards of one axis, and of a second one inside the first when `second` is given. Shard (a,
// b) has part b of part a; partial sums are added over their axis.
void expect_option(const OpCase& one, const std::vector<Tensor>& inputs, const std::vector<Tensor>& whole,
                   const PlacementOption& first, const PlacementOption* second, int shards,
                   const std::string& where) {
  const int inner = second != nullptr ? shards : 1;
  std::vector<std::vector<std::vector<Tensor>>> results(static_cast<size_t>(shards));  // [a][b][output]
  for (int a = 0; a < shards; ++a) {
    for (int b = 0; b < inner; ++b) {
      std::vector<Tensor> parts;
      for (size_t i = 0; i < inputs.size(); ++i) {
        Tensor part = slice(inputs[i], at(first.inputs, i), a, shards);
        if (second != nullptr) part = slice(part, at(second->inputs, i), b, shards);
        parts.push_back(std::move(part));
      }
      results[static_cast<size_t>(a)].push_back(run_op(one, parts));
    }
  }
  auto add = [](Tensor& sum, const Tensor& term) {
    for (size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += term.values[i];
  };
  for (size_t o = 0; o < whole.size(); ++o) {
    const Placement outer_placement = at(first.outputs, o);
    const Placement inner_placement = second != nullptr ? at(second->outputs, o) : Placement::replicated();
    const bool outer_sum = outer_placement.kind == Placement::Kind::kPartial;
    const bool inner_sum = inner_placement.kind == Placement::Kind::kPartial;
    for (int a = 0; a < (outer_sum ? 1 : shards); ++a) {
      for (int b = 0; b < (inner_sum ? 1 : inner); ++b) {
        Tensor sum = results[static_cast<size_t>(a)][static_cast<size_t>(b)][o];
        std::fill(sum.values.begin(), sum.values.end(), 0.0);
        for (int x = a; x < (outer_sum ? shards : a + 1); ++x) {
          for (int y = b; y < (inner_sum ? inner : b + 1); ++y)
            add(sum, results[static_cast<size_t>(x)][static_cast<size_t>(y)][o]);
        }
        Tensor wanted = outer_sum ? whole[o] : slice(whole[o], outer_placement, a, shards);
        if (second != nullptr && !inner_sum) wanted = slice(wanted, inner_placement, b, shards);
        expect_shard(wanted, sum, Placement::replicated(), 0, 1,
                     where + ", output " + std::to_string(o) + ", shard " + std::to_string(a) + "," +
                         std::to_string(b),
                     one.tolerance);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

class Placements : public testing::TestWithParam<OpCase> {};

TEST_P(Placements, ResultsAreTheShardsOfTheWhole) {
  const OpCase& one = GetParam();
  const std::vector<Tensor> inputs = inputs_of(one);
  const std::vector<Tensor> whole = run_op(one, inputs);
  const std::vector<PlacementOption> options = options_of(one, inputs);
  ASSERT_EQ(options.empty(), one.replicated_only);
  for (size_t i = 0; i < options.size(); ++i) {
    ASSERT_TRUE(divides(inputs, options[i].inputs, 2)) << "the case is too small for option " << i;
    for (const int shards : {2, 4}) {
      if (!divides(inputs, options[i].inputs, shards)) continue;
      expect_option(one, inputs, whole, options[i], nullptr, shards,
                    "option " + std::to_string(i) + " in " + std::to_string(shards));
      if (HasFatalFailure()) return;
    }
    // A mesh of two axes, with every combination of options. Both axes may shard the same dimension.
    for (size_t j = 0; j < options.size(); ++j) {
      std::vector<Tensor> parts;
      for (size_t k = 0; k < inputs.size(); ++k)
        parts.push_back(slice(inputs[k], at(options[i].inputs, k), 0, 2));
      if (!divides(parts, options[j].inputs, 2)) continue;
      expect_option(one, inputs, whole, options[i], &options[j], 2,
                    "options " + std::to_string(i) + " and " + std::to_string(j) + " on 2 x 2");
      if (HasFatalFailure()) return;
    }
  }
}

std::vector<OpCase> cases_that_divide() {
  std::vector<OpCase> cases = op_cases();
  std::erase_if(cases, [](const OpCase& one) { return one.ragged; });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Ops, Placements, testing::ValuesIn(cases_that_divide()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace strata::ops
