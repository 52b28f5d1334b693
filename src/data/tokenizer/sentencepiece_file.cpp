// SentencePiece .model files: a protobuf message, read field by field without a library.
#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "data/tokenizer/tokenizer_parts.h"

namespace strata::data {
namespace {

// The fields of one message, in order. Errors are DataErrors naming the file.
class ProtoReader {
 public:
  ProtoReader(std::string_view message, const std::string& where) : bytes_(message), where_(where) {}

  // The next field; false at the end. Of a length-delimited field `bytes` is the content, else `number`.
  bool next() {
    if (at_ == bytes_.size()) return false;
    const uint64_t tag = varint();
    field = tag >> 3;
    kind_ = static_cast<int>(tag & 7);
    bytes = {};
    number = 0;
    switch (kind_) {
      case 0:
        number = varint();
        return true;
      case 1:
        take(8);
        return true;
      case 2:
        bytes = take(varint());
        return true;
      case 5: {
        uint32_t word = 0;
        std::memcpy(&word, take(4).data(), sizeof word);
        number = word;
        return true;
      }
      default:
        fail();
    }
  }

  // The field as the expected type.
  std::string_view text() const { return kind_ == 2 ? bytes : (fail(), bytes); }
  bool flag() const { return whole() != 0; }
  int64_t whole() const { return kind_ == 0 ? static_cast<int64_t>(number) : (fail(), 0); }
  float real() const {
    if (kind_ != 5) fail();
    const auto word = static_cast<uint32_t>(number);
    float value = 0;
    std::memcpy(&value, &word, sizeof value);
    return value;
  }

  uint64_t field = 0;
  uint64_t number = 0;
  std::string_view bytes;

 private:
  [[noreturn]] void fail() const {
    throw DataError("[tokenizer] {} is damaged at byte {} of a message of {}, expected a SentencePiece model",
                    where_, at_, bytes_.size());
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) fail();
      const auto byte = static_cast<uint8_t>(bytes_[at_++]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    fail();
  }
  std::string_view take(uint64_t size) {
    if (size > bytes_.size() - at_) fail();
    const std::string_view taken = bytes_.substr(at_, size);
    at_ += size;
    return taken;
  }

  std::string_view bytes_;
  const std::string& where_;
  size_t at_ = 0;
  int kind_ = 0;
};

enum PieceType { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct SpmPiece {
  std::string_view text;
  float score = 0;
  int64_t type = kNormal;
};

struct SpmFile {
  std::vector<SpmPiece> pieces;
  int64_t model_type = 1;  // 1: unigram, 2: BPE, 3: words, 4: characters
  bool byte_fallback = false;
  bool space_after = false;
  std::string_view unknown_surface = " \u2047 ";
  std::string_view bos_piece = "<s>";
  std::string_view charsmap;
  bool add_dummy_prefix = true;
  bool remove_extra_spaces = true;
  bool escape_spaces = true;
  bool denormalizes = false;
};

SpmPiece read_piece(std::string_view bytes, const std::string& where) {
  SpmPiece piece;
  for (ProtoReader in(bytes, where); in.next();) {
    if (in.field == 1) piece.text = in.text();
    if (in.field == 2) piece.score = in.real();
    if (in.field == 3) piece.type = in.whole();
  }
  return piece;
}

void read_trainer(std::string_view bytes, const std::string& where, SpmFile& file) {
  for (ProtoReader in(bytes, where); in.next();) {
    if (in.field == 3) file.model_type = in.whole();
    if (in.field == 24) file.space_after = in.flag();
    if (in.field == 35) file.byte_fallback = in.flag();
    if (in.field == 44) file.unknown_surface = in.text();
    if (in.field == 46 && !in.text().empty()) file.bos_piece = in.text();
  }
}

void read_normalizer_spec(std::string_view bytes, const std::string& where, SpmFile& file) {
  for (ProtoReader in(bytes, where); in.next();) {
    if (in.field == 2) file.charsmap = in.text();
    if (in.field == 3) file.add_dummy_prefix = in.flag();
    if (in.field == 4) file.remove_extra_spaces = in.flag();
    if (in.field == 5) file.escape_spaces = in.flag();
  }
}

SpmFile read_file_fields(std::string_view content, const std::string& where) {
  SpmFile file;
  for (ProtoReader in(content, where); in.next();) {
    if (in.field == 1) file.pieces.push_back(read_piece(in.text(), where));
    if (in.field == 2) read_trainer(in.text(), where, file);
    if (in.field == 3) read_normalizer_spec(in.text(), where, file);
    if (in.field == 5) {
      for (ProtoReader spec(in.text(), where); spec.next();) {
        if (spec.field == 2 && !spec.text().empty()) file.denormalizes = true;
      }
    }
  }
  return file;
}

std::optional<uint8_t> byte_of(std::string_view text) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (text == fmt::format("<0x{:02X}>", byte)) return static_cast<uint8_t>(byte);
  }
  return std::nullopt;
}

// The unknown token's id; refuses errors that the library does not accept either.
int32_t check_pieces(const SpmFile& file, const std::string& where) {
  std::optional<int32_t> unknown;
  size_t bytes = 0;
  if (file.pieces.size() >= size_t{1} << 24) throw DataError("[tokenizer] {} has too many pieces", where);
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const SpmPiece& piece = file.pieces[id];
    if (piece.text.empty()) throw DataError("[tokenizer] {}: piece {} has no text", where, id);
    if (piece.type < kNormal || piece.type > kByte) {
      throw DataError("[tokenizer] {}: piece {} has type {}, expected 1 to 6", where, id, piece.type);
    }
    if (piece.type == kUnknown) {
      if (unknown) throw DataError("[tokenizer] {} has two unknown pieces, {} and {}", where, *unknown, id);
      unknown = static_cast<int32_t>(id);
    }
    if (piece.type == kByte && !byte_of(piece.text)) {
      throw DataError("[tokenizer] {}: the byte piece {} is '{}', expected <0x00> to <0xFF>", where, id,
                      piece.text);
    }
    bytes += piece.type == kByte;
  }
  if (!unknown) throw DataError("[tokenizer] {} has no unknown piece; is it a SentencePiece model?", where);
  if (file.byte_fallback && bytes < 256) {
    throw DataError("[tokenizer] {} falls back to bytes, but has {} byte pieces, expected 256", where, bytes);
  }
  return *unknown;
}

bool in_text(const SpmPiece& piece) {
  return piece.type == kNormal || piece.type == kUserDefined || piece.type == kUnused;
}

std::vector<StringTable::Entry> vocabulary_of(const SpmFile& file) {
  std::vector<StringTable::Entry> out;
  for (size_t id = 0; id < file.pieces.size(); ++id)
    out.push_back({file.pieces[id].text, static_cast<int32_t>(id)});
  return out;
}

// Ranks are the places of the scores, the highest first.
BpeModel make_bpe(const SpmFile& file, int32_t unknown, const std::string& where) {
  std::vector<float> scores;
  for (const SpmPiece& piece : file.pieces) scores.push_back(piece.score);
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  BpeConfig config;
  config.where = where;
  config.vocabulary = vocabulary_of(file);
  std::vector<RankedToken> ranked;
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const SpmPiece& piece = file.pieces[id];
    if (piece.type == kUnused) config.unused.push_back(static_cast<int32_t>(id));
    // A symbol of the user's is found before anything merges, and never merges itself.
    if (!in_text(piece) || piece.type == kUserDefined) continue;
    const auto rank =
        std::lower_bound(scores.begin(), scores.end(), piece.score, std::greater<>()) - scores.begin();
    ranked.push_back({piece.text, static_cast<int32_t>(id), static_cast<uint32_t>(rank)});
  }
  config.id_merges = merges_by_rank(ranked, MergeUnit::kCharacter, where);
  config.unknown_token = std::string(file.pieces[static_cast<size_t>(unknown)].text);
  config.fuse_unknown = true;
  config.byte_fallback = file.byte_fallback;
  return BpeModel(config);
}

UnigramModel make_unigram(const SpmFile& file, int32_t unknown, const std::string& where) {
  float least = std::numeric_limits<float>::max();
  float most = std::numeric_limits<float>::min();
  for (const SpmPiece& piece : file.pieces) {
    if (piece.type != kNormal) continue;
    least = std::min(least, piece.score);
    most = std::max(most, piece.score);
  }
  UnigramConfig config;
  config.where = where;
  config.vocabulary = vocabulary_of(file);
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const SpmPiece& piece = file.pieces[id];
    if (piece.type != kNormal && piece.type != kUserDefined) continue;
    const double bonus = static_cast<double>(static_cast<float>(piece.text.size()) * most) - 0.1;
    const double score = piece.type == kUserDefined ? bonus : static_cast<double>(piece.score);
    config.tokens.push_back({piece.text, static_cast<int32_t>(id), score});
  }
  config.unknown_id = unknown;
  config.unknown_score = static_cast<double>(least - 10.0F);
  config.byte_fallback = file.byte_fallback;
  config.sums = UnigramSums::kFloat;
  return UnigramModel(config);
}

SentencePieceDecoder make_decoder(const SpmFile& file) {
  using Piece = SentencePieceDecoder::Piece;
  std::vector<Piece> pieces;
  for (const SpmPiece& piece : file.pieces) {
    if (piece.type == kByte) {
      pieces.push_back({Piece::kByte, std::string(1, static_cast<char>(*byte_of(piece.text)))});
    } else if (piece.type == kControl) {
      pieces.push_back({Piece::kControl, ""});
    } else if (piece.type == kUnknown) {
      pieces.push_back({Piece::kUnknown, std::string(file.unknown_surface)});
    } else {
      pieces.push_back({Piece::kText, std::string(piece.text)});
    }
  }
  return {std::move(pieces), file.add_dummy_prefix || file.remove_extra_spaces, file.remove_extra_spaces};
}

std::vector<AddedToken> added_tokens_of(const SpmFile& file, bool symbols_in_text) {
  std::vector<AddedToken> out;
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const SpmPiece& piece = file.pieces[id];
    if (piece.type != kControl && piece.type != kUnknown && piece.type != kUserDefined) continue;
    AddedToken token;
    token.id = static_cast<int32_t>(id);
    token.content = piece.text;
    token.special = piece.type != kUserDefined;
    token.normalized = !token.special;
    token.in_text = !token.special && symbols_in_text;
    out.push_back(std::move(token));
  }
  return out;
}

}  // namespace

TokenizerParts read_sentencepiece(std::string_view content, const std::string& where) {
  const SpmFile file = read_file_fields(content, where);
  const int32_t unknown = check_pieces(file, where);
  const bool bpe = file.model_type == 2;
  if (!bpe && file.model_type != 1) {
    throw DataError(
        "[tokenizer] {} is a SentencePiece model of {}, which is not supported; expected BPE or unigram",
        where,
        file.model_type == 3   ? "words"
        : file.model_type == 4 ? "characters"
                               : "an unknown type");
  }
  if (file.denormalizes) {
    throw DataError("[tokenizer] {} has a denormalizer_spec, which is not supported; expected none", where);
  }
  TokenizerParts parts(bpe ? Model(make_bpe(file, unknown, where))
                           : Model(make_unigram(file, unknown, where)));
  parts.where = where;
  std::vector<std::pair<std::string_view, int32_t>> symbols;
  for (const SpmPiece& piece : file.pieces) {
    if (piece.type == kUserDefined) symbols.emplace_back(piece.text, 0);
  }
  std::vector<NormalizerStep> steps;
  steps.emplace_back(SentencePieceStep{.map = Charsmap(file.charsmap, where + ": precompiled_charsmap"),
                                       .symbols = ByteTrie(std::move(symbols)),
                                       .add_space = file.add_dummy_prefix,
                                       .space_after = file.space_after,
                                       .remove_extra_spaces = file.remove_extra_spaces,
                                       .escape_spaces = file.escape_spaces});
  parts.normalizer = Normalizer(std::move(steps));
  parts.ids_decoder = make_decoder(file);
  parts.added_tokens = added_tokens_of(file, bpe);
  parts.tokens_are_normalized = true;
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    if (file.pieces[id].type == kControl && file.pieces[id].text == file.bos_piece) {
      parts.post_processor.prefix = {static_cast<int32_t>(id)};
    }
  }
  return parts;
}

}  // namespace strata::data
