#include "data/input/http_message.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cctype>
#include <charconv>

namespace strata::data {
namespace {

constexpr size_t kHeaderLines = 1000;

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return result;
}

// Joins the chunks of RFC 9112 §7.1; false where the body is not made of them.
bool join_chunks(std::string_view body, std::string& joined) {
  while (!body.empty()) {
    const size_t line_end = body.find("\r\n");
    if (line_end == body.npos) return false;
    size_t size = 0;
    const auto [end, error] = std::from_chars(body.data(), body.data() + line_end, size, 16);
    const bool size_ends = end == body.data() + line_end || *end == ';' || *end == ' ';
    if (error != std::errc() || !size_ends) return false;
    body.remove_prefix(line_end + 2);
    if (size == 0) return true;
    if (size > body.size()) {  // truncated: the available bytes count
      joined += body;
      return true;
    }
    joined += body.substr(0, size);
    body.remove_prefix(size);
    if (body.starts_with("\r\n")) body.remove_prefix(2);
  }
  return true;
}

enum class Inflated { kWhole, kDamaged, kTooLarge };

// zlib's window bits select the expected wrapper: 15 + 32 takes gzip and zlib, -15 none.
Inflated inflate_all(std::string_view coded, int window_bits, size_t max_bytes, std::string& plain) {
  z_stream stream{};
  if (inflateInit2(&stream, window_bits) != Z_OK) return Inflated::kDamaged;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(coded.data()));
  stream.avail_in = static_cast<uInt>(std::min<size_t>(coded.size(), UINT32_MAX));
  int status = Z_OK;
  size_t used = 0;
  while (status == Z_OK && used <= max_bytes) {
    if (plain.size() - used < 4096) plain.resize(std::max<size_t>(2 * plain.size(), 4 * coded.size() + 4096));
    const size_t capacity = std::min<size_t>(plain.size() - used, UINT32_MAX);
    stream.next_out = reinterpret_cast<Bytef*>(plain.data() + used);
    stream.avail_out = static_cast<uInt>(capacity);
    status = inflate(&stream, Z_NO_FLUSH);
    used += capacity - stream.avail_out;
  }
  inflateEnd(&stream);
  plain.resize(used);
  if (used > max_bytes) return Inflated::kTooLarge;
  return status == Z_STREAM_END ? Inflated::kWhole : Inflated::kDamaged;
}

bool undo_coding(const std::string& coding, size_t max_bytes, std::string& body, std::string& detail) {
  if (coding.empty() || coding == "identity") return true;
  const bool gzip = coding == "gzip" || coding == "x-gzip";
  if (!gzip && coding != "deflate") {
    detail = fmt::format("the content coding \"{}\"; gzip and deflate are read", coding.substr(0, 40));
    return false;
  }
  if (body.empty()) return true;
  if (gzip && !body.starts_with("\x1f\x8b")) return true;
  std::string plain;
  Inflated result = inflate_all(body, 15 + 32, max_bytes, plain);
  if (result == Inflated::kDamaged && !gzip) {
    plain.clear();
    result = inflate_all(body, -15, max_bytes, plain);
    if (result == Inflated::kDamaged && plain.empty()) return true;
  }
  if (result == Inflated::kWhole) {
    body = std::move(plain);
    return true;
  }
  detail = result == Inflated::kTooLarge ? fmt::format("a body of more than {} bytes", max_bytes)
                                         : "damaged content coding";
  return false;
}

// The status in "HTTP/1.1 200 OK"; 0 if there is none.
int status_of(std::string_view line) {
  const size_t at = std::min(line.find_first_not_of(' ', line.find(' ')), line.size());
  int status = 0;
  std::from_chars(line.data() + at, line.data() + line.size(), status);
  return status;
}

}  // namespace

bool parse_header(std::string_view text, HeaderLines& lines, size_t& end) {
  lines.clear();
  size_t at = 0;
  for (;;) {
    const size_t newline = text.find('\n', at);
    if (newline == text.npos || lines.size() > kHeaderLines) return false;
    std::string_view line = text.substr(at, newline - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    at = newline + 1;
    if (line.empty()) {
      end = at;
      return true;
    }
    if ((line[0] == ' ' || line[0] == '\t') && !lines.empty()) {
      lines.back().second += ' ';
      lines.back().second += trim(line);
      continue;
    }
    const size_t colon = line.find(':');
    if (colon == line.npos || colon == 0) return false;
    lines.emplace_back(lower(trim(line.substr(0, colon))), trim(line.substr(colon + 1)));
  }
}

std::string_view header_value(const HeaderLines& lines, std::string_view lower_case_name) {
  for (const auto& [name, value] : lines) {
    if (name == lower_case_name) return value;
  }
  return {};
}

bool parse_http(std::string_view block, size_t max_bytes, HttpMessage& message, std::string& detail) {
  const size_t status_end = block.find('\n');
  size_t header_end = 0;
  if (!block.starts_with("HTTP/") || status_end == block.npos) {
    detail = "no HTTP status line";
    return false;
  }
  message.status = status_of(block.substr(0, status_end));
  if (!parse_header(block.substr(status_end + 1), message.header, header_end)) {
    detail = "an HTTP header that is damaged or does not end";
    return false;
  }
  const std::string_view body = block.substr(status_end + 1 + header_end);
  message.body.clear();
  const std::string transfer = lower(header_value(message.header, "transfer-encoding"));
  if (transfer.find("chunked") == transfer.npos || !join_chunks(body, message.body)) message.body = body;
  return undo_coding(lower(header_value(message.header, "content-encoding")), max_bytes, message.body,
                     detail);
}

}  // namespace strata::data
