// Generates text with a model: prompts go into the key–value cache in chunks, one sequence at a time; then
// all active sequences get their next token together, each at its own position in its own cache entry. The
// text for a prompt does not depend on the others: every row of a decoding program is computed separately, in
// the same order for any number of rows.
//
// An encoder-decoder reads the prompt with its encoder, in one pass, into separate caches; its sequence
// then begins with the model's start id.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "inference/sampling.h"
#include "program/executor.h"

namespace strata::inference {

inline constexpr int64_t kPrefillChunk = 64;
inline constexpr int64_t kMaxSequences = 32;  // concurrently

// The programs that a generator needs: prefill of one sequence in chunks of `chunk` tokens, and decoding of
// 1, 2, 4, … up to `sequences` sequences (at most kMaxSequences). Compile them with cache_slots = sequences.
// For an encoder-decoder, whose encoder reads at most `encoder_length` tokens, the first program encodes a
// whole sequence instead.
std::vector<program::Request> generation_requests(int64_t chunk, int64_t sequences = 1,
                                                  int64_t encoder_length = 0);
// Cache capacity for sequences of at most `tokens` tokens, a multiple of `chunk`.
int64_t cache_capacity_for(int64_t tokens, int64_t chunk);

struct SequenceRequest {
  std::vector<int32_t> prompt;  // for an encoder-decoder, its encoder's tokens
  SamplingOptions options;
};

class Generator {
 public:
  // Programs `prefill` (for an encoder-decoder: the encoder's) and all decoding programs from `decode` on
  // must be compiled from generation_requests.
  Generator(program::Executor& executor, size_t prefill, size_t decode);

  // Called with each token of sequence `i`; false: the sequence ends with it.
  using OnToken = std::function<bool(size_t i, int32_t token)>;
  // Called when sequence `i` is finished, in the order of finishing.
  using OnSequence = std::function<void(size_t i, const std::vector<int32_t>& made)>;

  // Writes all sequences. Each ends after max_tokens tokens, at a stop id, when the cache or the model's
  // positions are full, or when on_token returns false. An empty prompt, or one longer than max_length() (for
  // an encoder: than its program), is a ConfigError. If `stop` returns true, active sequences end and no
  // further one begins.
  void generate(std::span<const SequenceRequest> sequences, const OnToken& on_token,
                const OnSequence& on_sequence, const std::function<bool()>& stop = {});

  // One sequence; returns its tokens after the prompt.
  std::vector<int32_t> generate(std::span<const int32_t> prompt, const SamplingOptions& options,
                                const std::function<bool(int32_t)>& on_token = {});

  // Called with the logits after token `i` of a text.
  using OnLogits = std::function<void(size_t i, std::span<const float> logits)>;
  // Follows a text as if it were generated: its first `prompt` tokens are the prompt, and each later one
  // counts as chosen. Reports the logits after the prompt and after each later token. For an encoder-decoder,
  // whose encoder reads `read`, the text begins with start_id, and all of it counts as generated.
  void follow(std::span<const int32_t> text, int64_t prompt, std::span<const int32_t> read,
              const OnLogits& on_logits);

  int64_t max_length() const { return positions_; }         // tokens of the longest sequence
  bool has_encoder() const { return encoder_length_ > 0; }  // an encoder-decoder
  // Layers that keep a state from token to token: they must know which rows of a chunk are tokens.
  bool has_states() const { return executor_.set().options.model.has_states(); }
  // Tokens that can be generated after a prompt of this length.
  int64_t max_new_tokens(int64_t prompt) const { return positions_ + 1 - (has_encoder() ? 1 : prompt); }
  int64_t sequences() const { return sequences_; }  // generated concurrently

 private:
  // A sequence in progress.
  struct Active {
    size_t sequence;
    int32_t slot;
    int64_t position;              // of the next token in its cache
    std::vector<int32_t> history;  // prompt and generated tokens
    size_t prompt_size;
    size_t encoder_size = 0;  // tokens that the encoder read
  };

  Active begin(size_t sequence, const std::vector<int32_t>& prompt, int32_t slot) const;
  void prefill(const Active& active);
  // Writes the encoder's keys and values into the caches of an entry.
  void encode(std::span<const int32_t> prompt, int32_t slot);
  void decode(std::span<const Active> active);
  void read_logits(int64_t row);
  // Chooses the next token from a row of logits; false: the sequence is finished.
  bool choose(Active& active, int64_t row, const SamplingOptions& options, const OnToken& on_token);

  program::Executor& executor_;
  size_t prefill_;
  std::vector<size_t> decodes_;  // by ascending number of sequences
  int64_t chunk_, encoder_length_, positions_, sequences_;
  std::vector<float> logits_;
};

}  // namespace strata::inference
