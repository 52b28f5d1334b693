#include <cmath>
#include <cstring>

#include "base/error.h"
#include "device/cpu/bind_update.h"
#include "kernels/cpu/adafactor.h"
#include "kernels/cpu/adamw8bit.h"
#include "kernels/cpu/muon.h"
#include "kernels/cpu/optimizer.h"
#include "kernels/cpu/weight_encoding.h"
#include "optim/operands.h"
#include "optim/optimizer.h"
#include "optim/router_bias.h"

namespace strata::device::cpu_bind {
namespace {

static_assert(optim::kNormBlock == cpu::kNormBlock,
              "a partial sum covers as many elements in plan and kernel");
static_assert(sizeof(UpdateScalars) <= optim::kScalarBytes, "the kernels' scalars fit their place");

// Partial sums of squares, one list a tensor, added in order.
struct PartialsPlan {
  std::vector<int64_t> counts;
  int first_operand;

  double total(std::byte* const* p) const {
    double sum = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      double part = 0;
      cpu::reduce_sum(reinterpret_cast<const double*>(p[first_operand + static_cast<int>(i)]), counts[i],
                      &part);
      sum += part;
    }
    return sum;
  }
};

PartialsPlan partials_plan(const graph::NodeView& view, int first) {
  PartialsPlan plan{{}, first};
  for (int i = first; i < static_cast<int>(view.node.inputs.size()); ++i)
    plan.counts.push_back(view.in(i).shape.elements());
  return plan;
}

// (x) → partials
BoundKernel sum_of_squares(const BindRequest& request) {
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::sum_of_squares_partials(f32(p[0]), plan_of<int64_t>(plan), reinterpret_cast<double*>(p[1]));
      },
      request.view.in(optim::SumOfSquaresOperands::kX).shape.elements());
}

// (hyper, token count, updates, partials…) → scalars, norm, updates
BoundKernel update_scalars(const BindRequest& request) {
  using Op = optim::UpdateScalarsOperands;
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<PartialsPlan>(held);
        optim::UpdateHyper hyper;
        std::memcpy(&hyper, p[Op::kHyper], sizeof hyper);
        int64_t count = 0, updates = 0;
        std::memcpy(&count, p[Op::kTokenCount], sizeof count);
        std::memcpy(&updates, p[Op::kUpdates], sizeof updates);
        const int outputs = plan.first_operand + static_cast<int>(plan.counts.size());
        // Gradients are sums over tokens. A step without a valid target has no gradient: it is skipped.
        const double mean = count > 0 ? 1.0 / static_cast<double>(count) : 0.0;
        const double norm = std::sqrt(plan.total(p)) * mean;
        const bool skip = count == 0 || !std::isfinite(norm);
        // As torch.nn.utils.clip_grad_norm_: min(1, max_norm / (norm + 1e-6)).
        const double clip =
            hyper.max_grad_norm > 0 ? std::min(1.0, hyper.max_grad_norm / (norm + 1e-6)) : 1.0;
        if (!skip) ++updates;
        const double t = static_cast<double>(std::max<int64_t>(1, updates));
        const UpdateScalars scalars{.lr = hyper.lr,
                                    .beta1 = hyper.beta1,
                                    .beta2 = hyper.beta2,
                                    .eps = hyper.eps,
                                    .bias_correction1 = static_cast<float>(1 - std::pow(hyper.beta1, t)),
                                    .bias_correction2 = static_cast<float>(1 - std::pow(hyper.beta2, t)),
                                    .grad_scale = static_cast<float>(clip * mean),
                                    .skip = skip,
                                    .update = updates};
        std::memcpy(p[outputs + Op::kScalars], &scalars, sizeof scalars);
        *f32(p[outputs + Op::kGradNorm]) = static_cast<float>(norm);
        std::memcpy(p[outputs + Op::kNewUpdates], &updates, sizeof updates);
      },
      partials_plan(request.view, Op::kFirstPartials));
}

// (partials…) → norm
BoundKernel root_of_sum(const BindRequest& request) {
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<PartialsPlan>(held);
        *f32(p[plan.counts.size()]) = static_cast<float>(std::sqrt(plan.total(p)));
      },
      partials_plan(request.view, optim::RootOfSumOperands::kFirstPartials));
}

// (partials…) → their sum
BoundKernel sum_of_partials(const BindRequest& request) {
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<PartialsPlan>(held);
        const double sum = plan.total(p);
        std::memcpy(p[plan.counts.size()], &sum, sizeof sum);
      },
      partials_plan(request.view, optim::SumOfPartialsOperands::kFirstPartials));
}

cpu::AdamWArrays adamw_arrays(const RowsPlan& plan, std::byte* const* p) {
  using Op = optim::AdamWOperands;
  return {f32(p[Op::kParameter]) + plan.first, f32(p[Op::kM]) + plan.state_first,
          f32(p[Op::kV]) + plan.state_first, f32(p[Op::kGradient]) + plan.first};
}

constexpr size_t kAdamWOutputs = 3;

// All rows, with encodings of the parameter.
BoundKernel adamw_encoded(const BindRequest& request) {
  struct Plan {
    RowsPlan rows;
    std::vector<cpu::EncodedCopy> copies;
  };
  const auto& [inputs, outputs] = std::tie(request.view.node.inputs, request.view.node.outputs);
  Plan plan{RowsPlan(request), {}};
  for (size_t i = kAdamWOutputs; i < outputs.size(); ++i)
    plan.copies.push_back({weight_encoding_of(request.view.graph.value(outputs[i]), request.device),
                           static_cast<int>(inputs.size() + i)});
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& [rows, copies] = plan_of<Plan>(held);
        cpu::adamw_update_encoded(
            rows.rows, rows.columns, adamw_arrays(rows, p), scalars_at(p[optim::AdamWOperands::kScalars]),
            static_cast<float>(rows.weight_decay), static_cast<float>(rows.lr_scale), copies, p);
      },
      std::move(plan));
}

// (master, m, v, grad, scalars) → master, m, v, in place; so the others
BoundKernel adamw(const BindRequest& request) {
  if (request.view.node.outputs.size() > kAdamWOutputs) return adamw_encoded(request);
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<RowsPlan>(held);
        cpu::adamw_update(plan.elements, adamw_arrays(plan, p), scalars_at(p[optim::AdamWOperands::kScalars]),
                          static_cast<float>(plan.weight_decay), static_cast<float>(plan.lr_scale));
      },
      RowsPlan(request));
}

// A whole matrix, into what products of bf16 read.
bool adamw_writes(const graph::NodeView& view, const graph::Value& encoded,
                  const hardware::DeviceSpec& device) {
  const Shape& shape = view.in(optim::UpdateOperands::kParameter).shape;
  return shape.rank() == 2 && cpu::encodes_by_rows(weight_encoding_of(encoded, device)) &&
         optim::row_range(view.attrs<optim::UpdateAttrs>(), shape).rows == shape[0];
}

// (bias, loads, scalars) → bias, in place
BoundKernel router_bias_update(const BindRequest& request) {
  struct Plan {
    int64_t experts;
    double rate;
  };
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& [experts, rate] = plan_of<Plan>(held);
        cpu::router_bias_update(experts, f32(p[0]), reinterpret_cast<const int64_t*>(p[1]), scalars_at(p[2]),
                                rate);
      },
      Plan{request.view.in(0).shape[0], request.view.attrs<optim::RouterBiasAttrs>().rate});
}

// (master, momentum, grad, scalars)
BoundKernel lion(const BindRequest& request) {
  using Op = optim::LionOperands;
  struct Plan {
    RowsPlan rows;
    double beta1, beta2;
  };
  const auto& lion = optimizer_of<optim::Lion>(request);
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& [rows, beta1, beta2] = plan_of<Plan>(held);
        cpu::lion_update(rows.elements, f32(p[Op::kParameter]) + rows.first,
                         f32(p[Op::kMomentum]) + rows.state_first, f32(p[Op::kGradient]) + rows.first,
                         scalars_at(p[Op::kScalars]), beta1, beta2, static_cast<float>(rows.weight_decay),
                         static_cast<float>(rows.lr_scale));
      },
      Plan{RowsPlan(request), lion.beta1, lion.beta2});
}

struct MuonNode {
  RowsPlan rows;
  cpu::MuonConstants constants;
  std::shared_ptr<const cpu::MuonPlan> products;  // shared by equal shapes
};

struct MuonInstance {
  explicit MuonInstance(const MuonNode& plan) : node(plan), muon(*plan.products) {}
  MuonNode node;
  cpu::Muon muon;
};

// (master, momentum, grad, scalars)
BoundKernel muon(const BindRequest& request) {
  using Op = optim::MuonOperands;
  const auto& constants = optimizer_of<optim::Muon>(request);
  const RowsPlan rows(request);
  MuonNode plan{rows,
                {.momentum = constants.momentum,
                 .nesterov = constants.nesterov,
                 .steps = constants.steps,
                 .weight_decay = rows.weight_decay,
                 .lr_scale = rows.lr_scale},
                muon_products(request, rows.rows, rows.columns)};
  BoundKernel bound_muon = bound(
      [](Launch&, void* held, std::byte* const* p) {
        auto& [node, run] = instance_of<MuonInstance>(held);
        run.update(f32(p[Op::kParameter]) + node.rows.first, f32(p[Op::kMomentum]) + node.rows.state_first,
                   f32(p[Op::kGradient]) + node.rows.first, scalars_at(p[Op::kScalars]), node.constants,
                   p[6]);
      },
      plan, plan.products->scratch_bytes);
  bound_muon.instantiate = instantiate<MuonInstance, MuonNode>;
  return bound_muon;
}

struct AdafactorPlan {
  explicit AdafactorPlan(const BindRequest& request)
      : rows(request), constants(adafactor_constants(request.view.attrs<optim::UpdateAttrs>().rule)) {}
  RowsPlan rows;
  cpu::AdafactorConstants constants;
};

// (master, row, column, grad, scalars)
BoundKernel adafactor(const BindRequest& request) {
  using Op = optim::AdafactorOperands;
  AdafactorPlan plan(request);
  const int64_t scratch = cpu::adafactor_scratch_bytes(plan.rows.rows, plan.rows.columns);
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& [at, constants] = plan_of<AdafactorPlan>(held);
        cpu::adafactor_update(at.rows, at.columns, f32(p[Op::kParameter]) + at.first, f32(p[Op::kRow]),
                              f32(p[Op::kColumn]), f32(p[Op::kGradient]) + at.first,
                              scalars_at(p[Op::kScalars]), constants, p[8]);
      },
      plan, scratch);
}

// (master, variance, grad, scalars)
BoundKernel adafactor_vector(const BindRequest& request) {
  using Op = optim::AdafactorVectorOperands;
  AdafactorPlan plan(request);
  const int64_t scratch = cpu::adafactor_scratch_bytes(1, plan.rows.elements);
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& [at, constants] = plan_of<AdafactorPlan>(held);
        cpu::adafactor_vector_update(at.elements, f32(p[Op::kParameter]) + at.first, f32(p[Op::kVariance]),
                                     f32(p[Op::kGradient]) + at.first, scalars_at(p[Op::kScalars]), constants,
                                     p[6]);
      },
      plan, scratch);
}

// (master, m, m_scale, v, v_scale, grad, scalars)
BoundKernel adamw8bit(const BindRequest& request) {
  using Op = optim::AdamW8BitOperands;
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<RowsPlan>(held);
        const cpu::Moments8Bit moments{reinterpret_cast<uint8_t*>(p[Op::kM]), f32(p[Op::kMScale]),
                                       reinterpret_cast<uint8_t*>(p[Op::kV]), f32(p[Op::kVScale])};
        cpu::adamw8bit_update(plan.elements, f32(p[Op::kParameter]) + plan.first, moments,
                              f32(p[Op::kGradient]) + plan.first, scalars_at(p[Op::kScalars]),
                              static_cast<float>(plan.weight_decay), static_cast<float>(plan.lr_scale));
      },
      RowsPlan(request));
}

}  // namespace

std::span<const Binding> update_bindings() {
  static const Binding kTable[] = {
      {&optim::kSumOfSquares, sum_of_squares},
      {&optim::kUpdateScalars, update_scalars},
      {&optim::kRootOfSum, root_of_sum},
      {&optim::kSumOfPartials, sum_of_partials},
      {&optim::kAdamW, adamw, nullptr, adamw_writes},
      {&optim::kLion, lion},
      {&optim::kRouterBiasUpdate, router_bias_update},
      {&optim::kMuon, muon},
      {&optim::kAdafactor, adafactor},
      {&optim::kAdafactorVector, adafactor_vector},
      {&optim::kAdamW8Bit, adamw8bit},
  };
  return kTable;
}

}  // namespace strata::device::cpu_bind
