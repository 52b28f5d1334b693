// strata generate
#include <fmt/core.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/signals.h"
#include "data/input/corpus_files.h"
#include "train/commands.h"
#include "train/generate.h"
#include "train/model_runtime.h"

namespace strata::train {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> prompts_of(const GenerateOptions& options) {
  if (options.prompts.empty()) return {options.prompt.value_or("")};
  std::vector<std::string> prompts;
  const std::string text = read_file(options.prompts);
  size_t line_number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_discarded() || !json.is_object() || !json.contains("prompt") || !json["prompt"].is_string()) {
      throw DataError("[{}:{}] holds no JSON object with a text \"prompt\"", options.prompts, line_number);
    }
    prompts.push_back(json["prompt"].get<std::string>());
  }
  return prompts;
}

// Where the earliest stop text begins in `text`; npos: none of them is there.
size_t find_stop(const std::string& text, const std::vector<std::string>& stops) {
  size_t first = std::string::npos;
  for (const std::string& stop : stops) {
    if (!stop.empty()) first = std::min(first, text.find(stop));
  }
  return first;
}

}  // namespace

int run_generation(const GenerateOptions& options) {
  catch_stop_signals();
  ModelRuntime runtime = open_model(options.model);
  if (!runtime.tokenizer) {
    throw ConfigError("[{}] has no tokenizer.json; put the model's tokenizer there", runtime.folder.string());
  }
  const data::Tokenizer& tokenizer = *runtime.tokenizer;
  RuntimeOptions wanted{.model = options.model,
                        .config = config_of_sets(options.sets),
                        .requests = generation_requests(kPrefillChunk)};
  std::vector<std::vector<int32_t>> prompts;
  int64_t longest = 0;
  for (const std::string& prompt : prompts_of(options)) {
    auto ids = tokenizer.encode(prompt, {.add_special_tokens = true});
    // An empty prompt begins a new text, as the model saw it in training: behind the end of another one.
    if (ids.empty())
      ids.push_back(
          static_cast<int32_t>(runtime.model.bos_id.value_or(tokenizer.end_of_text_id().value_or(0))));
    longest = std::max(longest, static_cast<int64_t>(ids.size()));
    prompts.push_back(std::move(ids));
  }
  wanted.cache_tokens = std::min(runtime.model.max_positions, longest + options.max_tokens);
  load_runtime(runtime, wanted);
  Generator generator(*runtime.executor, 0, 1);
  const auto texts = prompts_of(options);
  for (size_t i = 0; i < prompts.size() && !stop_requested(); ++i) {
    SamplingOptions sampling{.max_tokens = options.max_tokens,
                             .temperature = options.temperature,
                             .top_k = options.top_k,
                             .top_p = options.top_p,
                             .min_p = options.min_p,
                             .repetition_penalty = options.repetition_penalty,
                             .seed = options.seed + i,
                             .stop_id = runtime.model.eos_id
                                            ? std::optional(static_cast<int32_t>(*runtime.model.eos_id))
                                            : tokenizer.end_of_text_id(),
                             .vocab_limit = tokenizer.vocab_size()};
    std::vector<int32_t> so_far;
    const auto ids = generator.generate(prompts[i], sampling, [&](int32_t id) {
      so_far.push_back(id);
      if (stop_requested()) return false;
      return options.stop.empty() ||
             find_stop(tokenizer.decode_text(so_far), options.stop) == std::string::npos;
    });
    std::string text = tokenizer.decode_text(ids);
    text.resize(std::min(text.size(), find_stop(text, options.stop)));
    if (options.json) {
      fmt::print("{}\n", Json{{"prompt", texts[i]}, {"ids", ids}, {"text", text}}.dump(
                             -1, ' ', false, Json::error_handler_t::replace));
    } else {
      fmt::print("{}{}\n", texts[i], text);
    }
    std::fflush(stdout);
  }
  return stop_requested() ? stop_exit_code() : 0;
}

}  // namespace strata::train
