// Counts as people write them on a command line: "7B", "1.4T", "5.76e23", "300 PF-days".
#pragma once

#include <string_view>

namespace strata::planning {

// Parameters or tokens: a number, with or without an exponent, and optionally k, M, B (or G), T or Q (1e15).
// ConfigError that names `option` unless it is above 0 and finite.
double parse_count(std::string_view option, std::string_view text);
// FLOPs: a number, or with the unit TFLOP, PFLOP, EFLOP, ZFLOP, YFLOP or PF-days (PF-day).
double parse_flops(std::string_view option, std::string_view text);
// A number from `least` to `most`; `expected` describes it in the message.
double parse_number(std::string_view option, std::string_view text, double least, double most,
                    std::string_view expected);

}  // namespace strata::planning
