// Every op has what every op must have. Each test names those that miss it.
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

namespace strata::ops {
namespace {

using Names = std::set<std::string_view>;

Names names_of_all() {
  Names names;
  for (const OpDef* op : graph::all_ops()) EXPECT_TRUE(names.insert(op->name).second) << op->name << " twice";
  return names;
}

// What a communicator carries out has no kernel of a device; tests of meshes run it.
Names names_of_kernels() {
  Names names = names_of_all();
  for (const OpDef* op : graph::all_ops()) {
    if (!op->has_kernel()) names.erase(op->name);
  }
  return names;
}

// Those of `all` that are not in `found`.
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

// A weight's encoding has no case of its own: lowering puts it before the op that wants it.
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

// The reference kernels take weights as they are: nothing is encoded for them.
TEST(EveryOp, HasAReferenceKernel) {
  EXPECT_EQ(missing(names_of_kernels(), names_of(device::reference_bindings())), Names{PackWeight::def.name});
}

TEST(EveryOp, IsTimedOrSaysWhyNot) {
  const Names timed = names_of(device::timed_cases());
  Names untimed;
  for (const device::UntimedOp& one : device::untimed_ops()) {
    untimed.insert(one.op->name);
    EXPECT_FALSE(timed.contains(one.op->name)) << one.op->name << " is timed and listed as untimed";
  }
  EXPECT_EQ(missing(missing(names_of_kernels(), timed), untimed), Names());
}

// An optional operand that is not there keeps its place, in inputs and outputs: all rows of an op have as
// many.
TEST(EveryOp, HasFixedPositions) {
  std::map<std::string_view, std::set<std::pair<size_t, size_t>>> counts;
  for (const auto* cases : {&device::op_cases(), &device::timed_cases()}) {
    for (const device::OpCase& one : *cases) {
      // As many inputs as there are tensors.
      if (one.op == &optim::StepScalars::def || one.op == &optim::RootOfSum::def ||
          one.op == &optim::SumOfPartials::def || one.op == &optim::MuonMomentum::def ||
          one.op == &optim::MuonApply::def)
        continue;
      const device::OpGraph made = device::graph_of(one, one.inputs);
      counts[one.op->name].insert({made.inputs.size(), made.outputs.size()});
    }
  }
  for (const auto& [name, found] : counts) EXPECT_EQ(found.size(), 1) << name;
}

// Whatever optional operands are not there.
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

TEST(EveryOp, SaysHowItIsPlaced) {
  for (const OpDef* op : graph::all_ops()) EXPECT_NE(op->placements, nullptr) << op->name;
}

}  // namespace
}  // namespace strata::ops
