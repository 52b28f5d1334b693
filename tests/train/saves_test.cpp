// Saves that overlap the following steps.
#include <algorithm>
#include <sstream>

#include "base/json.h"
#include "fixtures/stopped_disk.h"
#include "fixtures/tiny_run.h"
#include "train/saves.h"

namespace strata::training {
namespace {

// The lines of metrics.jsonl in short: "3" is a step, "save 2" an event.
std::vector<std::string> lines_of(const Path& run) {
  std::vector<std::string> lines;
  std::istringstream text(read_file(run / "metrics.jsonl"));
  for (std::string line; std::getline(text, line);) {
    const auto json = parse_json<nlohmann::json>(line);
    lines.push_back(json.contains("event")
                        ? json.at("event").get<std::string>() + " " + dump_json(json.at("at_step"))
                        : dump_json(json.at("step")));
  }
  return lines;
}

// A save of 10 s and a failure in an hour, by equation 37 of Daly 2006.
TEST(SaveInterval, FollowsCostAndFailures) {
  EXPECT_EQ(save_interval(10, std::nullopt), 1000) << "1 % of the time";
  EXPECT_EQ(save_interval(0, 3600), 60) << "no cost is known";
  EXPECT_NEAR(save_interval(10, 3600), 261.7, 0.1);
  EXPECT_EQ(save_interval(10, 1e9), 1800);
  EXPECT_EQ(save_interval(10, 4), 4) << "a save takes longer than a failure is away";
}

// The disk blocks from the first write of step 2's save until step 3 is done.
TEST(Saves, AStepFinishesWhileTheDiskBlocks) {
  const TinyRun tiny;
  tiny.train({}, "plain");
  StoppedDisk disk;
  const Path metrics = tiny.folder() / "metrics.jsonl";
  const auto stop = [&] {
    if (std::filesystem::exists(metrics) && read_file(metrics).find("{\"step\":3,") != std::string::npos)
      disk.go();
    return false;
  };
  train_on_threads({.config = tiny.config(), .files = &disk}, 1, stop);
  expect_same_bits(bits_of(tiny.folder("plain"), 6), bits_of(tiny.folder(), 6));
  const auto lines = lines_of(tiny.folder());
  const auto place = [&](const std::string& line) {
    EXPECT_EQ(std::count(lines.begin(), lines.end(), line), 1) << line;
    return std::find(lines.begin(), lines.end(), line);
  };
  EXPECT_LT(place("3"), place("save 2"));
  EXPECT_LT(place("save 2"), place("save 4"));
  EXPECT_LT(place("6"), place("save 6"));
  EXPECT_LT(place("save 6"), place("finish 6"));
}

// If the budget only fits the arena, there is no memory for a copy: updates wait for the save.
TEST(Saves, WithoutMemoryForACopyTheUpdateWaits) {
  const TinyRun tiny;
  tiny.train({}, "copied");
  const MetricsLog log = metrics_of(tiny.folder("copied"));
  const auto arena = find_event(log, "start")->at("arena_bytes").get<int64_t>();
  tiny.train({"memory.budget=" + std::to_string(arena)}, "waiting");
  expect_same_bits(bits_of(tiny.folder("copied"), 6), bits_of(tiny.folder("waiting"), 6));
  for (const char* name : {"copied", "waiting"}) {
    int saves = 0;
    for (const auto& event : metrics_of(tiny.folder(name)).events) {
      if (event.at("event") != "save") continue;
      ++saves;
      EXPECT_GT(event.at("bytes").get<int64_t>(), 12 * 25000) << name;
      EXPECT_GT(event.at("seconds").get<double>(), 0) << name;
      EXPECT_GT(event.at("held_up").get<double>(), 0) << name;
    }
    EXPECT_EQ(saves, 3) << name;
  }
}

}  // namespace
}  // namespace strata::training
