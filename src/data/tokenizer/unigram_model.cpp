#include "data/tokenizer/unigram_model.h"

#include <algorithm>

#include "base/error.h"
#include "data/tokenizer/unicode.h"

namespace strata::data {
namespace {

constexpr int32_t kUnknown = -1;

}  // namespace

UnigramModel::UnigramModel(const UnigramConfig& config)
    : vocabulary_(config.vocabulary),
      unknown_id_(config.unknown_id),
      unknown_score_(config.unknown_score),
      byte_fallback_(config.byte_fallback),
      lookup_unknown_(config.lookup_unknown),
      sums_(config.sums) {
  std::vector<std::pair<std::string_view, int32_t>> entries;
  entries.reserve(config.tokens.size());
  for (const UnigramConfig::Token& token : config.tokens) {
    entries.emplace_back(token.text, static_cast<int32_t>(ids_.size()));
    ids_.push_back(token.id);
    scores_.push_back(token.score);
  }
  trie_ = ByteTrie(std::move(entries));
  if (unknown_id_ && !vocabulary_.has(*unknown_id_)) {
    throw DataError("[tokenizer] {}.unk_id is {}, which is not a token", config.where, *unknown_id_);
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    fallback_ids_[byte] = vocabulary_.find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
}

void UnigramModel::find_best_path(std::string_view piece, UnigramScratch& scratch) const {
  auto& nodes = scratch.nodes;
  nodes.assign(piece.size() + 1, {0, -1, kUnknown});
  const bool rounds = sums_ == UnigramSums::kFloat;
  const auto offer = [&](size_t from, size_t to, double score, int32_t id) {
    UnigramScratch::Node& node = nodes[to];
    double sum = score + nodes[from].score;
    if (rounds) sum = static_cast<float>(sum);
    if (node.from >= 0 && !(sum > node.score)) return;
    node = {sum, static_cast<int64_t>(from), id};
  };
  for (size_t at = 0; at < piece.size();) {
    const size_t size = decode_code_point(piece.data() + at, piece.data() + piece.size()).size;
    bool single = false;
    trie_.for_each_prefix(piece, at, [&](size_t length, int32_t token) {
      offer(at, at + length, scores_[static_cast<size_t>(token)], ids_[static_cast<size_t>(token)]);
      single |= length == size;
    });
    if (!single) offer(at, at + size, unknown_score_, kUnknown);
    at += size;
  }
}

void UnigramModel::encode_piece(std::string_view piece, UnigramScratch& scratch,
                                std::vector<int32_t>& out) const {
  if (piece.empty()) return;
  find_best_path(piece, scratch);
  auto& parts = scratch.parts;
  parts.clear();
  for (size_t end = piece.size(); end > 0;) {
    const UnigramScratch::Node& node = scratch.nodes[end];
    const auto from = static_cast<size_t>(node.from);
    const bool unknown = node.id == kUnknown || node.id == unknown_id_;
    if (unknown && !parts.empty() && parts.back().id == kUnknown) {
      parts.back().begin = from;  // a run of unknown characters is one part
    } else {
      parts.push_back({from, end, unknown ? kUnknown : node.id});
    }
    end = from;
  }
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (part->id != kUnknown) {
      out.push_back(part->id);
    } else {
      write_unknown(piece.substr(part->begin, part->end - part->begin), out);
    }
  }
}

void UnigramModel::write_unknown(std::string_view text, std::vector<int32_t>& out) const {
  if (lookup_unknown_) {
    if (const auto id = vocabulary_.find(text)) return out.push_back(*id);
  }
  const auto fallback = [&](char byte) { return fallback_ids_[static_cast<uint8_t>(byte)]; };
  if (byte_fallback_ &&
      std::all_of(text.begin(), text.end(), [&](char byte) { return fallback(byte) >= 0; })) {
    for (const char byte : text) out.push_back(fallback(byte));
    return;
  }
  if (!unknown_id_) {
    throw DataError("[tokenizer] '{}' is not a token, and the model has no unknown token for it",
                    replace_invalid_utf8(text.substr(0, 100)));
  }
  out.push_back(*unknown_id_);
}

}  // namespace strata::data
