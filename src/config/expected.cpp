#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "config/keys.h"

namespace strata::config {
namespace {

// Short: "4096", "1e+15".
std::string number(double value) {
  const bool whole = std::abs(value) < 1e12 && value == std::floor(value);
  return whole ? fmt::format("{}", static_cast<int64_t>(value)) : fmt::format("{:g}", value);
}

std::string range_text(const ValueShape& shape) {
  if (shape.least && shape.most)
    return fmt::format(" from {} to {}", number(*shape.least), number(*shape.most));
  std::string out;
  const auto add = [&](const char* relation, const std::optional<double>& limit) {
    if (limit) out += fmt::format("{} {} {}", out.empty() ? "" : " and", relation, number(*limit));
  };
  add("of at least", shape.least);
  add("above", shape.above);
  add("below", shape.below);
  add("up to", shape.most);
  return out;
}

std::string base_text(const ValueShape& shape) {
  using Base = ValueShape::Base;
  switch (shape.base) {
    case Base::kBoolean:
      return "true or false";
    case Base::kInteger:
      return "a whole number" + range_text(shape);
    case Base::kNumber:
      return "a number" + range_text(shape);
    case Base::kString:
      return "a string";
    case Base::kTexts:
      return "a list of strings";
    case Base::kBytes:
      return "a size such as \"4GB\"";
    case Base::kDuration:
      return "a time such as \"10min\"";
    case Base::kInterval:
      return "\"200 steps\", \"10min\", \"500M tokens\" or \"never\"";
    case Base::kStageLayers:
      return "a list with the layers of each stage or a layout such as \"Et*3|t*4L\"";
    case Base::kToken:
      return "a token, or its id";
    case Base::kRanges:
      return "a list of numbers and pairs [first, last]";
    case Base::kRamp:
      return "a list of pairs such as [[0, 8], [\"1M\", 16]]";
    case Base::kWeights:
      return "a table of names with a number" + range_text(shape) + " each";
    case Base::kFree:
      return "a table";
    case Base::kAny:
      return "a value";
    case Base::kChoice:
      break;
  }
  std::string out;
  for (const std::string& choice : shape.choices)
    out += fmt::format("{}\"{}\"", out.empty() ? "" : ", ", choice);
  return shape.choices.size() > 1 ? "one of " + out : out;
}

}  // namespace

std::string expected_text(const ValueShape& shape) {
  return base_text(shape) + (shape.word.empty() ? "" : fmt::format(", or \"{}\"", shape.word));
}

}  // namespace strata::config
