// The resolved inputs of a run, shared by the components of the training loop.
#pragma once

#include <string>

#include "base/hash.h"
#include "config/resolve.h"
#include "program/ranks.h"

namespace strata::training {

// The inputs that decide the samples of a run.
struct SampleInputs {
  const config::RunConfig& config;
  const models::ModelConfig& model;
  const data::Tokenizer* tokenizer;  // nullptr: the run has none
  const config::RunData& data;
};

// References to objects that outlive the loop and do not change while it runs.
struct RunInputs {
  const config::RunConfig& config;
  const models::ModelConfig& model;
  const data::Tokenizer* tokenizer;  // nullptr: the run has none
  const config::RunData& data;
  const program::Ranks& ranks;

  SampleInputs of_samples() const { return {config, model, tokenizer, data}; }
  // The first rank reports the run.
  bool is_first() const { return ranks.is_first(); }
  // Empty without a tokenizer.
  std::string tokenizer_hash() const { return tokenizer != nullptr ? to_hex(tokenizer->hash()) : ""; }
};

}  // namespace strata::training
