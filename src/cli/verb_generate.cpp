// strata generate
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/signals.h"
#include "cli/actions.h"
#include "cli/escapes.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "data/pipeline/json_line.h"
#include "library/model_impl.h"

namespace strata::cli {
namespace {

using Json = nlohmann::ordered_json;

std::vector<library::NamedPrompt> prompts_of(const GenerateOptions& options) {
  if (options.prompts.empty()) return {{options.prompt.value_or(""), "--prompt"}};
  std::vector<library::NamedPrompt> prompts;
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
    prompts.push_back({found.text, where, ErrorKind::kData});
  }
  if (prompts.empty())
    throw DataError("[{}] holds no prompt; expected {{\"prompt\": \"…\"}} per line", options.prompts);
  return prompts;
}

// Writes finished texts in the order of the prompts; without a batch, as they are generated.
class Writer {
 public:
  struct Show {
    bool grow;    // as it is written
    bool prompt;  // before its continuation
  };
  Writer(const std::vector<library::NamedPrompt>& prompts, const GenerateOptions& options, Show show)
      : prompts_(prompts), options_(options), grow_(show.grow && !options.json), prompt_(show.prompt) {}

  void text(size_t i, std::string_view more) {
    if (!grow_) return;
    begin(i);
    print_out("{}", more);
    flush_out();
  }

  void finish(size_t i, const Generation& made) {
    if (grow_) begin(i);
    std::string out;
    if (options_.json) {
      out = dump_json(Json{{"prompt", prompts_[i].text},
                           {"ids", made.tokens},
                           {"text", made.text},
                           {"finish_reason", made.stopped ? "stop" : "length"}},
                      -1, InvalidUtf8::kReplace);
    } else if (!grow_) {
      out = before(i) + made.text;
    }
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
    const std::string line = options_.prompts.empty() ? "" : fmt::format("=== {}\n", prompts_[i].name);
    return line + (prompt_ ? prompts_[i].text : std::string());
  }

  const std::vector<library::NamedPrompt>& prompts_;
  const GenerateOptions& options_;
  bool grow_, prompt_;
  size_t begun_ = SIZE_MAX, next_ = 0;
  std::map<size_t, std::string> finished_;
};

}  // namespace

int run_generation(const GenerateOptions& options) {
  strata::GenerateOptions wanted{.max_tokens = options.max_tokens,
                                 .temperature = options.temperature,
                                 .top_k = options.top_k,
                                 .top_p = options.top_p,
                                 .min_p = options.min_p,
                                 .repetition_penalty = options.repetition_penalty,
                                 .seed = options.seed,
                                 .batch = options.batch};
  for (const std::string& stop : options.stop) wanted.stop.push_back(unescaped(stop, "--stop"));
  strata::Model model = strata::Model::open(options.model, {.sets = options.sets, .log = log_to_terminal});
  library::TextGenerator& generator = model.impl().text_generator();
  const std::vector<library::NamedPrompt> prompts = prompts_of(options);
  const bool one = std::min(options.batch, std::ssize(prompts)) == 1;
  Writer writer(prompts, options, {.grow = one, .prompt = !generator.has_encoder()});
  generator.generate(prompts, wanted,
                     {.text = [&](size_t i, std::string_view more) { writer.text(i, more); },
                      .finished = [&](size_t i, const Generation& made) { writer.finish(i, made); },
                      .stop = stop_requested});
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
