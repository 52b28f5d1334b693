#include "data/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "data/tokenizer/unicode.h"

namespace strata::data {
namespace {

// Every character below U+0300 is its own canonical composition, and no mark among them could join another.
bool is_composed_already(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0xCC; });
}
bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

void append_form(const UnicodeForm& form, std::string_view text, std::string& out) {
  if (text.empty()) return;
  int options = UTF8PROC_STABLE | (form.compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
  if (form.compatibility) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &result,
                                             static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
  if (size < 0)
    throw WorldError("[tokenizer] cannot normalize {} bytes: {}", text.size(), utf8proc_errmsg(size));
  out.append(reinterpret_cast<const char*>(result), static_cast<size_t>(size));
}

// Characters that the Hugging Face normalizers do not know, and bytes that are not UTF-8, separate the ranges
// to normalize: they neither decompose nor combine.
bool run(const UnicodeForm& form, std::string_view text, std::string& out) {
  if (form.compose && !form.compatibility ? is_composed_already(text) : is_ascii(text)) return false;
  size_t start = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_code_point(text.data() + at, text.data() + text.size());
    if (!is_normalizable(c.value)) {
      append_form(form, text.substr(start, at - start), out);
      out += text.substr(at, c.size);
      start = at + c.size;
    }
    at += c.size;
  }
  append_form(form, text.substr(start), out);
  return true;
}

bool run(const LowercaseStep&, std::string_view text, std::string& out) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_code_point(text.data() + at, text.data() + text.size());
    append_lower(out, c.value);
    at += c.size;
  }
  return true;
}

bool run(const StripStep& step, std::string_view text, std::string& out) {
  size_t begin = text.size();  // of the text that is kept
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_code_point(text.data() + at, text.data() + text.size());
    if (!is_white_space(c.value)) {
      begin = std::min(begin, at);
      end = at + c.size;
    }
    at += c.size;
  }
  if (begin > end)
    begin = end = 0;  // white space only: nothing is left
  else {
    if (!step.left) begin = 0;
    if (!step.right) end = text.size();
  }
  out += text.substr(begin, end - begin);
  return true;
}

bool run(const PrependStep& step, std::string_view text, std::string& out) {
  if (text.empty()) return false;
  out += step.text;
  out += text;
  return true;
}

bool run(const ReplaceStep& step, std::string_view text, std::string& out) {
  std::vector<Match> matches;
  find_matches(step.pattern, text, matches);
  for (const Match& match : matches) {
    if (match.is_match) {
      out += step.content;
    } else {
      out += text.substr(match.at.begin, match.at.end - match.at.begin);
    }
  }
  return true;
}

// Every character through `write(code_point, size)`.
template <typename Write>
void for_each_character(std::string_view text, Write write) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_code_point(text.data() + at, text.data() + text.size());
    write(c.value, text.substr(at, c.size));
    at += c.size;
  }
}

bool run(const StripAccentsStep&, std::string_view text, std::string& out) {
  for_each_character(text, [&](uint32_t c, std::string_view bytes) {
    if (!is_combining_mark(c)) out += bytes;
  });
  return true;
}

bool run(const NmtStep&, std::string_view text, std::string& out) {
  for_each_character(text, [&](uint32_t c, std::string_view bytes) {
    if ((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F)
      return;
    const bool space = c == '\t' || c == '\n' || c == '\f' || c == '\r' || c == 0x1680 ||
                       (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                       c == 0xFEFF || c == 0xFFFD;
    if (space) {
      out += ' ';
    } else {
      out += bytes;
    }
  });
  return true;
}

bool is_ideograph(uint32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

bool run(const BertStep& step, std::string_view text, std::string& out) {
  for_each_character(text, [&](uint32_t c, std::string_view bytes) {
    if (step.clean && is_bert_removed(c)) return;
    if (step.clean && is_white_space(c)) {
      out += ' ';
    } else if (step.space_ideographs && is_ideograph(c)) {
      out += ' ';
      out += bytes;
      out += ' ';
    } else {
      out += bytes;
    }
  });
  std::string next;
  if (step.strip_accents) {
    if (run(UnicodeForm{false, false}, out, next)) out.swap(next);
    next.clear();
    for_each_character(out, [&](uint32_t c, std::string_view bytes) {
      if (!is_bert_accent(c)) next += bytes;
    });
    out.swap(next);
    next.clear();
  }
  if (step.lowercase && run(LowercaseStep{}, out, next)) out.swap(next);
  return true;
}

bool run(const PrecompiledStep& step, std::string_view text, std::string& out) {
  constexpr size_t kLongestWhole = 5;  // bytes of a grapheme that is looked up as a whole
  const auto replace = [&](std::string_view part) {
    const auto match = step.map.shortest(part);
    if (match) out += match->replacement;
    return match.has_value();
  };
  for (size_t at = 0; at < text.size();) {
    const size_t size = grapheme_size(text.substr(at));
    const std::string_view grapheme = text.substr(at, size);
    at += size;
    if (size <= kLongestWhole && replace(grapheme)) continue;
    for_each_character(grapheme, [&](uint32_t, std::string_view bytes) {
      if (!replace(bytes)) out += bytes;
    });
  }
  return true;
}

// The next range of the input and its replacement.
struct Rewrite {
  size_t size;
  std::string_view text;
};

Rewrite rewrite_prefix(const SentencePieceStep& step, std::string_view text) {
  size_t symbol = 0;
  step.symbols.for_each_prefix(text, 0, [&](size_t size, int32_t) { symbol = size; });
  if (symbol > 0) return {symbol, text.substr(0, symbol)};
  if (const auto match = step.map.longest(text)) return {match->size, match->replacement};
  const CodePoint c = decode_code_point(text.data(), text.data() + text.size());
  if (c.value >= kInvalidByteBase) return {1, "\uFFFD"};
  return {c.size, text.substr(0, c.size)};
}

bool run(const SentencePieceStep& step, std::string_view text, std::string& out) {
  const std::string_view space = step.escape_spaces ? "\u2581" : " ";
  if (step.remove_extra_spaces) {
    while (!text.empty()) {
      const Rewrite first = rewrite_prefix(step, text);
      if (first.text != " ") break;
      text.remove_prefix(first.size);
    }
  }
  if (text.empty()) return true;
  if (step.add_space && !step.space_after) out += space;
  bool after_space = step.remove_extra_spaces;
  while (!text.empty()) {
    Rewrite now = rewrite_prefix(step, text);
    text.remove_prefix(now.size);
    while (after_space && now.text.starts_with(' ')) now.text.remove_prefix(1);
    for (const char c : now.text) {
      if (c == ' ') {
        out += space;
      } else {
        out += c;
      }
    }
    if (!now.text.empty()) after_space = now.text.ends_with(' ');
    if (!step.remove_extra_spaces) after_space = false;
  }
  while (step.remove_extra_spaces && out.ends_with(space)) out.resize(out.size() - space.size());
  if (step.add_space && step.space_after) out += space;
  return true;
}

}  // namespace

Normalizer Normalizer::nfc() {
  std::vector<NormalizerStep> steps;
  steps.emplace_back(UnicodeForm{true, false});
  return Normalizer(std::move(steps));
}

bool Normalizer::is_nfc() const {
  const auto* form = steps_.size() == 1 ? std::get_if<UnicodeForm>(&steps_[0]) : nullptr;
  return form != nullptr && form->compose && !form->compatibility;
}

std::string_view Normalizer::apply(std::string_view text, std::string& storage) const {
  std::string next;
  for (const NormalizerStep& step : steps_) {
    next.clear();
    if (std::visit([&](const auto& s) { return run(s, text, next); }, step)) {
      storage.swap(next);
      text = storage;
    }
  }
  return text;
}

}  // namespace strata::data
