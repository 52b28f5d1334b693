// What the bindings of the optimizers' ops share.
#pragma once

#include <memory>
#include <variant>

#include "base/error.h"
#include "device/cpu/bind.h"
#include "kernels/cpu/adafactor.h"
#include "kernels/cpu/muon.h"
#include "optim/operands.h"
#include "optim/optimizer.h"
#include "tensor/update_scalars.h"

namespace strata::device::cpu_bind {

inline const UpdateScalars* scalars_at(const std::byte* place) {
  return reinterpret_cast<const UpdateScalars*>(place);
}

template <typename Optimizer>
const Optimizer& optimizer_of(const BindRequest& request) {
  return std::get<Optimizer>(request.view.attrs<optim::UpdateAttrs>().rule.optimizer);
}

// The elements that a node of an optimizer is for, and its rates.
struct RowsPlan {
  explicit RowsPlan(const BindRequest& request)
      : RowsPlan(request.view.attrs<optim::UpdateAttrs>(),
                 request.view.in(optim::UpdateOperands::kParameter).shape) {}
  RowsPlan(const optim::UpdateAttrs& attrs, const Shape& shape) {
    const optim::RowRange range = optim::row_range(attrs, shape);
    columns = shape[0] > 0 ? shape.elements() / shape[0] : 0;
    rows = range.rows;
    first = range.first * columns;
    state_first = range.state_first * columns;
    elements = rows * columns;
    weight_decay = attrs.rule.weight_decay;
    lr_scale = attrs.rule.lr_scale;
  }
  int64_t rows = 0, columns = 0, elements = 0;
  int64_t first = 0, state_first = 0;  // elements
  double weight_decay = 0, lr_scale = 1;
};

inline cpu::AdafactorConstants adafactor_constants(const optim::UpdateRule& rule) {
  const auto& adafactor = std::get<optim::Adafactor>(rule.optimizer);
  return {.beta2_decay = adafactor.beta2_decay,
          .eps1 = adafactor.eps1,
          .eps2 = adafactor.eps2,
          .clip_threshold = adafactor.clip_threshold,
          .weight_decay = rule.weight_decay,
          .lr_scale = rule.lr_scale};
}

// Muon's products for matrices of one shape, made once.
inline std::shared_ptr<const cpu::MuonPlan> muon_products(const BindRequest& request, int64_t rows,
                                                          int64_t columns) {
  auto& products = request.cache[fmt::format("muon {} {}", rows, columns)];
  if (!products)
    products = std::make_shared<const cpu::MuonPlan>(cpu::plan_muon(rows, columns, request.device));
  return std::static_pointer_cast<const cpu::MuonPlan>(products);
}

}  // namespace strata::device::cpu_bind
