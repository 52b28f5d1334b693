#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "graph/loss_seed.h"
#include "kernels/reference/call.h"
#include "kernels/reference/products.h"
#include "ops/ops.h"

namespace strata::reference {
namespace {

void give_loss(const Array& loss, double sum, const Array& count, int64_t counted) {
  loss.give(0, sum);
  auto* const counter = reinterpret_cast<int64_t*>(count.data);
  *counter = (count.accumulate ? *counter : 0) + counted;
}

// Gradients of the head: absent where none is asked for; dx may be x itself.
struct HeadGradients {
  Array dx, dw, dbias;
};

// The head's loss over all tokens.
void cross_entropy(const Array& x, const Array& w, const Array& bias, const Array& targets, const Array& loss,
                   const Array& count, const Array& token_loss, const Array& greedy, const HeadGradients& to,
                   double cap, double seed) {
  const Array &dx = to.dx, &dw = to.dw, &dbias = to.dbias;
  const int64_t tokens = x.shape[0], width = x.shape[1], vocab = w.shape[0];
  constexpr int64_t kChunk = 128;  // tokens whose logits exist at once
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
          const int64_t at = v * width + k;
          dw.put(at, first == 0 && !dw.accumulate ? value : dw.at(at) + value);
        });
    products(
        size, width, vocab, [&](int64_t i, int64_t v) { return logits[static_cast<size_t>(i * vocab + v)]; },
        [&](int64_t k, int64_t v) { return rounded(w.at(v * width + k), x.dtype); },
        [&](int64_t i, int64_t k, double value) { dx.put((first + i) * width + k, value); });
  }
  give_loss(loss, sum, count, counted);
}

// (x, w, targets, bias?) → sum, count, per_token?, greedy?
void linear_cross_entropy(const Call& call) {
  cross_entropy(call.in[0], call.in[1], call.in[3], call.in[2], call.out[0], call.out[1], call.out[2],
                call.out[3], {}, call.attrs.as<ops::LinearCrossEntropyAttrs>().softcap, 1);
}

// (x, w for logits, w for dx, targets, bias?, seed?) → sum, count, dx, dw, dbias?
void linear_cross_entropy_train(const Call& call) {
  cross_entropy(call.in[0], call.in[1], call.in[4], call.in[3], call.out[0], call.out[1], {}, {},
                {call.out[2], call.out[3], call.out[4]},
                call.attrs.as<ops::LinearCrossEntropyAttrs>().softcap,
                call.in[5].present() ? call.in[5].at(0) : 1);
}

// --- The split form

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
  // The target's column in a part; -1 where it is in another one.
  int64_t column_of(int64_t target, int64_t part) const {
    const int64_t column = target - start(part);
    return column >= 0 && column < valid(part) ? column : -1;
  }
};

Head head_of(const Call& call, int targets, int bias, int vocab_start) {
  const auto in = [&](int i) -> const Array& { return call.in[static_cast<size_t>(i)]; };
  const auto& attrs = call.attrs.as<ops::CrossEntropyAttrs>();
  return {in(0), in(1), in(targets), in(bias), in(vocab_start), attrs.softcap, attrs.vocabulary};
}

// body(token, part, target's column, logits, slopes) for every token that has a target: logits of the part
// behind the cap, and its slope at each. The two may be changed.
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

// (x, w, targets, bias?, vocab_start?) → statistics
void cross_entropy_statistics(const Call& call) {
  using Op = ops::CrossEntropyStatistics;
  const Head head = head_of(call, Op::kTargets, Op::kBias, Op::kVocabStart);
  const Array& to = call.out[Op::kStatistics];
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
    const int64_t at = (p * tokens + i) * 3;
    to.put(at, highest);
    to.put(at + 1, sum);
    to.put(at + 2, target >= 0 ? logits[static_cast<size_t>(target)] : kAbsent);
  });
}

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

// (x, w for logits, w for dx, targets, statistics, dstatistics, bias?, vocab_start?) → dx
void cross_entropy_grad_input(const Call& call) {
  using Op = ops::CrossEntropyGradInput;
  const Head head = head_of(call, Op::kTargets, Op::kBias, Op::kVocabStart);
  const int64_t width = head.x.shape[1];
  std::vector<double> dx(static_cast<size_t>(head.x.shape.elements()));
  for_logit_gradients(head, call.in[Op::kStatistics], call.in[Op::kDstatistics],
                      [&](int64_t i, int64_t v, double gradient) {
                        for (int64_t k = 0; k < width; ++k)
                          dx[static_cast<size_t>(i * width + k)] +=
                              gradient * rounded(head.w.at(v * width + k), head.x.dtype);
                      });
  for (size_t i = 0; i < dx.size(); ++i) call.out[Op::kDx].put(static_cast<int64_t>(i), dx[i]);
}

// (x, w for logits, targets, statistics, dstatistics, bias?, vocab_start?) → dw, dbias?
void cross_entropy_grad_weight(const Call& call) {
  using Op = ops::CrossEntropyGradWeight;
  const Head head = head_of(call, Op::kTargets, Op::kBias, Op::kVocabStart);
  const int64_t width = head.x.shape[1];
  std::vector<double> dw(static_cast<size_t>(head.w.shape.elements()));
  std::vector<double> dbias(static_cast<size_t>(head.w.shape[0]));
  for_logit_gradients(head, call.in[Op::kStatistics], call.in[Op::kDstatistics],
                      [&](int64_t i, int64_t v, double gradient) {
                        dbias[static_cast<size_t>(v)] += gradient;
                        for (int64_t k = 0; k < width; ++k)
                          dw[static_cast<size_t>(v * width + k)] += gradient * head.x.at(i * width + k);
                      });
  for (size_t i = 0; i < dw.size(); ++i) call.out[Op::kDweight].give(static_cast<int64_t>(i), dw[i]);
  if (!call.out[Op::kDbias].present()) return;
  for (size_t v = 0; v < dbias.size(); ++v) call.out[Op::kDbias].give(static_cast<int64_t>(v), dbias[v]);
}

// (x, w for logits, w for dx, targets, statistics, dstatistics, bias?, vocab_start?) → dx, dw, dbias?
void cross_entropy_grad(const Call& call) {
  using Op = ops::CrossEntropyGrad;
  const auto at = [&](int i) { return call.in[static_cast<size_t>(i)]; };
  cross_entropy_grad_weight({{at(Op::kX), at(Op::kWeight), at(Op::kTargets), at(Op::kStatistics),
                              at(Op::kDstatistics), at(Op::kBias), at(Op::kVocabStart)},
                             {call.out[Op::kDweight], call.out[Op::kDbias]},
                             call.attrs});
  // Behind it, since dx may be x itself.
  cross_entropy_grad_input({call.in, {call.out[Op::kDx]}, call.attrs});
}

// Of one token, over all parts.
struct Reduced {
  double maximum = kAbsent, sum = 0, target_logit = kAbsent;
};
Reduced reduce(const Array& statistics, int64_t token) {
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

// (statistics, targets) → sum, count, per_token?, greedy?
void cross_entropy_loss(const Call& call) {
  using Op = ops::CrossEntropyLoss;
  const Array &per_token = call.out[Op::kPerToken], &greedy = call.out[Op::kGreedy];
  double sum = 0;
  int64_t counted = 0;
  for (int64_t i = 0; i < call.in[Op::kTargets].shape[0]; ++i) {
    const bool counts = call.in[Op::kTargets].index_at(i) >= 0;
    const Reduced all = counts ? reduce(call.in[Op::kStatistics], i) : Reduced{};
    const double one = counts ? all.maximum + std::log(all.sum) - all.target_logit : 0;
    if (per_token.present()) per_token.put(i, one);
    if (greedy.present()) greedy.put(i, counts && all.target_logit == all.maximum ? 1 : 0);
    sum += one;
    counted += counts ? 1 : 0;
  }
  give_loss(call.out[Op::kSum], sum, call.out[Op::kCount], counted);
}

// (statistics, targets, seed?) → dstatistics
void cross_entropy_loss_grad(const Call& call) {
  using Op = ops::CrossEntropyLossGrad;
  const Array &statistics = call.in[Op::kStatistics], &to = call.out[Op::kDstatistics];
  const double seed = call.in[Op::kSeed].present() ? call.in[Op::kSeed].at(0) : 1;
  const int64_t parts = statistics.shape[0], tokens = statistics.shape[1];
  for (int64_t i = 0; i < tokens; ++i) {
    const bool counts = call.in[Op::kTargets].index_at(i) >= 0;
    const Reduced all = counts ? reduce(statistics, i) : Reduced{};
    for (int64_t p = 0; p < parts; ++p) {
      const int64_t at = (p * tokens + i) * 3;
      const double of_sum = counts ? seed / all.sum * std::exp(statistics.at(at) - all.maximum) : 0;
      to.put(at, of_sum * statistics.at(at + 1));
      to.put(at + 1, of_sum);
      to.put(at + 2, counts && statistics.at(at + 2) != kAbsent ? -seed : 0);
    }
  }
}

// (terms of the main loss, terms) → seed
void loss_seed(const Call& call) {
  const int64_t main = call.in[0].index_at(0), own = call.in[1].index_at(0);
  const double weight = call.attrs.as<graph::LossSeedAttrs>().weight;
  call.out[0].put(0, own > 0 ? weight * static_cast<double>(main) / static_cast<double>(own) : 0);
}

}  // namespace

std::span<const Row> loss_kernels() {
  static const Row kRows[] = {
      {&ops::kLinearCrossEntropy, linear_cross_entropy},
      {&ops::kLinearCrossEntropyTrain, linear_cross_entropy_train},
      {&ops::kCrossEntropyStatistics, cross_entropy_statistics},
      {&ops::kCrossEntropyLoss, cross_entropy_loss},
      {&ops::kCrossEntropyLossGrad, cross_entropy_loss_grad},
      {&ops::kCrossEntropyGradInput, cross_entropy_grad_input},
      {&ops::kCrossEntropyGradWeight, cross_entropy_grad_weight},
      {&ops::kCrossEntropyGrad, cross_entropy_grad},
      {&graph::kLossSeed, loss_seed},
  };
  return kRows;
}

}  // namespace strata::reference
