#include "config/token_checks.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "config/names.h"

namespace strata::config {
namespace {

std::vector<const data::TokenFile*> files_of(const RunData& data) {
  std::vector<const data::TokenFile*> files;
  const auto add = [&](const data::TokenCorpus& corpus) {
    for (const data::TokenSegment& segment : corpus.segments()) {
      if (files.empty() || files.back() != segment.file.get()) files.push_back(segment.file.get());
    }
  };
  for (const auto& source : data.sources) add(source.corpus);
  for (const HeldOut& held : data.held_out) add(held.corpus);
  return files;
}

// A hash of another length comes from another program and cannot be compared.
bool comparable(const std::string& a, const std::string& b) {
  return !a.empty() && a.size() == b.size();
}

void check_same_tokenizer(const data::TokenFile& first, const data::TokenFile& file) {
  const auto refuse = [&](const std::string& one, const std::string& other) {
    throw DataError(
        "[{}] was made with {}, but {} with {}: their ids have different meanings. Tokenize all texts with the "
        "same tokenizer",
        file.name(), other, first.name(), one);
  };
  if (comparable(first.tokenizer_hash(), file.tokenizer_hash()) &&
      first.tokenizer_hash() != file.tokenizer_hash())
    refuse("the tokenizer " + first.tokenizer_hash(), "the tokenizer " + file.tokenizer_hash());
  if (!first.tokenizer_name().empty() && !file.tokenizer_name().empty() &&
      first.tokenizer_name() != file.tokenizer_name())
    refuse("the tokenizer " + first.tokenizer_name(), "the tokenizer " + file.tokenizer_name());
  if (first.end_of_text() && file.end_of_text() && *first.end_of_text() != *file.end_of_text())
    refuse(fmt::format("the end-of-text id {}", *first.end_of_text()),
           fmt::format("the end-of-text id {}", *file.end_of_text()));
}

void check_ends(const RunConfig& config, const data::TokenCorpus& corpus) {
  const auto file = without_document_ends(corpus);
  if (!file) return;
  const std::string_view pack = spelled(config.data.pack);
  const std::string text = fmt::format(
      "[data.pack] is \"{}\", but {} has neither a document table nor a known end-of-text id, so it counts as "
      "one document; set tokenizer.path, add \"end_of_text_id\" to its .json file, or set data.pack = "
      "\"stream\"",
      pack, *file);
  // A run's own run.toml contains every key, whether the user or the program chose its value.
  if (config.was_set("data.pack") && config.run.started_in.empty()) throw ConfigError("{}", text);
  log_warning("{}", text);
}

}  // namespace

std::optional<std::string> without_document_ends(const data::TokenCorpus& corpus) {
  for (const data::TokenSegment& segment : corpus.segments()) {
    if (!segment.file->has_documents() && !segment.file->end_of_text()) return segment.file->name();
  }
  return std::nullopt;
}

void check_token_files(const RunConfig& config, const models::ModelConfig& model,
                       const data::Tokenizer* tokenizer, const RunData& data) {
  std::vector<const data::TokenFile*> seen;  // one of each set of equal declarations
  bool warned = false;
  for (const data::TokenFile* each : files_of(data)) {
    const data::TokenFile& file = *each;
    // With the run's own tokenizer the ids matter, and they have been checked.
    const bool own = tokenizer != nullptr && file.tokenizer_hash() == to_hex(tokenizer->hash());
    if (file.declared_vocab() > model.vocab_size && !own) {
      throw DataError(
          "[{}] has a vocabulary of {} tokens, but the model has {}; raise model.vocab_size (with a preset: "
          "model.override.vocab_size), or use tokens of the model's own tokenizer",
          file.name(), file.declared_vocab(), model.vocab_size);
    }
    const auto declares_the_same = [&](const data::TokenFile* other) {
      return other->tokenizer_hash() == file.tokenizer_hash() &&
             other->tokenizer_name() == file.tokenizer_name() && other->end_of_text() == file.end_of_text();
    };
    if (std::any_of(seen.begin(), seen.end(), declares_the_same)) continue;
    for (const data::TokenFile* other : seen) check_same_tokenizer(*other, file);
    seen.push_back(each);
    const auto end = tokenizer != nullptr ? tokenizer->end_of_text_id() : std::nullopt;
    if (config.tokenizer.add_eos && end && file.end_of_text() && *file.end_of_text() != *end && !warned) {
      warned = true;
      log_warning(
          "{} ends texts with the id {} ({}), but the run's tokenizer with {} ({}), from {}; set tokenizer.eos "
          "= {} if the file is right",
          file.name(), *file.end_of_text(), tokenizer->id_to_token(*file.end_of_text()), *end,
          tokenizer->id_to_token(*end), tokenizer->ends().end_from, *file.end_of_text());
    }
  }
  if (config.data.pack == data::Pack::kStream) return;
  for (const auto& source : data.sources) check_ends(config, source.corpus);
  for (const HeldOut& held : data.held_out) check_ends(config, held.corpus);
}

}  // namespace strata::config
