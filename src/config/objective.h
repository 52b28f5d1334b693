// A model's training objective, its requirements on the tokenizer, and keys that conflict with it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/choice.h"
#include "data/samples/objective.h"
#include "data/tokenizer/tokenizer.h"
#include "models/model.h"

namespace strata::config {

// data.objective; "auto" is the objective of the model's architecture.
data::Objective objective_of(const RunConfig& config, const models::ModelConfig& model);

// Adds keys that conflict with the model's architecture or data.objective.
void check_objective(const RunConfig& config, const models::ModelConfig& model, std::vector<Issue>& issues);

// Chooses the objective, and the packing for span corruption if none is set.
std::vector<Choice> choose_objective(const RunConfig& config, const models::ModelConfig& model);

// The token positions of a row, for which the run's programs are compiled.
data::RowShape row_shape(const RunConfig& config, const models::ModelConfig& model);

// "a decoder", "an encoder", "an encoder-decoder".
std::string_view kind_of(const models::ModelConfig& model);

// Whether the model can generate text: not if experts choose among the tokens of a whole sequence.
bool reads_token_by_token(const models::ModelConfig& model);
// Whether evaluations show generated text: always for a decoder; for an encoder-decoder if
// eval.sample_prompts provides input.
bool writes_samples(const RunConfig& config, const models::ModelConfig& model);

// Replaces a preset's special-token ids by those of the tokenizer.
void take_ids(models::ModelConfig& model, const data::Tokenizer& tokenizer);

// The rates from the configuration and the tokenizer's ids. Throws ConfigError if there is no tokenizer or it
// lacks a token that the objective needs.
data::ObjectiveOptions objective_options(const RunConfig& config, const models::ModelConfig& model,
                                         const data::Tokenizer* tokenizer);

// Special tokens of a tokenizer that is trained for the run: tokenizer.train.special and those that the
// objective needs. If the key is unset, names are those of BERT's and T5's tokenizers.
struct SpecialTokens {
  std::vector<std::string> tokens;
  std::string begin, end;  // added around a text that is encoded with special tokens; empty: none
};
SpecialTokens special_tokens(const RunConfig& config, const models::ModelConfig& model);

}  // namespace strata::config
