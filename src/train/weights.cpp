#include "train/weights.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "base/random.h"

namespace strata::train {
namespace {

// Views of the tensors of `model` whose memory is that of the persistent values PREFIX + parameter.
std::vector<checkpoint::MutableTensorView> views_of(const models::ModelConfig& model,
                                                    const program::Executor& executor,
                                                    const std::string& ours, const std::string& theirs) {
  std::vector<checkpoint::MutableTensorView> views;
  for (const models::TensorRow& row : model.family->tensors(model)) {
    const program::Persistent& value = executor.set().at(ours + row.parameter);
    const int64_t columns = value.shape.rank() == 2 ? value.shape[1] : 1;
    checkpoint::MutableTensorView view;
    view.name = theirs + row.file_name;
    view.data = executor.arena() + value.offset + row.row * columns * 4;
    view.transposed = row.transposed;
    view.interleave = row.interleave;
    if (value.shape.rank() == 1) {
      view.shape = {row.rows};
    } else if (row.transposed) {
      view.shape = {columns, row.rows};
    } else {
      view.shape = {row.rows, columns};
    }
    views.push_back(std::move(view));
  }
  return views;
}

}  // namespace

std::vector<checkpoint::MutableTensorView> weight_views(const models::ModelConfig& model,
                                                        const program::Executor& executor) {
  return views_of(model, executor, "", "");
}

std::vector<checkpoint::MutableTensorView> moment_views(const models::ModelConfig& model,
                                                        const program::Executor& executor) {
  auto views = views_of(model, executor, "m.", "m/");
  auto second = views_of(model, executor, "v.", "v/");
  std::move(second.begin(), second.end(), std::back_inserter(views));
  return views;
}

std::vector<checkpoint::TensorView> read_only(const std::vector<checkpoint::MutableTensorView>& views) {
  std::vector<checkpoint::TensorView> out;
  out.reserve(views.size());
  for (const auto& view : views) out.push_back(view.view());
  return out;
}

void initialize_weights(program::Executor& executor, uint64_t seed) {
  constexpr int64_t kBlock = 1 << 16;  // a multiple of the four numbers that one counter gives
  const graph::Graph& graph = executor.program(0).graph;
  for (const graph::Parameter& parameter : graph.parameters()) {
    const graph::Value& value = graph.value(parameter.value);
    const int64_t n = value.shape.elements();
    float* out = executor.data_as<float>(value.name);
    switch (parameter.init.kind) {
      case graph::Init::Kind::kZeros:
        std::fill(out, out + n, 0.0f);
        break;
      case graph::Init::Kind::kOnes:
        std::fill(out, out + n, 1.0f);
        break;
      case graph::Init::Kind::kNormal: {
        const RandomKey key{seed, static_cast<uint32_t>(hash64(value.name))};
        const auto std = static_cast<float>(parameter.init.std);
        parallel_ranges(n, kBlock, [&](int64_t begin, int64_t end) {
          fill_normal(out + begin, end - begin, std, key, begin);
        });
        break;
      }
    }
  }
  for (const optim::Moments& moments : executor.program(0).moments) {
    for (const graph::ValueId id : {moments.first, moments.second}) {
      const graph::Value& value = graph.value(id);
      std::memset(executor.data(value.name), 0, static_cast<size_t>(value.bytes()));
    }
  }
}

std::string left_out_prefix(const models::ModelConfig& model, const checkpoint::TensorSource& source) {
  const std::string prefix(model.family->optional_prefix);
  const auto begins = [&](const auto& named) { return named.first.starts_with(prefix); };
  if (prefix.empty() || std::any_of(source.tensors.begin(), source.tensors.end(), begins)) return "";
  for (const models::TensorRow& row : model.family->tensors(model)) {
    if (row.file_name.starts_with(prefix) && source.tensors.contains(row.file_name.substr(prefix.size())))
      return prefix;
  }
  return "";
}

std::vector<std::string> file_names_of(const models::ModelConfig& model, const std::string& parameter) {
  std::vector<std::string> names;
  for (const models::TensorRow& row : model.family->tensors(model)) {
    if (row.parameter == parameter) names.push_back(row.file_name);
  }
  return names;
}

void load_hugging_face(const Path& folder, const models::ModelConfig& model,
                       const program::Executor& executor) {
  const checkpoint::TensorSource source = checkpoint::open_tensors(folder);
  auto views = weight_views(model, executor);
  const std::string left_out = left_out_prefix(model, source);
  for (auto& view : views) {
    if (view.name.starts_with(left_out)) view.name.erase(0, left_out.size());
  }
  checkpoint::LoadOptions options;
  options.check_finite = true;
  for (const auto& [name, entry] : source.tensors) {
    if (model.family->ignored(model, name) || model.family->ignored(model, left_out + name))
      options.ignore.push_back(name);
  }
  checkpoint::load_tensors(source, views, options);
}

}  // namespace strata::train
