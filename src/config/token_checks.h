// What token files say of themselves, held against each other and against what the run wants of them.
#pragma once

#include <optional>
#include <string>

#include "config/resolve.h"

namespace strata::config {

// The first file of a corpus whose documents cannot be told apart: it has no document table, and nobody knows
// its end-of-text id.
std::optional<std::string> without_document_ends(const data::TokenCorpus& corpus);

// Training and held-out tokens must be of one tokenizer and lie in the model's vocabulary, as far as their
// files say: DataError. Where one ends texts otherwise than the run's tokenizer: a warning. Where data.pack
// asks for documents and a file cannot tell them apart: ConfigError where the user asked for it, else a
// warning.
void check_token_files(const RunConfig& config, const models::ModelConfig& model,
                       const data::Tokenizer* tokenizer, const RunData& data);

}  // namespace strata::config
