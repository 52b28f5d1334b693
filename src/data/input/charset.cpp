#include "data/input/charset.h"

#include <fmt/format.h>
#include <iconv.h>
#include <simdjson.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <iterator>

namespace strata::data {
namespace {

constexpr size_t kDeclarationBytes = 4096;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return result;
}

// The value behind NAME= in lower-case text, with or without quotes.
std::string value_behind(std::string_view text, std::string_view name) {
  for (size_t at = text.find(name); at != text.npos; at = text.find(name, at + 1)) {
    size_t i = text.find_first_not_of(" \t\r\n", at + name.size());
    if (i == text.npos || text[i] != '=') continue;
    i = text.find_first_not_of(" \t\r\n\"'", i + 1);
    if (i == text.npos) return {};
    return std::string(text.substr(i, text.find_first_of(" \t\r\n\"';/>?,", i) - i));
  }
  return {};
}

// What iconv calls the encoding of a label. Only the encodings of the web are let through, since the label
// comes from the page; single-byte labels mean their Windows superset, as the HTML standard says. Empty: none
// of them.
std::string iconv_name(std::string_view label) {
  struct Alias {
    std::string_view label, name;
  };
  constexpr Alias kAliases[] = {
      {"utf8", "utf-8"},
      {"latin1", "windows-1252"},
      {"iso-8859-1", "windows-1252"},
      {"iso8859-1", "windows-1252"},
      {"us-ascii", "windows-1252"},
      {"ascii", "windows-1252"},
      {"cp1252", "windows-1252"},
      {"iso-8859-9", "windows-1254"},
      {"iso-8859-11", "windows-874"},
      {"tis-620", "windows-874"},
      {"gb2312", "gb18030"},
      {"gbk", "gb18030"},
      {"gb_2312-80", "gb18030"},
      {"x-gbk", "gb18030"},
      {"shift_jis", "cp932"},
      {"shift-jis", "cp932"},
      {"x-sjis", "cp932"},
      {"sjis", "cp932"},
      {"windows-31j", "cp932"},
      {"euc-kr", "cp949"},
      {"ks_c_5601-1987", "cp949"},
      {"big5", "big5-hkscs"},
      {"x-mac-roman", "macintosh"},
      {"utf-16", "utf-16le"},
      {"cp1251", "windows-1251"},
      {"cp1250", "windows-1250"},
      {"x-cp1251", "windows-1251"},
  };
  constexpr std::string_view kEncodings[] = {
      "utf-8",        "utf-16le",     "utf-16be",     "windows-1250", "windows-1251", "windows-1252",
      "windows-1253", "windows-1254", "windows-1255", "windows-1256", "windows-1257", "windows-1258",
      "windows-874",  "iso-8859-2",   "iso-8859-3",   "iso-8859-4",   "iso-8859-5",   "iso-8859-6",
      "iso-8859-7",   "iso-8859-8",   "iso-8859-10",  "iso-8859-13",  "iso-8859-14",  "iso-8859-15",
      "iso-8859-16",  "koi8-r",       "koi8-u",       "macintosh",    "ibm866",       "gb18030",
      "big5-hkscs",   "cp932",        "euc-jp",       "iso-2022-jp",  "cp949",
  };
  for (const auto& alias : kAliases) {
    if (alias.label == label) return std::string(alias.name);
  }
  const auto* const end = std::end(kEncodings);
  return std::string(std::find(std::begin(kEncodings), end, label) == end ? std::string_view() : label);
}

struct Converter {
  explicit Converter(const std::string& from)
      : handle(from.empty() ? reinterpret_cast<iconv_t>(-1) : ::iconv_open("UTF-8", from.c_str())) {}
  ~Converter() {
    if (valid()) ::iconv_close(handle);
  }
  Converter(const Converter&) = delete;
  Converter& operator=(const Converter&) = delete;
  bool valid() const { return handle != reinterpret_cast<iconv_t>(-1); }
  iconv_t handle;
};

// Returns how many sequences were replaced.
size_t convert(Converter& converter, std::string_view bytes, std::string& utf8) {
  utf8.resize(bytes.size() + bytes.size() / 2 + 16);
  char* in = const_cast<char*>(bytes.data());
  size_t in_left = bytes.size();
  size_t used = 0;
  size_t replaced = 0;
  while (in_left > 0) {
    if (utf8.size() - used < 16) utf8.resize(utf8.size() * 2);
    char* out = utf8.data() + used;
    size_t out_left = utf8.size() - used;
    const size_t result = ::iconv(converter.handle, &in, &in_left, &out, &out_left);
    used = utf8.size() - out_left;
    if (result != static_cast<size_t>(-1)) continue;
    if (errno == E2BIG) {
      utf8.resize(utf8.size() * 2);
      continue;
    }
    ++replaced;
    utf8.replace(used, kReplacement.size(), kReplacement);
    used += kReplacement.size();
    ++in;
    --in_left;
    ::iconv(converter.handle, nullptr, nullptr, nullptr, nullptr);
  }
  utf8.resize(used);
  return replaced;
}

}  // namespace

std::string charset_of_content_type(std::string_view content_type) {
  return value_behind(lower(content_type), "charset");
}

std::string declared_charset(std::string_view html) {
  if (html.starts_with("\xEF\xBB\xBF")) return "utf-8";
  if (html.starts_with("\xFF\xFE")) return "utf-16le";
  if (html.starts_with("\xFE\xFF")) return "utf-16be";
  const std::string head = lower(html.substr(0, kDeclarationBytes));
  if (head.starts_with("<?xml")) {
    const std::string named = value_behind(std::string_view(head).substr(0, head.find('>')), "encoding");
    if (!named.empty()) return named;
  }
  for (size_t meta = head.find("<meta"); meta != head.npos; meta = head.find("<meta", meta + 5)) {
    const std::string_view tag = std::string_view(head).substr(meta, head.find('>', meta) - meta);
    std::string named = value_behind(tag, "charset");
    // A page whose declaration could be read as ASCII is not in UTF-16.
    if (!named.empty()) return named.starts_with("utf-16") ? "utf-8" : named;
  }
  return {};
}

bool decode_page(std::string_view bytes, std::string_view charset, std::string& utf8, std::string& detail) {
  const bool valid = simdjson::validate_utf8(bytes.data(), bytes.size());
  const std::string declared = lower(charset);
  if (bytes.starts_with("\xEF\xBB\xBF")) bytes.remove_prefix(3);
  const bool is_utf8 = declared == "utf-8" || declared == "utf8";
  if (valid && (is_utf8 || declared.empty())) {
    utf8 = bytes;
    return true;
  }
  Converter converter(iconv_name(declared.empty() ? "windows-1252" : declared));
  if (!converter.valid()) {
    if (valid) {  // a misspelt name of what it is
      utf8 = bytes;
      return true;
    }
    detail = fmt::format("the encoding \"{}\" is not known", declared.substr(0, 40));
    return false;
  }
  const size_t replaced = convert(converter, bytes, utf8);
  if (utf8.starts_with("\xEF\xBB\xBF")) utf8.erase(0, 3);
  if (replaced * 1000 <= bytes.size()) return true;
  detail = fmt::format("{} byte sequences are not in the encoding \"{}\"", replaced,
                       declared.empty() ? "windows-1252 (none was declared)" : declared.substr(0, 40));
  return false;
}

}  // namespace strata::data
