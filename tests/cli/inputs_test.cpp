// Inputs of the program: pipes, files that are not text, and signals while it reads.
#include <fcntl.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "fixtures/cli_fixture.h"

namespace strata {
namespace {

class InputsTest : public CliTest {
 protected:
  Outcome shell(const std::string& arguments, const std::string& before = "", const std::string& after = "") {
    return run("", "sh -c '" + before + " \"$0\" " + arguments + " " + after + "'");
  }
};

TEST_F(InputsTest, VerbsThatReadOnceAcceptAPipe) {
  const std::string text = "some text of a pipe, which is read once\n";
  write("text.txt", text);
  write("docs.jsonl", "{\"id\":\"a\",\"text\":\"one\"}\n{\"id\":\"b\",\"text\":\"two\"}\n");
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  for (const std::string path : {"-", "/dev/stdin", "pipe"}) {
    const std::string before = path == "pipe" ? "cat docs.jsonl >pipe & " : "cat docs.jsonl |";
    const Outcome built = shell("data filter " + path + " --stage simple --force -o built", before);
    ASSERT_EQ(built.code, 0) << path << built.err;
    EXPECT_TRUE(contains(built.out, "2 documents in")) << path << built.out;
    EXPECT_TRUE(contains(shell("data inspect " + path, before).out, "2 documents")) << path;
    const std::string tokenizer = "tokenizer train --force --output t.json --vocab-size 260 --json --input ";
    const Outcome trained =
        shell(tokenizer + path, path == "pipe" ? "cat text.txt >pipe & " : "cat text.txt |");
    EXPECT_EQ(trained.code, 0) << path << trained.err;
    EXPECT_TRUE(contains(trained.out, "\"bytes\":" + std::to_string(text.size()))) << path << trained.out;
  }
}

// Training reads its texts more than once. No process writes into the pipe, which is not even opened.
TEST_F(InputsTest, TrainRejectsAPipeByName) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  for (const std::string path : {"pipe", "-"}) {
    const Outcome outcome = run("train " + path + " --dry-run");
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, "[" + path + "]") && contains(outcome.err, "into a file"))
        << outcome.err;
  }
}

TEST_F(InputsTest, NamesFilesThatAreNotText) {
  write("image.txt", std::string("\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16));
  write("wide.txt", std::string("\xFF\xFEs\0o\0m\0e\0", 10));
  write("latin.txt", "caf\xE9 au lait\n");
  const std::string verbs[] = {"train --dry-run ",
                               "tokenizer train --vocab-size 300 --output t.json --force --input "};
  for (const std::string& verb : verbs) {
    const Outcome wide = run(verb + "wide.txt");
    EXPECT_EQ(wide.code, 3) << verb << wide.err;
    EXPECT_TRUE(contains(wide.err, "wide.txt] is UTF-16") && contains(wide.err, "iconv")) << wide.err;
    EXPECT_TRUE(contains(run(verb + "image.txt").err, "image.txt: is a binary file")) << verb;
    EXPECT_TRUE(contains(run(verb + "latin.txt").err, "latin.txt: is not UTF-8")) << verb;
  }
  for (const std::string name : {"image.txt", "wide.txt"}) {
    const Outcome built = run("data filter " + name + " --stage simple -o built-" + name);
    EXPECT_TRUE(contains(built.out, "read                  not_text")) << built.out;
  }
}

// After half a line the input pauses: the reader waits in a call that does not check for a stop.
TEST_F(InputsTest, ASignalStopsReadingALine) {
  const Path pipe = folder_ / "pipe.jsonl";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int hold = ::open(pipe.c_str(), O_RDWR);
  ASSERT_GE(hold, 0);
  for (const auto& [signal, code] : {std::pair{SIGINT, 130}, {SIGTERM, 143}}) {
    const Outcome outcome = shell("data filter pipe.jsonl --stage simple -o built &", "",
                                  "sleep 0.3; kill -" + std::to_string(signal) + " $!; wait $!");
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, "stopped") && contains(outcome.err, "the same command")) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "built/manifest.json"));
  }
  ::close(hold);
}

// A benchmark's child process ends with it and leaves no files.
TEST_F(InputsTest, ASignalEndsABenchmarksChild) {
  std::filesystem::create_directories(folder_ / "tmp");
  // The benchmark's training run has started once its log exists.
  const Outcome outcome =
      shell("bench step --set model.preset=llama3-5m --set training.micro_batch_size=1 &", "TMPDIR=$PWD/tmp",
            "until ls tmp/*/run/metrics.jsonl >listed 2>&1; do sleep 0.05; done; "
            "cat /proc/$!/task/$!/children >child; kill -TERM $!; wait $!");
  EXPECT_EQ(outcome.code, 143) << outcome.err;
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "tmp"));
  const std::string child = read_file(folder_ / "child");
  ASSERT_FALSE(child.empty());
  EXPECT_NE(::kill(static_cast<pid_t>(std::stoi(child)), 0), 0);
}

// A killed benchmark cannot remove its folder: the next one does, but keeps folders in use.
TEST_F(InputsTest, TheNextBenchmarkRemovesTheFolderOfAKilledOne) {
  std::filesystem::create_directories(folder_ / "tmp/strata-bench-in-use");
  const FileLock lock(folder_ / "tmp/strata-bench-in-use/.lock");
  const std::string bench = "bench load --set model.preset=llama3-5m --set training.micro_batch_size=1 &";
  const Outcome killed =
      shell(bench, "TMPDIR=$PWD/tmp",
            "until [ \"$(ls tmp/*/.lock | wc -l)\" = 2 ]; do sleep 0.05; done; kill -KILL $!; wait $!");
  EXPECT_EQ(killed.code, 137) << killed.err;
  // Waits until the killed benchmark's folder is gone and the new one exists.
  const Outcome next =
      shell(bench, "left=$(ls -d tmp/* | grep -v in-use); TMPDIR=$PWD/tmp",
            "until [ ! -e $left ] && [ \"$(ls tmp/*/.lock | wc -l)\" = 2 ]; do sleep 0.05; done; "
            "kill -KILL $!; wait $!");
  EXPECT_EQ(next.code, 137) << next.err;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "tmp/strata-bench-in-use/.lock"));
}

}  // namespace
}  // namespace strata
