#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/parallel.h"
#include "graph/reshard.h"
#include "graph/sum.h"
#include "kernels/reference/call.h"
#include "ops/ops.h"
#include "ops/predict.h"

namespace strata::reference {
namespace {

// Where the operands of a norm and of its gradients lie: layer norm has a bias and a mean, RMS norm has not.
struct Norm {
  size_t vectors;  // weight, and bias: as many statistics there are
  bool centred() const { return vectors == 2; }
};
constexpr Norm kRms{1}, kLayer{2};

double weight_at(const Call& call, Norm norm, const Array& weight, int64_t c) {
  return weight.at(c) + (norm.centred() ? 0 : call.attrs.as<ops::RmsNormAttrs>().weight_offset);
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// (x, w, b?, residual?) → y, mean?, rstd, h?
void norm_forward(const Call& call, Norm norm) {
  const Array &x = call.in[0], &weight = call.in[1], &residual = call.in[norm.vectors + 1];
  const Array &y = call.out[0], &rstds = call.out[norm.vectors], &sums = call.out[norm.vectors + 1];
  const int64_t dim = x.shape[1];
  const double eps =
      norm.centred() ? call.attrs.as<ops::LayerNormAttrs>().eps : call.attrs.as<ops::RmsNormAttrs>().eps;
  parallel_for(x.shape[0], [&](int64_t r) {
    std::vector<double> h = x.row(r);
    if (residual.present()) {
      for (int64_t c = 0; c < dim; ++c) {
        sums.put(r * dim + c, h[static_cast<size_t>(c)] + residual.at(r * dim + c));
      }
      h = sums.row(r);  // as it was rounded
    }
    double mean = 0;
    if (norm.centred()) {
      mean = mean_of(h);
      call.out[1].put(r, mean);
    }
    std::vector<double> squares;
    for (double& value : h) {
      value -= mean;
      squares.push_back(value * value);
    }
    const double rstd = 1 / std::sqrt(mean_of(squares) + eps);
    rstds.put(r, rstd);
    for (int64_t c = 0; c < dim; ++c) {
      const double bias = norm.centred() ? call.in[2].at(c) : 0;
      y.put(r * dim + c, h[static_cast<size_t>(c)] * rstd * weight_at(call, norm, weight, c) + bias);
    }
  });
}

double normalised(const Call& call, Norm norm, int64_t r, int64_t i) {
  const double mean = norm.centred() ? call.in[2].at(r) : 0;
  return (call.in[1].at(i) - mean) * call.in[norm.vectors + 1].at(r);
}

// (dy, h, mean?, rstd, w, dh?) → dx = rstd (g − mean(g) − ĥ mean(g ĥ)) + dh with g = dy w; RMS: no mean(g)
void norm_grad_input(const Call& call, Norm norm) {
  const Array &dy = call.in[0], &rstds = call.in[norm.vectors + 1], &weight = call.in[norm.vectors + 2];
  const Array &more = call.in[norm.vectors + 3], &dx = call.out[0];
  const int64_t dim = dy.shape[1];
  parallel_for(dy.shape[0], [&](int64_t r) {
    std::vector<double> g, along;
    for (int64_t c = 0; c < dim; ++c) {
      g.push_back(dy.at(r * dim + c) * weight_at(call, norm, weight, c));
      along.push_back(g.back() * normalised(call, norm, r, r * dim + c));
    }
    const double shift = norm.centred() ? mean_of(g) : 0, slope = mean_of(along);
    for (int64_t c = 0; c < dim; ++c) {
      const int64_t i = r * dim + c;
      const double own =
          rstds.at(r) * (g[static_cast<size_t>(c)] - shift - normalised(call, norm, r, i) * slope);
      dx.put(i, own + (more.present() ? more.at(i) : 0));
    }
  });
}

// (dy, h, mean?, rstd) → dw, db?
void norm_grad_weight(const Call& call, Norm norm) {
  const Array& dy = call.in[0];
  const int64_t dim = dy.shape[1];
  parallel_for(dim, [&](int64_t c) {
    double weight = 0, bias = 0;
    for (int64_t r = 0; r < dy.shape[0]; ++r) {
      const int64_t i = r * dim + c;
      weight += dy.at(i) * normalised(call, norm, r, i);
      bias += dy.at(i);
    }
    call.out[0].give(c, weight);
    if (norm.centred()) call.out[1].give(c, bias);
  });
}

// () → values
void constant(const Call& call) {
  for (int64_t i = 0; i < call.out[0].shape.elements(); ++i)
    call.out[0].put(i, call.attrs.as<ops::ConstantAttrs>().number);
}

// (x, index) → row
void take_row(const Call& call) {
  const int64_t dim = call.in[0].shape[1], row = call.in[1].index_at(0);
  for (int64_t c = 0; c < dim; ++c) call.out[0].put(c, call.in[0].at(row * dim + c));
}

// (targets, ahead) → tokens, targets one place further
void targets_ahead(const Call& call) {
  const Array &targets = call.in[0], &ahead = call.in[1];
  const int64_t length = call.attrs.as<ops::TargetsAheadAttrs>().sequence_length;
  for (int64_t i = 0; i < targets.shape[0]; ++i) {
    const bool goes_on = (i + 1) % length != 0 && targets.index_at(i) >= 0;
    call.out[0].put(i, std::max(ahead.at(i), 0.0));
    call.out[1].put(i, goes_on ? ahead.at(i + 1) : -1);
  }
}

// (x, rank) → y: the shard's share of every part
void take_shard(const Call& call) {
  const auto& attrs = call.attrs.as<graph::ReshardAttrs>();
  const Array &x = call.in[0], &y = call.out[0];
  const int dim = attrs.to.dim;
  const int64_t index = attrs.ranks > 1 ? graph::coordinates_in(call.in[1].data)[attrs.axis] : 0;
  std::vector<int64_t> parts{x.shape[dim]};
  if (dim == x.shape.rank() - 1 && !x.segments.empty()) parts = x.segments;
  // Of each sequence a piece from its begin and one, as far, from its end.
  const bool by_pieces = attrs.sequence > 0;
  if (by_pieces) parts.assign(static_cast<size_t>(2 * x.shape[0] / attrs.sequence), attrs.sequence / 2);
  std::vector<int64_t> taken;  // indices along the dimension
  int64_t begin = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    const int64_t share = parts[p] / attrs.ranks;
    const int64_t number = by_pieces && p % 2 == 1 ? attrs.ranks - 1 - index : index;
    for (int64_t i = 0; i < share; ++i) taken.push_back(begin + number * share + i);
    begin += parts[p];
  }
  int64_t inner = 1;
  for (int i = dim + 1; i < x.shape.rank(); ++i) inner *= x.shape[i];
  for (int64_t i = 0; i < y.shape.elements(); ++i) {
    const int64_t row = i / inner / y.shape[dim], along = i / inner % y.shape[dim];
    y.put(i, x.at((row * x.shape[dim] + taken[static_cast<size_t>(along)]) * inner + i % inner));
  }
}

// (a, b) → sum
void add(const Call& call) {
  for (int64_t i = 0; i < call.out[0].shape.elements(); ++i)
    call.out[0].put(i, call.in[0].at(i) + call.in[1].at(i));
}

// (x) → y
void scale(const Call& call) {
  for (int64_t i = 0; i < call.out[0].shape.elements(); ++i)
    call.out[0].put(i, call.attrs.as<ops::ScaleAttrs>().factor * call.in[0].at(i));
}

// (x, table) → y
void add_row(const Call& call) {
  const Array &x = call.in[0], &table = call.in[1];
  const int64_t dim = x.shape[1], row = call.attrs.as<ops::AddRowAttrs>().row;
  for (int64_t i = 0; i < x.shape.elements(); ++i)
    call.out[0].put(i, x.at(i) + table.at(row * dim + i % dim));
}

// (dy) → dtable
void add_row_grad(const Call& call) {
  const Array &dy = call.in[0], &table = call.out[0];
  const int64_t dim = dy.shape[1], row = call.attrs.as<ops::AddRowGradAttrs>().row;
  for (int64_t i = 0; i < table.shape.elements(); ++i) {
    double sum = 0;
    for (int64_t r = 0; r < dy.shape[0] && i / dim == row; ++r) sum += dy.at(r * dim + i % dim);
    table.give(i, sum);
  }
}

// Where the row of an id lies among `rows`, the parts that begin at `starts` where there are such; -1: there
// is none.
int64_t row_of_id(int64_t id, const Array& starts, int64_t rows) {
  if (!starts.present()) return id;
  const int64_t parts = starts.shape[0], size = rows / parts;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t row = id - starts.index_at(part);
    if (row >= 0 && row < size) return part * size + row;
  }
  return -1;
}

// (rank) → starts
void vocab_start(const Call& call) {
  const auto& attrs = call.attrs.as<ops::VocabStartAttrs>();
  const int64_t first =
      attrs.ranks > 1 ? graph::coordinates_in(call.in[0].data)[attrs.axis] * attrs.parts : 0;
  for (int64_t part = 0; part < attrs.parts; ++part)
    call.out[0].put(part, static_cast<double>((first + part) * attrs.rows));
}

// (tokens, table, positions?, position table?, vocab_start?) → x
void embedding(const Call& call) {
  const Array &tokens = call.in[0], &table = call.in[1], &positions = call.in[2], &x = call.out[0];
  const int64_t dim = table.shape[1];
  for (int64_t r = 0; r < tokens.shape[0]; ++r) {
    const int64_t token = tokens.index_at(r), row = row_of_id(token, call.in[4], table.shape[0]);
    STRATA_CHECK(token >= 0 && row < table.shape[0], "[embedding] token {} of {}", token, table.shape[0]);
    for (int64_t c = 0; c < dim; ++c) {
      const double position = positions.present() ? call.in[3].at(positions.index_at(r) * dim + c) : 0;
      const double entry = row < 0 ? 0 : table.at(row * dim + c);
      x.put(r * dim + c, call.attrs.as<ops::EmbeddingAttrs>().scale * entry + position);
    }
  }
}

// (dy, ids, vocab_start?) → dtable. Rows are added in order and in fp32, as the table's own type has it.
void embedding_grad(const Call& call) {
  const Array &dy = call.in[0], &ids = call.in[1], &table = call.out[0];
  const auto& attrs = call.attrs.as<ops::EmbeddingGradAttrs>();
  const int64_t dim = dy.shape[1];
  for (int64_t i = 0; i < table.shape.elements() && !table.accumulate; ++i) table.put(i, 0);
  for (int64_t r = 0; r < dy.shape[0]; ++r) {
    const int64_t row = row_of_id(ids.index_at(r), call.in[2], table.shape[0]);
    if (ids.index_at(r) == attrs.padding_id || row < 0) continue;
    for (int64_t c = 0; c < dim; ++c) {
      const int64_t to = row * dim + c;
      table.put(to, table.at(to) + attrs.scale * dy.at(r * dim + c));
    }
  }
}

void rms_norm(const Call& call) {
  norm_forward(call, kRms);
}
void rms_norm_grad_input(const Call& call) {
  norm_grad_input(call, kRms);
}
void rms_norm_grad_weight(const Call& call) {
  norm_grad_weight(call, kRms);
}
void layer_norm(const Call& call) {
  norm_forward(call, kLayer);
}
void layer_norm_grad_input(const Call& call) {
  norm_grad_input(call, kLayer);
}
void layer_norm_grad_weight(const Call& call) {
  norm_grad_weight(call, kLayer);
}

}  // namespace

std::span<const Row> rows_kernels() {
  static const Row kRows[] = {
      {&graph::kAdd, add},
      {&ops::kEmbedding, embedding},
      {&ops::kVocabStart, vocab_start},
      {&ops::kEmbeddingGrad, embedding_grad},
      {&ops::kRmsNorm, rms_norm},
      {&ops::kRmsNormGradInput, rms_norm_grad_input},
      {&ops::kRmsNormGradWeight, rms_norm_grad_weight},
      {&ops::kLayerNorm, layer_norm},
      {&ops::kLayerNormGradInput, layer_norm_grad_input},
      {&ops::kLayerNormGradWeight, layer_norm_grad_weight},
      {&ops::kScale, scale},
      {&ops::kAddRow, add_row},
      {&ops::kAddRowGrad, add_row_grad},
      {&ops::kConstant, constant},
      {&ops::kTakeRow, take_row},
      {&ops::kTargetsAhead, targets_ahead},
      {&graph::kTakeShard, take_shard},
  };
  return kRows;
}

}  // namespace strata::reference
