#include "optim/stored/stored.h"

#include "base/error.h"
#include "kernels/cpu/adamw8bit.h"
#include "kernels/cpu/stored_update.h"
#include "optim/cpu.h"
#include "optim/optimizers.h"
#include "optim/update_rules.h"

namespace strata::device {
namespace {

// Where memory has the states of a node, by their positions among its states; -1: there is none.
struct StatePlaces {
  int m = -1, m_scale = -1, v = -1, v_scale = -1, compensation = -1;

  explicit StatePlaces(const std::vector<optim::StateSpec>& states) {
    for (size_t i = 0; i < states.size(); ++i) {
      const std::string_view name = states[i].name;
      int* const place = name == "m" || name == "momentum"               ? &m
                         : name == "m_scale" || name == "momentum_scale" ? &m_scale
                         : name == "v"                                   ? &v
                         : name == "v_scale"                             ? &v_scale
                         : name == "compensation"                        ? &compensation
                                                                         : nullptr;
      STRATA_CHECK(place != nullptr, "no kernel knows the state {}", name);
      *place = static_cast<int>(i);
    }
  }
};

struct StoredPlan {
  explicit StoredPlan(const Bind<optim::StoredUpdate>& node)
      : rule(node.attrs.rule),
        own(node.attrs, node.in.parameter->shape),
        places(optim::stored_states(rule, optim::with_rows(node.in.parameter->shape, own.rows))),
        key{rule.storage.seed, node.attrs.stream},
        whole_place(node.attrs.whole_row * own.columns),
        held(node.attrs.held) {
    STRATA_CHECK(node.in.parameter->dtype == rule.storage.weights, "{} is {}, its update rounds to {}",
                 node.in.parameter->name, name_of(node.in.parameter->dtype), name_of(rule.storage.weights));
    if (held) whole_place = node.attrs.whole_row * held->whole_columns;
  }

  optim::UpdateRule rule;
  optim::UpdateElements own;
  StatePlaces places;
  RandomKey key;
  int64_t whole_place;  // of the parameter's first element
  std::shared_ptr<const optim::HeldElements> held;
};

using States = Pointers<std::byte>;

cpu::StoredMoments moments_at(const StoredPlan& plan, const States& states, int place, int scale) {
  if (place < 0) return {};
  const DType dtype = plan.rule.storage.moments;
  return {.data = states[static_cast<size_t>(place)] + plan.own.state_first * size_of(dtype),
          .dtype = dtype,
          .scales = scale < 0 ? nullptr : reinterpret_cast<float*>(states[static_cast<size_t>(scale)])};
}

cpu::StoredWeights weights_at(const StoredPlan& plan, const Operands<optim::StoredUpdate>& at) {
  cpu::StoredWeights weights{.data = at.out.parameter + plan.own.first * size_of(plan.rule.storage.weights),
                             .dtype = plan.rule.storage.weights,
                             .stochastic = plan.rule.storage.is_stochastic(),
                             .key = plan.key,
                             .step = static_cast<uint32_t>(scalars_at(at.in.scalars)->update)};
  if (plan.places.compensation >= 0)
    weights.compensation =
        reinterpret_cast<BF16*>(at.out.states[static_cast<size_t>(plan.places.compensation)]) +
        plan.own.state_first;
  return weights;
}

// The places of the node's elements in the whole parameter.
class Places {
 public:
  Places(const StoredPlan& plan, const int32_t* rank) : plan_(plan) {
    if (!plan.held || !plan.rule.storage.is_stochastic()) return;
    const graph::Coordinates& at = graph::coordinates_in(rank);
    rows_ = &plan.held->rows.on(at);
    columns_ = &plan.held->columns.on(at);
  }
  cpu::PlacedElements operator()(int64_t at, int64_t end) const {
    const int64_t first = plan_.own.first;
    if (rows_ == nullptr) return {at, end - at, plan_.whole_place + first + at};
    const optim::PlacedRun run = optim::placed_run(*rows_, *columns_, plan_.own.columns,
                                                   plan_.held->whole_columns, first + at, first + end);
    return {at, run.count, run.place < 0 ? -1 : plan_.whole_place + run.place};
  }

 private:
  const StoredPlan& plan_;
  const std::vector<graph::HeldSpan>*rows_ = nullptr, *columns_ = nullptr;
};

void run(const StoredPlan& plan, const Operands<optim::StoredUpdate>& at) {
  const UpdateScalars& scalars = *scalars_at(at.in.scalars);
  const optim::UpdateRule& rule = plan.rule;
  const StatePlaces& places = plan.places;
  const States& states = at.out.states;
  const Places place_of(plan, at.in.rank);
  const float* const grad = at.in.gradient + plan.own.first;
  if (rule.optimizer.is<optim::AdamW8Bit>()) {
    if (scalars.skip != 0) return;
    const auto codes = [&](int place) {
      return reinterpret_cast<uint8_t*>(states[static_cast<size_t>(place)]);
    };
    const auto scales = [&](int place) {
      return reinterpret_cast<float*>(states[static_cast<size_t>(place)]);
    };
    const cpu::AdamWConstants constants = adamw_constants(rule.optimizer.as<optim::AdamW8Bit>().adamw, rule);
    cpu::stored_update(
        plan.own.count, weights_at(plan, at), {}, {}, grad,
        [&](int64_t first, const cpu::AdamWArrays& arrays, int64_t n) {
          const int64_t block = first / kQuantizationBlock;
          cpu::adamw8bit_update(n, arrays.master,
                                {codes(places.m) + first, scales(places.m_scale) + block,
                                 codes(places.v) + first, scales(places.v_scale) + block},
                                arrays.grad, &scalars, constants);
        },
        place_of);
    return;
  }
  const auto use = [&](cpu::UpdateRange update) {
    cpu::stored_update(
        plan.own.count, weights_at(plan, at), moments_at(plan, states, places.m, places.m_scale),
        moments_at(plan, states, places.v, places.v_scale), grad,
        [&](int64_t, const cpu::AdamWArrays& arrays, int64_t n) { update(arrays, n); }, place_of);
  };
  if (rule.optimizer.is<optim::Lion>()) {
    cpu::with_lion(scalars, lion_constants(rule.optimizer.as<optim::Lion>(), rule), use);
  } else if (rule.optimizer.is<optim::Adopt>()) {
    const auto& adopt = rule.optimizer.as<optim::Adopt>();
    cpu::with_adopt(scalars, adamw_constants({adopt.beta1, adopt.beta2, adopt.eps}, rule), use);
  } else {
    cpu::with_adamw(scalars, adamw_constants(rule.optimizer.as<optim::AdamW>(), rule), use);
  }
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<optim::StoredUpdate>& node) {
  return node.kernel([plan = StoredPlan(node)](const Operands<optim::StoredUpdate>& at) { run(plan, at); });
}

}  // namespace strata::device
