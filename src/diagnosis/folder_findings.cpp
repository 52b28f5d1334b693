// Checkpoints, disk, data and evaluation.
#include <fmt/core.h>

#include <algorithm>

#include "base/clock.h"
#include "diagnosis/findings.h"

namespace strata::diagnosis {
namespace {

std::optional<Found> find_unhealthy_checkpoint(const Case& at) {
  const auto newest = std::find_if(at.run.checkpoints.begin(), at.run.checkpoints.end(),
                                   [](const CheckpointFacts& one) { return one.damage.empty(); });
  if (newest == at.run.checkpoints.end() || !newest->health || newest->health->good()) return std::nullopt;
  const CheckpointFacts* healthy = at.healthy_checkpoint();
  Found found{
      .sentence = fmt::format(
          "The newest checkpoint, of step {}, was saved with values that are not finite{}.", newest->step,
          healthy == nullptr ? "; no healthy one is left"
                             : fmt::format("; `strata train {} --resume {}` starts from a healthy one",
                                           at.run.folder.string(), healthy->path.string())),
      .evidence = {{"step", newest->step}, {"healthy_step", nullptr}},
      .settings = {}};
  if (healthy != nullptr) found.evidence["healthy_step"] = healthy->step;
  return found;
}

std::optional<Found> find_damaged_checkpoint(const Case& at) {
  std::vector<int64_t> steps;
  std::string first;
  for (const CheckpointFacts& one : at.run.checkpoints) {
    if (one.damage.empty()) continue;
    steps.push_back(one.step);
    if (first.empty()) first = one.damage;
  }
  if (steps.empty()) return std::nullopt;
  return Found{
      .sentence = fmt::format("{} cannot be used: {}", counted_in(std::ssize(steps), "checkpoint"), first),
      .evidence = {{"steps", steps}, {"of", at.run.checkpoints.size()}},
      .settings = {}};
}

std::optional<Found> find_disk_full_soon(const Case& at) {
  constexpr uint64_t kCheckpoints = 2;  // one is written before the oldest is removed
  if (at.state == RunState::kFinished || !at.run.free_bytes) return std::nullopt;
  uint64_t bytes = 0;
  for (const CheckpointFacts& one : at.run.checkpoints) bytes = std::max(bytes, one.bytes);
  const uint64_t free = *at.run.free_bytes;
  if (bytes == 0 || free >= kCheckpoints * bytes) return std::nullopt;
  Found found{.sentence = fmt::format(
                  "The disk has {} left, less than two checkpoints of {}: saves will fail.",
                  human_bytes(static_cast<double>(free)), human_bytes(static_cast<double>(bytes))),
              .evidence = {{"free_bytes", free},
                           {"checkpoint_bytes", bytes},
                           {"checkpoints", at.run.checkpoints.size()}},
              .settings = {}};
  if (at.run.config) {
    const config::CheckpointTable& table = at.run.config->checkpoint;
    if (table.keep_every.kind != config::Interval::Kind::kNever)
      found.settings.emplace_back("checkpoint.keep_every=\"never\"");
    // Two, so that a damaged one is not the only one.
    if (table.keep_last > 2) found.settings.emplace_back("checkpoint.keep_last=2");
  }
  return found;
}

std::optional<Found> find_repeated_data(const Case& at) {
  constexpr int64_t kPasses =
      4;  // up to which repeated tokens are almost as good as new ones (arXiv 2305.16264)
  const auto most =
      std::max_element(at.run.sources.begin(), at.run.sources.end(),
                       [](const SourceProgress& a, const SourceProgress& b) { return a.epoch < b.epoch; });
  if (most == at.run.sources.end() || most->epoch <= kPasses) return std::nullopt;
  return Found{
      .sentence = fmt::format(
          "The model has read {} {} times ({} tokens): beyond 4 passes repeated text helps less and less, and the "
          "model learns it by heart. Add text, or train for fewer steps.",
          most->name.empty() ? "its data" : "source " + most->name, most->epoch,
          human_count(static_cast<double>(most->tokens))),
      .evidence = {{"source", most->name}, {"passes", most->epoch}, {"tokens", most->tokens}},
      .settings = {fmt::format("data.epochs={}", kPasses)}};
}

std::optional<Found> find_evaluation_missing(const Case& at) {
  constexpr int64_t kLeastSteps = 500;
  for (const std::string& name : at.run.metrics.names()) {
    if (name.starts_with("eval/")) return std::nullopt;
  }
  if (at.step < kLeastSteps) return std::nullopt;
  Found found{
      .sentence = fmt::format(
          "Nothing was evaluated in {} steps: overfitting cannot be seen, and no best checkpoint is kept.",
          at.step),
      .evidence = {{"steps", at.step}},
      .settings = {}};
  if (at.run.config && at.run.config->eval.interval.kind == config::Interval::Kind::kNever)
    found.settings.emplace_back("eval.interval=\"100 steps\"");
  if (!at.run.config || at.run.config->data.valid.empty())
    found.settings.emplace_back("data.valid_fraction=0.01");
  return found;
}

std::optional<Found> find_no_targets(const Case& at) {
  constexpr double kShare = 0.01;
  constexpr int64_t kLeast = 3;
  int64_t without = 0, first = 0;
  for (size_t i = 0; i < at.run.marks.size(); ++i) {
    if (!at.run.marks[i].skipped || at.run.marks[i].has_targets) continue;
    if (without++ == 0) first = at.run.metrics.steps()[i];
  }
  const double share =
      static_cast<double>(without) / static_cast<double>(std::max<size_t>(1, at.run.marks.size()));
  if (without < kLeast || share < kShare) return std::nullopt;
  return Found{
      .sentence = fmt::format(
          "{} ({}) had no token to predict, first step {}: their documents are empty or a single token.",
          counted_in(without, "step"), percent(share), first),
      .evidence = {{"steps", without}, {"share", share}, {"first_step", first}},
      .settings = {"data.pack=\"stream\""}};
}

std::optional<Found> find_damaged_files(const Case& at) {
  if (at.run.damaged.empty()) return std::nullopt;
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const DamagedFile& one : at.run.damaged)
    files.push_back({{"file", one.file}, {"problem", one.problem}});
  const DamagedFile& first = at.run.damaged.front();
  return Found{.sentence = fmt::format(
                   "{} could not be read completely, first {}: {}; this diagnosis lacks their content.",
                   counted_in(std::ssize(at.run.damaged), "file"), first.file, first.problem),
               .evidence = {{"files", files}},
               .settings = {}};
}

}  // namespace

std::span<const FindingKind> folder_findings() {
  static constexpr FindingKind kKinds[] = {
      {"disk_full_soon", "the disk has less space than two checkpoints need", find_disk_full_soon},
      {"unhealthy_checkpoint", "the newest checkpoint was saved with NaN or infinite values",
       find_unhealthy_checkpoint},
      {"damaged_checkpoint", "a checkpoint is incomplete or its manifest is damaged",
       find_damaged_checkpoint},
      {"repeated_data", "a source was read more than 4 times", find_repeated_data},
      {"evaluation_missing", "500 steps without an evaluation", find_evaluation_missing},
      {"no_targets", "at least 1 % of the steps had no token to predict", find_no_targets},
      {"damaged_files", "files or lines of the folder that cannot be read", find_damaged_files},
  };
  return kKinds;
}

}  // namespace strata::diagnosis
