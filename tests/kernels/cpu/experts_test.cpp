#include "kernels/cpu/experts.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "kernels/cpu/array_testing.h"
#include "kernels/cpu/measure.h"
#include "tensor/arena.h"

namespace strata::cpu {
namespace {

using testing::Array;
using testing::expect_near;
using testing::expect_same_bits;
using Role = ExpertsRole;

constexpr Role kRoles[] = {Role::kIn,  Role::kInGradInput,  Role::kInGradWeight,
                           Role::kOut, Role::kOutGradInput, Role::kOutGradWeight};

enum class Routing { kRandom, kOneExpert, kFewExperts, kSomeDropped, kAllDropped };

struct Sizes {
  int64_t tokens, k, experts, outputs, inputs;
  Routing routing = Routing::kRandom;
};

std::vector<int32_t> ids_of(const Sizes& s) {
  std::mt19937 engine(7);
  std::vector<int32_t> all(static_cast<size_t>(s.experts)), ids;
  std::iota(all.begin(), all.end(), 0);
  for (int64_t token = 0; token < s.tokens; ++token) {
    // kFewExperts selects only every second expert, so that empty experts precede, separate and follow.
    const bool drops = s.routing == Routing::kSomeDropped;
    if (s.routing == Routing::kRandom || drops) std::shuffle(all.begin(), all.end(), engine);
    for (int64_t slot = 0; slot < s.k; ++slot) {
      // Drops some of a token's pairs, and all of every fifth token.
      if (s.routing == Routing::kAllDropped || (drops && (token % 5 == 0 || (token + slot) % 3 == 0))) {
        ids.push_back(-1);
        continue;
      }
      const int64_t few = (token * 3 + slot) % (s.experts / 2) * 2 + 1;
      ids.push_back(s.routing == Routing::kFewExperts ? static_cast<int32_t>(few)
                                                      : all[static_cast<size_t>(slot)]);
    }
  }
  return ids;
}

bool is_weight_grad(Role role) {
  return role == Role::kInGradWeight || role == Role::kOutGradWeight;
}

// This processor, and ones with and without bf16 instructions, which a model computes.
enum class Machine { kThis, kWithPairs, kWithoutPairs };
constexpr Machine kMachines[] = {Machine::kThis, Machine::kWithPairs, Machine::kWithoutPairs};

hardware::DeviceSpec device_of(Machine machine, int threads) {
  hardware::DeviceSpec device = describe_device(threads);
  if (machine == Machine::kThis) return device;
  device.isa.avx512_bf16 = machine == Machine::kWithPairs;
  device.isa.amx = false;
  return device;
}

// The operands of one GEMM; the role determines the layout of b and c.
struct Product {
  ExpertsSpec spec;
  std::vector<int32_t> ids;
  Array a, b;

  int64_t slots() const { return spec.tokens * spec.k; }
  static int64_t a_elements(const ExpertsSpec& s) {
    const int64_t slots = s.tokens * s.k;
    switch (s.role) {
      case Role::kIn:
        return s.tokens * s.inputs;
      case Role::kInGradInput:
      case Role::kInGradWeight:
        return slots * s.outputs;
      case Role::kOut:
        return slots * s.inputs;
      default:
        return s.tokens * s.outputs;
    }
  }
  static int64_t b_elements(const ExpertsSpec& s) {
    if (s.role == Role::kInGradWeight) return s.tokens * s.inputs;
    if (s.role == Role::kOutGradWeight) return s.tokens * s.k * s.inputs;
    return s.experts * s.outputs * s.inputs;
  }
  Product(const Sizes& s, Role role, DType dtype, bool accumulate = false)
      : spec{role, s.tokens, s.k, -1, s.experts, s.outputs, s.inputs, dtype, accumulate},
        ids(ids_of(s)),
        a(Array::random(dtype, a_elements(spec), 1)),
        b(Array::random(is_weight_grad(role) ? dtype : DType::kF32, b_elements(spec), 2)) {}

  Array result() const {
    switch (spec.role) {
      case Role::kIn:
        return {spec.dtype, slots() * spec.outputs};
      case Role::kInGradInput:
        return {spec.dtype, spec.tokens * spec.inputs};
      case Role::kOut:
        return {spec.dtype, spec.tokens * spec.outputs};
      case Role::kOutGradInput:
        return {spec.dtype, slots() * spec.inputs};
      default:
        return {DType::kF32, spec.experts * spec.outputs * spec.inputs};
    }
  }

  // Scratch starts as NaN. Planned for three threads, however many run it.
  Array run(Machine machine = Machine::kThis, const Array* onto = nullptr, int threads = 3) const {
    Array c = onto != nullptr ? *onto : result();
    const ExpertsPlan plan = plan_experts(spec, device_of(machine, threads));
    const Arena scratch(plan.scratch_bytes + 64);
    std::memset(scratch.data(), 0xff, static_cast<size_t>(scratch.size()));
    run_experts(plan, a.data(), ids.data(), nullptr, b.data(), c.data(), scratch.data());
    return c;
  }

  double weight(int64_t expert, int64_t o, int64_t i) const {
    const auto w = static_cast<float>(b[(expert * spec.outputs + o) * spec.inputs + i]);
    if (spec.dtype == DType::kF16) return static_cast<float>(F16(w));
    return spec.dtype == DType::kBF16 ? static_cast<float>(BF16(w)) : w;
  }

  std::vector<double> wanted(const Array* onto = nullptr) const {
    std::vector<double> c(static_cast<size_t>(result().size()));
    const int64_t outputs = spec.outputs, inputs = spec.inputs;
    for (int64_t slot = 0; slot < slots(); ++slot) {
      const int64_t token = slot / spec.k, expert = ids[static_cast<size_t>(slot)];
      if (expert < 0) continue;
      for (int64_t o = 0; o < outputs; ++o) {
        for (int64_t i = 0; i < inputs; ++i) {
          const auto add = [&](int64_t at, double value) { c[static_cast<size_t>(at)] += value; };
          switch (spec.role) {
            case Role::kIn:
              add(slot * outputs + o, a[token * inputs + i] * weight(expert, o, i));
              break;
            case Role::kOut:
              add(token * outputs + o, a[slot * inputs + i] * weight(expert, o, i));
              break;
            case Role::kInGradInput:
              add(token * inputs + i, a[slot * outputs + o] * weight(expert, o, i));
              break;
            case Role::kOutGradInput:
              add(slot * inputs + i, a[token * outputs + o] * weight(expert, o, i));
              break;
            case Role::kInGradWeight:
              add((expert * outputs + o) * inputs + i, a[slot * outputs + o] * b[token * inputs + i]);
              break;
            case Role::kOutGradWeight:
              add((expert * outputs + o) * inputs + i, a[token * outputs + o] * b[slot * inputs + i]);
              break;
          }
        }
      }
    }
    if (onto != nullptr)
      for (size_t i = 0; i < c.size(); ++i) c[i] += (*onto)[static_cast<int64_t>(i)];
    return c;
  }
};

const Sizes kSizes[] = {
    {37, 2, 5, 13, 7},
    {1, 3, 4, 33, 50},
    {29, 4, 4, 50, 33},  // every token to every expert
    {0, 2, 3, 12, 20},
    {5, 1, 3, 0, 9},
    {5, 1, 3, 9, 0},
    {65, 1, 4, 40, 24, Routing::kOneExpert},
    {65, 2, 9, 40, 24, Routing::kFewExperts},
    {210, 2, 3, 601, 70},  // more depth than one step of the input gradients
    {210, 2, 3, 70, 531},  // the same for the forward GEMMs, and two blocks of columns
    {1301, 2, 2, 9, 17},   // more rows than a task
    {1301, 1, 3, 9, 17, Routing::kOneExpert},
    {2603, 2, 4, 8, 8, Routing::kFewExperts},  // more tokens than a chunk
    {37, 2, 5, 13, 7, Routing::kSomeDropped},
    {2603, 3, 4, 8, 8, Routing::kSomeDropped},
    {65, 2, 4, 40, 24, Routing::kAllDropped},
};

TEST(Experts, MatchTheFormula) {
  for (const Sizes& sizes : kSizes) {
    for (const Role role : kRoles) {
      for (const DType dtype : testing::kActivationTypes) {
        SCOPED_TRACE(fmt::format("role {} of {} tokens, {} x {}, {}", static_cast<int>(role), sizes.tokens,
                                 sizes.outputs, sizes.inputs, name_of(dtype)));
        const Product product(sizes, role, dtype);
        const std::vector<double> wanted = product.wanted();
        for (const Machine machine : kMachines) expect_near(product.run(machine), wanted, 2e-4);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Experts, WeightGradientsAccumulate) {
  for (const Role role : {Role::kInGradWeight, Role::kOutGradWeight}) {
    for (const DType dtype : testing::kActivationTypes) {
      const Product product({300, 2, 9, 40, 24, Routing::kFewExperts}, role, dtype, true);
      const Array before = Array::random(DType::kF32, product.result().size(), 3);
      for (const Machine machine : kMachines)
        expect_near(product.run(machine, &before), product.wanted(&before), 2e-4);
    }
  }
}

TEST(Experts, SameBitsForAnyThreads) {
  for (const Role role : kRoles) {
    for (const DType dtype : testing::kActivationTypes) {
      const Product product({1301, 2, 5, 71, 401}, role, dtype);
      for (const Machine machine : kMachines) {
        expect_same_bits([&] { return product.run(machine).bytes(); });
        // Independent of the plan: chunks and workers change no sum.
        EXPECT_TRUE(product.run(machine, nullptr, 1).bytes() == product.run(machine).bytes())
            << "role " << static_cast<int>(role);
      }
    }
  }
}

// bf16 dot products add in another order than single multiplications.
TEST(Experts, ArePlannedForTheProcessor) {
  const auto has_pairs = [](DType dtype, Role role, int64_t inputs, Machine machine) {
    return plan_experts({role, 8, 2, -1, 4, 6, inputs, dtype, false}, device_of(machine, 2)).pairs;
  };
  EXPECT_TRUE(has_pairs(DType::kBF16, Role::kIn, 8, Machine::kWithPairs));
  EXPECT_FALSE(has_pairs(DType::kBF16, Role::kIn, 8, Machine::kWithoutPairs));
  EXPECT_FALSE(has_pairs(DType::kF32, Role::kIn, 8, Machine::kWithPairs));
  EXPECT_FALSE(has_pairs(DType::kBF16, Role::kIn, 7, Machine::kWithPairs));
  EXPECT_TRUE(has_pairs(DType::kBF16, Role::kInGradWeight, 7, Machine::kWithPairs));
}

TEST(Experts, RejectInvalidIds) {
  for (const int32_t id : {-2, 5, 1 << 30}) {
    for (const Role role : kRoles) {
      Product product({37, 2, 5, 13, 7}, role, DType::kF32);
      product.ids[40] = id;
      EXPECT_THROW(product.run(), InternalError);
    }
    std::vector<int64_t> counts(5);
    EXPECT_THROW(expert_counts(1, 1, 5, counts.data(), &id, nullptr, false), InternalError);
  }
}

TEST(Experts, CountPairs) {
  const std::vector<int32_t> ids{3, 1, 3, 0, 3, 1};
  std::vector<int64_t> counts(5, -7);
  expert_counts(3, 2, 5, counts.data(), ids.data(), nullptr, false);
  EXPECT_EQ(counts, (std::vector<int64_t>{1, 2, 0, 3, 0}));
  expert_counts(3, 2, 5, counts.data(), ids.data(), nullptr, true);
  EXPECT_EQ(counts, (std::vector<int64_t>{2, 4, 0, 6, 0}));
  expert_counts(0, 1, 5, counts.data(), nullptr, nullptr, false);
  EXPECT_EQ(counts, std::vector<int64_t>(5));
}

}  // namespace
}  // namespace strata::cpu
