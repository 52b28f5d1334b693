// nlohmann's JSON with its parser and its writer compiled once, in json.cpp: a file that instantiates them
// takes a second more to compile. J is nlohmann::json, whose keys are sorted, or nlohmann::ordered_json,
// which keeps their order.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace strata {

// The value that the whole text describes. Throws J::parse_error with the byte offset if the text is not JSON, or is
// nested deeper than 2,000 levels.
template <typename J>
J parse_json(std::string_view text);

// Like parse_json(), but without an exception: the value of a text that is not JSON is_discarded().
template <typename J>
J parse_json_or_discard(std::string_view text);

// `text` with the numbers that Python's json writes and JSON lacks (Infinity, -Infinity, NaN) as transformers 5 writes
// them: {"__float__": "Infinity"}.
std::string with_float_objects(std::string_view text);

// What becomes of strings that are not UTF-8.
enum class InvalidUtf8 {
  kThrow,    // J::type_error
  kReplace,  // U+FFFD for each invalid byte
};

// The text of a value: on one line, or with `indent` spaces a level if that is not negative.
std::string dump_json(const nlohmann::json& value, int indent = -1,
                      InvalidUtf8 invalid = InvalidUtf8::kThrow);
std::string dump_json(const nlohmann::ordered_json& value, int indent = -1,
                      InvalidUtf8 invalid = InvalidUtf8::kThrow);

extern template nlohmann::json parse_json(std::string_view);
extern template nlohmann::ordered_json parse_json(std::string_view);
extern template nlohmann::json parse_json_or_discard(std::string_view);
extern template nlohmann::ordered_json parse_json_or_discard(std::string_view);

}  // namespace strata
