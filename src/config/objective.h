// What a run's model learns, what that asks of the tokenizer, and what does not go with it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/choice.h"
#include "data/samples/objective.h"
#include "data/tokenizer/tokenizer.h"
#include "models/model.h"

namespace strata::config {

// data.objective; "auto" is the one that the model's architecture learns by.
data::Objective objective_of(const RunConfig& config, const models::ModelConfig& model);

// Adds what the model's architecture and data.objective make wrong among the keys.
void check_objective(const RunConfig& config, const models::ModelConfig& model, std::vector<Fault>& faults);

// The objective, and the packing of span corruption where none was given.
std::vector<Choice> choose_objective(const RunConfig& config, const models::ModelConfig& model);

// The places of a row: what the programs of the run are made for.
data::RowShape row_shape(const RunConfig& config, const models::ModelConfig& model);

// "a decoder", "an encoder", "an encoder-decoder".
std::string_view kind_of(const models::ModelConfig& model);

// Whether a text can be written with it: not where experts choose among the tokens of a whole sequence.
bool reads_token_by_token(const models::ModelConfig& model);
// Whether evaluations show texts of the model: a decoder's always, an encoder-decoder's where
// eval.sample_prompts give it something to read.
bool writes_samples(const RunConfig& config, const models::ModelConfig& model);

// Of a model that begins with a preset's ids: those of the tokenizer's own tokens.
void take_ids(models::ModelConfig& model, const data::Tokenizer& tokenizer);

// The rates of the configuration and the tokenizer's ids. ConfigError where there is no tokenizer or it lacks
// a token that the objective needs.
data::ObjectiveOptions objective_options(const RunConfig& config, const models::ModelConfig& model,
                                         const data::Tokenizer* tokenizer);

// Of a tokenizer that is trained for the run: tokenizer.train.special and what the objective needs besides.
// Where the key was not given, the names are those of BERT's and T5's tokenizers.
struct SpecialTokens {
  std::vector<std::string> tokens;
  std::string begin, end;  // put around a text when it is encoded with special tokens; empty: none
};
SpecialTokens special_tokens(const RunConfig& config, const models::ModelConfig& model);

}  // namespace strata::config
