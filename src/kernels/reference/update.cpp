#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/parallel.h"
#include "kernels/reference/call.h"
#include "kernels/reference/orthogonal.h"
#include "optim/operands.h"
#include "optim/optimizer.h"
#include "optim/router_bias.h"
#include "tensor/dynamic_map.h"
#include "tensor/update_scalars.h"

namespace strata::reference {
namespace {

static_assert(sizeof(UpdateScalars) <= optim::kScalarBytes, "the scalars fit their place");

// (x) → partials: sums of squares of consecutive blocks
void sum_of_squares(const Call& call) {
  using Op = optim::SumOfSquaresOperands;
  const Array &x = call.in[Op::kX], &partials = call.out[Op::kPartials];
  parallel_for(partials.shape.elements(), [&](int64_t block) {
    const int64_t end = std::min(x.shape.elements(), (block + 1) * optim::kNormBlock);
    double sum = 0;
    for (int64_t i = block * optim::kNormBlock; i < end; ++i) sum += x.at(i) * x.at(i);
    partials.put(block, sum);
  });
}

// (hyper, token count, updates, partials…) → scalars, norm, updates
void update_scalars(const Call& call) {
  using Op = optim::UpdateScalarsOperands;
  optim::UpdateHyper hyper;
  std::memcpy(&hyper, call.in[Op::kHyper].data, sizeof hyper);
  const int64_t count = call.in[Op::kTokenCount].index_at(0);
  int64_t updates = call.in[Op::kUpdates].index_at(0);
  double squares = 0;
  for (size_t i = Op::kFirstPartials; i < call.in.size(); ++i) {
    for (int64_t j = 0; j < call.in[i].shape.elements(); ++j) squares += call.in[i].at(j);
  }
  // Gradients are sums over tokens. A step without a valid target has no gradient.
  const double mean = count > 0 ? 1.0 / static_cast<double>(count) : 0.0;
  const double norm = std::sqrt(squares) * mean;
  const bool clips = hyper.max_grad_norm > 0 && norm + 1e-6 > hyper.max_grad_norm;
  const bool skip = count == 0 || !std::isfinite(norm);
  if (!skip) ++updates;
  const auto t = static_cast<double>(std::max<int64_t>(1, updates));
  const UpdateScalars scalars{
      .lr = hyper.lr,
      .beta1 = hyper.beta1,
      .beta2 = hyper.beta2,
      .eps = hyper.eps,
      .bias_correction1 = static_cast<float>(1 - std::pow(hyper.beta1, t)),
      .bias_correction2 = static_cast<float>(1 - std::pow(hyper.beta2, t)),
      .grad_scale = static_cast<float>(clips ? mean * hyper.max_grad_norm / (norm + 1e-6) : mean),
      .skip = skip,
      .update = updates};
  std::memcpy(call.out[Op::kScalars].data, &scalars, sizeof scalars);
  call.out[Op::kGradNorm].put(0, norm);
  std::memcpy(call.out[Op::kNewUpdates].data, &updates, sizeof updates);
}

// (partials…) → norm
void root_of_sum(const Call& call) {
  double sum = 0;
  for (const Array& partials : call.in) {
    for (int64_t i = 0; i < partials.shape.elements(); ++i) sum += partials.at(i);
  }
  call.out[0].put(0, std::sqrt(sum));
}

// (partials…) → sum
void sum_of_partials(const Call& call) {
  double sum = 0;
  for (const Array& partials : call.in) {
    for (int64_t i = 0; i < partials.shape.elements(); ++i) sum += partials.at(i);
  }
  call.out[0].put(0, sum);
}

// What the optimizers share: the step's scalars, and the elements that the node is for. An optimizer's inputs
// are the parameter, its states, the gradient and the scalars; its outputs the first of them, in place.
struct Update {
  explicit Update(const Call& of) : call(of), attrs(of.attrs.as<optim::UpdateAttrs>()) {
    std::memcpy(&scalars, call.in.back().data, sizeof scalars);
    rate = static_cast<double>(scalars.lr) * attrs.rule.lr_scale;
    keep = 1 - rate * attrs.rule.weight_decay;
    const Shape& shape = call.in[optim::UpdateOperands::kParameter].shape;
    const optim::RowRange range = optim::row_range(attrs, shape);
    rows = range.rows;
    columns = shape[0] > 0 ? shape.elements() / shape[0] : 0;
    first = range.first * columns;
    state_first = range.state_first * columns;
    n = rows * columns;
  }

  // Of element i of the node's rows.
  double p(int64_t i) const { return call.in[optim::UpdateOperands::kParameter].at(first + i); }
  double g(int64_t i) const {
    return call.in[call.in.size() - 2].at(first + i) * static_cast<double>(scalars.grad_scale);
  }
  void put_p(int64_t i, double value) const {
    call.out[optim::UpdateOperands::kParameter].put(first + i, value);
  }

  template <typename Optimizer>
  const Optimizer& constants() const {
    return std::get<Optimizer>(attrs.rule.optimizer);
  }

  const Call& call;
  const optim::UpdateAttrs& attrs;
  UpdateScalars scalars;
  double rate = 0, keep = 1;
  int64_t rows = 0, columns = 0, n = 0;
  int64_t first = 0, state_first = 0;
};

// The bias-corrected step of AdamW by new moments.
double adamw_step(const Update& update, double m, double v) {
  const UpdateScalars& s = update.scalars;
  const auto correction1 = static_cast<double>(s.bias_correction1);
  const auto correction2 = static_cast<double>(s.bias_correction2);
  return update.rate / correction1 * m / (std::sqrt(v) / std::sqrt(correction2) + static_cast<double>(s.eps));
}

// (master, m, v, grad, scalars) → master, m, v; the formula stands at cpu::adamw_update
void adamw(const Call& call) {
  using Op = optim::AdamWOperands;
  const Update update(call);
  const UpdateScalars& s = update.scalars;
  if (s.skip != 0) return;
  parallel_ranges(update.n, 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = update.state_first + i;
      const double g = update.g(i);
      const double m = s.beta1 * call.in[Op::kM].at(at) + (1 - s.beta1) * g;
      const double v = s.beta2 * call.in[Op::kV].at(at) + (1 - s.beta2) * g * g;
      update.put_p(i, update.p(i) * update.keep - adamw_step(update, m, v));
      call.out[Op::kM].put(at, m);
      call.out[Op::kV].put(at, v);
    }
  });
}

// (bias, loads, scalars) → bias
void router_bias_update(const Call& call) {
  UpdateScalars scalars;
  std::memcpy(&scalars, call.in[2].data, sizeof scalars);
  if (scalars.skip != 0) return;
  const int64_t experts = call.in[0].shape[0];
  double mean = 0;
  for (int64_t e = 0; e < experts; ++e)
    mean += static_cast<double>(call.in[1].index_at(e)) / static_cast<double>(experts);
  const double rate = call.attrs.as<optim::RouterBiasAttrs>().rate;
  for (int64_t e = 0; e < experts; ++e) {
    const double below = mean - static_cast<double>(call.in[1].index_at(e));
    call.out[0].put(e, call.in[0].at(e) + (below > 0 ? rate : below < 0 ? -rate : 0));
  }
}

// (master, momentum, grad, scalars) → master, momentum; cpu::lion_update
void lion(const Call& call) {
  using Op = optim::LionOperands;
  const Update update(call);
  if (update.scalars.skip != 0) return;
  const double beta1 = update.constants<optim::Lion>().beta1, beta2 = update.constants<optim::Lion>().beta2;
  parallel_ranges(update.n, 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = update.state_first + i;
      const double g = update.g(i), m = call.in[Op::kMomentum].at(at), mixed = beta1 * m + (1 - beta1) * g;
      const double sign = mixed > 0 ? 1 : mixed < 0 ? -1 : 0;
      update.put_p(i, update.p(i) * update.keep - update.rate * sign);
      call.out[Op::kMomentum].put(at, beta2 * m + (1 - beta2) * g);
    }
  });
}

double root_mean_square(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return x.empty() ? 0 : std::sqrt(sum / static_cast<double>(x.size()));
}

// What Adafactor does with the second moments of the elements.
void adafactor_step(const Update& update, const std::vector<double>& second) {
  const auto& constants = update.constants<optim::Adafactor>();
  const double t = static_cast<double>(update.scalars.update), eps1 = constants.eps1;
  std::vector<double> p, u;
  for (int64_t i = 0; i < update.n; ++i) {
    p.push_back(update.p(i));
    u.push_back(update.g(i) / std::sqrt(std::max(second[static_cast<size_t>(i)], eps1 * eps1)));
  }
  const double alpha =
      std::max(constants.eps2, root_mean_square(p)) * std::min(update.rate, 1 / std::sqrt(t));
  const double step = alpha / std::max(1.0, root_mean_square(u) / constants.clip_threshold);
  for (int64_t i = 0; i < update.n; ++i)
    update.put_p(i, p[static_cast<size_t>(i)] * update.keep - step * u[static_cast<size_t>(i)]);
}

// (master, row, column, grad, scalars) → master, row, column; cpu::adafactor_update
void adafactor(const Call& call) {
  using Op = optim::AdafactorOperands;
  const Update update(call);
  if (update.scalars.skip != 0) return;
  const double share =
      std::pow(static_cast<double>(update.scalars.update), update.constants<optim::Adafactor>().beta2_decay);
  const int64_t rows = update.rows, columns = update.columns;
  std::vector<double> row(static_cast<size_t>(rows)), column(static_cast<size_t>(columns));
  for (int64_t i = 0; i < update.n; ++i) {
    const double square = update.g(i) * update.g(i);
    row[static_cast<size_t>(i / columns)] += square / static_cast<double>(columns);
    column[static_cast<size_t>(i % columns)] += square / static_cast<double>(rows);
  }
  double mean = 0;
  const auto moved = [&](size_t state, std::vector<double>& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      const double before = call.in[state].at(static_cast<int64_t>(i));
      values[i] = before + share * (values[i] - before);
      call.out[state].put(static_cast<int64_t>(i), values[i]);
    }
  };
  moved(Op::kRow, row);
  moved(Op::kColumn, column);
  for (const double value : row) mean += value / static_cast<double>(rows);
  std::vector<double> second;
  for (int64_t i = 0; i < update.n; ++i)
    second.push_back(row[static_cast<size_t>(i / columns)] * column[static_cast<size_t>(i % columns)] /
                     std::max(mean, update.constants<optim::Adafactor>().eps1));
  adafactor_step(update, second);
}

// (master, variance, grad, scalars) → master, variance
void adafactor_vector(const Call& call) {
  using Op = optim::AdafactorVectorOperands;
  const Update update(call);
  if (update.scalars.skip != 0) return;
  const double share =
      std::pow(static_cast<double>(update.scalars.update), update.constants<optim::Adafactor>().beta2_decay);
  std::vector<double> second;
  for (int64_t i = 0; i < update.n; ++i) {
    const double before = call.in[Op::kVariance].at(i), g = update.g(i);
    second.push_back(before + share * (g * g - before));
    call.out[Op::kVariance].put(i, second.back());
  }
  adafactor_step(update, second);
}

// Codes and scales of states in bytes: a search for the nearest value, one by one.
void put_bytes(const std::array<float, 256>& map, const std::vector<double>& x, const Array& codes,
               const Array& scales) {
  for (size_t begin = 0; begin < x.size(); begin += kQuantizationBlock) {
    const size_t end = std::min(x.size(), begin + kQuantizationBlock);
    double most = 0;
    for (size_t i = begin; i < end; ++i) most = std::max(most, std::abs(x[i]));
    scales.put(static_cast<int64_t>(begin / kQuantizationBlock), most);
    for (size_t i = begin; i < end; ++i) {
      const double share = most > 0 ? x[i] / most : 0;
      size_t nearest = 0;
      for (size_t code = 1; code < map.size(); ++code) {
        if (std::abs(static_cast<double>(map[code]) - share) <
            std::abs(static_cast<double>(map[nearest]) - share))
          nearest = code;
      }
      codes.put(static_cast<int64_t>(i), static_cast<double>(nearest));
    }
  }
}

// (master, m, m_scale, v, v_scale, grad, scalars) → master, m, m_scale, v, v_scale; cpu::adamw8bit_update
void adamw8bit(const Call& call) {
  using Op = optim::AdamW8BitOperands;
  const Update update(call);
  const UpdateScalars& s = update.scalars;
  if (s.skip != 0) return;
  const auto& m_map = signed_dynamic_map().values;
  const auto& v_map = unsigned_dynamic_map().values;
  const auto value = [&](const std::array<float, 256>& map, size_t state, int64_t i) {
    return static_cast<double>(map[static_cast<size_t>(call.in[state].index_at(i))]) *
           call.in[state + 1].at(i / kQuantizationBlock);
  };
  std::vector<double> m, v;
  for (int64_t i = 0; i < update.n; ++i) {
    const double g = update.g(i);
    m.push_back(s.beta1 * value(m_map, Op::kM, i) + (1 - s.beta1) * g);
    v.push_back(s.beta2 * value(v_map, Op::kV, i) + (1 - s.beta2) * g * g);
    update.put_p(i, update.p(i) * update.keep - adamw_step(update, m.back(), v.back()));
  }
  put_bytes(m_map, m, call.out[Op::kM], call.out[Op::kMScale]);
  put_bytes(v_map, v, call.out[Op::kV], call.out[Op::kVScale]);
}

// (master, momentum, grad, scalars) → master, momentum; cpu::Muon::update
void muon(const Call& call) {
  const Update update(call);
  if (update.scalars.skip != 0) return;
  const auto& constants = update.constants<optim::Muon>();
  const double momentum = constants.momentum;
  std::vector<double> x;
  for (int64_t i = 0; i < update.n; ++i) {
    const int64_t at = update.state_first + i;
    const double g = update.g(i), before = call.in[1].at(at), m = before + (1 - momentum) * (g - before);
    call.out[1].put(at, m);
    x.push_back(constants.nesterov ? g + momentum * (m - g) : m);
  }
  x = newton_schulz(x, update.rows, update.columns, constants.steps);
  for (int64_t i = 0; i < update.n; ++i)
    update.put_p(i, update.p(i) * update.keep - update.rate * x[static_cast<size_t>(i)]);
}

}  // namespace

std::span<const Row> update_kernels() {
  static const Row kRows[] = {
      {&optim::kSumOfSquares, sum_of_squares},
      {&optim::kUpdateScalars, update_scalars},
      {&optim::kRootOfSum, root_of_sum},
      {&optim::kSumOfPartials, sum_of_partials},
      {&optim::kAdamW, adamw},
      {&optim::kLion, lion},
      {&optim::kRouterBiasUpdate, router_bias_update},
      {&optim::kMuon, muon},
      {&optim::kAdafactor, adafactor},
      {&optim::kAdafactorVector, adafactor_vector},
      {&optim::kAdamW8Bit, adamw8bit},
  };
  return kRows;
}

}  // namespace strata::reference
