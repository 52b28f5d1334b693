// Documents of samples, as verbs print them.
#pragma once

#include <string>

#include "base/json.h"
#include "train/run_documents.h"

namespace strata::cli {

// {"sample", "source", "file", "document", "id", "first_token", "tokens"}
nlohmann::ordered_json document_json(const training::SampleDocument& document);
// "web: corpus.jsonl, document 17 (id d17), tokens 0 to 15"
std::string document_text(const training::SampleDocument& document);

}  // namespace strata::cli
