#include "config/objective.h"

#include <algorithm>

#include "base/error.h"
#include "config/names.h"

namespace strata::config {
namespace {

using models::Architecture;

struct Learning {
  Architecture architecture;
  data::Objective objective;
  const char* kind;  // of model
};

constexpr Learning kLearning[] = {
    {Architecture::kDecoder, data::Objective::kCausal, "a decoder"},
    {Architecture::kEncoder, data::Objective::kMasked, "an encoder"},
    {Architecture::kEncoderDecoder, data::Objective::kSpanCorruption, "an encoder-decoder"},
};

const Learning& learning_of(const models::ModelConfig& model) {
  return *std::find_if(std::begin(kLearning), std::end(kLearning),
                       [&](const Learning& each) { return each.architecture == model.architecture; });
}

// The keys without the tokenizer's ids.
data::ObjectiveOptions rates_of(const RunConfig& config, data::Objective objective) {
  data::ObjectiveOptions options;
  options.kind = objective;
  options.mask_rate = config.data.mask_rate;
  options.mean_span = config.data.mean_span;
  return options;
}

std::optional<int32_t> padding_of(const data::Tokenizer& tokenizer) {
  const auto id = tokenizer.token_to_id("<pad>");
  return id ? id : tokenizer.token_to_id("[PAD]");
}

class Issues {
 public:
  Issues(const RunConfig& config, std::vector<Issue>& issues) : config_(config), issues_(issues) {}

  template <typename... Args>
  void add(const std::string& key, fmt::format_string<Args...> format, Args&&... args) {
    issues_.push_back({key, config_.origin_of(key), fmt::format(format, std::forward<Args>(args)...)});
  }

 private:
  const RunConfig& config_;
  std::vector<Issue>& issues_;
};

// Tasks and samples require a model that continues text.
void check_writing(const RunConfig& config, const Learning& learning, Issues& issues) {
  for (size_t i = 0; i < config.eval.set.size(); ++i) {
    if (config.eval.set[i].task.empty()) continue;
    issues.add(fmt::format("eval.set.{}.task", i),
               "found \"{}\", but the model is {}, and tasks are scored by continuing text; "
               "expected a set without a task",
               config.eval.set[i].task, learning.kind);
  }
  if (learning.architecture == Architecture::kEncoder && !config.eval.sample_prompts.empty()) {
    issues.add("eval.sample_prompts",
               "found prompts, but the model is {}, which does not continue text; leave it out",
               learning.kind);
  }
}

}  // namespace

data::Objective objective_of(const RunConfig& config, const models::ModelConfig& model) {
  return config.data.objective.value_or(learning_of(model).objective);
}

void check_objective(const RunConfig& config, const models::ModelConfig& model, std::vector<Issue>& list) {
  Issues issues(config, list);
  const Learning& learning = learning_of(model);
  const data::Objective objective = objective_of(config, model);
  if (objective != learning.objective) {
    issues.add(
        "data.objective",
        "found \"{}\", but the model is {} ({}), which is trained with \"{}\"; leave it at \"auto\", or "
        "choose a model of another kind",
        spelled(objective), learning.kind, model.family->name, spelled(learning.objective));
    return;
  }
  const DataTable defaults;
  const DataTable& data = config.data;
  const std::string_view name = spelled(learning.objective);
  if (objective == data::Objective::kCausal && data.mask_rate != defaults.mask_rate) {
    issues.add("data.mask_rate", "found {} with the objective \"{}\", which hides no tokens; leave it out",
               data.mask_rate, name);
  }
  if (objective != data::Objective::kSpanCorruption && data.mean_span != defaults.mean_span) {
    issues.add("data.mean_span", "found {} with the objective \"{}\", which cuts out no spans; leave it out",
               data.mean_span, name);
  }
  if (objective == data::Objective::kCausal) return;
  if (data.fim_rate > 0) {
    issues.add("data.fim_rate", "found {} with the objective \"{}\"; it requires \"causal\"; leave it at 0",
               data.fim_rate, name);
  }
  check_writing(config, learning, issues);
  if (objective != data::Objective::kSpanCorruption) return;
  if (data.pack != data::Pack::kStream && config.was_set("data.pack")) {
    issues.add("data.pack",
               "found \"{}\", but span corruption takes windows of the plain stream; expected \"stream\", or "
               "leave it out",
               spelled(data.pack));
  }
  // Each span has a separate sentinel in the vocabulary.
  constexpr double kMostSpans = 4096;
  const double spans = static_cast<double>(config.training.sequence_length) * data.mask_rate / data.mean_span;
  if (spans > kMostSpans) {
    issues.add(
        "training.sequence_length",
        "found {}, or about {:.0f} spans per text, each with its own sentinel; expected at most {:g} spans: "
        "lower it or data.mask_rate, or raise data.mean_span",
        config.training.sequence_length, spans, kMostSpans);
    return;
  }
  try {
    data::span_lengths(config.training.sequence_length, data.mask_rate, data.mean_span);
  } catch (const ConfigError& error) {
    issues.add("data.objective", "{}", error.what());
  }
}

std::vector<Choice> choose_objective(const RunConfig& config, const models::ModelConfig& model) {
  const data::Objective objective = objective_of(config, model);
  std::vector<Choice> made;
  if (config.data.objective.is_word()) {
    made.push_back(chosen("data.objective", spelled(objective),
                          fmt::format("{} learns by it", learning_of(model).kind)));
  }
  if (objective == data::Objective::kSpanCorruption && config.data.pack != data::Pack::kStream &&
      !config.was_set("data.pack"))
    made.push_back(chosen("data.pack", "stream", "span corruption takes windows of the plain stream"));
  return made;
}

data::RowShape row_shape(const RunConfig& config, const models::ModelConfig& model) {
  return data::row_shape(rates_of(config, objective_of(config, model)), config.training.sequence_length);
}

std::string_view kind_of(const models::ModelConfig& model) {
  return learning_of(model).kind;
}

bool reads_token_by_token(const models::ModelConfig& model) {
  return !model.experts.see_groups();
}

bool writes_samples(const RunConfig& config, const models::ModelConfig& model) {
  // Samples are written only on request; a request that cannot be met gets a reason.
  if (!reads_token_by_token(model) && config.eval.sample_prompts.empty()) return false;
  // Ranks of a pipeline do not hold the whole model and are not run token by token.
  if (config.eval.sample_tokens == 0 || config.parallel.pipeline > 1) return false;
  return model.architecture == Architecture::kDecoder ||
         (model.architecture == Architecture::kEncoderDecoder && !config.eval.sample_prompts.empty());
}

void take_ids(models::ModelConfig& model, const data::Tokenizer& tokenizer) {
  const data::TextEnds& ends = tokenizer.ends();
  model.more_eos_ids.clear();
  if (model.architecture == Architecture::kDecoder) {
    // The model's training texts begin and end with these, whatever the preset's vocabulary had. If no token
    // begins a text, it follows the end of another.
    if (!ends.end && ends.begin.empty()) return;
    if (ends.end) model.eos_id = ends.end;
    model.bos_id = ends.begin.empty() ? model.eos_id : std::optional<int64_t>(ends.begin.front());
    return;
  }
  model.bos_id = ends.begin.empty() ? std::nullopt : std::optional<int64_t>(ends.begin.front());
  model.eos_id = ends.end;
  model.pad_id = padding_of(tokenizer);
  if (model.architecture == Architecture::kEncoderDecoder) model.start_id = model.pad_id;
}

data::ObjectiveOptions objective_options(const RunConfig& config, const models::ModelConfig& model,
                                         const data::Tokenizer* tokenizer) {
  const data::Objective objective = objective_of(config, model);
  data::ObjectiveOptions options = rates_of(config, objective);
  if (objective == data::Objective::kCausal) return options;
  if (tokenizer == nullptr) {
    throw ConfigError(
        "[data.objective] found \"{}\" and token files, expected a tokenizer, which defines the tokens that "
        "replace hidden text; set tokenizer.path to the tokenizer of the token files",
        spelled(objective));
  }
  const auto id_of = [&](std::string_view name) { return tokenizer->token_to_id(name); };
  const auto end = tokenizer->end_of_text_id();
  if (objective == data::Objective::kMasked) {
    options.mask = data::find_mask_token(id_of);
    if (options.mask >= model.vocab_size) {
      throw ConfigError(
          "[data.objective] the mask token has the id {}, expected one within the model's vocabulary of {}",
          options.mask, model.vocab_size);
    }
    // A tokenizer may have a few added tokens beyond the model's rows.
    options.special.resize(static_cast<size_t>(std::min(tokenizer->vocab_size(), model.vocab_size)));
    for (size_t id = 0; id < options.special.size(); ++id)
      options.special[id] = tokenizer->is_special(static_cast<int32_t>(id)) ? 1 : 0;
    const auto mark = [&](int32_t id) {
      if (static_cast<size_t>(id) < options.special.size()) options.special[static_cast<size_t>(id)] = 1;
    };
    mark(options.mask);
    if (end) mark(*end);
    for (const int32_t id : tokenizer->ends().begin) mark(id);
  } else {
    options.sentinels = data::find_sentinels(id_of);
    std::erase_if(options.sentinels, [&](int32_t id) { return id >= model.vocab_size; });
    if (!end) {
      throw ConfigError(
          "[data.objective] the tokenizer has no end-of-text token such as </s>, which span corruption appends "
          "to source and target; choose a tokenizer that has one");
    }
    options.end_of_text = *end;
    const auto start =
        model.start_id ? std::optional(static_cast<int32_t>(*model.start_id)) : padding_of(*tokenizer);
    if (!start) {
      throw ConfigError(
          "[data.objective] the tokenizer has no padding token, expected <pad> or [PAD], the first token of an "
          "encoder-decoder's decoder; choose a tokenizer that has one");
    }
    options.start = *start;
  }
  data::check_objective(options, config.training.sequence_length);
  return options;
}

SpecialTokens special_tokens(const RunConfig& config, const models::ModelConfig& model) {
  const data::Objective objective = objective_of(config, model);
  SpecialTokens out{config.tokenizer.train.special, {}, {}};
  if (objective == data::Objective::kCausal) return out;
  if (!config.was_set("tokenizer.train.special")) out.tokens.clear();
  const auto has = [&](std::string_view name) {
    return std::find(out.tokens.begin(), out.tokens.end(), name) != out.tokens.end();
  };
  const auto need = [&](std::string_view name) {
    if (!has(name)) out.tokens.emplace_back(name);
  };
  const bool given_end = has("<|endoftext|>");
  if (objective == data::Objective::kMasked) {
    if (!has("<mask>")) {
      for (const char* name : {"[PAD]", "[CLS]", "[SEP]", "[MASK]"}) need(name);
    }
    if (given_end) return out;
    if (has("[CLS]") && has("[SEP]")) return {out.tokens, "[CLS]", "[SEP]"};
    if (has("<s>") && has("</s>")) return {out.tokens, "<s>", "</s>"};
    return out;
  }
  if (!has("[PAD]")) need("<pad>");
  if (!given_end) {
    need("</s>");
    out.end = "</s>";
  }
  constexpr int64_t kSentinels = 100;  // of T5's tokenizers
  const data::RowShape shape = data::row_shape(rates_of(config, objective), config.training.sequence_length);
  const int64_t spans = data::span_counts(shape.window, config.data.mask_rate, config.data.mean_span).spans;
  for (int64_t i = 0; i < std::max(kSentinels, spans); ++i) need(fmt::format("<extra_id_{}>", i));
  return out;
}

}  // namespace strata::config
