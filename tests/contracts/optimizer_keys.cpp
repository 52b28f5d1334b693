// Contracts of [optimizer]: recomputes updates from the weights and states of two checkpoints with the
// published formulas.
#include <cmath>

#include "contracts/contract.h"
#include "contracts/lab.h"

namespace strata::contracts {
namespace {

constexpr double kClose = 1e-4;
const std::string kMatrix = "model.layers.1.self_attn.k_proj.weight";  // [16, 32]
const std::string kNorm = "model.norm.weight";

// Weights and states after each of two steps.
struct TwoSteps {
  explicit TwoSteps(const Sets& sets, const std::string& more = "") {
    const Seen run = lab.run(Sets{"training.clip_grad_norm=0"} + kFlat + sets, more);
    before = run.weights(1);
    after = run.weights(2);
    first = run.states(1);
    second = run.states(2);
  }
  Lab lab;
  Tensors before, after, first, second;
};

std::vector<double> each(size_t n, const std::function<double(size_t)>& value) {
  std::vector<double> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = value(i);
  return out;
}

// Initial weights, and the gradients of the first step by name.
struct Start {
  Tensors weights;
  std::map<std::string, std::vector<double>> gradients;
};
Start start(Lab& lab) {
  const Seen run = lab.run(kStill + Sets{"training.steps=1"});
  Start out{.weights = run.weights(1), .gradients = {}};
  for (const auto& [name, state] : run.states(1)) {
    if (name.starts_with("m/")) out.gradients[name.substr(2)] = state.values;
  }
  EXPECT_EQ(out.gradients.size(), out.weights.size());
  return out;
}

// Loshchilov and Hutter 2019, in doubles.
void adamw(const std::string&) {
  const double lr = 0.01, b1 = 0.7, b2 = 0.8, eps = 1e-3, decay = 0.3;
  const TwoSteps seen({"optimizer.lr=0.01", "optimizer.beta1=0.7", "optimizer.beta2=0.8",
                       "optimizer.eps=0.001", "optimizer.weight_decay=0.3"});
  for (const auto& tensor : seen.before) {
    const auto& name = tensor.first;
    const auto& before = tensor.second;
    SCOPED_TRACE(name);
    const auto &m1 = seen.first.at("m/" + name).values, &m2 = seen.second.at("m/" + name).values;
    const auto &v1 = seen.first.at("v/" + name).values, &v2 = seen.second.at("v/" + name).values;
    const size_t n = m1.size();
    const auto square = [](double x) { return x * x; };
    EXPECT_LT(distance(v1, each(n, [&](size_t i) { return (1 - b2) * square(m1[i] / (1 - b1)); })), kClose);
    EXPECT_LT(distance(v2, each(n,
                                [&](size_t i) {
                                  return b2 * v1[i] + (1 - b2) * square((m2[i] - b1 * m1[i]) / (1 - b1));
                                })),
              kClose);
    const double kept = before.shape.rank() == 2 ? 1 - lr * decay : 1;  // none on norms
    const auto moved = each(n, [&](size_t i) { return seen.after.at(name).values[i] - before.values[i]; });
    EXPECT_LT(distance(moved, each(n,
                                   [&](size_t i) {
                                     return (kept - 1) * before.values[i] -
                                            lr * m2[i] / (1 - b1 * b1) /
                                                (std::sqrt(v2[i] / (1 - b2 * b2)) + eps);
                                   })),
              kClose);
  }
}

// The first step changes each weight by the learning rate, whatever the gradient's size.
void learning_rate(const std::string&) {
  Lab lab;
  const Start from = start(lab);
  const auto to = lab.run(kFlat + Sets{"optimizer.lr=0.003", "optimizer.weight_decay=0",
                                       "optimizer.eps=1e-12", "training.steps=1"})
                      .weights(1);
  for (const auto& [name, gradient] : from.gradients) {
    const auto& was = from.weights.at(name).values;
    for (size_t i = 0; i < was.size(); ++i) {
      if (std::abs(gradient[i]) < 1e-7) continue;
      ASSERT_NEAR(to.at(name).values[i] - was[i], gradient[i] > 0 ? -0.003 : 0.003, 1e-5) << name;
    }
  }
}

void weight_decay(const std::string& key) {
  adamw(key);
  // Only matrices decay: with the same gradient, by the fraction lr · decay.
  Lab lab;
  const Start from = start(lab);
  const auto without = lab.run(kFlat + Sets{"optimizer.lr=0.01", "optimizer.weight_decay=0"}).weights(1);
  const auto with = lab.run(kFlat + Sets{"optimizer.lr=0.01", "optimizer.weight_decay=0.5"}).weights(1);
  for (const auto& [name, tensor] : from.weights) {
    const auto &a = with.at(name).values, &b = without.at(name).values;
    const double share = tensor.shape.rank() == 2 ? 0.005 : 0;
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i] - b[i], -share * tensor.values[i], 1e-7) << name;
  }
}

void lion(const std::string&) {
  const double lr = 0.001, b1 = 0.6, b2 = 0.75, decay = 0.2;
  const TwoSteps seen({"optimizer.name=\"lion\"", "optimizer.lr=0.001", "optimizer.lion.beta1=0.6",
                       "optimizer.lion.beta2=0.75", "optimizer.weight_decay=0.2"});
  for (const std::string& name : {kMatrix, kNorm}) {
    SCOPED_TRACE(name);
    const auto &m1 = seen.first.at("momentum/" + name).values,
               &m2 = seen.second.at("momentum/" + name).values;
    const auto &was = seen.before.at(name).values, &is = seen.after.at(name).values;
    const double kept = seen.before.at(name).shape.rank() == 2 ? 1 - lr * decay : 1;
    for (size_t i = 0; i < m1.size(); ++i) {
      const double gradient = (m2[i] - b2 * m1[i]) / (1 - b2);
      const double mixed = b1 * m1[i] + (1 - b1) * gradient;
      if (std::abs(mixed) < 1e-8) continue;
      ASSERT_NEAR(is[i], was[i] * kept - (mixed > 0 ? lr : -lr), 1e-6) << i;
    }
  }
  // The momentum is a fraction of the gradient, which the state of another optimizer contains.
  Lab lab;
  const Start from = start(lab);
  const auto states = lab.run({"optimizer.name=\"lion\"", "optimizer.lion.beta2=0.75", "training.steps=1",
                               "training.clip_grad_norm=0"})
                          .states(1);
  const auto& gradient = from.gradients.at(kMatrix);
  EXPECT_LT(distance(states.at("momentum/" + kMatrix).values,
                     each(gradient.size(), [&](size_t i) { return 0.25 * gradient[i]; })),
            kClose);
}

// Taniguchi et al. 2024: the second step divides by the first gradient, and clips at one.
void adopt(const std::string&) {
  const double lr = 0.01, b1 = 0.7, b2 = 0.8, eps = 3e-3, decay = 0.3;
  const TwoSteps seen({"optimizer.name=\"adopt\"", "optimizer.lr=0.01", "optimizer.adopt.beta1=0.7",
                       "optimizer.adopt.beta2=0.8", "optimizer.adopt.eps=0.003",
                       "optimizer.weight_decay=0.3"});
  int64_t small = 0, large = 0;
  for (const auto& [name, before] : seen.before) {
    SCOPED_TRACE(name);
    const auto &m1 = seen.first.at("m/" + name).values, &m2 = seen.second.at("m/" + name).values;
    const auto &v1 = seen.first.at("v/" + name).values, &v2 = seen.second.at("v/" + name).values;
    const auto &was = before.values, &is = seen.after.at(name).values;
    EXPECT_EQ(m1, std::vector<double>(m1.size())) << "the first update starts the second moment";
    const double kept = before.shape.rank() == 2 ? 1 - lr * decay : 1;
    std::vector<double> moved(m1.size()), wanted(m1.size());
    for (size_t i = 0; i < m1.size(); ++i) {
      const double size = std::sqrt(std::max(0.0, (v2[i] - b2 * v1[i]) / (1 - b2))), root = std::sqrt(v1[i]);
      ++(root < eps ? small : large);
      moved[i] = std::abs(m2[i]);
      wanted[i] = (1 - b1) * std::min(1.0, size / std::max(root, eps));
      ASSERT_NEAR(is[i], was[i] * kept - lr * m2[i], 1e-6) << i;
    }
    EXPECT_LT(distance(moved, wanted), 1e-3);
  }
  EXPECT_GT(small, 0);
  EXPECT_GT(large, 0);
}

// x after Newton-Schulz iterations, in doubles (Jordan et al. 2024).
std::vector<double> orthogonal(std::vector<double> x, size_t rows, size_t columns, int steps) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  for (double& value : x) value /= std::sqrt(squares) + 1e-7;
  for (int step = 0; step < steps; ++step) {
    std::vector<double> a(rows * rows), b(rows * rows), next(x.size());
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < rows; ++j)
        for (size_t k = 0; k < columns; ++k) a[i * rows + j] += x[i * columns + k] * x[j * columns + k];
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < rows; ++j) {
        b[i * rows + j] = -4.7750 * a[i * rows + j];
        for (size_t k = 0; k < rows; ++k) b[i * rows + j] += 2.0315 * a[i * rows + k] * a[k * rows + j];
      }
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < columns; ++j) {
        next[i * columns + j] = 3.4445 * x[i * columns + j];
        for (size_t k = 0; k < rows; ++k) next[i * columns + j] += b[i * rows + k] * x[k * columns + j];
      }
    x = std::move(next);
  }
  return x;
}

void muon(const std::string&) {
  const double lr = 0.02, momentum = 0.6;
  for (const bool nesterov : {true, false}) {
    for (const bool original : {true, false}) {
      const TwoSteps seen(
          {"optimizer.name=\"muon\"", "optimizer.lr=0.02", "optimizer.weight_decay=0",
           "optimizer.muon.momentum=0.6", "optimizer.muon.ns_steps=2",
           std::string("optimizer.muon.nesterov=") + (nesterov ? "true" : "false"),
           std::string("optimizer.muon.scale=") + (original ? "\"original\"" : "\"match_rms_adamw\"")});
      const auto &m1 = seen.first.at("momentum/" + kMatrix).values,
                 &m2 = seen.second.at("momentum/" + kMatrix).values;
      const auto x = each(m1.size(), [&](size_t i) {
        const double gradient = (m2[i] - momentum * m1[i]) / (1 - momentum);
        return nesterov ? (1 - momentum) * gradient + momentum * m2[i] : m2[i];
      });
      const auto direction = orthogonal(x, 16, 32, 2);
      const double scale = original ? 1 : 0.2 * std::sqrt(32.0);  // √max(1, 16/32)
      const auto &was = seen.before.at(kMatrix).values, &is = seen.after.at(kMatrix).values;
      EXPECT_LT(distance(each(was.size(), [&](size_t i) { return is[i] - was[i]; }),
                         each(was.size(), [&](size_t i) { return -lr * scale * direction[i]; })),
                1e-3)
          << nesterov << original;
    }
  }
}

// Kimi K2's QK-clip, after a step whose update moves nothing: the head with the greatest score of each key head takes √γ on
// both sides, no head exceeds the limit in the next step, and values stay.
void qk_clip(const std::string&) {
  Lab lab;
  const Sets still = kStill + Sets{"optimizer.name=\"muon\"", "training.steps=2"};
  const Seen plain = lab.run(still + Sets{"optimizer.muon.qk_clip=1e9"});
  const double greatest = plain.values("max_attention_score").front(), limit = greatest / 4;
  const Seen run = lab.run(still + Sets{"optimizer.muon.qk_clip=" + std::to_string(limit)});
  EXPECT_EQ(run.values("max_attention_score").front(), greatest);
  EXPECT_EQ(plain.values("clipped_heads").front(), 0);
  EXPECT_GE(run.values("clipped_heads").front(), 1);
  const Tensors is = run.weights(1), was = plain.weights(1);
  double least = 1;
  for (const std::string layer : {"model.layers.0.self_attn.", "model.layers.1.self_attn."}) {
    const auto factor_of = [&](const char* name, size_t head) {  // heads of 8 rows of 32
      const size_t at = head * 8 * 32;
      return is.at(layer + name).values[at] / was.at(layer + name).values[at];
    };
    EXPECT_EQ(is.at(layer + "v_proj.weight").values, was.at(layer + "v_proj.weight").values);
    for (size_t keys = 0; keys < 2; ++keys) {
      const double of_keys = factor_of("k_proj.weight", keys);
      EXPECT_NEAR(std::min(factor_of("q_proj.weight", 2 * keys), factor_of("q_proj.weight", 2 * keys + 1)),
                  of_keys, kClose);
      least = std::min(least, of_keys);
    }
  }
  EXPECT_NEAR(least * least, limit / greatest, kClose);
  EXPECT_TRUE(has(lab.refusal({"optimizer.muon.qk_clip=100"}), "expected 0, or optimizer.name = \"muon\""));
}

double root_mean_square(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum / static_cast<double>(x.size()));
}

// torch.optim.Adafactor for a matrix, in doubles.
void adafactor(const std::string&) {
  struct Case {
    double eps1, eps2, clip;
  };
  // Each constant matters in one of the cases: eps1 (floor of the second moment), eps2 (least size of the
  // tensor), the clip threshold.
  for (const Case& one : {Case{1e-9, 1e-3, 0.3}, Case{1e-9, 0.7, 1e6}, Case{0.05, 1e-3, 1e6}}) {
    const double lr = 0.01, beta2_decay = -0.5;
    const TwoSteps seen({"optimizer.name=\"adafactor\"", "optimizer.lr=0.01", "optimizer.weight_decay=0",
                         "optimizer.adafactor.beta2_decay=-0.5",
                         "optimizer.adafactor.eps1=" + std::to_string(one.eps1 * 1e9) + "e-9",
                         "optimizer.adafactor.eps2=" + std::to_string(one.eps2),
                         "optimizer.adafactor.clip_threshold=" + std::to_string(one.clip)});
    const auto &was = seen.before.at(kMatrix).values, &is = seen.after.at(kMatrix).values;
    const auto &row1 = seen.first.at("row/" + kMatrix).values,
               &row2 = seen.second.at("row/" + kMatrix).values;
    const auto& column2 = seen.second.at("column/" + kMatrix).values;
    // update = −α g / √v. The rows of g² follow from the states, and g from the update.
    const double share = std::pow(2.0, beta2_decay);
    double mean = 0;
    for (const double value : row2) mean += value / 16;
    const auto variance = each(was.size(), [&](size_t i) {
      return std::max(row2[i / 32] * column2[i % 32] / std::max(mean, one.eps1), one.eps1 * one.eps1);
    });
    const auto direction =
        each(was.size(), [&](size_t i) { return (is[i] - was[i]) * std::sqrt(variance[i]); });
    // direction = −step · g. The row means in the states determine the size of g in each row, thus the step.
    std::vector<double> wanted(16), found(16);
    for (size_t i = 0; i < 16; ++i) {
      wanted[i] = (row2[i] - (1 - share) * row1[i]) / share;
      for (size_t j = 0; j < 32; ++j) found[i] += direction[i * 32 + j] * direction[i * 32 + j] / 32;
    }
    double ratio = 0;
    for (size_t i = 0; i < 16; ++i) ratio += found[i] / wanted[i] / 16;
    const double step = std::sqrt(ratio);
    for (size_t i = 0; i < 16; ++i) EXPECT_NEAR(found[i] / wanted[i] / ratio, 1, 2e-3) << "one step for all";
    const double size = root_mean_square(
        each(was.size(), [&](size_t i) { return direction[i] / step / std::sqrt(variance[i]); }));
    const double expected = std::max(one.eps2, root_mean_square(was)) * std::min(lr, 1 / std::sqrt(2.0)) /
                            std::max(1.0, size / one.clip);
    EXPECT_NEAR(step / expected, 1, 2e-3);
  }
}

// Moments have one byte per element from min_elements elements on.
void bytes_from(const std::string&) {
  Lab lab;
  for (const int64_t least : {512, 513}) {
    const auto states = lab.run({"optimizer.name=\"adamw8bit\"", "training.steps=1",
                                 "optimizer.adamw8bit.min_elements=" + std::to_string(least)})
                            .states(1);
    EXPECT_EQ(states.at("m/" + kMatrix).dtype, least == 512 ? "U8" : "F32");  // 16 · 32 elements
    EXPECT_EQ(states.at("m/model.embed_tokens.weight").dtype, "U8");
    EXPECT_EQ(states.at("v/" + kNorm).dtype, "F32");
  }
}

// Each optimizer has its own states.
void name(const std::string&) {
  Lab lab;
  const std::map<std::string, std::vector<std::string>> kinds{
      {"adamw", {"m/", "v/"}},     {"muon", {"momentum/"}},
      {"lion", {"momentum/"}},     {"adafactor", {"row/", "column/"}},
      {"adamw8bit", {"m/", "v/"}}, {"adopt", {"m/", "v/"}}};
  for (const auto& [kind, prefixes] : kinds) {
    const auto states = lab.run({"optimizer.name=\"" + kind + "\"", "training.steps=1"}).states(1);
    std::vector<std::string> found;
    for (const auto& [state, tensor] : states) {
      if (state.ends_with("/" + kMatrix)) found.push_back(state.substr(0, state.find('/') + 1));
    }
    std::vector<std::string> sorted = prefixes;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(found, sorted) << kind;
    // Muon applies only to matrices within blocks.
    EXPECT_EQ(states.contains("m/model.embed_tokens.weight"), kind != "lion" && kind != "adafactor") << kind;
  }
}

// The moments of the first step are those of fp32, rounded to the type that the file has.
void state_dtype(const std::string&) {
  Lab lab;
  EXPECT_TRUE(has(lab.refusal({"optimizer.state_dtype=\"bf16\"", "optimizer.name=\"muon\""}),
                  "optimizer.state_dtype"));
  const Sets sets = kFlat + Sets{"training.steps=1"};
  const auto full = lab.run(sets + Sets{"optimizer.state_dtype=\"fp32\""}).states(1);
  const auto half = lab.run(sets + Sets{"optimizer.state_dtype=\"bf16\""}).states(1);
  const auto byte = lab.run(sets + Sets{"optimizer.state_dtype=\"fp8\""}).states(1);
  ASSERT_EQ(half.size(), full.size());
  for (const auto& [state, tensor] : full) {
    EXPECT_EQ(tensor.dtype, "F32") << state;
    EXPECT_EQ(half.at(state).dtype, "BF16") << state;
    for (size_t i = 0; i < tensor.values.size(); ++i)
      ASSERT_NEAR(half.at(state).values[i], tensor.values[i], std::abs(tensor.values[i]) / 256) << state;
    // The embedding has 9,600 elements; matrices within blocks are below 4,096.
    const bool in_blocks = state.ends_with("embed_tokens.weight") || state.ends_with("lm_head.weight");
    EXPECT_EQ(byte.at(state).dtype, in_blocks ? "F8_E4M3" : "F32") << state;
    if (!in_blocks) continue;
    const std::string scale = state.substr(0, 1) + "_scale" + state.substr(1);
    const auto& scales = byte.at(scale).values;
    ASSERT_EQ(scales.size(), (tensor.values.size() + 255) / 256);
    for (size_t block = 0; block < scales.size(); ++block) {
      double largest = 1e-12;
      for (size_t i = 256 * block; i < std::min(tensor.values.size(), 256 * (block + 1)); ++i)
        largest = std::max(largest, std::abs(tensor.values[i]));
      ASSERT_NEAR(scales[block], largest / 448, 1e-6 * largest) << scale << " " << block;
    }
  }
}

// A group applies to the tensors that it matches; the first group that matches a tensor wins.
void group(const std::string&) {
  Lab lab;
  const Sets sets = kFlat + Sets{"optimizer.lr=0.01", "optimizer.weight_decay=0.5", "training.steps=1"};
  const auto from = start(lab).weights;
  const auto plain = lab.run(sets).weights(1);
  const Seen run = lab.run(sets,
                           "[[optimizer.group]]\nmatch = \"*.layers.0.*q_proj*\"\nlr_scale = 0.5\n"
                           "[[optimizer.group]]\nmatch = \"*.k_pr?j.*\"\nweight_decay = 0.0\n"
                           "[[optimizer.group]]\nmatch = \"*v_proj*\"\nname = \"lion\"\n"
                           "[[optimizer.group]]\nmatch = \"*.layers.0.*\"\nlr_scale = 0.0\n");
  const auto grouped = run.weights(1);
  for (const auto& [name, tensor] : from) {
    SCOPED_TRACE(name);
    const auto &was = tensor.values, &usual = plain.at(name).values, &is = grouped.at(name).values;
    if (has(name, "v_proj")) {
      EXPECT_TRUE(run.states(1).contains("momentum/" + name));
      continue;
    }
    EXPECT_TRUE(run.states(1).contains("m/" + name));
    for (size_t i = 0; i < was.size(); ++i) {
      double expected = usual[i];
      if (has(name, "k_proj")) {
        expected += 0.005 * was[i];
      } else if (has(name, "layers.0.")) {
        expected = was[i] + (has(name, "q_proj") ? 0.5 : 0.0) * (usual[i] - was[i]);
      }
      ASSERT_NEAR(is[i], expected, 1e-7) << i;
    }
  }
  EXPECT_TRUE(has(lab.refusal({}, "[[optimizer.group]]\nmatch = \"*qproj*\"\n"), "matches no tensor"));
}

}  // namespace

Contracts optimizer_keys() {
  return {{"optimizer.name", name},
          {"optimizer.lr", learning_rate},
          {"optimizer.beta1", adamw},
          {"optimizer.beta2", adamw},
          {"optimizer.eps", adamw},
          {"optimizer.weight_decay", weight_decay},
          {"optimizer.state_dtype", state_dtype},
          {"optimizer.muon.momentum", muon},
          {"optimizer.muon.nesterov", muon},
          {"optimizer.muon.ns_steps", muon},
          {"optimizer.muon.scale", muon},
          {"optimizer.muon.qk_clip", qk_clip},
          {"optimizer.lion.beta1", lion},
          {"optimizer.lion.beta2", lion},
          {"optimizer.adafactor.beta2_decay", adafactor},
          {"optimizer.adafactor.eps1", adafactor},
          {"optimizer.adafactor.eps2", adafactor},
          {"optimizer.adafactor.clip_threshold", adafactor},
          {"optimizer.adamw8bit.min_elements", bytes_from},
          {"optimizer.adopt.beta1", adopt},
          {"optimizer.adopt.beta2", adopt},
          {"optimizer.adopt.eps", adopt},
          {"optimizer.group.match", group},
          {"optimizer.group.lr_scale", group},
          {"optimizer.group.weight_decay", group},
          {"optimizer.group.name", group}};
}

}  // namespace strata::contracts
