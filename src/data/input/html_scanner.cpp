#include "data/input/html_scanner.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "data/input/html_names.h"

namespace strata::data {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}

// Whether the text starts with the tag of this name (lower case).
bool is_tag(std::string_view text, std::string_view name) {
  return text.size() > name.size() &&
         std::equal(name.begin(), name.end(), text.begin(), [](char a, char b) { return a == lower(b); }) &&
         (is_html_white(text[name.size()]) || text[name.size()] == '>' || text[name.size()] == '/');
}

// Reads a byte beyond `n`. Written so that compilers use vectors, as the next one.
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("O3")))
#endif
bool block_has_odd_characters(const uint8_t* at, size_t n) {
  uint8_t found = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint8_t a = at[i], b = at[i + 1];
    found |= static_cast<uint8_t>(((a < 0x20) & (a != '\t') & (a != '\n')) | (a == 0x7F) |
                                  ((a == 0xC2) & (b < 0xA0)) | ((a == 0xEF) & (b == 0xB7)) |
                                  ((a == 0xBF) & ((b | 1) == 0xBF)));
  }
  return found != 0;
}

#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("O3")))
#endif
size_t
count_of(const char* at, size_t n, char byte) {
  size_t count = 0;
  for (size_t i = 0; i < n; ++i) count += at[i] == byte;
  return count;
}

}  // namespace

void copy_with_newlines(std::string_view html, std::string& out) {
  out.clear();
  out.reserve(html.size());
  while (!html.empty()) {
    const size_t end = html.find('\r');
    out += html.substr(0, end);
    if (end == html.npos) return;
    out += '\n';
    html.remove_prefix(end + 1);
    if (html.starts_with('\n')) html.remove_prefix(1);
  }
}

bool has_odd_characters(const std::string& page) {
  constexpr size_t kBlock = 4096;
  const auto* const bytes = reinterpret_cast<const uint8_t*>(page.data());
  // The last byte is followed by the string's zero.
  for (size_t at = 0; at < page.size(); at += kBlock) {
    if (block_has_odd_characters(bytes + at, std::min(kBlock, page.size() - at))) return true;
  }
  return false;
}

size_t count_less_than(const std::string& page) {
  return count_of(page.data(), page.size(), '<');
}

std::string_view HtmlScanner::next_text() {
  const char* const begin = at_;
  if (at_ < end_) {
    const void* const found = std::memchr(at_, '<', static_cast<size_t>(end_ - at_));
    at_ = found == nullptr ? end_ : static_cast<const char*>(found);
  }
  return {begin, static_cast<size_t>(at_ - begin)};
}

HtmlScanner::Markup HtmlScanner::next_markup(HtmlTag& tag) {
  constexpr ptrdiff_t kShortest = 3;
  if (end_ - at_ < kShortest) return Markup::kUnclear;
  const char next = at_[1];
  if (is_html_letter(next) || (next == '/' && is_html_letter(at_[2])))
    return read_tag(tag) ? Markup::kTag : Markup::kUnclear;
  if (rest().starts_with("<!--")) return skip_comment() ? Markup::kComment : Markup::kUnclear;
  const size_t last = rest().find('>');
  if ((next != '!' && next != '?') || last == std::string_view::npos) return Markup::kUnclear;
  if (next == '!') doctype_ = rest().substr(2, last - 2);
  at_ += last + 1;
  return next == '!' ? Markup::kDoctype : Markup::kComment;
}

bool HtmlScanner::skip_comment() {
  const std::string_view comment = rest().substr(4);
  if (comment.starts_with('>') || comment.starts_with("->")) return false;
  for (size_t at = comment.find("--"); at != comment.npos; at = comment.find("--", at)) {
    at = comment.find_first_not_of('-', at);
    if (at == comment.npos || comment.substr(at).starts_with("!>")) return false;
    if (comment[at] == '>') {
      at_ = comment.data() + at + 1;
      return true;
    }
  }
  return false;
}

bool HtmlScanner::read_tag(HtmlTag& tag) {
  tag = {};
  tag.ends = at_[1] == '/';
  const char* const name = at_ + (tag.ends ? 2 : 1);
  const char* at = name;
  while (at < end_ && !is_html_white(*at) && *at != '>' && *at != '/') ++at;
  tag.name = {name, static_cast<size_t>(at - name)};
  tag.tag = gumbo_tagn_enum(name, static_cast<unsigned>(tag.name.size()));
  tag.rule = tag_facts(tag.tag).rule;
  return read_attributes(at, tag);
}

// From the end of the tag's name to the end of the tag, past its '>'.
bool HtmlScanner::read_attributes(const char* at, HtmlTag& tag) {
  attributes_.clear();
  bool has_href = false, has_class = false;
  while (true) {
    for (tag.closed = false; at < end_ && (is_html_white(*at) || *at == '/'); ++at) tag.closed = *at == '/';
    if (at == end_) return false;
    if (*at == '>') break;
    ++attributes_read_;
    std::string_view value;
    const char* const name = at++;
    while (at < end_ && !is_html_white(*at) && *at != '=' && *at != '>' && *at != '/') ++at;
    const auto size = static_cast<size_t>(at - name);
    while (at < end_ && is_html_white(*at)) ++at;
    if (at < end_ && *at == '=' && !read_value(++at, value)) return false;
    constexpr size_t kLongestName = 11;
    if (size > kLongestName) continue;
    char lowered[kLongestName];
    std::transform(name, name + size, lowered, lower);
    if (const std::string_view known(lowered, size); known == "href") {
      if (!std::exchange(has_href, true)) tag.link = tag.tag == GUMBO_TAG_A && !value.empty();
    } else if (const std::optional<HtmlName> kept = html_name(known)) {
      if (value.find('&') != value.npos) return false;
      if (kept == HtmlName::kClass && !std::exchange(has_class, true)) tag.classes = value;
      attributes_.push_back({*kept, value});
    }
  }
  tag.attributes = attributes_;
  at_ = at + 1;
  ++tags_;
  return true;
}

// Starts after the '='.
bool HtmlScanner::read_value(const char*& at, std::string_view& value) const {
  while (at < end_ && is_html_white(*at)) ++at;
  if (at == end_) return false;
  const char quote = *at;
  if (quote == '"' || quote == '\'') {
    const char* const begin = at + 1;
    const void* const last = std::memchr(begin, quote, static_cast<size_t>(end_ - begin));
    if (last == nullptr) return false;
    at = static_cast<const char*>(last);
    value = {begin, static_cast<size_t>(at - begin)};
    ++at;
    return true;
  }
  const char* const begin = at;
  while (at < end_ && !is_html_white(*at) && *at != '>') ++at;
  value = {begin, static_cast<size_t>(at - begin)};
  return true;
}

bool HtmlScanner::skip_raw(GumboTag tag) {
  const std::string_view name = gumbo_normalized_tagname(tag);
  const std::string_view content = rest();
  bool comment = false, script = false;
  for (size_t at = content.find('<'); at != content.npos; at = content.find('<', at + 1)) {
    const std::string_view here = content.substr(at);
    comment |= here.starts_with("<!--");
    script |= is_tag(here.substr(1), "script");
    if (!here.starts_with("</") || !is_tag(here.substr(2), name)) continue;
    // A script inside a comment inside a script has its own end tag.
    HtmlTag end;
    return !(comment && script) && read_attributes(here.data() + 2 + name.size(), end);
  }
  return false;
}

// The next tag after text and comments.
bool HtmlScanner::next_inside(HtmlTag& tag) {
  while (true) {
    next_text();
    const Markup markup = next_markup(tag);
    if (markup != Markup::kComment) return markup == Markup::kTag;
  }
}

bool HtmlScanner::skip_select() {
  HtmlTag tag;
  while (next_inside(tag)) {
    if (tag.ends && tag.tag == GUMBO_TAG_SELECT) return true;
    if (tag.tag != GUMBO_TAG_OPTION && tag.tag != GUMBO_TAG_OPTGROUP) return false;
  }
  return false;
}

bool HtmlScanner::skip_drawing(const HtmlTag& drawing) {
  std::vector<std::string_view> open;
  const auto begin = [&](const HtmlTag& tag) {
    closed_ += tag.closed;
    if (!tag.closed) open.push_back(tag.name);
    deepest_drawing_ = std::max(deepest_drawing_, open.size());
  };
  begin(drawing);
  HtmlTag tag;
  while (!open.empty()) {
    if (!next_inside(tag)) return false;
    if (tag.ends) {
      if (open.back() != tag.name) return false;
      open.pop_back();
      continue;
    }
    if ((tag.tag != GUMBO_TAG_UNKNOWN && tag.tag != GUMBO_TAG_TITLE) || open.back() == "title") return false;
    begin(tag);
  }
  return true;
}

}  // namespace strata::data
