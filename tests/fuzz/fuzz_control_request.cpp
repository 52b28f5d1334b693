// Any bytes as a request to a running run: refused with a ConfigError, or a request that round-trips and
// whose settings the configuration takes or refuses.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "train/control.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;
  try {
    const auto request = training::parse_request({reinterpret_cast<const char*>(data), size});
    const auto again = training::parse_request(training::to_json(request));
    STRATA_CHECK(again.id == request.id && again.by == request.by && again.what == request.what &&
                     again.settings == request.settings,
                 "a different request");
    config::with_settings(config::RunConfig(), request.settings);
  } catch (const ConfigError&) {
    // not a valid request
  }
  return 0;
}
