// Tokens that begin and end texts: [tokenizer] overrides the declarations in the model's files. Also the
// consequences for token files, texts and prompts.
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

// The tokenizer with tokenizer.eos and tokenizer.bos, else with the declarations in the files of model.from
// if it has none itself. `where`: the tokenizer, for messages. Throws ConfigError for a token that it does
// not have.
data::Tokenizer with_configured_ends(const RunConfig& config, const data::Tokenizer& tokenizer,
                                     const std::string& where);

// How the run's token files are read; without a tokenizer, tokenizer.eos must be an id.
data::TokenFileOptions token_file_options(const RunConfig& config, const models::ModelConfig& model,
                                          const data::Tokenizer* tokenizer);

// The tokenizer, set up to encode the run's texts. Throws ConfigError if a token that begins or ends texts is
// beyond the model's vocabulary.
data::TextEncoder encoder_of_texts(const RunConfig& config, const models::ModelConfig& model,
                                   const data::Tokenizer& tokenizer);

// Logs files that disagree about the ends of texts, and a template that is not followed.
void report_ends(const RunConfig& config, const data::Tokenizer& tokenizer);

// Logs the special tokens that the texts of `key` spell out, and how they were encoded; nothing if there are
// none.
void report_special(const RunConfig& config, const std::map<std::string, int64_t>& special,
                    const std::string& key);

// The ids that a sample continues: as documents of the run begin, or `whole`, with all tokens that the
// template adds.
std::vector<int32_t> sample_prompt(const RunConfig& config, const data::Tokenizer& tokenizer,
                                   std::string_view prompt, bool whole);

// Throws ConfigError for a tokenizer whose texts have ids beyond the model's vocabulary; only warns for added
// tokens, which most texts do not contain.
void check_vocabulary(const RunConfig& config, const data::Tokenizer& tokenizer,
                      const models::ModelConfig& model, const std::string& where);

// Throws DataError if one of these ids, encoded from a text that `where` names, is beyond the vocabulary.
void require_rows(std::span<const int32_t> ids, const data::Tokenizer& tokenizer,
                  const models::ModelConfig& model, const std::string& where);

}  // namespace strata::config
