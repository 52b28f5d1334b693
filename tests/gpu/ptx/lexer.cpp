#include "ptx/lexer.h"

#include <fmt/core.h>

namespace strata::gpu_tests {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool starts_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%';
}
bool continues_word(char c) {
  return starts_word(c) || is_digit(c);
}

class Lexer {
 public:
  Lexer(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  std::vector<Token> run() {
    for (;;) {
      const bool spaced = skip_space();
      const size_t begin = at_;
      const int line = line_;
      const Token::Kind kind = next();
      Token token{kind, text_.substr(begin, at_ - begin), line, !spaced};
      if (kind == Token::Kind::kDotted) token.text.remove_prefix(1);
      if (kind == Token::Kind::kString) token.text = token.text.substr(1, token.text.size() - 2);
      tokens_.push_back(token);
      if (kind == Token::Kind::kEnd) return std::move(tokens_);
    }
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  bool skip_space() {
    const size_t begin = at_;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\n') {
        ++line_;
      } else if (c == '/' && peek(1) == '/') {
        while (at_ + 1 < text_.size() && text_[at_ + 1] != '\n') ++at_;
      } else if (c == '/' && peek(1) == '*') {
        const int line = line_;
        for (at_ += 2; !(peek() == '*' && peek(1) == '/'); ++at_) {
          if (at_ >= text_.size()) throw LoadError(file_, line, "unterminated comment");
          if (text_[at_] == '\n') ++line_;
        }
        ++at_;
      } else if (c != ' ' && c != '\t' && c != '\r') {
        break;
      }
    }
    return at_ != begin;
  }

  Token::Kind next() {
    if (at_ >= text_.size()) return Token::Kind::kEnd;
    const char c = text_[at_++];
    if (starts_word(c)) {
      while (continues_word(peek())) ++at_;
      return Token::Kind::kWord;
    }
    if (is_digit(c)) {
      while (continues_word(peek()) || (peek() == '.' && is_digit(peek(1)))) ++at_;
      return Token::Kind::kNumber;
    }
    if (c == '.' && continues_word(peek())) {
      while (continues_word(peek()) || (peek() == ':' && peek(1) == ':' && continues_word(peek(2)))) {
        at_ += peek() == ':' ? 2 : 1;
      }
      return Token::Kind::kDotted;
    }
    if (c == '"') {
      while (peek() != '"') {
        if (at_ >= text_.size() || peek() == '\n') throw LoadError(file_, line_, "unterminated string");
        at_ += 1;
      }
      ++at_;
      return Token::Kind::kString;
    }
    constexpr std::string_view kSymbols = ",;:()[]{}<>+-!|@=.";
    if (kSymbols.find(c) != std::string_view::npos) return Token::Kind::kSymbol;
    throw LoadError(file_, line_,
                    fmt::format("character code {} is not valid in PTX", static_cast<unsigned char>(c)));
  }

  std::string_view text_;
  const std::string& file_;
  size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view text, const std::string& file) {
  return Lexer(text, file).run();
}

}  // namespace strata::gpu_tests
