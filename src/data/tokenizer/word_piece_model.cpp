#include "data/tokenizer/word_piece_model.h"

#include "base/error.h"
#include "data/tokenizer/unicode.h"

namespace strata::data {
namespace {

int64_t count_characters(std::string_view text) {
  int64_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) {
    at += decode_code_point(text.data() + at, text.data() + text.size()).size;
  }
  return count;
}

}  // namespace

WordPieceModel::WordPieceModel(const WordPieceConfig& config)
    : vocabulary_(config.vocabulary), longest_word_(config.longest_word) {
  const auto unknown = vocabulary_.find(config.unknown_token);
  if (!unknown) {
    throw DataError("[tokenizer] {}.unk_token is '{}', but it is not in model.vocab", config.where,
                    config.unknown_token);
  }
  unknown_id_ = *unknown;
  std::vector<std::pair<std::string_view, int32_t>> starts;
  std::vector<std::pair<std::string_view, int32_t>> continuations;
  for (const StringTable::Entry& entry : config.vocabulary) {
    starts.emplace_back(entry.text, entry.id);
    if (entry.text.starts_with(config.continuing_prefix)) {
      continuations.emplace_back(entry.text.substr(config.continuing_prefix.size()), entry.id);
    }
  }
  starts_ = ByteTrie(std::move(starts));
  continuations_ = ByteTrie(std::move(continuations));
}

void WordPieceModel::encode_piece(std::string_view piece, std::vector<int32_t>& out) const {
  const size_t first = out.size();
  bool known = count_characters(piece) <= longest_word_;
  for (size_t at = 0; known && at < piece.size();) {
    int32_t id = -1;
    size_t longest = 0;
    (at == 0 ? starts_ : continuations_).for_each_prefix(piece, at, [&](size_t size, int32_t value) {
      longest = size;
      id = value;
    });
    known = id >= 0;
    out.push_back(id);
    at += longest;
  }
  if (known) return;
  out.resize(first);
  out.push_back(unknown_id_);
}

}  // namespace strata::data
