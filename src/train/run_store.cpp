#include "train/run_store.h"

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/version.h"
#include "checkpoint/weights.h"
#include "program/update.h"
#include "train/facts.h"

namespace strata::training {

using Json = nlohmann::ordered_json;
using optim::GuardHistory;

namespace {

Json to_json(const std::vector<data::SourcePosition>& sources) {
  Json list = Json::array();
  for (const data::SourcePosition& at : sources) {
    list.push_back({{"name", at.name},
                    {"tokens", at.tokens},
                    {"window", at.layout.window},
                    {"look_ahead", at.layout.look_ahead},
                    {"shuffle", at.layout.shuffle},
                    {"packed", at.layout.packed},
                    {"seed", at.layout.seed},
                    {"epoch", at.epoch},
                    {"offset", at.offset},
                    {"read", at.read}});
  }
  return list;
}

std::vector<data::SourcePosition> sources_from(const nlohmann::json& list) {
  std::vector<data::SourcePosition> out;
  for (const auto& json : list) {
    data::SourcePosition& at = out.emplace_back();
    json.at("name").get_to(at.name);
    json.at("tokens").get_to(at.tokens);
    json.at("window").get_to(at.layout.window);
    json.at("look_ahead").get_to(at.layout.look_ahead);
    json.at("shuffle").get_to(at.layout.shuffle);
    json.at("packed").get_to(at.layout.packed);
    json.at("seed").get_to(at.layout.seed);
    json.at("epoch").get_to(at.epoch);
    json.at("offset").get_to(at.offset);
    json.at("read").get_to(at.read);
    if (at.layout.window < 1 || at.layout.look_ahead < 0 || at.epoch < 0 || at.offset < 0 || at.read < 0)
      throw DataError("[{}] is not a position in a source", dump_json(json));
  }
  return out;
}

Json values_json(const GuardHistory::Values& values, int64_t accepted) {
  const auto count = static_cast<std::ptrdiff_t>(std::min(accepted, optim::kMostGuardWindow));
  return {{"first", std::vector<double>(values.first.begin(), values.first.begin() + count)},
          {"recent", std::vector<double>(values.recent.begin(), values.recent.begin() + count)}};
}

void take_values(const nlohmann::json& json, GuardHistory::Values& values) {
  const auto take = [&](const char* name, auto& to) {
    const auto from = json.at(name).get<std::vector<double>>();
    if (from.size() > to.size())
      throw DataError("[guard] has {} values, at most {} fit", from.size(), to.size());
    std::copy(from.begin(), from.end(), to.begin());
  };
  take("first", values.first);
  take("recent", values.recent);
}

Json to_json(const optim::LossScale& scale) {
  return {{"scale", scale.scale},
          {"good_steps", scale.good_steps},
          {"patience", scale.patience},
          {"adaptive", scale.is_adaptive != 0}};
}

void take_loss_scale(const nlohmann::json& json, optim::LossScale& scale) {
  json.at("scale").get_to(scale.scale);
  json.at("good_steps").get_to(scale.good_steps);
  json.at("patience").get_to(scale.patience);
  scale.is_adaptive = json.at("adaptive").get<bool>() ? 1 : 0;
  int exponent = 0;
  if (!std::isfinite(scale.scale) || scale.scale < optim::kLeastLossScale ||
      std::frexp(scale.scale, &exponent) != 0.5f)
    throw DataError("[guard] loss_scale: found {}, expected a power of two of at least 1", scale.scale);
  if (scale.good_steps < 0 || scale.good_steps >= optim::kLossScaleWindow ||
      scale.patience > optim::kLossScalePatience)
    throw DataError(
        "[guard] loss_scale: found {} good steps and a patience of {}, expected 0 to {} and at most {}",
        scale.good_steps, scale.patience, optim::kLossScaleWindow - 1, optim::kLossScalePatience);
}

GuardHistory guard_from(const nlohmann::json& json) {
  GuardHistory history;
  json.at("accepted").get_to(history.accepted);
  json.at("skipped_in_row").get_to(history.skipped_in_row);
  if (history.accepted < 0 || history.skipped_in_row < 0) throw DataError("[guard] has a negative count");
  take_values(json.at("loss"), history.loss);
  take_values(json.at("grad_norm"), history.grad_norm);
  if (json.contains("loss_scale")) take_loss_scale(json.at("loss_scale"), history.loss_scale);
  return history;
}

// Steps, samples or tokens. Later sums of them stay within 64 bits.
int64_t count_in(const nlohmann::json& json, const char* key, const std::string& where) {
  constexpr int64_t kMost = int64_t{1} << 60;
  const auto count = json.at(key).get<int64_t>();
  if (count < 0 || count > kMost)
    throw DataError("[{}] {}: found {}, expected a number from 0 to {}", where, key, count, kMost);
  return count;
}

Path accepted_path(const Path& folder) {
  return folder / "data" / "accepted.json";
}

}  // namespace

std::string to_json(const TrainingState& state) {
  Json json;
  json["step"] = state.step;
  json["updates"] = state.updates;
  json["samples"] = state.samples;
  json["tokens"] = state.tokens;
  if (state.next_sample) json["next_sample"] = *state.next_sample;
  json["order"] = state.order;
  json["origin"] = {{"step", state.origin.step},
                    {"sample", state.origin.sample},
                    {"sources", to_json(state.origin.sources)}};
  json["sources"] = to_json(state.sources);
  json["seed"] = state.seed;
  json["tokenizer"] = state.tokenizer;
  json["data"] = state.data;
  json["guard"] = {{"accepted", state.guard.accepted},
                   {"skipped_in_row", state.guard.skipped_in_row},
                   {"loss", values_json(state.guard.loss, state.guard.accepted)},
                   {"grad_norm", values_json(state.guard.grad_norm, state.guard.accepted)}};
  if (state.guard.loss_scale.scale > 0) json["guard"]["loss_scale"] = to_json(state.guard.loss_scale);
  if (state.noise.measured > 0) json["noise"] = to_json(state.noise);
  if (!state.noise_ramp.empty()) json["noise_ramp"] = state.noise_ramp;
  if (!state.journal.is_empty()) json["journal"] = state.journal.to_json();
  return dump_json(json, 2) + "\n";
}

TrainingState training_state_from_json(const std::string& text, const std::string& where) {
  try {
    const auto json = parse_json<nlohmann::json>(text);
    TrainingState state{.step = count_in(json, "step", where),
                        .updates = count_in(json, "updates", where),
                        .samples = count_in(json, "samples", where),
                        .tokens = count_in(json, "tokens", where),
                        .next_sample = {},
                        .order = {},
                        .origin = {},
                        .sources = {},
                        .seed = json.at("seed").get<uint64_t>(),
                        .tokenizer = json.at("tokenizer").get<std::string>(),
                        .data = json.at("data").get<std::string>()};
    if (json.contains("next_sample")) {
      state.next_sample = count_in(json, "next_sample", where);
      state.order = json.at("order").get<std::string>();
      const auto& origin = json.at("origin");
      state.origin = {count_in(origin, "step", where), count_in(origin, "sample", where),
                      sources_from(origin.at("sources"))};
      state.sources = sources_from(json.at("sources"));
    }
    if (json.contains("guard")) state.guard = guard_from(json.at("guard"));  // older checkpoints have none
    if (json.contains("noise"))
      state.noise = noise_state_from_json(json.at("noise").get<std::string>(), where);
    state.noise_ramp = json.value("noise_ramp", std::string());
    if (json.contains("journal")) state.journal = Journal::from_json(json.at("journal"), where);
    return state;
  } catch (const nlohmann::json::exception& error) {
    throw DataError("[{}] is not the state of a run: {}", where, error.what());
  }
}

std::optional<Path> stored_tokenizer(const Path& run) {
  for (const auto& listed : checkpoint::list_checkpoints(run / "checkpoints")) {
    try {
      const Path path = listed.path / "tokenizer.json";
      const auto manifest = checkpoint::read_manifest(listed.path);
      const checkpoint::StoredFile* file = manifest.find("tokenizer.json");
      if (file != nullptr && hash64(read_file(path)) == file->checksum) return path;
    } catch (const Error&) {  // loading the checkpoint reports the error
    }
  }
  return std::nullopt;
}

RunStore::RunStore(FileSystem& files, const Path& folder, Role role) : files_(files), folder_(folder) {
  if (role == Role::kReader) return;
  files_.create_directories(folder_);
  lock_.emplace(folder_ / ".lock");
}

bool RunStore::holds_run() const {
  return std::filesystem::exists(folder_ / "run.toml") || holds_checkpoints();
}

bool RunStore::holds_checkpoints() const {
  return !checkpoint::list_checkpoints(checkpoints()).empty();
}

int64_t RunStore::newest_checkpoint() const {
  const auto listed = checkpoint::list_checkpoints(checkpoints());
  return listed.empty() ? 0 : listed.front().step;
}

void RunStore::store_config(const config::RunConfig& config, const std::string& machine) {
  write_file_atomically(files_, folder_ / "run.toml", config::resolved_toml(config, machine));
}

std::optional<TrainingState> RunStore::likely_state(const std::string& resume) const {
  // Loading the checkpoint reports its errors.
  const auto of = [](const auto& find) -> std::optional<TrainingState> {
    try {
      const Path path = find() / "state.json";
      return training_state_from_json(read_file(path), path.string());
    } catch (const Error&) {
      return std::nullopt;
    }
  };
  if (resume != "auto" && resume != "never") return of([&] { return checkpoint::resolve_model(resume); });
  for (const auto& listed : checkpoint::list_checkpoints(checkpoints())) {
    if (auto state = of([&] { return listed.path; })) return state;
  }
  return std::nullopt;
}

void RunStore::accept_data(const std::string& fingerprint) {
  files_.create_directories(accepted_path(folder_).parent_path());
  write_file_atomically(files_, accepted_path(folder_), dump_json(Json{{"data", fingerprint}}) + "\n");
}

bool RunStore::accepted_data(const std::string& fingerprint) const {
  if (!std::filesystem::exists(accepted_path(folder_))) return false;
  const auto json = parse_json_or_discard<nlohmann::json>(read_file(accepted_path(folder_)));
  return json.is_object() && json.value("data", nlohmann::json()) == fingerprint;
}

std::optional<Journal> RunStore::journal() const {
  const Path path = folder_ / "journal.json";
  if (!std::filesystem::exists(path)) return std::nullopt;
  const auto json = parse_json_or_discard<nlohmann::json>(read_file(path));
  return Journal::from_json(json, path.string());
}

void RunStore::write_journal(const Journal& journal) {
  write_file_atomically(files_, folder_ / "journal.json", dump_json(journal.to_json(), 1) + "\n");
}

namespace {

// A checkpoint of a run without such states does not change them.
void clear_optional_states(const program::Executor& executor) {
  for (const program::Persistent& entry : executor.set().persistent) {
    if (entry.role == graph::Role::kState && optim::is_optional_state(entry.name, '.'))
      executor.write_floats(entry.name, std::vector<float>(static_cast<size_t>(entry.shape.elements())));
  }
}

// The counters and values that instructions count on, which tensor files do not have.
void put_counters(const program::Executor& executor, const TrainingState& state) {
  program::set_updates_made(executor, state.updates);
  program::set_guard_history(executor, state.guard);
}

}  // namespace

std::optional<TrainingState> RunStore::load_newest(const models::ModelConfig& model,
                                                   const program::Executor& executor, int64_t at_most) const {
  const auto weights = checkpoint::weight_views(model, executor);
  const auto states = checkpoint::state_views(model, executor);
  clear_optional_states(executor);
  const auto loaded = checkpoint::load_newest_checkpoint(checkpoints(), weights, states, {.at_most = at_most},
                                                         executor.ranks().all());
  if (!loaded) return std::nullopt;
  for (const auto& skipped : loaded->skipped) {
    log_warning("checkpoint {} is unusable and was skipped: {}", skipped.path.string(), skipped.reason);
  }
  const TrainingState state =
      training_state_from_json(loaded->state_json, (loaded->path / "state.json").string());
  put_counters(executor, state);
  return state;
}

std::optional<TrainingState> RunStore::load_at_most(int64_t step, const models::ModelConfig& model,
                                                    const program::Executor& executor) const {
  try {
    return load_newest(model, executor, step);
  } catch (const DataError& error) {  // on all ranks
    log_warning("{}", error.what());
    return std::nullopt;
  }
}

Path named_checkpoint(const std::string& checkpoint) {
  Path path = checkpoint::resolve_model(checkpoint);
  if (!std::filesystem::exists(path / "manifest.json")) {
    throw ConfigError(
        "[--resume {}] is not a checkpoint of a run: it has no manifest.json; to start from the weights of a "
        "Hugging Face directory, set model.from",
        checkpoint);
  }
  return path;
}

TrainingState RunStore::load(const std::string& checkpoint, const models::ModelConfig& model,
                             const program::Executor& executor) const {
  const Path path = named_checkpoint(checkpoint);
  const auto weights = checkpoint::weight_views(model, executor);
  const auto states = checkpoint::state_views(model, executor);
  clear_optional_states(executor);
  const auto loaded = checkpoint::load_checkpoint(path, weights, states, executor.ranks().all());
  TrainingState state = training_state_from_json(loaded.state_json, (path / "state.json").string());
  put_counters(executor, state);
  return state;
}

void RunStore::set_aside_after(int64_t step) {
  for (const auto& listed : checkpoint::list_checkpoints(checkpoints())) {
    if (listed.step <= step) continue;
    Path aside = listed.path;
    aside += checkpoint::kDiscardedSuffix;
    files_.remove_tree(aside);
    files_.rename(listed.path, aside);
    log_warning("the run goes back to step {}: {} was renamed to {}", step, listed.path.string(),
                aside.filename().string());
  }
}

checkpoint::CheckpointContent RunStore::content_of(const Save& save) const {
  checkpoint::CheckpointContent content;
  content.step = save.state.step;
  content.model.files = interop::companion_files(save.model, save.tokenizer);
  content.model.weights = checkpoint::read_only(checkpoint::weight_views(save.model, save.executor));
  // As memory holds them, so that a resumed run has the same bits: fp32, and bf16 without a master.
  content.model.dtype = DType::kF32;
  DType declared = DType::kF32;
  for (checkpoint::TensorView& view : content.model.weights) {
    view.keeps_dtype = true;
    if (view.memory_dtype != DType::kF32) declared = view.memory_dtype;
  }
  content.model.config_json = models::write_config_json(save.model, declared);
  content.optimizer = checkpoint::read_only(checkpoint::state_views(save.model, save.executor));
  content.state_json = to_json(save.state);
  content.health = save.health;
  content.program = fmt::format("strata {}", program_version());
  content.retention = save.retention;
  return content;
}

uint64_t RunStore::save(const Save& save) {
  const auto saved =
      checkpoint::save_checkpoint(files_, checkpoints(), content_of(save), save.executor.ranks().all());
  for (const std::string& warning : saved.warnings) log_warning("{}", warning);
  return saved.bytes;
}

void RunStore::write_final(const Save& save) {
  auto files = interop::companion_files(save.model, save.tokenizer);
  const Path toml = folder_ / "run.toml";
  const auto facts = facts_of(folder_.filename().string(), save.state, save.health,
                              fmt::format("strata {}", program_version()),
                              std::filesystem::exists(toml) ? read_file(toml) : "");
  files.push_back({"README.md", interop::model_card(save.model, facts)});
  checkpoint::write_hf_directory(
      files_, folder_ / "final",
      {.config_json = models::write_config_json(save.model, DType::kBF16),
       .files = std::move(files),
       .weights = checkpoint::read_only(checkpoint::weight_views(save.model, save.executor)),
       .dtype = DType::kBF16},
      save.executor.ranks().all());
}

}  // namespace strata::training
