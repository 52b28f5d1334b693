// Requests to a run as files: the protocol, and everything that is refused while the run goes on.
#include "train/control.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "fixtures/faulty_file_system.h"
#include "fixtures/scratch_folder.h"

namespace strata::training {
namespace {

using nlohmann::json;

class ControlTest : public testing::Test {
 protected:
  ControlTest() { set_log_level(LogLevel::kError); }

  Path control() const { return scratch_ / "control"; }
  Path control(const std::string& name) const { return control() / name; }
  void send(const std::string& name, const std::string& text) const { put_file(control(name), text); }
  // The lines of control.jsonl.
  std::vector<json> answers() const {
    std::vector<json> out;
    std::istringstream lines(read_file(scratch_ / "control.jsonl"));
    for (std::string line; std::getline(lines, line);) out.push_back(parse_json<json>(line));
    return out;
  }
  // The reason for which the only file sent is refused.
  std::string refusal(const std::string& name, ControlFolder& folder) const {
    EXPECT_TRUE(folder.take(7).empty()) << name;
    const json last = answers().back();
    EXPECT_EQ(last["id"], name.ends_with(".json") ? Path(name).stem().string() : name);
    EXPECT_EQ(last["at_step"], 7);
    EXPECT_TRUE(last.contains("by") && last.contains("do")) << last;
    std::string result = last["result"];
    EXPECT_TRUE(result.starts_with("refused: ")) << result;
    EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(control(name)))) << name;
    return result;
  }

  ScratchFolder scratch_;
  FaultyFileSystem files_;
};

TEST_F(ControlTest, RequestsAreTakenInOrderAndAnswered) {
  ControlFolder::begin(files_, scratch_.path());
  ControlFolder folder(files_, scratch_.path());
  struct stat found = {};
  ASSERT_EQ(::stat(control().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0700u);
  EXPECT_FALSE(folder.changed());
  const Request set{.id = "b",
                    .by = "me",
                    .what = Request::What::kSet,
                    .settings = {{"optimizer.lr", "5e-04"}, {"data.skip", "[[1, 2]]"}}};
  send("b.json", to_json(set));
  send("c.json", R"({"id": "c", "by": "you", "do": "save"})");
  send("a.json", R"({"id": "a", "by": "you", "do": "stop"})");
  send(".d.json", "{");  // still being written
  EXPECT_TRUE(folder.changed());
  const auto taken = folder.take(3);
  ASSERT_EQ(taken.size(), 3u);
  EXPECT_EQ(taken[0].id, "a");
  EXPECT_EQ(taken[0].what, Request::What::kStop);
  EXPECT_EQ(taken[1].id, "b");
  ASSERT_EQ(taken[1].settings.size(), 2u);
  EXPECT_EQ(taken[1].settings[0].value, "0.0005");
  EXPECT_EQ(taken[1].settings[1].value, "[[1, 2]]");
  EXPECT_EQ(taken[2].what, Request::What::kSave);
  EXPECT_TRUE(folder.take(3).empty());
  EXPECT_FALSE(folder.changed());

  folder.answer(taken[1], 4, kDone);
  folder.answer(taken[2], 3, kDone);
  EXPECT_EQ(
      read_file(scratch_ / "control.jsonl"),
      R"({"id":"b","at_step":4,"by":"me","set":{"optimizer.lr":0.0005,"data.skip":[[1,2]]},"result":"done"})"
      "\n"
      R"({"id":"c","at_step":3,"by":"you","do":"save","result":"done"})"
      "\n");
}

TEST_F(ControlTest, InvalidRequestsAreRefused) {
  ControlFolder::begin(files_, scratch_.path());
  ControlFolder folder(files_, scratch_.path());
  const std::pair<const char*, const char*> cases[] = {
      {"", "not complete JSON"},
      {R"({"id": "x", "by": "me", "do": "st)", "not complete JSON"},
      {"[1]", "not a JSON object"},
      {"{}", "\"id\" is missing"},
      {R"({"id": 5, "by": "me", "do": "stop"})", "\"id\" is not a text"},
      {R"({"id": "../x", "by": "me", "do": "stop"})", "expected letters"},
      {R"({"id": "x", "do": "stop"})", "\"by\" is missing"},
      {R"({"id": "x", "by": "me"})", "one of \"do\" and \"set\""},
      {R"({"id": "x", "by": "me", "do": "stop", "set": {"optimizer.lr": 1}})", "one of"},
      {R"({"id": "x", "by": "me", "do": "explode"})", "\"explode\", expected \"stop\""},
      {R"({"id": "x", "by": "me", "do": "stop", "now": true})", "unknown key \"now\""},
      {R"({"id": "x", "by": "me", "set": {}})", "not an object with keys"},
      {R"({"id": "x", "by": "me", "set": {"optimizer.lr": null}})", "found null"},
      {R"({"id": "x", "by": "me", "set": {"a=b": 1}})", "is not a key"},
  };
  for (const auto& [text, why] : cases) {
    send("x.json", text);
    EXPECT_NE(refusal("x.json", folder).find(why), std::string::npos) << text << "\n" << answers().back();
  }
  send("x.json", R"({"id": "x", "by": "me", "set": {"data.skip": )" + std::string(30, '[') +
                     std::string(30, ']') + "}}");
  EXPECT_NE(refusal("x.json", folder).find("nested deeper"), std::string::npos);
  send("x.json", R"({"id": "x", "by": "me", "set": {"data.skip": )" + std::string(30000, '[') +
                     std::string(30000, ']') + "}}");
  EXPECT_NE(refusal("x.json", folder).find("not complete JSON"), std::string::npos);
  send("x.json", std::string(kMostRequestBytes + 1, ' '));
  EXPECT_NE(refusal("x.json", folder).find("more than 65536 bytes"), std::string::npos);
  send("x.txt", "{}");
  EXPECT_NE(refusal("x.txt", folder).find("does not end in .json"), std::string::npos);
}

TEST_F(ControlTest, WhatIsNotAFileIsRefused) {
  ControlFolder::begin(files_, scratch_.path());
  ControlFolder folder(files_, scratch_.path());
  put_file(scratch_ / "elsewhere.json", R"({"id": "x", "by": "me", "do": "stop"})");
  std::filesystem::create_symlink(scratch_ / "elsewhere.json", control("x.json"));
  EXPECT_NE(refusal("x.json", folder).find("is a link"), std::string::npos);
  std::filesystem::create_hard_link(scratch_ / "elsewhere.json", control("x.json"));
  EXPECT_NE(refusal("x.json", folder).find("link to another file"), std::string::npos);
  ASSERT_EQ(::mkfifo(control("x.json").c_str(), 0600), 0);
  EXPECT_NE(refusal("x.json", folder).find("is not a file"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "elsewhere.json"));
  // A folder cannot be removed; it is refused once.
  std::filesystem::create_directory(control("y.json"));
  EXPECT_TRUE(folder.take(1).empty());
  EXPECT_EQ(answers().size(), 4u);
  EXPECT_TRUE(folder.take(1).empty());
  EXPECT_EQ(answers().size(), 4u);
  EXPECT_FALSE(folder.changed());
}

TEST_F(ControlTest, ARequestOfAnotherOwnerIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a file of another user";
  ControlFolder::begin(files_, scratch_.path());
  ControlFolder folder(files_, scratch_.path());
  send("x.json", R"({"id": "x", "by": "me", "do": "stop"})");
  ASSERT_EQ(::chown(control("x.json").c_str(), 12345, static_cast<gid_t>(-1)), 0);
  EXPECT_NE(refusal("x.json", folder).find("belongs to user 12345"), std::string::npos);
  EXPECT_EQ(answers().back()["by"], "user 12345");
}

TEST_F(ControlTest, AFolderThatOthersCanWriteIntoIsNotRead) {
  std::filesystem::create_directory(control());
  for (const mode_t mode : {0777u, 0750u, 0701u}) {
    ASSERT_EQ(::chmod(control().c_str(), mode), 0);
    ControlFolder::begin(files_, scratch_.path());
    ControlFolder folder(files_, scratch_.path());
    send("x.json", R"({"id": "x", "by": "me", "do": "stop"})");
    EXPECT_FALSE(folder.changed());
    EXPECT_TRUE(folder.take(1).empty());
  }
  if (::geteuid() == 0) {
    ASSERT_EQ(::chmod(control().c_str(), 0700), 0);
    ASSERT_EQ(::chown(control().c_str(), 12345, static_cast<gid_t>(-1)), 0);
    ControlFolder::begin(files_, scratch_.path());
    ControlFolder folder(files_, scratch_.path());
    EXPECT_TRUE(folder.take(1).empty());
  }
  std::filesystem::remove_all(control());
  std::filesystem::create_directory(scratch_ / "other");
  std::filesystem::create_directory_symlink(scratch_ / "other", control());
  put_file(scratch_ / "other" / "x.json", R"({"id": "x", "by": "me", "do": "stop"})");
  ControlFolder::begin(files_, scratch_.path());
  EXPECT_TRUE(ControlFolder(files_, scratch_.path()).take(1).empty());
}

TEST_F(ControlTest, RequestsToAnEarlierStartAreRefused) {
  ControlFolder::begin(files_, scratch_.path());
  send("x.json", R"({"id": "x", "by": "me", "do": "stop"})");
  ControlFolder::begin(files_, scratch_.path());
  // Sent while the run prepares its data.
  send("y.json", R"({"id": "y", "by": "me", "do": "stop"})");
  const auto taken = ControlFolder(files_, scratch_.path()).take(1);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].id, "y");
  EXPECT_EQ(answers().back()["id"], "x");
  const std::string result = answers().back()["result"];
  EXPECT_NE(result.find("has ended"), std::string::npos);
}

// A crash in the middle of a line, and a full disk.
TEST_F(ControlTest, AnswersSurviveTornLinesAndTheRunSurvivesAFullDisk) {
  put_file(scratch_ / "control.jsonl", R"({"id":"o)");
  ControlFolder::begin(files_, scratch_.path());
  ControlFolder folder(files_, scratch_.path());
  const Request save{.id = "s", .by = "me", .what = Request::What::kSave};
  folder.answer(save, 1, kDone);
  const std::string text = read_file(scratch_ / "control.jsonl");
  EXPECT_EQ(text.find("{\"id\":\"s\""), text.find('\n') + 1);
  FaultyFileSystem full({.kind = FaultKind::kDiskFull, .at = 2});
  ControlFolder other(full, scratch_.path());
  other.answer(save, 2, kDone);
  send("x.json", "{");
  EXPECT_TRUE(other.take(2).empty());
}

// Whatever the order of keys in a table.
TEST(Requests, SettingsWithTablesComeBackAsTheyWere) {
  const Request request = parse_request(
      R"({"id": "a-2", "by": "me", "set": {"optimizer.lr": 5e-4, "data.skip": [[1, 2]], "eval.interval": "20 steps",
          "recovery.rule": [{"when": "loss_spike", "action": "skip_update"}], "log.tensorboard": true}})");
  const Request again = parse_request(to_json(request));
  ASSERT_EQ(again.settings.size(), request.settings.size());
  for (size_t i = 0; i < request.settings.size(); ++i) {
    EXPECT_EQ(again.settings[i].key, request.settings[i].key);
    EXPECT_EQ(again.settings[i].value, request.settings[i].value);
  }
}

TEST(ControlRequest, IdsSortByTime) {
  std::string last;
  for (int i = 0; i < 100; ++i) {
    const std::string id = new_request_id();
    EXPECT_LT(last, id);
    last = id;
    EXPECT_EQ(parse_request(to_json({.id = id, .by = "é\n", .what = Request::What::kSave})).by, "é?");
  }
}

}  // namespace
}  // namespace strata::training
