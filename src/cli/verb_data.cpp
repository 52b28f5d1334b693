// strata data build|inspect|filter|dedup|tokenize; find is in verb_data_find.cpp
#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/quantity.h"
#include "base/signals.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "comm/world.h"
#include "data/build/finish.h"
#include "data/build/inspect.h"
#include "library/recipe_run.h"
#include "observe/progress.h"

namespace strata::cli {
namespace {

struct BuildOptions : strata::BuildOptions {
  std::string recipe;
  bool json = false;
  bool needs_documents = false;  // a result without documents means invalid input
};

// Options of the verbs without a recipe.
struct ShortOptions : BuildOptions {
  std::vector<std::string> inputs, stages;
  std::string output, tokenizer, format = "strata", text = "text", id = "id";
  int64_t workers = 0;
};

struct InspectOptions {
  std::string path, tokenizer, text = "text", id = "id";
  int64_t limit = 5;
  bool json = false;
};

// One line that is redrawn in place on a terminal; otherwise one line per phase.
class ProgressLine {
 public:
  void operator()(const strata::BuildProgress& progress) {
    if (progress.phase != what_) {
      what_ = progress.phase;
      begin_ = monotonic_seconds();
      first_ = progress.done;
    }
    const double seconds = monotonic_seconds() - begin_;
    const auto done = static_cast<double>(progress.done - first_);
    std::string line = what_;
    if (progress.total > 0) {
      line += fmt::format("  {:.0f} %",
                          100.0 * static_cast<double>(progress.done) / static_cast<double>(progress.total));
      if (done > 0 && seconds > 0) {
        line += fmt::format("  {}/s", human_bytes(done / seconds));
        if (!progress.finished)
          line += "  left " +
                  human_duration(static_cast<double>(progress.total - progress.done) * seconds / done);
      }
    }
    if (progress.finished) line += "  in " + human_duration(seconds);
    if (style_.bar) {
      const auto columns = static_cast<size_t>(std::max(10, style_.width - 1));
      if (line.size() > columns) line.resize(columns);
      fmt::print(stderr, "\r\x1b[K{}{}", line, progress.finished ? "\n" : "");
      std::fflush(stderr);
    } else if (progress.finished) {
      log_info("{}", line);
    }
  }

 private:
  observe::TerminalStyle style_ = observe::terminal_style();
  std::string what_;
  double begin_ = 0;
  int64_t first_ = 0;
};

// One line per reason, in the order of the stages, the most frequent first.
std::string dropped_table(const data::BuildJob& job, const data::BuildStats& stats) {
  std::string out;
  for (size_t row = 0; row < stats.rows.size(); ++row) {
    std::vector<std::pair<int64_t, std::string>> reasons;
    for (const auto& [reason, dropped] : stats.rows[row].dropped)
      reasons.emplace_back(-dropped.documents, reason);
    std::sort(reasons.begin(), reasons.end());
    for (const auto& [count, reason] : reasons) {
      if (out.empty()) out = fmt::format("{:>10}  {:<20}  reason\n", "dropped", "stage");
      out += fmt::format("{:>10}  {:<20}  {}\n", -count, row == 0 ? "read" : job.recipe.stages[row - 1].kind,
                         reason);
    }
  }
  return out;
}

// Why no document remains: the reason that dropped most, with its first record.
std::string why_nothing(const data::BuildJob& job, const data::BuildStats& stats) {
  if (stats.rows[0].documents_in == 0) {
    return fmt::format(
        "no document remains: {} input files of {} contain no record; give files with documents",
        job.plan.files.size(), human_bytes(static_cast<double>(stats.stored_bytes)));
  }
  const std::string* reason = nullptr;
  const data::DropReason* most = nullptr;
  std::string stage;
  for (size_t row = 0; row < stats.rows.size(); ++row) {
    for (const auto& [name, drop] : stats.rows[row].dropped) {
      if (most != nullptr && drop.documents <= most->documents) continue;
      most = &drop;
      reason = &name;
      stage = row == 0 ? "read" : job.recipe.stages[row - 1].kind;
    }
  }
  std::string out = fmt::format("no document remains of {} records", stats.rows[0].documents_in);
  if (most == nullptr) return out;
  out += fmt::format("; {} were dropped for {} (stage {})", most->documents, *reason, stage);
  if (!most->examples.empty()) {
    const data::DropExample& first = most->examples.front();
    out += fmt::format(", such as {}:{}{}{}", first.file, first.line, first.detail.empty() ? "" : ": ",
                       first.detail);
  }
  return out;
}

// Warnings about the tokenized texts.
void report_texts(const data::BuildJob& job, const data::BuildStats& stats) {
  if (!job.tokenizer) return;
  const data::RecipeTokens& tokens = *job.recipe.tokens;
  for (const std::string& note : job.tokenizer->ends().notes) log_warning("tokenizer: {}", note);
  const std::string difference =
      data::template_difference(*job.tokenizer, tokens.add_bos, tokens.add_eos, "output.tokens");
  if (!difference.empty()) log_info("{}", difference);
  if (stats.special.empty()) return;
  if (tokens.special_in_text == data::SpecialInText::kText) {
    log_info("texts spell out special tokens ({}), which are encoded as plain text",
             data::to_string(stats.special));
    return;
  }
  log_warning(
      "texts spell out special tokens ({}), and each is taken as the token itself; "
      "output.tokens.special_in_text = "
      "\"text\" takes them as plain letters",
      data::to_string(stats.special));
}

// A file that is not jsonl, although some of its lines are JSON: one array over several lines.
void report_layouts(const data::BuildStats& stats) {
  const auto invalid = stats.rows[0].dropped.find(data::read_reason(data::ReadStatus::kInvalidJson));
  if (invalid == stats.rows[0].dropped.end()) return;
  for (const data::DropExample& example : invalid->second.examples) {
    if (example.detail.find("jq -c") == example.detail.npos) continue;
    log_warning("{}:{}: {}", example.file, example.line, example.detail);
    return;
  }
}

int run_rank(comm::World& world, const ConfigValue& tree, const Path& file, const BuildOptions& options) {
  ProgressLine line;
  strata::BuildOptions wanted = options;
  wanted.progress = [&line](const strata::BuildProgress& progress) { line(progress); };
  wanted.stop = stop_requested;
  const library::BuiltData built = library::run_recipe(world, tree, file, wanted);
  const data::BuildJob* const job = built.job.get();
  const data::BuildResult& result = built.result;
  if (world.rank() != 0) return result.finished ? 0 : stop_exit_code();
  const std::string folder = job->recipe.folder.string();
  if (!result.finished) {
    log_info("{}: stopped; finished parts are kept, and the same command resumes from them", folder);
    return stop_exit_code();
  }
  if (result.reused) log_info("{}: already complete for this recipe and these inputs", folder);
  const auto& rows = result.stats.rows;
  const std::string nothing = rows.back().documents_out > 0 ? "" : why_nothing(*job, result.stats);
  // Stages may drop everything on purpose; inputs without a document are an error.
  const bool is_error = options.needs_documents && job->recipe.stages.empty() && !nothing.empty();
  if (!nothing.empty() && !is_error) log_warning("{}: {}", folder, nothing);
  if (nothing.empty()) report_layouts(result.stats);
  report_texts(*job, result.stats);
  if (options.json) {
    print_out(data::summary_json(*job, result) + "\n");
    if (is_error) throw DataError("[{}] {}", folder, nothing);
    return 0;
  }
  print_out(fmt::format("{} documents in, {} kept; {} of text kept", rows[0].documents_in,
                        rows.back().documents_out, human_bytes(static_cast<double>(rows.back().bytes_out))));
  if (job->tokenizer)
    print_out(fmt::format("; {} tokens", human_count(static_cast<double>(result.stats.tokens))));
  if (result.seconds > 0 && !result.reused) {
    print_out(fmt::format("; {} in {}, {}/s", human_bytes(static_cast<double>(result.stats.stored_bytes)),
                          human_duration(result.seconds),
                          human_bytes(static_cast<double>(result.stats.stored_bytes) / result.seconds)));
  }
  print_out("\n" + dropped_table(*job, result.stats));
  print_out(fmt::format("report: {}\n", (job->recipe.folder / "report.html").string()));
  if (job->tokenizer && result.stats.tokens > 0)
    print_out(fmt::format("train: strata train {0}   (with a RUN.toml: data.build = \"{0}\")\n", folder));
  if (is_error) throw DataError("[{}] {}", folder, nothing);
  return 0;
}

// With several ranks, one that fails or stops ends the others, which may be waiting for it; finished files
// remain.
int run(const ConfigValue& tree, const Path& file, const BuildOptions& options) {
  const auto world = comm::world_of_launcher();
  if (world->size() == 1) return run_rank(*world, tree, file, options);
  try {
    const int code = run_rank(*world, tree, file, options);
    if (code != 0) world->abort(code);
    return code;
  } catch (const Error& error) {
    log_error("rank {}: {}", world->rank(), error.what());
    world->abort(exit_code(error.kind()));
    throw;
  }
}

int build(const BuildOptions& options) {
  return run(data::read_recipe_tree(options.recipe, options.sets), options.recipe, options);
}

ConfigValue text_value(const std::string& text) {
  return {.data = text, .origin = {}};
}

// The recipe for a command line without one: one source and these stages.
int run_short(const ShortOptions& options, const std::vector<std::string>& stages) {
  ConfigValue::Array paths, kinds;
  for (const std::string& input : options.inputs) paths.push_back(text_value(input));
  for (const std::string& stage : stages)
    kinds.push_back({.data = ConfigValue::Table{{"kind", text_value(stage)}}, .origin = {}});
  ConfigValue::Table source{{"name", text_value("input")},
                            {"path", {.data = paths, .origin = {}}},
                            {"text", text_value(options.text)},
                            {"id", text_value(options.id)}};
  ConfigValue::Table output;
  if (!options.tokenizer.empty()) {
    output.push_back({"tokens",
                      {.data = ConfigValue::Table{{"tokenizer", text_value(options.tokenizer)},
                                                  {"format", text_value(options.format)}},
                       .origin = {}}});
    if (stages.empty()) output.push_back({"documents", {.data = false, .origin = {}}});
  }
  ConfigValue tree{
      .data =
          ConfigValue::Table{
              {"build",
               {.data = ConfigValue::Table{{"folder", text_value(options.output)},
                                           {"workers", {.data = options.workers, .origin = {}}}},
                .origin = {}}},
              {"source", {.data = ConfigValue::Array{{.data = source, .origin = {}}}, .origin = {}}},
              {"stage", {.data = kinds, .origin = {}}},
              {"output", {.data = output, .origin = {}}}},
      .origin = {}};
  for (const std::string& set : options.sets) apply_set(tree, set);
  return run(tree, {}, options);
}

void add_common(Verb verb, BuildOptions& options) {
  verb.sets(options.sets);
  verb.option("--memory-limit", options.memory_limit,
              "Memory for deduplication, like 8GiB; auto: three quarters of the free memory, or of the "
              "remainder of the process's control groups")
      .type_name("SIZE")
      .show_default();
  verb.flag("--force,--overwrite", options.overwrite,
            "Replace the result of another recipe in the same folder");
  verb.json(options.json);
}

std::shared_ptr<ShortOptions> add_short(Verb verb) {
  auto options = std::make_shared<ShortOptions>();
  verb.option("INPUT", options->inputs, "Files, folders or globs; - is standard input").required();
  verb.option("--output,-o", options->output, "The folder to write").type_name("DIR").required();
  verb.option("--text", options->text, "The field that holds the text").type_name("NAME").show_default();
  verb.option("--id", options->id, "The field that holds the id").type_name("NAME").show_default();
  verb.option("--workers", options->workers, "Threads; 0: enough for all cores")
      .type_name("N")
      .non_negative();
  add_common(verb, *options);
  return options;
}

}  // namespace

void add_data(Verb root) {
  Verb verb = root.verb("data", "Turn raw text into clean, deduplicated, tokenized data",
                        "strata data build recipe.toml");

  auto options = std::make_shared<BuildOptions>();
  Verb build_verb = verb.verb("build", "Run a recipe: read, filter, deduplicate, tokenize, report",
                              "strata data build recipe.toml --set build.workers=8");
  build_verb.option("RECIPE.toml", options->recipe, "What to read, which stages, what to write").required();
  add_common(build_verb, *options);
  build_verb.action([options] { return build(*options); });

  auto shown = std::make_shared<InspectOptions>();
  Verb inspect_verb =
      verb.verb("inspect", "Show documents of any file that can be read, or tokens and their documents",
                "strata data inspect corpus.jsonl.zst --limit 3");
  inspect_verb.option("PATH", shown->path, "A file of records, or a token file").required();
  inspect_verb.option("--limit", shown->limit, "Documents to show").type_name("N").positive().show_default();
  inspect_verb.option("--tokenizer", shown->tokenizer, "Decodes token files; shows the tokens of texts")
      .type_name("FILE");
  inspect_verb.option("--text", shown->text, "The field that holds the text")
      .type_name("NAME")
      .show_default();
  inspect_verb.option("--id", shown->id, "The field that holds the id").type_name("NAME").show_default();
  inspect_verb.json(shown->json);
  inspect_verb.action([shown] {
    print_out(data::inspect({.path = shown->path,
                             .tokenizer = shown->tokenizer,
                             .records = {.text = shown->text, .id = shown->id},
                             .limit = shown->limit,
                             .color = observe::terminal_style(1).color,
                             .json = shown->json}));
    return 0;
  });

  add_data_find(verb);

  Verb filter_verb =
      verb.verb("filter", "Run filters without a recipe",
                "strata data filter crawl/*.jsonl --stage gopher_quality --stage c4_quality -o clean");
  const auto filtering = add_short(filter_verb);
  filter_verb.option("--stage", filtering->stages, "A stage of a recipe; may be repeated")
      .type_name("KIND")
      .suggest(stage_names())
      .one_each()
      .required();
  filter_verb.action([filtering] { return run_short(*filtering, filtering->stages); });

  Verb dedup_verb = verb.verb("dedup", "Remove near duplicates without a recipe",
                              "strata data dedup crawl/*.jsonl -o unique");
  const auto dedup = add_short(dedup_verb);
  dedup_verb.option("--stage", dedup->stages, "A stage of a recipe; default: minhash; may be repeated")
      .type_name("KIND")
      .suggest(stage_names())
      .one_each();
  dedup_verb.action([dedup] {
    return run_short(*dedup, dedup->stages.empty() ? std::vector<std::string>{"minhash"} : dedup->stages);
  });

  Verb tokenize_verb = verb.verb("tokenize", "Write token files without a recipe",
                                 "strata data tokenize clean/*.jsonl --tokenizer tokenizer.json -o tokens");
  const auto tokenizing = add_short(tokenize_verb);
  tokenize_verb.option("--tokenizer", tokenizing->tokenizer, "A tokenizer.json").type_name("FILE").required();
  tokenize_verb
      .option("--format", tokenizing->format, "Of the token files: .bin, Megatron's .bin and .idx, or .ds")
      .one_of({"strata", "megatron", "datatrove"})
      .show_default();
  tokenizing->needs_documents = true;
  tokenize_verb.action([tokenizing] { return run_short(*tokenizing, {}); });
}

}  // namespace strata::cli
