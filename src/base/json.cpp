#include "base/json.h"

#include <fmt/format.h>

namespace strata {
namespace {

template <typename J>
std::string dump(const J& value, int indent, InvalidUtf8 invalid) {
  using Handler = typename J::error_handler_t;
  return value.dump(indent, ' ', false,
                    invalid == InvalidUtf8::kReplace ? Handler::replace : Handler::strict);
}

// Copies, dumps and destructors of values call themselves once a level. Far above any real file, far below a stack.
constexpr int kDeepest = 2000;

// The offset of the bracket that opens level kDeepest + 1; npos if there is none.
size_t too_deep(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kDeepest) return i;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return std::string_view::npos;
}

}  // namespace

template <typename J>
J parse_json(std::string_view text) {
  if (const size_t at = too_deep(text); at != std::string_view::npos)
    throw J::parse_error::create(101, at + 1, fmt::format("nested deeper than {} levels", kDeepest), nullptr);
  return J::parse(text);
}

template <typename J>
J parse_json_or_discard(std::string_view text) {
  if (too_deep(text) != std::string_view::npos) return J(J::value_t::discarded);
  return J::parse(text, nullptr, /*allow_exceptions=*/false);
}

template nlohmann::json parse_json(std::string_view);
template nlohmann::ordered_json parse_json(std::string_view);
template nlohmann::json parse_json_or_discard(std::string_view);
template nlohmann::ordered_json parse_json_or_discard(std::string_view);

std::string dump_json(const nlohmann::json& value, int indent, InvalidUtf8 invalid) {
  return dump(value, indent, invalid);
}

std::string dump_json(const nlohmann::ordered_json& value, int indent, InvalidUtf8 invalid) {
  return dump(value, indent, invalid);
}

std::string with_float_objects(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (quoted && text[i] == '\\' && i + 1 < text.size()) {
      out += text[i++];
      out += text[i];
      continue;
    }
    const auto found = [&](std::string_view word) { return !quoted && text.substr(i, word.size()) == word; };
    bool replaced = false;
    for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
      if (!found(word)) continue;
      out += "{\"__float__\": \"" + std::string(word) + "\"}";
      i += word.size() - 1;
      replaced = true;
      break;
    }
    if (!replaced) out += text[i];
  }
  return out;
}

}  // namespace strata
