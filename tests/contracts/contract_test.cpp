// Checks that every key and every option has a contract, and that every contract holds.
#include "contracts/contract.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "cli/describe.h"
#include "config/keys.h"
#include "contracts/options.h"

namespace strata::contracts {
namespace {

Contracts joined(const std::vector<Contracts>& tables) {
  Contracts all;
  for (const Contracts& table : tables) all.insert(all.end(), table.begin(), table.end());
  return all;
}
Contracts key_contracts() {
  return joined({run_keys(), precision_keys(), parallel_keys(), shared_experts_keys(), later_keys(),
                 model_keys(), moe_keys(), tokenizer_keys(), data_keys(), mixture_keys(), training_keys(),
                 optimizer_keys(), keeping_keys(), recovery_keys(), corruption_keys()});
}

// The help of a verb describes the verb, its verbs and options, and has an example.
void help(const std::string& name) {
  const std::string verb = name == "--help" ? "" : name.substr(0, name.rfind(' '));
  const Desk desk;
  const Outcome shown = desk.strata(name);
  EXPECT_EQ(shown.code, 0);
  // Only the size: the parser lists the options that an option excludes in an order that varies.
  EXPECT_EQ(desk.strata(verb + " -h").out.size(), shown.out.size());
  EXPECT_TRUE(has(shown.out, "Example:\n  strata"));
  for (const cli::VerbText& text : cli::describe_commands()) {
    if (text.path != verb) continue;
    EXPECT_TRUE(has(shown.out, text.help));
    for (const std::string& below : text.verbs) EXPECT_TRUE(has(shown.out, "\n  " + below + " ")) << below;
    for (const cli::OptionText& option : text.options)
      for (const std::string& one : option.names) EXPECT_TRUE(has(shown.out, one)) << one;
  }
}
std::string with_verb(const cli::VerbText& verb, const std::string& option) {
  return verb.path.empty() ? option : verb.path + " " + option;
}
Contracts help_options() {
  Contracts rows;
  for (const cli::VerbText& verb : cli::describe_commands())
    rows.push_back({with_verb(verb, "--help"), help});
  return rows;
}
Contracts option_contracts() {
  return joined({help_options(), training_options(), check_options(), model_options(), checkpoint_options(),
                 tokenizer_options(), data_options(), steering_options(), launch_options(),
                 simulate_options(), planning_options()});
}

// Each of `wanted` must have exactly one row; there must be no other rows.
void expect_rows(const Contracts& rows, const std::vector<std::string>& wanted) {
  std::map<std::string, int> count;
  for (const Contract& row : rows) ++count[row.name];
  for (const std::string& name : wanted) {
    const int found = count[name];
    if (found != 1) ADD_FAILURE() << name << " has " << found << " rows, expected one in tests/contracts";
    count.erase(name);
  }
  for (const auto& other : count) ADD_FAILURE() << other.first << " has a row but does not exist";
}

std::string test_name(const testing::TestParamInfo<Contract>& info) {
  std::string name = info.param.name;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}

class Key : public testing::TestWithParam<Contract> {};
TEST_P(Key, HasItsDocumentedEffect) {
  GetParam().check(GetParam().name);
}
INSTANTIATE_TEST_SUITE_P(Contracts, Key, testing::ValuesIn(key_contracts()), test_name);

class Option : public testing::TestWithParam<Contract> {};
TEST_P(Option, HasItsDocumentedEffect) {
  GetParam().check(GetParam().name);
}
INSTANTIATE_TEST_SUITE_P(Contracts, Option, testing::ValuesIn(option_contracts()), test_name);

TEST(Contracts, CoverEveryOption) {
  std::vector<std::string> options;
  for (const cli::VerbText& verb : cli::describe_commands()) {
    for (const cli::OptionText& option : verb.options)
      options.push_back(with_verb(verb, option.names.back()));
  }
  expect_rows(option_contracts(), options);
}

TEST(Contracts, CoverEveryKey) {
  std::vector<std::string> keys;
  for (const config::TableSpec& table : config::run_tables()) {
    for (const config::KeySpec& key : table.keys) keys.push_back(table.name + "." + key.name);
  }
  expect_rows(key_contracts(), keys);
}

}  // namespace
}  // namespace strata::contracts
