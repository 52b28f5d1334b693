#include "library/text_generation.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "inference/text_stream.h"

namespace strata::library {
namespace {

// One key per prompt: the same in any order and in any batch; equal prompts get different texts.
std::vector<uint64_t> seeds_of(std::span<const NamedPrompt> prompts, uint64_t seed) {
  std::map<std::string_view, int64_t> seen;
  std::vector<uint64_t> seeds;
  for (const NamedPrompt& prompt : prompts)
    seeds.push_back(inference::seed_of_text(seed, prompt.text, seen[prompt.text]++));
  return seeds;
}

void require_ids(std::span<const int32_t> ids, const inference::ModelRuntime& runtime) {
  for (const int32_t id : ids) {
    if (id >= 0 && id < runtime.model.vocab_size) continue;
    throw DataError(
        "[{}] the tokenizer yields the id {}, but the model has {} entries; use the model's own tokenizer",
        runtime.folder.string(), id, runtime.model.vocab_size);
  }
}

}  // namespace

TextGenerator::TextGenerator(inference::ModelRuntime& runtime, const inference::ComputeOptions& compute)
    : runtime_(runtime), compute_(compute) {
  if (runtime_.model.architecture == models::Architecture::kEncoder) {
    throw ConfigError(
        "[generate] {} holds an encoder ({}), which writes no text; expected a decoder or an encoder-decoder",
        runtime_.folder.string(), runtime_.model.family->name);
  }
}

bool TextGenerator::has_encoder() const {
  return runtime_.model.architecture == models::Architecture::kEncoderDecoder;
}

inference::SequenceRequest TextGenerator::request_for(const NamedPrompt& prompt,
                                                      const GenerateOptions& options, uint64_t seed) const {
  const data::Tokenizer& tokenizer = *runtime_.tokenizer;
  auto ids = tokenizer.encode_prompt(prompt.text);
  // An empty prompt begins a new text as in training: with the token that begins one, or after the end of
  // another.
  if (ids.empty())
    ids.push_back(
        static_cast<int32_t>(runtime_.model.bos_id.value_or(tokenizer.end_of_text_id().value_or(0))));
  require_ids(ids, runtime_);
  if (std::ssize(ids) > runtime_.model.max_sequence_length()) {
    throw Error(prompt.kind,
                fmt::format("[{}] the prompt has {} tokens, but the model has {} positions; shorten it",
                            prompt.name, ids.size(), runtime_.model.max_sequence_length()));
  }
  return {std::move(ids),
          {.max_tokens = options.max_tokens,
           .temperature = options.temperature,
           .top_k = options.top_k,
           .top_p = options.top_p,
           .min_p = options.min_p,
           .repetition_penalty = options.repetition_penalty,
           .seed = seed,
           .stop_ids = inference::stop_ids(runtime_.model, &tokenizer),
           .vocab_limit = tokenizer.vocab_size()}};
}

inference::Generator TextGenerator::generator(const GenerationSize& size) {
  if (!loaded_ || !loaded_->covers(size)) {
    runtime_.executor.reset();  // before another one takes its memory
    loaded_ = std::nullopt;
    inference::load_runtime(runtime_, {.compute = compute_,
                                       .requests = inference::generation_requests(inference::kPrefillChunk,
                                                                                  size.sequences, size.read),
                                       .cache_tokens = size.tokens,
                                       .cache_sequences = size.sequences});
    loaded_ = size;
  }
  return {*runtime_.executor, 0, 1};
}

std::vector<Generation> TextGenerator::generate(std::span<const NamedPrompt> prompts,
                                                const GenerateOptions& options,
                                                const GenerateCallbacks& callbacks) {
  if (options.batch < 1 || options.batch > inference::kMaxSequences)
    throw ConfigError("[generate] found --batch {}, expected 1 to {}", options.batch,
                      inference::kMaxSequences);
  if (!runtime_.tokenizer) {
    throw ConfigError("[{}] has no tokenizer.json; put the model's tokenizer there",
                      runtime_.folder.string());
  }
  if (prompts.empty()) return {};
  std::vector<inference::SequenceRequest> requests;
  const std::vector<uint64_t> seeds = seeds_of(prompts, options.seed);
  int64_t longest = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    requests.push_back(request_for(prompts[i], options, seeds[i]));
    longest = std::max(longest, std::ssize(requests.back().prompt));
  }
  const int64_t tokens =
      std::min(runtime_.model.max_sequence_length(), options.max_tokens + (has_encoder() ? 0 : longest));
  inference::Generator generator =
      this->generator({.tokens = tokens,
                       .sequences = std::min<int64_t>(options.batch, std::ssize(prompts)),
                       .read = has_encoder() ? longest : 0});

  std::vector<Generation> made(prompts.size());
  std::map<size_t, inference::TextStream> streams;
  const auto show = [&](size_t i, const std::string& text) {
    if (callbacks.text && !text.empty()) callbacks.text(i, text);
  };
  const auto stream_of = [&](size_t i) -> inference::TextStream& {
    return streams.try_emplace(i, *runtime_.tokenizer, options.stop).first->second;
  };
  generator.generate(
      requests,
      [&](size_t i, int32_t id) {
        inference::TextStream& stream = stream_of(i);
        show(i, stream.push(id));
        return !stream.stopped();
      },
      [&](size_t i, const std::vector<int32_t>& ids) {
        inference::TextStream& stream = stream_of(i);
        show(i, stream.finish());
        const int64_t limit =
            std::min(options.max_tokens, generator.max_new_tokens(std::ssize(requests[i].prompt)));
        made[i] = {
            .text = stream.text(), .tokens = ids, .stopped = stream.stopped() || std::ssize(ids) < limit};
        streams.erase(i);
        if (callbacks.finished) callbacks.finished(i, made[i]);
      },
      callbacks.stop);
  return made;
}

std::vector<float> TextGenerator::logits(std::span<const int32_t> tokens, int64_t first) {
  if (has_encoder()) {
    throw ConfigError("[logits] {} holds an encoder-decoder ({}); expected a decoder",
                      runtime_.folder.string(), runtime_.model.family->name);
  }
  const int64_t count = std::ssize(tokens), positions = runtime_.model.max_sequence_length();
  if (count == 0 || count > positions)
    throw ConfigError("[logits] found {} tokens, expected 1 to {}", count, positions);
  if (first < -1 || first >= count)
    throw ConfigError("[logits] found first = {}, expected -1 to {}", first, count - 1);
  for (const int32_t id : tokens) {
    if (id < 0 || id >= runtime_.model.vocab_size)
      throw ConfigError("[logits] found token {}, expected 0 to {}", id, runtime_.model.vocab_size - 1);
  }
  if (first == -1) first = count - 1;
  inference::Generator generator = this->generator({.tokens = count, .sequences = 1});
  std::vector<float> rows;
  rows.reserve(static_cast<size_t>((count - first) * runtime_.model.vocab_size));
  generator.follow(tokens, first + 1, {}, [&](size_t, std::span<const float> row) {
    rows.insert(rows.end(), row.begin(), row.begin() + runtime_.model.vocab_size);
  });
  return rows;
}

}  // namespace strata::library
