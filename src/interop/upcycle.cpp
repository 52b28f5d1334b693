#include "interop/upcycle.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/random.h"
#include "models/families.h"

namespace strata::interop {
namespace {

using checkpoint::ReadableStorage;
using checkpoint::TensorView;

// Reads elements of a file's tensor as fp32.
class FloatReader {
 public:
  FloatReader(const TensorFile& file, const TensorInfo& tensor)
      : storage_(checkpoint::in_file(file, tensor)), dtype_(*tensor.dtype) {}

  void read(int64_t first, float* to, int64_t count) const {
    std::vector<std::byte> raw(static_cast<size_t>(count * size_of(dtype_)));
    storage_->read(first * size_of(dtype_), raw.data(), static_cast<int64_t>(raw.size()));
    convert(to, DType::kF32, raw.data(), dtype_, count);
  }

 private:
  std::shared_ptr<const ReadableStorage> storage_;
  DType dtype_;
};

struct Moments {
  double mean = 0, deviation = 0;
};

Moments moments_of(const FloatReader& reader, int64_t elements) {
  constexpr int64_t kPart = 1 << 16;
  std::vector<float> chunk(static_cast<size_t>(std::min(kPart, elements)));
  double sum = 0, squares = 0;
  for (int64_t first = 0; first < elements; first += kPart) {
    const int64_t count = std::min(kPart, elements - first);
    reader.read(first, chunk.data(), count);
    for (int64_t i = 0; i < count; ++i) {
      const double x = static_cast<double>(chunk[static_cast<size_t>(i)]);
      sum += x;
      squares += x * x;
    }
  }
  const double n = static_cast<double>(elements), mean = sum / n;
  return {mean, std::sqrt(std::max(0.0, squares / n - mean * mean))};
}

// The redrawn units of an expert, the same in all its tensors.
struct FreshUnits {
  std::vector<bool> is_fresh;  // by unit of the expert's inner width

  FreshUnits(int64_t units, double share, uint64_t key) : is_fresh(static_cast<size_t>(units)) {
    const auto count = static_cast<int64_t>(std::llround(share * static_cast<double>(units)));
    const Permutation order(static_cast<uint64_t>(units), key, 0);
    for (int64_t i = 0; i < count; ++i) is_fresh[order(static_cast<uint64_t>(i))] = true;
  }
};

// A matrix of an expert: a block of a dense matrix times a factor, with noise and redrawn units.
struct Block {
  FloatReader dense;
  int64_t dense_columns;
  int64_t first_row, first_column;  // of the block in the dense matrix
  int64_t columns;
  double factor;
  bool units_are_rows;
  std::shared_ptr<const FreshUnits> fresh;
  Moments moments;
  double noise;
  RandomKey key;
};

class ExpertStorage : public ReadableStorage {
 public:
  explicit ExpertStorage(Block block) : block_(std::move(block)) {}

  void read(int64_t offset, void* to, int64_t bytes) const override {
    constexpr int64_t kSize = sizeof(float);
    auto* out = static_cast<float*>(to);
    for (int64_t at = offset / kSize, end = (offset + bytes) / kSize; at < end;) {
      const int64_t row = at / block_.columns, column = at % block_.columns;
      const int64_t count = std::min(end - at, block_.columns - column);
      read_part(row, column, out, count);
      out += count;
      at += count;
    }
  }

 private:
  // Elements of one row.
  void read_part(int64_t row, int64_t column, float* out, int64_t count) const {
    const int64_t from = (block_.first_row + row) * block_.dense_columns + block_.first_column + column;
    block_.dense.read(from, out, count);
    std::vector<float> normal;
    if (block_.noise > 0 || block_.fresh) {
      normal.resize(static_cast<size_t>(count));
      fill_normal(normal.data(), count, 1, block_.key, row * block_.columns + column);
    }
    for (int64_t i = 0; i < count; ++i) {
      auto value = static_cast<double>(out[i]);
      const int64_t unit = block_.units_are_rows ? row : column + i;
      if (block_.fresh && block_.fresh->is_fresh[static_cast<size_t>(unit)]) {
        value = block_.moments.mean +
                block_.moments.deviation * static_cast<double>(normal[static_cast<size_t>(i)]);
      } else if (block_.noise > 0) {
        value +=
            block_.noise * block_.moments.deviation * static_cast<double>(normal[static_cast<size_t>(i)]);
      }
      out[i] = static_cast<float>(block_.factor * value);
    }
  }

  Block block_;
};

// Rows [experts, width]; the slices of a copy have equal rows.
class RouterStorage : public ReadableStorage {
 public:
  RouterStorage(int64_t width, int64_t slices, float deviation, RandomKey key)
      : width_(width), slices_(slices), deviation_(deviation), key_(key) {}

  void read(int64_t offset, void* to, int64_t bytes) const override {
    auto* out = static_cast<float*>(to);
    const auto first = offset / static_cast<int64_t>(sizeof(float));
    for (int64_t i = 0; i < bytes / static_cast<int64_t>(sizeof(float)); ++i) {
      const int64_t copy = (first + i) / width_ / slices_;
      fill_normal(out + i, 1, deviation_, key_, copy * width_ + (first + i) % width_);
    }
  }

 private:
  int64_t width_, slices_;
  float deviation_;
  RandomKey key_;
};

// A parameter's name and its row at which a file's tensor begins.
using Place = std::pair<std::string, int64_t>;

RandomKey key_for(const UpcycleOptions& options, const std::string& name) {
  return {options.seed, static_cast<uint32_t>(hash64(name))};
}

class Upcycler {
 public:
  Upcycler(const models::ModelConfig& dense, const checkpoint::WeightSource& weights,
           const models::ModelConfig& model, const UpcycleOptions& options)
      : dense_(dense), weights_(weights), model_(model), options_(options) {
    for (models::TensorRow& row : dense.family->tensors(dense))
      files_.emplace(Place{row.parameter, row.row}, std::move(row.file_name));
  }

  TensorView view(const checkpoint::FileTensor& tensor) {
    const std::string& name = tensor.row.parameter;
    const size_t at = name.find(".ffn.");
    const std::string layer = name.substr(0, at == std::string::npos ? 0 : at);
    if (name.ends_with(".ffn.router.weight")) return router(tensor);
    const int64_t width = model_.hidden_size, inner = model_.experts.intermediate_size;
    if (name.ends_with(".ffn.experts.down.weight"))
      return expert(tensor, tensor.row.row / width, Place{layer + ".ffn.down.weight", 0}, false, layer);
    if (name.ends_with(".ffn.experts.up.weight")) {
      const bool is_up = tensor.row.row % (2 * inner) != 0;
      return expert(tensor, tensor.row.row / (2 * inner),
                    Place{layer + ".ffn.up.weight", is_up ? dense_.intermediate_size : 0}, true, layer);
    }
    const auto& entry = weights_.entry(files_.at({name, tensor.row.row}));
    return {.name = tensor.row.file_name,
            .shape = tensor.shape,
            .memory_dtype = *entry.tensor->dtype,
            .storage = checkpoint::in_file(*entry.file, *entry.tensor)};
  }

 private:
  TensorView router(const checkpoint::FileTensor& tensor) const {
    return {.name = tensor.row.file_name,
            .shape = tensor.shape,
            .storage = std::make_shared<RouterStorage>(model_.hidden_size, options_.granularity,
                                                       static_cast<float>(model_.init_std),
                                                       key_for(options_, tensor.row.file_name))};
  }

  // `by_rows`: the expert's units are rows of the dense matrix, else columns.
  TensorView expert(const checkpoint::FileTensor& tensor, int64_t number, const Place& place, bool by_rows,
                    const std::string& layer) {
    const std::string& file = files_.at(place);
    const auto& entry = weights_.entry(file);
    FloatReader reader(*entry.file, *entry.tensor);
    const Shape& shape = entry.tensor->shape;
    if ((options_.noise > 0 || options_.fresh > 0) && !moments_.contains(file))
      moments_[file] = moments_of(reader, shape.elements());
    const int64_t inner = model_.experts.intermediate_size, slice = number % options_.granularity;
    Block block{.dense = std::move(reader),
                .dense_columns = shape[1],
                .first_row = by_rows ? slice * inner : 0,
                .first_column = by_rows ? 0 : slice * inner,
                .columns = tensor.shape[1],
                .factor = by_rows ? 1.0 : static_cast<double>(options_.granularity),
                .units_are_rows = by_rows,
                .fresh = nullptr,
                .moments = moments_[file],
                .noise = options_.noise,
                .key = key_for(options_, tensor.row.file_name)};
    if (options_.fresh > 0) {
      const std::string name = layer + fmt::format(".expert.{}", number);
      block.fresh = std::make_shared<FreshUnits>(inner, options_.fresh, options_.seed ^ hash64(name));
    }
    return {.name = tensor.row.file_name,
            .shape = tensor.shape,
            .storage = std::make_shared<ExpertStorage>(std::move(block))};
  }

  const models::ModelConfig& dense_;
  const checkpoint::WeightSource& weights_;
  const models::ModelConfig& model_;
  const UpcycleOptions& options_;
  std::map<Place, std::string> files_;
  std::map<std::string, Moments> moments_;  // by file name
};

void require_numbers(const models::ModelConfig& dense, const UpcycleOptions& options) {
  const int64_t slices = options.granularity;
  if (slices < 1 || dense.intermediate_size % slices != 0)
    throw ConfigError("[--granularity] found {}, expected a divisor of the FFN width {}", slices,
                      dense.intermediate_size);
  if (options.experts < 1 || options.experts % slices != 0)
    throw ConfigError("[--experts] found {}, expected a multiple of --granularity {}", options.experts,
                      slices);
  if (options.per_token < 1 || options.per_token > options.experts || options.per_token % slices != 0)
    throw ConfigError("[--top-k] found {}, expected a multiple of --granularity {}, at most the {} experts",
                      options.per_token, slices, options.experts);
  if (!(options.noise >= 0 && options.noise <= 10))
    throw ConfigError("[--noise] found {}, expected 0 to 10 standard deviations", options.noise);
  if (!(options.fresh >= 0 && options.fresh <= 1))
    throw ConfigError("[--fresh] found {}, expected a fraction from 0 to 1", options.fresh);
}

}  // namespace

models::ModelConfig upcycled(const models::ModelConfig& dense, const UpcycleOptions& options) {
  require_numbers(dense, options);
  models::ModelConfig model = dense;
  const bool is_llama = dense.family == &models::kLlama || dense.family == &models::kMistral;
  if (is_llama && !dense.qkv_bias && !dense.out_bias && !dense.ffn_bias) {
    model.family = &models::kMixtral;
    model.intermediate_size = dense.intermediate_size / options.granularity;
  } else if (dense.family == &models::kQwen3 && dense.sliding_window.size == 0) {
    model.family = &models::kQwen3Moe;
  } else {
    throw ConfigError(
        "[strata checkpoint upcycle] found a {} model{}: expected llama3 or mistral without biases (for "
        "mixtral) or qwen3 without sliding windows (for qwen3-moe)",
        dense.family->name, is_llama ? " with biases" : "");
  }
  model.experts = {.count = options.experts,
                   .intermediate_size = dense.intermediate_size / options.granularity,
                   .route = {.k = options.per_token, .normalize = true},
                   .balance_coefficient = 1e-3};
  const auto errors = models::errors_of(model);
  if (!errors.empty()) throw ConfigError("[strata checkpoint upcycle] {}", errors.front());
  return model;
}

std::vector<TensorView> upcycled_tensors(const models::ModelConfig& dense,
                                         const checkpoint::WeightSource& weights,
                                         const models::ModelConfig& model, const UpcycleOptions& options) {
  Upcycler upcycler(dense, weights, model, options);
  std::vector<TensorView> views;
  for (const checkpoint::FileTensor& tensor : checkpoint::file_tensors(model))
    views.push_back(upcycler.view(tensor));
  return views;
}

}  // namespace strata::interop
