#include "plan/model_shape.h"

#include <algorithm>
#include <numeric>

#include "plan/layer_costs.h"

namespace strata::planning {
namespace {

constexpr FlopConvention kConventions[] = {
    FlopConvention::kModelFull,    FlopConvention::kModelCausal,  FlopConvention::kNoAttention,
    FlopConvention::kMosaic,       FlopConvention::kSc21Hardware, FlopConvention::kSc21Model,
    FlopConvention::kMegatron2024,
};

double attention_parameters(const ModelShape& shape) {
  const auto h = static_cast<double>(shape.hidden);
  const auto a = static_cast<double>(shape.heads);
  if (!shape.latent.used()) {
    const double kv = 2.0 * static_cast<double>(shape.kv_heads);
    return h * static_cast<double>(shape.head_dim) * (2 * a + kv);
  }
  const LatentAttention& latent = shape.latent;
  const auto rope = static_cast<double>(latent.rope_dim);
  const auto nope = static_cast<double>(latent.nope_dim);
  const auto value = static_cast<double>(latent.value_dim);
  const auto rank = static_cast<double>(latent.key_value_rank);
  const auto query = static_cast<double>(latent.query_rank);
  const double queries = query > 0 ? h * query + query * a * (nope + rope) : h * a * (nope + rope);
  return queries + h * (rank + rope) + rank * a * (nope + value) + a * value * h;
}

// FLOPs of the scores and the weighted sum in training: 12 L s a d_h, or 6 L s a (d_qk + d_v).
double attention_flops(const ModelShape& shape, double sequence) {
  const double scores = static_cast<double>(shape.layers * shape.heads) * sequence;
  if (!shape.latent.used()) return 12 * scores * static_cast<double>(shape.head_dim);
  const LatentAttention& latent = shape.latent;
  return 6 * scores * static_cast<double>(latent.nope_dim + latent.rope_dim + latent.value_dim);
}

}  // namespace

int64_t ModelShape::moe_layers() const {
  if (!has_experts()) return 0;
  if (!each.empty())
    return std::count_if(each.begin(), each.end(), [](const LayerOfKind& one) { return one.has_experts; });
  return std::max<int64_t>(0, layers - moe.dense_layers) / std::max<int64_t>(1, moe.every);
}

ParameterCounts count_parameters(const ModelShape& shape) {
  const auto h = static_cast<double>(shape.hidden);
  const auto layers = static_cast<double>(shape.layers);
  const auto sparse = static_cast<double>(shape.moe_layers());
  const auto matrices = static_cast<double>(shape.mlp_matrices());
  const ExpertShape& moe = shape.moe;
  ParameterCounts out;
  out.attention = attention_parameters(shape);
  out.norms = 2 * h;
  out.mlp = matrices * h * static_cast<double>(shape.ffn);
  out.expert = matrices * h * static_cast<double>(moe.width);
  out.router = shape.has_experts() ? h * static_cast<double>(moe.experts) : 0;
  out.embedding = h * static_cast<double>(shape.vocab);
  out.head = out.embedding;
  const double common = layers * (out.attention + out.norms) + (layers - sparse) * out.mlp +
                        sparse * (out.router + static_cast<double>(moe.shared) * out.expert) + h;
  const double ends = out.embedding + (shape.tied ? 0 : out.head);
  out.stored = common + ends + sparse * static_cast<double>(moe.experts) * out.expert;
  out.active = common + ends + sparse * static_cast<double>(moe.per_token) * out.expert;
  out.matmul = out.active - ends + out.head - layers * out.norms - h;
  return out;
}

std::string_view to_string(FlopConvention convention) {
  switch (convention) {
    case FlopConvention::kModelFull:
      return "model, full attention";
    case FlopConvention::kModelCausal:
      return "model, causal attention";
    case FlopConvention::kNoAttention:
      return "model, without attention";
    case FlopConvention::kMosaic:
      return "llm-foundry";
    case FlopConvention::kSc21Hardware:
      return "Megatron-LM 2021, with recomputation";
    case FlopConvention::kSc21Model:
      return "Megatron-LM 2022";
    case FlopConvention::kMegatron2024:
      return "Megatron-LM 2024";
  }
  return "";
}

std::span<const FlopConvention> flop_conventions() {
  return kConventions;
}

double flops_per_token(const ModelShape& shape, int64_t sequence, FlopConvention convention) {
  const ParameterCounts counts = count_parameters(shape);
  const auto s = static_cast<double>(sequence);
  const auto h = static_cast<double>(shape.hidden);
  const auto layers = static_cast<double>(shape.layers);
  const auto vocab = static_cast<double>(shape.vocab);
  double attention = attention_flops(shape, s), matmul = counts.matmul;
  if (shape.costs != nullptr) {
    const auto sum = [&](int64_t length) {
      const std::vector<double> layer = shape.costs->flops(length);
      return std::accumulate(layer.begin(), layer.end(), 0.0);
    };
    const double rest = sum(0);
    attention = 2 * (sum(sequence) - rest);
    matmul = rest / 6 + counts.head;
  }
  switch (convention) {
    case FlopConvention::kModelFull:
      return 6 * matmul + attention;
    case FlopConvention::kModelCausal:
      return 6 * matmul + attention / 2;
    case FlopConvention::kNoAttention:
      return 6 * matmul;
    case FlopConvention::kMosaic:
      return 6 * counts.stored + 12 * layers * h * s;
    case FlopConvention::kSc21Hardware:
      return 96 * layers * h * h * (1 + s / (6 * h) + vocab / (16 * layers * h));
    case FlopConvention::kSc21Model:
      return 72 * layers * h * h * (1 + s / (6 * h) + vocab / (12 * layers * h));
    case FlopConvention::kMegatron2024: {
      const double queries = static_cast<double>(shape.heads * shape.head_dim) / h;
      const double shared_keys = static_cast<double>(shape.kv_heads) / static_cast<double>(shape.heads);
      const double mlp = (counts.matmul - counts.head) / layers - counts.attention;
      return 12 * layers * h * h * ((1 + shared_keys + s / h) * queries + mlp / (2 * h * h)) + 6 * h * vocab;
    }
  }
  return 0;
}

}  // namespace strata::planning
