// Checks that every op has cases, kernels and rules. Each test names the ops that lack them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "device/cpu/bindings.h"
#include "device/reference/bindings.h"
#include "ops/linear/linear.h"
#include "ops/op_cases.h"
#include "optim/muon/muon.h"
#include "optim/scalars/scalars.h"
#include "optim/stored/stored.h"

namespace strata::ops {
namespace {

using Names = std::set<std::string_view>;

Names names_of_all() {
  Names names;
  for (const OpDef* op : graph::all_ops()) EXPECT_TRUE(names.insert(op->name).second) << op->name << " twice";
  return names;
}

// Ops that a communicator executes have no device kernel; the tests of meshes run them.
Names names_of_kernels() {
  Names names = names_of_all();
  for (const OpDef* op : graph::all_ops()) {
    if (!op->has_kernel()) names.erase(op->name);
  }
  return names;
}

// The elements of `all` that are not in `found`.
Names missing(const Names& all, const Names& found) {
  Names rest;
  std::set_difference(all.begin(), all.end(), found.begin(), found.end(), std::inserter(rest, rest.end()));
  return rest;
}

Names names_of(std::span<const device::Binding> bindings) {
  Names names;
  for (const device::Binding& row : bindings) names.insert(row.op->name);
  return names;
}

// A packed weight has no separate case: lowering puts it before the op that needs it.
Names names_of(const std::vector<device::OpCase>& cases) {
  Names names;
  for (const device::OpCase& one : cases) {
    names.insert(one.op->name);
    if (one.encoding || one.name.find("_bf16") != std::string::npos) names.insert(PackWeight::def.name);
  }
  return names;
}

TEST(EveryOp, HasCases) {
  EXPECT_EQ(missing(names_of_kernels(), names_of(device::op_cases())), Names());
}

TEST(EveryOp, HasAKernelOfTheCpu) {
  EXPECT_EQ(missing(names_of_kernels(), names_of(device::cpu_bindings())), Names());
}

// The reference kernels take plain weights; nothing is packed for them.
TEST(EveryOp, HasAReferenceKernel) {
  EXPECT_EQ(missing(names_of_kernels(), names_of(device::reference_bindings())), Names{PackWeight::def.name});
}

TEST(EveryOp, IsTimedOrListedAsUntimed) {
  const Names timed = names_of(device::timed_cases());
  Names untimed;
  for (const device::UntimedOp& one : device::untimed_ops()) {
    untimed.insert(one.op->name);
    EXPECT_FALSE(timed.contains(one.op->name)) << one.op->name << " is timed and listed as untimed";
  }
  EXPECT_EQ(missing(missing(names_of_kernels(), timed), untimed), Names());
}

// An absent optional operand keeps its position in inputs and outputs: all rows of an op have the same number
// of operands.
TEST(EveryOp, HasFixedPositions) {
  std::map<std::string_view, std::set<std::pair<size_t, size_t>>> counts;
  for (const auto* cases : {&device::op_cases(), &device::timed_cases()}) {
    for (const device::OpCase& one : *cases) {
      // The number of inputs varies.
      if (one.op == &optim::StepScalars::def || one.op == &optim::RootOfSum::def ||
          one.op == &optim::SumOfPartials::def || one.op == &optim::MuonMomentum::def ||
          one.op == &optim::MuonApply::def || one.op == &optim::StoredUpdate::def)
        continue;
      const device::OpGraph made = device::graph_of(one, one.inputs);
      counts[one.op->name].insert({made.inputs.size(), made.outputs.size()});
    }
  }
  for (const auto& [name, found] : counts) EXPECT_EQ(found.size(), 1) << name;
}

// With any combination of optional operands.
TEST(EveryOp, HasACostInEveryCase) {
  for (const auto* cases : {&device::op_cases(), &device::timed_cases()}) {
    for (const device::OpCase& one : *cases) {
      const device::OpGraph made = device::graph_of(one, one.inputs);
      for (const graph::Node& node : made.graph.nodes()) {
        const graph::Cost cost = node.op->cost({made.graph, node});
        EXPECT_TRUE(std::isfinite(cost.flops) && cost.flops >= 0) << one.name << ": " << cost.flops;
        EXPECT_TRUE(std::isfinite(cost.bytes) && cost.bytes >= 0) << one.name << ": " << cost.bytes;
      }
    }
  }
}

TEST(EveryOp, HasAPlacementRule) {
  for (const OpDef* op : graph::all_ops()) EXPECT_NE(op->placements, nullptr) << op->name;
}

}  // namespace
}  // namespace strata::ops
