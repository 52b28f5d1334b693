#include <algorithm>
#include <filesystem>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "config/objective.h"
#include "config/resolve.h"
#include "config/token_checks.h"
#include "config/tokenizer_ends.h"
#include "data/input/corpus_files.h"
#include "data/samples/eval_windows.h"
#include "data/samples/loader.h"
#include "data/tokenizer/train_bpe.h"
#include "data/tokens/reader.h"
#include "data/tokens/token_check.h"
#include "data/tokens/tokenize.h"

namespace strata::config {
namespace {

Path data_folder(const RunConfig& config) {
  return Path(config.run.folder) / "data";
}

// All training data, as patterns.
std::vector<std::string> train_patterns(const RunConfig& config) {
  std::vector<std::string> patterns = config.data.train;
  for (const DataSource& source : config.data.source)
    patterns.insert(patterns.end(), source.path.begin(), source.path.end());
  return patterns;
}

bool is_tokens(const data::CorpusFile& file) {
  return file.kind == data::CorpusKind::kTokens;
}

// Whether the patterns name token files. Throws if they mix token files and text.
bool are_token_files(const std::vector<std::string>& patterns, const std::string& key) {
  const auto files = data::find_corpus_files(patterns);
  const bool any = std::any_of(files.begin(), files.end(), is_tokens);
  if (any && !std::all_of(files.begin(), files.end(), is_tokens)) {
    const auto text = std::find_if_not(files.begin(), files.end(), is_tokens);
    throw ConfigError("[{}] found both token files and text ({}); put them into separate data.source entries",
                      key, text->path.string());
  }
  return any;
}

// Documents of text files, one by one, as tokenizer training reads them.
class DocumentStream {
 public:
  DocumentStream(std::vector<data::CorpusFile> files, const std::string& text_field)
      : files_(files), text_field_(text_field), reader_(std::move(files), {.text_field = text_field}) {}

  bool next(std::string_view& text) {
    while (at_ == documents_.size()) {
      documents_.clear();
      at_ = 0;
      data::TextBlock block;
      if (!reader_.next(block)) return false;
      data::for_each_document(block, files_[static_cast<size_t>(block.file)], text_field_,
                              [&](std::string_view document, int64_t) { documents_.emplace_back(document); });
    }
    text = documents_[at_++];
    return true;
  }

 private:
  std::vector<data::CorpusFile> files_;
  std::string text_field_;
  data::BlockReader reader_;
  std::vector<std::string> documents_;
  size_t at_ = 0;
};

// Identifies the tokenizer that results from these settings and inputs.
std::string training_key(const RunConfig& config, const data::TrainOptions& options,
                         const std::vector<data::CorpusFile>& files) {
  Hasher hasher;
  hasher.update(fmt::format("{} {} {} {}", options.vocab_size, options.min_frequency, options.pattern,
                            config.data.text_field));
  for (const std::string& special : options.special_tokens) hasher.update("\n" + special);
  if (!options.begin_of_text.empty() || !options.end_of_text.empty())
    hasher.update("\n\n" + options.begin_of_text + "\n" + options.end_of_text);
  for (const data::CorpusFile& file : files) {
    hasher.update(fmt::format("\n{} {} {}", std::filesystem::absolute(file.path).string(),
                              std::filesystem::file_size(file.path),
                              std::filesystem::last_write_time(file.path).time_since_epoch().count()));
  }
  return to_hex(hasher.digest());
}

// Training options of the run's tokenizer.
data::TrainOptions training_options(const RunConfig& config, const models::ModelConfig& model) {
  data::TrainOptions options;
  options.vocab_size = config.tokenizer.train.vocab_size.value_or(model.vocab_size);
  options.min_frequency = config.tokenizer.train.min_frequency;
  const SpecialTokens special = special_tokens(config, model);
  options.special_tokens = special.tokens;
  options.begin_of_text = special.begin;
  options.end_of_text = special.end;
  options.pattern = config.tokenizer.train.pattern;
  return options;
}

std::vector<Choice> choices_of(const RunConfig& config, const data::TrainOptions& options) {
  std::vector<Choice> made;
  if (config.tokenizer.train.vocab_size.is_word())
    made.push_back(chosen("tokenizer.train.vocab_size", options.vocab_size, "the model's"));
  if (options.special_tokens != config.tokenizer.train.special)
    made.push_back(chosen("tokenizer.train.special", options.special_tokens, "what data.objective needs"));
  return made;
}

Path trained_path(const RunConfig& config, const data::TrainOptions& options,
                  const std::vector<data::CorpusFile>& inputs) {
  return data_folder(config) / ("tokenizer-" + training_key(config, options, inputs) + ".json");
}

data::Tokenizer train_tokenizer(const RunConfig& config, data::TrainOptions options, FileSystem& files,
                                const StopCheck& check) {
  options.check = check;
  auto inputs = data::find_corpus_files(train_patterns(config));
  if (std::all_of(inputs.begin(), inputs.end(),
                  [](const data::CorpusFile& file) { return std::filesystem::file_size(file.path) == 0; })) {
    throw DataError("[{}] is empty; give files that contain text", inputs.front().path.string());
  }
  const Path path = trained_path(config, options, inputs);
  if (!std::filesystem::exists(path)) {
    files.create_directories(path.parent_path());
    const double begin = monotonic_seconds();
    DocumentStream documents(std::move(inputs), config.data.text_field);
    const auto trained =
        data::train_bpe([&](std::string_view& text) { return documents.next(text); }, options);
    write_file_atomically(files, path, trained.json);
    log_info("tokenizer: trained {} tokens on {} in {:.1f} s", trained.vocab_size,
             human_bytes(static_cast<double>(trained.bytes)), monotonic_seconds() - begin);
  }
  return data::Tokenizer::load(path);
}

// Token files from others may hold any id: check now rather than when the sample is used.
void check_ids(const RunConfig& config, const data::TokenCorpus& corpus, const std::string& key,
               FileSystem& files, const StopCheck& check) {
  const double begin = monotonic_seconds();
  const int64_t tokens =
      data::check_token_ids(files, corpus, data_folder(config) / "checked_tokens.json", check);
  const double seconds = monotonic_seconds() - begin;
  if (seconds > 1) {
    log_info("tokens: checked {} ids of {} once in {:.1f} s: all are in the vocabulary",
             human_count(static_cast<double>(tokens)), key, seconds);
  }
}

data::TokenCorpus tokenized(const RunConfig& config, const std::vector<std::string>& patterns,
                            const std::string& key, const models::ModelConfig& model,
                            const data::Tokenizer* tokenizer, FileSystem& files, const StopCheck& check,
                            double* bytes_per_token = nullptr) {
  const data::TokenFileOptions options = token_file_options(config, model, tokenizer);
  if (are_token_files(patterns, key)) {
    auto corpus = data::open_token_corpus(patterns, options);
    check_ids(config, corpus, key, files, check);
    return corpus;
  }
  if (tokenizer == nullptr)
    throw ConfigError("[{}] is text, but there is no tokenizer; set tokenizer.path", key);
  const double begin = monotonic_seconds();
  double shown = begin;
  const auto result = data::tokenize_corpus(
      files, patterns, encoder_of_texts(config, model, *tokenizer),
      {.add_bos = config.tokenizer.add_bos,
       .add_eos = config.tokenizer.add_eos,
       .text_field = config.data.text_field},
      data_folder(config), [&](const data::TokenizeProgress& progress) {
        check();
        if (monotonic_seconds() - shown < 5) return;
        shown = monotonic_seconds();
        log_info("tokens: {} of {} of {}", human_bytes(static_cast<double>(progress.bytes_done)),
                 human_bytes(static_cast<double>(progress.bytes_total)), key);
      });
  if (!result.reused) {
    log_info("tokens: {} from {} documents of {} in {:.1f} s",
             human_count(static_cast<double>(result.tokens)), result.documents, key,
             monotonic_seconds() - begin);
  }
  report_special(config, result.special, key);
  if (bytes_per_token != nullptr) {
    double bytes = 0;
    for (const auto& file : data::find_corpus_files(patterns)) {
      if (file.compression != data::Compression::kNone || file.kind != data::CorpusKind::kText)
        bytes = -1e300;
      bytes += static_cast<double>(std::filesystem::file_size(file.path));
    }
    *bytes_per_token = bytes > 0 ? bytes / static_cast<double>(std::max<int64_t>(1, result.tokens)) : 0;
  }
  return data::open_token_corpus({result.path.string()}, options);
}

}  // namespace

namespace {

// An existing tokenizer and its source.
struct GivenTokenizer {
  std::optional<data::Tokenizer> tokenizer;
  std::string where;
};
GivenTokenizer given_tokenizer(const RunConfig& config, const Path& stored) {
  const auto load = [](const Path& path) {
    return GivenTokenizer{data::Tokenizer::load(path), path.string()};
  };
  if (!config.tokenizer.path.empty()) return load(config.tokenizer.path);
  if (!stored.empty()) return load(stored);
  if (config.tokenizer.train_given || config.model.from.empty()) return {};
  const Path in_model = model_folder(config) / "tokenizer.json";
  return std::filesystem::exists(in_model) ? load(in_model) : GivenTokenizer();
}

bool trains_tokenizer(const RunConfig& config) {
  return config.tokenizer.train_given || !are_token_files(train_patterns(config), "data.train");
}

}  // namespace

RunTokenizer resolve_tokenizer(const RunConfig& config, const models::ModelConfig& model, FileSystem& files,
                               const Path& stored, const StopCheck& check) {
  RunTokenizer out;
  GivenTokenizer given = given_tokenizer(config, stored);
  if (!given.tokenizer && trains_tokenizer(config)) {
    const data::TrainOptions options = training_options(config, model);
    given = {train_tokenizer(config, options, files, check), "tokenizer.train"};
    out.choices = choices_of(config, options);
  }
  if (!given.tokenizer) return out;
  check_vocabulary(config, *given.tokenizer, model, given.where);
  out.tokenizer = with_configured_ends(config, *given.tokenizer, given.where);
  report_ends(config, *out.tokenizer);
  return out;
}

RunTokenizer known_tokenizer(const RunConfig& config, const models::ModelConfig& model, const Path& stored) {
  try {
    GivenTokenizer given = given_tokenizer(config, stored);
    if (given.tokenizer) {
      check_vocabulary(config, *given.tokenizer, model, given.where);
      return {with_configured_ends(config, *given.tokenizer, given.where), true};
    }
    if (!trains_tokenizer(config)) return {};
  } catch (const Error&) {  // training reports missing files; not needed here
    return {};
  }
  data::TrainOptions options = training_options(config, model);
  const Path path = trained_path(config, options, data::find_corpus_files(train_patterns(config)));
  const std::string where = "tokenizer.train";
  if (std::filesystem::exists(path)) {
    return {with_configured_ends(config, data::Tokenizer::load(path), where), true,
            choices_of(config, options)};
  }
  // Special tokens come first, independent of the text.
  options.vocab_size = static_cast<int64_t>(options.special_tokens.size()) + 256;
  bool read = false;
  const auto bytes_alone = data::train_bpe(
      [&](std::string_view& text) {
        text = " ";
        return !std::exchange(read, true);
      },
      options);
  return {with_configured_ends(config, data::Tokenizer::from_json(bytes_alone.json, where), where), false};
}

namespace {

struct Source {
  data::SampleSourceSpec spec;
  double bytes_per_token = 0;  // 0: not known
};

// The documents that valid_fraction holds out of every source, as one corpus.
HeldOut hold_out(std::vector<Source>& sources, double fraction, uint64_t seed) {
  HeldOut valid{"valid", {}, 0, 0};
  std::vector<data::TokenSegment> segments;
  double bytes = 0;
  bool known = true;
  for (Source& source : sources) {
    auto split = data::split_corpus(source.spec.corpus, fraction, seed);
    source.spec.corpus = std::move(split.train);
    segments.insert(segments.end(), split.valid.segments().begin(), split.valid.segments().end());
    bytes += source.bytes_per_token * static_cast<double>(split.valid.tokens());
    known = known && source.bytes_per_token > 0;
  }
  valid.corpus = data::TokenCorpus(std::move(segments));
  if (known) valid.bytes_per_token = bytes / static_cast<double>(valid.corpus.tokens());
  return valid;
}

// Weights in proportion to the sources' sizes, as far as their limits permit.
void heat(std::vector<data::SampleSourceSpec>& sources, double temperature) {
  std::vector<int64_t> tokens;
  for (const auto& source : sources) {
    const int64_t all = source.corpus.tokens();
    tokens.push_back(source.max_tokens > 0 ? std::min(all, source.max_tokens) : all);
  }
  const std::vector<double> factors = data::temperature_weights(tokens, temperature);
  for (size_t k = 0; k < sources.size(); ++k) sources[k].weight *= factors[k];
}

// Text on which no loss is defined is rejected now, not at the first evaluation.
void check_held_out(const RunConfig& config, const models::ModelConfig& model,
                    const data::Tokenizer* tokenizer, const HeldOut& held) {
  const std::string key = held.name != "valid"        ? "eval.set " + held.name
                          : config.data.valid.empty() ? "data.valid_fraction"
                                                      : "data.valid";
  const int64_t tokens = std::min(held.corpus.tokens(), held.max_tokens);
  if (tokens < 2) {
    throw ConfigError(
        "[{}] contains {} token{} for evaluation, expected at least 2; give more text, or set eval.interval = "
        "\"never\"",
        key, tokens, tokens == 1 ? "" : "s");
  }
  const data::EvalWindows windows(held.corpus, {.sequence_length = config.training.sequence_length,
                                                .pack = config.data.pack,
                                                .max_tokens = held.max_tokens,
                                                .objective = objective_options(config, model, tokenizer)});
  // Usually the first window has a predicted token.
  data::HostBatch row;
  row.resize(windows.shape(), 1);
  data::BatchScratch scratch;
  for (int64_t first = 0; first < windows.windows(); ++first) {
    if (windows.fill(first, 1, row.view(), scratch) > 0) return;
  }
  throw ConfigError(
      "[{}] contains {} tokens, but none can be predicted from other tokens of its document; give longer "
      "texts, or set eval.interval = \"never\"",
      key, tokens);
}

}  // namespace

std::vector<TaskSet> resolve_tasks(const RunConfig& config, const models::ModelConfig& model,
                                   const data::Tokenizer* tokenizer) {
  std::vector<TaskSet> sets;
  for (const EvalSet& set : config.eval.set) {
    if (set.task.empty()) continue;
    if (tokenizer == nullptr) {
      throw ConfigError(
          "[eval.set {}] is a task, whose questions are text, but the run has no tokenizer; set tokenizer.path",
          set.name);
    }
    TaskSet one{set.name, evaluation::read_task(set.task, set.path.front(), set.limit), {}};
    one.requests = evaluation::make_requests(one.task, *tokenizer, evaluation::prefix_token(*tokenizer),
                                             model.max_positions);
    for (const evaluation::TaskRequest& request : one.requests.requests)
      require_rows(request.ids, *tokenizer, model, one.task.source);
    if (one.requests.truncated > 0) {
      log_warning(
          "eval.set {}: {} of {} requests are longer than the model's {} positions; their contexts are cut",
          set.name, one.requests.truncated, one.requests.requests.size(), model.max_positions);
    }
    sets.push_back(std::move(one));
  }
  return sets;
}

namespace {

// The metrics of metric_names that this run measures, now that its data are known.
std::vector<std::string> measured_by(const RunConfig& config, const models::ModelConfig& model,
                                     const RunData& data) {
  std::vector<std::string> names = metric_names(config);
  const bool causal = objective_of(config, model) == data::Objective::kCausal;
  std::erase_if(names, [&](const std::string& name) {
    const auto of_text = [&](const HeldOut& held) {
      return name == "eval/" + held.name + "/loss" ||
             (causal && held.bytes_per_token > 0 && name == "eval/" + held.name + "/bits_per_byte");
    };
    const auto of_task = [&](const TaskSet& set) { return name.starts_with("eval/" + set.name + "/"); };
    return name != "loss" && std::none_of(data.held_out.begin(), data.held_out.end(), of_text) &&
           std::none_of(data.tasks.begin(), data.tasks.end(), of_task);
  });
  return names;
}

}  // namespace

RunData resolve_data(const RunConfig& config, const models::ModelConfig& model,
                     const data::Tokenizer* tokenizer, FileSystem& files, const StopCheck& check) {
  // Checks that may fail come before any tokenization.
  sample_options(config, model, tokenizer);
  RunData out;
  out.tasks = resolve_tasks(config, model, tokenizer);
  bool text = false;
  std::vector<Source> sources;
  auto add = [&](const std::string& name, const std::string& key, const std::vector<std::string>& patterns,
                 const DataSource& limits) {
    text = text || !are_token_files(patterns, key);
    Source source;
    auto corpus = tokenized(config, patterns, key, model, tokenizer, files, check, &source.bytes_per_token);
    source.spec = {name, std::move(corpus), limits.weight, limits.max_epochs.value_or(0),
                   limits.max_tokens.value_or(0)};
    sources.push_back(std::move(source));
  };
  if (!config.data.train.empty()) add("train", "data.train", config.data.train, {});
  for (const DataSource& source : config.data.source)
    add(source.name, "data.source " + source.name, source.path, source);

  const bool chosen_here = config.data.valid_fraction.is_word();
  double fraction = config.data.valid_fraction.value_or(text && config.data.valid.empty() ? 0.01 : 0.0);
  if (!config.data.valid.empty()) {
    HeldOut valid{"valid", {}, 0, 0};
    valid.corpus = tokenized(config, config.data.valid, "data.valid", model, tokenizer, files, check,
                             &valid.bytes_per_token);
    out.held_out.push_back(std::move(valid));
  } else if (fraction > 0) {
    std::vector<Source> whole = sources;
    HeldOut valid = hold_out(sources, fraction, static_cast<uint64_t>(config.run.seed));
    const data::RowShape shape = row_shape(config, model);
    const bool rest_is_short = std::any_of(sources.begin(), sources.end(), [&](const Source& source) {
      return source.spec.corpus.tokens() < shape.window + shape.look_ahead;
    });
    if (chosen_here && (rest_is_short || valid.corpus.tokens() < 2)) {
      log_warning("the text is too short to hold out a part of it: nothing is evaluated");
      sources = std::move(whole);
      fraction = 0;
    } else {
      out.held_out.push_back(std::move(valid));
    }
  }
  if (chosen_here) {
    out.choices.push_back(chosen("data.valid_fraction", fraction,
                                 fraction > 0                 ? "a hundredth of the text"
                                 : !config.data.valid.empty() ? "data.valid is held out"
                                 : text                       ? "the text is too short"
                                                              : "none of token files"));
  }
  for (Source& source : sources) out.sources.push_back(std::move(source.spec));
  if (config.data.temperature) heat(out.sources, *config.data.temperature);
  // An evaluation should take a small fraction of the training between two of them.
  const int64_t step_tokens = config.training.global_batch_size * config.training.sequence_length;
  const int64_t between =
      config.eval.interval.kind == Interval::Kind::kSteps ? config.eval.interval.count : 100;
  int64_t max_tokens = config.eval.max_tokens.value_or(
      std::max<int64_t>(4 * config.training.sequence_length, step_tokens * between / 60));
  if (config.eval.max_tokens.is_word()) {
    max_tokens = std::min(max_tokens, kMostCount);
    out.choices.push_back(
        chosen("eval.max_tokens", max_tokens, "a small part of the training between two evaluations"));
  }
  for (HeldOut& held : out.held_out) held.max_tokens = max_tokens;
  for (const EvalSet& set : config.eval.set) {
    if (!set.task.empty()) continue;
    HeldOut held{set.name, {}, set.max_tokens.value_or(max_tokens), 0};
    held.corpus = tokenized(config, set.path, "eval.set " + set.name, model, tokenizer, files, check,
                            &held.bytes_per_token);
    out.held_out.push_back(std::move(held));
  }
  if (config.eval.interval.kind != Interval::Kind::kNever) {
    for (const HeldOut& held : out.held_out) check_held_out(config, model, tokenizer, held);
  }
  for (const auto& source : out.sources) out.train_tokens += source.corpus.tokens();
  check_token_files(config, model, tokenizer, out);
  const std::vector<std::string> measured = measured_by(config, model, out);
  if (const std::string wrong = error_in_best_metric(config.checkpoint, measured); !wrong.empty())
    throw_issues(
        std::vector<Issue>{{"checkpoint.best_metric", config.origin_of("checkpoint.best_metric"), wrong}});
  return out;
}

std::string data_fingerprint(const RunData& data) {
  constexpr int64_t kPieces = 64;
  constexpr int64_t kPieceTokens = 256;
  Hasher hasher;
  std::vector<int32_t> ids(kPieceTokens);
  for (const auto& source : data.sources) {
    const int64_t tokens = source.corpus.tokens();
    hasher.update(fmt::format("{} {}\n", source.name, tokens));
    const int64_t count = std::min(kPieceTokens, tokens);
    for (int64_t piece = 0; piece < kPieces; ++piece) {
      const int64_t begin = (tokens - count) / (kPieces - 1) * piece;
      source.corpus.read(begin, count, ids.data());
      hasher.update(ids.data(), static_cast<size_t>(count) * sizeof(int32_t));
    }
  }
  return to_hex(hasher.digest());
}

}  // namespace strata::config
