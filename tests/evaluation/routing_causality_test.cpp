// Routings that let tokens see later ones or other sequences are found and named; others have no leaks.
#include <gtest/gtest.h>

#include "device/open/open.h"
#include "evaluation/causality.h"
#include "fixtures/tiny_program.h"
#include "program/initialize.h"

namespace strata::evaluation {
namespace {

using Capacity = layers::MoeSpec::Capacity;
using Keep = ops::CapacityAttrs::Keep;
using Router = models::Experts::Router;

models::ModelConfig model_with_experts(const std::function<void(models::Experts&)>& set) {
  models::ModelConfig model = program::tiny_model("moe-30m-a10m");
  model.layers = 2;
  model.experts.count = 5;
  model.experts.route.k = 2;
  model.experts.intermediate_size = 16;
  set(model.experts);
  return model;
}

// With reference kernels, which process each token separately.
Causality check(const models::ModelConfig& model, program::Kind kind) {
  program::CompileOptions options = program::tiny_options("moe-30m-a10m");
  options.model = model;
  const auto device = device::open(device::Kind::kReference);
  options.target = device->target();
  program::Request request = program::tiny_request(kind == program::Kind::kTrain ? 2 : 1);
  request.kind = kind;
  program::Executor executor(program::compile({request}, options), device);
  program::initialize_weights(executor, 3);
  executor.run(0, {program::Segment::kEncode});
  return check_causality(executor, 0, {.positions = 8});
}

struct Routing {
  const char* name;
  std::function<void(models::Experts&)> set;
  const char* leaks_in = nullptr;  // an op; nullptr: it does not leak
};
void PrintTo(const Routing& routing, std::ostream* out) {
  *out << routing.name;
}

class Routings : public testing::TestWithParam<Routing> {};

// The check agrees with models::routing_leaks().
TEST_P(Routings, LeakAsDeclared) {
  const Routing& routing = GetParam();
  const models::ModelConfig model = model_with_experts(routing.set);
  EXPECT_EQ(models::routing_leaks(model).empty(), routing.leaks_in == nullptr);
  for (const program::Kind kind : {program::Kind::kTrain, program::Kind::kEvaluate}) {
    const Causality found = check(model, kind);
    if (routing.leaks_in == nullptr) {
      EXPECT_TRUE(found.causal()) << found.leaks.front().op << " leaks into " << found.leaks.front().value;
      continue;
    }
    ASSERT_FALSE(found.causal());
    EXPECT_EQ(found.leaks.front().op, routing.leaks_in);
    EXPECT_EQ(found.leaks.front().layer, 0);
  }
}

void bound(models::Experts& experts, bool over_sequence, Keep keep) {
  experts.capacity = {.factor = 0.6, .over_sequence = over_sequence, .keep = keep};
}

INSTANTIATE_TEST_SUITE_P(
    All, Routings,
    testing::Values(Routing{"dropless", [](models::Experts&) {}},
                    Routing{"first_of_sequence", [](models::Experts& e) { bound(e, true, Keep::kFirst); }},
                    Routing{"first_of_batch", [](models::Experts& e) { bound(e, false, Keep::kFirst); },
                            "limit_experts"},
                    Routing{"by_probability", [](models::Experts& e) { bound(e, true, Keep::kGreatest); },
                            "limit_experts"},
                    Routing{"hash", [](models::Experts& e) { e.router = Router::kHash; }},
                    Routing{"two_level",
                            [](models::Experts& e) {
                              e.router = Router::kTwoLevel;
                              e.count = 6;
                              e.route.groups = 3;
                              e.route.kept_groups = 1;
                              e.route.group_score = ops::RouteAttrs::GroupScore::kSum;
                            }},
                    Routing{"expert_choice", [](models::Experts& e) { e.router = Router::kExpertChoice; },
                            "scatter_rows"},
                    Routing{"soft",
                            [](models::Experts& e) {
                              e.router = Router::kSoft;
                              e.slots = 4;
                            },
                            "soft_combine"}),
    [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace strata::evaluation
