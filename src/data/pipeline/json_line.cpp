#include "data/pipeline/json_line.h"

#include <fmt/format.h>
#include <simdjson.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <bit>
#include <cstring>

namespace strata::data {
namespace {

constexpr size_t kBlock = 16;
static_assert(JsonLine::kPadding >= kBlock);

constexpr size_t kMaxDepth = 1024;

// How many of the 16 bytes at `at` a string holds unescaped, up to the first quote, backslash or control
// character. A string meets one of them at the end of the line at the latest.
size_t plain_bytes(const char* at) {
#if defined(__SSE2__)
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  const __m128i quotes = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"'));
  const __m128i escapes = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'));
  const __m128i controls = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1f)), bytes);
  const int special = _mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quotes, escapes), controls));
  return static_cast<size_t>(std::countr_zero(static_cast<uint32_t>(special) | 1u << kBlock));
#else
  size_t count = 0;
  while (count < kBlock && at[count] != '"' && at[count] != '\\' && static_cast<uint8_t>(at[count]) >= 0x20)
    ++count;
  return count;
#endif
}

// A newline does not count as a blank here: it ends the line.
const char* skip_blanks(const char* at) {
  while (*at == ' ' || *at == '\t' || *at == '\r') ++at;
  return at;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The four digits of \uXXXX, or -1.
int32_t hex4(const char* at) {
  int32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    const int digit = hex_value(at[i]);
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

char* put_utf8(char* out, uint32_t code) {
  if (code < 0x80) {
    *out++ = static_cast<char>(code);
  } else if (code < 0x800) {
    *out++ = static_cast<char>(0xc0 | code >> 6);
    *out++ = static_cast<char>(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    *out++ = static_cast<char>(0xe0 | code >> 12);
    *out++ = static_cast<char>(0x80 | (code >> 6 & 0x3f));
    *out++ = static_cast<char>(0x80 | (code & 0x3f));
  } else {
    *out++ = static_cast<char>(0xf0 | code >> 18);
    *out++ = static_cast<char>(0x80 | (code >> 12 & 0x3f));
    *out++ = static_cast<char>(0x80 | (code >> 6 & 0x3f));
    *out++ = static_cast<char>(0x80 | (code & 0x3f));
  }
  return out;
}

// What a backslash and this letter stand for; 0: no escape of one letter.
char simple_escape(char c) {
  switch (c) {
    case '"':
    case '\\':
    case '/':
      return c;
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    default:
      return 0;
  }
}

constexpr const char* kBadString = "a string that does not end, or holds a control character";
constexpr const char* kNoComma = "no comma or closing bracket";
constexpr const char* kBadEscape = "an unknown escape in a string";

// What a file probably is whose line begins or ends like this one.
std::string_view hint_of_layout(std::string_view line) {
  const size_t first = line.find_first_not_of(" \t\r"), last = line.find_last_not_of(" \t\r");
  if (first == line.npos) return "";
  if (line[first] == '[')
    return "; a file that is one JSON array becomes one object a line with: jq -c '.[]' FILE";
  if (line[first] == '{' && (first == last || line[last] == ','))
    return "; objects that span several lines become one a line with: jq -c . FILE";
  return "";
}

}  // namespace

JsonLine::Kind JsonLine::kind_of(char first) {
  switch (first) {
    case '{':
      return Kind::kObject;
    case '[':
      return Kind::kArray;
    case '"':
      return Kind::kString;
    case 't':
    case 'f':
      return Kind::kBool;
    case 'n':
      return Kind::kNull;
    default:
      return Kind::kNumber;
  }
}

const char* JsonLine::kind_name(Kind kind) {
  switch (kind) {
    case Kind::kMissing:
      return "nothing";
    case Kind::kNull:
      return "null";
    case Kind::kString:
      return "a string";
    case Kind::kNumber:
      return "a number";
    case Kind::kBool:
      return "true or false";
    case Kind::kArray:
      return "an array";
    case Kind::kObject:
      return "an object";
  }
  return "";
}

JsonLine::JsonLine(std::string text_field, std::string id_field)
    : text_field_(std::move(text_field)), id_field_(std::move(id_field)) {}

const char* JsonLine::skip_string(const char* at) {
  for (;;) {
    const size_t plain = plain_bytes(at);
    at += plain;
    if (plain == kBlock) continue;
    if (*at == '"') return at + 1;
    if (*at != '\\') throw SyntaxError{at, kBadString};
    if (simple_escape(at[1]) != 0) {
      at += 2;
    } else if (at[1] == 'u' && hex4(at + 2) >= 0) {
      at += 6;
    } else {
      throw SyntaxError{at, kBadEscape};
    }
  }
}

const char* JsonLine::unescape(const char* at, size_t bound, std::string& out, bool& unpaired_surrogate) {
  // An unescaped string is never longer, and blocks are stored whole.
  out.resize(bound + kBlock);
  char* to = out.data();
  for (;;) {
    std::memcpy(to, at, kBlock);
    const size_t plain = plain_bytes(at);
    at += plain;
    to += plain;
    if (plain == kBlock) continue;
    if (*at == '"') break;
    if (*at != '\\') throw SyntaxError{at, kBadString};
    if (const char c = simple_escape(at[1]); c != 0) {
      *to++ = c;
      at += 2;
      continue;
    }
    const int32_t unit = at[1] == 'u' ? hex4(at + 2) : -1;
    if (unit < 0) throw SyntaxError{at, kBadEscape};
    at += 6;
    auto code = static_cast<uint32_t>(unit);
    if (code >= 0xd800 && code < 0xe000) {
      const int32_t low = code < 0xdc00 && at[0] == '\\' && at[1] == 'u' ? hex4(at + 2) : -1;
      if (low >= 0xdc00 && low < 0xe000) {
        code = 0x10000 + ((code - 0xd800) << 10) + (static_cast<uint32_t>(low) - 0xdc00);
        at += 6;
      } else {
        code = 0xfffd;
        unpaired_surrogate = true;
      }
    }
    to = put_utf8(to, code);
  }
  out.resize(static_cast<size_t>(to - out.data()));
  return at + 1;
}

const char* JsonLine::skip_value(const char* at, size_t depth) {
  const auto literal = [&](std::string_view word) {
    if (static_cast<size_t>(end_ - at) < word.size() || std::memcmp(at, word.data(), word.size()) != 0)
      throw SyntaxError{at, "no JSON value"};
    return at + word.size();
  };
  switch (*at) {
    case '"':
      return skip_string(at + 1);
    case '{':
    case '[':
      return skip_nested(at, depth + 1);
    case 't':
      return literal("true");
    case 'f':
      return literal("false");
    case 'n':
      return literal("null");
    default:
      break;
  }
  const char* const start = at;
  if (*at == '-') ++at;
  if (!is_digit(*at)) throw SyntaxError{start, "no JSON value"};
  if (*at == '0' && is_digit(at[1])) throw SyntaxError{start, "a number with a leading zero"};
  const auto digits = [&] {
    if (!is_digit(*at)) throw SyntaxError{start, "half a number"};
    while (is_digit(*at)) ++at;
  };
  digits();
  if (*at == '.') {
    ++at;
    digits();
  }
  if (*at == 'e' || *at == 'E') {
    ++at;
    if (*at == '+' || *at == '-') ++at;
    digits();
  }
  return at;
}

const char* JsonLine::skip_nested(const char* at, size_t depth) {
  if (depth > kMaxDepth) throw SyntaxError{at, "values nested deeper than 1024"};
  const bool is_object = *at == '{';
  const char close = is_object ? '}' : ']';
  at = skip_blanks(at + 1);
  if (*at == close) return at + 1;
  for (;;) {
    if (is_object) at = skip_key(at);
    at = skip_blanks(skip_value(at, depth));
    if (*at == close) return at + 1;
    if (*at != ',') throw SyntaxError{at, kNoComma};
    at = skip_blanks(at + 1);
  }
}

// A key and its colon; returns the start of the value.
const char* JsonLine::skip_key(const char* at) {
  if (*at != '"') throw SyntaxError{at, "no key in quotes"};
  at = skip_blanks(skip_string(at + 1));
  if (*at != ':') throw SyntaxError{at, "no colon after a key"};
  return skip_blanks(at + 1);
}

void JsonLine::parse_member(const char*& at, Document& document) {
  const char* const member = at;
  at = skip_key(at);
  const char* const value = at;
  std::string_view key(member + 1, static_cast<size_t>(value - member - 1));
  key = key.substr(0, key.rfind('"'));
  if (key.find('\\') != key.npos) key = unescape_whole(member + 1, key_);
  if (key == text_field_) {
    text_ = {};
    if (*at == '"') {
      text_.kind = Kind::kString;
      at = unescape(at + 1, static_cast<size_t>(end_ - at), document.text, text_.unpaired_surrogate);
    } else {
      text_.kind = kind_of(*at);
      at = skip_value(at, 0);
    }
    text_.raw = {value, static_cast<size_t>(at - value)};
    return;
  }
  at = skip_value(at, 0);
  if (key == id_field_) {
    id_.kind = kind_of(*value);
    id_.raw = {value, static_cast<size_t>(at - value)};
    return;
  }
  if (is_own_name(key)) return;
  if (!document.fields.empty()) document.fields += ',';
  document.fields.append(member, at);
}

std::string_view JsonLine::unescape_whole(const char* at, std::string& out) {
  bool ignored = false;
  unescape(at, static_cast<size_t>(skip_string(at) - at), out, ignored);
  return out;
}

void JsonLine::parse_object(std::string_view line, Document& document) {
  const char* at = skip_blanks(line.data());
  if (*at != '{') {
    skip_value(at, 0);
    throw SyntaxError{at, kind_name(kind_of(*at))};
  }
  at = skip_blanks(at + 1);
  if (*at == '}') {
    ++at;
  } else {
    for (;;) {
      parse_member(at, document);
      at = skip_blanks(at);
      if (*at == '}') {
        ++at;
        break;
      }
      if (*at != ',') throw SyntaxError{at, kNoComma};
      at = skip_blanks(at + 1);
    }
  }
  at = skip_blanks(at);
  if (at != end_) throw SyntaxError{at, "text after the object"};
}

ReadStatus JsonLine::parse(std::string_view line, Document& document, std::string& detail) {
  document.clear();
  end_ = line.data() + line.size();
  text_ = {};
  id_ = {};
  try {
    parse_object(line, document);
  } catch (const SyntaxError& error) {
    document.clear();
    detail = fmt::format("{} at column {}; expected one JSON object{}", error.what,
                         error.at - line.data() + 1, hint_of_layout(line));
    return ReadStatus::kInvalidJson;
  }
  if (id_.kind == Kind::kString) {
    unescape_whole(id_.raw.data() + 1, document.id);
  } else if (id_.kind != Kind::kMissing && id_.kind != Kind::kNull) {
    document.id = id_.raw;
    document.id_is_json = true;
  }
  if (text_.kind == Kind::kMissing) {
    detail = fmt::format("no field \"{}\"", text_field_);
    return ReadStatus::kNoText;
  }
  if (text_.kind != Kind::kString) {
    detail = fmt::format("{} under \"{}\"; expected a string", kind_name(text_.kind), text_field_);
    return text_.kind == Kind::kNull ? ReadStatus::kNullText : ReadStatus::kTextNotAString;
  }
  if (text_.unpaired_surrogate) {
    detail = fmt::format("half of a surrogate pair under \"{}\"", text_field_);
    return ReadStatus::kInvalidUtf8;
  }
  if (document.text.empty()) {
    detail = fmt::format("an empty string under \"{}\"", text_field_);
    return ReadStatus::kEmptyText;
  }
  return ReadStatus::kDocument;
}

ReadStatus JsonLine::read(std::string_view line, Document& document, std::string& detail) {
  const ReadStatus status = parse(line, document, detail);
  if (simdjson::validate_utf8(line.data(), line.size())) return status;
  if (!simdjson::validate_utf8(document.id.data(), document.id.size())) document.id.clear();
  detail = "bytes that are not UTF-8";
  return ReadStatus::kInvalidUtf8;
}

std::vector<std::string> JsonLine::names(std::string_view line) {
  std::vector<std::string> out;
  end_ = line.data() + line.size();
  const char* at = skip_blanks(skip_blanks(line.data()) + 1);
  while (*at == '"') {
    out.emplace_back(unescape_whole(at + 1, key_));
    at = skip_blanks(skip_value(skip_key(at), 0));
    if (*at == ',') at = skip_blanks(at + 1);
  }
  return out;
}

}  // namespace strata::data
