#include "data/tokenizer/oniguruma.h"

#include <oniguruma.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "base/error.h"
#include "data/tokenizer/unicode.h"

namespace strata::data {
namespace {

constexpr int kFirstClass = 1 << 16;  // beyond all that the library numbers itself

// The classes of unicode.h that were asked for, in the library's form: how many ranges, then first and last
// of each.
struct Classes {
  std::map<std::string, int, std::less<>> numbers;
  std::vector<std::vector<OnigCodePoint>> ranges;
};

Classes& classes() {
  static Classes asked;  // the library's call-backs have no other place to find it
  return asked;
}

int class_number(const std::string& name) {
  Classes& asked = classes();
  if (const auto found = asked.numbers.find(name); found != asked.numbers.end()) return found->second;
  const auto ranges = property_ranges(name);
  if (!ranges) return -1;
  auto& made = asked.ranges.emplace_back();
  made.push_back(static_cast<OnigCodePoint>(ranges->size()));
  for (const auto& [first, last] : *ranges) made.insert(made.end(), {first, last});
  return asked.numbers[name] = kFirstClass + static_cast<int>(asked.ranges.size()) - 1;
}

// \w in a class: below 256 the library's, which leaves out characters there that \w by itself takes.
std::vector<OnigCodePoint> make_class_word() {
  OnigCodePoint unused = 0;
  const OnigCodePoint* theirs = nullptr;
  ONIG_ENCODING_UTF8->get_ctype_code_range(ONIGENC_CTYPE_WORD, &unused, &theirs);
  std::vector<OnigCodePoint> made{0};
  for (OnigCodePoint i = 0; i < theirs[0] && theirs[2 + 2 * i] < 0x100; ++i)
    made.insert(made.end(), {theirs[1 + 2 * i], theirs[2 + 2 * i]});
  const auto ours = property_ranges("w").value();
  for (const auto& [first, last] : ours) {
    if (last >= 0x100) made.insert(made.end(), {std::max(first, 0x100u), last});
  }
  made[0] = static_cast<OnigCodePoint>(made.size() / 2);
  return made;
}

int find_property(OnigEncoding, OnigUChar* begin, OnigUChar* end) {
  const std::string name(begin, end);
  const int found = name == "w" || name == "s" || name == "d" ? -1 : class_number(name);
  return found >= 0 ? found : ONIG_ENCODING_UTF8->property_name_to_ctype(ONIG_ENCODING_UTF8, begin, end);
}

int class_ranges(OnigCtype type, OnigCodePoint* single_bytes, const OnigCodePoint* ranges[]) {
  static const std::vector<OnigCodePoint> word = make_class_word();
  auto number = static_cast<int>(type);
  if (type == ONIGENC_CTYPE_WORD) {
    *single_bytes = 0x80;
    *ranges = word.data();
    return ONIG_NORMAL;
  }
  if (type == ONIGENC_CTYPE_SPACE) number = class_number("s");
  if (type == ONIGENC_CTYPE_DIGIT) number = class_number("d");
  if (number < kFirstClass) return ONIG_ENCODING_UTF8->get_ctype_code_range(type, single_bytes, ranges);
  *single_bytes = 0x80;
  *ranges = classes().ranges[static_cast<size_t>(number - kFirstClass)].data();
  return ONIG_NORMAL;
}

int is_in_class(OnigCodePoint symbol, OnigCtype type) {
  if (type == ONIGENC_CTYPE_WORD) return is_regex_word(symbol);
  if (type == ONIGENC_CTYPE_SPACE) return is_white_space(symbol);
  return ONIG_ENCODING_UTF8->is_code_ctype(symbol, type);
}

// The library's UTF-8 with the classes of unicode.h.
OnigEncoding encoding() {
  static OnigEncodingType made = [] {
    OnigEncodingType copy = *ONIG_ENCODING_UTF8;
    copy.property_name_to_ctype = find_property;
    copy.get_ctype_code_range = class_ranges;
    copy.is_code_ctype = is_in_class;
    return copy;
  }();
  static const int status = [] {
    OnigEncoding used[] = {&made};
    return onig_initialize(used, 1);
  }();
  STRATA_CHECK(status == ONIG_NORMAL, "[oniguruma] does not start: {}", status);
  return &made;
}

// A text in which each byte that is not UTF-8 is replaced by the four bytes of UTF-8's scheme for its symbol
// (beyond U+10FFFF).
struct SymbolText {
  explicit SymbolText(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
      const CodePoint c = decode_code_point(text.data() + at, text.data() + text.size());
      if (c.value < kInvalidByteBase) {
        symbols.append(text, at, c.size);
      } else {
        places.push_back(symbols.size());
        symbols += {'\xF4', '\x90', static_cast<char>(0x80 | (c.value >> 6 & 0x3F)),
                    static_cast<char>(0x80 | (c.value & 0x3F))};
      }
      at += c.size;
    }
  }
  size_t in_text(int at) const {
    const auto place = static_cast<size_t>(at);
    return place -
           3 * static_cast<size_t>(std::lower_bound(places.begin(), places.end(), place) - places.begin());
  }
  std::string symbols;
  std::vector<size_t> places;
};

const OnigUChar* bytes(const std::string& text) {
  return reinterpret_cast<const OnigUChar*>(text.data());
}

}  // namespace

std::optional<std::vector<Piece>> oniguruma_matches(std::string_view pattern, std::string_view text) {
  const std::string source(pattern);
  regex_t* made = nullptr;
  if (onig_new(&made, bytes(source), bytes(source) + source.size(), ONIG_OPTION_NONE, encoding(),
               ONIG_SYNTAX_ONIGURUMA, nullptr) != ONIG_NORMAL) {
    return std::nullopt;
  }
  const std::unique_ptr<regex_t, decltype(&onig_free)> expression(made, onig_free);
  const auto free_region = [](OnigRegion* region) { onig_region_free(region, 1); };
  const std::unique_ptr<OnigRegion, decltype(free_region)> region(onig_region_new(), free_region);
  const SymbolText whole(text);
  const OnigUChar* const begin = bytes(whole.symbols);
  const OnigUChar* const end = begin + whole.symbols.size();
  std::vector<Piece> matches;
  int last_end = -1;
  for (const OnigUChar* from = begin; begin < end && from <= end;) {
    const int found = onig_search(expression.get(), begin, end, from, end, region.get(), ONIG_OPTION_NONE);
    if (found == ONIG_MISMATCH) break;
    if (found < 0) return std::nullopt;
    const int match_end = region->end[0];
    from = begin + match_end;
    if (found == match_end && match_end == last_end) {
      if (from == end) break;
      from += ONIGENC_MBC_ENC_LEN(encoding(), from);
      continue;
    }
    last_end = match_end;
    matches.push_back({whole.in_text(found), whole.in_text(match_end)});
  }
  return matches;
}

}  // namespace strata::data
