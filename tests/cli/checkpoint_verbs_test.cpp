// strata checkpoint and other verbs on intact and damaged checkpoints of a run, the newest and the best.

#include "base/json.h"
#include "fixtures/cli_fixture.h"
#include "fixtures/tiny_run.h"

namespace strata::training {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

void flip(const Path& path, size_t from_end) {
  std::string bytes = read_file(path);
  char& byte = bytes[bytes.size() - from_end];
  byte = static_cast<char>(byte ^ 1);
  put_file(path, bytes);
}

class CheckpointVerbs : public CliTest {
 protected:
  static void SetUpTestSuite() {
    tiny_ = new TinyRun;
    put_tokens(tiny_->path("held.bin"), tiny_tokens(400, 3));
    tiny_->train(sets(), "whole");
  }
  static void TearDownTestSuite() {
    delete tiny_;
    tiny_ = nullptr;
  }
  static std::vector<std::string> sets() {
    return {"data.valid=[\"" + tiny_->path("held.bin").string() + "\"]",
            "eval.interval=\"1 steps\"",
            "eval.sample_tokens=0",
            "checkpoint.interval=\"1 steps\"",
            "checkpoint.keep_last=2",
            "checkpoint.keep_every=\"4 steps\""};
  }
  void SetUp() override {
    CliTest::SetUp();
    fs::copy(tiny_->folder("whole"), run_folder(), fs::copy_options::recursive);
  }
  Path run_folder() const { return folder_ / "r"; }
  Path step(int64_t number) const {
    return run_folder() / "checkpoints" / ("step-0000000" + std::to_string(number));
  }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> found;
    for (int64_t number = 1; number <= 9; ++number)
      if (fs::exists(step(number))) found.push_back(number);
    return found;
  }
  std::string eval_of(const std::string& model) const {
    return "eval --sequence-length 16 --set device.threads=1 --json --tokens " +
           tiny_->path("held.bin").string() + " --model " + model;
  }

  static TinyRun* tiny_;
};
TinyRun* CheckpointVerbs::tiny_ = nullptr;

TEST_F(CheckpointVerbs, VerifyDistinguishesIntactDamagedAndUnverifiable) {
  ASSERT_EQ(run("checkpoint export r model").code, 0);
  for (const std::string& model : std::vector<std::string>{"r/final", "model"}) {
    const Path path = folder_ / model;
    EXPECT_EQ(run("checkpoint verify " + model).code, 0);
    json answer = parse_json<json>(run("checkpoint verify --json " + model).out);
    EXPECT_TRUE(answer["whole"] == true && answer["verified"] == true) << answer;
    flip(path / "model.safetensors", 2);
    EXPECT_EQ(run("checkpoint verify " + model).code, 3) << "a flipped bit of a weight";
    flip(path / "model.safetensors", 2);
    const std::string config = read_file(path / "config.json");
    put_file(path / "config.json", config + " ");
    const Outcome edited = run("checkpoint verify --json " + model);
    EXPECT_EQ(edited.code, 3);
    answer = parse_json<json>(edited.out);
    EXPECT_TRUE(answer["whole"] == false && answer["verified"] == false) << answer;
    put_file(path / "config.json", config);
    EXPECT_EQ(run("checkpoint verify " + model).code, 0);
    fs::remove(path / "checksums.json");
    const Outcome without = run("checkpoint verify " + model);
    EXPECT_EQ(without.code, 0);
    EXPECT_TRUE(contains(without.out, "cannot be verified")) << without.out;
    answer = parse_json<json>(run("checkpoint verify --json " + model).out);
    EXPECT_TRUE(answer["whole"] == true && answer["verified"] == false) << answer;
  }
}

TEST_F(CheckpointVerbs, LatestIsTheStepItNames) {
  const std::string latest = "r/checkpoints/latest";
  const Outcome verified = run("checkpoint verify " + latest);
  EXPECT_EQ(verified.code, 0) << verified.err;
  EXPECT_TRUE(contains(verified.out, "step-00000006")) << verified.out;
  put_file(run_folder() / "checkpoints/latest", "step-00000005\n");
  EXPECT_EQ(parse_json<json>(run("checkpoint inspect --json " + latest).out)["step"], 5);
  EXPECT_EQ(run("checkpoint export " + latest + " model --dtype fp32").code, 0);
  EXPECT_EQ(run("checkpoint diff --json model " + step(5).string()).code, 0);
  EXPECT_EQ(run(eval_of(latest)).out, run(eval_of(step(5).string())).out);
  // For resuming a run from a checkpoint, and for starting a new one with its weights.
  write("RUN.toml", tiny_->toml("other"));
  const std::string train = "train RUN.toml --set run.folder=" + (folder_ / "s").string();
  const Outcome resumed = run(train + " --resume " + latest);
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_TRUE(contains(resumed.err, "after step 5")) << resumed.err;
  for (const std::string& from : {latest, std::string("r"), std::string("r@best")}) {
    write("from.toml", "[model]\nfrom = \"" + from + "\"\n[data]\ntrain = [\"" +
                           tiny_->path("train.bin").string() +
                           "\"]\n[training]\nsequence_length = 16\nglobal_batch_size = 4\nsteps = 1\n"
                           "[precision]\ncompute = \"fp32\"\n");
    const Outcome begun = run("train from.toml --set run.folder=\"" +
                              (folder_ / ("f" + from.substr(0, 3))).string() + "\" --resume never --dry-run");
    EXPECT_EQ(begun.code, 0) << from << begun.err;
  }
}

// A request for the newest checkpoint returns it or an error; a run resumes from the newest good one.
TEST_F(CheckpointVerbs, NamesADamagedNewestCheckpoint) {
  const Path weights = step(6) / "model.safetensors";
  const std::string whole = read_file(weights);
  const std::vector<std::string> verbs{"checkpoint verify ", "checkpoint inspect ",
                                       "checkpoint export --dtype bf16 "};
  put_file(weights, whole.substr(0, whole.size() - 1));
  for (const std::string& name : std::vector<std::string>{"r", "r@latest"}) {
    for (const std::string& verb : verbs) {
      const Outcome outcome = run(verb + name + (contains(verb, "export") ? " model" : ""));
      EXPECT_EQ(outcome.code, 3) << verb << name;
      EXPECT_TRUE(contains(outcome.err, "step-00000006")) << verb << outcome.err;
    }
    const Outcome outcome = run(eval_of(name));
    EXPECT_EQ(outcome.code, 3);
    EXPECT_TRUE(contains(outcome.err, "step-00000006") && contains(outcome.err, "step-00000005"))
        << outcome.err;
  }
  EXPECT_FALSE(fs::exists(folder_ / "model"));
  const json answer = parse_json<json>(run("checkpoint verify --json r").out);
  EXPECT_TRUE(answer["whole"] == false && answer["verified"] == false) << answer;
  EXPECT_TRUE(contains(dump_json(answer["faults"]), "step-00000006")) << answer;
  write("RUN.toml", tiny_->toml("other"));
  std::string train = "train RUN.toml --set run.folder=" + run_folder().string();
  for (const std::string& set : sets()) train += " --set '" + set + "'";
  const Outcome resumed = run(train);
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_TRUE(contains(resumed.err, "step-00000006") && contains(resumed.err, "skipped")) << resumed.err;
}

// A weight that changed but is still finite.
TEST_F(CheckpointVerbs, DoesNotUseAFlippedWeight) {
  flip(step(6) / "model.safetensors", 3);
  const Outcome evaluated = run(eval_of("r"));
  EXPECT_EQ(evaluated.code, 3);
  EXPECT_TRUE(contains(evaluated.err, "checksum")) << evaluated.err;
  EXPECT_EQ(run("checkpoint export r model").code, 3);
  EXPECT_EQ(run("checkpoint export r model.gguf --format gguf").code, 3);
  EXPECT_EQ(run("checkpoint verify r").code, 3);
}

TEST_F(CheckpointVerbs, InspectPrintsShapesAsLists) {
  for (const auto& tensor : parse_json<json>(run("checkpoint inspect --json r").out)["tensors"]) {
    ASSERT_TRUE(tensor["shape"].is_array()) << tensor;
    if (tensor["name"] == "model.embed_tokens.weight") {
      EXPECT_EQ(tensor["shape"], json({300, 32}));
    }
  }
}

TEST_F(CheckpointVerbs, PruneKeepsTheSameAsTheRun) {
  EXPECT_EQ(steps(), (std::vector<int64_t>{4, 5, 6}));
  EXPECT_EQ(parse_json<json>(run("checkpoint prune --json r").out)["removed"].size(), 0u);
  // A metric that was never measured must not make pruning delete the best one.
  const Outcome wrong = run("checkpoint prune r --keep-last 1 --best-metric eval/vaild/loss");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_TRUE(contains(wrong.err, "eval/valid/loss")) << wrong.err;
  EXPECT_EQ(steps().size(), 3u);
  {
    const FileLock running(run_folder() / ".lock");
    for (const char* folder : {"r", "r/checkpoints", "r/checkpoints/"}) {
      const Outcome outcome = run(std::string("checkpoint prune --keep-last 1 ") + folder);
      EXPECT_EQ(outcome.code, 2) << "a trainer is running";
    }
    EXPECT_EQ(steps().size(), 3u);
  }
  EXPECT_EQ(run("checkpoint prune r/checkpoints/").code, 0);
  EXPECT_EQ(run("checkpoint prune r --keep-last 1").code, 0);
  EXPECT_TRUE(fs::exists(step(4)) && fs::exists(step(6))) << "keep_every is the run's";
  EXPECT_EQ(run("checkpoint prune r --keep-last 1 --keep-every 0 --keep-best 0").code, 0);
  EXPECT_EQ(steps(), std::vector<int64_t>{6});
}

}  // namespace
}  // namespace strata::training
