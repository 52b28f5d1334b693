#include "data/input/charset.h"

#include <fmt/format.h>
#include <iconv.h>
#include <simdjson.h>

#include <algorithm>
#include <cctype>
#include <cerrno>

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

// The value after NAME= in lower-case text, with or without quotes.
std::string value_after(std::string_view text, std::string_view name) {
  for (size_t at = text.find(name); at != text.npos; at = text.find(name, at + 1)) {
    size_t i = text.find_first_not_of(" \t\r\n", at + name.size());
    if (i == text.npos || text[i] != '=') continue;
    i = text.find_first_not_of(" \t\r\n\"'", i + 1);
    if (i == text.npos) return {};
    return std::string(text.substr(i, text.find_first_of(" \t\r\n\"';/>?,", i) - i));
  }
  return {};
}

// The labels of the Encoding Standard (encoding.spec.whatwg.org), each after iconv's name for the encoding.
// iconv's own names are not accepted: a label comes from the page, and iconv knows encodings that no browser
// reads. Labels of single-byte encodings mean their Windows superset there.
struct Encoding {
  std::string_view iconv_name, labels;
};
constexpr Encoding kEncodings[] = {
    {"utf-8", "utf-8 utf8 unicode-1-1-utf-8 unicode11utf8 unicode20utf8 x-unicode20utf8"},
    {"utf-16le", "utf-16le utf-16 csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff"},
    {"utf-16be", "utf-16be unicodefffe"},
    {"windows-1250", "windows-1250 cp1250 x-cp1250"},
    {"windows-1251", "windows-1251 cp1251 x-cp1251"},
    {"windows-1252",
     "windows-1252 cp1252 x-cp1252 ascii us-ascii ansi_x3.4-1968 latin1 l1 iso-8859-1 iso8859-1 iso88591 "
     "iso_8859-1 "
     "iso_8859-1:1987 iso-ir-100 csisolatin1 cp819 ibm819"},
    {"windows-1253", "windows-1253 cp1253 x-cp1253"},
    {"windows-1254",
     "windows-1254 cp1254 x-cp1254 latin5 l5 iso-8859-9 iso8859-9 iso88599 iso_8859-9 iso_8859-9:1989 "
     "iso-ir-148 "
     "csisolatin5"},
    {"windows-1255", "windows-1255 cp1255 x-cp1255"},
    {"windows-1256", "windows-1256 cp1256 x-cp1256"},
    {"windows-1257", "windows-1257 cp1257 x-cp1257"},
    {"windows-1258", "windows-1258 cp1258 x-cp1258"},
    {"windows-874", "windows-874 dos-874 tis-620 iso-8859-11 iso8859-11 iso885911"},
    {"iso-8859-2",
     "iso-8859-2 iso8859-2 iso88592 iso_8859-2 iso_8859-2:1987 iso-ir-101 csisolatin2 latin2 l2"},
    {"iso-8859-3",
     "iso-8859-3 iso8859-3 iso88593 iso_8859-3 iso_8859-3:1988 iso-ir-109 csisolatin3 latin3 l3"},
    {"iso-8859-4",
     "iso-8859-4 iso8859-4 iso88594 iso_8859-4 iso_8859-4:1988 iso-ir-110 csisolatin4 latin4 l4"},
    {"iso-8859-5",
     "iso-8859-5 iso8859-5 iso88595 iso_8859-5 iso_8859-5:1988 iso-ir-144 csisolatincyrillic cyrillic"},
    {"iso-8859-6",
     "iso-8859-6 iso8859-6 iso88596 iso_8859-6 iso_8859-6:1987 iso-ir-127 csisolatinarabic arabic asmo-708 "
     "ecma-114 "
     "iso-8859-6-e iso-8859-6-i csiso88596e csiso88596i"},
    {"iso-8859-7",
     "iso-8859-7 iso8859-7 iso88597 iso_8859-7 iso_8859-7:1987 iso-ir-126 csisolatingreek greek greek8 "
     "ecma-118 "
     "elot_928 sun_eu_greek"},
    {"iso-8859-8",
     "iso-8859-8 iso8859-8 iso88598 iso_8859-8 iso_8859-8:1988 iso-ir-138 csisolatinhebrew hebrew visual "
     "iso-8859-8-e csiso88598e iso-8859-8-i csiso88598i logical"},
    {"iso-8859-10", "iso-8859-10 iso8859-10 iso885910 iso-ir-157 csisolatin6 latin6 l6"},
    {"iso-8859-13", "iso-8859-13 iso8859-13 iso885913"},
    {"iso-8859-14", "iso-8859-14 iso8859-14 iso885914"},
    {"iso-8859-15", "iso-8859-15 iso8859-15 iso885915 iso_8859-15 csisolatin9 l9"},
    {"iso-8859-16", "iso-8859-16"},
    {"koi8-r", "koi8-r koi8_r koi8 koi cskoi8r"},
    {"koi8-u", "koi8-u koi8-ru"},
    {"ibm866", "ibm866 cp866 866 csibm866"},
    {"macintosh", "macintosh mac x-mac-roman csmacintosh"},
    {"mac-uk", "x-mac-cyrillic x-mac-ukrainian"},
    {"gb18030", "gb18030 gbk x-gbk gb2312 gb_2312 gb_2312-80 csgb2312 csiso58gb231280 iso-ir-58 chinese"},
    {"big5-hkscs", "big5 big5-hkscs cn-big5 csbig5 x-x-big5"},
    {"cp932", "shift_jis shift-jis sjis x-sjis windows-31j ms_kanji ms932 csshiftjis cp932"},
    {"euc-jp", "euc-jp x-euc-jp cseucpkdfmtjapanese"},
    {"iso-2022-jp", "iso-2022-jp csiso2022jp"},
    {"cp949",
     "euc-kr cseuckr ks_c_5601-1987 ks_c_5601-1989 csksc56011987 ksc5601 ksc_5601 korean iso-ir-149 "
     "windows-949 cp949"},
};

bool has_label(std::string_view labels, std::string_view label) {
  while (!labels.empty()) {
    const std::string_view next = labels.substr(0, labels.find(' '));
    if (next == label) return true;
    labels.remove_prefix(std::min(labels.size(), next.size() + 1));
  }
  return false;
}

std::string iconv_name(std::string_view label) {  // empty: no encoding of the web
  for (const Encoding& encoding : kEncodings) {
    if (has_label(encoding.labels, label)) return std::string(encoding.iconv_name);
  }
  return {};
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
  return value_after(lower(content_type), "charset");
}

std::string declared_charset(std::string_view html) {
  if (html.starts_with("\xEF\xBB\xBF")) return "utf-8";
  if (html.starts_with("\xFF\xFE")) return "utf-16le";
  if (html.starts_with("\xFE\xFF")) return "utf-16be";
  const std::string head = lower(html.substr(0, kDeclarationBytes));
  if (head.starts_with("<?xml")) {
    std::string named = value_after(std::string_view(head).substr(0, head.find('>')), "encoding");
    if (!named.empty()) return named;
  }
  for (size_t meta = head.find("<meta"); meta != head.npos; meta = head.find("<meta", meta + 5)) {
    const std::string_view tag = std::string_view(head).substr(meta, head.find('>', meta) - meta);
    std::string named = value_after(tag, "charset");
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
    if (valid) {  // the charset is valid UTF-8 with a misspelt name
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
