// Outputs of the program: a full disk, a closed pipe, existing files.
#include <sys/stat.h>

#include "fixtures/cli_fixture.h"

namespace strata {
namespace {

class OutputTest : public CliTest {
 protected:
  // `strata ARGUMENTS` with its standard output sent to `target`.
  Outcome run_into(const std::string& arguments, const std::string& target) {
    return run("", "sh -c '\"$0\" " + arguments + " " + target + "'");
  }
};

TEST_F(OutputTest, EveryVerbReportsAFullDisk) {
  write("text.txt", "some text to be read, and some more of it\n");
  write("docs.jsonl", "{\"text\":\"some text\"}\n");
  write("run.toml", "[model]\npreset = \"llama3-5m\"\n[data]\ntrain = [\"text.txt\"]\n");
  write("other.toml", "include = [\"run.toml\"]\n[training]\nsteps = 9\n");
  ASSERT_EQ(run("tokenizer train --input text.txt --vocab-size 260 --output t.json").code, 0);
  for (const char* arguments :
       {"--help",
        "--version",
        "--version --json",
        "train --help",
        "",
        "presets",
        "presets --json",
        "scale --flops 1e21",
        "plan --check-claims",
        "config show run.toml",
        "config show run.toml --json",
        "config schema",
        "config diff run.toml other.toml",
        "completions bash",
        "init --output a.toml",
        "bench --list",
        "tokenizer info --tokenizer t.json",
        "tokenizer encode --tokenizer t.json --text x",
        "tokenizer encode --tokenizer t.json --jsonl docs.jsonl",
        "data inspect docs.jsonl",
        "data filter docs.jsonl --stage simple -o built",
        "explain run.toml --schedule",
        "tokenizer train --input text.txt --vocab-size 260 --output t2.json --json"}) {
    const Outcome outcome = run_into(arguments, ">/dev/full");
    EXPECT_EQ(outcome.code, 4) << arguments << "\n" << outcome.err;
    EXPECT_TRUE(contains(outcome.err, "standard output") && !contains(outcome.err, "bug")) << outcome.err;
  }
}

TEST_F(OutputTest, AClosedPipeEndsQuietly) {
  for (const char* arguments : {"presets", "config schema", "completions bash"}) {
    const Outcome plain = run_into(arguments, "| head -c 1");
    EXPECT_EQ(plain.out.size(), 1u) << arguments;
    EXPECT_EQ(plain.err, "") << arguments;
    // Also if the parent process ignores the signal.
    EXPECT_EQ(run("", "sh -c 'trap \"\" PIPE; \"$0\" " + std::string(arguments) + " | true'").err, "")
        << arguments;
  }
}

TEST_F(OutputTest, ReplacesAnExistingFileOnlyWithForce) {
  write("text.txt", "some text to be read, and some more of it\n");
  const std::string train = "tokenizer train --input text.txt --vocab-size 260 --output ";
  for (const std::string& command : {train + "there", std::string("init --output there")}) {
    write("there", "precious");
    const Outcome refused = run(command);
    EXPECT_EQ(refused.code, 2) << command;
    EXPECT_TRUE(contains(refused.err, "there exists already") && contains(refused.err, "--force"))
        << refused.err;
    EXPECT_EQ(read_file(folder_ / "there"), "precious");
    const Outcome forced = run(command + " --force");
    EXPECT_EQ(forced.code, 0) << forced.err;
    EXPECT_NE(read_file(folder_ / "there"), "precious");
  }
  EXPECT_EQ(run(train + "/dev/full").code, 4);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST_F(OutputTest, AUnigramHasNoSplitsOrMerges) {
  write("text.txt", "some text\n");
  for (const std::string option : {"--pattern llama3", "--min-frequency 3"}) {
    const Outcome outcome =
        run("tokenizer train --input text.txt --vocab-size 300 --output u.json --model unigram " + option);
    EXPECT_EQ(outcome.code, 2) << option;
    EXPECT_TRUE(contains(outcome.err, option.substr(0, option.find(' ')))) << outcome.err;
  }
}

// Reported before the work, not after it.
TEST_F(OutputTest, RejectsImpossibleOutputs) {
  write("text.txt", "some text\n");
  std::filesystem::create_directory(folder_ / "empty");
  for (const std::string output : {"nowhere/t.json", "empty", "empty/"}) {
    const Outcome refused = run("tokenizer train --input text.txt --vocab-size 260 --output " + output);
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_TRUE(contains(refused.err, "--output") && contains(refused.err, "folder")) << refused.err;
  }
  for (const std::string folder : {"text.txt", "''"}) {
    const Outcome refused = run("data filter text.txt --stage simple -o " + folder);
    EXPECT_EQ(refused.code, 2) << folder;
  }
}

// A build reports why it dropped documents, and changes no folder that it did not make.
TEST_F(OutputTest, ABuildNamesItsReasonsAndKeepsOtherFiles) {
  write("docs.jsonl", "{\"text\":\"some text\"}\n{\"text\":null}\n{\"text\":null}\n{}\n");
  const Outcome built = run("data filter docs.jsonl --stage simple -o built");
  ASSERT_EQ(built.code, 0) << built.err;
  EXPECT_TRUE(contains(built.out, "         2  read                  null_text\n")) << built.out;
  EXPECT_TRUE(contains(built.out, "         1  read                  no_text\n")) << built.out;

  std::filesystem::create_directories(folder_ / "mine/documents");
  write("mine/documents/thesis.txt", "precious");
  const Outcome refused = run("data filter docs.jsonl --stage simple -o mine");
  EXPECT_EQ(refused.code, 2);
  EXPECT_TRUE(contains(refused.err, "documents") && contains(refused.err, "--force")) << refused.err;
  EXPECT_EQ(read_file(folder_ / "mine/documents/thesis.txt"), "precious");
  EXPECT_EQ(run("data filter docs.jsonl --stage simple -o mine --force").code, 0);
}

}  // namespace
}  // namespace strata
