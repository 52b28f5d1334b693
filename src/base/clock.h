// Time for measuring (monotonic) and for people (UTC).
#pragma once

#include <string>

namespace strata {

double monotonic_seconds();
double unix_seconds();
// Since this process was started, loading the program included; 10 ms fine. 0: not known.
double process_seconds();
std::string utc_timestamp();                 // 2026-01-31T12:34:56Z
std::string human_duration(double seconds);  // "2:13:40", "45 s", "3.1 d"
std::string human_bytes(double bytes);       // "1.2 GB" (powers of 1000)
std::string human_count(double count);       // "29.4M"

}  // namespace strata
