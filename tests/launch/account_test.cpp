// The ledger: what an attempt did, from the files of the run.
#include "launch/account.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/json.h"
#include "fixtures/scratch_folder.h"
#include "train/copy_files.h"

namespace strata::launch {
namespace {

using observe::AttemptFrom;
using observe::LedgerAttempt;
using Line = nlohmann::ordered_json;

std::string text_of(const std::vector<Line>& lines) {
  std::string text;
  for (const Line& line : lines) text += dump_json(line) + "\n";
  return text;
}

Line step(int64_t number, double time, double milliseconds = 500) {
  return {{"step", number}, {"time", time}, {"step_ms", milliseconds}};
}

Line event(const char* name, int64_t at_step, double time, const char* from = nullptr) {
  Line line{{"event", name}, {"at_step", at_step}, {"time", time}};
  if (from != nullptr) line["from"] = from;
  return line;
}

LedgerAttempt account(double began, const std::vector<Line>& metrics, const std::vector<Line>& discarded = {},
                      std::optional<FailedBefore> before = std::nullopt) {
  LedgerAttempt out{.attempt = 2, .ranks = 4, .began = began, .ended = began + 100, .exit = 137};
  const std::string lines = text_of(metrics), undone = text_of(discarded);
  add_account({.metrics = lines, .discarded = undone}, before, out);
  return out;
}

TEST(Account, OfAFirstAttempt) {
  const LedgerAttempt out = account(
      100, {event("start", 0, 103), step(1, 105), step(2, 105.5), event("save", 2, 106), step(3, 106.5)});
  EXPECT_EQ(out.from, AttemptFrom::kStart);
  EXPECT_EQ(out.from_step, 0);
  EXPECT_EQ(out.to_step, 3);
  EXPECT_DOUBLE_EQ(out.productive_s, 1.5);
  EXPECT_FALSE(out.recovery_s.has_value());
  EXPECT_EQ(out.lost_steps, 0);
}

TEST(Account, OfARestartCountsTheStepsThatItUndid) {
  const std::vector<Line> metrics = {event("start", 0, 3),    step(1, 5),   step(2, 6),
                                     event("resume", 2, 103), step(3, 104), step(4, 104.5)};
  const std::vector<Line> discarded = {step(3, 7), step(4, 8, 700), step(5, 9)};
  const LedgerAttempt out = account(100, metrics, discarded, FailedBefore{.last_sign = 98.5});
  EXPECT_EQ(out.from, AttemptFrom::kDisk);
  EXPECT_EQ(out.from_step, 2);
  EXPECT_EQ(out.to_step, 4);
  EXPECT_DOUBLE_EQ(out.productive_s, 1);
  EXPECT_DOUBLE_EQ(*out.recovery_s, 5.5);
  EXPECT_EQ(out.lost_steps, 3);
  EXPECT_DOUBLE_EQ(out.lost_s, 1.7);
  EXPECT_EQ(account(100, {event("resume", 7, 101, "copies"), step(8, 102)}).from, AttemptFrom::kCopies);
}

TEST(Account, ARollbackOfTheAttemptItselfIsNotARestartsLoss) {
  const std::vector<Line> metrics = {event("resume", 2, 103), step(3, 106)};
  const std::vector<Line> discarded = {step(3, 104), step(4, 105)};
  const LedgerAttempt out = account(100, metrics, discarded, FailedBefore{.last_sign = 99});
  EXPECT_EQ(out.lost_steps, 0);
  EXPECT_DOUBLE_EQ(*out.recovery_s, 5) << "the first step was made, although it was undone";
  EXPECT_EQ(out.to_step, 3);
}

TEST(Account, OfAnAttemptThatDiedBeforeItsFirstLine) {
  const LedgerAttempt out =
      account(100, {event("start", 0, 3), step(1, 5)}, {}, FailedBefore{.last_sign = 99});
  EXPECT_FALSE(out.from || out.from_step || out.to_step || out.recovery_s);
  EXPECT_EQ(out.productive_s, 0);
}

TEST(Account, ReadsOnlyTheEndOfAFile) {
  const ScratchFolder folder;
  std::string text;
  for (int i = 0; i < 20000; ++i) text += dump_json(step(i + 1, i)) + "\n";
  put_file(folder / "metrics.jsonl", text);
  const std::string end = lines_since(folder / "metrics.jsonl", 19990);
  EXPECT_LT(end.size(), text.size() / 2);
  EXPECT_TRUE(text.ends_with(end));
  EXPECT_EQ(end.find("{\"step\":"), 0u);
  EXPECT_EQ(lines_since(folder / "metrics.jsonl", -1), text);
  EXPECT_EQ(lines_since(folder / "none.jsonl", 0), "");
  EXPECT_EQ(last_line_time(end, 19990), 19999);
  EXPECT_EQ(last_line_time(end, 20001), std::nullopt);
}

TEST(Account, FindsTheNewestSavedStep) {
  const ScratchFolder folder;
  const Path memory = folder / "memory";
  EXPECT_EQ(newest_saved_step(folder.path(), memory), -1);
  for (const char* name : {"step-00000010", "step-00000020"})
    std::filesystem::create_directories(folder / "checkpoints" / name);
  put_file(folder / "checkpoints/step-00000010/manifest.json", "{}");
  EXPECT_EQ(newest_saved_step(folder.path(), memory), 10) << "the newer one is not complete";
  std::filesystem::create_directories(memory);
  const auto copy = [&](const char* name, int rank, int at) {
    training::CopyManifest manifest;
    manifest.rank = rank;
    manifest.step = at;
    put_file(memory / name, training::to_json(manifest));
  };
  copy("copy-00000-0.json", 0, 30);
  copy("copy-00000-1.json", 0, 35);
  copy("copy-00001-0.json", 1, 30);
  EXPECT_EQ(newest_saved_step(folder.path(), memory), 30) << "rank 1 has no copy of step 35";
  put_file(memory / "copy-00001-1.json", "{\"torn");
  EXPECT_EQ(newest_saved_step(folder.path(), memory), 30);
}

TEST(Ledger, HoldsWhatWasWritten) {
  const ScratchFolder folder;
  const Path path = folder / "ledger.jsonl";
  const LedgerAttempt first{.attempt = 1, .ranks = 4, .began = 1000.25, .ended = 1100.5, .exit = 2};
  const LedgerAttempt second{.attempt = 2,
                             .ranks = 3,
                             .began = 1200,
                             .ended = 1300,
                             .exit = 137,
                             .first_rank = 1,
                             .phase = "forward",
                             .collective = "gather of \"layer\" 2",
                             .from = AttemptFrom::kCopies,
                             .from_step = 40,
                             .to_step = 55,
                             .productive_s = 90.5,
                             .recovery_s = 4.25,
                             .lost_steps = 2,
                             .lost_s = 1.5,
                             .settings = {"parallel.shard=3"},
                             .run_began = 999.5};
  append_to_ledger(posix_file_system(), path, first);
  put_file(path, read_file(path) + "{\"attempt\": 17, \"torn");
  append_to_ledger(posix_file_system(), path, second);
  int64_t others = 0;
  const std::vector<LedgerAttempt> read = observe::read_ledger(path, &others);
  EXPECT_EQ(others, 0);
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(observe::ledger_line(read[0]), observe::ledger_line(first));
  EXPECT_EQ(observe::ledger_line(read[1]), observe::ledger_line(second));
  EXPECT_FALSE(read[0].first_rank || read[0].from || read[0].recovery_s || read[0].run_began);
  const auto json = parse_json<nlohmann::json>(observe::ledger_line(second));
  for (const char* name : {"attempt", "ranks", "began", "ended", "exit", "first_rank", "phase", "from_step",
                           "to_step", "from", "recovery_s", "lost_steps", "lost_s"})
    EXPECT_TRUE(json.contains(name)) << name;
  EXPECT_EQ(json["from"], "copies");
  put_file(path, "[1]\n{}\nnonsense\n" + read_file(path));
  EXPECT_EQ(observe::read_ledger(path, &others).size(), 2u);
  EXPECT_EQ(others, 3);
}

TEST(Ledger, KnowsHowOftenRunsFail) {
  const auto attempt = [](double began, double ended, int exit) {
    return LedgerAttempt{.attempt = 1, .ranks = 1, .began = began, .ended = ended, .exit = exit};
  };
  EXPECT_EQ(observe::mean_time_between_failures({}), std::nullopt);
  const std::vector<LedgerAttempt> clean = {attempt(0, 100, 75), attempt(100, 200, 0)};
  EXPECT_EQ(observe::mean_time_between_failures(clean), std::nullopt);
  // A pause is not part of it.
  const std::vector<LedgerAttempt> failed = {attempt(0, 100, 137), attempt(100, 200, 75),
                                             attempt(5000, 5100, 4)};
  EXPECT_DOUBLE_EQ(*observe::mean_time_between_failures(failed), 150);
}

}  // namespace
}  // namespace strata::launch
