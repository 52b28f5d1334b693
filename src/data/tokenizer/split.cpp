#include "data/tokenizer/split.h"

#include <algorithm>

#include "data/tokenizer/unicode.h"

namespace strata::data {
namespace {

// Adds a match and the gap before it; `covered` is where the last match ended.
void add_match(std::vector<Match>& out, size_t& covered, size_t begin, size_t end) {
  if (covered < begin) out.push_back({{covered, begin}, false});
  out.push_back({{begin, end}, true});
  covered = end;
}

void match_literal(const LiteralPattern& pattern, std::string_view text, std::vector<Match>& out,
                   size_t& covered) {
  if (pattern.text.empty()) return;
  for (size_t at = text.find(pattern.text); at != text.npos; at = text.find(pattern.text, covered)) {
    add_match(out, covered, at, at + pattern.text.size());
  }
}

void match_characters(const CharacterPattern& pattern, std::string_view text, std::vector<Match>& out,
                      size_t& covered) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_code_point(text.data() + at, text.data() + text.size());
    if (pattern.contains(c.value)) add_match(out, covered, at, at + c.size);
    at += c.size;
  }
}

void match_known(KnownPattern pattern, std::string_view text, std::vector<Match>& out, size_t& covered) {
  std::vector<size_t> ends;
  scan_pieces(pattern, text, 0, text.size(), ends);
  for (const size_t end : ends) add_match(out, covered, covered, end);
}

// An empty match directly after the previous match does not count, as in the reference library.
void match_regex(const Regex& regex, std::string_view text, std::vector<Match>& out, size_t& covered) {
  size_t begin = 0;
  size_t end = 0;
  size_t last_end = std::string_view::npos;
  Regex::Budget budget(text);
  for (size_t from = 0; !text.empty() && regex.find(text, from, begin, end, budget); from = end) {
    if (begin < end || end != last_end) {
      add_match(out, covered, begin, end);
      last_end = end;
      continue;
    }
    if (end == text.size()) return;
    end += decode_code_point(text.data() + end, text.data() + text.size()).size;
  }
}

}  // namespace

Pattern make_regex_pattern(std::string_view regex) {
  if (const auto known = recognise_pattern(regex)) return *known;
  return Regex(regex);
}

void find_matches(const Pattern& pattern, std::string_view text, std::vector<Match>& out) {
  out.clear();
  size_t covered = 0;
  if (const auto* literal = std::get_if<LiteralPattern>(&pattern)) {
    match_literal(*literal, text, out, covered);
  } else if (const auto* characters = std::get_if<CharacterPattern>(&pattern)) {
    match_characters(*characters, text, out, covered);
  } else if (const auto* known = std::get_if<KnownPattern>(&pattern)) {
    match_known(*known, text, out, covered);
  } else {
    match_regex(std::get<Regex>(pattern), text, out, covered);
  }
  if (covered < text.size()) out.push_back({{covered, text.size()}, false});
}

void apply_behaviour(SplitBehaviour behaviour, std::vector<Match>& matches, size_t offset,
                     std::vector<Piece>& out) {
  const size_t first = out.size();
  const auto add = [&](const Piece& piece) { out.push_back({piece.begin + offset, piece.end + offset}); };
  bool previous = false;
  switch (behaviour) {
    case SplitBehaviour::kIsolated:
      for (const Match& match : matches) add(match.at);
      break;
    case SplitBehaviour::kRemoved:
      for (const Match& match : matches) {
        if (!match.is_match) add(match.at);
      }
      break;
    case SplitBehaviour::kContiguous:
      for (const Match& match : matches) {
        if (match.is_match == previous && out.size() > first) {
          out.back().end = match.at.end + offset;
        } else {
          add(match.at);
        }
        previous = match.is_match;
      }
      break;
    case SplitBehaviour::kMergedWithPrevious:
      for (const Match& match : matches) {
        if (match.is_match && !previous && out.size() > first) {
          out.back().end = match.at.end + offset;
        } else {
          add(match.at);
        }
        previous = match.is_match;
      }
      break;
    case SplitBehaviour::kMergedWithNext: {
      // From the end: a match joins the gap after it.
      std::vector<Piece> reversed;
      for (auto match = matches.rbegin(); match != matches.rend(); ++match) {
        if (match->is_match && !previous && !reversed.empty()) {
          reversed.back().begin = match->at.begin;
        } else {
          reversed.push_back(match->at);
        }
        previous = match->is_match;
      }
      for (auto piece = reversed.rbegin(); piece != reversed.rend(); ++piece) add(*piece);
      break;
    }
  }
  const auto empty = [](const Piece& piece) { return piece.begin == piece.end; };
  out.erase(std::remove_if(out.begin() + static_cast<std::ptrdiff_t>(first), out.end(), empty), out.end());
}

}  // namespace strata::data
