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

// What the Hugging Face normalizers do not know, and bytes that are not UTF-8, separate the stretches that
// are normalized: they neither decompose nor combine.
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
  size_t begin = text.size();  // of what is kept
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

}  // namespace

Normalizer Normalizer::nfc() {
  std::vector<NormalizerStep> steps;
  steps.emplace_back(UnicodeForm{true, false});
  return Normalizer(std::move(steps));
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
