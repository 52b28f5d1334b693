#include "data/tokenizer/decoder.h"

#include <optional>

#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/unicode.h"

namespace strata::data {
namespace {

using Tokens = std::vector<std::string>;

Tokens run(const ByteLevelDecoder&, const Tokens& tokens, bool keep_bytes) {
  std::string bytes;
  for (const std::string& token : tokens) bytes += byte_level_bytes(token);
  return {keep_bytes ? bytes : replace_invalid_utf8(bytes)};
}

std::optional<uint8_t> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  unsigned value = 0;
  for (const char c : token.substr(3, 2)) {
    const bool digit = c >= '0' && c <= '9';
    const char lower = static_cast<char>(c | 0x20);
    if (!digit && (lower < 'a' || lower > 'f')) return std::nullopt;
    value = value * 16 + static_cast<unsigned>(digit ? c - '0' : lower - 'a' + 10);
  }
  return static_cast<uint8_t>(value);
}

Tokens run(const ByteFallbackDecoder&, Tokens tokens, bool keep_bytes) {
  Tokens out;
  std::string waiting;
  const auto flush = [&] {
    if (waiting.empty()) return;
    if (keep_bytes || is_valid_utf8(waiting)) {
      out.push_back(waiting);
    } else {
      for (size_t i = 0; i < waiting.size(); ++i) out.emplace_back("\xEF\xBF\xBD");
    }
    waiting.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = fallback_byte(token)) {
      waiting += static_cast<char>(*byte);
    } else {
      flush();
      out.push_back(std::move(token));
    }
  }
  flush();
  return out;
}

Tokens run(const FuseDecoder&, const Tokens& tokens, bool) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  return {all};
}

Tokens run(const ReplaceDecoder& step, Tokens tokens, bool) {
  std::vector<Match> matches;
  for (std::string& token : tokens) {
    std::string replaced;
    find_matches(step.pattern, token, matches);
    for (const Match& match : matches) {
      if (match.is_match) {
        replaced += step.content;
      } else {
        replaced.append(token, match.at.begin, match.at.end - match.at.begin);
      }
    }
    token = std::move(replaced);
  }
  return tokens;
}

Tokens run(const StripDecoder& step, Tokens tokens, bool) {
  for (std::string& token : tokens) {
    std::string_view text = token;
    for (size_t i = 0; i < step.start && text.starts_with(step.content); ++i) {
      text.remove_prefix(step.content.size());
    }
    for (size_t i = 0; i < step.stop && text.ends_with(step.content); ++i) {
      text.remove_suffix(step.content.size());
    }
    token = std::string(text);
  }
  return tokens;
}

Tokens run(const SuffixDecoder& step, Tokens tokens, bool) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::vector<Match> matches;
    find_matches(LiteralPattern{step.suffix}, tokens[i], matches);
    std::string replaced;
    for (const Match& match : matches) {
      if (!match.is_match) {
        replaced.append(tokens[i], match.at.begin, match.at.end - match.at.begin);
      } else if (i + 1 < tokens.size()) {
        replaced += ' ';
      }
    }
    tokens[i] = std::move(replaced);
  }
  return tokens;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

Tokens run(const WordPieceDecoder& step, Tokens tokens, bool) {
  static constexpr std::pair<std::string_view, std::string_view> kCleanup[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) {
      if (tokens[i].starts_with(step.prefix)) {
        tokens[i].erase(0, step.prefix.size());
      } else {
        tokens[i].insert(0, " ");
      }
    }
    if (!step.cleanup) continue;
    for (const auto& [from, to] : kCleanup) replace_all(tokens[i], from, to);
  }
  return tokens;
}

Tokens run(const MetaspaceDecoder& step, Tokens tokens, bool) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    replace_all(tokens[i], step.replacement, i == 0 && step.drop_first ? "" : " ");
  }
  return tokens;
}

}  // namespace

std::string byte_level_bytes(std::string_view token) {
  return unmap(token).value_or(std::string(token));
}

std::string Decoder::decode(std::vector<std::string> tokens, bool keep_bytes) const {
  for (const DecoderStep& step : steps_) {
    tokens = std::visit([&](const auto& s) { return run(s, std::move(tokens), keep_bytes); }, step);
  }
  std::string out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!present_ && i > 0) out += ' ';
    out += tokens[i];
  }
  return out;
}

}  // namespace strata::data
