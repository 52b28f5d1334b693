// training.batch_ramp and training.length_warmup: the sizes of a step as functions of the tokens trained on.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "program/program.h"

namespace strata::config {

struct StepSize {
  int64_t sequences = 0;  // samples in the batch, each of sequence_length tokens
  int64_t length = 0;     // of the equal sequences that a sample is cut into
  bool operator==(const StepSize&) const = default;
};

// The batches that a run may have, ascending; the last is global_batch_size. With "noise_scale" they double,
// from the smallest with two whole micro-batches for every rank and one for every stage of a pipeline; a
// micro-batch that is still to be chosen counts as one sequence.
std::vector<int64_t> batch_sizes(const RunConfig& config);
// The number of sequences that a rank has of each of them is a multiple of this.
int64_t shared_sequences(const RunConfig& config);

class Ramps {
 public:
  // `batch`: the current one of a run whose batch follows the noise scale; unset: the one it begins with.
  explicit Ramps(const RunConfig& config, std::optional<int64_t> batch = {});

  // The sizes of the step after this number of tokens.
  StepSize at(int64_t tokens) const;
  // In the order in which steps may have them.
  std::vector<StepSize> sizes() const;
  // Whether sizes change during the run; without changes due to the noise scale.
  bool changes() const { return entries_.size() > 1; }

  // Consecutive steps of equal size, and the tokens and samples of all steps before them.
  struct Period {
    int64_t steps = 0;
    StepSize size;
    int64_t steps_before = 0, tokens = 0, samples = 0;
  };
  // The end of a series of steps, which reaches the first of these, in whole steps.
  struct End {
    int64_t steps = std::numeric_limits<int64_t>::max();
    int64_t tokens = std::numeric_limits<int64_t>::max();   // of the run
    int64_t samples = std::numeric_limits<int64_t>::max();  // of these steps
  };
  // From `tokens` of the run to `end`, which at least one number must limit. `filled`: the share of token
  // positions that hold text.
  std::vector<Period> periods(int64_t tokens, const End& end, double filled = 1) const;
  int64_t steps(int64_t tokens, const End& end, double filled = 1) const;
  int64_t samples(int64_t tokens, const End& end, double filled = 1) const;

  std::string str() const;

 private:
  struct Entry {
    int64_t tokens;  // from which on it holds
    StepSize size;
  };
  int64_t sequence_length_;
  std::vector<Entry> entries_;  // ascending, the first from 0 on
};

// "4 samples in sequences of 8 tokens; from 200 tokens on 8 in sequences of 16"; empty without a ramp.
std::string ramps_in_words(const RunConfig& config);

// All sizes that steps may have, the full one first.
std::vector<StepSize> step_sizes(const RunConfig& config);
// The set's training program for a step of this size; InternalError if it has none.
size_t training_program(const program::ProgramSet& set, const RunConfig& config, const StepSize& size);

// Calls report(key, problem) for each error of the two keys that need no model to be found.
using ReportIssue = std::function<void(const std::string& key, const std::string& problem)>;
void check_ramps(const RunConfig& config, const ReportIssue& report);
// The key whose last size no step of the run reaches; empty: none.
std::string unfinished_ramp(const RunConfig& config);
// Errors that depend on the model and on resolved choices. Throws ConfigError.
void require_ramps(const RunConfig& config, const models::ModelConfig& model);

}  // namespace strata::config
