#include "data/tokenizer/pretokenizer.h"

#include "base/error.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/unicode.h"

namespace strata::data {
namespace {

void run_split(const SplitStep& step, PieceBuffer& buffer) {
  buffer.next_pieces.clear();
  for (const Piece& piece : buffer.pieces) {
    find_matches(step.pattern, buffer.text.substr(piece.begin, piece.end - piece.begin), buffer.matches);
    if (step.invert) {
      for (Match& match : buffer.matches) match.is_match = !match.is_match;
    }
    apply_behaviour(step.behaviour, buffer.matches, piece.begin, buffer.next_pieces);
  }
  buffer.pieces.swap(buffer.next_pieces);
}

// Rewrites every piece through `write(piece, out)`; the pieces then index the new text.
template <typename Write>
void rewrite(PieceBuffer& buffer, Write write) {
  buffer.next_storage.clear();
  for (Piece& piece : buffer.pieces) {
    const size_t begin = buffer.next_storage.size();
    write(buffer.text.substr(piece.begin, piece.end - piece.begin), buffer.next_storage);
    piece = {begin, buffer.next_storage.size()};
  }
  buffer.storage.swap(buffer.next_storage);
  buffer.text = buffer.storage;
}

void run_byte_level(const ByteLevelStep& step, PieceBuffer& buffer) {
  if (step.add_prefix_space) {
    rewrite(buffer, [](std::string_view piece, std::string& out) {
      if (!piece.starts_with(' ')) out += ' ';
      out += piece;
    });
  }
  if (step.use_regex) run_split({.pattern = KnownPattern::kGpt2}, buffer);
}

void run_metaspace(const MetaspaceStep& step, bool at_begin, PieceBuffer& buffer) {
  rewrite(buffer, [&](std::string_view piece, std::string& out) {
    const bool wanted =
        step.prepend == MetaspaceStep::kAlways || (step.prepend == MetaspaceStep::kFirst && at_begin);
    if (wanted && !piece.starts_with(' ') && !piece.starts_with(step.replacement)) out += step.replacement;
    for (const char c : piece) {
      if (c == ' ') {
        out += step.replacement;
      } else {
        out += c;
      }
    }
  });
  if (step.split) {
    run_split({.pattern = LiteralPattern{step.replacement}, .behaviour = SplitBehaviour::kMergedWithNext},
              buffer);
  }
}

}  // namespace

PreTokenizer::PreTokenizer(std::vector<PreTokenizerStep> steps) : steps_(std::move(steps)) {
  for (const auto& step : steps_) {
    if (const auto* metaspace = std::get_if<MetaspaceStep>(&step)) {
      if (byte_level_ || (metaspace->prepend == MetaspaceStep::kFirst && &step != &steps_.front())) {
        throw DataError(
            "[tokenizer] found a Metaspace step in pre_tokenizer after ByteLevel, or with prepend_scheme "
            "\"first\" after "
            "another step, which is not supported");
      }
    }
    if (!std::holds_alternative<ByteLevelStep>(step)) continue;
    if (byte_level_) {
      throw DataError(
          "[tokenizer] found two ByteLevel steps in pre_tokenizer, expected one; "
          "bytes cannot be mapped twice");
    }
    byte_level_ = true;
  }
  if (steps_.empty() || !byte_level_) return;
  // Only a pattern with a scanner, followed by unchanged bytes: Isolated, and Removed for the text between
  // matches, are the same, as these patterns leave nothing between.
  const auto* bytes = std::get_if<ByteLevelStep>(&steps_.back());
  if (bytes == nullptr || bytes->add_prefix_space) return;
  if (steps_.size() == 1 && bytes->use_regex) scanner_ = KnownPattern::kGpt2;
  if (steps_.size() == 2 && !bytes->use_regex) {
    const auto* split = std::get_if<SplitStep>(&steps_.front());
    if (split == nullptr) return;
    const auto* known = std::get_if<KnownPattern>(&split->pattern);
    const bool keeps_all = (split->behaviour == SplitBehaviour::kIsolated) ||
                           (split->behaviour == SplitBehaviour::kRemoved && split->invert);
    if (known != nullptr && keeps_all) scanner_ = *known;
  }
}

void PreTokenizer::split(std::string_view text, bool at_begin, PieceBuffer& out) const {
  out.text = text;
  out.pieces.clear();
  if (!text.empty()) out.pieces.push_back({0, text.size()});
  bool mapped = false;
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (const auto* split = std::get_if<SplitStep>(&steps_[i])) {
      run_split(*split, out);
      continue;
    }
    if (const auto* metaspace = std::get_if<MetaspaceStep>(&steps_[i])) {
      run_metaspace(*metaspace, at_begin, out);
      continue;
    }
    run_byte_level(std::get<ByteLevelStep>(steps_[i]), out);
    if (i + 1 < steps_.size()) {  // the following steps see the characters of the byte alphabet
      rewrite(out, [](std::string_view piece, std::string& to) { append_mapped(to, piece); });
      mapped = true;
    }
  }
  if (mapped) {
    rewrite(out, [](std::string_view piece, std::string& to) {
      const auto bytes = unmap(piece);
      STRATA_CHECK(bytes.has_value(), "[tokenizer] a piece left the byte alphabet");
      to += *bytes;
    });
  }
}

}  // namespace strata::data
