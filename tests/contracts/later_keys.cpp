// Contracts of keys of later versions: unsupported values are rejected with "not yet", and the defaults have
// no effect.
#include "config/keys.h"
#include "contracts/contract.h"
#include "contracts/lab.h"

namespace strata::contracts {
namespace {

struct Values {
  std::string other, usual;
};
const std::map<std::string, Values>& values() {
  static const std::map<std::string, Values> kValues{{"log.histograms", {"\"1 steps\"", "\"100 steps\""}},
                                                     {"log.prometheus", {"\":9000\"", ""}}};
  return kValues;
}

void not_yet(const std::string& key) {
  Lab lab;
  const Values& value = values().at(key);
  const std::string message = lab.refusal({key + "=" + value.other});
  EXPECT_TRUE(has(message, key) && has(message, "not yet")) << message;
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
