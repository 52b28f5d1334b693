// Contracts of [[data.source]], [[data.phase]] and data.temperature, checked by the windows that a run reads.
#include <algorithm>
#include <cmath>

#include "contracts/contract.h"
#include "contracts/windows.h"

namespace strata::contracts {
namespace {

using Names = std::vector<std::string>;

// Two sources, with six windows and with two; `of_a` and `of_b` are further keys of each.
std::string sources(const Lab& lab, const std::string& of_a = "", const std::string& of_b = "") {
  return "[[data.source]]\nname = \"first\"\npath = " + lab.list({"a.bin"}) + "\n" + of_a +
         "\n[[data.source]]\nname = \"second\"\npath = " + lab.list({"b.bin"}) + "\n" + of_b + "\n";
}
int64_t count(const Names& seen, char file) {
  return std::count_if(seen.begin(), seen.end(), [&](const std::string& name) { return name[0] == file; });
}

struct Mixture {
  Lab lab;
  Windows windows{lab, {{"a", 6}, {"b", 2}}};
  Names seen(int steps, const std::string& tables, const Sets& sets = {}) {
    return windows.seen(Sets{"training.steps=" + std::to_string(steps), "data.train=[]"} + sets, tables);
  }
};

// Weights are fractions of the samples; each source keeps its order.
void weight(const std::string&) {
  Mixture mixture;
  const Names seen = mixture.seen(8, sources(mixture.lab, "weight = 3", "weight = 1"));
  EXPECT_EQ(count(seen, 'a'), 6);
  EXPECT_EQ(count(seen, 'b'), 2);
  Names of_a;
  for (const std::string& name : seen) {
    if (name[0] == 'a') of_a.push_back(name);
  }
  EXPECT_EQ(of_a, (Names{"a0", "a1", "a2", "a3", "a4", "a5"}));
  EXPECT_EQ(count(mixture.seen(8, sources(mixture.lab, "weight = 0", "weight = 1")), 'a'), 0);
  EXPECT_TRUE(has(mixture.lab.refusal({"data.train=[]"}, sources(mixture.lab, "weight = 0", "weight = 0")),
                  "weight"));
}

void path(const std::string&) {
  Mixture mixture;
  const std::string of_b = "[[data.source]]\nname = \"one\"\npath = " + mixture.lab.list({"b.bin"}) + "\n";
  EXPECT_EQ(mixture.seen(3, of_b), (Names{"b0", "b1", "b0"}));
  EXPECT_TRUE(has(mixture.lab.refusal({"data.train=[]"}, "[[data.source]]\nname = \"one\"\n"), "path"));
}

// One source ends after one epoch; then only the other remains.
void max_epochs(const std::string&) {
  Mixture mixture;
  const Names seen = mixture.seen(10, sources(mixture.lab, "", "max_epochs = 1"));
  EXPECT_EQ(std::count(seen.begin(), seen.end(), "b0"), 1);
  EXPECT_EQ(std::count(seen.begin(), seen.end(), "b1"), 1);
  EXPECT_EQ(count(seen, 'a'), 8);
  EXPECT_EQ(count(mixture.seen(10, sources(mixture.lab)), 'b'), 5);
  // The run ends when all sources have ended.
  EXPECT_EQ(std::ssize(mixture.seen(20, sources(mixture.lab, "max_epochs = 2", "max_epochs = 1"))), 14);
}

void max_tokens(const std::string&) {
  Mixture mixture;
  const Names seen = mixture.seen(10, sources(mixture.lab, "max_tokens = 48", ""));
  EXPECT_EQ(count(seen, 'a'), 3) << "windows of 16";
  EXPECT_EQ(count(seen, 'b'), 7);
}

void phases(const std::string&) {
  Mixture mixture;
  const std::string tables = sources(mixture.lab) +
                             "[[data.phase]]\nfrom_step = 3\nweights = { second = 1.0 }\n"
                             "[[data.phase]]\nfrom_step = 6\nweights = { first = 0.75, second = 0.25 }\n";
  const Names seen = mixture.seen(9, tables);
  EXPECT_EQ(count({seen.begin(), seen.begin() + 2}, 'a'), 1);
  EXPECT_EQ(count({seen.begin() + 2, seen.begin() + 5}, 'a'), 0);
  EXPECT_EQ(count({seen.begin() + 5, seen.end()}, 'a'), 3);
}

void name(const std::string&) {
  phases("");
  Mixture mixture;
  const std::string unknown = "[[data.phase]]\nfrom_step = 2\nweights = { third = 1.0 }\n";
  EXPECT_TRUE(has(mixture.lab.refusal({"data.train=[]"}, sources(mixture.lab) + unknown), "first, second"));
  const Seen run = mixture.lab.run(mixture.windows.sets() + Sets{"data.train=[]"}, sources(mixture.lab));
  EXPECT_TRUE(has(read_file(run.folder / "index.html"), "second 50.0 %"));
}

// Weights are tokens^(1/temperature) times the given weights.
void temperature(const std::string&) {
  Mixture mixture;
  const double a = 6 * 16 + 1, b = 2 * 16 + 1;
  for (const double value : {1.0, 2.0, 10.0}) {
    for (const double factor : {1.0, 2.0}) {
      const double of_a = std::pow(a, 1 / value), of_b = factor * std::pow(b, 1 / value);
      const Names seen = mixture.seen(60, sources(mixture.lab, "", "weight = " + std::to_string(factor)),
                                      {"data.temperature=" + std::to_string(value)});
      EXPECT_NEAR(static_cast<double>(count(seen, 'a')), 60 * of_a / (of_a + of_b), 1.01) << value << factor;
    }
  }
}

}  // namespace

Contracts mixture_keys() {
  return {{"data.source.name", name},
          {"data.source.path", path},
          {"data.source.weight", weight},
          {"data.source.max_epochs", max_epochs},
          {"data.source.max_tokens", max_tokens},
          {"data.phase.from_step", phases},
          {"data.phase.weights", phases},
          {"data.temperature", temperature}};
}

}  // namespace strata::contracts
