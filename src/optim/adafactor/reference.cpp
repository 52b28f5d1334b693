#include <algorithm>

#include "optim/adafactor/adafactor.h"
#include "optim/reference.h"

namespace strata::reference {
namespace {

double root_mean_square(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return x.empty() ? 0 : std::sqrt(sum / static_cast<double>(x.size()));
}

// What Adafactor does with the second moments of the elements.
void adafactor_step(const optim::Adafactor& constants, const Update& update,
                    const std::vector<double>& second) {
  const double t = static_cast<double>(update.scalars.update), eps1 = constants.eps1;
  std::vector<double> p, u;
  for (int64_t i = 0; i < update.count; ++i) {
    p.push_back(update.p(i));
    u.push_back(update.g(i) / std::sqrt(std::max(second[static_cast<size_t>(i)], eps1 * eps1)));
  }
  const double alpha =
      std::max(constants.eps2, root_mean_square(p)) * std::min(update.rate, 1 / std::sqrt(t));
  const double step = alpha / std::max(1.0, root_mean_square(u) / constants.clip_threshold);
  for (int64_t i = 0; i < update.count; ++i)
    update.put_p(i, p[static_cast<size_t>(i)] * update.keep - step * u[static_cast<size_t>(i)]);
}

double share_of_new(const optim::Adafactor& constants, const UpdateScalars& scalars) {
  return std::pow(static_cast<double>(scalars.update), constants.beta2_decay);
}

// Shared by the parts of a sharded update: the rows that the node is for, and its constants.
struct AdafactorTensor : optim::UpdateElements {
  AdafactorTensor(const optim::AdafactorShardAttrs& of, const Shape& shape, const Array& bytes,
                  const Array& grad)
      : UpdateElements(of.update, shape),
        attrs(of),
        constants(of.update.rule.optimizer.as<optim::Adafactor>()),
        scalars(scalars_of(bytes)),
        gradient(grad),
        is_vector(shape.rank() == 1),
        share(share_of_new(constants, scalars)) {}
  double g(int64_t i) const { return gradient.at(first + i) * static_cast<double>(scalars.grad_scale); }
  double moved(double mean, double to) const { return mean + share * (to - mean); }
  // For element i, from the second moment of its row or the element, and of its column.
  double update(int64_t i, double second_moment) const {
    return g(i) / std::sqrt(std::max(second_moment, constants.eps1 * constants.eps1));
  }
  double second(const Array& row, const Array& column, const Array& sums, int64_t i) const {
    const double mean = sums.at(columns + 1) / static_cast<double>(attrs.rows);
    return row.at(i / columns) * column.at(i % columns) / std::max(mean, constants.eps1);
  }

  const optim::AdafactorShardAttrs& attrs;
  const optim::Adafactor& constants;
  UpdateScalars scalars;
  const Array& gradient;
  bool is_vector;
  double share;
};

}  // namespace

template <>
void compute(const Arrays<optim::AdafactorUpdate>& at) {
  const Update update(at);
  if (update.scalars.skip != 0) return;
  const auto& constants = at.attrs.rule.optimizer.as<optim::Adafactor>();
  const double share = share_of_new(constants, update.scalars);
  const int64_t rows = update.rows, columns = update.columns;
  std::vector<double> row(static_cast<size_t>(rows)), column(static_cast<size_t>(columns));
  for (int64_t i = 0; i < update.count; ++i) {
    const double square = update.g(i) * update.g(i);
    row[static_cast<size_t>(i / columns)] += square / static_cast<double>(columns);
    column[static_cast<size_t>(i % columns)] += square / static_cast<double>(rows);
  }
  double mean = 0;
  const auto move = [&](const Array& state, std::vector<double>& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      const double before = state.at(static_cast<int64_t>(i));
      values[i] = before + share * (values[i] - before);
      state.put(static_cast<int64_t>(i), values[i]);
    }
  };
  move(at.out.row, row);
  move(at.out.column, column);
  for (const double value : row) mean += value / static_cast<double>(rows);
  std::vector<double> second;
  for (int64_t i = 0; i < update.count; ++i)
    second.push_back(row[static_cast<size_t>(i / columns)] * column[static_cast<size_t>(i % columns)] /
                     std::max(mean, constants.eps1));
  adafactor_step(constants, update, second);
}

template <>
void compute(const Arrays<optim::AdafactorVectorUpdate>& at) {
  const Update update(at);
  if (update.scalars.skip != 0) return;
  const auto& constants = at.attrs.rule.optimizer.as<optim::Adafactor>();
  const double share = share_of_new(constants, update.scalars);
  std::vector<double> second;
  for (int64_t i = 0; i < update.count; ++i) {
    const double before = at.in.variance.at(i), g = update.g(i);
    second.push_back(before + share * (g * g - before));
    at.out.variance.put(i, second.back());
  }
  adafactor_step(constants, update, second);
}

template <>
void compute(const Arrays<optim::AdafactorSums>& at) {
  const AdafactorTensor tensor(at.attrs, at.in.parameter.shape, at.in.scalars, at.in.gradient);
  const Array &state = at.in.state, &sums = at.out.sums;
  std::vector<double> found(static_cast<size_t>(sums.shape[0])), rows(static_cast<size_t>(state.shape[0]));
  if (tensor.scalars.skip != 0) return put_all(sums, found);
  const auto columns = static_cast<size_t>(tensor.columns);
  for (int64_t i = 0; i < tensor.count; ++i) {
    const double square = tensor.g(i) * tensor.g(i), p = at.in.parameter.at(tensor.first + i);
    rows[static_cast<size_t>(i) / columns] += square / static_cast<double>(columns);
    if (!tensor.is_vector) found[static_cast<size_t>(i) % columns] += square;
    found[tensor.is_vector ? 0 : columns] += p * p;
  }
  for (int64_t i = 0; i < state.shape[0]; ++i) {
    const double now = tensor.moved(state.at(i), rows[static_cast<size_t>(i)]);
    const double u = tensor.is_vector ? tensor.update(i, now) : 0;
    found.back() += tensor.is_vector ? u * u : now;
    at.out.state.put(i, now);
  }
  put_all(sums, found);
}

template <>
void compute(const Arrays<optim::AdafactorColumns>& at) {
  const AdafactorTensor tensor(at.attrs, at.in.gradient.shape, at.in.scalars, at.in.gradient);
  double squares = 0;
  if (tensor.scalars.skip == 0) {
    const Array& column = at.out.column;
    for (int64_t j = 0; j < tensor.columns; ++j)
      column.put(j, tensor.moved(at.in.column.at(j), at.in.sums.at(j) / static_cast<double>(at.attrs.rows)));
    for (int64_t i = 0; i < tensor.count; ++i) {
      const double u = tensor.update(i, tensor.second(at.in.row, column, at.in.sums, i));
      squares += u * u;
    }
  }
  at.out.squares.put(0, squares);
}

template <>
void compute(const Arrays<optim::AdafactorApply>& at) {
  const AdafactorTensor tensor(at.attrs, at.in.parameter.shape, at.in.scalars, at.in.gradient);
  if (tensor.scalars.skip != 0) return;
  const auto& constants = tensor.constants;
  const optim::UpdateRule& rule = at.attrs.update.rule;
  const double rate = static_cast<double>(tensor.scalars.lr) * rule.lr_scale;
  const double elements = static_cast<double>(at.attrs.rows * tensor.columns);
  const double weights = std::sqrt(at.in.sums.at(tensor.is_vector ? 0 : tensor.columns) / elements);
  const double updates = std::sqrt((tensor.is_vector ? at.in.sums.at(1) : at.in.squares.at(0)) / elements);
  const double alpha = std::max(constants.eps2, weights) *
                       std::min(rate, 1 / std::sqrt(static_cast<double>(tensor.scalars.update)));
  const double step = alpha / std::max(1.0, updates / constants.clip_threshold);
  for (int64_t i = 0; i < tensor.count; ++i) {
    const double second =
        tensor.is_vector ? at.in.state.at(i) : tensor.second(at.in.state, at.in.column, at.in.sums, i);
    const Array& p = at.out.parameter;
    p.put(tensor.first + i, at.in.parameter.at(tensor.first + i) * (1 - rate * rule.weight_decay) -
                                step * tensor.update(i, second));
  }
}

}  // namespace strata::reference
