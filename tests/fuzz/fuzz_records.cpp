// Any bytes as an input file of one format (STRATA_FUZZ_READER), plain or compressed: every record has a
// status, an id and a line, and every document is valid UTF-8 with fields that are valid JSON.
#include <simdjson.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "data/input/record_readers.h"

namespace {

using namespace strata::data;

class Bytes final : public ByteSource {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), left_(size) {}
  size_t read(void* out, size_t size) override {
    const size_t count = std::min(size, left_);
    std::memcpy(out, data_, count);
    data_ += count;
    left_ -= count;
    return count;
  }
  const std::string& name() const override { return name_; }

 private:
  const uint8_t* data_;
  size_t left_;
  std::string name_ = "input";
};

void expect(bool holds) {
  if (!holds) std::abort();
}

std::unique_ptr<RecordReader> read_jsonl_whole(InputWindow window, const std::string& name,
                                               const RecordOptions& options) {
  return read_jsonl(std::move(window), name, options, {});
}
std::unique_ptr<RecordReader> read_comma(InputWindow window, const std::string& name,
                                         const RecordOptions& options) {
  return read_csv(std::move(window), name, options, ',');
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  RecordOptions options;
  options.max_record_bytes = 1 << 20;
  const auto reader =
      STRATA_FUZZ_READER(InputWindow(ByteStream(std::make_unique<Bytes>(data, size))), "input", options);
  Document document;
  std::string detail;
  simdjson::dom::parser parser;
  for (;;) {
    detail.clear();
    const ReadStatus status = reader->next(document, detail);
    if (status == ReadStatus::kEnd) break;
    expect(!document.id.empty() && document.line > 0);
    expect(simdjson::validate_utf8(document.id.data(), document.id.size()));
    if (status != ReadStatus::kDocument) {
      expect(!detail.empty() && !read_reason(status).empty());
      continue;
    }
    expect(!document.text.empty() && simdjson::validate_utf8(document.text.data(), document.text.size()));
    simdjson::dom::element fields;
    const auto error = parser.parse("{" + document.fields + "}").get(fields);
    // Numbers beyond double and lone surrogates are valid JSON, and nesting may be as deep as Strata allows.
    expect(error == simdjson::SUCCESS || error == simdjson::NUMBER_ERROR || error == simdjson::STRING_ERROR ||
           error == simdjson::DEPTH_ERROR);
  }
  expect(reader->next(document, detail) == ReadStatus::kEnd);
  return 0;
}
