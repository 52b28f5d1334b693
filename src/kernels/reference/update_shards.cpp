// Updates of parameters in shards that ranks make together.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/parallel.h"
#include "kernels/reference/call.h"
#include "kernels/reference/orthogonal.h"
#include "optim/operands.h"
#include "optim/optimizer.h"
#include "tensor/dynamic_map.h"
#include "tensor/update_scalars.h"

namespace strata::reference {

std::vector<double> newton_schulz(const std::vector<double>& matrix, int64_t rows, int64_t columns,
                                  int64_t steps) {
  const bool tall = rows > columns;
  const int64_t n = std::min(rows, columns), width = std::max(rows, columns);
  const auto place = [&](int64_t i) {
    return static_cast<size_t>(tall ? i % columns * width + i / columns : i);
  };
  std::vector<double> x(matrix.size());  // [n, width]
  double squares = 0;
  for (const double value : matrix) squares += value * value;
  for (int64_t i = 0; i < rows * columns; ++i)
    x[place(i)] = matrix[static_cast<size_t>(i)] / (std::sqrt(squares) + 1e-7);
  const auto at = [](const std::vector<double>& values, int64_t across, int64_t i, int64_t j) {
    return values[static_cast<size_t>(i * across + j)];
  };
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<double> a(static_cast<size_t>(n * n)), b = a, next = x;
    for (int64_t i = 0; i < n * n; ++i) {
      for (int64_t k = 0; k < width; ++k)
        a[static_cast<size_t>(i)] += at(x, width, i / n, k) * at(x, width, i % n, k);
    }
    for (int64_t i = 0; i < n * n; ++i) {
      double square = 0;
      for (int64_t k = 0; k < n; ++k) square += at(a, n, i / n, k) * at(a, n, k, i % n);
      b[static_cast<size_t>(i)] = -4.7750 * a[static_cast<size_t>(i)] + 2.0315 * square;
    }
    parallel_for(n, [&](int64_t i) {
      for (int64_t j = 0; j < width; ++j) {
        double sum = 3.4445 * at(x, width, i, j);
        for (int64_t k = 0; k < n; ++k) sum += at(b, n, i, k) * at(x, width, k, j);
        next[static_cast<size_t>(i * width + j)] = sum;
      }
    });
    x = std::move(next);
  }
  std::vector<double> out(matrix.size());
  for (int64_t i = 0; i < rows * columns; ++i) out[static_cast<size_t>(i)] = x[place(i)];
  return out;
}

namespace {

UpdateScalars scalars_of(const Array& bytes) {
  UpdateScalars scalars;
  std::memcpy(&scalars, bytes.data, sizeof scalars);
  return scalars;
}

// (momentum, gradient, …, scalars) → momentum…, stack; cpu::muon_momentum for each slot
void muon_momentum(const Call& call) {
  using Op = optim::MuonMomentumOperands;
  const UpdateScalars scalars = scalars_of(call.in.back());
  const Array& stack = call.out.back();
  const int64_t columns = stack.shape[2], n = stack.shape[1] * columns;
  int64_t at = 0;
  for (const auto& slot : call.attrs.as<optim::MuonStackAttrs>().slots) {
    if (slot.operand < 0 || scalars.skip != 0) {
      for (int64_t i = 0; i < n; ++i) stack.put(at++, 0);
      continue;
    }
    const auto operand = static_cast<int>(slot.operand);
    const auto& constants = std::get<optim::Muon>(slot.update.rule.optimizer);
    const Array& gradient = call.in[static_cast<size_t>(Op::gradient(operand))];
    const Array& before = call.in[static_cast<size_t>(Op::momentum(operand))];
    const optim::RowRange rows = optim::row_range(slot.update, gradient.shape);
    for (int64_t i = 0; i < n; ++i) {
      const double g = gradient.at(rows.first * columns + i) * static_cast<double>(scalars.grad_scale);
      double m = before.at(rows.state_first * columns + i);
      m += (1 - constants.momentum) * (g - m);
      call.out[static_cast<size_t>(operand)].put(rows.state_first * columns + i, m);
      stack.put(at++, constants.nesterov ? g + constants.momentum * (m - g) : m);
    }
  }
}

// (stack) → stack
void orthogonal_stack(const Call& call) {
  const Array &x = call.in[0], &y = call.out[0];
  const int64_t rows = x.shape[1], columns = x.shape[2], n = rows * columns;
  for (int64_t first = 0; first < x.shape.elements(); first += n) {
    std::vector<double> matrix;
    for (int64_t i = 0; i < n; ++i) matrix.push_back(x.at(first + i));
    matrix = newton_schulz(matrix, rows, columns, call.attrs.as<optim::NewtonSchulzAttrs>().steps);
    for (int64_t i = 0; i < n; ++i) y.put(first + i, matrix[static_cast<size_t>(i)]);
  }
}

// (master…, stack, scalars) → master…; cpu::muon_apply for each slot
void muon_apply(const Call& call) {
  const UpdateScalars scalars = scalars_of(call.in.back());
  if (scalars.skip != 0) return;
  const Array& stack = call.in[call.out.size()];
  const int64_t columns = stack.shape[2], n = stack.shape[1] * columns;
  int64_t at = -n;
  for (const auto& slot : call.attrs.as<optim::MuonStackAttrs>().slots) {
    at += n;
    if (slot.operand < 0) continue;
    const auto operand = static_cast<size_t>(slot.operand);
    const double rate = static_cast<double>(scalars.lr) * slot.update.rule.lr_scale;
    const int64_t first = optim::row_range(slot.update, call.in[operand].shape).first * columns;
    for (int64_t i = 0; i < n; ++i) {
      const double p = call.in[operand].at(first + i) * (1 - rate * slot.update.rule.weight_decay);
      call.out[operand].put(first + i, p - rate * stack.at(at + i));
    }
  }
}

// What the parts of Adafactor share: the rows that the node is for, and its constants.
struct Tensor {
  Tensor(const Call& call, int like)
      : attrs(call.attrs.as<optim::AdafactorShardAttrs>()),
        constants(std::get<optim::Adafactor>(attrs.update.rule.optimizer)),
        scalars(scalars_of(call.in.back())) {
    const Shape& shape = call.in[static_cast<size_t>(like)].shape;
    const optim::RowRange range = optim::row_range(attrs.update, shape);
    is_vector = shape.rank() == 1;
    columns = is_vector ? 1 : shape[1];
    n = range.rows * columns;
    first = range.first * columns;
    share = std::pow(static_cast<double>(scalars.update), constants.beta2_decay);
  }
  double g(const Array& gradient, int64_t i) const {
    return gradient.at(first + i) * static_cast<double>(scalars.grad_scale);
  }
  double moved(double mean, double to) const { return mean + share * (to - mean); }
  // Of element i, by what is left of its row or of its own, and of its column.
  double update(const Array& gradient, int64_t i, double second) const {
    return g(gradient, i) / std::sqrt(std::max(second, constants.eps1 * constants.eps1));
  }
  double second(const Array& row, const Array& column, const Array& sums, int64_t i) const {
    const double mean = sums.at(columns + 1) / static_cast<double>(attrs.rows);
    return row.at(i / columns) * column.at(i % columns) / std::max(mean, constants.eps1);
  }

  const optim::AdafactorShardAttrs& attrs;
  const optim::Adafactor& constants;
  UpdateScalars scalars;
  bool is_vector = false;
  int64_t columns = 0, n = 0, first = 0;
  double share = 0;
};

void put_all(const Array& array, const std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i) array.put(static_cast<int64_t>(i), values[i]);
}

// (master, row or variance, grad, scalars) → row or variance, sums; cpu::adafactor_sums, also of vectors
void adafactor_sums(const Call& call) {
  using Op = optim::AdafactorSumsOperands;
  const Tensor tensor(call, Op::kParameter);
  const Array &state = call.in[Op::kState], &gradient = call.in[Op::kGradient];
  const Array &moved = call.out[Op::kNewState], &sums = call.out[Op::kSums];
  std::vector<double> found(static_cast<size_t>(sums.shape[0])), rows(static_cast<size_t>(state.shape[0]));
  if (tensor.scalars.skip != 0) return put_all(sums, found);
  const auto columns = static_cast<size_t>(tensor.columns);
  for (int64_t i = 0; i < tensor.n; ++i) {
    const double square = tensor.g(gradient, i) * tensor.g(gradient, i);
    const double p = call.in[Op::kParameter].at(tensor.first + i);
    rows[static_cast<size_t>(i) / columns] += square / static_cast<double>(columns);
    if (!tensor.is_vector) found[static_cast<size_t>(i) % columns] += square;
    found[tensor.is_vector ? 0 : columns] += p * p;
  }
  for (int64_t i = 0; i < state.shape[0]; ++i) {
    const double now = tensor.moved(state.at(i), rows[static_cast<size_t>(i)]);
    const double u = tensor.is_vector ? tensor.update(gradient, i, now) : 0;
    found.back() += tensor.is_vector ? u * u : now;
    moved.put(i, now);
  }
  put_all(sums, found);
}

// (row, column, grad, sums, scalars) → column, squares
void adafactor_columns(const Call& call) {
  using Op = optim::AdafactorColumnsOperands;
  const Tensor tensor(call, Op::kGradient);
  double squares = 0;
  if (tensor.scalars.skip == 0) {
    const Array& column = call.out[Op::kNewColumn];
    for (int64_t j = 0; j < tensor.columns; ++j)
      column.put(j, tensor.moved(call.in[Op::kColumn].at(j),
                                 call.in[Op::kSums].at(j) / static_cast<double>(tensor.attrs.rows)));
    for (int64_t i = 0; i < tensor.n; ++i) {
      const double u = tensor.update(call.in[Op::kGradient], i,
                                     tensor.second(call.in[Op::kRow], column, call.in[Op::kSums], i));
      squares += u * u;
    }
  }
  call.out[Op::kSquares].put(0, squares);
}

// (master, row or variance, column?, grad, sums, squares?, scalars) → master
void adafactor_apply(const Call& call) {
  using Op = optim::AdafactorApplyOperands;
  const Tensor tensor(call, Op::kParameter);
  if (tensor.scalars.skip != 0) return;
  const Array &p = call.in[Op::kParameter], &state = call.in[Op::kState], &sums = call.in[Op::kSums];
  const auto& constants = tensor.constants;
  const double rate = static_cast<double>(tensor.scalars.lr) * tensor.attrs.update.rule.lr_scale;
  const double elements = static_cast<double>(tensor.attrs.rows * tensor.columns);
  const double weights = std::sqrt(sums.at(tensor.is_vector ? 0 : tensor.columns) / elements);
  const double updates = std::sqrt((tensor.is_vector ? sums.at(1) : call.in[Op::kSquares].at(0)) / elements);
  const double alpha = std::max(constants.eps2, weights) *
                       std::min(rate, 1 / std::sqrt(static_cast<double>(tensor.scalars.update)));
  const double step = alpha / std::max(1.0, updates / constants.clip_threshold);
  for (int64_t i = 0; i < tensor.n; ++i) {
    const double second =
        tensor.is_vector ? state.at(i) : tensor.second(state, call.in[Op::kColumn], sums, i);
    const double u = tensor.update(call.in[Op::kGradient], i, second);
    call.out[Op::kNewParameter].put(
        tensor.first + i,
        p.at(tensor.first + i) * (1 - rate * tensor.attrs.update.rule.weight_decay) - step * u);
  }
}

// --- 8-bit AdamW of tensors whose blocks ranks share

// The elements that a rank holds of a tensor, one by one.
struct HeldElements {
  struct Element {
    int64_t memory, block;  // counted from the tensor's begin
  };
  HeldElements(const Call& call, int like, int rank)
      : attrs(call.attrs.as<optim::AdamW8BitShardAttrs>()),
        range(optim::row_range(attrs.update, call.in[static_cast<size_t>(like)].shape)) {
    const graph::Coordinates& at = graph::coordinates_in(call.in[static_cast<size_t>(rank)].data);
    const graph::Span across = optim::held_of_part(attrs.columns, 0, at);
    const int64_t columns = attrs.columns.size();
    first = range.first * across.size();
    int64_t row = 0, begin = 0;
    for (size_t part = 0; part < attrs.rows.parts.size(); ++part) {
      const graph::Span held = optim::held_of_part(attrs.rows, part, at);
      for (int64_t r = held.begin; r < held.end; ++r) {
        for (int64_t c = across.begin; c < across.end; ++c) {
          elements.push_back({(row + r - held.begin) * across.size() + c - across.begin,
                              ((begin + r) * columns + c) / kQuantizationBlock});
        }
      }
      row += attrs.rows.parts[part].room();
      begin += attrs.rows.parts[part].size;
    }
  }

  const optim::AdamW8BitShardAttrs& attrs;
  optim::RowRange range;
  int64_t first = 0;  // of the tensor, in the parameter's memory
  std::vector<Element> elements;
};

struct BothMoments {
  double m, v;
};
// Of an element; `m`: the operand, which the others of the states follow.
BothMoments moved_moments(const Call& call, const HeldElements::Element& element, size_t m, double g,
                          const UpdateScalars& scalars) {
  const auto old = [&](const std::array<float, 256>& map, size_t state) {
    return static_cast<double>(map[static_cast<size_t>(call.in[state].index_at(element.memory))]) *
           call.in[state + 1].at(element.block);
  };
  return {scalars.beta1 * old(signed_dynamic_map().values, m) + (1 - scalars.beta1) * g,
          scalars.beta2 * old(unsigned_dynamic_map().values, m + 2) + (1 - scalars.beta2) * g * g};
}

// (m, m_scale, v, v_scale, grad, scalars, rank) → largest
void adamw8bit_largest(const Call& call) {
  using Op = optim::AdamW8BitLargestOperands;
  const UpdateScalars scalars = scalars_of(call.in[Op::kScalars]);
  const HeldElements held(call, Op::kGradient, Op::kRank);
  const int64_t blocks = held.attrs.blocks();
  std::vector<double> largest(static_cast<size_t>(2 * blocks));
  for (const auto& element : held.elements) {
    if (scalars.skip != 0) break;
    const double g =
        call.in[Op::kGradient].at(held.first + element.memory) * static_cast<double>(scalars.grad_scale);
    const BothMoments now = moved_moments(call, element, Op::kM, g, scalars);
    double& m = largest[static_cast<size_t>(element.block)];
    double& v = largest[static_cast<size_t>(blocks + element.block)];
    m = std::max(m, std::abs(now.m));
    v = std::max(v, now.v);
  }
  put_all(call.out[Op::kLargest], largest);
}

size_t nearest_code(const std::array<float, 256>& map, double share) {
  size_t nearest = 0;
  for (size_t code = 1; code < map.size(); ++code) {
    if (std::abs(static_cast<double>(map[code]) - share) <
        std::abs(static_cast<double>(map[nearest]) - share))
      nearest = code;
  }
  return nearest;
}

// (master, m, m_scale, v, v_scale, grad, scalars, rank, largest) → master, m, m_scale, v, v_scale
void adamw8bit_shard(const Call& call) {
  using Op = optim::AdamW8BitShardOperands;
  const UpdateScalars scalars = scalars_of(call.in[Op::kScalars]);
  if (scalars.skip != 0) return;
  const HeldElements held(call, Op::kParameter, Op::kRank);
  const int64_t blocks = held.attrs.blocks();
  std::vector<double> largest(static_cast<size_t>(2 * blocks));
  for (int64_t i = 0; i < call.in[Op::kLargest].shape.elements(); ++i) {
    double& most = largest[static_cast<size_t>(i % (2 * blocks))];
    most = std::max(most, call.in[Op::kLargest].at(i));
  }
  const double rate = static_cast<double>(scalars.lr) * held.attrs.update.rule.lr_scale;
  for (const auto& element : held.elements) {
    const int64_t at = held.first + element.memory;
    const double g = call.in[Op::kGradient].at(at) * static_cast<double>(scalars.grad_scale);
    const BothMoments now = moved_moments(call, element, Op::kM, g, scalars);
    const double denominator = std::sqrt(now.v) / std::sqrt(static_cast<double>(scalars.bias_correction2)) +
                               static_cast<double>(scalars.eps);
    call.out[Op::kParameter].put(
        at, call.in[Op::kParameter].at(at) * (1 - rate * held.attrs.update.rule.weight_decay) -
                rate / static_cast<double>(scalars.bias_correction1) * now.m / denominator);
    const double m_most = largest[static_cast<size_t>(element.block)];
    const double v_most = largest[static_cast<size_t>(blocks + element.block)];
    const auto code = [](const std::array<float, 256>& map, double x, double most) {
      return static_cast<double>(nearest_code(map, most > 0 ? x / most : 0));
    };
    call.out[Op::kM].put(element.memory, code(signed_dynamic_map().values, now.m, m_most));
    call.out[Op::kV].put(element.memory, code(unsigned_dynamic_map().values, now.v, v_most));
  }
  for (int64_t block = 0; block < blocks; ++block) {
    call.out[Op::kMScale].put(block, largest[static_cast<size_t>(block)]);
    call.out[Op::kVScale].put(block, largest[static_cast<size_t>(blocks + block)]);
  }
}

}  // namespace

std::span<const Row> update_shard_kernels() {
  static const Row kRows[] = {
      {&optim::kMuonMomentum, muon_momentum},
      {&optim::kNewtonSchulz, orthogonal_stack},
      {&optim::kMuonApply, muon_apply},
      {&optim::kAdafactorSums, adafactor_sums},
      {&optim::kAdafactorColumns, adafactor_columns},
      {&optim::kAdafactorApply, adafactor_apply},
      {&optim::kAdamW8BitLargest, adamw8bit_largest},
      {&optim::kAdamW8BitShard, adamw8bit_shard},
  };
  return kRows;
}

}  // namespace strata::reference
