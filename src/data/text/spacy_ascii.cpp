#include "data/text/spacy_ascii.h"

namespace strata::data {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}
bool is_upper(char c) {
  return c >= 'A' && c <= 'Z';
}
bool is_letter(char c) {
  return is_lower(c) || is_upper(c);
}
// The ASCII part of spaCy's CONCAT_QUOTES.
bool is_quote(char c) {
  return c == '\'' || c == '"' || c == '`' || c == ',';
}
// A separate token at either end of a run, whatever is next to it.
bool is_mark(char c) {
  switch (c) {
    case ',':
    case ':':
    case ';':
    case '!':
    case '?':
    case '(':
    case ')':
    case '[':
    case ']':
    case '{':
    case '}':
    case '<':
    case '>':
    case '_':
    case '#':
    case '*':
    case '&':
    case '\'':
    case '"':
    case '`':
      return true;
    default:
      return false;
  }
}

size_t dots(std::string_view run, size_t from) {
  const size_t end = run.find_first_not_of('.', from);
  return (end == std::string_view::npos ? run.size() : end) - from;
}

}  // namespace

int ascii_prefix(std::string_view run) {
  const char first = run[0];
  // Letters: only US$, C$ and A$.
  if (is_letter(first)) return run.substr(1, 2).find('$') == std::string_view::npos ? 0 : kAskPattern;
  if (is_digit(first)) return 0;
  if (is_mark(first)) return 1;
  switch (first) {
    case '%':
    case '=':
    case '$':
      return 1;
    case '+':
      return run.size() > 1 && is_digit(run[1]) ? 0 : 1;
    case '.': {
      const size_t number = dots(run, 0);
      return number > 1 ? static_cast<int>(number) : 0;
    }
    case '-':
    case '/':
    case '@':
    case '\\':
    case '^':
    case '|':
    case '~':
      return 0;
    default:
      return kAskPattern;
  }
}

int ascii_suffix(std::string_view run) {
  if (is_mark(run.back())) return 1;
  switch (run.back()) {
    case '.': {
      if (run.size() < 2) return kAskPattern;
      const char before = run[run.size() - 2];
      return is_lower(before) || is_digit(before) ? 1 : kAskPattern;
    }
    default:
      return kAskPattern;
  }
}

bool find_ascii_infix(std::string_view run, size_t from, size_t& begin, size_t& end) {
  const auto at = [run](size_t i) { return i < run.size() ? run[i] : '\0'; };
  for (size_t i = from; i < run.size(); ++i) {
    const char c = run[i];
    if (is_letter(c) || is_digit(c)) continue;
    const char before = i > 0 ? run[i - 1] : '\0', next = at(i + 1);
    size_t size = 0;
    switch (c) {
      case '.':
        if (next == '.') {
          size = dots(run, i);
        } else if ((is_lower(before) || is_quote(before)) && (is_upper(next) || is_quote(next))) {
          size = 1;
        }
        break;
      case '+':
      case '*':
      case '^':
        size = is_digit(before) && (is_digit(next) || next == '-');
        break;
      case '-':
        if (is_digit(before) && (is_digit(next) || next == '-')) {
          size = 1;
        } else if (is_letter(before) || is_digit(before)) {
          for (size_t length = 1; length <= 3 && size == 0 && at(i + length - 1) == '-'; ++length) {
            if (is_letter(at(i + length))) size = length;
          }
        }
        break;
      case ',':
        size = is_letter(before) && is_letter(next);
        break;
      case '~':
      case ':':
      case '<':
      case '>':
      case '=':
      case '/':
        size = (is_letter(before) || is_digit(before)) && is_letter(next);
        break;
      default:
        break;
    }
    if (size > 0) {
      begin = i;
      end = i + size;
      return true;
    }
  }
  return false;
}

}  // namespace strata::data
