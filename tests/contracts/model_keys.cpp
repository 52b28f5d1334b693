// Contracts of [model], checked by the tensors of a run, the statistics of its initial weights, and the size
// of steps under µP.
#include <algorithm>
#include <cmath>

#include "contracts/contract.h"
#include "contracts/lab.h"

namespace strata::contracts {
namespace {

const Sets kOnce = kStill + Sets{"training.steps=1"};
const std::string kLayer = "model.layers.1.";

// A run of one step with another [model].
Seen run_model(Lab& lab, const std::string& model, const Sets& sets = {}) {
  return lab.run_toml(lab.toml("[model]\n" + model),
                      kOnce + Sets{"training.sequence_length=16", "training.global_batch_size=1"} + sets);
}

void preset(const std::string&) {
  Lab lab;
  const Seen run =
      run_model(lab, "preset = \"llama3-5m\"\n[model.override]\nnum_hidden_layers = 1\nvocab_size = 300\n");
  // As listed by `strata presets`.
  EXPECT_EQ(run.weights(1).at("model.layers.0.mlp.gate_proj.weight").shape, (Shape{768, 256}));
  EXPECT_EQ(run.weights(1).at("model.layers.0.self_attn.k_proj.weight").shape, (Shape{128, 256}));
  EXPECT_EQ(run.config()["num_attention_heads"], 4);
  EXPECT_EQ(run.config()["rope_theta"], 10000.0);
  EXPECT_TRUE(has(lab.refusal_of_toml(lab.toml("[model]\npreset = \"llama3-5n\"")), "llama3-5m"));
}

// Any key of the family's config.json; it changes the model and is written to its config.json.
void overridden(const std::string&) {
  Lab lab;
  const auto of_norm = [&](const std::string& eps) {
    return lab.run(kOnce + Sets{"model.override.rms_norm_eps=" + eps});
  };
  const Seen one = of_norm("1e-5"), other = of_norm("1.0");
  EXPECT_EQ(other.config()["rms_norm_eps"], 1.0);
  // With a large epsilon norms do not rescale small values: logits are nearly equal and the loss is log(300).
  EXPECT_NEAR(other.values("loss").at(0), std::log(300.0), 1e-3);
  EXPECT_GT(std::abs(one.values("loss").at(0) - std::log(300.0)), 1e-3);
  EXPECT_TRUE(has(lab.refusal({"model.override.rms_norm_epz=1.0"}), "rms_norm_epz"));
}

void from(const std::string&) {
  Lab lab;
  const Seen source = lab.run({"optimizer.lr=0.01"});
  const std::string toml = "from = \"" + (source.folder / "checkpoints/step-00000002").string() + "\"\n";
  EXPECT_TRUE(same(run_model(lab, toml).weights(1), source.weights(2)));
  EXPECT_EQ(run_model(lab, toml).config()["hidden_size"], 32);
}

void init(const std::string&) {
  Lab lab;
  const Seen source = lab.run({"optimizer.lr=0.01"});
  const std::string toml =
      "from = \"" + (source.folder / "checkpoints/step-00000002").string() + "\"\ninit = ";
  EXPECT_TRUE(same(run_model(lab, toml + "\"weights\"\n").weights(1), source.weights(2)));
  EXPECT_TRUE(same(run_model(lab, toml + "\"random\"\n").weights(1), lab.run(kOnce).weights(1)))
      << "the initial weights for these sizes and this seed";
  EXPECT_TRUE(has(lab.refusal({"model.init=\"random\""}), "model.init"));
}

double deviation(const Tensor& tensor) {
  double sum = 0, squares = 0;
  for (const double value : tensor.values) {
    sum += value;
    squares += value * value;
  }
  const auto n = static_cast<double>(tensor.values.size());
  return std::sqrt(squares / n - sum * sum / n / n);
}
double largest(const Tensor& tensor) {
  double most = 0;
  for (const double value : tensor.values) most = std::max(most, std::abs(value));
  return most;
}

// Published standard deviations for a model with width 32, feed-forward width 48 and two layers.
void init_scheme(const std::string&) {
  struct Case {
    const char* name;
    double in, attention_out, ffn_out;
    bool cut;
  };
  const double into = 1 / std::sqrt(32.0);
  for (const Case& one :
       {Case{"normal", 0.02, 0.02, 0.02, false}, Case{"scaled_residual", 0.02, 0.02 / 2, 0.02 / 2, false},
        Case{"small_wang", std::sqrt(2 / 160.0), 2 / (2 * std::sqrt(32.0)), 2 / (2 * std::sqrt(32.0)), false},
        Case{"truncated_normal", 0.02, 0.02, 0.02, true},
        Case{"mitchell", into, 1 / std::sqrt(2.0 * 32 * 2), 1 / std::sqrt(2.0 * 48 * 2), true}}) {
    SCOPED_TRACE(one.name);
    Lab lab;
    const auto weights =
        lab.run(kOnce + Sets{std::string("model.init_scheme=\"") + one.name + "\""}).weights(1);
    const auto expect = [&](const std::string& name, double wanted) {
      const Tensor& tensor = weights.at(kLayer + name + ".weight");
      EXPECT_NEAR(deviation(tensor) / wanted, 1, 0.08) << name;
      // Without truncation some of 1,500 normal numbers exceed three deviations.
      if (one.cut) {
        EXPECT_LE(largest(tensor), 3.1 * wanted) << name;
      }
    };
    expect("mlp.gate_proj", one.in);
    expect("self_attn.o_proj", one.attention_out);
    expect("mlp.down_proj", one.ffn_out);
  }
  Lab lab;
  const auto beyond = lab.run(kOnce).weights(1).at("model.embed_tokens.weight");
  EXPECT_GT(largest(beyond), 3.1 * 0.02) << "some of 9,600 normal numbers exceed three deviations";
}

void init_std(const std::string&) {
  Lab lab;
  const auto weights = lab.run(kOnce + Sets{"model.init_std=0.3", "model.init_scheme=\"normal\""}).weights(1);
  EXPECT_NEAR(deviation(weights.at("model.embed_tokens.weight")), 0.3, 0.01);
  EXPECT_NEAR(deviation(weights.at(kLayer + "mlp.down_proj.weight")), 0.3, 0.02);
  EXPECT_TRUE(has(lab.refusal({"model.init_std=0.3", "model.init_scheme=\"mitchell\""}), "model.init_std"));
}

// The size of Adam's first step is the learning rate; for hidden matrices it is scaled by base width / width.
void mup_width(const std::string&) {
  Lab lab;
  const Sets sets =
      kFlat + Sets{"training.steps=1",    "optimizer.lr=0.01",         "optimizer.weight_decay=0",
                   "optimizer.eps=1e-12", "training.clip_grad_norm=0", "model.tie_word_embeddings=false"};
  const Sets mup{"model.mup_base_hidden_size=8"};  // a quarter
  const auto start = lab.run(kOnce + mup + Sets{"model.tie_word_embeddings=false"}).weights(1);
  const auto end = lab.run(sets + mup).weights(1);
  const auto step = [&](const std::string& name) {
    std::vector<double> sizes;
    for (size_t i = 0; i < start.at(name).values.size(); ++i)
      sizes.push_back(std::abs(end.at(name).values[i] - start.at(name).values[i]));
    std::nth_element(sizes.begin(), sizes.begin() + std::ssize(sizes) / 2, sizes.end());
    return sizes[sizes.size() / 2];
  };
  EXPECT_NEAR(step(kLayer + "mlp.gate_proj.weight"), 0.01 / 4, 1e-5);
  EXPECT_NEAR(step(kLayer + "self_attn.o_proj.weight"), 0.01 / 4, 1e-5);
  EXPECT_NEAR(step("model.norm.weight"), 0.01, 1e-5);
  EXPECT_NEAR(deviation(start.at(kLayer + "mlp.gate_proj.weight")), 0.02 / 2, 0.001)
      << "scaled by the square root of the width ratio";
  // With the base width equal to the width nothing changes.
  EXPECT_TRUE(same(lab.run({"model.mup_base_hidden_size=32"}).weights(2), lab.run().weights(2)));
}

// Scores are scaled by the head size, not its square root: initial rows of q are smaller by √(base / size).
void mup_head(const std::string&) {
  Lab lab;
  const Sets mup{"model.mup_base_hidden_size=32"};
  const auto usual = lab.run(kOnce + mup).weights(1);
  const auto smaller = lab.run(kOnce + mup + Sets{"model.mup_base_head_dim=2"}).weights(1);  // of 8
  for (const auto& [name, tensor] : usual) {
    const double factor = has(name, "q_proj") ? 0.5 : 1;
    for (size_t i = 0; i < tensor.values.size(); ++i)
      ASSERT_NEAR(smaller.at(name).values[i], factor * tensor.values[i], 1e-8) << name;
  }
  EXPECT_TRUE(has(lab.refusal({"model.mup_base_head_dim=2"}), "mup_base_hidden_size"));
}

void family(const std::string&) {
  Lab lab;
  const std::string sizes =
      "hidden_size = 32\nnum_hidden_layers = 1\nnum_attention_heads = 4\nvocab_size = 300\n"
      "max_position_embeddings = 64\n";
  const Seen gpt2 = run_model(lab, "family = \"gpt2\"\n" + sizes),
             llama = run_model(lab, "family = \"llama3\"\n" + sizes);
  EXPECT_EQ(gpt2.config()["architectures"], json::array({"GPT2LMHeadModel"}));
  EXPECT_EQ(llama.config()["architectures"], json::array({"LlamaForCausalLM"}));
  const auto has_tensor = [](const Tensors& tensors, const std::string& part) {
    return std::any_of(tensors.begin(), tensors.end(), [&](const auto& one) { return has(one.first, part); });
  };
  EXPECT_TRUE(has_tensor(gpt2.weights(1), "wpe") && !has_tensor(gpt2.weights(1), "gate_proj"));
  EXPECT_TRUE(!has_tensor(llama.weights(1), "wpe") && has_tensor(llama.weights(1), "gate_proj"));
  EXPECT_TRUE(has(lab.refusal_of_toml(lab.toml("[model]\nfamily = \"lama3\"")), "llama3"));
}

// Every size determines the shape of a tensor, and config.json has it under the same name.
void sizes(const std::string& key) {
  struct Case {
    std::string set;
    std::string tensor;
    Shape shape;
  };
  const std::map<std::string, Case> cases{
      {"vocab_size", {"400", "model.embed_tokens.weight", {400, 32}}},
      {"hidden_size", {"64", "model.norm.weight", {64}}},
      {"intermediate_size", {"80", "model.layers.0.mlp.up_proj.weight", {80, 32}}},
      {"num_attention_heads",
       {"8", "model.layers.0.self_attn.k_proj.weight", {8, 32}}},  // heads of 4, two of them
      {"num_key_value_heads", {"1", "model.layers.0.self_attn.v_proj.weight", {8, 32}}},
      {"head_dim", {"16", "model.layers.0.self_attn.q_proj.weight", {64, 32}}}};
  const std::string name = key.substr(6);
  const Case& one = cases.at(name);
  Lab lab;
  const Seen run = lab.run(kOnce + Sets{key + "=" + one.set});
  EXPECT_EQ(run.weights(1).at(one.tensor).shape, one.shape);
  EXPECT_EQ(run.config().at(name), std::stoi(one.set));
}

void layers(const std::string&) {
  Lab lab;
  const Seen run = lab.run(kOnce + Sets{"model.num_hidden_layers=3"});
  EXPECT_TRUE(run.weights(1).contains("model.layers.2.mlp.up_proj.weight"));
  EXPECT_FALSE(run.weights(1).contains("model.layers.3.mlp.up_proj.weight"));
  EXPECT_EQ(run.config()["num_hidden_layers"], 3);
}

void positions(const std::string&) {
  Lab lab;
  const Sets sets = kOnce + Sets{"model.max_position_embeddings=40"};
  EXPECT_EQ(lab.run(sets + Sets{"training.sequence_length=40"}).config()["max_position_embeddings"], 40);
  EXPECT_TRUE(has(lab.refusal(sets + Sets{"training.sequence_length=41"}), "40 positions"));
}

void tied(const std::string&) {
  Lab lab;
  const Seen one = lab.run(kOnce + Sets{"model.tie_word_embeddings=true"}),
             two = lab.run(kOnce + Sets{"model.tie_word_embeddings=false"});
  EXPECT_FALSE(one.weights(1).contains("lm_head.weight"));
  EXPECT_EQ(two.weights(1).at("lm_head.weight").shape, (Shape{300, 32}));
  EXPECT_EQ(one.config()["tie_word_embeddings"], true);
  EXPECT_EQ(two.config()["tie_word_embeddings"], false);
}

// With a very large base only the first pair of a head's elements rotates; heads of size two have no other
// pair.
void rope_theta(const std::string&) {
  Lab lab;
  const auto losses = [&](const std::string& theta, const std::string& head) {
    const Seen run =
        lab.run(kOnce + Sets{"model.rope_theta=" + theta, "model.head_dim=" + head, "model.init_std=0.5"});
    EXPECT_EQ(run.config()["rope_theta"].get<double>(), std::stod(theta));
    return run.values("loss").at(0);
  };
  EXPECT_EQ(losses("100.0", "2"), losses("1e6", "2"));
  EXPECT_GT(std::abs(losses("100.0", "8") - losses("1e6", "8")), 1e-5);
}

// The loss is reported separately from the main loss, and scales with its weight in the gradients.
void mtp_loss_weight(const std::string&) {
  Lab lab;
  const auto run = [&](const std::string& weight) {
    return run_model(lab, "preset = \"deepseek3-6m\"\nmtp_loss_weight = " + weight +
                              "\n[model.override]\nnum_hidden_layers = 1\nfirst_k_dense_replace = 1\n"
                              "vocab_size = 300\nnum_nextn_predict_layers = 1\n");
  };
  const Seen usual = run("\"auto\""), same_weight = run("0.3"), more = run("3.0"), none = run("0.0");
  EXPECT_NEAR(usual.values("mtp_loss").at(0), std::log(300.0), 0.3);
  EXPECT_TRUE(same(usual.weights(1), same_weight.weights(1)));
  EXPECT_EQ(more.values("mtp_loss").at(0), usual.values("mtp_loss").at(0));
  EXPECT_GT(more.values("grad_norm").at(0), 1.5 * usual.values("grad_norm").at(0));
  EXPECT_EQ(usual.config()["num_nextn_predict_layers"], 1);
  EXPECT_TRUE(usual.weights(1).contains("model.layers.1.eh_proj.weight"));
  // With weight 0 the layer is removed.
  EXPECT_EQ(none.config()["num_nextn_predict_layers"], 0);
  EXPECT_FALSE(none.weights(1).contains("model.layers.1.eh_proj.weight"));
  EXPECT_TRUE(has(lab.refusal({"model.mtp_loss_weight=0.3"}), "num_nextn_predict_layers"));
}

// A warm-up moves the indexer and nothing else; sparse training is the default.
void indexer(const std::string&) {
  Lab lab;
  const auto model = [](const std::string& stage, const char* top_k) {
    return "preset = \"dsa-30m\"\nindexer = \"" + stage +
           "\"\n[model.override]\nnum_hidden_layers = 1\nfirst_k_dense_replace = 1\nvocab_size = 300\n"
           "index_topk = " +
           top_k + "\n";
  };
  const Seen usual = run_model(lab, model("auto", "4")), sparse = run_model(lab, model("sparse", "4")),
             warmup = run_model(lab, model("warmup", "4"), {"training.steps=2", "optimizer.lr=0.01"});
  EXPECT_TRUE(same(usual.weights(1), sparse.weights(1)));
  EXPECT_TRUE(usual.values("indexer_share").empty());
  EXPECT_GT(usual.values("indexer_loss").at(0), 0);
  EXPECT_GT(warmup.values("indexer_share").at(0), 0);
  EXPECT_LT(warmup.values("indexer_share").at(0), 1);
  const Tensors first = warmup.weights(1), second = warmup.weights(2);
  for (const auto& [name, tensor] : first)
    EXPECT_EQ(tensor.values == second.at(name).values, !has(name, ".indexer.")) << name;
  EXPECT_TRUE(has(lab.refusal({"model.indexer=\"warmup\""}), "which has no indexer"));
  const std::string too_many = lab.refusal_of_toml(lab.toml("[model]\n" + model("sparse", "1000")));
  EXPECT_TRUE(has(too_many, "training.sequence_length") && has(too_many, "index_topk")) << too_many;
}

}  // namespace

Contracts model_keys() {
  return {{"model.preset", preset},
          {"model.from", from},
          {"model.init", init},
          {"model.init_scheme", init_scheme},
          {"model.init_std", init_std},
          {"model.mup_base_hidden_size", mup_width},
          {"model.mup_base_head_dim", mup_head},
          {"model.family", family},
          {"model.vocab_size", sizes},
          {"model.hidden_size", sizes},
          {"model.intermediate_size", sizes},
          {"model.num_hidden_layers", layers},
          {"model.num_attention_heads", sizes},
          {"model.num_key_value_heads", sizes},
          {"model.head_dim", sizes},
          {"model.max_position_embeddings", positions},
          {"model.tie_word_embeddings", tied},
          {"model.rope_theta", rope_theta},
          {"model.mtp_loss_weight", mtp_loss_weight},
          {"model.indexer", indexer},
          {"model.override", overridden}};
}

}  // namespace strata::contracts
