#include "self_test/self_test.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "self_test/parts.h"

namespace strata::self_test {
namespace {

struct PartKind {
  const char* name;
  void (*run)(const DevicePtr&, const Options&, TimeLimit, Part&);
  double until;  // the share of the minutes after which it ends
  bool needed;   // to pass
};
constexpr PartKind kParts[] = {
    {"machine", test_machine, 0.02, false}, {"kernels", test_kernels, 0.20, false},
    {"ops", test_ops, 0.45, true},          {"curves", test_curves, 0.55, true},
    {"resume", test_resume, 0.65, true},    {"steps", test_steps, 0.92, false},
    {"rates", test_rates, 1.00, false},
};

}  // namespace

std::string_view name_of(State state) {
  switch (state) {
    case State::kPassed:
      return "passed";
    case State::kFailed:
      return "failed";
    case State::kCut:
      return "cut";
    case State::kNotRun:
      break;
  }
  return "not run";
}

bool Result::passed() const {
  return std::size(kParts) == parts.size() &&
         std::equal(
             parts.begin(), parts.end(), std::begin(kParts), [](const Part& part, const PartKind& kind) {
               if (kind.needed) return part.state == State::kPassed;
               // Only a comparison must be complete.
               return part.state != State::kFailed && (part.state != State::kCut || kind.run != test_kernels);
             });
}

Result test_device(const std::shared_ptr<device::Device>& device, const Options& options) {
  const double begin = monotonic_seconds();
  Result result{.device = device->spec().name, .parts = {}};
  std::string device_failed;  // the part in which it did
  for (const PartKind& kind : kParts) {
    Part part{.name = kind.name, .summary = {}, .failures = {}};
    const double started = monotonic_seconds();
    const TimeLimit limit(begin + 60 * options.minutes * kind.until);
    if (!device_failed.empty()) {
      part.summary = fmt::format("the device failed in part {}", device_failed);
    } else if (limit.over()) {
      part.summary = fmt::format("the {} minutes were used up", options.minutes);
    } else {
      part.state = State::kPassed;
      try {
        kind.run(device, options, limit, part);
      } catch (const WorldError& error) {
        device_failed = kind.name;
        part.failures.emplace_back(error.what());
      }
      if (!part.failures.empty()) part.state = State::kFailed;
    }
    part.seconds = monotonic_seconds() - started;
    options.finished(part);
    result.parts.push_back(std::move(part));
  }
  result.seconds = monotonic_seconds() - begin;
  return result;
}

bool Result::failed() const {
  return std::any_of(parts.begin(), parts.end(),
                     [](const Part& part) { return part.state == State::kFailed; });
}

nlohmann::ordered_json to_json(const Part& part) {
  return {{"part", part.name},         {"state", name_of(part.state)}, {"summary", part.summary},
          {"failures", part.failures}, {"facts", part.facts},          {"seconds", part.seconds}};
}

}  // namespace strata::self_test
