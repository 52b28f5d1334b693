#include "checkpoint/weights.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/random.h"
#include "checkpoint/packed_weights.h"
#include "checkpoint/recut.h"
#include "models/text_part.h"
#include "program/pipeline.h"

namespace strata::checkpoint {
namespace {

// The family's optional prefix if the files omit it, else empty.
std::string left_out_prefix(const models::ModelConfig& model, const checkpoint::TensorSource& source) {
  std::string prefix(model.family->optional_prefix);
  const auto begins = [&](const auto& named) { return named.first.starts_with(prefix); };
  if (prefix.empty() || std::any_of(source.tensors.begin(), source.tensors.end(), begins)) return "";
  for (const models::TensorRow& row : model.family->tensors(model)) {
    if (row.file_name.starts_with(prefix) && source.tensors.contains(row.file_name.substr(prefix.size())))
      return prefix;
  }
  return "";
}

// `all`: rows of the tensor of which the row is a part.
Shape shape_in_file(const models::TensorRow& row, const Shape& parameter, int64_t all) {
  const int64_t rows = all / std::max<int64_t>(row.blocks, 1);  // of a block
  Shape shape = parameter.rank() == 1 ? Shape{rows}
                : row.transposed      ? Shape{parameter[1], rows}
                                      : Shape{rows, parameter[1]};
  if (row.blocks == 0) return shape;
  return shape.rank() == 1 ? Shape{row.blocks, shape[0]} : Shape{row.blocks, shape[0], shape[1]};
}
Shape shape_in_file(const models::TensorRow& row, const Shape& parameter) {
  return shape_in_file(row, parameter, row.rows);
}
Shape shape_of_tensor(const models::TensorRow& row, const Shape& parameter) {
  return shape_in_file(row, parameter, row.part.of_tensor(row.rows));
}

// Adds a part to its tensor, which is new if `views` do not have it.
void add_part(std::vector<checkpoint::MutableTensorView>& views, const models::TensorRow& row, Shape tensor,
              checkpoint::MutableTensorView part, std::unordered_map<std::string, size_t>& place) {
  const auto [at, is_new] = place.emplace(row.file_name, views.size());
  if (is_new) {
    checkpoint::MutableTensorView& whole = views.emplace_back();
    whole.name = row.file_name;
    whole.shape = std::move(tensor);
    whole.memory_dtype = part.memory_dtype;
    whole.transposed = row.transposed;
    whole.file_shape = row.shape;
  }
  checkpoint::MutableTensorView& whole = views[at->second];
  if (size_of(part.memory_dtype) > size_of(whole.memory_dtype)) whole.memory_dtype = part.memory_dtype;
  whole.parts.push_back(std::move(part));
}

// How the ranks of a mesh hold the values of a training program, by name. With a pipeline it includes the
// values of all stages.
class Placed {
 public:
  explicit Placed(const program::Executor& executor) : mesh_(executor.set().options.mesh) {
    if (mesh_.ranks() == 1) return;
    if (const auto& pipeline = executor.set().options.pipeline; pipeline != nullptr) {
      all_ = program::all_stages(executor.set());
      add(all_->graph);
    } else {
      for (const program::Program& program : executor.set().programs) add(program.graph);
    }
  }

  // The graph and the optimizer states of all stages.
  const graph::Graph& graph_of(const program::Program& program) const {
    return all_ ? all_->graph : program.graph;
  }
  const std::vector<optim::State>& states_of(const program::Program& program) const {
    return all_ ? all_->states : program.states;
  }

  Shape global_shape(const std::string& name, const program::Executor& executor) const {
    if (mesh_.ranks() == 1) return executor.set().at(name).shape;
    const graph::Value& placed = at(name);
    return placed.sharding.global_shape.rank() > 0 ? placed.sharding.global_shape : placed.shape;
  }
  DType dtype(const std::string& name, const program::Executor& executor) const {
    return mesh_.ranks() == 1 ? executor.set().at(name).dtype : at(name).dtype;
  }
  // For some rows of a value that belongs to a parameter; null for a single rank.
  std::shared_ptr<const Split> split(const std::string& name, const std::string& parameter, int64_t first_row,
                                     int64_t rows) const {
    if (mesh_.ranks() == 1) return nullptr;
    std::vector<int32_t> holders;
    if (all_) holders = all_->holders.at(parameter);
    return std::make_shared<const Split>(Split::of(at(name), mesh_, first_row, rows, std::move(holders)));
  }

 private:
  void add(const graph::Graph& graph) {
    for (graph::ValueId id = 0; id < graph.value_count(); ++id)
      values_.emplace(graph.value(id).name, &graph.value(id));
  }

  const graph::Value& at(const std::string& name) const {
    const auto found = values_.find(name);
    STRATA_CHECK(found != values_.end(), "'{}' is in no program's graph", name);
    return *found->second;
  }

  const graph::Mesh& mesh_;
  std::optional<program::AllStages> all_;
  std::unordered_map<std::string_view, const graph::Value*> values_;
};

// The tensors of the model's files, each as rows of the parameter that contains it. If ranks hold a parameter
// as several, each as rows of the one that contains them.
std::vector<models::TensorRow> tensors_held(const models::ModelConfig& model, const graph::Graph& graph) {
  std::unordered_multimap<std::string_view, const graph::Parameter*> parts;
  for (const graph::Parameter& parameter : graph.parameters()) {
    if (!parameter.part.of.empty()) parts.emplace(parameter.part.of, &parameter);
  }
  std::vector<models::TensorRow> tensors = model.family->tensors(model);
  for (models::TensorRow& row : tensors) {
    const auto [begin, end] = parts.equal_range(row.parameter);
    if (begin == end) continue;
    // The last one that begins at or before the row.
    const graph::Parameter* holder = nullptr;
    for (auto it = begin; it != end; ++it) {
      const graph::Parameter* const part = it->second;
      if (part->part.first_row <= row.row &&
          (holder == nullptr || part->part.first_row > holder->part.first_row))
        holder = part;
    }
    STRATA_CHECK(holder != nullptr, "no rank holds '{}'", row.file_name);
    row.parameter = graph.value(holder->value).name;
    row.row -= holder->part.first_row;
  }
  return tensors;
}

// A persistent value of an executor, from byte `begin` on.
class PersistentStorage final : public WritableStorage {
 public:
  PersistentStorage(const program::Executor& executor, const program::Persistent& value, int64_t begin)
      : executor_(executor), value_(value), begin_(begin) {}
  void read(int64_t offset, void* to, int64_t bytes) const override {
    executor_.download(value_, to, bytes, begin_ + offset);
  }
  void write(int64_t offset, const void* from, int64_t bytes) override {
    executor_.upload(value_, from, bytes, begin_ + offset);
  }

 private:
  const program::Executor& executor_;
  const program::Persistent& value_;
  int64_t begin_ = 0;
};

// Stands for a value of another pipeline stage, which is never read or written on this rank.
class StorageElsewhere final : public WritableStorage {
 public:
  void read(int64_t, void*, int64_t) const override { refuse(); }
  void write(int64_t, const void*, int64_t) override { refuse(); }

 private:
  [[noreturn]] static void refuse() { throw InternalError("a rank accesses a tensor that it does not hold"); }
};

std::shared_ptr<WritableStorage> storage_of(const program::Executor& executor, const std::string& name,
                                            int64_t first_byte) {
  const program::Persistent* const value = executor.set().find(name);
  if (value == nullptr && executor.set().options.pipeline != nullptr)
    return std::make_shared<StorageElsewhere>();
  return std::make_shared<PersistentStorage>(executor, executor.set().at(name), first_byte);
}

// Ignored tensors that are copies of the embedding or head must equal the original, with which the model
// computes: a tied head, and the copies of multi-token prediction layers.
void check_copies(const WeightSource& weights, const models::ModelConfig& model,
                  const std::vector<FileTensor>& tensors) {
  const auto tensor_of = [&](std::string_view parameter) {
    return std::find_if(tensors.begin(), tensors.end(),
                        [&](const FileTensor& tensor) { return tensor.row.parameter == parameter; });
  };
  for (const std::string& name : weights.ignored) {
    const bool predicts = model.predict_layers > 0;
    const bool of_head = predicts && name.ends_with(".shared_head.head.weight") && !model.tied;
    const bool of_table = model.tied || (predicts && name.ends_with(".embed_tokens.weight"));
    if (!of_head && !of_table) continue;
    const auto original = tensor_of(of_head ? "head.weight" : "embedding.weight");
    if (original == tensors.end()) continue;
    const auto& whole = weights.entry(original->row.file_name);
    const auto& copy = weights.source.tensors.find(name)->second;
    if (!(copy.tensor->shape == original->shape) || copy.tensor->dtype != whole.tensor->dtype) continue;
    const auto checksum = [](const checkpoint::TensorSource::Entry& entry) {
      return checkpoint::scan_tensor(*entry.file, *entry.tensor).checksums.front();
    };
    if (checksum(copy) == checksum(whole)) continue;
    throw DataError(
        "[{}] '{}' differs from '{}', although {}", weights.source.where, name, whole.tensor->name,
        predicts && name.find(".layers.") != std::string::npos
            ? "multi-token prediction layers share it; set num_nextn_predict_layers to 0"
            : "config.json ties them; if the model has a separate head, set tie_word_embeddings to false");
  }
}

}  // namespace

std::vector<checkpoint::MutableTensorView> weight_views(const models::ModelConfig& model,
                                                        const program::Executor& executor) {
  std::vector<checkpoint::MutableTensorView> views;
  std::unordered_map<std::string, size_t> place;  // of tensors with parts
  const Placed placed(executor);
  for (const models::TensorRow& row : tensors_held(model, placed.graph_of(executor.program(0)))) {
    const Shape shape = placed.global_shape(row.parameter, executor);
    const int64_t columns = shape.rank() == 2 ? shape[1] : 1;
    auto split = placed.split(row.parameter, row.parameter, row.row, row.rows);
    const DType dtype = placed.dtype(row.parameter, executor);
    const int64_t first_byte = split ? 0 : row.row * columns * size_of(dtype);
    MutableTensorView view{.name = row.file_name,
                           .shape = shape_in_file(row, shape),
                           .memory_dtype = dtype,
                           .storage = storage_of(executor, row.parameter, first_byte),
                           .transposed = row.transposed,
                           .interleave = row.interleave,
                           .blocks = row.blocks,
                           .split = std::move(split),
                           .part = row.part};
    if (row.part.whole()) {
      view.file_shape = row.shape;
      views.push_back(std::move(view));
    } else {
      add_part(views, row, shape_of_tensor(row, shape), std::move(view), place);
    }
  }
  return views;
}

std::vector<checkpoint::MutableTensorView> state_views(const models::ModelConfig& model,
                                                       const program::Executor& executor) {
  const Placed placed(executor);
  const graph::Graph& graph = placed.graph_of(executor.program(0));
  // One state after another, each in the order of the model's tensors.
  std::vector<std::string> names;
  std::multimap<std::pair<std::string, std::string>, const optim::State*> states;
  for (const optim::State& state : placed.states_of(executor.program(0))) {
    if (std::find(names.begin(), names.end(), state.name) == names.end()) names.push_back(state.name);
    states.insert({{state.name, graph.value(state.parameter).name}, &state});
  }
  std::vector<checkpoint::MutableTensorView> views;
  const auto tensors = tensors_held(model, graph);
  for (const std::string& name : names) {
    for (const models::TensorRow& row : tensors) {
      const auto [begin, end] = states.equal_range({name, row.parameter});
      for (auto it = begin; it != end; ++it) {
        const optim::State& state = *it->second;
        if (row.row < state.first_row || row.row + row.rows > state.first_row + state.rows) continue;
        if (state.layout == optim::StateLayout::kTensor && row.row != state.first_row) continue;
        const graph::Value& value = graph.value(state.value);
        const Shape shape = placed.global_shape(value.name, executor);
        const std::string part = row.part.whole() ? "" : fmt::format("#{}", row.part.first);
        checkpoint::MutableTensorView view{.name = name + "/" + row.file_name + part,
                                           .shape = shape,
                                           .memory_dtype = value.dtype,
                                           .storage = nullptr};
        int64_t first_byte = 0;
        const int64_t rows_of_part = (shape.rank() > 0 ? shape[0] : 1) / state.parts;
        if (state.layout == optim::StateLayout::kTensor) {
          if (state.parts > 1) view.shape.set(0, rows_of_part);
          view.split = placed.split(value.name, row.parameter, state.part * rows_of_part, rows_of_part);
        } else {
          const int64_t first_row = state.part * rows_of_part + row.row - state.first_row;
          view.shape = shape_in_file(row, shape);
          view.split = placed.split(value.name, row.parameter, first_row, row.rows);
          if (!view.split) first_byte = first_row * (value.bytes() / std::max<int64_t>(state.rows, 1));
          view.transposed = row.transposed && shape.rank() == 2;
          view.interleave = row.interleave;
          view.blocks = row.blocks;
          if (row.part.whole() && state.layout == optim::StateLayout::kElements) view.file_shape = row.shape;
        }
        view.storage = storage_of(executor, value.name, first_byte);
        views.push_back(std::move(view));
      }
    }
  }
  return views;
}

std::vector<checkpoint::TensorView> read_only(const std::vector<checkpoint::MutableTensorView>& views) {
  std::vector<checkpoint::TensorView> out;
  out.reserve(views.size());
  for (const auto& view : views) out.push_back(view.view());
  return out;
}

std::vector<FileTensor> file_tensors(const models::ModelConfig& model) {
  const auto shapes = models::parameter_shapes(model);
  std::vector<FileTensor> tensors;
  std::unordered_map<std::string, size_t> place;  // of tensors with parts
  for (models::TensorRow& row : model.family->tensors(model)) {
    const auto found = shapes.find(row.parameter);
    STRATA_CHECK(found != shapes.end(), "'{}' belongs to '{}', which is not in the graph", row.file_name,
                 row.parameter);
    if (!row.part.whole()) {
      const auto [at, is_new] = place.emplace(row.file_name, tensors.size());
      if (!is_new) {
        tensors[at->second].others.push_back(std::move(row));
        continue;
      }
    }
    const Shape shape = row.shape.rank() > 0 ? row.shape : shape_of_tensor(row, found->second);
    tensors.push_back({std::move(row), shape});
  }
  return tensors;
}

const checkpoint::TensorSource::Entry& WeightSource::entry(const std::string& file_name) const {
  return source.tensors.find(name_in_file(file_name))->second;
}

std::string WeightSource::name_in_file(const std::string& file_name) const {
  std::string name = file_name.substr(file_name.starts_with(left_out) ? left_out.size() : 0);
  if (source.tensors.contains(name)) return name;
  for (const auto& [today, before] : old_endings) {
    if (!name.ends_with(today)) continue;
    std::string old = name.substr(0, name.size() - today.size()).append(before);
    if (source.tensors.contains(old)) return old;
  }
  return name;
}

namespace {

// The text model's name of a tensor of the whole model; nothing if it belongs to another part.
std::optional<std::string> own_name(const std::string& file_name, const models::TextPart& part) {
  for (const auto& [whole, own] : part.names)
    if (file_name.starts_with(whole)) return std::string(own).append(file_name.substr(whole.size()));
  return std::nullopt;
}

bool holds_text_part(const TensorSource& source, const models::TextPart& part) {
  return std::any_of(source.tensors.begin(), source.tensors.end(),
                     [&](const auto& named) { return own_name(named.first, part).has_value(); });
}

// Renames the tensors of a vision-language model's text model to their names in a text-only model. Returns
// the names of the vision tensors.
std::vector<std::string> take_text_part(TensorSource& source, const models::TextPart& part) {
  std::vector<std::string> vision;
  decltype(source.tensors) tensors;
  for (const auto& [name, entry] : source.tensors) {
    const auto begins = [&name = name](std::string_view with) { return name.starts_with(with); };
    if (std::any_of(part.ignored_prefixes.begin(), part.ignored_prefixes.end(), begins))
      vision.push_back(name);
    tensors.emplace(own_name(name, part).value_or(name), entry);
  }
  source.tensors = std::move(tensors);
  return vision;
}

// Reports the tensors of a vision-language model that are not read.
void warn_left_out(const WeightSource& weights, const models::TextPart& part) {
  std::string names;
  for (const std::string_view each : part.ignored_prefixes) {
    const auto begins = [&](const std::string& name) { return name.starts_with(each); };
    if (std::any_of(weights.ignored.begin(), weights.ignored.end(), begins))
      names += fmt::format("{}{}*", names.empty() ? "" : ", ", each);
  }
  log_warning(
      "[{}] is a vision-language model: only its text model is read; {} vision tensors are ignored ({})",
      weights.source.where, weights.ignored.size(), names);
}

// The convolutions of which several tensors have the channels.
std::vector<CutTensors> cut_convolutions(const WeightSource& weights,
                                         const std::vector<FileTensor>& tensors) {
  std::map<std::string, std::vector<const FileTensor*>> of_parameter;
  for (const FileTensor& tensor : tensors) {
    const Shape& shape = tensor.row.shape;
    if (tensor.row.part.whole() && shape.rank() == 3 && shape[1] == 1)
      of_parameter[tensor.row.parameter].push_back(&tensor);
  }
  std::vector<CutTensors> groups;
  for (auto& [parameter, found] : of_parameter) {
    std::sort(found.begin(), found.end(), [](auto* a, auto* b) { return a->row.row < b->row.row; });
    CutTensors& group = groups.emplace_back();
    for (const FileTensor* tensor : found)
      group.tensors.push_back({weights.name_in_file(tensor->row.file_name), DType::kF32, tensor->shape});
  }
  return groups;
}

// Opens the files and checks that they contain every tensor of the model, in its shape.
WeightSource matching_weights(const Path& folder, const models::ModelConfig& model,
                              const std::vector<FileTensor>& tensors, bool warns = false) {
  WeightSource weights{checkpoint::open_tensors(folder), {}, {}, model.family->old_endings, {}};
  if (std::filesystem::exists(folder / "manifest.json")) {
    const Manifest manifest = read_manifest(folder);
    check_small_files(folder, manifest);
    weights.checksums.emplace(manifest);
    for (const auto& file : weights.source.files) weights.checksums->check_head(*file);
  }
  checkpoint::unpack_weights(weights.source);
  if (const models::TextPart* const part = models::text_part_of(*model.family);
      part != nullptr && holds_text_part(weights.source, *part)) {
    weights.ignored = take_text_part(weights.source, *part);
    if (warns && !weights.ignored.empty()) warn_left_out(weights, *part);
    weights.source.where += fmt::format(" (text_config of {})", part->model_type);
  }
  weights.left_out = left_out_prefix(model, weights.source);
  for (const auto& [name, entry] : weights.source.tensors) {
    if (model.family->ignored(model, name) || model.family->ignored(model, weights.left_out + name))
      weights.ignored.push_back(name);
  }
  if (!weights.checksums) recut(weights.source, cut_convolutions(weights, tensors));
  std::vector<checkpoint::TensorSpec> expected;
  for (const FileTensor& tensor : tensors)
    expected.push_back({weights.name_in_file(tensor.row.file_name), DType::kF32, tensor.shape});
  checkpoint::check_tensors(weights.source, expected, {.ignore = weights.ignored});
  return weights;
}

}  // namespace

void check_weights(const Path& folder, const models::ModelConfig& model) {
  matching_weights(folder, model, file_tensors(model));
}

bool holds_prediction(const Path& folder, const models::ModelConfig& model) {
  const std::string name = fmt::format("layers.{}.enorm.weight", model.layers);
  const TensorSource source = open_tensors(folder);
  return std::any_of(source.tensors.begin(), source.tensors.end(),
                     [&](const auto& named) { return named.first.ends_with(name); });
}

WeightSource open_weights(const Path& folder, const models::ModelConfig& model) {
  const auto tensors = file_tensors(model);
  WeightSource weights = matching_weights(folder, model, tensors, true);
  check_copies(weights, model, tensors);
  return weights;
}

void check_finite(const WeightSource& weights, const models::ModelConfig& model) {
  std::vector<std::string> names;
  for (const models::TensorRow& row : model.family->tensors(model)) names.push_back(row.file_name);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  parallel_for(static_cast<int64_t>(names.size()), [&](int64_t i) {
    const auto& entry = weights.entry(names[static_cast<size_t>(i)]);
    const TensorChecksums* const expected =
        weights.checksums ? &weights.checksums->of(*entry.file, *entry.tensor) : nullptr;
    const TensorScan scan =
        checkpoint::scan_tensor(*entry.file, *entry.tensor, expected != nullptr ? expected->chunk_bytes : 0);
    if (expected != nullptr && scan.checksums != expected->values)
      throw DataError("[{}] '{}' does not match its checksum: the file is damaged",
                      entry.file->path().string(), entry.tensor->name);
    if (scan.first_not_finite >= 0)
      throw DataError("[{}] '{}' has a NaN or infinity at element {}; these weights cannot be used",
                      entry.file->path().string(), entry.tensor->name, scan.first_not_finite);
  });
}

void load_weights(const WeightSource& weights, const models::ModelConfig& model,
                  const program::Executor& executor) {
  Together ranks(executor.ranks().all());
  ranks.all([&] {
    auto views = weight_views(model, executor);
    for (auto& view : views) view.name = weights.name_in_file(view.name);
    checkpoint::load_tensors(weights.source, views,
                             {.ignore = weights.ignored,
                              .check_finite = true,
                              .checksums = weights.checksums ? &*weights.checksums : nullptr,
                              .rank = ranks.rank()});
  });
}

void load_hugging_face(const Path& folder, const models::ModelConfig& model,
                       const program::Executor& executor) {
  load_weights(open_weights(folder, model), model, executor);
}

}  // namespace strata::checkpoint
