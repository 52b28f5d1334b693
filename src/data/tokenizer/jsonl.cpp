#include "data/tokenizer/jsonl.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <vector>

#include "base/error.h"
#include "base/function_ref.h"
#include "base/parallel.h"
#include "base/text.h"
#include "data/pipeline/json_line.h"

namespace strata::data {
namespace {

constexpr size_t kBatchBytes = size_t{8} << 20;
constexpr int64_t kLinesAtOnce = 64;  // of one task

// The origin of a line, for messages.
struct LineOrigin {
  const std::string& source;
  int64_t number;
};

[[noreturn]] void bad_line(const LineOrigin& line, std::string_view found, std::string_view expected) {
  throw DataError("[tokenizer] {}:{}: found {}, expected {}", line.source, line.number, found, expected);
}

simdjson::dom::element parse_line(simdjson::dom::parser& parser, std::string_view text, std::string_view key,
                                  const LineOrigin& line, std::string_view expected) {
  if (text.find_first_not_of(" \t\r") == text.npos) bad_line(line, "a blank line", expected);
  simdjson::dom::element root;
  if (const auto error = parser.parse(text.data(), text.size()).get(root)) {
    bad_line(line, fmt::format("invalid JSON ({})", simdjson::error_message(error)), expected);
  }
  simdjson::dom::object object;
  if (root.get(object) != simdjson::SUCCESS) bad_line(line, "JSON that is not an object", expected);
  simdjson::dom::element value;
  if (object.at_key(key).get(value) != simdjson::SUCCESS) {
    bad_line(line, fmt::format("an object without \"{}\"", key), expected);
  }
  return value;
}

// The parsers for the lines of one task. They may read the bytes after a line (JsonLine::kPadding).
struct LineParsers {
  simdjson::dom::parser values;
  JsonLine text{"text", ""};
  Document document = {};
};
using LineFunction = FunctionRef<std::string(LineParsers&, std::string_view, const LineOrigin&)>;

int64_t map_lines(std::istream& in, std::ostream& out, const std::string& source, LineFunction convert) {
  int64_t done = 0;
  std::vector<std::string> lines;
  std::vector<size_t> sizes;
  std::vector<std::string> results;
  for (bool more = true; more;) {
    lines.clear();
    sizes.clear();
    size_t bytes = 0;
    std::string line;
    while (bytes < kBatchBytes && (more = static_cast<bool>(std::getline(in, line)))) {
      bytes += line.size() + 64;
      sizes.push_back(line.size());
      lines.push_back(std::move(line.append(JsonLine::kPadding, '\0')));
    }
    results.assign(lines.size(), {});
    parallel_ranges(static_cast<int64_t>(lines.size()), kLinesAtOnce, [&](int64_t begin, int64_t end) {
      LineParsers parsers;
      for (int64_t i = begin; i < end; ++i) {
        const auto at = static_cast<size_t>(i);
        results[at] =
            convert(parsers, std::string_view(lines[at]).substr(0, sizes[at]), {source, done + i + 1});
      }
    });
    for (const std::string& result : results)
      out.write(result.data(), static_cast<std::streamsize>(result.size())).put('\n');
    if (!out) throw WorldError("[tokenizer] cannot write the output for {}; is the disk full?", source);
    done += static_cast<int64_t>(lines.size());
  }
  if (in.bad()) throw WorldError("[tokenizer] cannot read {} after line {}", source, done);
  out.flush();
  return done;
}

}  // namespace

std::string ids_to_json(std::span<const int32_t> ids) {
  std::string out = "{\"ids\":[";
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    const fmt::format_int digits(ids[i]);
    out.append(digits.data(), digits.size());
  }
  return out += "]}";
}

std::string text_to_json(std::string_view text) {
  std::string out = "{\"text\":";
  append_json_string(out, text);
  return out += '}';
}

int64_t encode_jsonl(const Tokenizer& tokenizer, std::istream& in, std::ostream& out,
                     const EncodeOptions& options, const std::string& source) {
  constexpr std::string_view kExpected = "a JSON object with a string under \"text\"";
  return map_lines(in, out, source, [&](LineParsers& parsers, std::string_view text, const LineOrigin& line) {
    if (JsonLine::is_blank(text)) bad_line(line, "a blank line", kExpected);
    std::string detail;
    const ReadStatus status = parsers.text.read(text, parsers.document, detail);
    if (status == ReadStatus::kEmptyText) return ids_to_json(tokenizer.encode("", options));
    if (status == ReadStatus::kNoText) bad_line(line, "an object without \"text\"", kExpected);
    if (status == ReadStatus::kTextNotAString || status == ReadStatus::kNullText)
      bad_line(line, "a \"text\" that is not a string", kExpected);
    if (status != ReadStatus::kDocument) bad_line(line, fmt::format("invalid JSON ({})", detail), kExpected);
    return ids_to_json(tokenizer.encode(parsers.document.text, options));
  });
}

int64_t decode_jsonl(const Tokenizer& tokenizer, std::istream& in, std::ostream& out,
                     const DecodeOptions& options, const std::string& source) {
  constexpr std::string_view kExpected = "a JSON object with a list of token ids under \"ids\"";
  return map_lines(in, out, source, [&](LineParsers& parsers, std::string_view text, const LineOrigin& line) {
    simdjson::dom::array values;
    if (parse_line(parsers.values, text, "ids", line, kExpected).get(values) != simdjson::SUCCESS) {
      bad_line(line, "\"ids\" that are not a list", kExpected);
    }
    std::vector<int32_t> ids;
    for (const simdjson::dom::element value : values) {
      int64_t id = 0;
      if (value.get(id) != simdjson::SUCCESS || id < 0 || id >= tokenizer.vocab_size()) {
        bad_line(line, fmt::format("the id {}", simdjson::minify(value)),
                 fmt::format("ids from 0 to {}", tokenizer.vocab_size() - 1));
      }
      ids.push_back(static_cast<int32_t>(id));
    }
    return text_to_json(tokenizer.decode_text(ids, options));
  });
}

}  // namespace strata::data
