#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/parallel.h"
#include "graph/loss_seed.h"
#include "kernels/reference/call.h"
#include "ops/ops.h"

namespace strata::reference {
namespace {

// Four sums side by side, or each addition waits for the one before it.
double dot(const double* a, const double* b, int64_t n) {
  double sums[4] = {};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (int lane = 0; lane < 4; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  for (; i < n; ++i) sums[0] += a[i] * b[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// emit(i, j, Σ_k a(i, k) · b(j, k)) for all i < m, j < n. Blocks of rows are read once into fp64, or reading
// each element would take most of the time.
template <typename A, typename B, typename Emit>
void products(int64_t m, int64_t n, int64_t k, const A& a, const B& b, const Emit& emit) {
  constexpr int64_t kBlock = 64;
  const int64_t columns = (n + kBlock - 1) / kBlock;
  parallel_for((m + kBlock - 1) / kBlock * columns, [&](int64_t task) {
    const int64_t i0 = task / columns * kBlock, i1 = std::min(m, i0 + kBlock);
    const int64_t j0 = task % columns * kBlock, j1 = std::min(n, j0 + kBlock);
    const auto read = [k](int64_t begin, int64_t end, const auto& from) {
      std::vector<double> block;
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t x = 0; x < k; ++x) block.push_back(from(r, x));
      }
      return block;
    };
    const std::vector<double> left = read(i0, i1, a), right = read(j0, j1, b);
    for (int64_t i = i0; i < i1; ++i) {
      for (int64_t j = j0; j < j1; ++j)
        emit(i, j, dot(left.data() + (i - i0) * k, right.data() + (j - j0) * k, k));
    }
  });
}

double rounded(double value, DType dtype) {
  return dtype == DType::kBF16 ? static_cast<double>(static_cast<float>(BF16(static_cast<float>(value))))
                               : value;
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
  loss.give(0, sum);
  auto* const counter = reinterpret_cast<int64_t*>(count.data);
  *counter = (count.accumulate ? *counter : 0) + counted;
}

// (x, w, bias?) → y
void linear(const Call& call) {
  const Array &x = call.in[0], &w = call.in[1], &bias = call.in[2], &y = call.out[0];
  const int64_t k = x.shape[1], n = w.shape[0];
  products(
      x.shape[0], n, k, [&](int64_t i, int64_t s) { return x.at(i * k + s); },
      [&](int64_t j, int64_t s) { return rounded(w.at(j * k + s), x.dtype); },
      [&](int64_t i, int64_t j, double sum) { y.put(i * n + j, sum + (bias.present() ? bias.at(j) : 0)); });
}

// (dy, w) → dx
void linear_grad_input(const Call& call) {
  const Array &dy = call.in[0], &w = call.in[1], &dx = call.out[0];
  const int64_t n = w.shape[0], k = w.shape[1];
  products(
      dy.shape[0], k, n, [&](int64_t i, int64_t s) { return dy.at(i * n + s); },
      [&](int64_t j, int64_t s) { return rounded(w.at(s * k + j), dy.dtype); },
      [&](int64_t i, int64_t j, double sum) { dx.put(i * k + j, sum); });
}

// (dy, x) → dw
void linear_grad_weight(const Call& call) {
  const Array &dy = call.in[0], &x = call.in[1], &dw = call.out[0];
  const int64_t n = dy.shape[1], k = x.shape[1];
  products(
      n, k, dy.shape[0], [&](int64_t i, int64_t s) { return dy.at(s * n + i); },
      [&](int64_t j, int64_t s) { return x.at(s * k + j); },
      [&](int64_t i, int64_t j, double sum) { dw.give(i * k + j, sum); });
}

// (dy) → sums
void column_sums(const Call& call) {
  const Array &dy = call.in[0], &sums = call.out[0];
  const int64_t columns = dy.shape[1];
  for (int64_t c = 0; c < columns; ++c) {
    double sum = 0;
    for (int64_t r = 0; r < dy.shape[0]; ++r) sum += dy.at(r * columns + c);
    sums.give(c, sum);
  }
}

// (terms of the main loss, terms) → seed
void loss_seed(const Call& call) {
  const int64_t main = call.in[0].index_at(0), own = call.in[1].index_at(0);
  const double weight = call.attrs.as<graph::LossSeedAttrs>().weight;
  call.out[0].put(0, own > 0 ? weight * static_cast<double>(main) / static_cast<double>(own) : 0);
}

// (x) → y
void softcap(const Call& call) {
  const double cap = call.attrs.as<ops::SoftcapAttrs>().softcap;
  for (int64_t i = 0; i < call.in[0].shape.elements(); ++i)
    call.out[0].put(i, cap * std::tanh(call.in[0].at(i) / cap));
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

}  // namespace

std::span<const Row> linear_kernels() {
  static const Row kRows[] = {
      {&ops::kLinear, linear},
      {&ops::kLinearGradInput, linear_grad_input},
      {&ops::kLinearGradWeight, linear_grad_weight},
      {&ops::kColumnSums, column_sums},
      {&graph::kLossSeed, loss_seed},
      {&ops::kSoftcap, softcap},
      {&ops::kLinearCrossEntropy, linear_cross_entropy},
      {&ops::kLinearCrossEntropyTrain, linear_cross_entropy_train},
  };
  return kRows;
}

}  // namespace strata::reference
