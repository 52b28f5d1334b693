// strata checkpoint inspect|verify|diff|prune
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "cli/output.h"
#include "cli/verbs.h"

namespace strata::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string path, other;
  std::optional<int64_t> keep_last, keep_every, keep_best;  // empty: as the run keeps them
  std::optional<std::string> best_metric;
  bool drop_discarded = false;
  bool json = false;
};

int inspect(const Options& options) {
  const Path path = checkpoint::resolve_model(options.path);
  const checkpoint::CheckpointInfo info = checkpoint::inspect_checkpoint(path);
  if (options.json) {
    Json tensors = Json::array();
    for (const auto& row : info.tensors) {
      tensors.push_back({{"name", row.name},
                         {"file", row.file},
                         {"dtype", row.dtype},
                         {"shape", std::vector<int64_t>(row.shape.dims().begin(), row.shape.dims().end())},
                         {"bytes", row.bytes}});
    }
    Json out = {{"path", path.string()}, {"parameters", info.parameters}, {"bytes", info.bytes}};
    if (info.manifest) {
      out["step"] = info.manifest->step;
      out["program"] = info.manifest->program;
      out["created"] = info.manifest->created;
    }
    out["tensors"] = std::move(tensors);
    print_out(dump_json(out) + "\n");
    return 0;
  }
  print_out(fmt::format("{}: {} parameters, {:.1f} MB of tensors\n", path.string(), info.parameters,
                        static_cast<double>(info.bytes) / 1e6));
  if (info.manifest) {
    const std::optional<double> loss = info.manifest->health.loss;
    print_out(fmt::format("step {}, written {} by {}{}\n", info.manifest->step, info.manifest->created,
                          info.manifest->program, loss ? fmt::format(", loss {:.4f}", *loss) : ""));
  }
  for (const auto& row : info.tensors) {
    print_out(fmt::format("{:<28} {:<5} {:<16} {}\n", row.file, row.dtype, row.shape.str(), row.name));
  }
  return 0;
}

int verify(const Options& options) {
  Path path = options.path;
  std::vector<checkpoint::Problem> problems;
  bool verified = false;
  try {
    path = checkpoint::resolve_model(options.path);
    problems = checkpoint::verify_checkpoint(path);
    verified = checkpoint::has_checksums(path);
  } catch (const DataError& error) {  // e.g. if a run's newest one is damaged
    if (!options.json) throw;
    problems.push_back({path.string(), error.what()});
  }
  if (options.json) {
    Json list = Json::array();
    for (const auto& problem : problems) list.push_back({{"file", problem.file}, {"problem", problem.what}});
    print_out(dump_json(Json{{"path", path.string()},
                             {"whole", problems.empty()},
                             {"verified", verified && problems.empty()},
                             {"faults", list}}) +
              "\n");
  } else if (problems.empty() && verified) {
    print_out(fmt::format("{}: verified, every checksum matches\n", path.string()));
  } else if (problems.empty()) {
    print_out(fmt::format("{}: readable, all weights finite; it has no checksums, so it cannot be verified\n",
                          path.string()));
  } else {
    for (const auto& problem : problems) print_out(fmt::format("{}: {}\n", problem.file, problem.what));
  }
  return problems.empty() ? 0 : exit_code(ErrorKind::kData);
}

const char* kind_text(checkpoint::DiffKind kind) {
  switch (kind) {
    case checkpoint::DiffKind::kEqual:
      return "equal";
    case checkpoint::DiffKind::kDifferent:
      return "different";
    case checkpoint::DiffKind::kShape:
      return "shape";
    case checkpoint::DiffKind::kOnlyInFirst:
      return "only in the first";
    case checkpoint::DiffKind::kOnlyInSecond:
      return "only in the second";
  }
  return "";
}

int diff(const Options& options) {
  const auto rows = checkpoint::diff_checkpoints(checkpoint::resolve_model(options.path),
                                                 checkpoint::resolve_model(options.other));
  int64_t equal = 0;
  Json list = Json::array();
  for (const auto& row : rows) {
    if (row.kind == checkpoint::DiffKind::kEqual && row.detail.empty()) {
      ++equal;
      continue;
    }
    if (options.json) {
      list.push_back({{"name", row.name},
                      {"kind", kind_text(row.kind)},
                      {"max_abs", std::isfinite(row.max_abs) ? Json(row.max_abs) : Json()},
                      {"differing", row.differing},
                      {"detail", row.detail}});
    } else {
      print_out(fmt::format("{}: {}, {} elements, at most {:.3g}{}{}\n", row.name, kind_text(row.kind),
                            row.differing, row.max_abs, row.detail.empty() ? "" : ", ", row.detail));
    }
  }
  if (options.json) {
    print_out(dump_json(Json{
                  {"equal", equal}, {"tensors", static_cast<int64_t>(rows.size())}, {"different", list}}) +
              "\n");
  } else {
    print_out(fmt::format("{} of {} tensors are equal\n", equal, rows.size()));
  }
  return 0;
}

// With a metric that no checkpoint has, pruning would delete the best.
void require_metric(const Path& folder, const std::string& metric) {
  std::vector<std::string> known{"loss"};
  for (const auto& listed : checkpoint::list_checkpoints(folder)) {
    try {
      const checkpoint::Health health = checkpoint::read_manifest(listed.path).health;
      if (checkpoint::measured(health, metric)) return;
      for (const auto& [name, value] : health.metrics)
        if (std::find(known.begin(), known.end(), name) == known.end()) known.push_back(name);
    } catch (const DataError&) {  // pruning reports damaged ones and keeps them
    }
  }
  throw ConfigError("[--best-metric] found \"{}\", which no checkpoint was saved with; expected one of {}",
                    metric, fmt::join(known, ", "));
}

// The run's own rule, with the command line's changes.
checkpoint::RetentionPolicy policy_for(const Options& options, const Path& folder) {
  checkpoint::RetentionPolicy policy = checkpoint::policy_of(folder);
  policy.keep_last = options.keep_last.value_or(policy.keep_last);
  policy.keep_every = options.keep_every.value_or(policy.keep_every);
  policy.keep_best = options.keep_best.value_or(policy.keep_best);
  policy.best_metric = options.best_metric.value_or(policy.best_metric);
  policy.keep_discarded = !options.drop_discarded;
  if (options.best_metric) require_metric(folder, *options.best_metric);
  return policy;
}

int prune(const Options& options) {
  Path folder = options.path;
  if (std::filesystem::is_directory(folder / "checkpoints")) folder /= "checkpoints";
  if (!std::filesystem::is_directory(folder)) {
    throw ConfigError(
        "[strata checkpoint prune] there is no folder {}, expected a run or its checkpoints folder",
        folder.string());
  }
  // A running trainer prunes its own checkpoints: it holds the run's lock, and a save the folder's.
  Path whole = std::filesystem::absolute(folder).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();  // "checkpoints/"
  const Path of_run = whole.parent_path() / ".lock";
  std::optional<FileLock> run_lock;
  if (std::filesystem::exists(of_run)) run_lock.emplace(of_run);
  const FileLock lock(folder / ".lock");
  const checkpoint::PruneResult result =
      checkpoint::prune(posix_file_system(), folder, policy_for(options, folder));
  for (const std::string& warning : result.warnings) log_warning("{}", warning);
  if (options.json) {
    Json removed = Json::array();
    for (const Path& path : result.removed) removed.push_back(path.string());
    print_out(dump_json(Json{{"removed", removed}, {"warnings", result.warnings}}) + "\n");
  } else {
    for (const Path& path : result.removed) print_out(fmt::format("removed {}\n", path.string()));
    print_out(fmt::format("{} removed\n", result.removed.size()));
  }
  return 0;
}

constexpr const char* kModel = "Checkpoint, run, RUN@latest, RUN@best or Hugging Face directory";

}  // namespace

void add_checkpoint(Verb root) {
  auto options = std::make_shared<Options>();
  Verb checkpoint = root.verb("checkpoint", "Inspect, verify, compare and remove checkpoints",
                              "strata checkpoint inspect runs/first");
  Verb verb = checkpoint.verb("inspect", "Show the contents of a checkpoint or model directory",
                              "strata checkpoint inspect runs/first@latest");
  verb.option("DIR", options->path, kModel).required();
  verb.json(options->json);
  verb.action([options] { return inspect(*options); });

  verb =
      checkpoint.verb("verify", "Read everything and compare checksums; exit with 3 if anything is damaged",
                      "strata checkpoint verify runs/first/checkpoints/step-00000200");
  verb.option("DIR", options->path, kModel).required();
  verb.json(options->json);
  verb.action([options] { return verify(*options); });

  verb = checkpoint.verb("diff", "List the tensors in which two checkpoints differ",
                         "strata checkpoint diff runs/first runs/second");
  verb.option("FIRST", options->path, kModel).required();
  verb.option("SECOND", options->other, kModel).required();
  verb.json(options->json);
  verb.action([options] { return diff(*options); });

  verb =
      checkpoint.verb("prune", "Remove old checkpoints of a run that is not running, as the run itself would",
                      "strata checkpoint prune runs/first --keep-last 1");
  verb.option("RUN", options->path, "The run's folder").required();
  verb.option("--keep-last", options->keep_last, "Newest ones to keep; default: as the run does").positive();
  verb.option("--keep-every", options->keep_every,
              "Keep the first at or after each multiple of this step; 0: none; default: as the run does")
      .non_negative();
  verb.option("--keep-best", options->keep_best, "Best ones to keep; default: as the run does")
      .non_negative();
  verb.option("--best-metric", options->best_metric,
              "Metric that decides which are best; default: the run's");
  verb.flag(
      "--discarded", options->drop_discarded,
      "Remove all checkpoints set aside by a rollback (step-N.discarded); otherwise the same rule keeps the "
      "newest and best of them");
  verb.json(options->json);
  verb.action([options] { return prune(*options); });
  add_checkpoint_conversions(checkpoint);
}

}  // namespace strata::cli
