// Our code against libraries with the same function, interleaved, on one thread; docs/dependencies.md reports
// the results. Best of seven; the ratio is the library's speed over ours.
//   library_bench regex FILE    expressions on documents of 4 kB: Oniguruma
//   library_bench jsonl FILE    lines of {"text": …, "id": …, …}: simdjson's On-Demand and its DOM
#include <fmt/format.h>
#include <oniguruma.h>
#include <simdjson.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "data/pipeline/json_line.h"
#include "data/tokenizer/regex.h"

namespace {

using namespace strata;
using namespace strata::data;

struct Side {
  std::string name;
  std::function<size_t()> run;  // the number of results, which must be equal on all sides
};

void compare(const std::string& what, size_t bytes, const std::vector<Side>& sides) {
  std::vector<double> best(sides.size(), 1e9);
  std::vector<size_t> found(sides.size());
  for (int round = 0; round < 7; ++round) {
    for (size_t i = 0; i < sides.size(); ++i) {
      const auto begin = std::chrono::steady_clock::now();
      found[i] = sides[i].run();
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      best[i] = std::min(best[i], seconds.count());
    }
  }
  for (size_t i = 0; i < sides.size(); ++i) {
    fmt::print("{:<10} {:<12} {:>8.1f} MB/s {:>6.2f} {:>10} found\n", what, sides[i].name,
               1e-6 * static_cast<double>(bytes) / best[i], best[0] / best[i], found[i]);
  }
}

std::vector<std::string_view> documents(std::string_view text) {
  constexpr size_t kDocument = 4096;
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const size_t newline = text.find('\n', std::min(text.size() - 1, kDocument));
    out.push_back(text.substr(0, newline == text.npos ? text.size() : newline + 1));
    text.remove_prefix(out.back().size());
  }
  return out;
}

// Called as in Hugging Face tokenizers, with the library's own character classes.
class Oniguruma {
 public:
  explicit Oniguruma(const std::string& pattern) : region_(onig_region_new()) {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    onig_initialize(encodings, 1);
    const auto* begin = reinterpret_cast<const OnigUChar*>(pattern.data());
    if (onig_new(&code_, begin, begin + pattern.size(), ONIG_OPTION_NONE, ONIG_ENCODING_UTF8,
                 ONIG_SYNTAX_ONIGURUMA, nullptr) != ONIG_NORMAL) {
      throw ConfigError("[bench] Oniguruma refuses {}", pattern);
    }
  }
  ~Oniguruma() {
    onig_region_free(region_, 1);
    onig_free(code_);
  }
  Oniguruma(const Oniguruma&) = delete;
  Oniguruma& operator=(const Oniguruma&) = delete;

  size_t count(std::string_view text) const {
    const auto* const begin = reinterpret_cast<const OnigUChar*>(text.data());
    const OnigUChar* const end = begin + text.size();
    size_t matches = 0;
    for (const OnigUChar* from = begin; from < end; ++matches) {
      if (onig_search(code_, begin, end, from, end, region_, ONIG_OPTION_NONE) < 0) break;
      from = begin + region_->end[0];
    }
    return matches;
  }

 private:
  regex_t* code_ = nullptr;
  OnigRegion* region_;
};

size_t count(const Regex& regex, std::string_view text) {
  size_t matches = 0;
  size_t begin = 0;
  size_t end = 0;
  strata::data::Regex::Budget budget(text);
  while (end < text.size() && regex.find(text, end, begin, end, budget)) ++matches;
  return matches;
}

void regex(std::string_view text) {
  const std::pair<const char*, const char*> patterns[] = {
      {"gpt2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
      {"o200k",
       R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
       R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
       R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
      {"deepseek", R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
                   R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
      {"digits", R"(\p{N}{1,3})"},
      {"words", R"(\w+|[^\w\s]+)"}};
  const auto texts = documents(text);
  for (const auto& [name, pattern] : patterns) {
    const Regex ours(pattern);
    const Oniguruma library(pattern);
    const auto all = [&](const auto& one) {
      size_t matches = 0;
      for (const std::string_view document : texts) matches += one(document);
      return matches;
    };
    compare(name, text.size(),
            {{"ours", [&] { return all([&](std::string_view document) { return count(ours, document); }); }},
             {"Oniguruma",
              [&] { return all([&](std::string_view document) { return library.count(document); }); }}});
  }
}

std::string_view raw_json(simdjson::ondemand::value value) {
  const simdjson::ondemand::json_type type = value.type();
  if (type == simdjson::ondemand::json_type::object) return value.get_object().value().raw_json();
  if (type == simdjson::ondemand::json_type::array) return value.get_array().value().raw_json();
  return value.raw_json_token();
}

// As On-Demand works by default: unread values are not validated.
size_t on_demand(simdjson::ondemand::parser& parser, std::string_view line, Document& document) {
  const simdjson::padded_string_view padded(line.data(), line.size(),
                                            line.size() + simdjson::SIMDJSON_PADDING);
  simdjson::ondemand::document root = parser.iterate(padded);
  document.clear();
  for (auto member : root.get_object()) {
    const char* const begin = member.key().value().raw() - 1;
    const std::string_view key = member.unescaped_key();
    simdjson::ondemand::value value = member.value();
    if (key == "text") {
      document.text = std::string_view(value.get_string());
    } else if (key == "id") {
      document.id = value.raw_json_token();
    } else {
      const std::string_view raw = raw_json(value);
      document.fields.append(begin, raw.data() + raw.size());
    }
  }
  return document.text.size();
}

// Only the text: the other fields would have to be serialized again.
size_t dom(simdjson::dom::parser& parser, std::string_view line, Document& document) {
  const simdjson::dom::element root = parser.parse(line.data(), line.size(), false);
  document.text = std::string_view(root["text"]);
  return document.text.size();
}

void jsonl(std::string_view file) {
  std::string padded(file);
  padded.reserve(file.size() + simdjson::SIMDJSON_PADDING);
  std::vector<std::string_view> lines;
  for (std::string_view left = padded; !left.empty();) {
    const size_t newline = left.find('\n');
    if (newline != 0) lines.push_back(left.substr(0, newline));
    left.remove_prefix(newline == left.npos ? left.size() : newline + 1);
  }
  Document document;
  std::string detail;
  JsonLine ours("text", "id");
  simdjson::ondemand::parser on_demand_parser;
  simdjson::dom::parser dom_parser;
  const auto all = [&](const auto& one) {
    size_t bytes = 0;
    for (const std::string_view line : lines) bytes += one(line);
    return bytes;
  };
  compare(
      "jsonl", file.size(),
      {{"ours",
        [&] {
          return all([&](std::string_view line) {
            ours.parse(line, document, detail);
            return simdjson::validate_utf8(line.data(), line.size()) ? document.text.size() : 0;
          });
        }},
       {"On-Demand",
        [&] {
          return all([&](std::string_view line) { return on_demand(on_demand_parser, line, document); });
        }},
       {"DOM", [&] { return all([&](std::string_view line) { return dom(dom_parser, line, document); }); }}});
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string what = argc == 3 ? argv[1] : "";
    if (what != "regex" && what != "jsonl") throw ConfigError("usage: library_bench regex|jsonl FILE");
    const MappedFile file(argv[2]);
    what == "regex" ? regex(file.text()) : jsonl(file.text());
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return exit_code(error.kind());
  } catch (const simdjson::simdjson_error& error) {
    fmt::print(stderr, "[bench] simdjson: {}\n", error.what());
    return 3;
  }
  return 0;
}
