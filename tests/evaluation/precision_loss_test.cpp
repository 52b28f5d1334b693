// The measured losses against a plain computation from the same tensors, and weights that a format cannot hold.
#include "evaluation/precision_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "fixtures/tiny_program.h"
#include "ops/scaled_experts/scaled_experts.h"

namespace strata::evaluation {
namespace {

using program::Executor;
using quantize::Format;

std::shared_ptr<const program::ProgramSet> compiled(const quantize::Recipe& recipe,
                                                    const std::string& preset) {
  program::CompileOptions options = program::tiny_options(preset);
  if (options.model.experts.count > 0) {
    options.model.layers = 2;
    options.model.experts.count = 4;
    options.model.experts.route.k = 2;
    options.model.experts.intermediate_size = 40;
  }
  options.activations = DType::kBF16;
  options.precision = std::make_shared<const program::Precision>(program::Precision{
      .recipe = recipe, .sums = {}, .keeps = [](const std::string&, const graph::Parameter&) {
        return false;
      }});
  return program::compile({program::tiny_request(2)}, options);
}

class Model {
 public:
  explicit Model(const std::string& recipe, const std::string& preset = "llama3-29m")
      : Model(*quantize::find_recipe(recipe), preset) {}
  explicit Model(const quantize::Recipe& recipe, const std::string& preset = "llama3-29m")
      : run(compiled(recipe, preset)) {
    for (const int64_t micro : {0, 1})
      executor().upload_column(0, Column::kSamples, micro, std::vector<int32_t>{3, 4});
  }
  Executor& executor() { return run.executor; }

  // Weights of which the program has both, in a different size.
  void scale_weight(const std::string& name, float factor) {
    auto values = executor().read_all<float>(name);
    for (float& value : values) value *= factor;
    executor().write(name, values);
    executor().run(0, {program::Segment::kEncode});
  }

  program::TinyRun run;
};

struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<double> values;
  double& at(int64_t i, int64_t j) { return values[static_cast<size_t>(i * columns + j)]; }
  double at(int64_t i, int64_t j) const { return values[static_cast<size_t>(i * columns + j)]; }
};

// The activations that a micro-batch quantises, and the experts of each layer's pairs.
class Sources final : public Executor::Observer {
 public:
  explicit Sources(Executor& executor) : executor_(executor) {
    executor.observe(this);
    executor.run_micro_batches(0);
    executor.observe(nullptr);
  }
  void instruction(size_t, const program::Action& action, size_t at, double, double) override {
    const program::Program& own = executor_.program(0);
    const program::Instruction& instruction = own.list_of(action)[at];
    const graph::Node& node = own.node_of(instruction);
    if (action.micro_batch != 0) return;
    if (node.op == &ops::ScaledExpertsIn::def) {
      constexpr int kIds = graph::position_of<ops::ScaledExpertsIn::In>("ids");
      const graph::Value& ids = own.graph.value(node.inputs[kIds]);
      pairs[node.layer].resize(static_cast<size_t>(ids.shape.elements()));
      executor_.download_operand(0, action, instruction, kIds, pairs[node.layer].data(), ids.bytes());
    }
    if (node.op != &ops::Quantize::def) return;
    const graph::Value& x = own.graph.value(node.inputs[0]);
    std::vector<BF16> bytes(static_cast<size_t>(x.shape.elements()));
    executor_.download_operand(0, action, instruction, 0, bytes.data(), x.bytes());
    Matrix matrix{x.shape[0], x.shape[1], {}};
    for (const BF16 value : bytes) matrix.values.push_back(static_cast<double>(static_cast<float>(value)));
    found[x.name] = std::move(matrix);
  }
  std::map<std::string, Matrix> found;
  std::map<int32_t, std::vector<int32_t>> pairs;

 private:
  Executor& executor_;
};

Matrix weight_of(const Executor& executor, const std::string& name) {
  const Shape& shape = executor.set().at(name).shape;
  Matrix matrix{shape[0], shape[1], {}};
  for (const float value : executor.read_all<float>(name))
    matrix.values.push_back(static_cast<double>(value));
  return matrix;
}

// DeepSeek-V3's blocks, e4m3, by definition; blocks of `rows` x `columns`.
Matrix rounded(const Matrix& x, int64_t rows, int64_t columns) {
  Matrix out = x;
  for (int64_t i = 0; i < x.rows; i += rows) {
    for (int64_t j = 0; j < x.columns; j += columns) {
      const auto each = [&](const auto& take) {
        for (int64_t r = i; r < std::min(x.rows, i + rows); ++r)
          for (int64_t c = j; c < std::min(x.columns, j + columns); ++c) take(r, c);
      };
      double greatest = 1e-4;
      each([&](int64_t r, int64_t c) { greatest = std::max(greatest, std::abs(x.at(r, c))); });
      const float scale = static_cast<float>(greatest) / 448.0f;
      each([&](int64_t r, int64_t c) {
        const uint32_t code = quantize::encode(Format::kE4M3, static_cast<float>(x.at(r, c)) / scale);
        out.at(r, c) = static_cast<double>(quantize::decode(Format::kE4M3, code) * scale);
      });
    }
  }
  return out;
}

// a · bᵀ
Matrix product(const Matrix& a, const Matrix& b) {
  Matrix out{a.rows, b.rows, std::vector<double>(static_cast<size_t>(a.rows * b.rows))};
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < b.rows; ++j)
      for (int64_t k = 0; k < a.columns; ++k) out.at(i, j) += a.at(i, k) * b.at(j, k);
  return out;
}

Matrix transposed(const Matrix& x) {
  Matrix out{x.columns, x.rows, std::vector<double>(x.values.size())};
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t j = 0; j < x.columns; ++j) out.at(j, i) = x.at(i, j);
  return out;
}

double snr(const Matrix& exact, const Matrix& found) {
  double signal = 0, noise = 0;
  for (size_t i = 0; i < exact.values.size(); ++i) {
    signal += exact.values[i] * exact.values[i];
    noise += (exact.values[i] - found.values[i]) * (exact.values[i] - found.values[i]);
  }
  return 10 * std::log10(signal / noise);
}

const ProductLoss& find(const std::vector<ProductLoss>& products, int32_t layer, ProductRole role,
                        const std::string& weight) {
  for (const ProductLoss& each : products)
    if (each.layer == layer && each.role == role && each.weight.find(weight) != std::string::npos)
      return each;
  throw std::runtime_error("no matmul of " + weight);
}

TEST(PrecisionLoss, IsThatOfAPlainComputation) {
  Model model("block");
  const Sources sources(model.executor());
  const auto products = measure_precision(model.executor(), 0);
  // Of each of 3 blocks: qkv, attention's output, gate and up, down.
  ASSERT_EQ(products.size(), 3U * 4 * 3);
  for (const ProductLoss& loss : products) {
    const bool reads_weight = loss.role != ProductRole::kWeightGrad;
    const Matrix first = sources.found.at(loss.operands[0].tensor);
    const Matrix second = reads_weight ? weight_of(model.executor(), loss.operands[1].tensor)
                                       : sources.found.at(loss.operands[1].tensor);
    // As matrices whose columns the matmul sums over.
    const Matrix a = loss.role == ProductRole::kWeightGrad ? transposed(first) : first;
    const Matrix b = loss.role == ProductRole::kForward ? second : transposed(second);
    const Matrix coded_a = rounded(a, 1, 128), coded_b = rounded(b, reads_weight ? 128 : 1, 128);
    EXPECT_NEAR(loss.operands[0].snr_db, snr(a, coded_a), 1e-6) << loss.operands[0].tensor;
    EXPECT_NEAR(loss.operands[1].snr_db, snr(b, coded_b), 1e-6) << loss.operands[1].tensor;
    // The program's result is also rounded to bf16, some 50 dB below it.
    EXPECT_NEAR(loss.snr_db, snr(product(a, b), product(coded_a, coded_b)), 0.1) << loss.op << loss.weight;
    EXPECT_EQ(loss.rows, loss.rows_compared);
    EXPECT_EQ(loss.gate_db, loss.role == ProductRole::kForward ? 18 : 17);
    EXPECT_TRUE(loss.fits());
    for (const OperandLoss& operand : loss.operands) {
      EXPECT_EQ(operand.format, "e4m3");
      EXPECT_EQ(operand.saturated, 0) << "the scale of a block follows from its greatest element";
      EXPECT_LT(operand.flushed, 0.05);
    }
  }
}

// A matmul of experts, from the rows of its operands before and after they were rounded.
class ExpertProduct {
 public:
  ExpertProduct(const std::vector<int32_t>& pairs, const Matrix& weight, int64_t tokens, int64_t experts)
      : pairs_(pairs), k_(std::ssize(pairs) / tokens), experts_(experts), outputs_(weight.rows / experts) {}

  // Rows of tokens become rows of pairs, or rows of pairs are summed. `forward`: by the weight, else by its transpose.
  Matrix rows(const Matrix& x, const Matrix& weight, bool from_tokens, bool forward) const {
    const auto count = std::ssize(pairs_);
    const int64_t columns = forward ? outputs_ : weight.columns;
    Matrix out{from_tokens ? count : count / k_, columns, {}};
    out.values.resize(static_cast<size_t>(out.rows * columns));
    for (int64_t pair = 0; pair < count; ++pair) {
      const int64_t e = pairs_[static_cast<size_t>(pair)] * outputs_;
      for (int64_t c = 0; c < columns; ++c)
        for (int64_t d = 0; d < x.columns; ++d)
          out.at(from_tokens ? pair : pair / k_, c) +=
              x.at(from_tokens ? pair / k_ : pair, d) * (forward ? weight.at(e + c, d) : weight.at(e + d, c));
    }
    return out;
  }

  // Sums over the pairs of each expert. `rounds`: quantises 128 of them along the pairs first.
  Matrix weights(const Matrix& dy, const Matrix& x, bool rounds) const {
    Matrix out{experts_ * dy.columns, x.columns, {}};
    out.values.resize(static_cast<size_t>(out.rows * out.columns));
    for (int64_t e = 0; e < experts_; ++e) {
      const Matrix a = of_expert(e, dy, rounds), b = of_expert(e, x, rounds);
      const Matrix sum = product(a, b);
      std::copy(sum.values.begin(), sum.values.end(), out.values.begin() + e * std::ssize(sum.values));
    }
    return out;
  }

 private:
  // Transposed: a column for each pair of the expert.
  Matrix of_expert(int64_t expert, const Matrix& rows, bool rounds) const {
    Matrix own{0, rows.columns, {}};
    for (int64_t pair = 0; pair < std::ssize(pairs_); ++pair) {
      if (pairs_[static_cast<size_t>(pair)] != expert) continue;
      const int64_t row = rows.rows == std::ssize(pairs_) ? pair : pair / k_;
      for (int64_t j = 0; j < rows.columns; ++j) own.values.push_back(rows.at(row, j));
      ++own.rows;
    }
    return rounds ? rounded(transposed(own), 1, 128) : transposed(own);
  }

  const std::vector<int32_t>& pairs_;
  const int64_t k_, experts_, outputs_;
};

TEST(PrecisionLoss, OfExpertsIsThatOfAPlainComputation) {
  Model model("block", "moe-30m-a10m");
  const Sources sources(model.executor());
  int64_t compared = 0;
  const auto products = measure_precision(model.executor(), 0);
  for (const ProductLoss& loss : products) {
    if (!loss.op.starts_with("scaled_experts")) continue;
    ++compared;
    const Matrix weight = weight_of(model.executor(), loss.weight);
    const Matrix x = sources.found.at(loss.operands[0].tensor), coded_x = rounded(x, 1, 128);
    const bool is_in = loss.op.starts_with("scaled_experts_in");
    const ExpertProduct of(sources.pairs.at(loss.layer), weight, 2 * 24,
                           model.executor().set().options.model.experts.count);
    Matrix exact, found;
    if (loss.role == ProductRole::kWeightGrad) {
      const Matrix y = sources.found.at(loss.operands[1].tensor);
      exact = of.weights(x, y, false);
      found = of.weights(coded_x, rounded(y, 1, 128), true);
    } else {
      const bool forward = loss.role == ProductRole::kForward;
      exact = of.rows(x, weight, is_in == forward, forward);
      found = of.rows(coded_x, rounded(weight, 128, 128), is_in == forward, forward);
      EXPECT_EQ(loss.operands[1].tensor, loss.weight);
      EXPECT_NEAR(loss.operands[1].snr_db, snr(weight, rounded(weight, 128, 128)), 1e-6);
    }
    EXPECT_NEAR(loss.operands[0].snr_db, snr(x, coded_x), 1e-6) << loss.op;
    EXPECT_NEAR(loss.snr_db, snr(exact, found), 0.1) << loss.op << " " << loss.weight;
    EXPECT_EQ(loss.rows, exact.rows);
    EXPECT_EQ(loss.rows, loss.rows_compared);
    EXPECT_TRUE(loss.fits()) << loss.op << " " << loss.snr_db;
  }
  EXPECT_EQ(compared, std::ssize(sources.pairs) * 2 * 3) << "in and out, each with two gradients";
  const auto few = measure_precision(model.executor(), 0, {.multiplications = 1});
  bool has_fewer = false;
  for (size_t i = 0; i < few.size(); ++i) {
    if (!few[i].op.starts_with("scaled_experts")) continue;
    has_fewer = has_fewer || few[i].rows_compared < few[i].rows;
    EXPECT_NEAR(few[i].snr_db, products[i].snr_db, 1.5) << few[i].op;
  }
  EXPECT_TRUE(has_fewer);
}

// With and without the parts of the recipe beyond scales.
TEST(PrecisionLoss, Nvfp4TakesExperts) {
  for (const bool plain : {false, true}) {
    quantize::Recipe recipe = *quantize::find_recipe("nvfp4");
    if (plain) recipe.rounds_gradients_stochastically = recipe.transforms_weight_gradient = false;
    Model model(recipe, "moe-30m-a10m");
    const auto products = measure_precision(model.executor(), 0);
    EXPECT_EQ(products.size(), 2U * 4 * 3) << "of each of 2 blocks: qkv, attention's output, in and out";
    int64_t of_experts = 0;
    std::map<ProductRole, double> least;
    for (const ProductLoss& loss : products) {
      if (!loss.op.starts_with("scaled_experts")) continue;
      ++of_experts;
      EXPECT_EQ(loss.operands[0].rule, "e2m1 1x16 nvfp4 by row");
      EXPECT_EQ(loss.gate_db, 10);
      const auto [slot, is_new] = least.try_emplace(loss.role, loss.snr_db);
      slot->second = std::min(slot->second, loss.snr_db);
      EXPECT_TRUE(loss.fits()) << loss.op << " " << loss.weight << " " << loss.snr_db;
    }
    EXPECT_EQ(of_experts, 2 * 2 * 3);
    for (const auto& [role, db] : least)
      RecordProperty(fmt::format("{}least_{}_db", plain ? "plain_" : "", static_cast<int>(role)),
                     fmt::format("{:.1f}", db));
  }
}

TEST(PrecisionLoss, IsWithinTheGatesOfEveryRecipe) {
  for (const quantize::Recipe& recipe : quantize::recipes()) {
    Model model(recipe);
    // Its scales are those of a step before.
    if (recipe.is_delayed()) model.run.step(0);
    const auto products = measure_precision(model.executor(), 0);
    ASSERT_EQ(products.size(), (recipe.quantizes_weight_gradient ? 3U : 2U) * 12) << recipe.name;
    for (const ProductLoss& loss : products) {
      EXPECT_TRUE(loss.fits()) << recipe.name << " " << loss.op << " " << loss.weight << " " << loss.snr_db;
      // Independent errors of both operands add up: matmuls lose about 3 dB more than each operand.
      const double both = -10 * std::log10(std::pow(10, -loss.operands[0].snr_db / 10) +
                                           std::pow(10, -loss.operands[1].snr_db / 10));
      EXPECT_NEAR(loss.snr_db, both, 3) << recipe.name << " " << loss.op << " " << loss.weight;
    }
  }
}

TEST(PrecisionLoss, ComparesFewerRowsOfLargeProducts) {
  Model model("block");
  const auto all = measure_precision(model.executor(), 0),
             few = measure_precision(model.executor(), 0, {.multiplications = 1});
  ASSERT_EQ(all.size(), few.size());
  bool has_fewer = false;
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(few[i].rows_compared, std::min<int64_t>(64, few[i].rows));
    has_fewer = has_fewer || few[i].rows > 64;
    EXPECT_NEAR(few[i].snr_db, all[i].snr_db, 1.5);
  }
  EXPECT_TRUE(has_fewer);
}

// Block scales do not go below 1e-4 / 448: half a step of a subnormal e4m3 number is then 2^-10 of that.
TEST(PrecisionLoss, FindsWeightsTooSmallForTheirScales) {
  Model model("block");
  const std::string weight =
      find(measure_precision(model.executor(), 0), 1, ProductRole::kForward, "").weight;
  model.scale_weight(weight, 1e-10f);
  for (const ProductLoss& loss : measure_precision(model.executor(), 0)) {
    const bool reads = loss.weight == weight && loss.role != ProductRole::kWeightGrad;
    if (!reads) continue;
    EXPECT_EQ(loss.operands[1].flushed, 1);
    EXPECT_NEAR(loss.operands[1].snr_db, 0, 1e-9);
    EXPECT_NEAR(loss.snr_db, 0, 1e-9);
    EXPECT_FALSE(loss.fits());
  }
}

// The scales of the first MX specification are too small for blocks whose greatest element is above 1.75 times a power of
// two: 448 times the scale.
TEST(PrecisionLoss, CountsElementsAboveTheirScales) {
  quantize::Recipe recipe = *quantize::find_recipe("mxfp8");
  recipe.name = "mxfp8 by floor";
  const auto floor = quantize::ScaleRule::mx(Format::kE4M3, quantize::MxScale::kFloor);
  recipe.input = {floor, floor};
  Model model(recipe);
  const Sources sources(model.executor());
  double most = 0;
  for (const ProductLoss& loss : measure_precision(model.executor(), 0)) {
    if (loss.role != ProductRole::kForward) continue;
    const Matrix& x = sources.found.at(loss.operands[0].tensor);
    int64_t saturated = 0;
    for (int64_t i = 0; i < x.rows; ++i) {
      for (int64_t first = 0; first < x.columns; first += 32) {
        const int64_t end = std::min(x.columns, first + 32);
        double greatest = 0;
        for (int64_t j = first; j < end; ++j) greatest = std::max(greatest, std::abs(x.at(i, j)));
        // Numbers up to 464 round to 448.
        const double most_of_block = 464 * std::exp2(std::floor(std::log2(greatest)) - 8);
        for (int64_t j = first; j < end; ++j) saturated += std::abs(x.at(i, j)) > most_of_block ? 1 : 0;
      }
    }
    const double share = static_cast<double>(saturated) / static_cast<double>(x.values.size());
    EXPECT_DOUBLE_EQ(loss.operands[0].saturated, share) << loss.operands[0].tensor;
    EXPECT_EQ(loss.operands[1].saturated, 0);
    most = std::max(most, share);
  }
  EXPECT_GT(most, 0.001);
}

TEST(PrecisionLoss, CountsNotANumberAsTheLeast) {
  Model model("tensor");
  const std::string weight =
      find(measure_precision(model.executor(), 0), 0, ProductRole::kForward, "").weight;
  auto values = model.executor().read_all<float>(weight);
  values[5] = std::numeric_limits<float>::quiet_NaN();
  model.executor().write(weight, values);
  model.executor().run(0, {program::Segment::kEncode});
  const ProductLoss loss = find(measure_precision(model.executor(), 0), 0, ProductRole::kForward, weight);
  EXPECT_EQ(loss.operands[1].snr_db, -kMostDecibels);
  EXPECT_EQ(loss.snr_db, -kMostDecibels);
}

}  // namespace
}  // namespace strata::evaluation
