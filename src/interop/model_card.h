// What a model folder holds besides config.json and weights: the tokenizer's files, generation_config.json
// and, for a model that a run made, a card that says how.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/huggingface.h"
#include "checkpoint/manifest.h"
#include "data/tokenizer/tokenizer.h"
#include "models/model.h"

namespace strata::interop {

// generation_config.json and, with a tokenizer, its files.
std::vector<checkpoint::NamedFile> companion_files(const models::ModelConfig& model,
                                                   const data::Tokenizer* tokenizer);

// The same for a folder that exists: its own files where it has them, so that a chat template or a list of
// special tokens stays what it was, the rest made from tokenizer.json; README.md where it has one.
std::vector<checkpoint::NamedFile> companion_files_of(const Path& folder, const models::ModelConfig& model);

// How a model was trained.
struct TrainingFacts {
  std::string run;
  int64_t steps = 0, tokens = 0;
  uint64_t seed = 0;
  std::string data;  // its sources, for a reader; empty: not known
  checkpoint::Health health;
  std::string program;
  std::string run_toml;            // the resolved configuration; empty where it is not known
  std::vector<std::string> leaks;  // how its routing let tokens see later ones (models::routing_leaks)
};

// README.md, with the front matter that the Hugging Face hub reads. The licence is left to whoever publishes.
std::string model_card(const models::ModelConfig& model, const TrainingFacts& facts);

}  // namespace strata::interop
