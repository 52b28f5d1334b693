// What `strata launch` passes to the processes of a run.
#pragma once

#include <charconv>
#include <functional>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace strata::training {

// 1 for the first attempt, then 2, …
inline constexpr const char* kLaunchAttempt = "STRATA_LAUNCH_ATTEMPT";

// The attempt of `strata launch` that this process belongs to; nullopt: started without it. ConfigError if the
// variable is not such a number.
inline std::optional<int> launch_attempt(const std::function<const char*(const char*)>& variable) {
  const char* const text = variable(kLaunchAttempt);
  if (text == nullptr) return std::nullopt;
  const std::string_view view(text);
  int attempt = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), attempt);
  if (error != std::errc() || end != view.data() + view.size() || attempt < 1) {
    throw ConfigError("[launch] {} is '{}': expected the number of an attempt, from 1. Unset it",
                      kLaunchAttempt, view);
  }
  return attempt;
}

}  // namespace strata::training
