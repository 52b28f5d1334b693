#include "data/build/engine.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>

#include <fmt/ranges.h>
#include "base/clock.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/signals.h"
#include "base/thread.h"
#include "data/build/decide.h"
#include "data/build/document_file.h"
#include "data/build/finish.h"

namespace strata::data {
namespace {

// Reports while its owner works.
class Ticker {
 public:
  Ticker(const BuildJob& job, const BuildOptions& options, std::string what, int64_t done, int64_t total)
      : job_(job), options_(options), what_(std::move(what)), total_(total) {
    job.progress = done;
    if (!options.progress) return;
    thread_.emplace([this](const std::stop_token& stop) {
      std::mutex mutex;
      std::condition_variable_any wake;
      std::unique_lock lock(mutex);
      while (!wake.wait_for(lock, stop, std::chrono::milliseconds(200), [] { return false; }) &&
             !stop.stop_requested())
        options_.progress({what_, job_.progress, total_, false});
    });
  }
  void finish() {
    thread_.reset();
    if (options_.progress) options_.progress({what_, total_, total_, true});
  }

 private:
  const BuildJob& job_;
  const BuildOptions& options_;
  std::string what_;
  int64_t total_;
  std::optional<OwnedThread> thread_;
};

// compute_threads() of this thread while a build runs.
class ThreadCount {
 public:
  explicit ThreadCount(int threads) : before_(compute_threads()) { set_compute_threads(threads); }
  ~ThreadCount() { set_compute_threads(before_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

// Half as many again as processors: one is idle while its worker waits for a part to be on disk.
int threads_of(const Recipe& recipe) {
  const int processors = available_processors();
  return recipe.workers > 0 ? recipe.workers : processors + (processors + 1) / 2;
}

// The format of the work folder: an unfinished build of a program version with another format starts again.
// Finished builds are not checked.
constexpr const char* kWorkForm = " ids with kinds";

bool is_there(const Path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

int64_t size_of(const Path& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(size);
}

std::string stage_name(const BuildJob& job, size_t stage) {
  return job.recipe.stages[stage].kind;
}

std::string phase_name(const BuildJob& job, size_t phase) {
  const BuildPhase& p = job.phases[phase];
  std::vector<std::string> words;
  if (phase == 0) words.emplace_back("read");
  if (p.decided) words.push_back("apply " + stage_name(job, *p.decided));
  if (!p.stages.empty()) words.emplace_back("filter");
  if (p.collects) words.push_back("collect for " + stage_name(job, *p.collects));
  if (!p.collects) words.emplace_back(job.tokenizer ? "tokenize and write" : "write");
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string identity_of(const BuildJob& job) {
  std::string text = recipe_identity(job.recipe) + plan_identity(job.plan);
  text += fmt::format("documents={} audit={} clusters={} compression={}", job.recipe.documents,
                      job.recipe.audit, job.recipe.clusters, job.recipe.compression);
  if (job.tokenizer) {
    text += fmt::format(" tokenizer={} bos={} eos={}", to_hex(job.tokenizer->hash()),
                        job.recipe.tokens->add_bos, job.recipe.tokens->add_eos);
    // Nothing to report if the ends are those of the tokenizer.
    const TextEnds ends = job.tokenizer->ends(), alone = declared_ends(*job.tokenizer, {});
    if (ends.end != alone.end) text += fmt::format(" end={}", ends.end.value_or(-1));
    if (job.recipe.tokens->add_bos && ends.begin != alone.begin)
      text += fmt::format(" begin={}", fmt::join(ends.begin, ","));
    if (job.recipe.tokens->special_in_text != SpecialInText::kToken)
      text += fmt::format(" special_in_text={}", static_cast<int>(job.recipe.tokens->special_in_text));
    if (const TokenFormat format = job.recipe.tokens->format; format != TokenFormat::kStrata)
      text += fmt::format(" format={}", token_format_name(format));
  }
  return to_hex(hash64(text));
}

void run_phase(const BuildJob& job, size_t phase, const comm::World& world, const BuildOptions& options) {
  std::vector<uint32_t> pending;
  int64_t done = 0, total = 0;
  for (size_t part = 0; part < job.plan.parts.size(); ++part) {
    if (part % static_cast<size_t>(world.size()) != static_cast<size_t>(world.rank())) continue;
    const int64_t bytes =
        phase == 0 ? job.plan.parts[part].bytes : size_of(job.part_file(phase - 1, part, "documents"));
    total += bytes;
    if (is_there(job.part_file(phase, part, "json")))
      done += bytes;
    else
      pending.push_back(static_cast<uint32_t>(part));
  }
  Ticker ticker(job, options, phase_name(job, phase), done, total);
  parallel_for(static_cast<int64_t>(pending.size()), [&](int64_t i) {
    if (job.stop && job.stop()) throw Interrupted();
    run_part(job, phase, pending[static_cast<size_t>(i)]);
  });
  ticker.finish();
}

BuildStats sum_of_parts(const BuildJob& job) {
  BuildStats sum;
  for (size_t phase = 0; phase < job.phases.size(); ++phase) {
    for (size_t part = 0; part < job.plan.parts.size(); ++part)
      sum.add(BuildStats::from_json(read_file(job.part_file(phase, part, "json"))));
    if (!job.phases[phase].collects) continue;
    RowStats& row = sum.rows[*job.phases[phase].collects + 1];
    RowStats decided = decided_stats(job, phase);
    row.stage.add(decided.stage);
    row.alike = std::move(decided.alike);
  }
  return sum;
}

// A killed build leaves its unfinished files under temporary names.
void remove_half_written(FileSystem& files, const Path& folder) {
  for (const Path& path : expand_glob(folder.string())) {
    const std::string name = path.filename().string();
    if (name.ends_with(".part") || name.find(".tmp-") != std::string::npos) files.remove(path);
  }
}

// A folder that no build of ours began belongs to someone else and would be emptied.
void refuse_foreign(const Path& folder, bool overwrite) {
  if (overwrite || is_there(folder / "work" / "identity")) return;
  std::error_code error;
  for (const std::string name : kBuildOutputs) {
    if (!is_there(folder / name) || std::filesystem::is_empty(folder / name, error)) continue;
    throw ConfigError(
        "[{}] is there already and no data build made it; choose another build.folder, or replace it with "
        "--force",
        (folder / name).string());
  }
}

// Whether the folder holds this build's result. The result of another build is not touched unless `overwrite`
// is set; the unfinished work of another recipe is of no use and is removed.
bool prepare_folder(const BuildJob& job, const std::string& identity, bool overwrite) {
  FileSystem& files = *job.files;
  const Path& folder = job.recipe.folder;
  const Path manifest = folder / "manifest.json";
  remove_half_written(files, folder);
  if (is_there(manifest)) {
    if (identity_of_manifest(manifest) == identity) {
      files.remove_tree(job.work());  // of a build that was killed after it wrote its manifest
      return true;
    }
    if (!overwrite) {
      throw ConfigError(
          "[{}] holds the result of another recipe, or of other inputs; choose another build.folder, or "
          "replace it with --force",
          folder.string());
    }
    files.remove(manifest);
    for (const char* name : kBuildOutputs) files.remove_tree(folder / name);
    for (const char* name : {kSourcesFile, kTokenizerFile}) files.remove(folder / name);
  }
  refuse_foreign(folder, overwrite);
  const Path plan = job.work() / "identity";
  if (is_there(job.work()) && (!is_there(plan) || read_file(plan) != identity + kWorkForm)) {
    log_info("{}: parts of another recipe or of other inputs are removed", job.work().string());
    files.remove_tree(job.work());
  }
  if (!is_there(plan)) {
    for (const char* name : kBuildOutputs) files.remove_tree(folder / name);
    for (const char* name : {kSourcesFile, kTokenizerFile}) files.remove(folder / name);
    files.create_directories(job.work());
    write_file_atomically(files, plan, identity + kWorkForm);
  } else {
    log_info("{}: going on with the parts that are finished", folder.string());
  }
  return false;
}

void assemble(const BuildJob& job, const comm::World& world) {
  if (!job.recipe.audit) return;
  parallel_for(static_cast<int64_t>(job.plan.parts.size()), [&](int64_t part) {
    if (part % world.size() == world.rank()) assemble_audit(job, static_cast<uint32_t>(part));
  });
}

// Weights and limits of sources concern training only: a finished build adopts new ones.
void update_shares(const BuildJob& job, const BuildStats& stats, const Path& manifest) {
  write_training_sources(job, stats);
  const std::string before = read_file(manifest);
  const std::string now = with_shares(before, job);
  if (now == before) return;
  write_file_atomically(*job.files, job.recipe.folder / "report.html", report_html(job, stats));
  write_file_atomically(*job.files, manifest, now);
}

}  // namespace

BuildResult run_build(BuildJob& job, comm::World& world, const BuildOptions& options) {
  const double begin = monotonic_seconds();
  const bool first = world.rank() == 0;
  FileSystem& files = *job.files;
  const ThreadCount threads(threads_of(job.recipe));
  const std::string identity = identity_of(job);
  std::error_code error;
  if (std::filesystem::exists(job.recipe.folder, error) &&
      !std::filesystem::is_directory(job.recipe.folder, error))
    throw ConfigError("[{}] is a file, expected a folder to write to", job.recipe.folder.string());
  files.create_directories(job.recipe.folder);
  std::optional<FileLock> lock;
  BuildResult result;
  if (first) {
    lock.emplace(job.recipe.folder / ".lock");
    result.reused = prepare_folder(job, identity, options.overwrite);
  }
  world.barrier();
  const Path manifest = job.recipe.folder / "manifest.json";
  if (is_there(manifest)) {
    result.reused = result.finished = true;
    if (first) {
      result.stats = stats_of_manifest(manifest);
      update_shares(job, result.stats, manifest);
    }
    return result;
  }
  try {
    for (size_t phase = 0; phase < job.phases.size(); ++phase) {
      run_phase(job, phase, world, options);
      world.barrier();
      if (!job.phases[phase].collects) break;
      if (first) {
        Ticker ticker(job, options, "decide " + stage_name(job, *job.phases[phase].collects), 0, 0);
        decide(job, phase);
        ticker.finish();
      }
      world.barrier();
    }
    assemble(job, world);
    world.barrier();
  } catch (const Interrupted&) {
    result.seconds = monotonic_seconds() - begin;
    return result;
  }
  if (first) {
    if (job.tokenizer) {
      for (size_t source = 0; source < job.recipe.sources.size(); ++source)
        assemble_tokens(job, static_cast<int32_t>(source));
    }
    result.stats = sum_of_parts(job);
    write_file_atomically(files, job.recipe.folder / "report.html", report_html(job, result.stats));
    write_training_sources(job, result.stats);
    write_file_atomically(files, manifest, manifest_json(job, result.stats, identity));
    files.remove_tree(job.work());
  }
  world.barrier();
  result.finished = true;
  result.seconds = monotonic_seconds() - begin;
  return result;
}

}  // namespace strata::data
