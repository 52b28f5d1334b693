// Updates of parameters in shards that ranks make together.
#include <algorithm>

#include "base/parallel.h"
#include "device/cpu/bind_update.h"
#include "kernels/cpu/adamw8bit.h"

namespace strata::device::cpu_bind {
namespace {

// --- Muon

// What a rank has of the matrices of a stack.
struct StackPlan {
  StackPlan(const graph::NodeView& view, int (*like)(int operand), int operands) : count(operands) {
    for (const auto& slot : view.attrs<optim::MuonStackAttrs>().slots) {
      if (slot.operand < 0) {
        slots.push_back({});
        continue;
      }
      const auto operand = static_cast<int>(slot.operand);
      const RowsPlan rows(slot.update, view.in(like(operand)).shape);
      const auto& muon = std::get<optim::Muon>(slot.update.rule.optimizer);
      elements = rows.elements;
      slots.push_back({operand,
                       rows.first,
                       rows.state_first,
                       {.momentum = muon.momentum,
                        .nesterov = muon.nesterov,
                        .steps = muon.steps,
                        .weight_decay = rows.weight_decay,
                        .lr_scale = rows.lr_scale}});
    }
  }
  struct Slot {
    int operand = -1;
    int64_t first = 0, state_first = 0;  // elements
    cpu::MuonConstants constants = {};
  };
  std::vector<Slot> slots;
  int count = 0;         // of operands that slots number
  int64_t elements = 0;  // of a slot
};

// (momentum, gradient, …, scalars) → momentum…, stack
BoundKernel muon_momentum(const BindRequest& request) {
  using Op = optim::MuonMomentumOperands;
  const int count = static_cast<int>(request.view.node.outputs.size()) - 1;
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<StackPlan>(held);
        const int behind = Op::kEach * plan.count;
        const UpdateScalars* const scalars = scalars_at(p[behind]);
        float* stack = f32(p[behind + Op::kBehind + plan.count]);
        for (const auto& slot : plan.slots) {
          if (slot.operand < 0 || scalars->skip != 0) {
            std::fill_n(stack, plan.elements, 0.0f);
          } else {
            cpu::muon_momentum(plan.elements, f32(p[Op::momentum(slot.operand)]) + slot.state_first,
                               f32(p[Op::gradient(slot.operand)]) + slot.first, stack, scalars,
                               slot.constants);
          }
          stack += plan.elements;
        }
      },
      StackPlan(request.view, Op::gradient, count));
}

struct ProductsNode {
  int64_t matrices, elements, steps;
  std::shared_ptr<const cpu::MuonPlan> products;  // shared by equal shapes
};

struct ProductsInstance {
  explicit ProductsInstance(const ProductsNode& plan) : node(plan), muon(*plan.products) {}
  ProductsNode node;
  cpu::Muon muon;
};

// (stack) → stack
BoundKernel newton_schulz(const BindRequest& request) {
  using Op = optim::NewtonSchulzOperands;
  const Shape& x = request.view.in(Op::kX).shape;
  ProductsNode plan{x[0], x[1] * x[2], request.view.attrs<optim::NewtonSchulzAttrs>().steps,
                    muon_products(request, x[1], x[2])};
  BoundKernel kernel = bound(
      [](Launch&, void* held, std::byte* const* p) {
        auto& [node, muon] = instance_of<ProductsInstance>(held);
        for (int64_t i = 0; i < node.matrices; ++i) {
          muon.newton_schulz(f32(p[Op::kX]) + i * node.elements, f32(p[1 + Op::kY]) + i * node.elements,
                             node.steps, p[2]);
        }
      },
      plan, plan.products->scratch_bytes);
  kernel.instantiate = instantiate<ProductsInstance, ProductsNode>;
  return kernel;
}

// (master…, stack, scalars) → master…
BoundKernel muon_apply(const BindRequest& request) {
  using Op = optim::MuonApplyOperands;
  const auto count = static_cast<int>(request.view.node.outputs.size());
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<StackPlan>(held);
        const UpdateScalars* const scalars = scalars_at(p[plan.count + 1]);
        if (scalars->skip != 0) return;
        const float* stack = f32(p[plan.count]);
        for (const auto& slot : plan.slots) {
          if (slot.operand >= 0) {
            cpu::muon_apply(plan.elements, f32(p[Op::parameter(slot.operand)]) + slot.first, stack, scalars,
                            slot.constants);
          }
          stack += plan.elements;
        }
      },
      StackPlan(request.view, Op::parameter, count));
}

// --- Adafactor

struct TensorPlan {
  TensorPlan(const BindRequest& request, int like) {
    const auto& attrs = request.view.attrs<optim::AdafactorShardAttrs>();
    const Shape& shape = request.view.in(like).shape;
    const RowsPlan rows(attrs.update, shape);
    is_vector = shape.rank() == 1;
    part = {rows.rows, rows.columns, attrs.rows};
    first = rows.first;
    constants = adafactor_constants(attrs.update.rule);
  }
  int64_t scratch_bytes() const {
    return is_vector ? cpu::adafactor_scratch_bytes(1, part.rows)
                     : cpu::adafactor_scratch_bytes(part.rows, part.columns);
  }
  bool is_vector = false;
  cpu::AdafactorPart part;
  int64_t first = 0;  // element
  cpu::AdafactorConstants constants;
};

double* f64(std::byte* pointer) {
  return reinterpret_cast<double*>(pointer);
}

// (master, row or variance, grad, scalars) → row or variance, sums
BoundKernel adafactor_sums(const BindRequest& request) {
  using Op = optim::AdafactorSumsOperands;
  const TensorPlan plan(request, Op::kParameter);
  constexpr int kBehind = Op::kScalars + 1;
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& at = plan_of<TensorPlan>(held);
        const float* const master = f32(p[Op::kParameter]) + at.first;
        const float* const grad = f32(p[Op::kGradient]) + at.first;
        double* const sums = f64(p[kBehind + Op::kSums]);
        std::byte* const scratch = p[kBehind + Op::kSums + 1];
        if (at.is_vector) {
          cpu::adafactor_vector_sums(at.part.rows, master, f32(p[Op::kState]), grad,
                                     scalars_at(p[Op::kScalars]), at.constants, sums, scratch);
        } else {
          cpu::adafactor_sums(at.part, master, f32(p[Op::kState]), grad, scalars_at(p[Op::kScalars]),
                              at.constants, sums, scratch);
        }
      },
      plan, plan.scratch_bytes());
}

// (row, column, grad, sums, scalars) → column, squares
BoundKernel adafactor_columns(const BindRequest& request) {
  using Op = optim::AdafactorColumnsOperands;
  const TensorPlan plan(request, Op::kGradient);
  constexpr int kBehind = Op::kScalars + 1;
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& at = plan_of<TensorPlan>(held);
        cpu::adafactor_columns(at.part, f32(p[Op::kRow]), f32(p[Op::kColumn]),
                               f32(p[Op::kGradient]) + at.first, f64(p[Op::kSums]),
                               scalars_at(p[Op::kScalars]), at.constants, f64(p[kBehind + Op::kSquares]),
                               p[kBehind + Op::kSquares + 1]);
      },
      plan, plan.scratch_bytes());
}

// (master, row or variance, column?, grad, sums, squares?, scalars) → master
BoundKernel adafactor_apply(const BindRequest& request) {
  using Op = optim::AdafactorApplyOperands;
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& at = plan_of<TensorPlan>(held);
        float* const master = f32(p[Op::kParameter]) + at.first;
        const float* const grad = f32(p[Op::kGradient]) + at.first;
        const double* const sums = f64(p[Op::kSums]);
        if (at.is_vector) {
          cpu::adafactor_vector_apply(at.part.rows, at.part.of_rows, master, f32(p[Op::kState]), grad, sums,
                                      scalars_at(p[Op::kScalars]), at.constants);
        } else {
          cpu::adafactor_apply(at.part, master, f32(p[Op::kState]), f32(p[Op::kColumn]), grad, sums,
                               *f64(p[Op::kSquares]), scalars_at(p[Op::kScalars]), at.constants);
        }
      },
      TensorPlan(request, Op::kParameter));
}

// The runs of a tensor that a rank holds, found when the kernel starts: only then is the rank known.
struct HeldBlocksPlan {
  HeldBlocksPlan(const BindRequest& request, int like)
      : attrs(request.view.attrs<optim::AdamW8BitShardAttrs>()),
        rows(attrs.update, request.view.in(like).shape),
        blocks(attrs.blocks()) {}

  template <typename Each>
  void for_each_run(const graph::Coordinates& rank, const Each& each) const {
    const graph::Span columns = optim::held_of_part(attrs.columns, 0, rank);
    cpu::HeldRun run{.columns = attrs.columns.size(),
                     .first_column = columns.begin,
                     .width = attrs.columns.parts[0].room()};
    STRATA_CHECK(run.width == rows.columns && (run.width == columns.size()),
                 "a rank holds {} of {} columns, in memory {}", columns.size(), run.columns, rows.columns);
    int64_t first = 0;
    for (size_t part = 0; part < attrs.rows.parts.size(); ++part) {
      const graph::Span held = optim::held_of_part(attrs.rows, part, rank);
      run.row = first + held.begin;
      run.rows = held.size();
      if (run.rows > 0) each(run);
      run.at += attrs.rows.parts[part].room();
      first += attrs.rows.parts[part].size;
    }
  }

  optim::AdamW8BitShardAttrs attrs;
  RowsPlan rows;
  int64_t blocks;
  int64_t ranks = 1;
};

// (m, m_scale, v, v_scale, grad, scalars, rank) → largest
BoundKernel adamw8bit_largest(const BindRequest& request) {
  using Op = optim::AdamW8BitLargestOperands;
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<HeldBlocksPlan>(held);
        const cpu::Moments8Bit moments{reinterpret_cast<uint8_t*>(p[Op::kM]), f32(p[Op::kMScale]),
                                       reinterpret_cast<uint8_t*>(p[Op::kV]), f32(p[Op::kVScale])};
        float* const largest = f32(p[Op::kRank + 1]);
        std::fill_n(largest, 2 * plan.blocks, 0.0f);
        plan.for_each_run(graph::coordinates_in(p[Op::kRank]), [&](const cpu::HeldRun& run) {
          cpu::adamw8bit_largest(run, moments, f32(p[Op::kGradient]) + plan.rows.first,
                                 scalars_at(p[Op::kScalars]), largest, largest + plan.blocks);
        });
      },
      HeldBlocksPlan(request, Op::kGradient));
}

// (master, m, m_scale, v, v_scale, grad, scalars, rank, largest) → master, m, m_scale, v, v_scale
BoundKernel adamw8bit_shard(const BindRequest& request) {
  using Op = optim::AdamW8BitShardOperands;
  HeldBlocksPlan made(request, Op::kParameter);
  made.ranks = request.view.in(Op::kLargest).shape.elements() / std::max<int64_t>(2 * made.blocks, 1);
  const int64_t scratch = 2 * made.blocks * static_cast<int64_t>(sizeof(float));
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<HeldBlocksPlan>(held);
        const UpdateScalars* const scalars = scalars_at(p[Op::kScalars]);
        if (scalars->skip != 0) return;
        const cpu::Moments8Bit moments{reinterpret_cast<uint8_t*>(p[Op::kM]), f32(p[Op::kMScale]),
                                       reinterpret_cast<uint8_t*>(p[Op::kV]), f32(p[Op::kVScale])};
        constexpr int kOutputs = 5;
        float* const largest = f32(p[Op::kLargest + 1 + kOutputs]);
        const float* const found = f32(p[Op::kLargest]);
        parallel_ranges(2 * plan.blocks, int64_t{1} << 12, [&](int64_t begin, int64_t end) {
          std::copy(found + begin, found + end, largest + begin);
          for (int64_t rank = 1; rank < plan.ranks; ++rank) {
            for (int64_t i = begin; i < end; ++i)
              largest[i] = std::max(largest[i], found[rank * 2 * plan.blocks + i]);
          }
        });
        plan.for_each_run(graph::coordinates_in(p[Op::kRank]), [&](const cpu::HeldRun& run) {
          cpu::adamw8bit_update_run(run, f32(p[Op::kParameter]) + plan.rows.first, moments,
                                    f32(p[Op::kGradient]) + plan.rows.first, scalars,
                                    static_cast<float>(plan.rows.weight_decay),
                                    static_cast<float>(plan.rows.lr_scale), largest, largest + plan.blocks);
        });
        std::copy_n(largest, plan.blocks, moments.m_scale);
        std::copy_n(largest + plan.blocks, plan.blocks, moments.v_scale);
      },
      made, scratch);
}

}  // namespace

std::span<const Binding> update_shard_bindings() {
  static const Binding kTable[] = {
      {&optim::kMuonMomentum, muon_momentum},
      {&optim::kNewtonSchulz, newton_schulz},
      {&optim::kMuonApply, muon_apply},
      {&optim::kAdafactorSums, adafactor_sums},
      {&optim::kAdafactorColumns, adafactor_columns},
      {&optim::kAdafactorApply, adafactor_apply},
      {&optim::kAdamW8BitLargest, adamw8bit_largest},
      {&optim::kAdamW8BitShard, adamw8bit_shard},
  };
  return kTable;
}

}  // namespace strata::device::cpu_bind
