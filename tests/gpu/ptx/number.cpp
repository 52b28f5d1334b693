#include "ptx/number.h"

#include <bit>
#include <charconv>

namespace strata::gpu_tests {
namespace {

template <typename T, typename... Base>
std::optional<T> whole(std::string_view text, Base... base) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base...);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<Number> parse_number(std::string_view text, bool negative) {
  const std::string_view prefix = text.substr(0, 2);
  if (prefix == "0f" || prefix == "0F") {
    const auto bits = whole<uint32_t>(text.substr(2), 16);
    if (!bits || text.size() != 10) return std::nullopt;
    return Number{Operand::Kind::kFloat32, static_cast<int64_t>(negative ? *bits ^ 0x8000'0000 : *bits)};
  }
  if (prefix == "0d" || prefix == "0D") {
    const auto bits = whole<uint64_t>(text.substr(2), 16);
    if (!bits || text.size() != 18) return std::nullopt;
    return Number{Operand::Kind::kFloat64,
                  static_cast<int64_t>(negative ? *bits ^ uint64_t{1} << 63 : *bits)};
  }
  if (text.find('.') != std::string_view::npos) {
    const auto value = whole<double>(text);
    if (!value) return std::nullopt;
    return Number{Operand::Kind::kFloat64, std::bit_cast<int64_t>(negative ? -*value : *value)};
  }
  int base = 10;
  if (text.size() > 1 && text[0] == '0') {
    const char letter = text[1];
    base = letter == 'x' || letter == 'X' ? 16 : letter == 'b' || letter == 'B' ? 2 : 8;
    text.remove_prefix(base == 8 ? 1 : 2);
  }
  if (text.ends_with('U')) text.remove_suffix(1);
  const auto value = whole<uint64_t>(text, base);
  if (!value) return std::nullopt;
  return Number{Operand::Kind::kInteger, static_cast<int64_t>(negative ? 0 - *value : *value)};
}

}  // namespace strata::gpu_tests
