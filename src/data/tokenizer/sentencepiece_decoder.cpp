#include "data/tokenizer/sentencepiece_decoder.h"

#include "data/tokenizer/unicode.h"

namespace strata::data {
namespace {

constexpr std::string_view kSpaceSymbol = "\u2581";

void append_bytes(std::string& out, std::string_view bytes, bool keep_bytes) {
  if (keep_bytes) {
    out += bytes;
    return;
  }
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint c = decode_code_point(bytes.data() + at, bytes.data() + bytes.size());
    if (c.value >= kInvalidByteBase) {
      out += "\uFFFD";
    } else {
      out += bytes.substr(at, c.size);
    }
    at += c.size;
  }
}

void append_with_spaces(std::string& out, std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t space = std::min(text.find(kSpaceSymbol, at), text.size());
    out += text.substr(at, space - at);
    if (space < text.size()) out += ' ';
    at = space + kSpaceSymbol.size();
  }
}

}  // namespace

std::string SentencePieceDecoder::decode(std::span<const int32_t> ids, bool keep_bytes) const {
  std::string out;
  std::string bytes;
  bool at_begin = true;  // a leading space may still be dropped
  bool dropped = false;
  for (const int32_t id : ids) {
    if (id < 0 || static_cast<size_t>(id) >= pieces_.size()) continue;
    const Piece& piece = pieces_[static_cast<size_t>(id)];
    if (piece.kind == Piece::kByte) {
      bytes += piece.text;
      continue;
    }
    append_bytes(out, bytes, keep_bytes);
    bytes.clear();
    if (dropped || !out.empty()) at_begin = false;
    dropped = false;
    if (piece.kind == Piece::kControl) continue;
    std::string_view text = piece.text;
    if (piece.kind == Piece::kText) {
      if (at_begin && drop_first_space_ && text.starts_with(kSpaceSymbol)) {
        text.remove_prefix(kSpaceSymbol.size());
        dropped = !drop_leading_spaces_;
      }
      append_with_spaces(out, text);
    } else {
      out += text;
    }
  }
  append_bytes(out, bytes, keep_bytes);
  return out;
}

}  // namespace strata::data
