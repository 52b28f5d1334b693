// The JSON of `strata doctor` as a cluster of one host.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "hardware/cluster_spec.h"

namespace strata::planning {

// A collective of two ranks of the host; `name` as in comm/measure.h, `bytes` of the whole value.
struct MeasuredCollective {
  std::string name;
  int64_t bytes = 0;
  double seconds = 0;
};

// The entry "cluster" of that JSON: {"by_ranks": [DEVICE, …], "collectives": [{"collective", "bytes", "seconds",
// "predicted_s"}, …]}. `by_ranks`: as hardware::ClusterSpec::measured; not empty.
nlohmann::ordered_json doctor_cluster(const std::vector<hardware::DeviceSpec>& by_ranks,
                                      const std::vector<MeasuredCollective>& collectives);

// Reads the whole JSON of strata doctor. Without "cluster" (older versions, --quick) one rank has the host. ConfigError
// that names `file` and the field.
hardware::ClusterSpec cluster_of_doctor(std::string_view json, const std::string& file);

}  // namespace strata::planning
