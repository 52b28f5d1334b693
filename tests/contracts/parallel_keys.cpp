// Contracts of [parallel], checked by the results of ranks and by the plan.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <fstream>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "config/layout.h"
#include "contracts/contract.h"
#include "contracts/lab.h"

namespace strata::contracts {
namespace {

// The layout does not change the training.
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
  EXPECT_TRUE(has(refused, "make 2 ranks, but 3 were started") && has(refused, "replicate = ")) << refused;
  EXPECT_TRUE(has(lab.refusal({key + "=0"}), "expected a number of ranks"));
}

std::vector<json> texts_of(const Seen& run) {
  std::vector<json> texts;
  for (const json& event : run.events) {
    if (event.at("event") == "sample") texts.push_back(event.at("text"));
  }
  return texts;
}

// Each of two ranks has half of the weights of each layer.
void tensor(const std::string& key) {
  Lab lab;
  const Sets sets = kBatch + Sets{key + "=2", "parallel.shard=-1"};
  expect_same_training(lab.run(kBatch), lab.run_on(2, sets));
  expect_same_training(lab.run(kBatch), lab.run_on(4, sets + Sets{"parallel.zero=2"}));
  const json one = lab.explain({}, {}), two = lab.explain({"--ranks", "2"}, sets);
  const auto bytes = [](const json& explained, const std::string& name) {
    for (const json& entry : explained.at("persistent")) {
      if (entry.at("name") == name) return entry.at("bytes").get<int64_t>();
    }
    return int64_t{-1};
  };
  for (const char* name :
       {"layers.0.attention.qkv.weight", "layers.1.ffn.down.weight", "layers.1.ffn.up.weight"})
    EXPECT_EQ(2 * bytes(two, name), bytes(one, name)) << name;
  EXPECT_TRUE(has(lab.refusal_on(2, {key + "=0"}), "expected a number of ranks"));
  // They generate the same texts, which change during training.
  lab.text();
  const Sets writes{"data.train=" + lab.list({"corpus.txt"}), "training.steps=4", "eval.interval=\"2 steps\"",
                    "eval.sample_tokens=12", "optimizer.lr=1e-1"};
  const std::vector<json> texts = texts_of(lab.run(writes));
  ASSERT_EQ(texts.size(), 2U);
  EXPECT_NE(texts[0], texts[1]);
  EXPECT_EQ(texts_of(lab.run_on(2, writes + Sets{key + "=2", "parallel.shard=1"})), texts);
}

// Each rank has half of the rows of the hidden states between the blocks, or all.
void sequence(const std::string& key) {
  Lab lab;
  const Sets sets = kBatch + Sets{"parallel.tensor=2", "parallel.shard=1"};
  expect_same_training(lab.run_on(2, sets + Sets{key + "=true"}), lab.run_on(2, sets + Sets{key + "=false"}));
  const auto rows = [&](const char* value) {
    const json forward = lab.explain({"--ranks", "2", "--program"}, sets + Sets{key + "=" + value})
                             .at("programs")
                             .at(0)
                             .at("segments")
                             .at("forward");
    for (const json& one : forward) {
      if (one.at("op") == "rms_norm") return one.at("inputs").at(0).at("shape").at(0).get<int64_t>();
    }
    return int64_t{-1};
  };
  EXPECT_GT(rows("false"), 0);
  EXPECT_EQ(2 * rows("true"), rows("false"));
}

// Names of the weights that a rank holds.
std::set<std::string> weights_of(Lab& lab, const Sets& sets, const std::string& ranks,
                                 const std::string& rank) {
  std::set<std::string> names;
  const json explained = lab.explain({"--ranks", ranks, "--rank", rank}, sets);
  for (const json& entry : explained.at("persistent")) {
    if (entry.at("role") == "parameter") names.insert(entry.at("name"));
  }
  return names;
}

// Each rank has consecutive layers.
void pipeline(const std::string& key) {
  Lab lab;
  const Sets sets = kBatch + Sets{key + "=2", "parallel.shard=-1"};
  expect_same_training(lab.run(kBatch), lab.run_on(2, sets));
  expect_same_training(lab.run(kBatch), lab.run_on(4, sets + Sets{"parallel.zero=3"}));
  const Sets cut = sets + Sets{"parallel.stage_layers=[1, 1]"};
  const auto first = weights_of(lab, cut, "2", "0"), last = weights_of(lab, cut, "2", "1");
  EXPECT_TRUE(first.contains("embedding.weight") && first.contains("layers.0.ffn.up.weight"));
  EXPECT_TRUE(last.contains("final_norm.weight") && last.contains("layers.1.ffn.up.weight"));
  EXPECT_FALSE(first.contains("layers.1.ffn.up.weight") || last.contains("layers.0.ffn.up.weight"));
  EXPECT_TRUE(has(lab.refusal_on(2, {key + "=0"}), "expected a number of ranks"));
  EXPECT_TRUE(has(lab.refusal_on(8, {key + "=8"}), "stages"));
}

json schedule_of(Lab& lab, const Sets& sets) {
  return lab.explain({"--ranks", "2", "--schedule"}, kBatch + Sets{"parallel.pipeline=2"} + sets);
}

void schedule(const std::string& key) {
  Lab lab;
  const Sets sets = kBatch + Sets{"parallel.pipeline=2"};
  const Seen one = lab.run(kBatch);
  for (const std::string name : {"gpipe", "zbv", "v_half"}) {
    EXPECT_EQ(schedule_of(lab, {key + "=" + name}).at("schedule"), name);
    expect_same_training(one, lab.run_on(2, sets + Sets{key + "=" + name}));
  }
  // A schedule that explain writes can be read.
  std::ofstream(lab.path("mine.json")) << dump_json(schedule_of(lab, {key + "=zb_h1"}));
  const Sets mine{key + "=" + lab.path("mine.json").string()};
  EXPECT_EQ(schedule_of(lab, mine), schedule_of(lab, {key + "=zb_h1"}));
  expect_same_training(one, lab.run_on(2, sets + mine));
  EXPECT_TRUE(has(lab.refusal_on(2, sets + Sets{key + "=zbw"}), "zbv"));
}

void virtual_stages(const std::string& key) {
  Lab lab;
  const Sets interleaved{"parallel.schedule=interleaved"};
  EXPECT_EQ(schedule_of(lab, interleaved + Sets{key + "=2"}).at("stages"), 4);
  expect_same_training(lab.run(kBatch),
                       lab.run_on(2, kBatch + Sets{"parallel.pipeline=2"} + interleaved + Sets{key + "=2"}));
  EXPECT_TRUE(has(lab.refusal_on(2, kBatch + Sets{"parallel.pipeline=2"} + interleaved + Sets{key + "=1"}),
                  "virtual_stages"));
}

void stage_layers(const std::string& key) {
  Lab lab;
  const Sets sets = kBatch + Sets{"parallel.pipeline=2"};
  const Seen one = lab.run(kBatch);
  for (const std::string value : {"[2, 0]", "\"Ett|L\""}) {
    const auto first = weights_of(lab, sets + Sets{key + "=" + value}, "2", "0");
    EXPECT_TRUE(first.contains("layers.0.ffn.up.weight") && first.contains("layers.1.ffn.up.weight"))
        << value;
    expect_same_training(one, lab.run_on(2, sets + Sets{key + "=" + value}));
  }
  EXPECT_FALSE(weights_of(lab, sets + Sets{key + "=[0, 2]"}, "2", "0").contains("layers.0.ffn.up.weight"));
  EXPECT_TRUE(has(lab.refusal_on(2, sets + Sets{key + "=[1, 2]"}), "stage_layers"));
  // A layer that predicts further tokens reads the head.
  const Sets further{"model.family=glm4-moe", "model.override.first_k_dense_replace=2",
                     "model.override.num_nextn_predict_layers=1"};
  const Sets last = sets + further + Sets{key + "=\"Ett|mL\""};
  EXPECT_TRUE(weights_of(lab, last, "2", "1").contains("layers.2.predict.in.weight"));
  expect_same_training(lab.run(kBatch + further), lab.run_on(2, last));
  EXPECT_TRUE(has(lab.refusal_on(2, sets + further + Sets{key + "=\"Ettm|L\""}), "every m next to L"));
}

// Each of two ranks has half of the rows of each sequence, and whole weights.
void context(const std::string& key) {
  Lab lab;
  const Sets sets = kBatch + Sets{key + "=2", "parallel.shard=-1"};
  expect_same_training(lab.run(kBatch), lab.run_on(2, sets));
  expect_same_training(lab.run(kBatch), lab.run_on(4, sets + Sets{"parallel.zero=2"}));
  const auto rows = [&](const std::vector<std::string>& options, const Sets& more) {
    const json forward =
        lab.explain(options, kBatch + more).at("programs").at(0).at("segments").at("forward");
    for (const json& one : forward) {
      if (one.at("op") == "rms_norm") return one.at("inputs").at(0).at("shape").at(0).get<int64_t>();
    }
    return int64_t{-1};
  };
  EXPECT_EQ(2 * rows({"--ranks", "2", "--program"}, {key + "=2"}), rows({"--program"}, {}));
  EXPECT_TRUE(has(lab.refusal_on(2, {key + "=0"}), "expected a number of ranks"));
  EXPECT_TRUE(has(lab.refusal_on(3, {key + "=3"}), "12 or 18"));
}

void context_kind(const std::string& key) {
  Lab lab;
  const Seen one = lab.run(kBatch);
  const Sets two = kBatch + Sets{"parallel.context=2", "parallel.shard=1"};
  for (const char* kind : {"all_gather", "ring", "ulysses"})
    expect_same_training(one, lab.run_on(2, two + Sets{key + "=\"" + kind + "\""}));
  // The communication between the ranks differs.
  const auto ops = [&](const char* kind) {
    std::set<std::string> found;
    const json explained = lab.explain({"--ranks", "2", "--program"}, two + Sets{key + "=\"" + kind + "\""});
    for (const json& node : explained.at("programs").at(0).at("segments").at("forward"))
      found.insert(node.at("op").get<std::string>());
    return found;
  };
  EXPECT_TRUE(ops("all_gather").contains("context_attention"));
  EXPECT_FALSE(ops("all_gather").contains("merge_attention"));
  EXPECT_TRUE(ops("ring").contains("merge_attention"));
  EXPECT_TRUE(ops("ulysses").contains("attention"));
  EXPECT_FALSE(ops("ulysses").contains("context_attention"));
}

void zero(const std::string&) {
  Lab lab;
  const Seen one = lab.run(kBatch);
  for (const char* stage : {"0", "1", "2", "3"})
    expect_same_training(one, lab.run_on(3, kBatch + Sets{std::string("parallel.zero=") + stage}));
  // Checkpoints with equal values have equal bytes, whichever rank wrote them.
  const Seen two = lab.run_on(2, kBatch + Sets{"parallel.zero=2"});
  const Seen three = lab.run_on(2, kBatch + Sets{"parallel.zero=3"});
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(read_file(two.checkpoint(2) / file), read_file(three.checkpoint(2) / file)) << file;
  // run.toml contains the value that the program chose.
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
  // With beta1 = 0, m after the first step is the sum of gradients, which were rounded to bf16.
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

// Whether the first segment of a step gathers layer 1 before it computes layer 0.
void prefetch(const std::string&) {
  Lab lab;
  const Sets sets = kBatch + Sets{"parallel.zero=3"};
  const auto begins_ahead = [&](const Sets& more) {
    const json forward = lab.explain({"--ranks", "2", "--program"}, sets + more)
                             .at("programs")
                             .at(0)
                             .at("segments")
                             .at("forward");
    for (const json& one : forward) {
      if (one.at("layer") == 1 && one.at("op") == "reshard") return true;
      if (one.at("layer") == 0 && one.at("op") != "reshard") return false;
    }
    return false;
  };
  EXPECT_FALSE(begins_ahead({"parallel.progress=\"inline\""}));
  EXPECT_FALSE(begins_ahead({"parallel.prefetch=0"}));
  EXPECT_TRUE(begins_ahead({"parallel.prefetch=2"}));
  EXPECT_TRUE(begins_ahead({"parallel.progress=\"thread\""}));
  const Tensors plain = lab.run_on(2, sets).weights(2);
  for (const char* distance : {"1", "2", "9"}) {
    EXPECT_TRUE(
        same(plain, lab.run_on(2, sets + Sets{std::string("parallel.prefetch=") + distance}).weights(2)))
        << distance;
  }
}

// Collectives of a layer run in chunks alongside its matmuls, with bitwise equal results.
void overlap_chunks(const std::string& key) {
  Lab lab;
  const Sets sets{"training.global_batch_size=4",
                  "training.micro_batch_size=4",
                  "training.sequence_length=64",
                  "parallel.tensor=2",
                  "parallel.shard=1",
                  "parallel.progress=\"thread\""};
  const auto gathers = [&](const Sets& more) {
    const json forward = lab.explain({"--ranks", "2", "--program"}, sets + more)
                             .at("programs")
                             .at(0)
                             .at("segments")
                             .at("forward");
    return std::count_if(forward.begin(), forward.end(),
                         [](const json& one) { return one.at("layer") == 0 && one.at("op") == "reshard"; });
  };
  EXPECT_EQ(gathers({key + "=2"}), 2 * gathers({}));
  const Tensors whole = lab.run_on(2, sets).weights(2);
  EXPECT_TRUE(same(whole, lab.run_on(2, sets + Sets{key + "=2"}).weights(2)));
  EXPECT_TRUE(
      has(lab.refusal_on(2, sets + Sets{key + "=3"}), key + "] a rank of parallel.tensor has 128 rows"));
  EXPECT_TRUE(has(lab.refusal_on(2, sets + Sets{key + "=0"}), key));
}

int64_t threads_here() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("Threads:")) return std::stoll(line.substr(8));
  }
  return 0;
}

// The number of threads once it has not changed for a while: threads of earlier runs may still be ending.
int64_t settled_threads() {
  int64_t known = threads_here();
  for (int same = 0; same < 20; ++same) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (const int64_t now = threads_here(); now != known) known = now, same = 0;
  }
  return known;
}

// One more thread per rank, with bitwise equal results.
void progress(const std::string&) {
  Lab lab;
  const auto run = [&](const std::string& how) {
    const config::RunConfig config = lab.config(kBatch + Sets{"parallel.zero=2", "parallel.progress=" + how});
    FaultyFileSystem quick;
    // Count at the first poll: later there are threads that save, and ranks that have ended.
    std::atomic<int64_t> first = 0;
    const int64_t before = settled_threads();
    training::train_on_threads({.config = config, .files = &quick}, 2, [&] {
      int64_t none = 0;
      first.compare_exchange_strong(none, threads_here());
      return false;
    });
    return std::pair(first.load() - before,
                     tensors_in(Path(config.run.folder) / "checkpoints/step-00000002"));
  };
  const auto inline_run = run("inline"), thread_run = run("thread");
  EXPECT_EQ(thread_run.first, inline_run.first + 2);
  EXPECT_TRUE(same(inline_run.second, thread_run.second));
  // There is no core left for it if the compute threads use all of them.
  EXPECT_TRUE(has(lab.run_on(2, kBatch).run_toml(), "progress = \"inline\""));
}

void silence_limit(const std::string&) {
  Lab lab;
  EXPECT_EQ(config::world_options(lab.config({"parallel.silence_limit=\"3s\""})).silence_limit, 3);
  EXPECT_TRUE(has(lab.refusal({"parallel.silence_limit=0"}), "parallel.silence_limit"));
}

// After a step one rank sleeps for longer than the other may wait.
void wait_limit(const std::string&) {
  Lab lab;
  const config::RunConfig config = lab.config(kBatch + Sets{"parallel.wait_limit=\"1s\""});
  std::atomic<bool> slept = false;
  std::string message;
  try {
    training::train_on_threads({.config = config}, 2, [&] {
      if (!slept.exchange(true)) std::this_thread::sleep_for(std::chrono::seconds(5));
      return false;
    });
  } catch (const WorldError& error) {
    message = error.what();
  }
  EXPECT_TRUE(has(message, "wait")) << message;
}

void backend(const std::string&) {
  Lab lab;
  EXPECT_TRUE(same(lab.run_on(2, {"parallel.backend=\"local\""}).weights(2), lab.run_on(2).weights(2)));
  EXPECT_TRUE(has(lab.refusal({"parallel.backend=\"nccl\""}), "not yet"));
  lab.put("mpi.toml", lab.toml() + "[parallel]\nbackend = \"mpi\"\n");
  const Outcome rejected = strata(lab.path("x"), {"train", lab.path("mpi.toml").string()});
  EXPECT_EQ(rejected.code, 2);
  EXPECT_TRUE(has(rejected.err, "mpirun -n N")) << rejected.err;
}

}  // namespace

Contracts parallel_keys() {
  return {{"parallel.replicate", degree},
          {"parallel.shard", degree},
          {"parallel.zero", zero},
          {"parallel.tensor", tensor},
          {"parallel.sequence", sequence},
          {"parallel.pipeline", pipeline},
          {"parallel.schedule", schedule},
          {"parallel.virtual_stages", virtual_stages},
          {"parallel.stage_layers", stage_layers},
          {"parallel.context", context},
          {"parallel.context_kind", context_kind},
          {"parallel.reshard_after_forward", reshard_after_forward},
          {"parallel.reduce_dtype", reduce_dtype},
          {"parallel.prefetch", prefetch},
          {"parallel.overlap_chunks", overlap_chunks},
          {"parallel.progress", progress},
          {"parallel.silence_limit", silence_limit},
          {"parallel.wait_limit", wait_limit},
          {"parallel.backend", backend}};
}

}  // namespace strata::contracts
