#include "data/text/spacy_rules.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <bitset>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "data/text/characters.h"
#include "data/text/short_hash.h"
#include "data/text/spacy_ascii.h"

namespace strata::data {
namespace {

#include "data/text/spacy_tables.inc"

struct Pattern {
  pcre2_code* code = nullptr;
  explicit Pattern(std::string_view source) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(),
                         PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &error, &offset, nullptr);
    STRATA_CHECK(code != nullptr, "PCRE2 error {} at {} of a word pattern", error, offset);
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without a JIT the interpreter matches
  }
  ~Pattern() { pcre2_code_free(code); }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;
};

std::vector<std::string_view> split_at(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  while (true) {
    const size_t end = text.find(separator);
    out.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return out;
    text.remove_prefix(end + 1);
  }
}

struct Sequence {
  std::string_view exception;
  std::vector<std::string_view> tokens;
};

struct Tables {
  Pattern prefix{kPrefixPattern}, suffix{kSuffixPattern}, infix{kInfixPattern}, url{kUrlPattern};
  std::unordered_map<std::string, std::vector<uint32_t>> exceptions;      // sizes of the parts
  std::unordered_map<std::string_view, std::vector<Sequence>> sequences;  // by their first token
  std::bitset<1 << 14> maybe_exception, maybe_sequence;                   // by hash: most are not

  Tables() {
    for (const std::string_view line : split_at(kExceptions, '\n')) {
      std::string whole;
      std::vector<uint32_t> sizes;
      for (const std::string_view part : split_at(line, '\t')) {
        whole += part;
        sizes.push_back(static_cast<uint32_t>(part.size()));
      }
      maybe_exception.set(short_hash(whole) % maybe_exception.size());
      exceptions.emplace(std::move(whole), std::move(sizes));
    }
    for (const std::string_view line : split_at(kSequences, '\n')) {
      std::vector<std::string_view> tokens = split_at(line, '\t');
      const std::string_view exception = tokens.front();
      tokens.erase(tokens.begin());
      const std::string_view first = tokens.front();
      maybe_sequence.set(short_hash(first) % maybe_sequence.size());
      sequences[first].push_back({exception, std::move(tokens)});
    }
  }
};

const Tables& shared_tables() {
  static const Tables tables;
  return tables;
}

// No suffix is longer, but for dots, which are looked for by themselves (make_spacy_tables.py checks it).
constexpr int kLongestSuffix = 6;  // code points

size_t suffix_search_start(std::string_view run) {
  const char* at = run.data() + run.size();
  for (int i = 0; i < kLongestSuffix && at > run.data(); ++i) at -= decode_utf8_before(run.data(), at).size;
  const size_t last_other = run.find_last_not_of('.');
  return std::min(static_cast<size_t>(at - run.data()),
                  last_other == std::string_view::npos ? 0 : last_other + 1);
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}
bool is_ascii(char c) {
  return static_cast<uint8_t>(c) < 0x80;
}

// These are false only where the pattern cannot match: what runs of letters and digits mostly come to.
bool may_have_suffix(std::string_view run) {
  const char last = run.back();
  if (is_digit(last)) return false;
  if (!is_letter(last)) return true;
  // 's, or a unit of measurement after a digit.
  const std::string_view tail = run.substr(run.size() - std::min<size_t>(run.size(), 5));
  return std::any_of(tail.begin(), tail.end(),
                     [](char c) { return is_digit(c) || c == '\'' || !is_ascii(c); });
}
bool may_have_infix(std::string_view run) {
  return std::any_of(run.begin(), run.end(), [](char c) {
    return !is_ascii(c) || std::string_view(".+-*^,~:<>=/").find(c) != std::string_view::npos;
  });
}
// A host or an address has a dot.
bool may_be_url(std::string_view run) {
  return run.find('.') != std::string_view::npos;
}

}  // namespace

struct SpacyRules::State {
  const Tables& tables = shared_tables();
  pcre2_match_data* match = pcre2_match_data_create(32, nullptr);
  std::string key;
  std::vector<uint32_t> suffixes;
  std::vector<size_t> starts;
  std::vector<std::pair<size_t, size_t>> spans, kept;

  ~State() { pcre2_match_data_free(match); }

  // The first match from `from` on.
  bool find(const Pattern& pattern, std::string_view text, size_t from, uint32_t options, size_t& begin,
            size_t& end) {
    const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    int found = pcre2_match(pattern.code, subject, text.size(), from, options, match, nullptr);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
      found = pcre2_match(pattern.code, subject, text.size(), from, options | PCRE2_NO_JIT, match, nullptr);
    }
    if (found < 0) return false;
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(match);
    begin = offsets[0];
    end = offsets[1];
    return true;
  }

  const std::vector<uint32_t>* exception(std::string_view text) {
    if (!tables.maybe_exception[short_hash(text) % tables.maybe_exception.size()]) return nullptr;
    key.assign(text);
    const auto found = tables.exceptions.find(key);
    return found == tables.exceptions.end() ? nullptr : &found->second;
  }

  size_t prefix_of(std::string_view run) {
    if (const int known = ascii_prefix(run); known != kAskPattern) return static_cast<size_t>(known);
    size_t begin = 0, end = 0;
    return find(tables.prefix, run, 0, PCRE2_ANCHORED, begin, end) ? end - begin : 0;
  }
  size_t suffix_of(std::string_view run) {
    if (!may_have_suffix(run)) return 0;
    if (const int known = ascii_suffix(run); known != kAskPattern) return static_cast<size_t>(known);
    size_t begin = 0, end = 0;
    return find(tables.suffix, run, suffix_search_start(run), 0, begin, end) ? end - begin : 0;
  }

  void cut_affixes(std::string_view rest, std::vector<uint32_t>& sizes);
  void cut_middle(std::string_view rest, std::vector<uint32_t>& sizes);
  void join_sequences(std::string_view run, std::vector<uint32_t>& sizes);
};

// Cuts the text between prefixes and suffixes.
void SpacyRules::State::cut_middle(std::string_view rest, std::vector<uint32_t>& sizes) {
  size_t begin = 0, end = 0;
  if (const auto* parts = exception(rest)) {
    sizes.insert(sizes.end(), parts->begin(), parts->end());
    return;
  }
  if (may_be_url(rest) && find(tables.url, rest, 0, PCRE2_ANCHORED, begin, end)) {
    sizes.push_back(static_cast<uint32_t>(rest.size()));
    return;
  }
  const bool ascii = std::all_of(rest.begin(), rest.end(), is_ascii);
  const auto find_infix = [&](size_t from) {
    return ascii ? find_ascii_infix(rest, from, begin, end) : find(tables.infix, rest, from, 0, begin, end);
  };
  size_t start = 0, from = may_have_infix(rest) ? 0 : rest.size() + 1;
  while (from <= rest.size() && find_infix(from)) {
    from = end > begin ? end : end + 1;
    if (begin == 0) continue;
    if (begin != start) sizes.push_back(static_cast<uint32_t>(begin - start));
    if (end != begin) sizes.push_back(static_cast<uint32_t>(end - begin));
    start = end;
  }
  if (start < rest.size()) sizes.push_back(static_cast<uint32_t>(rest.size() - start));
}

void SpacyRules::State::cut_affixes(std::string_view rest, std::vector<uint32_t>& sizes) {
  suffixes.clear();
  size_t last_size = 0;
  while (!rest.empty() && rest.size() != last_size) {
    if (exception(rest)) break;
    last_size = rest.size();
    const size_t prefix = prefix_of(rest);
    size_t suffix = 0;
    if (prefix > 0 && prefix < rest.size() && exception(rest.substr(prefix))) {
      sizes.push_back(static_cast<uint32_t>(prefix));
      rest.remove_prefix(prefix);
      break;
    }
    const std::string_view tail = rest.substr(prefix);
    if (!tail.empty()) suffix = suffix_of(tail);
    if (suffix > 0 && suffix < rest.size() && exception(rest.substr(0, rest.size() - suffix))) {
      suffixes.push_back(static_cast<uint32_t>(suffix));
      rest.remove_suffix(suffix);
      break;
    }
    if (prefix > 0) sizes.push_back(static_cast<uint32_t>(prefix));
    if (suffix > 0) suffixes.push_back(static_cast<uint32_t>(suffix));
    rest.remove_suffix(suffix);
    rest.remove_prefix(prefix);
  }
  if (!rest.empty()) cut_middle(rest, sizes);
  sizes.insert(sizes.end(), suffixes.rbegin(), suffixes.rend());
}

// Exceptions that were cut: their tokens become the exception's parts. Longest first, then leftmost; what a
// longer one touches is taken.
void SpacyRules::State::join_sequences(std::string_view run, std::vector<uint32_t>& sizes) {
  starts.assign(1, 0);
  for (const uint32_t size : sizes) starts.push_back(starts.back() + size);
  const auto token = [&](size_t i) { return run.substr(starts[i], sizes[i]); };
  spans.clear();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!tables.maybe_sequence[short_hash(token(i)) % tables.maybe_sequence.size()]) continue;
    const auto found = tables.sequences.find(token(i));
    if (found == tables.sequences.end()) continue;
    for (const Sequence& sequence : found->second) {
      const size_t n = sequence.tokens.size();
      if (i + n > sizes.size()) continue;
      bool equal = true;
      for (size_t k = 1; k < n && equal; ++k) equal = token(i + k) == sequence.tokens[k];
      if (equal) spans.emplace_back(i, i + n);
    }
  }
  if (spans.empty()) return;
  std::sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) {
    const size_t left = a.second - a.first, right = b.second - b.first;
    return left != right ? left > right : a.first < b.first;
  });
  std::set<size_t> seen;
  kept.clear();
  for (const auto& [first, last] : spans) {
    if (!seen.contains(first) && !seen.contains(last - 1)) kept.emplace_back(first, last);
    for (size_t i = first; i < last; ++i) seen.insert(i);
  }
  std::sort(kept.begin(), kept.end());
  std::vector<uint32_t> out;
  size_t next = 0;
  for (const auto& [first, last] : kept) {
    out.insert(out.end(), sizes.begin() + static_cast<ptrdiff_t>(next),
               sizes.begin() + static_cast<ptrdiff_t>(first));
    const auto* parts = exception(run.substr(starts[first], starts[last] - starts[first]));
    STRATA_CHECK(parts != nullptr, "a word sequence that is not an exception");
    out.insert(out.end(), parts->begin(), parts->end());
    next = last;
  }
  out.insert(out.end(), sizes.begin() + static_cast<ptrdiff_t>(next), sizes.end());
  sizes = std::move(out);
}

SpacyRules::SpacyRules() : state_(std::make_unique<State>()) {}
SpacyRules::~SpacyRules() = default;
SpacyRules::SpacyRules(SpacyRules&&) noexcept = default;
SpacyRules& SpacyRules::operator=(SpacyRules&&) noexcept = default;

void SpacyRules::cut(std::string_view run, std::vector<uint32_t>& sizes) {
  sizes.clear();
  if (run.empty()) return;
  if (const auto* parts = state_->exception(run)) {
    sizes = *parts;
  } else {
    state_->cut_affixes(run, sizes);
  }
  state_->join_sequences(run, sizes);
}

std::vector<std::string_view> SpacyRules::letter_exceptions() const {
  std::vector<std::string_view> out;
  for (const auto& [text, sizes] : state_->tables.exceptions) {
    const bool letters = std::all_of(text.begin(), text.end(),
                                     [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); });
    if (letters) out.push_back(text);
  }
  return out;
}

}  // namespace strata::data
