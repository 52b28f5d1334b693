// The tables of contracts: every key and every option has a row, and every row holds.
#include "contracts/contract.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "cli/describe.h"
#include "config/keys.h"

namespace strata::contracts {
namespace {

Contracts joined(const std::vector<Contracts>& tables) {
  Contracts all;
  for (const Contracts& table : tables) all.insert(all.end(), table.begin(), table.end());
  return all;
}
Contracts key_contracts() {
  return joined({run_keys(), later_keys(), model_keys(), tokenizer_keys(), data_keys(), mixture_keys(),
                 training_keys(), optimizer_keys(), keeping_keys()});
}

// Each of `wanted` has one row, and no row is for anything else.
void expect_rows(const Contracts& rows, const std::vector<std::string>& wanted) {
  std::map<std::string, int> count;
  for (const Contract& row : rows) ++count[row.name];
  for (const std::string& name : wanted) {
    const int found = count[name];
    if (found != 1) ADD_FAILURE() << name << " has " << found << " rows, expected one in tests/contracts";
    count.erase(name);
  }
  for (const auto& other : count) ADD_FAILURE() << other.first << " has a row and does not exist";
}

std::string test_name(const testing::TestParamInfo<Contract>& info) {
  std::string name = info.param.name;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}

class Key : public testing::TestWithParam<Contract> {};
TEST_P(Key, DoesWhatItSays) {
  GetParam().check(GetParam().name);
}
INSTANTIATE_TEST_SUITE_P(Contracts, Key, testing::ValuesIn(key_contracts()), test_name);

TEST(Contracts, EveryKeyHasOne) {
  std::vector<std::string> keys;
  for (const config::TableSpec& table : config::run_tables()) {
    for (const config::KeySpec& key : table.keys) keys.push_back(table.name + "." + key.name);
  }
  expect_rows(key_contracts(), keys);
}

}  // namespace
}  // namespace strata::contracts
