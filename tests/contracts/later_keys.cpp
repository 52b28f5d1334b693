// Keys of later versions: "not yet" for what cannot be honoured, and the defaults change nothing.
#include "config/keys.h"
#include "contracts/contract.h"
#include "contracts/lab.h"

namespace strata::contracts {
namespace {

struct Values {
  std::string other, usual;
};
const std::map<std::string, Values>& values() {
  static const std::map<std::string, Values> kValues{{"parallel.replicate", {"2", "1"}},
                                                     {"parallel.shard", {"2", "-1"}},
                                                     {"parallel.zero", {"1", "3"}},
                                                     {"parallel.tensor", {"2", "1"}},
                                                     {"parallel.sequence", {"false", "true"}},
                                                     {"parallel.context", {"2", "1"}},
                                                     {"parallel.pipeline", {"2", "1"}},
                                                     {"parallel.schedule", {"\"gpipe\"", "\"1f1b\""}},
                                                     {"parallel.virtual_stages", {"2", "1"}},
                                                     {"parallel.expert", {"2", "1"}},
                                                     {"parallel.backend", {"\"mpi\"", "\"auto\""}},
                                                     {"log.prometheus", {"\":9000\"", ""}},
                                                     {"log.alert_command", {"\"beep\"", ""}}};
  return kValues;
}

void not_yet(const std::string& key) {
  Lab lab;
  const Values& value = values().at(key);
  const std::string said = lab.refusal({key + "=" + value.other});
  EXPECT_TRUE(has(said, key) && has(said, "not yet")) << said;
  if (value.usual.empty()) return;
  EXPECT_TRUE(same(lab.run({key + "=" + value.usual}).weights(2), lab.run().weights(2)));
}

}  // namespace

Contracts later_keys() {
  Contracts rows;
  for (const auto& [key, value] : values()) rows.push_back({key, not_yet});
  return rows;
}

}  // namespace strata::contracts
