#include "base/json.h"

namespace strata {
namespace {

template <typename J>
std::string dump(const J& value, int indent, InvalidUtf8 invalid) {
  using Handler = typename J::error_handler_t;
  return value.dump(indent, ' ', false,
                    invalid == InvalidUtf8::kReplace ? Handler::replace : Handler::strict);
}

}  // namespace

template <typename J>
J parse_json(std::string_view text) {
  return J::parse(text);
}

template <typename J>
J parse_json_or_discard(std::string_view text) {
  return J::parse(text, nullptr, /*allow_exceptions=*/false);
}

template nlohmann::json parse_json(std::string_view);
template nlohmann::ordered_json parse_json(std::string_view);
template nlohmann::json parse_json_or_discard(std::string_view);
template nlohmann::ordered_json parse_json_or_discard(std::string_view);

std::string dump_json(const nlohmann::json& value, int indent, InvalidUtf8 invalid) {
  return dump(value, indent, invalid);
}

std::string dump_json(const nlohmann::ordered_json& value, int indent, InvalidUtf8 invalid) {
  return dump(value, indent, invalid);
}

}  // namespace strata
