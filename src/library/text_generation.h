// Generates texts for prompts: shared by the library and the command line.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "inference/generate.h"
#include "inference/model_runtime.h"
#include "strata/model.h"

namespace strata::library {

struct NamedPrompt {
  std::string text;
  std::string name;                     // in messages: "--prompt", "prompts.jsonl:3"
  ErrorKind kind = ErrorKind::kConfig;  // of an error in it
};

// What an executor for generation has capacity for.
struct GenerationSize {
  int64_t tokens = 0;     // of a sequence; of an encoder-decoder, of those it writes
  int64_t sequences = 0;  // written concurrently
  int64_t read = 0;       // tokens that an encoder reads
  bool covers(const GenerationSize& other) const {
    return tokens >= other.tokens && sequences >= other.sequences && read >= other.read;
  }
};

// A model that generates. Loads the weights again when a request exceeds the planned size.
class TextGenerator {
 public:
  // ConfigError for a model without a tokenizer or that writes no text.
  TextGenerator(inference::ModelRuntime& runtime, const inference::ComputeOptions& compute);

  // kConfig for options and prompts that do not fit the model; calls back as GenerateCallbacks describes.
  std::vector<Generation> generate(std::span<const NamedPrompt> prompts, const GenerateOptions& options,
                                   const GenerateCallbacks& callbacks);
  // As Model::logits.
  std::vector<float> logits(std::span<const int32_t> tokens, int64_t first);

  bool has_encoder() const;

 private:
  inference::SequenceRequest request_for(const NamedPrompt& prompt, const GenerateOptions& options,
                                         uint64_t seed) const;
  inference::Generator generator(const GenerationSize& size);

  inference::ModelRuntime& runtime_;
  inference::ComputeOptions compute_;
  std::optional<GenerationSize> loaded_;
};

}  // namespace strata::library
