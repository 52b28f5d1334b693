// WARC (ISO 28500) and WET files: the main text of each page. Each record declares its length; if that cannot
// be right, reading continues at the next "WARC/" at the start of a line.
#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "data/input/charset.h"
#include "data/input/http_message.h"
#include "data/input/record_readers.h"

namespace strata::data {
namespace {

constexpr std::string_view kMagic = "WARC/";
constexpr size_t kHeaderBytes = 1 << 16;

std::string media_type(std::string_view content_type) {
  std::string type(content_type.substr(0, content_type.find(';')));
  while (!type.empty() && type.back() == ' ') type.pop_back();
  std::transform(type.begin(), type.end(), type.begin(), [](unsigned char c) { return std::tolower(c); });
  return type;
}

bool looks_like_html(std::string_view body) {
  std::string head(body.substr(0, 1024));
  std::transform(head.begin(), head.end(), head.begin(), [](unsigned char c) { return std::tolower(c); });
  return head.find("<html") != head.npos || head.find("<!doctype html") != head.npos;
}

class WarcReader final : public RecordReader {
 public:
  WarcReader(InputWindow window, const std::string& name, const RecordOptions& options)
      : window_(std::move(window)), name_(name), max_bytes_(static_cast<size_t>(options.max_record_bytes)) {}

  ReadStatus next(Document& document, std::string& detail) override {
    for (;;) {
      document.clear();
      skip_line_ends();
      if (window_.data().empty()) return end(document, detail);
      ++record_;
      const Found found = find_record(detail);
      if (found == Found::kCutByDamage) {
        --record_;
        return end(document, detail);
      }
      ReadStatus status = ReadStatus::kBadRecord;
      if (found == Found::kRecord) {
        const std::string_view type = header_value(header_, "warc-type");
        if (type != "response" && type != "conversion") {
          window_.consume(header_size_ + block_size_);
          continue;
        }
        status = take_record(type, window_.data().substr(header_size_, block_size_), document, detail);
        window_.consume(header_size_ + block_size_);
      } else {
        document.id = clean(header_value(header_, "warc-record-id"));
        resynchronise();
      }
      place_record(document, name_, record_);
      return status;
    }
  }

  int64_t bytes_read() const override { return window_.stored_bytes(); }

 private:
  enum class Found { kRecord, kBad, kCutByDamage };

  ReadStatus end(Document& document, std::string& detail) {
    window_.consume(window_.data().size());
    if (window_.damage().empty() || damage_reported_) return ReadStatus::kEnd;
    damage_reported_ = true;
    detail = window_.damage();
    place_record(document, name_, record_ + 1);
    return ReadStatus::kDamaged;
  }

  bool has(size_t size) {
    while (window_.data().size() < size) {
      if (!window_.fill()) return false;
    }
    return true;
  }

  void skip_line_ends() {
    while (has(1) && (window_.data()[0] == '\r' || window_.data()[0] == '\n')) window_.consume(1);
  }

  // A record whose header and block are in the window, followed by another one or by the end.
  Found find_record(std::string& detail) {
    header_.clear();
    const auto bad = [&](std::string what) {
      if (window_.ended() && !window_.damage().empty()) return Found::kCutByDamage;
      detail = std::move(what);
      return Found::kBad;
    };
    has(kHeaderBytes);
    const std::string_view data = window_.data().substr(0, kHeaderBytes);
    if (!data.starts_with(kMagic)) return bad("no WARC record where one should start");
    const size_t line_end = data.find('\n');
    if (line_end == data.npos || !parse_header(data.substr(line_end + 1), header_, header_size_))
      return bad("a WARC header that is damaged or does not end");
    header_size_ += line_end + 1;
    const std::string_view length = header_value(header_, "content-length");
    const auto [last, error] = std::from_chars(length.data(), length.data() + length.size(), block_size_);
    if (error != std::errc() || last != length.data() + length.size())
      return bad(fmt::format("Content-Length \"{}\"; expected a number", clean(length.substr(0, 40))));
    if (block_size_ > max_bytes_)
      return bad(fmt::format("a record of {} bytes; at most {} are read", block_size_, max_bytes_));
    if (!has(header_size_ + block_size_))
      return bad(fmt::format("Content-Length {}, which goes beyond the end of the file", block_size_));
    if (!record_follows(header_size_ + block_size_))
      return bad(fmt::format("no record ends after Content-Length {}", block_size_));
    return Found::kRecord;
  }

  // A record ends with two line ends, which the last of a file may lack.
  bool record_follows(size_t place) {
    if (!has(place + 1)) return true;
    has(place + 4);
    const std::string_view rest = window_.data().substr(place);
    if (!rest.starts_with("\r\n\r\n") && !rest.starts_with("\n\n")) return false;
    for (; has(place + 1); ++place) {
      const char c = window_.data()[place];
      if (c == '\r' || c == '\n') continue;
      has(place + kMagic.size());
      return window_.data().substr(place).starts_with(kMagic);
    }
    return true;
  }

  // Moves to the next record, after the start of this one.
  void resynchronise() {
    for (;;) {
      const std::string_view data = window_.data();
      if (const size_t at = data.find("\nWARC/"); at != data.npos) {
        window_.consume(at + 1);
        return;
      }
      // The mark may be cut by the end of the window.
      const size_t kept = std::min(data.size(), kMagic.size());
      window_.consume(data.size() - kept);
      if (!window_.fill()) {
        window_.consume(window_.data().size());
        return;
      }
    }
  }

  // Header values are any bytes.
  static std::string clean(std::string_view value) {
    return simdjson::validate_utf8(value.data(), value.size()) ? std::string(value) : std::string();
  }

  ReadStatus take_record(std::string_view type, std::string_view block, Document& document,
                         std::string& detail) {
    document.id = clean(header_value(header_, "warc-record-id"));
    for (const auto& [header, field] : {std::pair{"warc-target-uri", "url"}, {"warc-date", "date"}}) {
      std::string value = clean(header_value(header_, header));
      if (value.size() >= 2 && value.front() == '<' && value.back() == '>')
        value = value.substr(1, value.size() - 2);
      if (!value.empty()) add_field(document, field, value);
    }
    std::string payload_type = media_type(header_value(header_, "warc-identified-payload-type"));
    if (type == "conversion") {
      const std::string_view content_type = header_value(header_, "content-type");
      if (payload_type.empty()) payload_type = media_type(content_type);
      if (payload_type.empty() || payload_type == "text/plain") {
        if (!decode_page(block, charset_of_content_type(content_type), document.text, detail))
          return ReadStatus::kNotText;
        return check_text(document, detail);
      }
      if (is_html(payload_type))
        return take_html(block, charset_of_content_type(content_type), document, detail);
      return other_type(payload_type, detail);
    }
    const size_t declared_http = header_value(header_, "content-type").find("application/http");
    if (declared_http == std::string_view::npos && !block.starts_with("HTTP/")) {
      detail = "a response that is not of HTTP";
      return ReadStatus::kNotText;
    }
    if (!parse_http(block, max_bytes_, http_, detail)) {
      return block.starts_with("HTTP/") && !http_.header.empty() ? ReadStatus::kNotText
                                                                 : ReadStatus::kBadRecord;
    }
    if (http_.status < 200 || http_.status > 299) {
      detail = fmt::format("HTTP status {}", http_.status);
      return ReadStatus::kHttpStatus;
    }
    const std::string_view content_type = header_value(http_.header, "content-type");
    if (payload_type.empty()) payload_type = media_type(content_type);
    if (payload_type.empty() && looks_like_html(http_.body)) payload_type = "text/html";
    if (!is_html(payload_type)) return other_type(payload_type, detail);
    return take_html(http_.body, charset_of_content_type(content_type), document, detail);
  }

  static bool is_html(const std::string& type) {
    return type == "text/html" || type == "application/xhtml+xml";
  }
  static ReadStatus other_type(const std::string& type, std::string& detail) {
    detail = type.empty() ? "content of no known type"
                          : fmt::format("content of type {}", clean(type.substr(0, 60)));
    return ReadStatus::kNotText;
  }

  InputWindow window_;
  std::string name_;
  size_t max_bytes_;
  int64_t record_ = 0;
  HeaderLines header_;
  size_t header_size_ = 0;  // with the empty line
  size_t block_size_ = 0;
  HttpMessage http_;
  bool damage_reported_ = false;
};

}  // namespace

std::unique_ptr<RecordReader> read_warc(InputWindow window, const std::string& name,
                                        const RecordOptions& options) {
  return std::make_unique<WarcReader>(std::move(window), name, options);
}

}  // namespace strata::data
