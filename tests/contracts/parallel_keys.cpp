// [parallel]: how ranks share the work, seen from what they leave behind and from the plan.
#include <cmath>

#include "contracts/contract.h"
#include "contracts/lab.h"

namespace strata::contracts {
namespace {

// What one rank trains, whatever the layout.
void expect_same_training(const Seen& one, const Seen& many) {
  const auto expected = one.values("loss"), found = many.values("loss");
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5) << "step " << i + 1;
  EXPECT_EQ(one.values("first_sample"), many.values("first_sample"));
  const Tensors a = one.weights(2), b = many.weights(2);
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_LT(distance(b.at(name).values, tensor.values), 1e-3) << name;
}

const Sets kBatch{"training.global_batch_size=6", "training.micro_batch_size=1"};

void degree(const std::string& key) {
  Lab lab;
  const Seen one = lab.run(kBatch);
  const std::string other = key == "parallel.replicate" ? "parallel.shard=" : "parallel.replicate=";
  expect_same_training(one, lab.run_on(3, kBatch + Sets{key + "=3", other + "1"}));
  expect_same_training(one, lab.run_on(4, kBatch + Sets{key + "=-1", other + "2", "parallel.zero=1"}));
  const std::string refused = lab.refusal_on(3, {key + "=2", other + "1"});
  EXPECT_TRUE(has(refused, "make 2 ranks, and 3 were started") && has(refused, "replicate = ")) << refused;
  EXPECT_TRUE(has(lab.refusal({key + "=0"}), "expected a number of ranks"));
}

void zero(const std::string&) {
  Lab lab;
  const Seen one = lab.run(kBatch);
  for (const char* stage : {"0", "1", "2", "3"})
    expect_same_training(one, lab.run_on(3, kBatch + Sets{std::string("parallel.zero=") + stage}));
  // Whoever wrote them, the bytes of a checkpoint of the same values are the same.
  const Seen two = lab.run_on(2, kBatch + Sets{"parallel.zero=2"});
  const Seen three = lab.run_on(2, kBatch + Sets{"parallel.zero=3"});
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(read_file(two.checkpoint(2) / file), read_file(three.checkpoint(2) / file)) << file;
  // What was left to the program stands in run.toml.
  EXPECT_TRUE(has(lab.run_on(2, kBatch).run_toml(), "zero = 0"));
}

void reshard_after_forward(const std::string&) {
  Lab lab;
  const Sets sets = kBatch + Sets{"parallel.zero=3"};
  const Seen kept = lab.run_on(2, sets + Sets{"parallel.reshard_after_forward=false"});
  const Seen dropped = lab.run_on(2, sets + Sets{"parallel.reshard_after_forward=true"});
  EXPECT_TRUE(same(kept.weights(2), dropped.weights(2)));
  EXPECT_GT(kept.event("start").at("arena_bytes"), dropped.event("start").at("arena_bytes"));
}

void reduce_dtype(const std::string&) {
  Lab lab;
  // The sum of gradients that were rounded to bf16: m after the first step, with beta1 = 0.
  const Sets sets = kBatch + kStill;
  const Tensors exact = lab.run_on(2, sets).states(1);
  const Tensors rounded = lab.run_on(2, sets + Sets{"parallel.reduce_dtype=\"bf16\""}).states(1);
  for (const auto& [name, tensor] : exact) {
    if (!name.starts_with("m/") || norm({{name, tensor}}) == 0) continue;
    const double away = distance(rounded.at(name).values, tensor.values);
    EXPECT_GT(away, 0.0) << name;
    EXPECT_LT(away, std::pow(2.0, -7)) << name;
  }
}

void backend(const std::string&) {
  Lab lab;
  EXPECT_TRUE(same(lab.run_on(2, {"parallel.backend=\"local\""}).weights(2), lab.run_on(2).weights(2)));
  EXPECT_TRUE(has(lab.refusal({"parallel.backend=\"nccl\""}), "not yet"));
  lab.put("mpi.toml", lab.toml() + "[parallel]\nbackend = \"mpi\"\n");
  const Outcome alone = strata(lab.path("x"), {"train", lab.path("mpi.toml").string()});
  EXPECT_EQ(alone.code, 2);
  EXPECT_TRUE(has(alone.err, "mpirun -n N")) << alone.err;
}

}  // namespace

Contracts parallel_keys() {
  return {{"parallel.replicate", degree},
          {"parallel.shard", degree},
          {"parallel.zero", zero},
          {"parallel.reshard_after_forward", reshard_after_forward},
          {"parallel.reduce_dtype", reduce_dtype},
          {"parallel.backend", backend}};
}

}  // namespace strata::contracts
