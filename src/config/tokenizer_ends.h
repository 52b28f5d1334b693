// What [tokenizer] says of the tokens that begin and end texts, laid over what the model's files declare; and
// what follows from it for files of tokens, texts and prompts.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/run_config.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokens/token_file.h"
#include "data/tokens/tokenize.h"
#include "models/model.h"

namespace strata::config {

// The tokenizer with tokenizer.eos and tokenizer.bos, else what the files of model.from declare where its own
// do not. `where`: the tokenizer, for messages. ConfigError for a token that it does not have.
data::Tokenizer with_configured_ends(const RunConfig& config, data::Tokenizer tokenizer,
                                     const std::string& where);

// How token files of the run are read; without a tokenizer, tokenizer.eos must be an id.
data::TokenFileOptions token_file_options(const RunConfig& config, const models::ModelConfig& model,
                                          const data::Tokenizer* tokenizer);

// The tokenizer as texts of the run are encoded. ConfigError where what begins or ends texts lies beyond the
// model's vocabulary.
data::TextEncoder encoder_of_texts(const RunConfig& config, const models::ModelConfig& model,
                                   const data::Tokenizer& tokenizer);

// What people should know of the ends of texts: files that disagree, and a template that is not followed.
void report_ends(const RunConfig& config, const data::Tokenizer& tokenizer);

// What the texts of `key` spell out of special tokens, and what became of it; nothing where they spell out
// none.
void report_special(const RunConfig& config, const std::map<std::string, int64_t>& special,
                    const std::string& key);

// The ids that a sample goes on from: as documents of the run begin, or `whole`, with all that the template
// adds.
std::vector<int32_t> sample_prompt(const RunConfig& config, const data::Tokenizer& tokenizer,
                                   std::string_view prompt, bool whole);

// ConfigError for a tokenizer whose texts have ids beyond the model's vocabulary; a warning where only added
// tokens have such ids, which most texts do not hold.
void check_vocabulary(const RunConfig& config, const data::Tokenizer& tokenizer,
                      const models::ModelConfig& model, const std::string& where);

// DataError if one of these ids, which the tokenizer made of a text that `where` names, lies beyond it.
void require_rows(std::span<const int32_t> ids, const data::Tokenizer& tokenizer,
                  const models::ModelConfig& model, const std::string& where);

}  // namespace strata::config
