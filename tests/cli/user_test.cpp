// The program's messages to its users, and the inputs that it accepts.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/json.h"
#include "fixtures/cli_fixture.h"

namespace strata {
namespace {

class UserTest : public CliTest {};

// Numbers on the command line that are out of range, in a short message.
TEST_F(UserTest, OptionsHaveRanges) {
  for (const char* arguments :
       {"generate --model m --prompt x --max-tokens 9223372036854775807",
        "generate --model m --prompt x --max-tokens 0", "generate --model m --prompt x --temperature nan",
        "generate --model m --prompt x --temperature -1", "generate --model m --prompt x --temperature inf",
        "generate --model m --prompt x --top-p nan",
        "generate --model m --prompt x --top-k 99999999999999999999",
        "generate --model m --prompt x --repetition-penalty 0", "generate --model m --prompt x --seed -1",
        "eval --model m --text x --sequence-length 4e18",
        "eval --model m --text x --sequence-length 1099511627776",
        "data inspect x --limit 9223372036854775807", "checkpoint prune x --keep-last 9223372036854775807",
        "tokenizer train --input a --vocab-size 99999999999 --output b",
        "train a.txt --ranks 9223372036854775807"}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments << outcome.err;
    EXPECT_TRUE(contains(outcome.err, "--")) << outcome.err;
    EXPECT_LT(outcome.err.size(), 200u) << outcome.err;
  }
  EXPECT_TRUE(contains(run("generate --model m --prompt x --top-p 1.5").err,
                       "found 1.5, expected a number from 0 to 1"));
}

TEST_F(UserTest, ThreadsFollowOmpNumThreads) {
  ::setenv("OMP_NUM_THREADS", "1,2", 1);
  const Outcome one = run("doctor --quick --json");
  ::unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(parse_json<nlohmann::json>(one.out).at("device").at("cores"), 1) << one.out;
  ::setenv("OMP_NUM_THREADS", "some", 1);
  const Outcome all = run("doctor --quick --json");
  ::unsetenv("OMP_NUM_THREADS");
  const auto cores = [](const Outcome& outcome) {
    return parse_json<nlohmann::json>(outcome.out)["device"]["cores"];
  };
  EXPECT_EQ(cores(all), cores(run("doctor --quick --json")));
}

TEST_F(UserTest, ExplainBeginsWithASummary) {
  write("a.txt", "some text\n");
  const Outcome plain =
      run("explain a.txt --set run.folder=r --set training.steps=50 --set training.sequence_length=64");
  ASSERT_EQ(plain.code, 0) << plain.err;
  EXPECT_EQ(plain.out.find("model    llama3-5m"), 0u) << plain.out;
  for (const char* part : {"\nmemory   ", "\nstep     ", "\nrun      50 steps, 51.2k tokens, "})
    EXPECT_TRUE(contains(plain.out, part)) << part << plain.out;
  EXPECT_FALSE(contains(plain.out, "forward.0")) << "instructions need --program";
  const Outcome whole = run("explain a.txt --set run.folder=r --set training.sequence_length=64 --program");
  EXPECT_EQ(whole.out.find("model    llama3-5m"), 0u);
  EXPECT_TRUE(contains(whole.out, "Phases: F forward")) << whole.out.substr(0, 2000);
}

// A run can start from the unchanged output of init; a trial run also shortens the warm-up.
TEST_F(UserTest, TheOutputOfInitTrainsWithoutAWarning) {
  std::string text;
  for (int i = 0; i < 4000; ++i) text += "Line " + std::to_string(i * 7919 % 4001) + " of a corpus.\n";
  write("corpus.txt", text);
  for (const std::string preset : {"llama3-5m", "gpt2-124m"}) {
    ASSERT_EQ(run("init " + preset + " --data corpus.txt --force").code, 0);
    EXPECT_TRUE(contains(read_file(folder_ / "RUN.toml"), "\nwarmup_steps = \"auto\""));
    const Outcome shown = run("config show RUN.toml --set training.steps=20 --json");
    ASSERT_EQ(shown.code, 0) << shown.err;
  }
  ASSERT_EQ(run("init llama3-5m --data corpus.txt --force").code, 0);
  for (const char* sets : {"", " --set training.steps=6"}) {
    const Outcome dry = run(std::string("train RUN.toml --dry-run --set run.folder=r") + sets);
    EXPECT_EQ(dry.code, 0) << dry.err;
    EXPECT_FALSE(contains(dry.err, "warning")) << dry.err;
  }
}

// If the model has no vocabulary size, it has that of the tokenizer trained for the run.
TEST_F(UserTest, ATrainedTokenizerDeterminesTheVocabulary) {
  write("a.txt", "some text\n");
  const auto vocabulary = [&](const std::string& sets) {
    const Outcome shown = run("explain a.txt --set run.folder=r " + sets);
    EXPECT_EQ(shown.code, 0) << shown.err;
    const size_t at = shown.out.find("vocabulary ") + 11;
    return shown.out.substr(at, shown.out.find('\n', at) - at);
  };
  EXPECT_EQ(vocabulary(""), "4096");
  EXPECT_EQ(vocabulary("--set tokenizer.train.vocab_size=700"), "700");
  EXPECT_EQ(vocabulary("--set tokenizer.train.vocab_size=700 --set model.override.vocab_size=1000"), "1000");
}

// Held-out data without a loss is detected before the first step.
TEST_F(UserTest, ADryRunFindsHeldOutDataWithoutALoss) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "Line " + std::to_string(i) + ".\n";
  write("a.txt", text);
  write("one.txt", "");
  write("held.bin", std::string("\x05\x00", 2));
  const std::string dry = "train a.txt --dry-run --set run.folder=r ";
  Outcome outcome = run(dry + "--set eval.max_tokens=1");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_TRUE(contains(outcome.err, "eval.max_tokens: found 1")) << outcome.err;
  outcome = run(dry + "--set 'data.valid=[\"held.bin\"]'");
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "data.valid") && contains(outcome.err, "at least 2")) << outcome.err;
  outcome = run(dry + "--set 'eval.set=[{name=\"far\", path=\"held.bin\"}]'");
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "eval.set far")) << outcome.err;
  EXPECT_EQ(run(dry + "--set 'data.valid=[\"held.bin\"]' --set eval.interval=never").code, 0);
}

// A text too short for the default held-out part is still a valid text.
TEST_F(UserTest, TrainsOnATextTooShortForHeldOutData) {
  write("a.txt", "some text\n");
  // Eleven tokens: two held out would leave less than a window of nine and its last target.
  const std::string train = "train a.txt --dry-run --set run.folder=r --set training.sequence_length=";
  EXPECT_FALSE(contains(run(train + "4").err, "nothing is evaluated"));
  const Outcome dry = run(train + "9");
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_TRUE(contains(dry.err, "nothing is evaluated")) << dry.err;
  EXPECT_EQ(run(train + "9 --set data.valid_fraction=0.01").code, 2);
}

TEST_F(UserTest, ARunPrintsItsResultsAndHowToContinue) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "Line " + std::to_string(i) + ".\n";
  write("a.txt", text);
  const std::string train =
      "train a.txt --set run.folder=r --set training.steps=2 --set training.sequence_length=16 --set "
      "training.global_batch_size=2 --set eval.interval=never --set eval.sample_tokens=0";
  const Outcome first = run(train + " --set schedule.steps=100");
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_TRUE(contains(first.err, "r/final") && contains(first.err, "r/index.html")) << first.err;
  EXPECT_TRUE(contains(first.err, "at the run's last step: its schedule has 100 steps")) << first.err;
  EXPECT_FALSE(contains(read_file(folder_ / "r/metrics.jsonl"), "eval/")) << "eval.interval is never";
  // The command of the page extends the run.
  const std::string page = read_file(folder_ / "r/index.html");
  const size_t at = page.find("strata train ", page.find("How to extend"));
  const std::string command = page.substr(at + 7, page.find("</pre>", at) - at - 7);
  const Outcome more = run(command);
  EXPECT_EQ(more.code, 0) << command << more.err;
  EXPECT_TRUE(contains(read_file(folder_ / "r/metrics.jsonl"), "\"step\":4")) << command << more.err;
  EXPECT_TRUE(contains(read_file(folder_ / "r/index.html"), "resumed after step 2"));
}

TEST_F(UserTest, CompletionsOfferValues) {
  const std::string bash = run("completions bash").out, fish = run("completions fish").out,
                    zsh = run("completions zsh").out;
  for (const std::string* text : {&bash, &fish, &zsh}) {
    for (const char* value :
         {"hellaswag", "gopher_quality", "llama3-29m", "training.steps=", "datatrove", "never"})
      EXPECT_TRUE(contains(*text, value)) << value;
  }
  write("complete.sh",
        bash + "\nCOMP_WORDS=(strata \"${@:1}\"); COMP_CWORD=$#; _strata; echo ${COMPREPLY[@]}\n");
  const auto completed = [&](const std::string& words) {
    const std::string command =
        "cd '" + folder_.string() + "' && bash complete.sh " + words + " >out 2>/dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0) << words;
    return read_file(folder_ / "out");
  };
  EXPECT_EQ(completed("checkpoint export --dtype ''"), "bf16 fp16 fp32 fp8_block mxfp4\n");
  EXPECT_EQ(completed("eval --task arc"), "arc_easy arc_challenge\n");
  EXPECT_EQ(completed("init llama3-2"), "llama3-29m\n");
  EXPECT_EQ(completed("train r.toml --set training.st"), "training.steps=\n");
  EXPECT_EQ(completed("tokenizer train --input compl"), "complete.sh\n");
  EXPECT_EQ(completed("checkpoint exp"), "export\n");
}

// The program executes itself again, but keeps its name in ps.
TEST_F(UserTest, IsCalledStrata) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "Line " + std::to_string(i) + ".\n";
  write("a.txt", text);
  const std::string command =
      "cd '" + folder_.string() +
      "' && { '" STRATA_PROGRAM
      "' train a.txt --set run.folder=r --set training.steps=100000 >out 2>err & p=$!; sleep 0.3; "
      "cat /proc/$p/comm >name; kill -9 $p; }";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(read_file(folder_ / "name"), "strata\n");
}

}  // namespace
}  // namespace strata
