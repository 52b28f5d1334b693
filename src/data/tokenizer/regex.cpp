#include "data/tokenizer/regex.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "data/tokenizer/regex_parser.h"

namespace strata::data {
namespace {

constexpr size_t kMostInstructions = 20000;

enum class Code {
  kSet,        // one symbol
  kRepeatSet,  // min to max symbols
  kSplit,      // goes on at target, and on failure at other (lazy loops swap them)
  kJump,
  kOpen,  // atomic group or look-ahead: marks the stack
  kCloseAtomic,
  kCloseAhead,  // positive: back to where the look-ahead began
  kCloseAheadNegated,
  kAheadSet,  // the next symbol is in the set (negated: is not, or there is none)
  kBehindSet,
  kAssert,
  kMatch
};

struct Instruction {
  Code code = Code::kMatch;
  size_t set = 0;  // index of the set
  size_t target = 0;
  size_t other = 0;
  uint32_t min = 0;
  uint32_t max = 0;
  RegexMode mode = RegexMode::kGreedy;
  RegexAssertion assertion = RegexAssertion::kTextBegin;
  bool negated = false;
};

// A place to return to when the way taken fails.
struct Frame {
  enum Kind { kBranch, kGreedyRun, kLazyRun, kMark, kNegatedMark } kind;
  size_t pc;      // where to go on; of a mark: its kOpen
  size_t at;      // position
  size_t low;     // of a greedy run: the least position
  uint32_t left;  // of a lazy run: symbols that it may still take
};

bool can_be_empty(const RegexNode& node) {
  switch (node.kind) {
    case RegexKind::kSet:
      return false;
    case RegexKind::kSequence:
      for (const RegexNode& child : node.children) {
        if (!can_be_empty(child)) return false;
      }
      return true;
    case RegexKind::kChoice:
      for (const RegexNode& child : node.children) {
        if (can_be_empty(child)) return true;
      }
      return false;
    case RegexKind::kRepeat:
      return node.min == 0 || can_be_empty(node.children[0]);
    case RegexKind::kAtomic:
      return can_be_empty(node.children[0]);
    default:
      return true;
  }
}

}  // namespace

struct Regex::Program {
  std::vector<Instruction> code;
  std::vector<SymbolTest> sets;
};

namespace {

class Compiler {
 public:
  Compiler(std::vector<Instruction>& code, std::vector<SymbolTest>& sets) : code_(code), sets_(sets) {}

  void add(const RegexNode& node) {
    switch (node.kind) {
      case RegexKind::kSet:
        emit({.code = Code::kSet, .set = add_set(node.set)});
        return;
      case RegexKind::kSequence:
        for (const RegexNode& child : node.children) add(child);
        return;
      case RegexKind::kChoice:
        return add_choice(node);
      case RegexKind::kRepeat:
        return add_repeat(node);
      case RegexKind::kAtomic:
        return add_marked(node.children[0], Code::kCloseAtomic, false);
      case RegexKind::kLookAhead:
        if (const CodePointSet* set = single_set(node.children[0])) {
          emit({.code = Code::kAheadSet, .set = add_set(*set), .negated = node.negated});
          return;
        }
        return add_marked(node.children[0], node.negated ? Code::kCloseAheadNegated : Code::kCloseAhead,
                          node.negated);
      case RegexKind::kLookBehind:
        emit({.code = Code::kBehindSet, .set = add_set(node.set), .negated = node.negated});
        return;
      case RegexKind::kAssertion:
        emit({.code = Code::kAssert, .assertion = node.assertion, .negated = node.negated});
        return;
    }
  }

  size_t emit(const Instruction& instruction) {
    if (code_.size() >= kMostInstructions) {
      throw DataError("[regex] the expression needs more than {} steps, which is not supported",
                      kMostInstructions);
    }
    code_.push_back(instruction);
    return code_.size() - 1;
  }

 private:
  size_t add_set(const CodePointSet& set) {
    sets_.emplace_back(set);
    return sets_.size() - 1;
  }

  static const CodePointSet* single_set(const RegexNode& node) {
    if (node.kind == RegexKind::kSet) return &node.set;
    if (node.kind == RegexKind::kSequence && node.children.size() == 1) return single_set(node.children[0]);
    return nullptr;
  }

  void add_choice(const RegexNode& node) {
    std::vector<size_t> jumps;
    for (size_t i = 0; i < node.children.size(); ++i) {
      const bool last = i + 1 == node.children.size();
      const size_t split = last ? 0 : emit({.code = Code::kSplit});
      if (!last) code_[split].target = code_.size();
      add(node.children[i]);
      if (last) continue;
      jumps.push_back(emit({.code = Code::kJump}));
      code_[split].other = code_.size();
    }
    for (const size_t jump : jumps) code_[jump].target = code_.size();
  }

  void add_marked(const RegexNode& body, Code close, bool negated) {
    const size_t open = emit({.code = Code::kOpen, .negated = negated});
    add(body);
    const size_t closing = emit({.code = close, .other = open});
    code_[open].target = closing + 1;
  }

  void add_repeat(const RegexNode& node) {
    const RegexNode& body = node.children[0];
    if (const CodePointSet* set = single_set(body)) {
      emit({.code = Code::kRepeatSet,
            .set = add_set(*set),
            .min = node.min,
            .max = node.max,
            .mode = node.mode});
      return;
    }
    if (node.mode == RegexMode::kPossessive) {
      RegexNode greedy = node;
      greedy.mode = RegexMode::kGreedy;
      return add_marked(greedy, Code::kCloseAtomic, false);
    }
    for (uint32_t i = 0; i < node.min; ++i) add(body);
    if (node.max == RegexNode::kUnlimited) return add_loop(node);
    std::vector<size_t> splits;
    for (uint32_t i = node.min; i < node.max; ++i) {
      splits.push_back(emit({.code = Code::kSplit}));
      add(body);
    }
    for (const size_t split : splits) set_split(split, split + 1, code_.size(), node.mode);
  }

  void add_loop(const RegexNode& node) {
    if (can_be_empty(node.children[0])) {
      throw DataError("[regex] an unlimited repeat of a part that may match nothing is not supported");
    }
    const size_t split = emit({.code = Code::kSplit});
    add(node.children[0]);
    emit({.code = Code::kJump, .target = split});
    set_split(split, split + 1, code_.size(), node.mode);
  }

  void set_split(size_t split, size_t body, size_t next, RegexMode mode) {
    const bool lazy = mode == RegexMode::kLazy;
    code_[split].target = lazy ? next : body;
    code_[split].other = lazy ? body : next;
  }

  std::vector<Instruction>& code_;
  std::vector<SymbolTest>& sets_;
};

class Matcher {
 public:
  Matcher(const std::vector<Instruction>& code, const std::vector<SymbolTest>& sets, std::string_view pattern,
          std::string_view text, std::vector<Frame>& stack, Regex::Budget& budget)
      : code_(code), sets_(sets), pattern_(pattern), text_(text), stack_(stack), budget_(budget) {}

  // The end of the match that starts at `begin`, if there is one.
  std::optional<size_t> match(size_t begin) {
    stack_.clear();
    size_t pc = 0;
    size_t at = begin;
    for (;;) {
      if (budget_.steps == 0) too_long();
      --budget_.steps;
      const Instruction& now = code_[pc];
      if (now.code == Code::kMatch) return at;
      if (!step(now, pc, at) && !back(pc, at)) return std::nullopt;
    }
  }

 private:
  [[noreturn]] void too_long() const {
    throw DataError(
        "[regex] found a text of {} bytes on which the search for '{}' takes too long, expected an "
        "expression that does not go back over the same text again and again",
        text_.size(), pattern_);
  }

  CodePoint symbol(size_t at) const {
    return decode_code_point(text_.data() + at, text_.data() + text_.size());
  }

  size_t size_before(size_t at) const {
    for (size_t size = std::min<size_t>(4, at); size > 1; --size) {
      if (decode_code_point(text_.data() + at - size, text_.data() + at).size == size) return size;
    }
    return 1;
  }

  // Executes one instruction: moves pc and at, or returns false if it does not match.
  bool step(const Instruction& now, size_t& pc, size_t& at) {
    switch (now.code) {
      case Code::kSet: {
        if (at >= text_.size()) return false;
        const CodePoint c = symbol(at);
        if (!sets_[now.set](c.value)) return false;
        at += c.size;
        break;
      }
      case Code::kRepeatSet:
        if (!repeat(now, pc, at)) return false;
        break;
      case Code::kSplit:
        stack_.push_back({Frame::kBranch, now.other, at, 0, 0});
        pc = now.target;
        return true;
      case Code::kJump:
        pc = now.target;
        return true;
      case Code::kOpen:
        stack_.push_back({now.negated ? Frame::kNegatedMark : Frame::kMark, pc, at, 0, 0});
        break;
      case Code::kCloseAtomic:
        cut(now.other);
        break;
      case Code::kCloseAhead:
        at = cut(now.other);
        break;
      case Code::kCloseAheadNegated:
        cut(now.other);
        return false;
      case Code::kAheadSet:
        if ((at < text_.size() && sets_[now.set](symbol(at).value)) == now.negated) return false;
        break;
      case Code::kBehindSet:
        if ((at > 0 && sets_[now.set](symbol(at - size_before(at)).value)) == now.negated) return false;
        break;
      case Code::kAssert:
        if (holds(now.assertion, at) == now.negated) return false;
        break;
      default:
        break;
    }
    ++pc;
    return true;
  }

  bool repeat(const Instruction& now, size_t pc, size_t& at) {
    const SymbolTest& set = sets_[now.set];
    uint32_t taken = 0;
    size_t low = at;
    const uint32_t wanted = now.mode == RegexMode::kLazy ? now.min : now.max;
    while (taken < wanted && at < text_.size()) {
      const CodePoint c = symbol(at);
      if (!set(c.value)) break;
      at += c.size;
      if (taken < RegexNode::kUnlimited - 1) ++taken;
      if (taken == now.min) low = at;
    }
    if (taken < now.min) return false;
    if (now.mode == RegexMode::kLazy) {
      const uint32_t left = now.max == RegexNode::kUnlimited ? now.max : now.max - now.min;
      if (left > 0) stack_.push_back({Frame::kLazyRun, pc, at, 0, left});
    } else if (now.mode == RegexMode::kGreedy && at > low) {
      stack_.push_back({Frame::kGreedyRun, pc + 1, at, low, 0});
    }
    return true;
  }

  // Drops the stack entries of the group opened at `open`; returns the position where it began.
  size_t cut(size_t open) {
    while (!((stack_.back().kind == Frame::kMark || stack_.back().kind == Frame::kNegatedMark) &&
             stack_.back().pc == open)) {
      stack_.pop_back();
    }
    const size_t at = stack_.back().at;
    stack_.pop_back();
    return at;
  }

  // Returns to the newest place with another way; false when there is none.
  bool back(size_t& pc, size_t& at) {
    while (!stack_.empty()) {
      Frame& frame = stack_.back();
      switch (frame.kind) {
        case Frame::kBranch:
          pc = frame.pc;
          at = frame.at;
          stack_.pop_back();
          return true;
        case Frame::kGreedyRun:
          frame.at -= size_before(frame.at);
          pc = frame.pc;
          at = frame.at;
          if (frame.at <= frame.low) stack_.pop_back();
          return true;
        case Frame::kLazyRun: {
          const CodePoint c = frame.at < text_.size() ? symbol(frame.at) : CodePoint{0, 0};
          if (c.size == 0 || !sets_[code_[frame.pc].set](c.value)) {
            stack_.pop_back();
            continue;
          }
          at = frame.at += c.size;
          pc = frame.pc + 1;
          if (frame.left != RegexNode::kUnlimited && --frame.left == 0) stack_.pop_back();
          return true;
        }
        case Frame::kMark:
          stack_.pop_back();
          continue;
        case Frame::kNegatedMark:  // the body of a negative look-ahead failed: it holds
          pc = code_[frame.pc].target;
          at = frame.at;
          stack_.pop_back();
          return true;
      }
    }
    return false;
  }

  bool holds(RegexAssertion assertion, size_t at) const {
    const auto newline = [&](size_t i) { return text_[i] == '\n'; };
    switch (assertion) {
      case RegexAssertion::kTextBegin:
        return at == 0;
      case RegexAssertion::kTextEnd:
        return at == text_.size();
      case RegexAssertion::kTextEndOrNewline:
        return at == text_.size() || (at + 1 == text_.size() && newline(at));
      case RegexAssertion::kLineBegin:
        return at == 0 || (newline(at - 1) && at < text_.size());
      case RegexAssertion::kLineEnd:
        return at == text_.size() || newline(at);
      case RegexAssertion::kWordBoundary: {
        const bool before = at > 0 && is_regex_word(symbol(at - size_before(at)).value);
        const bool after = at < text_.size() && is_regex_word(symbol(at).value);
        return before != after;
      }
    }
    return false;
  }

  const std::vector<Instruction>& code_;
  const std::vector<SymbolTest>& sets_;
  std::string_view pattern_;
  std::string_view text_;
  std::vector<Frame>& stack_;
  Regex::Budget& budget_;
};

}  // namespace

Regex::Regex(std::string_view pattern) : pattern_(pattern) {
  auto program = std::make_unique<Program>();
  Compiler compiler(program->code, program->sets);
  compiler.add(parse_regex(pattern));
  compiler.emit({.code = Code::kMatch});
  program_ = std::move(program);
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

bool Regex::find(std::string_view text, size_t from, size_t& begin, size_t& end, Budget& budget) const {
  thread_local std::vector<Frame> stack;  // kept warm: a search allocates nothing
  Matcher matcher(program_->code, program_->sets, pattern_, text, stack, budget);
  for (size_t at = from; at <= text.size();) {
    if (const auto found = matcher.match(at)) {
      begin = at;
      end = *found;
      return true;
    }
    if (at == text.size()) break;
    at += decode_code_point(text.data() + at, text.data() + text.size()).size;
  }
  return false;
}

}  // namespace strata::data
