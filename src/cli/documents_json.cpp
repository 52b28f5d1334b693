#include "cli/documents_json.h"

#include <fmt/core.h>

namespace strata::cli {

nlohmann::ordered_json document_json(const training::SampleDocument& document) {
  const std::optional<data::RecordId>& id = document.name.id;
  nlohmann::ordered_json shown;
  if (id)
    shown = id->is_json ? parse_json_or_discard<nlohmann::ordered_json>(id->text)
                        : nlohmann::ordered_json(id->text);
  return {{"sample", document.sample},
          {"source", document.source},
          {"file", document.name.file},
          {"document", document.name.number},
          {"id", shown},
          {"first_token", document.first_token},
          {"tokens", document.tokens}};
}

std::string document_text(const training::SampleDocument& document) {
  return fmt::format("{}: {}, document {}{}, tokens {} to {}", document.source, document.name.file,
                     document.name.number,
                     document.name.id ? fmt::format(" (id {})", document.name.id->text) : "",
                     document.first_token, document.first_token + document.tokens - 1);
}

}  // namespace strata::cli
