// Every family with every router, schedule, optimizer and kind of recompute, in layouts of every axis: each
// combination trains with the losses of one rank, or is refused before the first step with a message that
// begins with its key. refusing_key lists the refused ones, so a new refusal fails the test. `make test` runs
// a cover of all pairs of choices, except that a family meets one axis and one schedule of each kind; the long tests
// run all combinations (STRATA_ALL_COMBINATIONS).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "config/keys.h"
#include "fixtures/tiny_run.h"
#include "models/model.h"

namespace strata::training {
namespace {

// --- Choices

// How experts are chosen, and how an expert with too many tokens drops some.
const std::vector<std::string> kRouters{"auto", "hash",     "two_level",  "expert_choice",
                                        "soft", "capacity", "probability"};
const std::vector<std::string> kSchedules{"",      "1f1b", "gpipe",  "interleaved", "interleaved_zb",
                                          "zb_h1", "zbv",  "v_half", "v_min",       "dualpipev"};
const std::vector<std::string> kOptimizers{"adamw", "muon", "lion", "adafactor", "adamw8bit"};
const std::vector<std::string> kRecompute{"none", "selective", "full"};

// The mesh axes other than the pipeline.
struct Axes {
  const char* name;
  int ranks = 1, batch_ranks = 1;
  Sets sets = {};
  bool has(const char* set) const { return std::find(sets.begin(), sets.end(), set) != sets.end(); }
};
const std::vector<Axes>& axes() {
  static const std::vector<Axes> kAll{
      {"one_rank"},
      {"replicate2", 2, 2, {"replicate=2"}},
      {"zero1_on_3", 3, 3, {"shard=3", "zero=1"}},
      {"zero2_on_2", 2, 2, {"shard=2", "zero=2"}},
      {"zero3_on_3", 3, 3, {"shard=3", "zero=3"}},
      {"tensor2", 2, 1, {"tensor=2"}},
      {"tensor2_whole_rows", 2, 1, {"tensor=2", "sequence=false"}},
      {"tensor2_zero3", 4, 2, {"tensor=2", "shard=2", "zero=3"}},
      {"context2", 2, 1, {"context=2"}},
      {"ring2", 2, 1, {"context=2", "context_kind='ring'"}},
      {"ulysses2", 2, 1, {"context=2", "context_kind='ulysses'"}},
      {"expert2_on_shard", 2, 2, {"shard=2", "zero=0", "expert=2"}},
      {"expert2_on_tensor", 2, 1, {"tensor=2", "expert=2"}},
      {"expert_tensor2", 2, 1, {"tensor=2", "expert_tensor=2"}},
      {"expert_tensor2_zero1", 4, 2, {"tensor=2", "expert_tensor=2", "shard=2", "zero=1"}},
  };
  return kAll;
}

struct FamilySets {
  const char* name;
  Sets sets;
  bool has_experts = false;
};
const std::vector<FamilySets>& families() {
  const auto experts = [](const char* count) {
    return Sets{fmt::format("{}=4", count), "num_experts_per_tok=2"};
  };
  const Sets latent{"kv_lora_rank=16", "qk_nope_head_dim=8", "qk_rope_head_dim=4", "v_head_dim=6",
                    "q_lora_rank=12"};
  const Sets routed = experts("n_routed_experts") +
                      Sets{"moe_intermediate_size=16", "first_k_dense_replace=1", "n_shared_experts=1"};
  const Sets indexer{"index_n_heads=2", "index_head_dim=8", "index_topk=6"};
  const Sets one_group{"n_group=1", "topk_group=1"}, predicts{"num_nextn_predict_layers=1"};
  const Sets delta{"linear_num_key_heads=2", "linear_num_value_heads=4", "linear_key_head_dim=8",
                   "linear_value_head_dim=8"};
  const Sets shared{"moe_intermediate_size=16", "shared_expert_intermediate_size=16"};
  // A hybrid of three layers, whose second one has attention.
  const auto in_three = [](const char* mixer, const char* attention) {
    return Sets{fmt::format("layer_types=['{}', '{}', '{}']", mixer, attention, mixer)};
  };
  static const std::vector<FamilySets> kAll{
      {"llama3", {}},
      {"mistral", {"sliding_window=8"}},
      {"qwen2", {}},
      {"qwen3", {}},
      {"olmo", {}},
      {"olmo2", {}},
      {"olmo3", {"sliding_window=8"}},
      {"smollm3", {"no_rope_layer_interval=2"}},
      {"gemma2", {"sliding_window=8", "query_pre_attn_scalar=8"}},
      {"gemma3", {"sliding_window=8"}},
      {"phi3", {}},
      {"neox", {}},
      {"gpt2", {}},
      {"starcoder2", {}},
      {"stablelm", {}},
      {"t5", {}},
      {"bert", {}},
      {"mixtral", experts("num_local_experts"), true},
      {"qwen2-moe",
       experts("num_experts") + Sets{"moe_intermediate_size=16", "shared_expert_intermediate_size=16"}, true},
      {"qwen3-moe", experts("num_experts") + Sets{"moe_intermediate_size=16"}, true},
      {"olmoe", experts("num_experts"), true},
      {"gpt-oss", experts("num_local_experts") + Sets{"sliding_window=8"}, true},
      {"llama4",
       experts("num_local_experts") + Sets{"attention_chunk_size=8", "floor_scale=8", "intermediate_size=32"},
       true},
      {"minimax-m2", experts("num_local_experts"), true},
      {"glm4-moe", routed + one_group + predicts, true},
      {"deepseek2", latent + routed, true},
      {"deepseek3", latent + routed + one_group + predicts, true},
      {"kimi-k2", latent + routed + one_group, true},
      {"qwen3-next", delta + experts("num_experts") + in_three("linear_attention", "full_attention") + shared,
       true},
      {"qwen3.5", delta + in_three("linear_attention", "full_attention")},
      {"qwen3.5-moe",
       delta + experts("num_experts") + in_three("linear_attention", "full_attention") + shared, true},
      {"olmo-hybrid", delta + in_three("linear_attention", "full_attention")},
      {"kimi-linear",
       Sets{"kv_lora_rank=16", "qk_nope_head_dim=8", "qk_rope_head_dim=4", "v_head_dim=6",
            "linear_num_heads=4", "linear_head_dim=8", "num_experts=4", "num_experts_per_token=2",
            "moe_intermediate_size=16", "num_expert_group=1", "topk_group=1", "first_k_dense_replace=1"} +
           in_three("linear_attention", "full_attention"),
       true},
      {"mamba2", {"expand=2", "num_heads=4", "head_dim=16", "state_size=8", "n_groups=2"}},
      {"nemotron-h",
       experts("n_routed_experts") + one_group +
           Sets{"hybrid_override_pattern='M*E'", "mamba_num_heads=4", "mamba_head_dim=8", "n_groups=2",
                "ssm_state_size=8", "moe_intermediate_size=16", "moe_shared_expert_intermediate_size=16"},
       true},
      {"granite-hybrid",
       experts("num_local_experts") + in_three("mamba", "attention") +
           Sets{"mamba_expand=2", "mamba_n_heads=4", "mamba_d_head=16", "mamba_n_groups=2", "mamba_d_state=8",
                "shared_intermediate_size=16"},
       true},
      {"falcon-h1",
       {"mamba_d_ssm=64", "mamba_n_heads=4", "mamba_d_head=16", "mamba_n_groups=2", "mamba_d_state=8"}},
      {"lfm2-moe",
       experts("num_experts") + in_three("conv", "full_attention") +
           Sets{"moe_intermediate_size=16", "num_dense_layers=1", "use_expert_bias=false"},
       true},
      {"switch",
       {"num_experts=4", "expert_capacity=8", "num_sparse_encoder_layers=1", "num_sparse_decoder_layers=1",
        "router_jitter_noise=0.1"},
       true},
      {"deepseek3.2", latent + indexer + routed + one_group + predicts, true},
      {"glm-5", latent + indexer + routed + one_group + Sets{"indexer_types=['full', 'shared', 'shared']"},
       true},
  };
  return kAll;
}

struct Combination {
  size_t family = 0, router = 0, schedule = 0, optimizer = 0, recompute = 0, axes = 0;
  static constexpr size_t kChoices = 6;
  std::array<size_t, kChoices> places() const {
    return {family, router, schedule, optimizer, recompute, axes};
  }

  const FamilySets& of_family() const { return families()[family]; }
  const Axes& of_axes() const { return training::axes()[axes]; }
  bool is_pipeline() const { return schedule > 0; }
  std::string name() const {
    return fmt::format("{}, router {}, schedule {}, {}, recompute {}, {}", of_family().name, kRouters[router],
                       is_pipeline() ? kSchedules[schedule] : "none", kOptimizers[optimizer],
                       kRecompute[recompute], of_axes().name);
  }
};

// One rank is the baseline, and dense models have no router.
bool is_possible(const Combination& one) {
  return (one.is_pipeline() || one.axes > 0) && (one.router == 0 || one.of_family().has_experts);
}

// The key named by the refusal of a combination; empty: it trains.
std::string refusing_key(const Combination& one) {
  const std::string family = one.of_family().name, &router = kRouters[one.router];
  const Axes& axes = one.of_axes();
  const bool tensor = axes.has("tensor=2"), context = axes.has("context=2");
  const bool sees_groups = router == "expert_choice" || router == "soft",
             drops = router == "capacity" || router == "probability";
  const bool shares = axes.has("expert=2"), cuts = axes.has("expert_tensor=2");
  const bool has_indexer = family == "deepseek3.2" || family == "glm-5";
  const bool biased = family == "deepseek3" || family == "kimi-k2" || family == "glm4-moe" || has_indexer ||
                      family == "minimax-m2" || family == "kimi-linear" || family == "nemotron-h";
  if (biased && router != "auto" && !drops) return "moe.router";
  if (!one.of_family().has_experts && shares) return "parallel.expert";
  if (!one.of_family().has_experts && cuts) return "parallel.expert_tensor";
  // Attention biases by distance; checked before experts.
  if (axes.has("context_kind='ring'") && (family == "t5" || family == "switch"))
    return "parallel.context_kind";
  if (has_indexer && (axes.has("context_kind='ring'") || axes.has("context_kind='ulysses'")))
    return "parallel.context_kind";
  if (sees_groups && (tensor || context)) return "moe.router";
  // Families whose files store all experts of a layer in one tensor: quantization blocks cross experts.
  const bool one_tensor = family == "gpt-oss" || family == "llama4" || family == "granite-hybrid";
  if (kOptimizers[one.optimizer] == "adamw8bit" && one_tensor && shares) return "optimizer";
  return "";
}

// --- Selection

// All combinations of the other choices, with the axes in turn.
std::vector<Combination> all_combinations() {
  std::vector<Combination> all;
  size_t next = 0;
  for (size_t family = 0; family < families().size(); ++family)
    for (size_t router = 0; router < kRouters.size(); ++router)
      for (size_t schedule = 0; schedule < kSchedules.size(); ++schedule)
        for (size_t optimizer = 0; optimizer < kOptimizers.size(); ++optimizer)
          for (size_t recompute = 0; recompute < kRecompute.size(); ++recompute) {
            Combination one{family, router, schedule, optimizer, recompute, next++ % axes().size()};
            if (one.axes == 0 && !one.is_pipeline()) one.axes = next++ % axes().size();
            if (is_possible(one)) all.push_back(one);
          }
  return all;
}

// Kinds of axes: no mesh, replicas and ZeRO, tensor, context, expert; and of schedules: none, whole backward passes, split
// ones.
size_t kind_of_axes(const Axes& axes) {
  const std::string_view name = axes.name;
  if (name == "one_rank") return 0;
  return name.starts_with("expert")                                                          ? 4
         : name.starts_with("tensor")                                                        ? 2
         : name.starts_with("context") || name.starts_with("ring") || name.starts_with("ul") ? 3
                                                                                             : 1;
}
size_t kind_of_schedule(size_t schedule) {
  return schedule == 0 ? 0 : schedule <= 3 ? 1 : 2;
}

using Pair = std::array<size_t, 4>;  // two choices, each with its index
std::vector<Pair> pairs_of(const Combination& one) {
  std::vector<Pair> pairs;
  const auto places = one.places();
  for (size_t a = 1; a < places.size(); ++a)
    for (size_t b = a + 1; b < places.size(); ++b) pairs.push_back({a, places[a], b, places[b]});
  const size_t with_family[] = {one.router, kind_of_schedule(one.schedule), one.optimizer, one.recompute,
                                kind_of_axes(one.of_axes())};
  for (size_t b = 0; b < std::size(with_family); ++b) pairs.push_back({0, one.family, b + 1, with_family[b]});
  return pairs;
}

// Covers every possible pair: repeatedly draws a few combinations and adds the one with the most
// uncovered pairs.
std::vector<Combination> pairwise_cover() {
  const std::array<size_t, Combination::kChoices> counts{families().size(), kRouters.size(),
                                                         kSchedules.size(), kOptimizers.size(),
                                                         kRecompute.size(), axes().size()};
  std::set<Pair> open;
  std::vector<Combination> possible;
  for (size_t i = 0; i < counts[0] * counts[1] * counts[2] * counts[3] * counts[4] * counts[5]; ++i) {
    std::array<size_t, Combination::kChoices> at{};
    size_t rest = i;
    for (size_t choice = 0; choice < counts.size(); ++choice) {
      at[choice] = rest % counts[choice];
      rest /= counts[choice];
    }
    const Combination one{at[0], at[1], at[2], at[3], at[4], at[5]};
    if (!is_possible(one)) continue;
    possible.push_back(one);
    for (const Pair& pair : pairs_of(one)) open.insert(pair);
  }
  std::vector<Combination> cover;
  uint64_t drawn = 0;
  while (!open.empty()) {
    size_t most = 0;
    Combination best;
    for (int tries = 0; tries < 200 || most == 0; ++tries) {
      const auto bits = philox({20, 1}, drawn++);
      const Combination& one = possible[(uint64_t{bits[0]} << 32 | bits[1]) % possible.size()];
      size_t found = 0;
      for (const Pair& pair : pairs_of(one)) found += open.contains(pair) ? 1 : 0;
      if (found > most) {
        most = found;
        best = one;
      }
    }
    for (const Pair& pair : pairs_of(best)) open.erase(pair);
    cover.push_back(best);
  }
  return cover;
}

#ifdef STRATA_ALL_COMBINATIONS
constexpr bool kEvery = true;
#else
constexpr bool kEvery = false;
#endif

// Family and router: a test runs all combinations of both. A family with all its routers takes ten minutes and more.
using FamilyRouter = std::pair<size_t, size_t>;
std::vector<Combination> combinations_of(const FamilyRouter& of) {
  static const std::vector<Combination> kChosen = kEvery ? all_combinations() : pairwise_cover();
  std::vector<Combination> own;
  for (const Combination& one : kChosen)
    if (FamilyRouter{one.family, one.router} == of) own.push_back(one);
  return own;
}
std::vector<FamilyRouter> families_and_routers() {
  std::vector<FamilyRouter> all;
  for (size_t family = 0; family < families().size(); ++family)
    for (size_t router = 0; router < (families()[family].has_experts ? kRouters.size() : 1); ++router)
      all.emplace_back(family, router);
  return all;
}

// --- Running

bool is_key(const std::string& text) {
  if (config::find_table(text) != nullptr) return true;
  const size_t dot = text.rfind('.');
  const config::TableSpec* table =
      dot == std::string::npos ? nullptr : config::find_table(text.substr(0, dot));
  return table != nullptr && std::any_of(table->keys.begin(), table->keys.end(),
                                         [&](const auto& key) { return key.name == text.substr(dot + 1); });
}

// The key that a refusal begins with, or the first in a list of errors; empty: none.
std::string key_of(const std::string& refusal) {
  static const std::regex kOne(R"(^(?:rank \d+: )?\[([a-z_0-9.]+)\] )"),
      kListed(R"(\s([a-z_]+(?:\.[a-z_0-9]+)*): )");
  std::smatch found;
  if (refusal.starts_with("[config] found")) {
    const std::string listed = refusal.substr(refusal.find(':') + 1);
    if (std::regex_search(listed, found, kListed) && is_key(found[1])) return found[1];
    return "";
  }
  return std::regex_search(refusal, found, kOne) && is_key(found[1]) ? found[1].str() : "";
}

struct Outcome {
  std::string refusal = {}, crash = {};
  std::vector<double> losses = {}, norms = {};
};

class Combinations : public testing::TestWithParam<FamilyRouter> {
 protected:
  Combinations() {
    std::string text;
    for (int i = 0; i < 200; ++i)
      text += "the cat number " + std::to_string(i * 7919 % 100) + " sat on the mat.\n";
    put_file(tiny_.path("corpus.txt"), text);
  }

  Sets sets_of(const Combination& one) const {
    const FamilySets& family = one.of_family();
    const std::string name = family.name;
    const bool encodes = name == "t5" || name == "bert" || name == "switch";
    Sets sets{fmt::format("model.family='{}'", name),
              fmt::format("model.num_hidden_layers={}", encodes ? 2 : 3),
              "model.intermediate_size=32",
              "training.global_batch_size=12",
              "training.steps=2",
              "schedule.warmup_steps=1",
              "checkpoint.interval='never'",
              "eval.sample_tokens=0",
              fmt::format("optimizer.name='{}'", kOptimizers[one.optimizer]),
              fmt::format("optimizer.lr={}", kOptimizers[one.optimizer] == "lion" ? "1e-4" : "3e-3")};
    if (kOptimizers[one.optimizer] == "adamw8bit") sets.emplace_back("optimizer.adamw8bit.min_elements=256");
    for (const char* with_head_dim :
         {"gemma2", "gemma3", "qwen3", "qwen3-moe", "gpt-oss", "llama4", "mistral", "mixtral", "glm4-moe",
          "minimax-m2", "qwen3-next", "qwen3.5", "qwen3.5-moe", "olmo-hybrid", "nemotron-h", "granite-hybrid",
          "falcon-h1"})
      if (name == with_head_dim) sets.emplace_back("model.head_dim=8");
    for (const std::string& set : family.sets) sets.push_back("model.override." + set);
    if (encodes)
      sets = sets + Sets{"model.vocab_size=421",
                         fmt::format("data.train=['{}']", tiny_.path("corpus.txt").string())};
    if (!family.has_experts) return sets;
    const std::string& router = kRouters[one.router];
    const bool drops = router == "capacity" || router == "probability",
               sees_groups = router == "expert_choice" || router == "soft";
    if (!drops) sets.push_back(fmt::format("moe.router='{}'", router));
    if (drops) sets.emplace_back("moe.capacity_factor=1.0");
    if (router == "probability") sets.emplace_back("moe.drop='probability'");
    if (router == "probability" || sees_groups) sets.emplace_back("model.allow_leaking_routing=true");
    if (router != "hash" && !sees_groups) sets.emplace_back("moe.aux_coef=0.1");
    if (router != "soft") sets.emplace_back("moe.z_coef=0.05");
    return sets;
  }

  // Leaves num_key_value_heads out for families that have no such key.
  std::string toml_of(const Combination& one, const std::string& name) const {
    static const std::set<std::string> kWithout{
        "gpt2",      "olmo",    "t5",          "switch", "bert",        "neox", "deepseek2",
        "deepseek3", "kimi-k2", "kimi-linear", "mamba2", "deepseek3.2", "glm-5"};
    std::string text = tiny_.toml(name);
    for (const std::string heads : {"num_key_value_heads = 2\n", "num_attention_heads = 4\n"}) {
      const bool absent = heads.starts_with("num_key") ? kWithout.contains(one.of_family().name)
                                                       : one.of_family().name == std::string_view("mamba2");
      if (absent) text.erase(text.find(heads), heads.size());
    }
    return text;
  }

  Outcome run(const Combination& one, const Sets& sets, int ranks) {
    const std::string name = "run" + std::to_string(++runs_);
    Outcome outcome;
    try {
      const auto config = config::parse_run_config(toml_of(one, name), "RUN.toml", sets_of(one) + sets);
      tiny_.train_ranks(config, ranks);
    } catch (const ConfigError& error) {
      outcome.refusal = error.what();
    } catch (const std::exception& error) {
      outcome.crash = error.what();
    }
    if (std::filesystem::exists(tiny_.folder(name) / "metrics.jsonl")) {
      outcome.losses = values_of(tiny_.folder(name), "loss");
      outcome.norms = values_of(tiny_.folder(name), "grad_norm");
    }
    std::filesystem::remove_all(tiny_.folder(name));
    return outcome;
  }

  // The results of one rank for the same model, router and optimizer.
  const Outcome& baseline(const Combination& one) {
    const auto [known, is_new] = baselines_.try_emplace(one.optimizer);
    if (is_new) known->second = run(one, {"training.micro_batch_size=6", "memory.recompute='none'"}, 1);
    return known->second;
  }

  Outcome shared(const Combination& one) {
    const Axes& axes = one.of_axes();
    Sets sets{fmt::format("memory.recompute='{}'", kRecompute[one.recompute]),
              // Four micro-batches per step are enough for every schedule of two ranks.
              fmt::format("training.micro_batch_size={}", 3 / axes.batch_ranks)};
    for (const std::string& set : axes.sets) sets.push_back("parallel." + set);
    if (one.is_pipeline()) {
      const std::string& schedule = kSchedules[one.schedule];
      sets = sets + Sets{"parallel.pipeline=2", fmt::format("parallel.schedule='{}'", schedule)};
      if (schedule.starts_with("interleaved")) sets.emplace_back("parallel.virtual_stages=2");
    }
    return run(one, sets, axes.ranks * (one.is_pipeline() ? 2 : 1));
  }

  TinyRun tiny_;

 private:
  int runs_ = 0;
  std::map<size_t, Outcome> baselines_;  // by optimizer
};

TEST_P(Combinations, TrainAsOneRankOrAreRefusedByKey) {
  for (const Combination& one : combinations_of(GetParam())) {
    SCOPED_TRACE(one.name());
    const Outcome found = shared(one);
    if (const std::string key = refusing_key(one); !key.empty()) {
      EXPECT_EQ(key_of(found.refusal), key) << found.refusal << found.crash;
      EXPECT_TRUE(found.losses.empty()) << "refused after the first step";
      continue;
    }
    const Outcome& wanted = baseline(one);
    EXPECT_EQ(wanted.refusal + wanted.crash, "") << "one rank";
    EXPECT_EQ(found.refusal + found.crash, "");
    if (found.losses.size() != wanted.losses.size() || wanted.losses.empty()) {
      ADD_FAILURE() << found.losses.size() << " losses, and one rank has " << wanted.losses.size();
      continue;
    }
    for (size_t i = 0; i < wanted.losses.size(); ++i) {
      EXPECT_NEAR(found.losses[i], wanted.losses[i], 5e-5 * wanted.losses[i]) << "step " << i + 1;
      EXPECT_NEAR(found.norms[i], wanted.norms[i], 1e-3 * wanted.norms[i]) << "step " << i + 1;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Combinations, testing::ValuesIn(families_and_routers()),
                         [](const auto& instance) {
                           const FamilySets& family = families()[instance.param.first];
                           std::string name = family.name;
                           if (family.has_experts) name += "_" + kRouters[instance.param.second];
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

// Add a new family to families() above.
TEST(Combinations, HaveEveryFamily) {
  std::set<std::string> known, all;
  for (const FamilySets& family : families()) known.insert(family.name);
  for (const models::Family* family : models::families()) all.insert(std::string(family->name));
  EXPECT_EQ(known, all);
}

}  // namespace
}  // namespace strata::training
