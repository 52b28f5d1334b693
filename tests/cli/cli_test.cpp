// The built program: exit codes, clean standard output, messages.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "base/json.h"
#include "base/parallel.h"
#include "config/run_config.h"
#include "fixtures/cli_fixture.h"
#include "fixtures/environment.h"
#include "fixtures/scratch_folder.h"
#include "models/model.h"

namespace strata {
namespace {

TEST_F(CliTest, VersionAndHelp) {
  EXPECT_EQ(run("--version").code, 0);
  EXPECT_FALSE(read_file(folder_ / "out").empty());
  const Outcome help = run("--help");
  EXPECT_EQ(help.code, 0);
  EXPECT_TRUE(contains(help.out, "config") && contains(help.out, "Example:")) << help.out;
  EXPECT_EQ(run("").code, 0);
  EXPECT_EQ(run("config").code, 2);
}

TEST_F(CliTest, VersionAsJson) {
  const Outcome outcome = run("--version --json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = parse_json<nlohmann::json>(outcome.out);
  EXPECT_EQ(json["version"].get<std::string>() + "\n", run("--version").out);
  EXPECT_EQ(run("--json --version").out, outcome.out);
  for (const char* part : {"mpi", "arrow", "sentencepiece"}) EXPECT_TRUE(json[part].is_boolean()) << part;
  EXPECT_TRUE(json["libraries"].contains("oneDNN")) << outcome.out;
  EXPECT_EQ(json["libraries"], parse_json<nlohmann::json>(run("doctor --quick --json").out)["libraries"]);
  EXPECT_FALSE(json["compiler"].get<std::string>().empty());
  const auto& sets = json["instruction_sets"];
  EXPECT_EQ(sets["compiled"][0], "baseline");
  for (const auto& used : sets["used"])
    EXPECT_NE(std::find(sets["compiled"].begin(), sets["compiled"].end(), used), sets["compiled"].end())
        << used;
  EXPECT_EQ(run("--json").code, 2) << "needs --version";
}

// Walks the tree of verbs through the help texts.
TEST_F(CliTest, EveryVerbHasAnExample) {
  std::vector<std::string> open = {""};
  size_t seen = 0;
  while (!open.empty()) {
    const std::string verb = open.back();
    open.pop_back();
    const Outcome help = run(verb + " --help");
    ASSERT_EQ(help.code, 0) << verb;
    EXPECT_TRUE(contains(help.out, "Example:\n  strata")) << verb << "\n" << help.out;
    ++seen;
    // The root lists its verbs under group headings; other verbs have one list.
    const size_t list = help.out.find(verb.empty() ? "Train a model:\n" : "Subcommands:\n");
    std::istringstream lines(list == std::string::npos ? "" : help.out.substr(list));
    for (std::string line; std::getline(lines, line) && line != "Example:";) {
      if (line.starts_with("  ") && line[2] != ' ')
        open.push_back(verb + " " + line.substr(2, line.find(' ', 2) - 2));
    }
  }
  EXPECT_GE(seen, 12u);
}

TEST_F(CliTest, MistypedAndLaterVerbs) {
  const Outcome typo = run("confg show x");
  EXPECT_EQ(typo.code, 2);
  EXPECT_TRUE(contains(typo.err, "perhaps \"config\"")) << typo.err;
  EXPECT_TRUE(typo.out.empty());
  EXPECT_TRUE(contains(run("config shwo x").err, "perhaps \"show\""));
  // The value of an option is not a mistyped verb; a word before any option is.
  EXPECT_EQ(run("scale --flops 1e21").code, 0);
  EXPECT_TRUE(contains(run("scale ft x.csv").err, "perhaps \"fit\""));
  const Outcome later = run("watch cluster.toml");
  EXPECT_EQ(later.code, 2);
  EXPECT_TRUE(contains(later.err, "not yet")) << later.err;
  for (const char* verb :
       {"watch x --port 1 --steer --tui", "runs", "compare a b --html f", "sweep s.toml"}) {
    const Outcome reserved = run(verb);
    EXPECT_EQ(reserved.code, 2) << verb;
    EXPECT_TRUE(contains(reserved.err, "not yet") && reserved.out.empty()) << verb << reserved.err;
  }
  const Outcome option = run("config show --frobnicate");
  EXPECT_EQ(option.code, 2);
  EXPECT_TRUE(contains(option.err, "frobnicate") || contains(option.err, "required")) << option.err;
}

// Either threads of one process, or processes that a launcher started, but not both.
TEST_F(CliTest, RanksStartInOneWay) {
  write("a.toml", "[model]\npreset = \"llama3-5m\"\n[data]\ntrain = [\"a.txt\"]\n");
  write("a.txt", "some text\n");
  for (const char* command :
       {"train a.toml --ranks 0", "train a.toml --ranks 1025", "train a.toml --set parallel.backend=mpi",
        "train a.toml --set parallel.shard=3", "train a.toml --ranks 2 --set parallel.replicate=3"}) {
    EXPECT_EQ(run(command).code, 2) << command;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "runs"));
}

// Keys and values of a later version are "not yet", not "unknown"; their defaults are accepted.
TEST_F(CliTest, LaterKeysAreNotYet) {
  write("a.toml", "[model]\npreset = \"llama3-5m\"\n[data]\ntrain = [\"a.txt\"]\n");
  for (const char* set : {"memory.offload=optimizer", "log.prometheus=:9000", "log.histograms=5"}) {
    const Outcome outcome = run(std::string("config show a.toml --set ") + set);
    EXPECT_EQ(outcome.code, 2) << set;
    EXPECT_TRUE(contains(outcome.err, "not yet")) << set << "\n" << outcome.err;
  }
  write("usual.toml",
        "include = [\"a.toml\"]\n[parallel]\nreplicate = 1\nshard = -1\nzero = 3\ntensor = 1\nsequence = "
        "true\ncontext = 1\npipeline = 1\nschedule = \"1f1b\"\nvirtual_stages = 1\nexpert = 1\nbackend = "
        "\"auto\"\n[memory]\noffload = \"auto\"\n[device]\nkind = \"cpu\"\n");
  const Outcome usual = run("config show usual.toml");
  EXPECT_EQ(usual.code, 0) << usual.err;
}

TEST_F(CliTest, ConfigShowDiffSchema) {
  write("a.toml", "[model]\npreset = \"llama3-5m\"\n[data]\ntrain = [\"x.txt\"]\n");
  write("b.toml", "include = [\"a.toml\"]\n[optimizer]\nlr = 0.01\n");
  const Outcome shown = run("config show b.toml --set training.steps=7 --json");
  ASSERT_EQ(shown.code, 0) << shown.err;
  const auto keys = parse_json<nlohmann::json>(shown.out);
  EXPECT_EQ(keys["optimizer.lr"]["origin"], "b.toml:3");
  EXPECT_EQ(keys["model.preset"]["origin"], "a.toml:2");
  EXPECT_EQ(keys["training.steps"]["value"], 7);
  EXPECT_EQ(keys["optimizer.lr"]["value"], 0.01);
  EXPECT_EQ(keys["data.shuffle"]["value"], true);
  EXPECT_EQ(keys["data.train"]["value"], nlohmann::json::array({"x.txt"}));
  EXPECT_EQ(keys["device.threads"]["value"], "auto");
  EXPECT_EQ(keys["training.steps"]["origin"], "--set training.steps");
  EXPECT_EQ(keys["run.seed"]["resume"], "refused");
  EXPECT_TRUE(contains(run("config show a.toml").out, "training.sequence_length = 512"));
  const auto changes = parse_json<nlohmann::json>(run("config diff a.toml b.toml --json").out)["changes"];
  bool found = false;
  for (const auto& change : changes) found |= change["key"] == "optimizer.lr" && change["after"] == 0.01;
  EXPECT_TRUE(found) << changes;
  EXPECT_TRUE(parse_json<nlohmann::json>(run("config schema").out).contains("$schema"));
}

TEST_F(CliTest, ListsConfigurationErrorsTogether) {
  write("bad.toml",
        "[model]\npreset = \"x\"\n[data]\ntrain = \"a\"\n[training]\nstepz = 5\nsequence_length = 0\n");
  const Outcome bad = run("config show bad.toml");
  EXPECT_EQ(bad.code, 2);
  EXPECT_TRUE(bad.out.empty());
  EXPECT_TRUE(contains(bad.err, "bad.toml:6") && contains(bad.err, "did you mean \"steps\"?")) << bad.err;
  EXPECT_TRUE(contains(bad.err, "bad.toml:7")) << bad.err;
  EXPECT_EQ(run("config show nowhere.toml").code, 2);
}

// From raw text to a model in three lines.
TEST_F(CliTest, TrainsOnABuildWithOneLine) {
  std::string lines, text;
  for (int i = 0; i < 400; ++i) {
    text = "A document about the number " + std::to_string(i * 37 % 400) + " and what follows from it.";
    lines += dump_json(nlohmann::json{{"text", text}}) + "\n";
  }
  write("corpus.jsonl", lines);
  ASSERT_EQ(run("tokenizer train --input corpus.jsonl --vocab-size 300 --output tokenizer.json").code, 0);
  for (const char* format : {"strata", "datatrove"}) {
    write("recipe.toml", std::string("[build]\nfolder = \"") + format +
                             "\"\n[[source]]\nname = \"web\"\npath = \"corpus.jsonl\"\nmax_tokens = 60000\n"
                             "[output]\ntokens = { tokenizer = \"tokenizer.json\", format = \"" +
                             format + "\" }\n");
    const Outcome built = run("data build recipe.toml");
    ASSERT_EQ(built.code, 0) << built.err;
    EXPECT_TRUE(contains(built.out, std::string("strata train ") + format + " ")) << built.out;
    const std::string quick =
        " --set training.steps=2 --set training.global_batch_size=2 --set training.micro_batch_size=1 --set "
        "training.sequence_length=32 --set eval.sample_tokens=0";
    const Outcome trained = run(std::string("train ") + format + quick);
    ASSERT_EQ(trained.code, 0) << trained.err;
    EXPECT_TRUE(contains(trained.err, "epochs")) << trained.err;
    const config::RunConfig stored = config::read_run_config(folder_ / "runs" / format / "run.toml");
    ASSERT_EQ(stored.data.source.size(), 1u);
    EXPECT_EQ(stored.data.source[0].max_tokens, 60000);
    EXPECT_TRUE(std::filesystem::equivalent(stored.tokenizer.path, folder_ / format / "tokenizer.json"));
    // The same line resumes the run.
    EXPECT_EQ(run(std::string("train ") + format + quick).code, 0);
  }
}

TEST_F(CliTest, InitWritesAReadableConfiguration) {
  write("corpus.txt", "some text");
  const Outcome made = run("init --data corpus.txt");
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(run("config show RUN.toml").code, 0);
  const Outcome again = run("init");
  EXPECT_EQ(again.code, 2);
  EXPECT_TRUE(contains(again.err, "--force"));
  EXPECT_EQ(run("init gpt2-124m --force").code, 0);
  EXPECT_TRUE(contains(read_file(folder_ / "RUN.toml"), "preset = \"gpt2-124m\""));
  EXPECT_EQ(run("init --force --data nowhere").code, 2);
}

TEST(PresetForMachine, BothCoresAndMemoryAllowIt) {
  constexpr int64_t kGb = 1'000'000'000;
  EXPECT_EQ(models::preset_for_machine(2, 64 * kGb), "llama3-5m");
  EXPECT_EQ(models::preset_for_machine(4, 16 * kGb), "llama3-29m");
  EXPECT_EQ(models::preset_for_machine(64, 256 * kGb), "gpt2-124m");
  EXPECT_EQ(models::preset_for_machine(64, 6 * kGb), "llama3-29m") << "2 GB of state are too much";
  EXPECT_EQ(models::preset_for_machine(64, kGb), "llama3-5m");
}

// Paths in every file, as in --set, are relative to the current directory. Only those in `include` are
// relative to the including file.
TEST_F(CliTest, PathsInIncludedFilesAreRelativeToTheCurrentDirectory) {
  std::filesystem::create_directories(folder_ / "shared/deep");
  write("shared/base.toml", "include = [\"deep/model.toml\"]\n[data]\ntrain = [\"corpus.txt\"]\n");
  write("shared/deep/model.toml", "[model]\npreset = \"llama3-5m\"\n[tokenizer]\npath = \"t.json\"\n");
  write("run.toml", "include = [\"shared/base.toml\"]\n[run]\nfolder = \"trained\"\n");
  write("corpus.txt", "some text to train on, some text to train on\n");
  ASSERT_EQ(run("tokenizer train --input corpus.txt --vocab-size 280 --output t.json").code, 0);
  const Outcome outcome =
      run("train run.toml --dry-run --set training.sequence_length=8 "
          "--set training.global_batch_size=1");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  std::filesystem::rename(folder_ / "corpus.txt", folder_ / "shared/corpus.txt");
  const Outcome elsewhere = run("train run.toml --dry-run");
  EXPECT_EQ(elsewhere.code, 2);
  EXPECT_TRUE(contains(elsewhere.err, "corpus.txt")) << elsewhere.err;
}

TEST_F(CliTest, CompletionsKnowTheVerbs) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Outcome text = run(std::string("completions ") + shell);
    EXPECT_EQ(text.code, 0);
    EXPECT_TRUE(contains(text.out, "config") && contains(text.out, "schema")) << shell;
  }
  EXPECT_EQ(run("completions tcsh").code, 2);
  // Bash completes with them.
  ASSERT_EQ(run("completions bash").code, 0);
  std::filesystem::copy_file(folder_ / "out", folder_ / "completion.bash");
  const std::string script = "cd '" + folder_.string() +
                             "' && bash -c '. ./completion.bash; COMP_WORDS=(strata config sh); "
                             "COMP_CWORD=2; _strata; echo ${COMPREPLY[@]}' >reply";
  ASSERT_EQ(std::system(script.c_str()), 0);
  EXPECT_EQ(read_file(folder_ / "reply"), "show\n");
}

TEST_F(CliTest, ManualPages) {
  ASSERT_EQ(run("man share").code, 0);
  const std::string page = read_file(folder_ / "share/man/man1/strata-config.1");
  EXPECT_TRUE(contains(page, ".TH strata\\-config 1") && contains(page, "strata config diff")) << page;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "share/man/man1/strata.1"));
}

TEST_F(CliTest, TokenizerTrainsEncodesDecodes) {
  write("text.txt", "the cat sat on the mat\nthe cat sat\n");
  ASSERT_EQ(run("tokenizer train --input text.txt --vocab-size 270 --output t.json").code, 0)
      << read_file(folder_ / "err");
  write("in.jsonl",
        "{\"text\": \"the cat\"}\n{\"text\": \"\"}\n{\"text\": \"h\\u00e9\\u0000<|endoftext|>\"}");
  const Outcome encoded = run("tokenizer encode --tokenizer t.json --jsonl in.jsonl");
  ASSERT_EQ(encoded.code, 0) << encoded.err;
  EXPECT_EQ(std::count(encoded.out.begin(), encoded.out.end(), '\n'), 3) << encoded.out;
  EXPECT_TRUE(contains(encoded.out, "\n{\"ids\":[]}\n") && contains(encoded.out, ",0]}\n")) << encoded.out;
  write("ids.jsonl", encoded.out);
  const Outcome decoded = run("tokenizer decode --tokenizer t.json --jsonl ids.jsonl --skip-special-tokens");
  EXPECT_EQ(decoded.out, "{\"text\":\"the cat\"}\n{\"text\":\"\"}\n{\"text\":\"hé\\u0000\"}\n");
  write("bad.jsonl", "{\"text\": \"a\"}\n{\"txt\": \"a\"}\n");
  const Outcome bad = run("tokenizer encode --tokenizer t.json --jsonl bad.jsonl");
  EXPECT_EQ(bad.code, 3);
  EXPECT_TRUE(contains(bad.err, "bad.jsonl:2")) << bad.err;
  EXPECT_EQ(run("tokenizer info --tokenizer nowhere.json").code, 2);
  write("broken.json", "{");
  EXPECT_EQ(run("tokenizer info --tokenizer broken.json").code, 3);
  EXPECT_EQ(parse_json<nlohmann::json>(run("tokenizer info --tokenizer t.json --json").out)["end_of_text_id"],
            0);
}

TEST_F(CliTest, AFullDiskIsAnError) {
  const std::string command = "'" STRATA_PROGRAM "' config schema >/dev/full 2>/dev/null";
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 4);
}

TEST_F(CliTest, DoctorNamesTheMachine) {
  const Outcome quick = run("doctor --quick --json");
  ASSERT_EQ(quick.code, 0) << quick.err;
  const auto found = parse_json<nlohmann::json>(quick.out);
  EXPECT_GE(found["device"]["cores"], 1);
  EXPECT_TRUE(found["libraries"].contains("oneDNN"));
  EXPECT_TRUE(contains(run("doctor --quick").out, "instructions"));
}

// The limits of this process, if any, and their sources (tests/base/control_group_test.cpp has made-up
// limits).
TEST_F(CliTest, DoctorNamesTheLimits) {
  const auto limits = parse_json<nlohmann::json>(run("doctor --quick --json").out)["limits"];
  for (const char* key : {"processors", "cpu_quota", "memory", "memory_left"}) {
    ASSERT_TRUE(limits.contains(key)) << key;
    EXPECT_TRUE(limits[key].is_null() || limits[key].contains("source")) << dump_json(limits);
  }
  if (available_processors() == 1) GTEST_SKIP() << "there is only one processor";
  const fixtures::Environment threads("OMP_NUM_THREADS", "1");
  EXPECT_TRUE(
      contains(run("doctor --quick").out, "1 that this process may use, limited by OMP_NUM_THREADS=1"));
}

TEST(ExamplesTest, AreValid) {
  // The data build on which one example trains.
  const ScratchFolder built;
  put_file(
      built / "sources.toml",
      "[tokenizer]\npath = \"tokenizer.json\"\n[[data.source]]\nname = \"a\"\npath = [\"tokens/a.bin\"]\n");
  size_t seen = 0;
  for (const auto& file : std::filesystem::directory_iterator(STRATA_EXAMPLES)) {
    if (file.path().extension() != ".toml") continue;
    std::vector<std::string> sets;
    if (contains(read_file(file.path()), "\nbuild = "))
      sets.push_back("data.build=\"" + built.path().string() + "\"");
    const auto config = config::read_run_config(file.path(), sets);
    for (const auto& issue : config::validate(config)) ADD_FAILURE() << issue.to_string();
    for (const auto& warning : config::warnings(config)) ADD_FAILURE() << warning.to_string();
    ++seen;
  }
  EXPECT_GE(seen, 3u);
}

}  // namespace
}  // namespace strata
