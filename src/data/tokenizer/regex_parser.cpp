#include "data/tokenizer/regex_parser.h"

#include <optional>
#include <utility>

#include "base/error.h"

namespace strata::data {
namespace {

constexpr int kDeepest = 200;
constexpr uint32_t kMostRepeats = 1000;

bool is_alphanumeric(uint32_t c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

class Parser {
 public:
  explicit Parser(std::string_view pattern) : pattern_(pattern) {}

  RegexNode parse() {
    RegexNode node = choice();
    if (!done()) unsupported("an unmatched ')'");
    return node;
  }

 private:
  [[noreturn]] void unsupported(std::string_view what) const {
    throw DataError("[regex] {} at offset {} of '{}' is not supported", what, at_, pattern_);
  }
  bool done() const { return at_ >= pattern_.size(); }
  bool next_is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    if (!next_is(text)) return false;
    at_ += text.size();
    return true;
  }
  uint32_t take_symbol() {
    if (done()) unsupported("an unfinished part");
    const CodePoint c = decode_code_point(pattern_.data() + at_, pattern_.data() + pattern_.size());
    if (c.value >= kInvalidByteBase) unsupported("a byte that is not UTF-8");
    at_ += c.size;
    return c.value;
  }

  RegexNode choice() {
    if (++depth_ > kDeepest) unsupported("nesting this deep");
    const bool fold = fold_;  // (?i) holds to the end of the group
    RegexNode node{.kind = RegexKind::kChoice};
    node.children.push_back(sequence());
    while (take("|")) node.children.push_back(sequence());
    fold_ = fold;
    --depth_;
    if (node.children.size() == 1) return std::move(node.children[0]);
    return node;
  }

  RegexNode sequence() {
    RegexNode node{.kind = RegexKind::kSequence};
    previous_letter_ = 0;
    while (!done() && !next_is("|") && !next_is(")")) {
      if (take("(?i)")) {  // from here to the end of the group, alternatives included
        fold_ = true;
        node.children.push_back(choice());
        break;
      }
      RegexNode part = atom();
      quantify(part);
      node.children.push_back(std::move(part));
    }
    return node;
  }

  void quantify(RegexNode& part) {
    for (;;) {
      uint32_t min = 0;
      uint32_t max = RegexNode::kUnlimited;
      bool braces = false;
      if (take("*")) {
      } else if (take("+")) {
        min = 1;
      } else if (take("?")) {
        max = 1;
      } else if (next_is("{") && interval(min, max)) {
        braces = true;
      } else {
        return;
      }
      if (part.kind == RegexKind::kAssertion || part.kind == RegexKind::kLookAhead ||
          part.kind == RegexKind::kLookBehind) {
        unsupported("a repeated assertion");
      }
      RegexMode mode = RegexMode::kGreedy;
      if (next_is("?")) {
        if (braces && min == max) unsupported("'?' after a fixed number of repeats");
        take("?");
        mode = RegexMode::kLazy;
      } else if (!braces && take("+")) {  // after braces it repeats the repeat, in Oniguruma's Ruby syntax
        mode = RegexMode::kPossessive;
      }
      RegexNode repeat{.kind = RegexKind::kRepeat, .min = min, .max = max, .mode = mode};
      repeat.children.push_back(std::move(part));
      part = std::move(repeat);
      previous_letter_ = 0;
    }
  }

  // {n}, {n,}, {n,m}, {,m}; anything else is a literal brace.
  bool interval(uint32_t& min, uint32_t& max) {
    size_t at = at_ + 1;
    const auto number = [&]() -> std::optional<uint32_t> {
      uint32_t value = 0;
      const size_t start = at;
      while (at < pattern_.size() && pattern_[at] >= '0' && pattern_[at] <= '9' && value <= kMostRepeats) {
        value = value * 10 + static_cast<uint32_t>(pattern_[at++] - '0');
      }
      if (value > kMostRepeats) unsupported("more than 1000 repeats");
      if (at == start) return std::nullopt;
      return value;
    };
    const auto low = number();
    auto high = low;
    bool open = false;
    if (at < pattern_.size() && pattern_[at] == ',') {
      ++at;
      high = number();
      open = !high.has_value();
    }
    if (at >= pattern_.size() || pattern_[at] != '}' || (!low && !high)) return false;
    min = low.value_or(0);
    max = open ? RegexNode::kUnlimited : high.value_or(0);
    if (max < min) unsupported("a repeat whose upper bound is below its lower one");
    at_ = at + 1;
    return true;
  }

  RegexNode atom() {
    if (next_is("(")) return group();
    if (next_is("[")) {
      previous_letter_ = 0;
      ++at_;
      return set_node(char_class(false));
    }
    if (next_is("\\")) return escape();
    if (take(".")) {
      previous_letter_ = 0;
      return set_node(CodePointSet({{'\n', '\n'}}).inverted());
    }
    if (take("^")) return assertion(RegexAssertion::kLineBegin);
    if (take("$")) return assertion(RegexAssertion::kLineEnd);
    uint32_t ignored = 0;
    if (next_is("*") || next_is("+") || next_is("?") || (next_is("{") && interval(ignored, ignored)))
      unsupported("a repeat of nothing");
    return literal(take_symbol());
  }

  static RegexNode set_node(CodePointSet set) { return {.kind = RegexKind::kSet, .set = std::move(set)}; }
  static RegexNode assertion(RegexAssertion which) {
    return {.kind = RegexKind::kAssertion, .assertion = which};
  }

  RegexNode literal(uint32_t c) {
    CodePointSet set({{c, c}});
    if (fold_) {
      // Some pairs of letters fold to a single character (ss to U+00DF): matching them needs more than sets.
      const auto lower = [](uint32_t x) { return x >= 'A' && x <= 'Z' ? x + 32 : x; };
      for (const char* pair : {"ss", "ff", "fi", "fl", "st"}) {
        if (lower(previous_letter_) == static_cast<uint32_t>(pair[0]) &&
            lower(c) == static_cast<uint32_t>(pair[1])) {
          unsupported("a letter pair with a special folding under (?i)");
        }
      }
      fold(set);
    }
    previous_letter_ = c;
    return set_node(std::move(set));
  }

  // Adds the other case of ASCII letters, with U+017F for s and U+212A for k. What beyond ASCII may have
  // another case (letters, marks, numerals of letters, circled letters) is not known here.
  void fold(CodePointSet& set) const {
    static const CodePointSet cased = [] {
      CodePointSet all;
      for (const char* name : {"L", "M", "Nl", "So"}) all.add(CodePointSet(property_ranges(name).value()));
      return all.intersected(CodePointSet({{0, 0x7F}}).inverted());
    }();
    if (!set.intersected(cased).empty()) unsupported("a class or letter beyond ASCII under (?i)");
    std::vector<CodePointRange> more;
    for (const CodePointRange& range : set.ranges()) {
      for (uint32_t c = range.first; c <= range.last && c < 0x80; ++c) {
        if (!is_alphanumeric(c) || c <= '9') continue;
        more.push_back({c ^ 32, c ^ 32});
        if ((c | 32) == 's') more.push_back({0x17F, 0x17F});
        if ((c | 32) == 'k') more.push_back({0x212A, 0x212A});
      }
    }
    set.add(CodePointSet(std::move(more)));
  }

  RegexNode group() {
    previous_letter_ = 0;
    ++at_;
    if (!next_is("?")) return closed(choice());
    if (take("?:")) return closed(choice());
    if (take("?>")) {
      RegexNode node{.kind = RegexKind::kAtomic};
      node.children.push_back(closed(choice()));
      return node;
    }
    if (next_is("?=") || next_is("?!")) {
      RegexNode node{.kind = RegexKind::kLookAhead, .negated = next_is("?!")};
      at_ += 2;
      node.children.push_back(closed(choice()));
      return node;
    }
    if (next_is("?<=") || next_is("?<!")) {
      RegexNode node{.kind = RegexKind::kLookBehind, .negated = next_is("?<!")};
      at_ += 3;
      const RegexNode inner = closed(choice());
      add_single_symbols(inner, node.set);
      return node;
    }
    if (next_is("?i:") || next_is("?-i:")) {
      const bool outer = std::exchange(fold_, next_is("?i:"));
      at_ += fold_ ? 3 : 4;
      RegexNode node = closed(choice());
      fold_ = outer;
      return node;
    }
    unsupported("this kind of group");
  }

  RegexNode closed(RegexNode node) {
    if (!take(")")) unsupported("a group without ')'");
    previous_letter_ = 0;
    return node;
  }

  void add_single_symbols(const RegexNode& node, CodePointSet& set) const {
    if (node.kind == RegexKind::kSet) {
      set.add(node.set);
    } else if (node.kind == RegexKind::kChoice ||
               (node.kind == RegexKind::kSequence && node.children.size() == 1)) {
      for (const RegexNode& child : node.children) add_single_symbols(child, set);
    } else {
      unsupported("look-behind of more than one character");
    }
  }

  RegexNode escape() {
    const size_t start = at_++;
    const char c = done() ? '\0' : pattern_[at_];
    switch (c) {
      case 'A':
        return ++at_, assertion(RegexAssertion::kTextBegin);
      case 'z':
        return ++at_, assertion(RegexAssertion::kTextEnd);
      case 'Z':
        return ++at_, assertion(RegexAssertion::kTextEndOrNewline);
      case 'b':
      case 'B': {
        ++at_;
        RegexNode node = assertion(RegexAssertion::kWordBoundary);
        node.negated = c == 'B';
        return node;
      }
      default:
        break;
    }
    at_ = start;
    if (auto set = class_escape()) {
      previous_letter_ = 0;
      return set_node(std::move(*set));
    }
    return literal(character_escape());
  }

  // \s, \p{…} and the like, which stand for many characters; nothing for other escapes.
  std::optional<CodePointSet> class_escape(bool in_class = false) {
    const char c = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    const char lower = static_cast<char>(c | 32);
    std::string name;
    bool negated = c >= 'A' && c <= 'Z';
    if (lower == 's' || lower == 'w' || lower == 'd') {
      name = lower;
      at_ += 2;
    } else if (lower == 'h') {
      at_ += 2;
      const CodePointSet hex({{'0', '9'}, {'a', 'f'}, {'A', 'F'}});
      return negated ? hex.inverted() : hex;
    } else if (lower == 'p') {
      at_ += 2;
      if (!take("{")) unsupported("a property without braces");
      if (take("^")) negated = !negated;
      const size_t close = pattern_.find('}', at_);
      if (close == pattern_.npos) unsupported("an unfinished property");
      name = pattern_.substr(at_, close - at_);
      if (name.size() == 1 && name[0] >= 'a') unsupported(fmt::format("the property '{}'", name));
      if (fold_ && (name == "Lu" || name == "Ll" || name == "Lt")) unsupported("a letter case under (?i)");
      at_ = close + 1;
    } else {
      return std::nullopt;
    }
    auto ranges = property_ranges(name);
    if (!ranges) unsupported(fmt::format("the property '{}'", name));
    CodePointSet set(std::move(*ranges));
    if (name == "w" && in_class) set = set.intersected(no_word_in_class_.inverted());
    return negated ? set.inverted() : set;
  }

  uint32_t character_escape() {
    ++at_;
    const uint32_t c = take_symbol();
    switch (c) {
      case 't':
        return '\t';
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case 'a':
        return '\a';
      case 'e':
        return 0x1B;
      case 'x':
        if (take("{")) {
          const uint32_t value = hex(1, 6);
          if (!take("}")) unsupported("an unfinished \\x{…}");
          return value;
        }
        return byte(hex(1, 2));
      case 'u':
        return hex(4, 4);
      default:
        if (is_alphanumeric(c)) unsupported(fmt::format("the escape '\\{}'", static_cast<char>(c)));
        return c;
    }
  }

  uint32_t byte(uint32_t value) const {  // \xHH is a byte of UTF-8, not a code point
    if (value >= 0x80) unsupported("a byte beyond ASCII");
    return value;
  }

  uint32_t hex(int least, int most) {
    uint32_t value = 0;
    int digits = 0;
    for (; digits < most && !done(); ++digits) {
      const char c = pattern_[at_];
      const char lower = static_cast<char>(c | 32);
      if (c >= '0' && c <= '9') {
        value = value * 16 + static_cast<uint32_t>(c - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        value = value * 16 + static_cast<uint32_t>(lower - 'a' + 10);
      } else {
        break;
      }
      ++at_;
    }
    if (digits < least || value > 0x10FFFF) unsupported("this hexadecimal escape");
    return value;
  }

  // Starts after the '['. Under (?i) the outermost class adds the other cases of all its members before it is
  // negated; nested classes do not.
  CodePointSet char_class(bool nested) {
    if (++depth_ > kDeepest) unsupported("nesting this deep");
    const bool negated = take("^");
    std::optional<CodePointSet> left;  // of &&
    CodePointSet set;
    bool first = true;
    for (;; first = false) {
      if (done()) unsupported("a class without ']'");
      if (next_is("]") && !first) break;
      if (take("&&")) {
        left = left ? left->intersected(set) : std::move(set);
        set = {};
        continue;
      }
      if (next_is("[:")) unsupported("a POSIX bracket");
      if (take("[")) {
        set.add(char_class(true));
        continue;
      }
      if (next_is("\\")) {
        if (auto many = class_escape(true)) {
          if (next_is("-") && !next_is("-]") && !next_is("-&&"))
            unsupported("a range that begins with a class");
          set.add(*many);
          continue;
        }
      }
      const uint32_t low = class_symbol();
      uint32_t high = low;
      if (next_is("-") && !next_is("-]") && !next_is("-[") && !next_is("-&&")) {
        ++at_;
        const size_t before = at_;
        if (next_is("\\") && class_escape()) {
          at_ = before;
          unsupported("a range that ends in a class");
        }
        high = class_symbol();
        if (high < low) unsupported("a range that runs backwards");
      }
      set.add(low, high);
    }
    ++at_;
    if (left) set = left->intersected(set);
    if (fold_ && !nested) fold(set);
    --depth_;
    return negated ? set.inverted() : set;
  }

  uint32_t class_symbol() {
    if (next_is("\\b")) {
      at_ += 2;
      return '\b';
    }
    return next_is("\\") ? character_escape() : take_symbol();
  }

  // ² ³ ¹ ¼ ½ ¾: \w takes them by itself and leaves them out in a class, as in the reference library.
  const CodePointSet no_word_in_class_{{{0xB2, 0xB3}, {0xB9, 0xB9}, {0xBC, 0xBE}}};
  std::string_view pattern_;
  size_t at_ = 0;
  int depth_ = 0;
  bool fold_ = false;
  uint32_t previous_letter_ = 0;
};

}  // namespace

RegexNode parse_regex(std::string_view pattern) {
  return Parser(pattern).parse();
}

}  // namespace strata::data
