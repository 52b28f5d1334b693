// strata generate
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "base/signals.h"
#include "cli/actions.h"
#include "cli/escapes.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "config/resolve.h"
#include "data/pipeline/json_line.h"
#include "inference/generate.h"
#include "inference/model_runtime.h"
#include "inference/text_stream.h"

namespace strata::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Prompt {
  std::string text;
  std::string where;  // for messages
};

std::vector<Prompt> prompts_of(const GenerateOptions& options) {
  if (options.prompts.empty()) return {{options.prompt.value_or(""), "--prompt"}};
  std::vector<Prompt> prompts;
  const std::string text = read_file(options.prompts);
  data::JsonLine reader("prompt", "");
  data::Document found;
  size_t line_number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    ++line_number;
    if (data::JsonLine::is_blank(line)) continue;
    const size_t size = line.size();
    line.append(data::JsonLine::kPadding, '\0');
    const std::string where = fmt::format("{}:{}", options.prompts, line_number);
    std::string detail;
    const data::ReadStatus status = reader.read(std::string_view(line).substr(0, size), found, detail);
    if (status == data::ReadStatus::kInvalidJson || status == data::ReadStatus::kInvalidUtf8)
      throw DataError("[{}] is not valid JSON ({}); expected one object per line", where, detail);
    if (status != data::ReadStatus::kDocument && status != data::ReadStatus::kEmptyText)
      throw DataError("[{}] is not a JSON object with a text \"prompt\": {}", where, detail);
    prompts.push_back({found.text, where});
  }
  if (prompts.empty())
    throw DataError("[{}] holds no prompt; expected {{\"prompt\": \"…\"}} per line", options.prompts);
  return prompts;
}

// One key per prompt: the same on any line and in any batch; equal prompts get different texts.
std::vector<uint64_t> seeds_of(const std::vector<Prompt>& prompts, uint64_t seed) {
  std::map<std::string_view, int64_t> seen;
  std::vector<uint64_t> seeds;
  for (const Prompt& prompt : prompts)
    seeds.push_back(inference::seed_of_text(seed, prompt.text, seen[prompt.text]++));
  return seeds;
}

std::vector<inference::SequenceRequest> requests_of(const std::vector<Prompt>& prompts,
                                                    const inference::ModelRuntime& runtime,
                                                    const GenerateOptions& options) {
  const data::Tokenizer& tokenizer = *runtime.tokenizer;
  const std::vector<int32_t> stop_ids = inference::stop_ids(runtime.model, &tokenizer);
  const std::vector<uint64_t> seeds = seeds_of(prompts, options.seed);
  std::vector<inference::SequenceRequest> requests;
  for (size_t i = 0; i < prompts.size(); ++i) {
    auto ids = tokenizer.encode_prompt(prompts[i].text);
    // An empty prompt begins a new text as in training: with the token that begins one, or after the end of
    // another.
    if (ids.empty())
      ids.push_back(
          static_cast<int32_t>(runtime.model.bos_id.value_or(tokenizer.end_of_text_id().value_or(0))));
    for (const int32_t id : ids) {
      if (id < runtime.model.vocab_size) continue;
      throw DataError(
          "[{}] the tokenizer yields the id {}, but the model has {} entries; use the model's own tokenizer",
          runtime.folder.string(), id, runtime.model.vocab_size);
    }
    if (static_cast<int64_t>(ids.size()) > runtime.model.max_sequence_length()) {
      const std::string what =
          fmt::format("[{}] the prompt has {} tokens, but the model has {} positions; shorten it",
                      prompts[i].where, ids.size(), runtime.model.max_sequence_length());
      if (options.prompts.empty()) throw ConfigError(what);
      throw DataError(what);
    }
    requests.push_back({std::move(ids),
                        {.max_tokens = options.max_tokens,
                         .temperature = options.temperature,
                         .top_k = options.top_k,
                         .top_p = options.top_p,
                         .min_p = options.min_p,
                         .repetition_penalty = options.repetition_penalty,
                         .seed = seeds[i],
                         .stop_ids = stop_ids,
                         .vocab_limit = tokenizer.vocab_size()}});
  }
  return requests;
}

// Writes finished texts in the order of the prompts; without a batch, as they are generated.
class Writer {
 public:
  struct Show {
    bool grow;    // as it is written
    bool prompt;  // before its continuation
  };
  Writer(const std::vector<Prompt>& prompts, const data::Tokenizer& tokenizer, const GenerateOptions& options,
         std::vector<std::string> stops, std::vector<int64_t> limits, Show show)
      : prompts_(prompts),
        tokenizer_(tokenizer),
        options_(options),
        stops_(std::move(stops)),
        limits_(std::move(limits)),
        grow_(show.grow && !options.json),
        prompt_(show.prompt) {}

  bool token(size_t i, int32_t id) {
    auto& stream = streams_.try_emplace(i, tokenizer_, stops_).first->second;
    if (grow_) begin(i);
    show(stream.push(id));
    return !stream.stopped();
  }

  void text(size_t i, const std::vector<int32_t>& made) {
    auto& stream = streams_.try_emplace(i, tokenizer_, stops_).first->second;
    if (grow_) begin(i);
    show(stream.finish());
    std::string out;
    if (options_.json) {
      const bool full = !stream.stopped() && static_cast<int64_t>(made.size()) == limits_[i];
      out = dump_json(Json{{"prompt", prompts_[i].text},
                           {"ids", made},
                           {"text", stream.text()},
                           {"finish_reason", full ? "length" : "stop"}},
                      -1, InvalidUtf8::kReplace);
    } else if (!grow_) {
      out = before(i) + stream.text();
    }
    streams_.erase(i);
    finished_[i] = out + "\n";
    for (auto at = finished_.find(next_); at != finished_.end(); at = finished_.find(++next_)) {
      print_out("{}", at->second);
      finished_.erase(at);
    }
    flush_out();
  }

 private:
  void begin(size_t i) {
    if (std::exchange(begun_, i) != i) print_out("{}", before(i));
  }
  // With several texts, a line names the prompt before each, because texts contain empty lines.
  std::string before(size_t i) const {
    const std::string line = options_.prompts.empty() ? "" : fmt::format("=== {}\n", prompts_[i].where);
    return line + (prompt_ ? prompts_[i].text : std::string());
  }
  void show(const std::string& piece) const {
    if (!grow_ || piece.empty()) return;
    print_out("{}", piece);
    flush_out();
  }

  const std::vector<Prompt>& prompts_;
  const data::Tokenizer& tokenizer_;
  const GenerateOptions& options_;
  std::vector<std::string> stops_;
  std::vector<int64_t> limits_;  // most tokens of each text
  bool grow_, prompt_;
  size_t begun_ = SIZE_MAX, next_ = 0;
  std::map<size_t, inference::TextStream> streams_;
  std::map<size_t, std::string> finished_;
};

}  // namespace

int run_generation(const GenerateOptions& options) {
  if (options.batch < 1 || options.batch > inference::kMaxSequences)
    throw ConfigError("[generate] found --batch {}, expected 1 to {}", options.batch,
                      inference::kMaxSequences);
  std::vector<std::string> stops;
  for (const std::string& stop : options.stop) stops.push_back(unescaped(stop, "--stop"));
  inference::ModelRuntime runtime = inference::open_model(options.model);
  if (!runtime.tokenizer) {
    throw ConfigError("[{}] has no tokenizer.json; put the model's tokenizer there", runtime.folder.string());
  }
  const auto architecture = runtime.model.architecture;
  if (architecture == models::Architecture::kEncoder) {
    throw ConfigError(
        "[generate] {} is an encoder ({}), which generates no text; expected a decoder or an encoder-decoder",
        runtime.folder.string(), runtime.model.family->name);
  }
  const bool has_encoder = architecture == models::Architecture::kEncoderDecoder;
  const std::vector<Prompt> prompts = prompts_of(options);
  const std::vector<inference::SequenceRequest> requests = requests_of(prompts, runtime, options);
  const int64_t texts = std::min(options.batch, static_cast<int64_t>(prompts.size()));
  int64_t longest = 0;
  for (const inference::SequenceRequest& request : requests)
    longest = std::max(longest, static_cast<int64_t>(request.prompt.size()));
  inference::load_runtime(
      runtime,
      {.compute = config::compute_options(config::config_of_sets(options.sets)),
       .requests = inference::generation_requests(inference::kPrefillChunk, texts, has_encoder ? longest : 0),
       .cache_tokens =
           std::min(runtime.model.max_sequence_length(), options.max_tokens + (has_encoder ? 0 : longest)),
       .cache_sequences = texts});
  inference::Generator generator(*runtime.executor, 0, 1);
  std::vector<int64_t> limits;
  for (const inference::SequenceRequest& request : requests)
    limits.push_back(
        std::min(options.max_tokens, generator.max_new_tokens(static_cast<int64_t>(request.prompt.size()))));
  Writer writer(prompts, *runtime.tokenizer, options, std::move(stops), std::move(limits),
                {.grow = texts == 1, .prompt = !has_encoder});
  generator.generate(
      requests, [&](size_t i, int32_t id) { return writer.token(i, id); },
      [&](size_t i, const std::vector<int32_t>& made) { writer.text(i, made); },
      [] { return stop_requested(); });
  return stop_requested() ? stop_exit_code() : 0;
}

void add_generate(Verb root) {
  auto options = std::make_shared<GenerateOptions>();
  Verb verb = root.verb(
      "generate", "Generate text with a model",
      "strata generate --model runs/first --prompt \"Once upon a time\" --temperature 0.8 --stop \"\\n\\n\"");
  verb.option("--model", options->model, "Hugging Face directory, run, checkpoint, RUN@latest or RUN@best")
      .required()
      .type_name("DIR");
  Option prompt = verb.option("--prompt", options->prompt, "The text to continue").type_name("TEXT");
  verb.option("--prompts", options->prompts, "Many instead: a {\"prompt\": …} a line")
      .type_name("FILE.jsonl")
      .excludes(prompt);
  verb.option("--batch", options->batch,
              "Texts of --prompts generated in parallel, 1 to 32; the texts do not depend on it")
      .positive()
      .type_name("N")
      .show_default();
  verb.option("--max-tokens", options->max_tokens, "Maximum number of new tokens")
      .positive()
      .type_name("N")
      .show_default();
  verb.option("--temperature", options->temperature, "0: always the most probable token")
      .range(0.0, 1000.0)
      .type_name("T")
      .show_default();
  verb.option("--top-k", options->top_k, "Only the K most probable tokens; 0: all")
      .non_negative()
      .type_name("K")
      .show_default();
  verb.option("--top-p", options->top_p, "Only the most probable tokens with a total probability of P")
      .range(0.0, 1.0)
      .type_name("P")
      .show_default();
  verb.option("--min-p", options->min_p, "Only tokens at least P times as probable as the most probable one")
      .range(0.0, 1.0)
      .type_name("P")
      .show_default();
  verb.option("--repetition-penalty", options->repetition_penalty,
              "Above 1: fewer repetitions of earlier tokens")
      .range(0.01, 100.0)
      .type_name("R")
      .show_default();
  verb.option("--stop", options->stop,
              "End before this text (\\n, \\t, \\\\ and \\uXXXX are understood); may be repeated")
      .one_each()
      .type_name("TEXT");
  verb.option("--seed", options->seed, "Seed of the random numbers")
      .range(0, 9007199254740992.0)  // exact in every JSON
      .type_name("S")
      .show_default();
  verb.sets(options->sets).suggest(configuration_keys());
  verb.json(options->json);
  verb.action([options] {
    if (!options->prompt && options->prompts.empty()) {
      throw ConfigError("[strata generate] found no prompt, expected --prompt TEXT or --prompts FILE.jsonl");
    }
    return run_generation(*options);
  });
}

}  // namespace strata::cli
