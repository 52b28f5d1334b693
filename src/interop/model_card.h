// The files of a model folder besides config.json and weights: the tokenizer's, generation_config.json and,
// for a model trained here, a model card.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/huggingface.h"
#include "checkpoint/manifest.h"
#include "data/tokenizer/tokenizer.h"
#include "models/model.h"

namespace strata::interop {

// generation_config.json and, if `tokenizer` is not null, its files.
std::vector<checkpoint::NamedFile> companion_files(const models::ModelConfig& model,
                                                   const data::Tokenizer* tokenizer);

// Like companion_files(), for an existing folder. Its own files, README.md included, are copied unchanged, to
// preserve chat templates and lists of special tokens; missing ones are derived from tokenizer.json.
std::vector<checkpoint::NamedFile> companion_files_of(const Path& folder, const models::ModelConfig& model);

// How a model was trained.
struct TrainingFacts {
  std::string run;
  int64_t steps = 0, tokens = 0;
  uint64_t seed = 0;
  std::string data;  // its sources, as text; empty: unknown
  checkpoint::Health health;
  std::string program;
  std::string run_toml;            // the resolved configuration; empty: unknown
  std::vector<std::string> leaks;  // how its routing let tokens see later ones (models::routing_leaks)
};

// README.md, with front matter for the Hugging Face hub. The licence is left to the publisher.
std::string model_card(const models::ModelConfig& model, const TrainingFacts& facts);

}  // namespace strata::interop
