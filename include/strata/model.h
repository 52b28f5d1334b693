// Trained models: logits, text and losses.
//
// Threads: a Model is used by one thread at a time; different models may be used by different threads, and share the
// process's compute threads. Ownership: a Model owns its weights and frees them when it is destroyed; results are
// values. Errors: kConfig for arguments and for what a model cannot do (an encoder writes no text), kData for the
// content of model, tokenizer and texts, kWorld for files and memory. Stability: members may be added to the structs
// within 0.x. The same arguments give the same numbers and texts on the same machine, whatever else is computed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/error.h"

namespace strata {

struct ModelOptions {
  // KEY=VALUE, with values in TOML, of the tables that matter without a run: "precision.compute=\"bf16\"",
  // "device.threads=4", "data.pack=\"documents\"".
  std::vector<std::string> sets = {};
  // Messages of open() and of all functions of the model.
  Log log = {};
};

struct GenerateOptions {
  std::int64_t max_tokens = 100;  // new ones
  double temperature = 1.0;       // 0: always the most probable token
  std::int64_t top_k = 0;         // 0: all
  double top_p = 1.0;
  double min_p = 0.0;  // only tokens of at least this share of the most probable one's probability
  double repetition_penalty = 1.0;
  std::uint64_t seed = 1234;
  std::vector<std::string> stop = {};  // texts before which the result ends
  std::int64_t batch = 8;  // texts that are written together, 1 to 32; the texts do not depend on it
};

struct Generation {
  std::string text;                  // without the prompt and without the stop text
  std::vector<std::int32_t> tokens;  // all that were made
  bool stopped = false;              // at an end of text or a stop text, before max_tokens
};

struct GenerateCallbacks {
  // More text of prompt `i`, in whole characters.
  std::function<void(std::size_t i, std::string_view text)> text = {};
  // The text of prompt `i` is complete; called in the order in which they end.
  std::function<void(std::size_t i, const Generation& made)> finished = {};
  // true: end all texts now.
  std::function<bool()> stop = {};
};

struct EvalOptions {
  std::int64_t sequence_length = 0;  // targets of a window; 0: 512, or all positions of a model with fewer
  std::int64_t stride = 0;           // between the starts of two windows; 0: the sequence length
  std::function<bool(double done)> go_on = {};  // called with the share that is done; false: stop
};

struct EvalReport {
  double loss = 0, perplexity = 0;      // mean over tokens, natural logarithm
  std::int64_t tokens = 0;              // targets
  std::optional<double> bits_per_byte;  // of texts
  bool stopped = false;                 // by go_on: of the windows until then
};

class STRATA_API Model {
 public:
  // A Hugging Face directory, a run, a checkpoint, RUN@latest or RUN@best. Weights are loaded by the first function that
  // needs them.
  static Model open(const std::string& path, const ModelOptions& options = {});
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  const std::string& folder() const;  // the Hugging Face directory
  std::int64_t parameters() const;
  std::int64_t vocab_size() const;
  std::int64_t max_length() const;  // positions

  // With the model's tokenizer, which the model's folder must contain.
  std::vector<std::int32_t> encode(std::string_view text) const;
  std::string decode(std::span<const std::int32_t> ids) const;

  // [tokens.size() − first, vocab_size] in rows: row i holds the logits of the token after tokens[first + i]. `first` −1:
  // only of the token after the last. For decoders.
  std::vector<float> logits(std::span<const std::int32_t> tokens, std::int64_t first = -1);

  // A decoder continues the prompt; an encoder-decoder reads it and writes a separate text.
  Generation generate(const std::string& prompt, const GenerateOptions& options = {});
  std::vector<Generation> generate(std::span<const std::string> prompts, const GenerateOptions& options = {},
                                   const GenerateCallbacks& callbacks = {});

  // Mean loss on a text file, or on token files, named by a path or a pattern.
  EvalReport evaluate_text(const std::string& path, const EvalOptions& options = {});
  EvalReport evaluate_tokens(const std::string& path, const EvalOptions& options = {});
  // On a text in memory.
  EvalReport evaluate(const std::string& text, const EvalOptions& options = {});

  struct Impl;  // internal
  explicit Model(std::unique_ptr<Impl> impl);
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata
