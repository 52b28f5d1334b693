#include "ptx/parser.h"

#include <fmt/core.h>

#include <bit>
#include <cstdlib>

#include "ptx/lexer.h"
#include "ptx/number.h"

namespace strata::gpu_tests {
namespace {

// Larger than any kernel's arrays; prevents a damaged size from exhausting the machine's memory.
constexpr uint64_t kMaxVariableBytes = uint64_t{1} << 26;
constexpr int kMaxRegisters = 100'000;

class Parser {
 public:
  Parser(std::string_view text, const std::string& file) : file_(file), tokens_(tokenize(text, file)) {
    module_.file = file;
  }

  ModuleSyntax run() {
    expect_directive("version");
    const std::string version(take(Token::Kind::kNumber, "a version").text);
    if (std::atof(version.c_str()) < 6.0)
      fail("PTX of version {} is too old: 6.0 or later is needed", version);
    while (peek().kind != Token::Kind::kEnd) top_level();
    if (module_.target.empty()) fail("a module needs a .target");
    return std::move(module_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw LoadError(file_, peek().line, fmt::format(format, std::forward<Args>(args)...));
  }

  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& advance() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  std::string found() const {
    return peek().kind == Token::Kind::kEnd ? "the end" : fmt::format("\"{}\"", peek().text);
  }

  const Token& take(Token::Kind kind, const char* what) {
    if (peek().kind != kind) fail("expected {}, found {}", what, found());
    return advance();
  }
  void expect(char symbol) {
    if (!peek().is(symbol)) fail("expected \"{}\", found {}", symbol, found());
    advance();
  }
  bool accept(char symbol) {
    if (!peek().is(symbol)) return false;
    advance();
    return true;
  }
  void expect_directive(std::string_view name) {
    if (!peek().is_dotted(name)) fail("expected .{}, found {}", name, found());
    advance();
  }
  bool accept_directive(std::string_view name) {
    if (!peek().is_dotted(name)) return false;
    advance();
    return true;
  }

  Number number() {
    const bool negative = accept('-');
    const std::string_view text = take(Token::Kind::kNumber, "a number").text;
    const std::optional<Number> value = parse_number(text, negative);
    if (!value) fail("\"{}\" is not a number", text);
    return *value;
  }

  int64_t integer() {
    const Number one = number();
    if (one.kind != Operand::Kind::kInteger) fail("expected an integer");
    return one.value;
  }
  uint64_t size() {
    const int64_t value = integer();
    if (value < 0 || static_cast<uint64_t>(value) > kMaxVariableBytes) fail("{} is not a usable size", value);
    return static_cast<uint64_t>(value);
  }

  void top_level() {
    const Token& token = peek();
    if (token.kind != Token::Kind::kDotted) fail("expected a directive, found {}", found());
    const std::string_view name = token.text;
    if (name == "target") {
      advance();
      module_.target = take(Token::Kind::kWord, "a target").text;
      while (accept(',')) take(Token::Kind::kWord, "a target's option");
    } else if (name == "address_size") {
      advance();
      if (integer() != 64) fail("only an address size of 64 is implemented");
    } else if (name == "file") {
      file_directive();
    } else if (name == "section") {
      skip_section();
    } else if (name == "pragma") {
      pragma();
    } else {
      declaration();
    }
  }

  void file_directive() {
    advance();
    const uint64_t index = size();
    if (index > 100'000) fail("file number {} is too large", index);
    const std::string_view path = take(Token::Kind::kString, "a file name").text;
    while (accept(',')) number();
    if (module_.source_files.size() <= index) module_.source_files.resize(index + 1);
    module_.source_files[index] = path.substr(path.find_last_of('/') + 1);
  }

  // Skips debug information up to its closing brace.
  void skip_section() {
    advance();
    advance();
    expect('{');
    for (int depth = 1; depth > 0; advance()) {
      if (peek().kind == Token::Kind::kEnd) fail("this section has no end");
      depth += peek().is('{') ? 1 : peek().is('}') ? -1 : 0;
    }
  }

  void pragma() {
    advance();
    do {
      take(Token::Kind::kString, "a string");
    } while (accept(','));
    expect(';');
  }

  void declaration() {
    bool external = false;
    for (;; advance()) {
      if (peek().is_dotted("extern")) {
        external = true;
      } else if (!peek().is_dotted("visible") && !peek().is_dotted("weak") && !peek().is_dotted("common")) {
        break;
      }
    }
    if (accept_directive("entry")) {
      function(true);
    } else if (accept_directive("func")) {
      function(false);
    } else {
      Variable one = variable();
      one.external = one.external || external;
      module_.variables.push_back(std::move(one));
      expect(';');
    }
  }

  Space space_directive() {
    const std::string_view name = take(Token::Kind::kDotted, "a directive").text;
    if (name == "global") return Space::kGlobal;
    if (name == "shared") return Space::kShared;
    if (name == "local") return Space::kLocal;
    if (name == "const") return Space::kConst;
    if (name == "param") return Space::kParam;
    fail("the directive .{} is not implemented", name);
  }

  Variable variable() {
    Variable one;
    one.line = peek().line;
    one.space = space_directive();
    uint64_t lanes = 1;
    bool typed = false;
    while (peek().kind == Token::Kind::kDotted) {
      const std::string_view name = advance().text;
      if (name == "align") {
        // The second one, after .ptr, applies to the target of the pointer.
        const uint64_t align = size();
        if (!std::has_single_bit(align)) fail("{} is not an alignment", align);
        if (one.align == 0 && !typed) one.align = align;
      } else if (name == "v2" || name == "v4") {
        lanes = name == "v2" ? 2 : 4;
      } else if (const Type type = type_named(name); type != Type::kNone && type != Type::kPred) {
        one.type = type;
        typed = true;
      } else if (name != "ptr" && name != "global" && name != "shared" && name != "const" &&
                 name != "local" && name != "managed") {
        fail("a variable cannot be .{}", name);
      }
    }
    if (!typed) fail("a variable needs a type");
    one.name = take(Token::Kind::kWord, "a name").text;
    one.bytes = type_bytes(one.type) * lanes;
    if (one.align == 0) one.align = one.bytes;
    while (accept('[')) {
      if (accept(']')) {
        one.constant_size = false;
        one.bytes = 0;
        continue;
      }
      const uint64_t count = size();
      if (one.bytes != 0 && count > kMaxVariableBytes / one.bytes) fail("{} is too large", one.name);
      one.bytes *= count;
      expect(']');
    }
    if (accept('=')) {
      one.initial.assign(one.bytes, 0);
      uint64_t at = 0;
      initializer(one, &at);
    }
    return one;
  }

  void initializer(Variable& one, uint64_t* at) {
    if (accept('{')) {
      if (accept('}')) return;
      if (++depth_ > 16) fail("values are nested too deeply");
      do {
        initializer(one, at);
      } while (accept(','));
      --depth_;
      expect('}');
      return;
    }
    const uint64_t bytes = type_bytes(one.type);
    if (*at + bytes > one.bytes) fail("{} has more initial values than elements", one.name);
    if (peek().kind == Token::Kind::kWord) {
      const bool generic = peek().text == "generic" && peek(1).is('(');
      if (generic) advance(), advance();
      const std::string symbol(take(Token::Kind::kWord, "a name").text);
      int64_t addend = accept('+') ? integer() : 0;
      if (generic) expect(')');
      if (accept('+')) addend += integer();
      if (bytes != 8) fail("an address needs an element of 64 bits");
      one.addresses.push_back({*at, symbol, addend, generic});
    } else {
      Number value = number();
      if (value.kind == Operand::Kind::kFloat64 && one.type == Type::kF32) {
        value.value = std::bit_cast<int32_t>(static_cast<float>(std::bit_cast<double>(value.value)));
      }
      for (uint64_t byte = 0; byte < bytes; ++byte) {
        one.initial[*at + byte] = static_cast<uint8_t>(static_cast<uint64_t>(value.value) >> (8 * byte));
      }
    }
    *at += bytes;
  }

  std::vector<Variable> variables_in_parentheses() {
    std::vector<Variable> list;
    expect('(');
    if (accept(')')) return list;
    do {
      if (peek().is_dotted("reg")) fail("parameters in registers are not implemented");
      list.push_back(variable());
    } while (accept(','));
    expect(')');
    return list;
  }

  void triple(unsigned (&out)[3]) {
    for (unsigned& value : out) value = 1;
    size_t axis = 0;
    do {
      if (axis == 3) fail("more than three sizes");
      out[axis++] = static_cast<unsigned>(size());
    } while (accept(','));
  }

  void function(bool entry) {
    FunctionSyntax one;
    one.entry = entry;
    one.line = peek().line;
    if (peek().is('(')) one.results = variables_in_parentheses();
    one.name = take(Token::Kind::kWord, "a function's name").text;
    if (peek().is('(')) one.params = variables_in_parentheses();
    while (peek().kind == Token::Kind::kDotted) {
      const std::string_view name = advance().text;
      if (name == "maxntid") {
        triple(one.max_threads);
      } else if (name == "reqntid") {
        triple(one.required_threads);
      } else if (name == "minnctapersm" || name == "maxnreg" || name == "maxnctapersm") {
        integer();
      } else if (name == "pragma") {
        --at_;
        pragma();
      } else if (name != "noreturn") {
        fail("the directive .{} is not implemented", name);
      }
    }
    if (!accept(';')) {
      one.has_body = true;
      body(one.body);
    }
    module_.functions.push_back(std::move(one));
  }

  void body(std::vector<Statement>& out) {
    expect('{');
    source_ = {};
    for (int depth = 1; depth > 0;) {
      if (peek().kind == Token::Kind::kEnd) fail("this function has no end");
      if (peek().is('{') || peek().is('}')) {
        const bool opens = peek().is('{');
        depth += opens ? 1 : -1;
        Statement one = begin(opens ? Statement::Kind::kOpen : Statement::Kind::kClose);
        advance();
        if (depth > 64) fail("blocks are nested too deeply");
        if (depth > 0) out.push_back(std::move(one));
      } else if (!accept(';')) {
        statement(out);
      }
    }
  }

  Statement begin(Statement::Kind kind) const {
    Statement one;
    one.kind = kind;
    one.line = peek().line;
    one.source = source_;
    return one;
  }

  void statement(std::vector<Statement>& out) {
    if (peek().kind == Token::Kind::kDotted) {
      directive(out);
      return;
    }
    if (peek().kind == Token::Kind::kWord && peek(1).is(':')) {
      Statement one = begin(Statement::Kind::kLabel);
      one.name = advance().text;
      advance();
      if (peek().is_dotted("branchtargets")) {
        advance();
        one.kind = Statement::Kind::kTargets;
        do {
          Operand target;
          target.name = take(Token::Kind::kWord, "a label").text;
          one.operands.push_back(std::move(target));
        } while (accept(','));
        expect(';');
      } else if (peek().kind == Token::Kind::kDotted && peek().text.starts_with("call")) {
        fail("indirect calls are not implemented");
      }
      out.push_back(std::move(one));
      return;
    }
    Statement one = begin(Statement::Kind::kInstruction);
    if (accept('@')) {
      one.guard_negated = accept('!');
      one.guard = take(Token::Kind::kWord, "a predicate").text;
    }
    one.name = take(Token::Kind::kWord, "an instruction").text;
    while (peek().kind == Token::Kind::kDotted && peek().joined) one.modifiers.emplace_back(advance().text);
    if (!peek().is(';')) {
      do {
        one.operands.push_back(operand());
      } while (accept(','));
    }
    expect(';');
    out.push_back(std::move(one));
  }

  void directive(std::vector<Statement>& out) {
    if (peek().is_dotted("loc")) {
      const int here = advance().line;
      source_.file = static_cast<int>(size());
      const int line = static_cast<int>(size());
      if (line > 0) source_.line = line;
      size();
      // function_name LABEL, inlined_at FILE LINE COLUMN: up to the end of the line.
      while (peek().line == here && peek().kind != Token::Kind::kEnd) advance();
    } else if (peek().is_dotted("pragma")) {
      pragma();
    } else if (accept_directive("reg")) {
      Statement one = begin(Statement::Kind::kRegisters);
      const std::string_view name = take(Token::Kind::kDotted, "a type").text;
      const Type type = type_named(name);
      if (type == Type::kNone) fail("a register cannot be .{}", name);
      do {
        const std::string prefix(take(Token::Kind::kWord, "a register").text);
        int count = 0;
        if (accept('<')) {
          const uint64_t wanted = size();
          if (wanted == 0 || wanted > kMaxRegisters) fail("{} registers", wanted);
          count = static_cast<int>(wanted);
          expect('>');
        }
        one.registers.push_back({type, prefix, count});
      } while (accept(','));
      expect(';');
      out.push_back(std::move(one));
    } else {
      Statement one = begin(Statement::Kind::kVariable);
      one.variable = variable();
      expect(';');
      out.push_back(std::move(one));
    }
  }

  std::vector<Operand> list(char end) {
    std::vector<Operand> elements;
    if (accept(end)) return elements;
    if (++depth_ > 16) fail("operands are nested too deeply");
    do {
      elements.push_back(operand());
    } while (accept(','));
    --depth_;
    expect(end);
    return elements;
  }

  Operand operand() {
    Operand one;
    if (accept('{')) {
      one.kind = Operand::Kind::kVector;
      one.elements = list('}');
    } else if (accept('(')) {
      one.kind = Operand::Kind::kGroup;
      one.elements = list(')');
    } else if (accept('[')) {
      one = scalar();
      if (one.kind == Operand::Kind::kInteger) {
        one.name.clear();
      } else if (one.kind != Operand::Kind::kName || one.negated) {
        fail("this is not an address");
      }
      one.kind = Operand::Kind::kAddress;
      if (peek().is(',')) fail("tensor and multi-part addresses are not implemented");
      expect(']');
    } else {
      one = scalar();
      if (accept('|')) {
        Operand pair;
        pair.kind = Operand::Kind::kPair;
        pair.elements.push_back(std::move(one));
        pair.elements.push_back(scalar());
        return pair;
      }
    }
    return one;
  }

  Operand scalar() {
    Operand one;
    one.negated = accept('!');
    if (peek().kind == Token::Kind::kNumber || peek().is('-')) {
      const Number value = number();
      one.kind = value.kind;
      one.value = value.value;
      return one;
    }
    one.name = take(Token::Kind::kWord, "an operand").text;
    while (peek().kind == Token::Kind::kDotted && peek().joined)
      one.name += "." + std::string(advance().text);
    if (peek().is('+') || (peek().is('-') && peek(1).kind == Token::Kind::kNumber)) {
      accept('+');
      one.value = integer();
    }
    return one;
  }

  const std::string& file_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  SourceLine source_;
  ModuleSyntax module_;
};

}  // namespace

ModuleSyntax parse_module(std::string_view text, const std::string& file) {
  return Parser(text, file).run();
}

}  // namespace strata::gpu_tests
