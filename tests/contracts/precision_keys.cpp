// Contracts of [precision].
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/json.h"
#include "contracts/contract.h"
#include "contracts/lab.h"

namespace strata::contracts {
namespace {

// Values between instructions have half the bits; the loss agrees to about three digits.
void compute(const std::string&) {
  Lab lab;
  // Enough rows that activations outweigh the scratch memory of matmuls, which depends on the processor.
  const Sets sets{"training.steps=1", "training.global_batch_size=64", "training.micro_batch_size=64"};
  const Seen fp32 = lab.run(sets + Sets{"precision.compute=\"fp32\""}),
             bf16 = lab.run(sets + Sets{"precision.compute=\"bf16\""});
  const double apart = std::abs(bf16.values("loss").at(0) - fp32.values("loss").at(0));
  EXPECT_GT(apart, 1e-7);
  EXPECT_LT(apart, 0.02);
  EXPECT_LT(bf16.event("start").at("arena_bytes"), fp32.event("start").at("arena_bytes"));
  EXPECT_EQ(bf16.weights(1).at("model.norm.weight").dtype, "F32") << "masters";
  const Seen fp16 = lab.run(sets + Sets{"precision.compute=\"fp16\""});
  const double nearer = std::abs(fp16.values("loss").at(0) - fp32.values("loss").at(0));
  EXPECT_GT(nearer, 1e-8);
  EXPECT_LT(nearer, 0.0025) << "three more bits";
  EXPECT_LT(fp16.event("start").at("arena_bytes"), fp32.event("start").at("arena_bytes"));
  EXPECT_EQ(fp16.weights(1).at("model.norm.weight").dtype, "F32") << "masters";
  EXPECT_TRUE(has(lab.refusal({"precision.compute=\"fp16\"", "device.kind=\"cuda\""}), "not yet"));
}

// What overflows and halves it is in tests/train/fp16_test.cpp.
void loss_scale(const std::string&) {
  Lab lab;
  const Sets fp16{"precision.compute=\"fp16\""};
  const auto scaled = [&](const std::string& scale) {
    return lab.run(fp16 + Sets{"precision.loss_scale=" + scale});
  };
  EXPECT_EQ(scaled("\"dynamic\"").values("loss_scale"), (std::vector<double>{65536, 65536}));
  const Seen fixed = scaled("1024");
  EXPECT_EQ(fixed.values("loss_scale"), (std::vector<double>{1024, 1024}));
  EXPECT_NEAR(fixed.values("grad_norm").at(0), lab.run().values("grad_norm").at(0), 0.01);
  EXPECT_TRUE(has(lab.refusal(fp16 + Sets{"precision.loss_scale=3000"}), "such as 2048 or 4096"));
  EXPECT_TRUE(has(lab.refusal(fp16 + Sets{"precision.loss_scale=0.5"}), "from 1 to 32768"));
  EXPECT_TRUE(has(lab.refusal({"precision.loss_scale=1024"}), "precision.compute"));
}

int64_t blocks_of(int64_t n, int64_t length) {
  return (n + length - 1) / length;
}

// A recipe decides which codes and scales weights have, by the shapes of its publisher, and trains with nearly the
// loss of bf16.
void recipe(const std::string&) {
  Lab lab;
  struct Form {
    std::string codes, scales;
    int64_t rows, columns;  // of a block; 0: the whole tensor
  };
  const std::map<std::string, Form> forms{
      {"block", {"e4m3", "f32", 128, 128}},    {"tensor", {"e4m3", "f32", 0, 0}},
      {"delayed", {"e4m3", "f32", 0, 0}},      {"row", {"e4m3", "f32", 1, 0}},
      {"row_hp_wgrad", {"e4m3", "f32", 1, 0}}, {"mxfp8", {"e4m3", "e8m0", 1, 32}},
      {"nvfp4", {"e2m1", "e4m3", 16, 16}}};
  const Sets sets{"precision.keep=[\"head\"]"};
  const double usual = lab.run({"precision.compute=\"bf16\""}).last("loss");
  for (const auto& [name, form] : forms) {
    SCOPED_TRACE(name);
    const Sets of =
        sets + Sets{std::string("precision.compute=\"") + (name == "nvfp4" ? "fp4" : "fp8") + "\"",
                    "precision.recipe=\"" + name + "\""};
    int64_t weights = 0;
    std::map<std::string, json> entries;
    const json explained = lab.explain({}, of);
    for (const json& entry : explained.at("persistent")) entries[entry.at("name").get<std::string>()] = entry;
    for (const auto& [entry_name, entry] : entries) {
      if (!entry_name.ends_with("@codes")) continue;
      ++weights;
      const std::string weight = entry_name.substr(0, entry_name.find('@'));
      const int64_t rows = entries.at(weight).at("shape").at(0),
                    columns = entries.at(weight).at("shape").at(1);
      EXPECT_EQ(entry.at("dtype"), form.codes);
      EXPECT_EQ(entry.at("bytes"), form.codes == "e2m1" ? rows * columns / 2 : rows * columns);
      const json& scales = entries.at(weight + "@scales");
      EXPECT_EQ(scales.at("dtype"), form.scales);
      EXPECT_EQ(scales.at("shape").at(0), form.rows == 0 ? 1 : blocks_of(rows, form.rows));
      EXPECT_EQ(scales.at("shape").at(1), form.columns == 0 ? 1 : blocks_of(columns, form.columns));
    }
    EXPECT_EQ(weights, 2 * 4) << "in two layers: qkv, out, up, down";
    const double loss = lab.run(of).last("loss");
    EXPECT_NE(loss, usual);
    EXPECT_NEAR(loss, usual, 0.02);
  }
  // auto, and recipes for another type.
  const auto chosen = [&](const std::string& type) {
    const json explained = lab.explain({}, sets + Sets{"precision.compute=\"" + type + "\""});
    for (const json& choice : explained.at("choices"))
      if (choice.at("key") == "precision.recipe") return choice.at("value").get<std::string>();
    return std::string();
  };
  EXPECT_EQ(chosen("fp8"), "\"block\"");
  EXPECT_EQ(chosen("fp4"), "\"nvfp4\"");
  EXPECT_EQ(chosen("bf16"), "");
  for (const char* type : {"auto", "bf16", "fp32", "fp4"})
    EXPECT_TRUE(
        has(lab.refusal({std::string("precision.compute=\"") + type + "\"", "precision.recipe=\"row\""}),
            "expected \"fp8\""));
  EXPECT_TRUE(
      has(lab.refusal({"precision.compute=\"fp8\"", "precision.recipe=\"nvfp4\""}), "expected \"fp4\""));
  EXPECT_TRUE(has(lab.refusal({"precision.compute=\"fp8\"", "precision.recipe=\"blocks\""}), "block"));
}

// Bytes of the shards that ranks of ZeRO-3 put together, by type. The losses are the same.
void gather(const std::string&) {
  Lab lab;
  const auto gathered = [&](const Sets& sets) {
    std::map<std::string, int64_t> elements;
    const json explained = lab.explain({"--ranks", "2", "--program"},
                                       sets + Sets{"parallel.zero=3", "training.global_batch_size=2"});
    for (const json& one : explained.at("programs").at(0).at("segments").at("forward")) {
      if (one.at("op") != "reshard") continue;
      for (const json& in : one.at("inputs"))
        if (in.at("shape").size() == 2)
          elements[in.at("dtype").get<std::string>()] +=
              in.at("shape").at(0).get<int64_t>() * in.at("shape").at(1).get<int64_t>();
    }
    return elements;
  };
  const Sets bf16{"precision.compute=\"bf16\""},
      fp8{"precision.compute=\"fp8\"", "precision.recipe=\"row\"", "precision.keep=[]"};
  const auto with = [](const char* type) { return Sets{std::string("precision.gather=\"") + type + "\""}; };
  const int64_t all = gathered(bf16 + with("fp32")).at("f32");
  EXPECT_EQ(gathered(bf16 + with("bf16")).at("bf16"), all);
  EXPECT_EQ(gathered(bf16 + with("bf16")).count("f32"), 0U);
  EXPECT_EQ(gathered(bf16 + with("auto")), gathered(bf16 + with("bf16")));
  EXPECT_EQ(gathered({"precision.compute=\"fp32\""}).at("f32"), all);
  for (const char* type : {"auto", "fp8"}) EXPECT_GT(gathered(fp8 + with(type)).at("e4m3"), all / 2);
  EXPECT_EQ(gathered(fp8 + with("fp32")).count("e4m3"), 0U);
  const Sets two{"parallel.zero=3"};
  EXPECT_EQ(lab.run_on(2, two + bf16 + with("bf16")).values("loss"),
            lab.run_on(2, two + bf16 + with("fp32")).values("loss"));
  EXPECT_EQ(lab.run_on(2, two + fp8 + with("auto")).values("loss"),
            lab.run_on(2, two + fp8 + with("fp32")).values("loss"));
  EXPECT_TRUE(has(lab.refusal(bf16 + with("fp8")), "precision.gather"));
  EXPECT_TRUE(has(lab.refusal(fp8 + with("bf16")), "precision.gather"));
  EXPECT_TRUE(
      has(lab.refusal({"precision.compute=\"fp32\"", "precision.gather=\"bf16\""}), "precision.gather"));
  // Shards of 16 rows end inside blocks of 128.
  const Sets block{"precision.compute=\"fp8\"", "precision.keep=[]", "parallel.zero=3"};
  EXPECT_TRUE(has(lab.refusal_on(2, block + with("fp8")), "blocks"));
}

// The matmuls that stay in bf16: by layer and by tensor.
void keep(const std::string&) {
  Lab lab;
  const Sets sets{"precision.compute=\"fp8\""};
  const auto quantised = [&](const std::string& list) {
    std::set<std::string> weights;
    const json explained = lab.explain({}, sets + Sets{"precision.keep=" + list});
    for (const json& entry : explained.at("persistent")) {
      const std::string name = entry.at("name");
      if (name.ends_with("@codes")) weights.insert(name.substr(0, name.find('@')));
    }
    return weights;
  };
  const auto all = quantised("[]");
  EXPECT_EQ(all.size(), 8U);
  EXPECT_EQ(quantised("[\"head\"]"), all);
  const auto without = [&](const std::string& part) {
    std::set<std::string> rest;
    for (const std::string& name : all)
      if (name.find(part) == name.npos) rest.insert(name);
    return rest;
  };
  EXPECT_EQ(quantised("[\"first 1\"]"), without("layers.0."));
  EXPECT_EQ(quantised("[\"last 1\"]"), without("layers.1."));
  EXPECT_EQ(quantised("[\"*.mlp.down_proj.weight\"]"), without(".ffn.down."));
  EXPECT_EQ(quantised("[\"*.self_attn.?_proj.weight\"]").count("layers.0.attention.qkv.weight"), 0U);
  for (const char* wrong : {"first 0", "last 3", "*.mlp.down.weight", "first"}) {
    const std::string message = lab.refusal(sets + Sets{std::string("precision.keep=[\"") + wrong + "\"]"});
    EXPECT_TRUE(has(message, "precision.keep") && has(message, wrong)) << message;
  }
  EXPECT_TRUE(has(lab.refusal(sets), "leaves nothing")) << "the default keeps both layers";
}

// Only the type of precision.compute is supported so far.
void residual(const std::string&) {
  Lab lab;
  for (const char* type : {"fp32", "bf16"}) {
    const Sets sets{std::string("precision.compute=\"") + type + "\""};
    const auto usual = lab.run(sets).weights(2);
    EXPECT_TRUE(
        same(lab.run(sets + Sets{std::string("precision.residual=\"") + type + "\""}).weights(2), usual));
    const std::string other = std::string(type) == "fp32" ? "bf16" : "fp32";
    EXPECT_TRUE(has(lab.refusal(sets + Sets{"precision.residual=\"" + other + "\""}), "not yet"));
  }
}

float as_bf16(double value) {
  return static_cast<float>(BF16(static_cast<float>(value)));
}

// The first update of AdamW in doubles, by weights that are not rounded.
struct FirstUpdate {
  explicit FirstUpdate(Lab& lab) {
    const auto begin = lab.run(
        kStill + Sets{"training.steps=1", "precision.weights=\"bf16\"", "precision.rounding=\"nearest\""});
    before = begin.weights(1);
  }
  std::vector<double> of(const Seen& run, const std::string& name) const {
    const Tensors states = run.states(1);
    const auto &m = states.at("m/" + name).values, &v = states.at("v/" + name).values;
    std::vector<double> moved = before.at(name).values;
    for (size_t i = 0; i < moved.size(); ++i)
      moved[i] = moved[i] * (1 - kRate * 0.1) - kRate * (m[i] / 0.1) / (std::sqrt(v[i] / 0.05) + 1e-8);
    return moved;
  }
  static constexpr double kRate = 1e-3;
  Tensors before;
};
const Sets kOneUpdate = kFlat + Sets{"training.steps=1", "optimizer.lr=1e-3", "training.clip_grad_norm=0"};
const std::string kLowMatrix = "model.layers.0.mlp.down_proj.weight";

// Matrices and tables are bf16 in checkpoints and in the next step, norms fp32; and there is no other copy.
void weights(const std::string&) {
  Lab lab;
  EXPECT_TRUE(
      has(lab.refusal({"precision.weights=\"bf16\"", "optimizer.name=\"muon\""}), "precision.weights"));
  const Seen low = lab.run(kOneUpdate + Sets{"precision.weights=\"bf16\""});
  const Seen full = lab.run(kOneUpdate + Sets{"precision.weights=\"fp32\""});
  EXPECT_TRUE(same(full.weights(1), lab.run(kOneUpdate).weights(1)));
  EXPECT_EQ(low.states(1).size(), full.states(1).size());
  const Tensors moved = low.weights(1);
  for (const auto& [name, tensor] : full.weights(1)) {
    EXPECT_EQ(tensor.dtype, "F32") << name;
    const Tensor& found = moved.at(name);
    EXPECT_EQ(found.dtype, tensor.shape.rank() == 2 ? "BF16" : "F32") << name;
    for (size_t i = 0; i < tensor.values.size(); ++i)
      ASSERT_NEAR(found.values[i], tensor.values[i], 0.003 + std::abs(tensor.values[i]) / 128) << name;
  }
  const auto bytes = [&](const char* type) {
    const json plan = lab.explain({}, kOneUpdate + Sets{std::string("precision.weights=\"") + type + "\""});
    for (const json& region : plan["regions"])
      if (region["name"] == "parameter") return region["bytes"].get<int64_t>();
    return int64_t{0};
  };
  int64_t matrices = 0, vectors = 0;
  for (const auto& [name, tensor] : full.weights(1))
    (tensor.shape.rank() == 2 ? matrices : vectors) += tensor.shape.elements();
  EXPECT_EQ(bytes("fp32"), 4 * (matrices + vectors));
  EXPECT_EQ(bytes("bf16"), 2 * matrices + 4 * vectors);
}

// How each of the three makes bf16 of the new weights.
void rounding(const std::string&) {
  Lab lab;
  const FirstUpdate first(lab);
  const auto run = [&](const std::string& kind) {
    return lab.run(kOneUpdate + Sets{"precision.weights=\"bf16\"", "precision.rounding=\"" + kind + "\""});
  };
  const Seen nearest = run("nearest"), kahan = run("kahan"), random = run("stochastic");
  const auto wanted = first.of(nearest, kLowMatrix);
  const auto of = [](const Seen& run_of) { return run_of.weights(1).at(kLowMatrix).values; };
  const auto to_nearest = of(nearest), by_kahan = of(kahan), by_chance = of(random);
  const auto rest = kahan.states(1).at("compensation/" + kLowMatrix);
  EXPECT_EQ(rest.dtype, "BF16");
  int64_t others = 0;
  double off_nearest = 0, off_chance = 0, spread = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    others += to_nearest[i] != static_cast<double>(as_bf16(wanted[i]));
    EXPECT_EQ(by_kahan[i], to_nearest[i]);
    ASSERT_NEAR(by_kahan[i] + rest.values[i], wanted[i], std::abs(wanted[i]) * 0x1p-15 + 1e-7) << i;
    const double unit = std::abs(wanted[i]) / 128;
    ASSERT_LE(std::abs(by_chance[i] - wanted[i]), unit) << i;
    off_nearest += std::abs(to_nearest[i] - wanted[i]);
    off_chance += by_chance[i] - wanted[i];
    spread += (by_chance[i] - wanted[i]) * (by_chance[i] - wanted[i]);
  }
  EXPECT_LE(others, 3);  // doubles round elsewhere
  EXPECT_GT(off_nearest, 0);
  EXPECT_LT(std::abs(off_chance), 4 * std::sqrt(spread));  // no direction is preferred
  EXPECT_NE(by_chance, to_nearest);
  EXPECT_TRUE(same(random.weights(1), run("stochastic").weights(1)));
  EXPECT_TRUE(same(random.weights(1),
                   lab.run(kOneUpdate + Sets{"precision.weights=\"bf16\""}).weights(1)));  // the default
}

// How many nodes of an op a program has, and how many of them with a text in their attributes.
struct NodeCount {
  int64_t all = 0, with = 0;
};
NodeCount count_nodes(Lab& lab, const Sets& sets, const std::string& op, const std::string& attribute) {
  NodeCount count;
  const json explained = lab.explain({"--program"}, sets);
  for (const auto& segment : explained.at("programs").at(0).at("segments")) {
    for (const json& node : segment) {
      if (node.at("op") != op) continue;
      ++count.all;
      count.with += has(" " + node.at("attributes").get<std::string>() + " ", " " + attribute + " ") ? 1 : 0;
    }
  }
  return count;
}

const Sets kFp4{"precision.compute=\"fp4\"", "precision.keep=[\"head\"]"};

// Only weight gradients pass the transform: the first loss is the same without, its gradient is not.
void hadamard(const std::string&) {
  Lab lab;
  const Sets without = kFp4 + Sets{"precision.hadamard=false"};
  EXPECT_GT(count_nodes(lab, kFp4, "quantize", "hadamard=1").with, 0);
  EXPECT_EQ(count_nodes(lab, without, "quantize", "hadamard=1").with, 0);
  const Seen usual = lab.run(kFp4), run = lab.run(without);
  EXPECT_EQ(run.values("loss").at(0), usual.values("loss").at(0));
  EXPECT_NE(run.values("grad_norm").at(0), usual.values("grad_norm").at(0));
  EXPECT_NEAR(run.values("grad_norm").at(0), usual.values("grad_norm").at(0),
              0.2 * usual.values("grad_norm").at(0));
  EXPECT_TRUE(same(lab.run(kFp4 + Sets{"precision.hadamard=true"}).weights(2), usual.weights(2)));
  EXPECT_TRUE(has(lab.refusal({"precision.compute=\"fp8\"", "precision.hadamard=false"}),
                  "expected the recipe nvfp4"));
  EXPECT_TRUE(has(lab.refusal({"precision.hadamard=false"}), "without precision.compute"));
}

// Likewise only gradients are rounded stochastically; another seed changes them, and not those to nearest.
void gradient_rounding(const std::string&) {
  Lab lab;
  const auto with = [&](const char* kind) {
    return kFp4 + Sets{std::string("precision.gradient_rounding=\"") + kind + "\""};
  };
  EXPECT_GT(count_nodes(lab, kFp4, "quantize", "stochastic=1").with, 0);
  EXPECT_EQ(count_nodes(lab, with("nearest"), "quantize", "stochastic=1").with, 0);
  const Seen usual = lab.run(kFp4), nearest = lab.run(with("nearest"));
  EXPECT_EQ(nearest.values("loss").at(0), usual.values("loss").at(0));
  EXPECT_NE(nearest.values("grad_norm").at(0), usual.values("grad_norm").at(0));
  for (const char* kind : {"auto", "stochastic"})
    EXPECT_TRUE(same(lab.run(with(kind)).weights(2), usual.weights(2))) << kind;
  EXPECT_TRUE(has(lab.refusal({"precision.compute=\"fp8\"", "precision.gradient_rounding=\"stochastic\""}),
                  "expected the recipe nvfp4"));
  EXPECT_TRUE(has(lab.refusal({"precision.gradient_rounding=\"nearest\""}), "without precision.compute"));
}

// tests/kernels/cpu/scaled_gemm_test.cpp has the sums themselves: 14 bits are less than those of fp32 and more than the
// 8 of results.
void accumulation(const std::string&) {
  Lab lab;
  const Sets tensor{"precision.compute=\"fp8\"", "precision.recipe=\"tensor\"", "precision.keep=[\"head\"]",
                    "training.steps=1"};
  const auto with = [&](const char* kind) {
    return tensor + Sets{std::string("precision.accumulation=\"") + kind + "\""};
  };
  const Seen usual = lab.run(tensor);
  EXPECT_TRUE(same(lab.run(with("fp32")).weights(1), usual.weights(1)));
  for (const char* kind : {"hopper", "hopper_promoted"}) {
    for (const char* op : {"scaled_linear", "scaled_linear_grad_input", "scaled_linear_grad_weight"}) {
      const NodeCount nodes = count_nodes(lab, with(kind), op, std::string("sums=") + kind);
      EXPECT_GT(nodes.all, 0) << op;
      EXPECT_EQ(nodes.with, nodes.all) << op;
    }
    const Seen run = lab.run(with(kind));
    EXPECT_NE(run.values("grad_norm").at(0), usual.values("grad_norm").at(0)) << kind;
    EXPECT_NEAR(run.values("loss").at(0), usual.values("loss").at(0), 0.003) << kind;
  }
  EXPECT_TRUE(has(lab.refusal({"precision.accumulation=\"hopper\""}), "without precision.compute"));
  for (const Sets& sets : {kFp4, Sets{"precision.compute=\"fp8\"", "precision.recipe=\"mxfp8\""}})
    EXPECT_TRUE(has(lab.refusal(sets + Sets{"precision.accumulation=\"hopper\""}), "precision.accumulation"));
}

}  // namespace

Contracts precision_keys() {
  return {{"precision.compute", compute},
          {"precision.loss_scale", loss_scale},
          {"precision.residual", residual},
          {"precision.recipe", recipe},
          {"precision.keep", keep},
          {"precision.gather", gather},
          {"precision.weights", weights},
          {"precision.rounding", rounding},
          {"precision.hadamard", hadamard},
          {"precision.gradient_rounding", gradient_rounding},
          {"precision.accumulation", accumulation}};
}

}  // namespace strata::contracts
