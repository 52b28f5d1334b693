// A run's files after a user or another tool has changed them: numbers out of range, other types, torn and
// nested lines. The run reports the error or continues without the file; it never fails with an internal
// error.
#include "base/error.h"
#include "base/json.h"
#include "fixtures/tiny_run.h"

namespace strata::training {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string>& odd_values() {
  static const std::vector<std::string> values{"1e300",
                                               "-1e300",
                                               "1e19",
                                               "18446744073709551615",
                                               "-9223372036854775808",
                                               "9007199254740993",
                                               "-1",
                                               "0",
                                               "0.5",
                                               "null",
                                               "true",
                                               "\"x\"",
                                               "[]",
                                               "{}",
                                               "[[[[1]]]]"};
  return values;
}

// Begin and end of each number outside strings in a JSON or TOML text.
std::vector<std::pair<size_t, size_t>> numbers_in(const std::string& text) {
  std::vector<std::pair<size_t, size_t>> found;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"' && (i == 0 || text[i - 1] != '\\')) quoted = !quoted;
    const bool starts = (std::isdigit(static_cast<unsigned char>(text[i])) != 0 || text[i] == '-') &&
                        !quoted &&
                        (i == 0 || (std::isalnum(static_cast<unsigned char>(text[i - 1])) == 0 &&
                                    text[i - 1] != '_' && text[i - 1] != '.'));
    if (!starts) continue;
    size_t end = i + 1;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 ||
                                 text[end] == '.' || text[end] == '-' || text[end] == '+'))
      ++end;
    found.emplace_back(i, end);
    i = end - 1;
  }
  return found;
}

class OddFiles : public testing::Test {
 protected:
  OddFiles() {
    tiny_.train_with(RunOptions{.config = tiny_.config(sets_, "before")}, 4);
    fs::remove_all(tiny_.folder("before") / "logs");
  }

  // Resumes the run, which may fail with any error but an internal one.
  void resume(const std::string& what) {
    try {
      tiny_.train_with(RunOptions{.config = tiny_.config(sets_)});
    } catch (const Error& error) {
      EXPECT_NE(error.kind(), ErrorKind::kInternal) << what << ": " << error.what();
    } catch (const std::exception& error) {
      ADD_FAILURE() << what << ": " << error.what();
    }
  }
  void fresh_folder() {
    fs::remove_all(tiny_.folder());
    fs::copy(tiny_.folder("before"), tiny_.folder(), fs::copy_options::recursive);
    // Replaces the folder's name in run.toml.
    std::string toml = read_file(tiny_.folder() / "run.toml");
    const std::string before = tiny_.folder("before").string(), now = tiny_.folder().string();
    for (size_t at = toml.find(before); at != toml.npos; at = toml.find(before, at + 1))
      toml.replace(at, before.size(), now);
    put_file(tiny_.folder() / "run.toml", toml);
  }

  // Replaces every number of a file in turn by some of the odd values.
  void change_numbers(const std::string& file, size_t stride) {
    const std::string good = read_file(tiny_.folder("before") / file);
    const auto numbers = numbers_in(good);
    ASSERT_FALSE(numbers.empty()) << file;
    size_t turn = 0;
    for (size_t i = 0; i < numbers.size(); i += stride) {
      for (size_t k = 0; k < 3; ++k) {
        const std::string& value = odd_values()[turn++ % odd_values().size()];
        fresh_folder();
        std::string text = good;
        text.replace(numbers[i].first, numbers[i].second - numbers[i].first, value);
        put_file(tiny_.folder() / file, text);
        resume(file + ": " + value + " at byte " + std::to_string(numbers[i].first));
        if (HasFailure()) return;
      }
    }
  }

  TinyRun tiny_;
  Sets sets_{"training.steps=6", "model.num_hidden_layers=1", "checkpoint.interval=\"2 steps\"",
             "log.interval_steps=1"};
};

TEST_F(OddFiles, MetricsWithAnyNumbers) {
  change_numbers("metrics.jsonl", 3);
}

TEST_F(OddFiles, AClockOutOfRange) {
  for (const std::string& time : odd_values()) {
    fresh_folder();
    std::string metrics = read_file(tiny_.folder() / "metrics.jsonl");
    std::string changed;
    for (size_t at = 0, next; (next = metrics.find("\"time\":", at)) != metrics.npos;) {
      changed += metrics.substr(at, next - at) + "\"time\":" + time;
      at = metrics.find_first_of(",}", next);
      metrics.erase(0, at);
      at = 0;
    }
    put_file(tiny_.folder() / "metrics.jsonl", changed + metrics);
    resume("time " + time);
    EXPECT_TRUE(fs::exists(tiny_.folder() / "final/config.json")) << "bad metrics do not stop a run";
  }
}

TEST_F(OddFiles, TheStoredConfigurationWithAnyNumbers) {
  change_numbers("run.toml", 5);
}

TEST_F(OddFiles, CheckpointsWithAnyNumbers) {
  change_numbers("checkpoints/step-00000004/state.json", 4);
  change_numbers("checkpoints/step-00000004/manifest.json", 4);
  change_numbers("checkpoints/step-00000004/config.json", 4);
  for (const char* name : {"", "step-99999999999999999999", "step--1", "../..", "x\ny"}) {
    fresh_folder();
    put_file(tiny_.folder() / "checkpoints/latest", name);
    resume(std::string("latest is ") + name);
  }
}

// The files that a run writes for a text corpus.
TEST_F(OddFiles, TokensOfTextsWithAnyNumbers) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "some words of the line " + std::to_string(i * 7919 % 100) + ".\n";
  put_file(tiny_.path("corpus.txt"), text);
  sets_.push_back("data.train=[\"" + tiny_.path("corpus.txt").string() + "\"]");
  fs::remove_all(tiny_.folder("before"));
  tiny_.train_with(RunOptions{.config = tiny_.config(sets_, "before")}, 4);
  int changed = 0;
  for (const auto& entry : fs::recursive_directory_iterator(tiny_.folder("before"))) {
    const std::string file = fs::relative(entry.path(), tiny_.folder("before")).string();
    if (file.starts_with("checkpoints") || file.starts_with("final") || file == "tokenizer.json" ||
        entry.path().extension() != ".json" || entry.path().filename() == "tokenizer.json")
      continue;
    if (numbers_in(read_file(entry.path())).empty()) continue;
    change_numbers(file, 1);
    ++changed;
  }
  EXPECT_GT(changed, 0);
}

TEST_F(OddFiles, LinesOfOtherTools) {
  const std::string deep(100'000, '[');
  for (const std::string& line :
       {deep, "{\"step\":5,\"x\":" + deep + std::string(deep.size(), ']') + "}",
        std::string("{\"event\":{}}"), std::string("{\"event\":\"save\",\"at_step\":{}}"),
        std::string("\xff\xfe\x00", 3),
        std::string("{\"event\":\"start\",\"time\":\"soon\",\"parameters\":[1]}"), std::string("[]"),
        std::string("{\"step\":3}\n{\"step\":2}\n{\"step\":2}")}) {
    for (const char* file : {"metrics.jsonl", "metrics.discarded.jsonl", "experts.jsonl", "ranks.jsonl"}) {
      fresh_folder();
      const Path path = tiny_.folder() / file;
      put_file(path, (fs::exists(path) ? read_file(path) : "") + line + "\n");
      resume(std::string(file) + ": " + line.substr(0, 60));
      EXPECT_TRUE(fs::exists(tiny_.folder() / "final/config.json")) << file << " does not stop a run";
    }
  }
}

// Histories of ranks and of experts.
TEST_F(OddFiles, HistoriesWithAnyNumbers) {
  for (const auto& [file, line] :
       {std::pair{"ranks.jsonl",
                  R"({"step":1,"ranks":2,"step_ms":[1,2],"data_wait_ms":[1,2],"memory_bytes":[1,2]})"},
        {"experts.jsonl", R"({"step":2,"steps":1,"layers":[0,1],"tokens":[[1,2,3,4],[1,2,3,4]]})"}}) {
    const std::string good(line);
    size_t turn = 0;
    for (const auto& [begin, end] : numbers_in(good)) {
      for (int k = 0; k < 2; ++k) {
        fs::remove_all(tiny_.folder());
        std::string text = good;
        const std::string& value = odd_values()[turn++ % odd_values().size()];
        text.replace(begin, end - begin, value);
        fs::create_directories(tiny_.folder());
        put_file(tiny_.folder() / file, good + "\n" + text + "\n");
        try {
          if (std::string(file) == "ranks.jsonl") {
            tiny_.train_ranks(tiny_.config({"training.steps=2", "log.interval_steps=1"}), 2);
          } else {
            tiny_.train({"training.steps=2", "log.interval_steps=1", "model.family=\"mixtral\"",
                         "model.override.num_local_experts=4"});
          }
        } catch (const std::exception& error) {
          ADD_FAILURE() << file << ": " << text << ": " << error.what();
        }
      }
    }
  }
}

// The page cannot be written because a folder has its name.
TEST(Reports, AFailureDoesNotEndTheRun) {
  const TinyRun tiny;
  fs::create_directories(tiny.folder() / "index.html/in the way");
  fs::create_directories(tiny.folder() / "loss.svg/in the way");
  EXPECT_EQ(tiny.train().end, RunEnd::kFinished);
  EXPECT_EQ(metrics_of(tiny.folder()).steps.size(), 6U);
}

}  // namespace
}  // namespace strata::training
