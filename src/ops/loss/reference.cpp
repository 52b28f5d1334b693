#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "kernels/reference/products.h"
#include "ops/loss/loss.h"
#include "ops/reference.h"

namespace strata::reference {
namespace {

void give_loss(const Array& loss, double sum, const Array& count, int64_t counted) {
  loss.give(0, sum);
  auto* const counter = reinterpret_cast<int64_t*>(count.data);
  *counter = (count.accumulate ? *counter : 0) + counted;
}

// Gradients of the head: absent if not requested; dx may be x itself.
struct HeadGradients {
  Array dx, dw, dbias;
};

// The head's loss over all tokens.
template <typename Op>
void cross_entropy(const Arrays<Op>& at, const Array& token_loss, const Array& greedy,
                   const HeadGradients& to, double seed) {
  const Array &x = at.in.x, &w = at.in.weight, &bias = at.in.bias, &targets = at.in.targets;
  const Array &dx = to.dx, &dw = to.dw, &dbias = to.dbias;
  const double cap = at.attrs.softcap;
  const int64_t tokens = x.shape[0], width = x.shape[1], vocab = w.shape[0];
  constexpr int64_t kChunk = 128;  // tokens whose logits exist at the same time
  double sum = 0;
  int64_t counted = 0;
  for (int64_t first = 0; first < tokens; first += kChunk) {
    const int64_t size = std::min(kChunk, tokens - first);
    std::vector<double> logits(static_cast<size_t>(size * vocab));
    products(
        size, vocab, width, [&](int64_t i, int64_t k) { return x.at((first + i) * width + k); },
        [&](int64_t v, int64_t k) { return rounded(w.at(v * width + k), x.dtype); },
        [&](int64_t i, int64_t v, double value) {
          logits[static_cast<size_t>(i * vocab + v)] = value + (bias.present() ? bias.at(v) : 0);
        });
    // Logits become their gradients: softmax less one at the target.
    for (int64_t i = 0; i < size; ++i) {
      double* const row = logits.data() + i * vocab;
      const int64_t target = targets.index_at(first + i);
      if (target >= vocab) throw DataError("[loss] found target {}, expected one below {}", target, vocab);
      if (target < 0) {
        std::fill_n(row, vocab, 0.0);
        if (token_loss.present()) token_loss.put(first + i, 0);
        if (greedy.present()) greedy.put(first + i, 0);
        continue;
      }
      std::vector<double> slopes(static_cast<size_t>(vocab), 1);
      for (int64_t v = 0; v < vocab && cap > 0; ++v) {
        const double bend = std::tanh(row[v] / cap);
        row[v] = cap * bend;
        slopes[static_cast<size_t>(v)] = 1 - bend * bend;
      }
      const double highest = *std::max_element(row, row + vocab);
      const double wanted = row[target];
      double total = 0;
      for (int64_t v = 0; v < vocab; ++v) total += row[v] = std::exp(row[v] - highest);
      for (int64_t v = 0; v < vocab; ++v) row[v] /= total;
      row[target] -= 1;
      for (int64_t v = 0; v < vocab; ++v) row[v] *= seed * slopes[static_cast<size_t>(v)];
      const double one = highest + std::log(total) - wanted;
      if (token_loss.present()) token_loss.put(first + i, one);
      if (greedy.present()) greedy.put(first + i, wanted == highest ? 1 : 0);
      sum += one;
      ++counted;
    }
    if (!dw.present()) continue;
    for (int64_t v = 0; v < vocab && dbias.present(); ++v) {
      double slope = first == 0 && !dbias.accumulate ? 0 : dbias.at(v);
      for (int64_t i = 0; i < size; ++i) slope += logits[static_cast<size_t>(i * vocab + v)];
      dbias.put(v, slope);
    }
    products(
        vocab, width, size, [&](int64_t v, int64_t i) { return logits[static_cast<size_t>(i * vocab + v)]; },
        [&](int64_t k, int64_t i) { return x.at((first + i) * width + k); },
        [&](int64_t v, int64_t k, double value) {
          const int64_t cell = v * width + k;
          dw.put(cell, first == 0 && !dw.accumulate ? value : dw.at(cell) + value);
        });
    products(
        size, width, vocab, [&](int64_t i, int64_t v) { return logits[static_cast<size_t>(i * vocab + v)]; },
        [&](int64_t k, int64_t v) { return rounded(w.at(v * width + k), x.dtype); },
        [&](int64_t i, int64_t k, double value) { dx.put((first + i) * width + k, value); });
  }
  give_loss(at.out.sum, sum, at.out.count, counted);
}

}  // namespace

template <>
void compute(const Arrays<ops::LinearCrossEntropy>& at) {
  cross_entropy(at, at.out.per_token, at.out.greedy, {}, 1);
}

template <>
void compute(const Arrays<ops::LinearCrossEntropyTrain>& at) {
  cross_entropy(at, {}, {}, {at.out.dx, at.out.dw, at.out.dbias},
                at.in.seed.present() ? at.in.seed.at(0) : 1);
}

// --- The split form

namespace {

// Operands of the ops on parts of the vocabulary.
struct Head {
  const Array &x, &w, &targets, &bias, &vocab_start;
  double cap;
  int64_t vocabulary;

  int64_t parts() const { return vocab_start.present() ? vocab_start.shape[0] : 1; }
  int64_t columns() const { return w.shape[0] / parts(); }  // of a part,
  int64_t start(int64_t part) const { return vocab_start.present() ? vocab_start.index_at(part) : 0; }
  int64_t valid(int64_t part) const {  //   before the vocabulary ends
    return std::clamp<int64_t>(vocabulary - start(part), 0, columns());
  }
  // The target's column in a part; -1 if it is in another one.
  int64_t column_of(int64_t target, int64_t part) const {
    const int64_t column = target - start(part);
    return column >= 0 && column < valid(part) ? column : -1;
  }
};

template <typename Op>
Head head_of(const Arrays<Op>& at) {
  return {at.in.x,           at.in.weight,     at.in.targets,      at.in.bias,
          at.in.vocab_start, at.attrs.softcap, at.attrs.vocabulary};
}

// body(token, part, target's column, logits, slopes) for every token that has a target: logits of the part
// after the cap, and its slope at each. The two may be changed.
template <typename Body>
void for_parts(const Head& head, const Body& body) {
  const int64_t width = head.x.shape[1], columns = head.columns();
  for (int64_t i = 0; i < head.x.shape[0]; ++i) {
    const int64_t target = head.targets.index_at(i);
    if (target < 0) continue;
    for (int64_t p = 0; p < head.parts(); ++p) {
      const int64_t valid = head.valid(p);
      std::vector<double> logits(static_cast<size_t>(valid)), slopes(static_cast<size_t>(valid), 1);
      for (int64_t c = 0; c < valid; ++c) {
        const int64_t v = p * columns + c;
        double logit = head.bias.present() ? head.bias.at(v) : 0;
        for (int64_t k = 0; k < width; ++k)
          logit += head.x.at(i * width + k) * rounded(head.w.at(v * width + k), head.x.dtype);
        if (head.cap > 0) {
          const double bend = std::tanh(logit / head.cap);
          logit = head.cap * bend;
          slopes[static_cast<size_t>(c)] = 1 - bend * bend;
        }
        logits[static_cast<size_t>(c)] = logit;
      }
      body(i, p, head.column_of(target, p), logits, slopes);
    }
  }
}

constexpr double kAbsent = -std::numeric_limits<double>::infinity();

}  // namespace

template <>
void compute(const Arrays<ops::CrossEntropyStatistics>& at) {
  const Head head = head_of(at);
  const Array& to = at.out.statistics;
  const int64_t tokens = head.x.shape[0];
  for (int64_t i = 0; i < tokens; ++i) {
    const int64_t target = head.targets.index_at(i);
    if (target >= head.vocabulary)
      throw DataError("[loss] found target {}, expected one below {}", target, head.vocabulary);
  }
  for (int64_t i = 0; i < to.shape.elements(); ++i) to.put(i, 0);
  for_parts(head, [&](int64_t i, int64_t p, int64_t target, const std::vector<double>& logits,
                      const std::vector<double>&) {
    const double highest = logits.empty() ? kAbsent : *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit - highest);
    const int64_t first = (p * tokens + i) * 3;
    to.put(first, highest);
    to.put(first + 1, sum);
    to.put(first + 2, target >= 0 ? logits[static_cast<size_t>(target)] : kAbsent);
  });
}

namespace {

// emit(token, row of the weight, gradient of its logit), from that of the statistics.
template <typename Emit>
void for_logit_gradients(const Head& head, const Array& statistics, const Array& given, const Emit& emit) {
  const int64_t tokens = head.x.shape[0];
  for_parts(head, [&](int64_t i, int64_t p, int64_t target, std::vector<double>& logits,
                      const std::vector<double>& slopes) {
    const int64_t at = (p * tokens + i) * 3;
    const double of_maximum = given.at(at), of_sum = given.at(at + 1), of_target = given.at(at + 2);
    if (logits.empty()) return;
    const auto greatest = std::max_element(logits.begin(), logits.end()) - logits.begin();
    for (double& logit : logits) logit = std::exp(logit - statistics.at(at)) * of_sum;
    // The sum is relative to the maximum.
    logits[static_cast<size_t>(greatest)] += of_maximum - statistics.at(at + 1) * of_sum;
    if (target >= 0) logits[static_cast<size_t>(target)] += of_target;
    for (size_t c = 0; c < logits.size(); ++c)
      emit(i, p * head.columns() + static_cast<int64_t>(c), logits[c] * slopes[c]);
  });
}

template <typename Op>
void head_input_grad(const Arrays<Op>& at) {
  const Head head = head_of(at);
  const int64_t width = head.x.shape[1];
  std::vector<double> dx(static_cast<size_t>(head.x.shape.elements()));
  for_logit_gradients(head, at.in.statistics, at.in.dstatistics, [&](int64_t i, int64_t v, double gradient) {
    for (int64_t k = 0; k < width; ++k)
      dx[static_cast<size_t>(i * width + k)] += gradient * rounded(head.w.at(v * width + k), head.x.dtype);
  });
  for (size_t i = 0; i < dx.size(); ++i) at.out.dx.put(static_cast<int64_t>(i), dx[i]);
}

template <typename Op>
void head_weight_grad(const Arrays<Op>& at) {
  const Head head = head_of(at);
  const int64_t width = head.x.shape[1];
  std::vector<double> dw(static_cast<size_t>(head.w.shape.elements()));
  std::vector<double> dbias(static_cast<size_t>(head.w.shape[0]));
  for_logit_gradients(head, at.in.statistics, at.in.dstatistics, [&](int64_t i, int64_t v, double gradient) {
    dbias[static_cast<size_t>(v)] += gradient;
    for (int64_t k = 0; k < width; ++k)
      dw[static_cast<size_t>(v * width + k)] += gradient * head.x.at(i * width + k);
  });
  for (size_t i = 0; i < dw.size(); ++i) at.out.dw.give(static_cast<int64_t>(i), dw[i]);
  if (!at.out.dbias.present()) return;
  for (size_t v = 0; v < dbias.size(); ++v) at.out.dbias.give(static_cast<int64_t>(v), dbias[v]);
}

}  // namespace

template <>
void compute(const Arrays<ops::CrossEntropyGradInput>& at) {
  head_input_grad(at);
}

template <>
void compute(const Arrays<ops::CrossEntropyGradWeight>& at) {
  head_weight_grad(at);
}

template <>
void compute(const Arrays<ops::CrossEntropyGrad>& at) {
  head_weight_grad(at);
  head_input_grad(at);  // last, since dx may be x itself
}

namespace {

// The statistics of one token, reduced over all parts.
struct Reduced {
  double maximum = kAbsent, sum = 0, target_logit = kAbsent;
};
Reduced reduced(const Array& statistics, int64_t token) {
  Reduced all;
  const int64_t parts = statistics.shape[0], tokens = statistics.shape[1];
  for (int64_t p = 0; p < parts; ++p) {
    all.maximum = std::max(all.maximum, statistics.at((p * tokens + token) * 3));
    all.target_logit = std::max(all.target_logit, statistics.at((p * tokens + token) * 3 + 2));
  }
  for (int64_t p = 0; p < parts; ++p) {
    const int64_t at = (p * tokens + token) * 3;
    all.sum += statistics.at(at + 1) * std::exp(statistics.at(at) - all.maximum);
  }
  return all;
}

}  // namespace

template <>
void compute(const Arrays<ops::CrossEntropyLoss>& at) {
  const Array &per_token = at.out.per_token, &greedy = at.out.greedy;
  double sum = 0;
  int64_t counted = 0;
  for (int64_t i = 0; i < at.in.targets.shape[0]; ++i) {
    const bool counts = at.in.targets.index_at(i) >= 0;
    const Reduced all = counts ? reduced(at.in.statistics, i) : Reduced{};
    const double one = counts ? all.maximum + std::log(all.sum) - all.target_logit : 0;
    if (per_token.present()) per_token.put(i, one);
    if (greedy.present()) greedy.put(i, counts && all.target_logit == all.maximum ? 1 : 0);
    sum += one;
    counted += counts ? 1 : 0;
  }
  give_loss(at.out.sum, sum, at.out.count, counted);
}

template <>
void compute(const Arrays<ops::CrossEntropyLossGrad>& at) {
  const Array &statistics = at.in.statistics, &to = at.out.dstatistics;
  const double seed = at.in.seed.present() ? at.in.seed.at(0) : 1;
  const int64_t parts = statistics.shape[0], tokens = statistics.shape[1];
  for (int64_t i = 0; i < tokens; ++i) {
    const bool counts = at.in.targets.index_at(i) >= 0;
    const Reduced all = counts ? reduced(statistics, i) : Reduced{};
    for (int64_t p = 0; p < parts; ++p) {
      const int64_t first = (p * tokens + i) * 3;
      const double of_sum = counts ? seed / all.sum * std::exp(statistics.at(first) - all.maximum) : 0;
      to.put(first, of_sum * statistics.at(first + 1));
      to.put(first + 1, of_sum);
      to.put(first + 2, counts && statistics.at(first + 2) != kAbsent ? -seed : 0);
    }
  }
}

}  // namespace strata::reference
