#include "interop/add_indexer.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/hash.h"
#include "base/random.h"
#include "checkpoint/checkpoint.h"
#include "models/families.h"

namespace strata::interop {
namespace {

// A new tensor of the indexer: normal with this deviation, or one number.
class NewTensor : public checkpoint::ReadableStorage {
 public:
  NewTensor(float deviation, float mean, RandomKey key) : deviation_(deviation), mean_(mean), key_(key) {}

  void read(int64_t offset, void* to, int64_t bytes) const override {
    constexpr int64_t kSize = sizeof(float);
    auto* const out = static_cast<float*>(to);
    const int64_t count = bytes / kSize;
    if (deviation_ > 0) {
      fill_normal(out, count, deviation_, key_, offset / kSize);
    } else {
      std::fill_n(out, count, mean_);
    }
  }

 private:
  float deviation_, mean_;
  RandomKey key_;
};

}  // namespace

models::ModelConfig with_indexer(const models::ModelConfig& dense, const IndexerOptions& options) {
  if (dense.family != &models::kDeepseekV3 || dense.latent->query_rank == 0) {
    throw ConfigError(
        "[strata checkpoint add-indexer] found a {} model{}: expected deepseek3 with q_lora_rank, whose latent of queries the "
        "indexer reads",
        dense.family->name, dense.family == &models::kDeepseekV3 ? " without q_lora_rank" : "");
  }
  if (!dense.adjacent_rotary_pairs) {
    throw ConfigError(
        "[strata checkpoint add-indexer] found rope_interleave = false: expected true, the only order of deepseek3.2");
  }
  models::ModelConfig model = dense;
  model.family = &models::kDeepseekV32;
  model.indexer = options.dims;
  const auto errors = models::errors_of(model);
  if (!errors.empty()) throw ConfigError("[strata checkpoint add-indexer] {}", errors.front());
  return model;
}

std::vector<checkpoint::TensorView> tensors_with_indexer(const models::ModelConfig& dense,
                                                         const checkpoint::WeightSource& weights,
                                                         const models::ModelConfig& model,
                                                         const IndexerOptions& options) {
  std::vector<checkpoint::TensorView> views;
  for (const checkpoint::FileTensor& tensor : checkpoint::file_tensors(model)) {
    const std::string& name = tensor.row.file_name;
    if (name.find(".indexer.") == std::string::npos) {
      const auto& entry = weights.entry(name);
      views.push_back({.name = name,
                       .shape = tensor.shape,
                       .memory_dtype = *entry.tensor->dtype,
                       .storage = checkpoint::in_file(*entry.file, *entry.tensor)});
      continue;
    }
    const bool is_norm = name.find(".k_norm.") != std::string::npos;
    views.push_back({.name = name,
                     .shape = tensor.shape,
                     .storage = std::make_shared<NewTensor>(
                         is_norm ? 0 : static_cast<float>(dense.init_std), name.ends_with(".bias") ? 0 : 1,
                         RandomKey{options.seed, static_cast<uint32_t>(hash64(name))})});
  }
  return views;
}

}  // namespace strata::interop
