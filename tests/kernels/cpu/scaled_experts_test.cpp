#include "kernels/cpu/scaled_experts.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "base/parallel.h"
#include "fixtures/host_device.h"
#include "kernels/cpu/scaled_testing.h"
#include "kernels/cpu/with_threads.h"
#include "tensor/arena.h"

namespace strata::cpu {
namespace {

using quantize::Format;
using quantize::PowerOfTwo;
using quantize::ScaleRule;
using testing::QuantizedOperand;
using Role = ExpertsRole;

constexpr Role kRoles[] = {Role::kIn,  Role::kInGradInput,  Role::kInGradWeight,
                           Role::kOut, Role::kOutGradInput, Role::kOutGradWeight};

bool is_weight_grad(Role role) {
  return role == Role::kInGradWeight || role == Role::kOutGradWeight;
}
bool is_forward(Role role) {
  return role == Role::kIn || role == Role::kOut;
}

// How one role's operands are quantised.
struct Recipe {
  std::string name;
  ScaleRule activations, weights;
  bool copies_weights;  // input gradients read a copy along columns
  std::optional<ScaleRule> along_pairs;
  bool treats_pairs = false;  // by a transform, and a by stochastic rounding
};
std::vector<Recipe> recipes() {
  return {
      {"block", ScaleRule::block_row(Format::kE4M3), ScaleRule::block_square(Format::kE4M3), false,
       ScaleRule::block_row(Format::kE4M3)},
      {"powers of two", ScaleRule::block_row(Format::kE4M3, PowerOfTwo::kYes),
       ScaleRule::block_row(Format::kE4M3), true, ScaleRule::block_row(Format::kE5M2, PowerOfTwo::kYes)},
      {"rows", ScaleRule::row(Format::kE4M3), ScaleRule::row(Format::kE4M3), true,
       ScaleRule::block_row(Format::kE4M3)},
      {"rows of groups", ScaleRule::row(Format::kE5M2), ScaleRule::tensor(Format::kE4M3), false,
       ScaleRule::row(Format::kE5M2)},
      {"tensor", ScaleRule::tensor(Format::kE5M2), ScaleRule::tensor(Format::kE4M3), false, std::nullopt},
      {"tensor, then MX", ScaleRule::tensor(Format::kE5M2), ScaleRule::mx(Format::kE4M3), false,
       ScaleRule::mx(Format::kE4M3)},
      {"MX", ScaleRule::mx(Format::kE4M3), ScaleRule::mx(Format::kE4M3), true, ScaleRule::mx(Format::kE4M3)},
      {"nvfp4", ScaleRule::nvfp4_row(), ScaleRule::nvfp4_square(), false, ScaleRule::nvfp4_row()},
      {"nvfp4 by row", ScaleRule::nvfp4_by_row(), ScaleRule::nvfp4_square(), false,
       ScaleRule::nvfp4_by_row()},
      {"nvfp4 by row, treated", ScaleRule::nvfp4_by_row(), ScaleRule::nvfp4_square(), false,
       ScaleRule::nvfp4_by_row(), true}};
}

enum class Routing { kMany, kOneExpert, kDropped };

struct Case {
  int64_t tokens, k, experts, outputs, inputs;
  Routing routing = Routing::kMany;
  bool offsets = false;

  // The expert of each pair, and with offsets where each token's pairs begin.
  std::vector<int32_t> ids() const {
    std::vector<int32_t> ids;
    for (int64_t slot = 0; slot < tokens * k; ++slot) {
      const int64_t token = slot / k, of_token = slot % k;
      int64_t expert = routing == Routing::kOneExpert ? 1 : (token * token + 3 * of_token) % experts;
      if (routing == Routing::kMany && expert == 2) expert = 0;  // expert 2 is empty
      if (routing == Routing::kDropped && (slot * 7 % 5 < 2 || token % 6 == 0)) expert = -1;
      ids.push_back(static_cast<int32_t>(expert));
    }
    return ids;
  }
  int64_t first_slot(int64_t token) const {
    if (!offsets) return token * k;
    return token == 0 ? 0 : (token - 1) * k + (k - 1);  // the first token has one pair less
  }
  int64_t slots() const { return tokens * k + (offsets ? 3 : 0); }
  std::vector<int32_t> all_offsets() const {
    std::vector<int32_t> all;
    for (int64_t token = 0; token <= tokens; ++token) all.push_back(static_cast<int32_t>(first_slot(token)));
    return all;
  }
};

struct Pair {
  int64_t slot, token;
};
std::vector<Pair> pairs_of(const Case& c, const std::vector<int32_t>& ids, int64_t expert) {
  std::vector<Pair> pairs;
  for (int64_t token = 0; token < c.tokens; ++token) {
    for (int64_t slot = c.first_slot(token); slot < c.first_slot(token + 1); ++slot) {
      if (ids[static_cast<size_t>(slot)] == expert) pairs.push_back({slot, token});
    }
  }
  return pairs;
}

bool a_by_slot(Role role) {
  return role == Role::kInGradInput || role == Role::kInGradWeight || role == Role::kOut;
}

constexpr quantize::HadamardSigns kSigns{0xb38d};
constexpr quantize::StochasticBits kBits{{0x123456789abcdefull, 5}};

struct Problem {
  Case c;
  Role role;
  Recipe recipe;
  std::vector<int32_t> ids;
  QuantizedOperand a, b;

  Problem(const Case& of, Role of_role, const Recipe& of_recipe)
      : c(of), role(of_role), recipe(of_recipe), ids(of.ids()), a(make_a()), b(make_b()) {}

  int64_t a_columns() const { return is_forward(role) ? c.inputs : c.outputs; }
  QuantizedOperand make_a() const {
    return testing::hard_operand({recipe.activations}, a_by_slot(role) ? c.slots() : c.tokens, a_columns(),
                                 1);
  }
  bool copies() const { return !is_weight_grad(role) && !is_forward(role) && recipe.copies_weights; }
  QuantizedOperand make_b() const {
    if (is_weight_grad(role))
      return testing::hard_operand({recipe.activations}, a_by_slot(role) ? c.tokens : c.slots(), c.inputs, 2);
    const int64_t rows = c.experts * c.outputs;
    if (copies()) return testing::hard_operand({recipe.weights}, c.inputs, rows, 3);
    return testing::hard_operand({recipe.weights}, rows, c.inputs, 3);
  }
  double weight(int64_t expert, int64_t output, int64_t input) const {
    const int64_t row = expert * c.outputs + output;
    return b
        .values[static_cast<size_t>(copies() ? input * c.experts * c.outputs + row : row * c.inputs + input)];
  }

  ScaledExpertsSpec spec(DType dtype, bool accumulate) const {
    ScaledExpertsSpec s{.experts = {.role = role,
                                    .tokens = c.tokens,
                                    .k = c.k,
                                    .slots = c.offsets ? c.slots() : -1,
                                    .experts = c.experts,
                                    .outputs = c.outputs,
                                    .inputs = c.inputs,
                                    .dtype = dtype,
                                    .accumulate = accumulate},
                        .a = recipe.activations,
                        .b = is_weight_grad(role) ? recipe.activations : recipe.weights,
                        .b_along_columns = copies()};
    if (is_weight_grad(role)) s.a_along_pairs = s.b_along_pairs = recipe.along_pairs;
    if (is_weight_grad(role) && recipe.treats_pairs) {
      s.hadamard = kSigns;
      s.stochastic = kBits;
    }
    return s;
  }

  // Three samples take turns, and a has two parts of the columns of the whole.
  std::vector<int32_t> places_of_a() const {
    std::vector<int32_t> places;
    for (int32_t row = 0; row < a.count; ++row) places.insert(places.end(), {row % 3, row / 3});
    return places;
  }
  std::vector<quantize::ColumnRun> runs_of_a() const { return {{0, 5}, {a_columns() / 2, 7 + a_columns()}}; }
};

struct Wanted {
  std::vector<double> sums, sizes;
};

// The rows of an expert's pairs, quantised again along them in groups of 128, as fp64.
std::vector<double> along_pairs(const Problem& p, const QuantizedOperand& operand,
                                const std::vector<int64_t>& rows) {
  std::vector<double> all;
  const int64_t columns = operand.depth;
  for (size_t first = 0; first < rows.size(); first += 128) {
    const size_t count = std::min<size_t>(128, rows.size() - first);
    std::vector<float> group;
    const quantize::KeepSubnormals keep;
    for (size_t i = 0; i < count; ++i) {
      for (int64_t j = 0; j < columns; ++j)
        group.push_back(
            static_cast<float>(operand.values[static_cast<size_t>(rows[first + i] * columns + j)]));
    }
    if (!p.recipe.along_pairs) {
      all.insert(all.end(), group.begin(), group.end());
      continue;
    }
    auto source = quantize::source_of(group, static_cast<int64_t>(count), columns);
    quantize::Treatment treatment{*p.recipe.along_pairs};
    if (p.recipe.treats_pairs) treatment.hadamard = kSigns;
    std::vector<int32_t> places;
    const std::vector<quantize::ColumnRun> runs = p.runs_of_a();
    if (p.recipe.treats_pairs && &operand == &p.a) {
      const std::vector<int32_t> all_places = p.places_of_a();
      for (size_t i = 0; i < count; ++i) {
        const auto* const place = all_places.data() + 2 * rows[first + i];
        places.insert(places.end(), {place[0], place[1]});
      }
      treatment.stochastic = kBits;
      source.places = places.data();
      source.runs = runs;
      source.pitch = 3 * columns;
    }
    quantize::Result result = quantize::empty_result(source, treatment, quantize::Along::kColumns);
    result.greatest = operand.result.greatest;
    if (p.recipe.along_pairs->needs() == ScaleRule::Needs::kRows) {
      result.greatest.resize(static_cast<size_t>(columns));
      quantize::find_greatest(source, treatment, quantize::Along::kColumns, result.greatest.data());
    }
    quantize::quantize(source, std::nullopt, quantize::request_of(treatment, result));
    const std::vector<float> values = quantize::dequantized(*p.recipe.along_pairs, result);
    for (size_t i = 0; i < count; ++i) {
      for (int64_t j = 0; j < columns; ++j) all.push_back(values[static_cast<size_t>(j) * count + i]);
    }
  }
  return all;
}

Wanted wanted_of(const Problem& p) {
  const Case& c = p.c;
  const int64_t columns = p.role == Role::kIn || p.role == Role::kOut ? c.outputs : c.inputs;
  const bool by_slot = p.role == Role::kIn || p.role == Role::kOutGradInput;
  const int64_t rows = is_weight_grad(p.role) ? c.experts * c.outputs : by_slot ? c.slots() : c.tokens;
  Wanted w{std::vector<double>(static_cast<size_t>(rows * columns)),
           std::vector<double>(static_cast<size_t>(rows * columns))};
  const auto add = [&](int64_t row, int64_t col, double x, double y) {
    const auto at = static_cast<size_t>(row * columns + col);
    w.sums[at] += x * y;
    w.sizes[at] += std::abs(x * y);
  };
  for (int64_t e = 0; e < c.experts; ++e) {
    const std::vector<Pair> pairs = pairs_of(c, p.ids, e);
    if (!is_weight_grad(p.role)) {
      for (const auto& [slot, token] : pairs) {
        const int64_t from = a_by_slot(p.role) ? slot : token, to = by_slot ? slot : token;
        for (int64_t o = 0; o < c.outputs; ++o) {
          for (int64_t i = 0; i < c.inputs; ++i) {
            const int64_t deep = is_forward(p.role) ? i : o;
            add(to, is_forward(p.role) ? o : i, p.a.values[static_cast<size_t>(from * p.a.depth + deep)],
                p.weight(e, o, i));
          }
        }
      }
      continue;
    }
    std::vector<int64_t> a_rows, b_rows;
    for (const auto& [slot, token] : pairs) {
      a_rows.push_back(a_by_slot(p.role) ? slot : token);
      b_rows.push_back(a_by_slot(p.role) ? token : slot);
    }
    const std::vector<double> a = along_pairs(p, p.a, a_rows), b = along_pairs(p, p.b, b_rows);
    for (size_t pair = 0; pair < pairs.size(); ++pair) {
      for (int64_t o = 0; o < c.outputs; ++o) {
        for (int64_t i = 0; i < c.inputs; ++i)
          add(e * c.outputs + o, i, a[pair * static_cast<size_t>(c.outputs) + static_cast<size_t>(o)],
              b[pair * static_cast<size_t>(c.inputs) + static_cast<size_t>(i)]);
      }
    }
  }
  return w;
}

hardware::DeviceSpec device_with(bool pairs, int threads) {
  static const hardware::DeviceSpec kHost = fixtures::host_device();
  hardware::DeviceSpec device = kHost;
  device.threads = threads;
  device.isa.avx512_bf16 = pairs;
  device.isa.amx = false;
  return device;
}

// In poisoned memory. `before`: accumulates.
std::vector<float> multiplied(const Problem& p, bool pairs, size_t size, DType dtype = DType::kF32,
                              const std::vector<float>* before = nullptr, int threads = 1) {
  const ScaledExpertsPlan plan =
      plan_scaled_experts(p.spec(dtype, before != nullptr), device_with(pairs, threads));
  const detail::WithThreads with(threads);
  Arena scratch(plan.scratch_bytes + 64);
  std::fill_n(scratch.data(), plan.scratch_bytes + 64, std::byte{0xff});
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> c(size + 70, kNan);
  std::vector<BF16> halves(size + 70, BF16(kNan));
  if (before != nullptr) std::copy(before->begin(), before->end(), c.begin());
  const bool half = dtype == DType::kBF16 && !is_weight_grad(p.role);
  const std::vector<int32_t> offsets = p.c.all_offsets(), places = p.places_of_a();
  const std::vector<quantize::ColumnRun> runs = p.runs_of_a();
  run_scaled_experts(plan, p.a.matrix(), p.ids.data(), p.c.offsets ? offsets.data() : nullptr, p.b.matrix(),
                     half ? static_cast<void*>(halves.data()) : c.data(), scratch.data(),
                     {places.data(), runs, 3 * p.a_columns()});
  if (half)
    std::transform(halves.begin(), halves.end(), c.begin(), [](BF16 v) { return static_cast<float>(v); });
  for (size_t i = size; i < c.size(); ++i) EXPECT_TRUE(std::isnan(c[i]));
  for (int64_t i = plan.scratch_bytes; i < plan.scratch_bytes + 64; ++i)
    EXPECT_EQ(scratch.data()[i], std::byte{0xff});
  c.resize(size);
  return c;
}

constexpr double kTolerance = 32 * 0x1p-24;

TEST(ScaledExperts, AreTheProductsOfTheDecodedOperands) {
  for (const Case& c :
       {Case{.tokens = 90, .k = 3, .experts = 4, .outputs = 67, .inputs = 133},
        Case{.tokens = 150,
        .k = 1,
        .experts = 3,
        .outputs = 130,
        .inputs = 31,
        .routing = Routing::kOneExpert},
        Case{.tokens = 41, .k = 2, .experts = 5, .outputs = 129, .inputs = 40, .routing = Routing::kDropped},
        Case{.tokens = 31, .k = 2, .experts = 4, .outputs = 20, .inputs = 70, .offsets = true},
        Case{.tokens = 0, .k = 2, .experts = 2, .outputs = 5, .inputs = 6}}) {
    for (const Recipe& recipe : recipes()) {
      for (const Role role : kRoles) {
        const Problem p(c, role, recipe);
        const Wanted wanted = wanted_of(p);
        for (const bool pairs : {false, true}) {
          for (const DType dtype : {DType::kF32, DType::kBF16}) {
            SCOPED_TRACE(recipe.name + ", role " + std::to_string(static_cast<int>(role)) + ", tokens " +
                         std::to_string(c.tokens) + (pairs ? ", pairs" : ""));
            const std::vector<float> got = multiplied(p, pairs, wanted.sums.size(), dtype);
            const double rounding = dtype == DType::kBF16 && !is_weight_grad(role) ? 0x1p-8 : 0;
            for (size_t i = 0; i < got.size(); ++i)
              ASSERT_NEAR(got[i], wanted.sums[i],
                          kTolerance * wanted.sizes[i] + rounding * std::abs(wanted.sums[i]) + 1e-37)
                  << i;
          }
        }
      }
    }
  }
}

TEST(ScaledExperts, AddWeightGradientsToWhatIsThere) {
  const Case c{.tokens = 90, .k = 2, .experts = 4, .outputs = 20, .inputs = 70};
  for (const Recipe& recipe : recipes()) {
    const Problem p(c, Role::kInGradWeight, recipe);
    const Wanted wanted = wanted_of(p);
    std::vector<float> before(wanted.sums.size());
    for (size_t i = 0; i < before.size(); ++i) before[i] = static_cast<float>(i % 100) - 50;
    for (const bool pairs : {false, true}) {
      const std::vector<float> got = multiplied(p, pairs, before.size(), DType::kF32, &before);
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], wanted.sums[i] + before[i], kTolerance * (wanted.sizes[i] + 50)) << recipe.name;
    }
  }
}

TEST(ScaledExperts, HaveTheSameBitsForAnyThreads) {
  const Case c{.tokens = 300, .k = 2, .experts = 4, .outputs = 140, .inputs = 150};
  const std::vector<Recipe> all = recipes();
  for (const size_t r : {size_t{0}, size_t{5}, all.size() - 1}) {
    for (const Role role : kRoles) {
      const Problem p(c, role, all[r]);
      const size_t size = static_cast<size_t>(
          is_weight_grad(role) ? c.experts * c.outputs * c.inputs
                               : (role == Role::kIn || role == Role::kOutGradInput ? c.slots() : c.tokens) *
                                     (is_forward(role) ? c.outputs : c.inputs));
      for (const bool pairs : {false, true}) {
        const std::vector<float> one = multiplied(p, pairs, size);
        for (const int threads : {2, 3})
          EXPECT_EQ(multiplied(p, pairs, size, DType::kF32, nullptr, threads), one);
      }
    }
  }
}

TEST(ScaledExperts, RejectsWhatItCannotMultiply) {
  const std::vector<Recipe> all = recipes();
  const Case c{.tokens = 4, .k = 1, .experts = 2, .outputs = 5, .inputs = 6};
  const auto plan = [](const ScaledExpertsSpec& spec) {
    return plan_scaled_experts(spec, device_with(false, 1));
  };
  ScaledExpertsSpec spec = Problem(c, Role::kInGradWeight, all[0]).spec(DType::kF32, false);
  EXPECT_NO_THROW(plan(spec));
  spec.a_along_pairs.reset();  // scales differ from row to row
  EXPECT_THROW(plan(spec), InternalError);
  spec.a_along_pairs = ScaleRule::nvfp4_row();  // blocks have no greatest magnitude of the tensor
  EXPECT_THROW(plan(spec), InternalError);
  spec.a_along_pairs = ScaleRule::block_square(Format::kE4M3);
  EXPECT_THROW(plan(spec), InternalError);
  spec = Problem(c, Role::kIn, all[0]).spec(DType::kF32, false);
  spec.hadamard = kSigns;  // only weight gradients sum over pairs
  EXPECT_THROW(plan(spec), InternalError);
  spec = Problem(c, Role::kInGradInput, all.back()).spec(DType::kF32, false);
  spec.b = ScaleRule::nvfp4_by_row();  // whose rows are depths here
  EXPECT_THROW(plan(spec), InternalError);
  spec = Problem(c, Role::kIn, all[0]).spec(DType::kF32, false);
  spec.b_along_columns = true;
  EXPECT_THROW(plan(spec), InternalError);
  spec.b_along_columns = false;
  spec.a_along_pairs = ScaleRule::mx(Format::kE4M3);
  EXPECT_THROW(plan(spec), InternalError);
  spec = Problem(c, Role::kInGradInput, all[2]).spec(DType::kF32, false);
  spec.b_along_columns = false;  // rows of w: scales that are powers of two may be folded
  EXPECT_NO_THROW(plan(spec));
  spec.b = ScaleRule::row(Format::kE4M3, PowerOfTwo::kNo);
  EXPECT_THROW(plan(spec), InternalError);
  Problem p(c, Role::kIn, all[0]);
  p.ids[1] = 2;
  EXPECT_THROW(multiplied(p, false, 20), InternalError);
}

}  // namespace
}  // namespace strata::cpu
