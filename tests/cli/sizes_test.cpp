// Impossible sizes in a config.json or a configuration: every verb rejects them before it plans or allocates
// anything.
#include <gtest/gtest.h>

#include <vector>

#include "base/json.h"
#include "fixtures/cli_fixture.h"

namespace strata {
namespace {

class SizesTest : public CliTest {
 protected:
  // A valid model with these fields of its config.json changed.
  void make_model(const nlohmann::json& changes) {
    std::filesystem::remove_all(folder_ / "m");
    std::filesystem::copy(STRATA_TEST_MODEL, folder_ / "m");
    auto config = parse_json<nlohmann::json>(read_file(folder_ / "m/config.json"));
    config.update(changes);
    write("m/config.json", dump_json(config));
    write("a.txt", std::string(3000, 'a') + "\n");
    write("r.toml",
          "[run]\nfolder = \"run\"\n[model]\nfrom = \"m\"\n[data]\ntrain = [\"a.txt\"]\n[training]\n"
          "sequence_length = 16\nsteps = 2\n[memory]\nbudget = \"2GB\"\n");
  }
  // Limits the process to some gigabytes, so that an error does not exhaust the machine.
  Outcome limited(const std::string& arguments) { return run(arguments, "ulimit -v 12000000;"); }
};

constexpr const char* kVerbsOfModels[] = {"generate --model m --prompt hi --max-tokens 3",
                                          "eval --model m --text a.txt --sequence-length 16",
                                          "checkpoint export m exported",
                                          "checkpoint export m exported.gguf --format gguf",
                                          "checkpoint import m imported",
                                          "explain r.toml",
                                          "train r.toml --dry-run"};

TEST_F(SizesTest, EveryVerbRejectsThoseOfAModelDirectory) {
  const auto refused = [&](const char* verb) {
    const Outcome outcome = limited(verb);
    EXPECT_TRUE(outcome.code == 2 || outcome.code == 3) << verb << outcome.code << outcome.err;
    EXPECT_TRUE(contains(outcome.err, "config.json") || contains(outcome.err, "model.from"))
        << verb << outcome.err;
  };
  for (const nlohmann::json& change : {nlohmann::json{{"intermediate_size", int64_t{1} << 34}},
                                       nlohmann::json{{"num_hidden_layers", 1000000000}}}) {
    make_model(change);
    for (const char* verb : kVerbsOfModels) refused(verb);
  }
  for (const nlohmann::json& change :
       {nlohmann::json{{"hidden_size", int64_t{1} << 40}}, nlohmann::json{{"vocab_size", int64_t{1} << 31}},
        nlohmann::json{{"num_attention_heads", 9223372036854775807}},
        nlohmann::json{{"max_position_embeddings", 9223372036854775807}},
        nlohmann::json{{"vocab_size", 18446744073709551615u}}}) {
    SCOPED_TRACE(dump_json(change));
    make_model(change);
    for (const char* verb : {"generate --model m --prompt hi --max-tokens 3", "explain r.toml"})
      refused(verb);
  }
}

// Possible sizes that differ from those of the weights.
TEST_F(SizesTest, EveryVerbRejectsThoseThatTheWeightsLack) {
  for (const nlohmann::json& change : {nlohmann::json{{"vocab_size", 2147483000}},
                                       nlohmann::json{{"hidden_size", 1 << 20}, {"head_dim", 256}}}) {
    make_model(change);
    for (const char* verb : kVerbsOfModels) {
      const Outcome outcome = limited(verb);
      EXPECT_EQ(outcome.code, 3) << change << " " << verb << outcome.err;
      EXPECT_TRUE(contains(outcome.err, "check that config.json belongs to it")) << verb << outcome.err;
    }
  }
}

TEST_F(SizesTest, AcceptsPossibleOnes) {
  make_model(nlohmann::json::object());
  for (const char* verb : kVerbsOfModels)
    EXPECT_EQ(limited(verb).code, 0) << verb << read_file(folder_ / "err");
}

// Valid files of a model larger than the memory of any test machine.
TEST_F(SizesTest, RejectsAModelLargerThanTheMemory) {
  constexpr int64_t kVocab = int64_t{1} << 27, kWidth = 8192;
  make_model({{"vocab_size", kVocab},
              {"hidden_size", kWidth},
              {"intermediate_size", 1},
              {"num_hidden_layers", 1},
              {"tie_word_embeddings", true}});
  nlohmann::json header;
  int64_t at = 0;
  const auto tensor = [&](const std::string& name, const std::vector<int64_t>& shape) {
    int64_t bytes = 2;
    for (const int64_t size : shape) bytes *= size;
    header[name] = {{"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {at, at + bytes}}};
    at += bytes;
  };
  const std::string layer = "model.layers.0.";
  tensor("model.embed_tokens.weight", {kVocab, kWidth});
  tensor("model.norm.weight", {kWidth});
  for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
    tensor(layer + norm + ".weight", {kWidth});
  tensor(layer + "self_attn.q_proj.weight", {24, kWidth});
  tensor(layer + "self_attn.k_proj.weight", {8, kWidth});
  tensor(layer + "self_attn.v_proj.weight", {8, kWidth});
  tensor(layer + "self_attn.o_proj.weight", {kWidth, 24});
  tensor(layer + "mlp.gate_proj.weight", {1, kWidth});
  tensor(layer + "mlp.up_proj.weight", {1, kWidth});
  tensor(layer + "mlp.down_proj.weight", {kWidth, 1});
  const std::string text = dump_json(header);
  const auto size = static_cast<uint64_t>(text.size());
  const Path file = write("m/model.safetensors", std::string(reinterpret_cast<const char*>(&size), 8) + text);
  std::error_code error;  // a sparse file
  std::filesystem::resize_file(file, 8 + text.size() + static_cast<uint64_t>(at), error);
  if (error) GTEST_SKIP() << "cannot make a file of 2 TB here: " << error.message();
  for (const char* verb : {kVerbsOfModels[0], kVerbsOfModels[1], "checkpoint import m imported"}) {
    const Outcome outcome = run(verb);
    EXPECT_EQ(outcome.code, 4) << verb << outcome.err;
    EXPECT_TRUE(contains(outcome.err, "[memory]") && contains(outcome.err, "are free on this machine"))
        << outcome.err;
  }
}

// The tokenizer of another model.
TEST_F(SizesTest, AnIdBeyondTheVocabularyIsAUserError) {
  make_model(nlohmann::json::object());
  std::filesystem::copy_file(STRATA_TEST_MODEL "/../../../models/golden/llama-tied/config.json",
                             folder_ / "m/config.json", std::filesystem::copy_options::overwrite_existing);
  std::filesystem::copy_file(STRATA_TEST_MODEL "/../../../models/golden/llama-tied/model.safetensors",
                             folder_ / "m/model.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  const Outcome outcome = limited("generate --model m --prompt 'the whole text' --max-tokens 3");
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "use the model's own tokenizer")) << outcome.err;
}

// A model of a thousand gigabytes is planned without allocating it.
TEST_F(SizesTest, ExplainsALargeModel) {
  write("a.txt", std::string(3000, 'a') + "\n");
  const std::string large =
      "a.txt --set model.preset=llama3.1-405b --set run.folder=r --set memory.budget=\"8TB\" "
      "--set training.sequence_length=8192 --set training.global_batch_size=2";
  // The plan for a processor that multiplies fp32 masters; weights packed for bf16 take another 0.8 TB.
  const Outcome explained = run("explain " + large, "STRATA_MAX_CPU_ISA=avx512");
  EXPECT_EQ(explained.code, 0) << explained.err;
  EXPECT_TRUE(contains(explained.out, "406B parameters") && !contains(explained.out, "does not fit"))
      << explained.out;
  // Without a budget, training is rejected before any text is read.
  const Outcome trained =
      limited("train a.txt --set model.preset=llama3.1-405b --set run.folder=r --dry-run");
  EXPECT_EQ(trained.code, 2) << trained.err;
  EXPECT_TRUE(contains(trained.err, "memory.budget")) << trained.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "r/data")) << "nothing was tokenized";
  // More than the machine has, even if the budget allows it.
  const Outcome beyond =
      run("train " + large + " --set training.sequence_length=8 --set memory.budget=\"9000TB\" --dry-run");
  EXPECT_EQ(beyond.code, 4) << beyond.err;
  EXPECT_TRUE(contains(beyond.err, "are free on this machine")) << beyond.err;
}

TEST_F(SizesTest, ChecksThoseOfAStep) {
  write("a.txt", std::string(3000, 'a') + "\n");
  const std::string small = " --set model.preset=llama3-5m --set run.folder=r --set memory.budget=2GB --set ";
  for (const char* set :
       {"training.sequence_length=1099511627776", "training.micro_batch_size=9223372036854775807",
        "training.global_batch_size=4294967296", "model.override.intermediate_size=17179869184",
        "model.override.hidden_size=1099511627776", "model.override.num_hidden_layers=1000000000",
        "model.override.vocab_size=2147483648", "model.override.rms_norm_eps=nan",
        "model.override.rms_norm_eps=1e300", "model.override.rope_theta=inf",
        "model.override.bos_token_id=1e30"}) {
    for (const char* verb : {"explain a.txt", "train a.txt --dry-run"}) {
      const Outcome outcome = limited(verb + small + set);
      EXPECT_EQ(outcome.code, 2) << verb << set << outcome.err;
      EXPECT_LT(outcome.err.size(), 600u) << outcome.err;
    }
  }
}

TEST_F(SizesTest, RejectsAnUnknownInstructionSet) {
  write("a.txt", std::string(3000, 'a') + "\n");
  const Outcome refused = run("explain a.txt --set run.folder=r", "STRATA_MAX_CPU_ISA=sse9");
  EXPECT_EQ(refused.code, 2);
  EXPECT_TRUE(
      contains(refused.err, "STRATA_MAX_CPU_ISA=sse9: expected baseline, avx2, avx512, avx512_bf16, amx"))
      << refused.err;
}

// An automatic micro-batch fits the budget.
TEST_F(SizesTest, AnAutoMicroBatchFitsTheBudget) {
  write("a.txt", std::string(3000, 'a') + "\n");
  const auto micro_batch = [&](const std::string& budget) {
    const Outcome shown =
        run("explain a.txt --set model.preset=llama3-5m --set run.folder=r --set "
            "training.sequence_length=256 --set training.global_batch_size=16 --set memory.budget=" +
            budget);
    EXPECT_EQ(shown.code, 0) << shown.err;
    EXPECT_FALSE(contains(shown.out, "does not fit")) << budget << shown.out;
    const size_t at = shown.out.find(" per micro-batch");
    return shown.out.substr(shown.out.rfind(' ', at - 1) + 1, at - shown.out.rfind(' ', at - 1) - 1);
  };
  EXPECT_EQ(micro_batch("2GB"), "8");
  EXPECT_LT(std::stoi(micro_batch("110MB")), 8);
}

// The requested rank of a pipeline is shown, whichever rank does not fit.
TEST_F(SizesTest, ExplainsAPipelineThatDoesNotFit) {
  write("a.txt", std::string(3000, 'a') + "\n");
  const auto explained = [&](const std::string& budget, const std::string& more) {
    const Outcome shown =
        run("explain a.txt --ranks 4 --set model.preset=llama3-5m --set run.folder=r --set "
            "training.sequence_length=256 --set training.global_batch_size=16 --set parallel.pipeline=4 "
            "--set model.override.num_hidden_layers=8 --set parallel.schedule=interleaved "
            "--set parallel.virtual_stages=2 --set memory.budget=" +
            budget + " " + more);
    EXPECT_EQ(shown.code, 0) << more << shown.err;
    return shown.out;
  };
  for (const int rank : {0, 2, 3}) {
    const std::string shown = explained("20MB", fmt::format("--rank {}", rank));
    EXPECT_TRUE(contains(shown, "does not fit")) << shown;
    EXPECT_TRUE(contains(shown, fmt::format("rank {0}: stage {0}, {1} of 8", rank, rank + 4))) << shown;
  }
  EXPECT_FALSE(contains(explained("1GB", ""), "does not fit"));
}

}  // namespace
}  // namespace strata
