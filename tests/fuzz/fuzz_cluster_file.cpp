// Any bytes as a cluster file: rejected with a ConfigError, or a cluster with values that plans can use.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "plan/cost.h"
#include "plan/doctor_file.h"

namespace {

// The JSON of strata doctor: rejected, or a host whose exchanges take time.
void read_doctor_file(std::string_view text) {
  using namespace strata;
  const hardware::ClusterSpec cluster = planning::cluster_of_doctor(text, "input");
  STRATA_CHECK(!cluster.measured.empty(), "no device");
  for (const int64_t ranks : {1, 2, 1000}) {
    const hardware::Machine machine(cluster, ranks);
    const double seconds = exchange_seconds(machine.links, hardware::Exchange::kAllReduce, {.ranks = 2}, 1e6);
    STRATA_CHECK(!std::isnan(seconds) && seconds > 0, "an exchange of {} s", seconds);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    if (text.starts_with('{')) {
      read_doctor_file(text);
      return 0;
    }
    const auto catalogue = planning::parse_catalogue(text, "input");
    const auto& cluster = planning::find_cluster(catalogue, catalogue.used_cluster);
    STRATA_CHECK(cluster.chip.memory.value > 0, "no memory");
    STRATA_CHECK(!cluster.links.empty() && cluster.links.back().size == planning::LinkLevel::kAll,
                 "not connected");
    for (const int64_t ranks : {2, 8, 4096}) {
      const double seconds =
          hardware::exchange_seconds(cluster.links, hardware::Exchange::kAllReduce, {.ranks = ranks}, 1e9);
      STRATA_CHECK(std::isfinite(seconds) && seconds > 0, "a collective of {} s", seconds);
    }
    const auto again = planning::parse_catalogue(planning::cluster_file(cluster), "again");
    const auto& copy = planning::find_cluster(again, again.used_cluster);
    STRATA_CHECK(copy.links.size() == cluster.links.size() && copy.chip.memory == cluster.chip.memory,
                 "a different cluster");
    for (const auto& price : catalogue.prices)
      STRATA_CHECK(price.low >= 0 && price.low <= price.high, "a price");
    if (cluster.failures_per_node_day.value > 0)
      STRATA_CHECK(planning::mttf_of(cluster, 1024).seconds() > 0, "no time between failures");
    const auto storage = planning::storage_of(cluster, {.params = 1e9, .devices = 64});
    STRATA_CHECK(!std::isnan(storage.save_seconds), "no time to save");
  } catch (const ConfigError&) {
    // not a valid cluster
  }
  return 0;
}
