// Checks declarations of token files against each other and against the run.
#pragma once

#include <optional>
#include <string>

#include "config/resolve.h"

namespace strata::config {

// The first file of a corpus whose documents cannot be separated: it has no document table, and its
// end-of-text id is unknown.
std::optional<std::string> without_document_ends(const data::TokenCorpus& corpus);

// Training and held-out tokens must come from one tokenizer and be within the model's vocabulary, as far as
// their files declare it: otherwise throws DataError. Warns if a file ends texts with another token than the
// run's tokenizer. If data.pack needs documents and a file's documents cannot be separated: throws
// ConfigError if the user set data.pack, otherwise warns.
void check_token_files(const RunConfig& config, const models::ModelConfig& model,
                       const data::Tokenizer* tokenizer, const RunData& data);

}  // namespace strata::config
