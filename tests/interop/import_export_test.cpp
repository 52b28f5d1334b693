// Formats of other programs: GGUF files against those of the `gguf` package (make_gguf_golden.py), and
// Megatron-LM's checkpoints (make_megatron_checkpoint.py) against the models that they were made from.
#include <filesystem>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/huggingface.h"
#include "cli/actions.h"
#include "fixtures/tiny_run.h"
#include "interop/gguf_experts.h"
#include "interop/gguf_model.h"
#include "interop/megatron.h"

namespace strata::training {
namespace {

Path data(const std::string& name) {
  return Path(STRATA_TEST_DATA) / "checkpoint" / name;
}

struct Refusal {
  int code = 0;
  std::string message;
};
Refusal quietly(int (*verb)(const cli::ConvertOptions&), const cli::ConvertOptions& options) {
  set_log_level(LogLevel::kError);
  testing::internal::CaptureStdout();
  Refusal refusal;
  try {
    verb(options);
  } catch (const Error& error) {
    refusal = {exit_code(error.kind()), error.what()};
  }
  testing::internal::GetCapturedStdout();
  return refusal;
}

void expect_contains(const Refusal& refusal, int code, const std::vector<std::string>& parts) {
  EXPECT_EQ(refusal.code, code) << refusal.message;
  for (const auto& part : parts) EXPECT_NE(refusal.message.find(part), std::string::npos) << refusal.message;
}

TEST(Gguf, MatchesTheReferenceWriterByteForByte) {
  for (const auto& [name, dtype] :
       std::map<std::string, std::string>{{"llama-tied", "fp16"}, {"llama-untied", "bf16"},
                                          {"gpt2", "fp32"},       {"llama-biases-yarn", "fp16"},
                                          {"mistral", "fp16"},    {"qwen2", "fp16"},
                                          {"qwen3", "fp16"},      {"olmo", "fp16"},
                                          {"olmo2", "fp16"},      {"gemma2", "fp16"},
                                          {"gemma3", "fp16"},     {"phi3", "fp16"},
                                          {"gpt-neox", "fp16"},   {"starcoder2", "fp16"},
                                          {"stablelm", "fp16"},   {"mixtral", "fp16"},
                                          {"olmoe", "fp16"},      {"qwen3-moe", "fp16"},
                                          {"gpt-oss", "bf16"},    {"deepseek-v3-moe", "fp16"},
                                          {"llama4", "fp16"},     {"qwen2-moe", "fp16"},
                                          {"glm4-moe", "fp16"},   {"qwen3-next", "fp32"},
                                          {"qwen3-5", "fp32"},    {"qwen3-5-moe", "fp32"},
                                          {"mamba2", "fp32"},     {"granite-hybrid", "fp32"},
                                          {"falcon-h1", "fp32"},  {"lfm2-moe", "fp32"},
                                          {"olmo3", "fp32"},      {"minimax-m2", "fp32"},
                                          {"glm-moe-dsa", "fp32"}}) {
    ScratchFolder scratch;
    const Path model = scratch / name;
    std::filesystem::copy(Path(STRATA_GOLDEN_MODELS) / name, model);
    if (name == "llama-tied" || name == "llama-untied")
      std::filesystem::copy(data("gguf/tokenizer.json"), model / "tokenizer.json");
    if (const Path config = data("gguf/" + name + "-config.json"); std::filesystem::exists(config))
      put_file(model / "config.json", read_file(config));
    if (const Path weights = data("gguf/" + name + "-model.safetensors"); std::filesystem::exists(weights))
      put_file(model / "model.safetensors", read_file(weights));
    const Path out = scratch / "new/model.gguf";
    ASSERT_EQ(
        quietly(cli::run_export, {.source = model.string(), .target = out, .dtype = dtype, .format = "gguf"})
            .message,
        "");
    EXPECT_TRUE(read_file(out) == read_file(data("gguf/" + name + "-" + dtype + ".gguf"))) << name;
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(out.parent_path()), {}), 1) << "leftovers";
  }
}

// The reference takes scores and types from SentencePiece's own files, we derive them from tokenizer.json.
TEST(Gguf, WritesSentencePieceTokenizersByteForByte) {
  const Path kinds = Path(STRATA_TEST_DATA) / "tokenizer/kinds";
  for (const auto& [json, golden, size, bos] : {std::tuple{"llama2_legacy", "spm_bpe_bytes", 600, true},
                                                std::tuple{"llama2_first", "spm_bpe_bytes", 600, true},
                                                std::tuple{"t5", "spm_unigram_rules", 308, false}}) {
    ScratchFolder scratch;
    put_file(scratch / "tokenizer.json", read_file(kinds / (std::string(json) + ".json")));
    models::ModelConfig model;
    model.vocab_size = size + 3;
    model.eos_id = 2;
    if (bos) model.bos_id = 1;
    interop::GgufFields fields{{"general.architecture", std::string("llama")}};
    interop::add_tokenizer(fields, scratch / "", model);
    const Path out = scratch / "out.gguf";
    interop::write_gguf(posix_file_system(), out, fields, {});
    EXPECT_TRUE(read_file(out) == read_file(data("gguf/" + std::string(golden) + ".gguf"))) << json;
  }
}

TEST(Gguf, RefusesTokenizersThatLlamaCppReadsDifferently) {
  const Path kinds = Path(STRATA_TEST_DATA) / "tokenizer/kinds";
  models::ModelConfig model;
  model.vocab_size = 1000;
  model.eos_id = 0;
  ScratchFolder scratch;
  const auto message_of = [&](const std::string& name, const std::string& from = "",
                              const std::string& to = "") {
    std::string text = read_file(kinds / (name + ".json"));
    if (const size_t at = text.find(from); !from.empty() && at != std::string::npos)
      text.replace(at, from.size(), to);
    put_file(scratch / "tokenizer.json", text);
    interop::GgufFields fields;
    set_log_level(LogLevel::kError);
    try {
      interop::add_tokenizer(fields, scratch / "", model);
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto expect_part = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  EXPECT_EQ(message_of("olmo2"), "");
  EXPECT_EQ(message_of("xlmr"), "");
  expect_part(message_of("bert"), "neither BPE nor unigram");
  expect_part(message_of("unigram_bytes"), "byte fallback");
  expect_part(message_of("olmo2", "\"behavior\":\"Removed\"", "\"behavior\":\"Contiguous\""),
              "split of text");
  expect_part(message_of("olmo2", "\"normalizer\":null", "\"normalizer\":{\"type\":\"Lowercase\"}"),
              "normalizer");
  expect_part(message_of("llama2_legacy", "\"Prepend\"", "\"Append\""), "other than SentencePiece's");
  // "he" is a token, and h + e makes it: without the pair SentencePiece would still join them.
  expect_part(message_of("llama2_legacy", "[\"h\",\"e\"],", ""), "leave out a pair");
  expect_part(message_of("llama2_legacy", "[\"o\",\"n\"],", "[\"o\",\"n\"],[\"e\",\"r\"],[\"o\",\"n\"],"),
              "two ranks");
}

TEST(Gguf, RefusesModelsThatItCannotExpress) {
  ScratchFolder scratch;
  const Path model = scratch / "model";
  std::filesystem::copy(Path(STRATA_GOLDEN_MODELS) / "llama-tied", model);
  const std::string good = read_file(data("gguf/tokenizer.json"));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    put_file(model / "tokenizer.json", text);
    return quietly(cli::run_export,
                   {.source = model.string(), .target = scratch / "out.gguf", .format = "gguf"});
  };
  EXPECT_EQ(with("BPE", "BPE").message, "");
  std::filesystem::remove(scratch / "out.gguf");
  expect_contains(with("\"BPE\"", "\"Unigram\""), 3,
                  {"tokenizer.json", "unigram tokenizer without an unknown token"});
  expect_contains(with("\"use_regex\": true", "\"use_regex\": false"), 3, {"split of text"});
  expect_contains(with("\"a\": 2", "\"a\": 131"), 3, {"token 131", "vocabulary of 131"});
  // An added token without a row in the model is left out.
  EXPECT_EQ(with("\"id\": 1", "\"id\": 131").message, "");
  std::filesystem::remove(scratch / "out.gguf");
  expect_contains(with("\"vocab\"", "\"volab\""), 3, {"tokenizer.json"});
  put_file(model / "tokenizer.json", good);
  std::string config = read_file(model / "config.json");
  config.replace(config.find("\"rope_type\": \"default\""), 22, "\"rope_type\": \"cubic\"");
  put_file(model / "config.json", config);
  EXPECT_EQ(
      quietly(cli::run_export, {.source = model.string(), .target = scratch / "out.gguf", .format = "gguf"})
          .code,
      3);
  EXPECT_FALSE(std::filesystem::exists(scratch / "out.gguf"));
  expect_contains(
      quietly(cli::run_export, {.source = model.string(), .target = scratch / "out", .format = "onnx"}), 2,
      {"--format", "onnx"});
}

// llama.cpp fixes many properties of experts by the architecture.
TEST(Gguf, NamesThePropertyOfExpertsThatItCannotExpress) {
  for (const auto& [name, message] :
       std::vector<std::pair<std::string, std::string>>{{"olmoe", "clipped q, k and v"},
                                                        {"gpt-oss", "gates clamped"},
                                                        {"qwen2-moe", "layers without experts"},
                                                        {"deepseek-v2-moe", "not from its best two"},
                                                        {"deepseek-v3", "biases"},
                                                        {"deepseek-v3-half", "a model without experts"},
                                                        {"llama4", "attention chunks"},
                                                        {"llama4-top2", "attention chunks"}}) {
    const ScratchFolder scratch;
    expect_contains(quietly(cli::run_export, {.source = (Path(STRATA_GOLDEN_MODELS) / name).string(),
                                              .target = scratch / "out.gguf",
                                              .format = "gguf"}),
                    3, {message});
    EXPECT_FALSE(std::filesystem::exists(scratch / "out.gguf")) << name;
  }
}

TEST(Gguf, NamesThePropertyOfHybridsThatItCannotExpress) {
  for (const auto& [name, message] : std::vector<std::pair<std::string, std::string>>{
           {"kimi-linear", "groups of experts"},
           {"smollm3", "other than every fourth"},
           {"olmo-hybrid", "olmo_hybrid models are not supported"}}) {
    const ScratchFolder scratch;
    expect_contains(quietly(cli::run_export, {.source = (Path(STRATA_GOLDEN_MODELS) / name).string(),
                                              .target = scratch / "out.gguf",
                                              .format = "gguf"}),
                    3, {message});
    EXPECT_FALSE(std::filesystem::exists(scratch / "out.gguf")) << name;
  }
}

// llama.cpp recognizes models by their number of layers, and by their width.
TEST(Gguf, RefusesSizesThatItTakesForAnotherModel) {
  const auto message_of = [](const char* preset, const char* arch, int64_t layers, int64_t kv_heads = 0) {
    models::ModelConfig model = models::preset(preset);
    if (layers > 0) model.layers = layers;
    if (kv_heads > 0) model.kv_heads = kv_heads;
    return std::string(interop::inexpressible(arch, model).value_or(""));
  };
  for (const char* lite : {"deepseek-v2-lite", "moonlight-16b-a3b"}) {
    EXPECT_EQ(message_of(lite, "deepseek2", 0), "") << lite;
    EXPECT_NE(message_of(lite, "deepseek2", 28).find("queries without a latent"), std::string::npos) << lite;
  }
  for (const char* whole : {"deepseek-v3", "kimi-k2"}) {
    EXPECT_EQ(message_of(whole, "deepseek2", 0), "") << whole;
    EXPECT_NE(message_of(whole, "deepseek2", 27).find("a query latent"), std::string::npos) << whole;
  }
  EXPECT_EQ(message_of("olmoe-1b-7b", "olmoe", 0), "");
  EXPECT_NE(message_of("olmoe-1b-7b", "olmoe", 0, 8).find("fewer key heads"), std::string::npos);
  for (const char* glm : {"glm-4.5-air", "glm-4.5"}) EXPECT_EQ(message_of(glm, "glm4moe", 0), "") << glm;
}

std::vector<float> floats_of(const Path& folder, const std::string& name) {
  const auto source = checkpoint::open_tensors(folder);
  const auto& entry = source.tensors.at(name);
  std::vector<float> values(static_cast<size_t>(entry.tensor->shape.elements()));
  checkpoint::read_tensor(*entry.file, *entry.tensor,
                          {name, entry.tensor->shape, DType::kF32, checkpoint::in_memory(values.data())});
  return values;
}

TEST(Megatron, ImportsTheModelThatItWasMadeFrom) {
  for (const auto& [folder, golden, dtype] :
       {std::tuple{"megatron/llama", "llama-untied", DType::kF16},
        std::tuple{"megatron/llama/iter_0000040", "llama-untied", DType::kF16},
        std::tuple{"megatron/gpt", "gpt2", DType::kBF16}}) {
    ScratchFolder scratch;
    ASSERT_EQ(quietly(cli::run_import, {.source = data(folder).string(), .target = scratch / "run"}).message,
              "");
    const Path ours = checkpoint::resolve_model((scratch / "run").string());
    const Path model = Path(STRATA_GOLDEN_MODELS) / golden;
    const auto source = checkpoint::open_tensors(model);
    for (const auto& [name, entry] : source.tensors) {
      const auto wanted = floats_of(model, name);
      auto found = floats_of(ours, name);
      const bool padded = name.find("embed_tokens") != name.npos || name.find("lm_head") != name.npos;
      ASSERT_GE(found.size(), wanted.size()) << name;
      if (padded) found.resize(wanted.size());  // the vocabulary was padded
      std::vector<uint16_t> rounded(wanted.size());
      std::vector<float> expected(wanted.size());
      const auto n = static_cast<int64_t>(wanted.size());
      convert(rounded.data(), dtype, wanted.data(), DType::kF32, n);
      convert(expected.data(), DType::kF32, rounded.data(), dtype, n);
      EXPECT_EQ(found, expected) << folder << " " << name;
    }
  }
}

// Before a program is compiled for them.
TEST(Megatron, RefusesSizesThatItsTensorsDoNotHave) {
  const auto changed = [](auto change) {
    interop::MegatronCheckpoint checkpoint = interop::open_megatron(data("megatron/llama"));
    change(checkpoint.model);
    try {
      interop::check_megatron(checkpoint);
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(changed([](models::ModelConfig&) {}), "");
  EXPECT_NE(changed([](models::ModelConfig& m) { m.vocab_size = 2147483000; }).find("expected a shard of"),
            std::string::npos);
  EXPECT_NE(changed([](models::ModelConfig& m) { m.intermediate_size *= 1000; }).find("expected a shard of"),
            std::string::npos);
  EXPECT_NE(changed([](models::ModelConfig& m) { m.layers = 100; }).find("is missing"), std::string::npos);
}

TEST(Megatron, RefusesOtherModelsByName) {
  ScratchFolder scratch;
  for (const auto& [folder, name] : {std::pair{"megatron/bert", "BERT"}, {"megatron/t5", "T5"}}) {
    expect_contains(quietly(cli::run_import, {.source = data(folder).string(), .target = scratch / "run"}), 3,
                    {"mp_rank_00", name, "GPT", "Hugging Face"});
  }
}

TEST(Megatron, RefusesIncompleteCheckpoints) {
  ScratchFolder scratch;
  const auto fresh = [&](const char* folder) {
    std::filesystem::remove_all(scratch / "model");
    std::filesystem::copy(data(folder), scratch / "model", std::filesystem::copy_options::recursive);
    return scratch / "model";
  };
  const auto import = [&](const Path& model) {
    return quietly(cli::run_import, {.source = model.string(), .target = scratch / "run"});
  };
  Path model = fresh("megatron/llama");
  std::filesystem::remove_all(model / "iter_0000040/mp_rank_01");
  expect_contains(import(model), 3, {"mp_rank_01", "missing"});
  model = fresh("megatron/llama");
  put_file(model / "latest_checkpointed_iteration.txt", "../../etc");
  expect_contains(import(model), 3, {"latest_checkpointed_iteration.txt", "../../etc"});
  model = fresh("megatron/llama");
  put_file(model / "latest_checkpointed_iteration.txt", "80");
  expect_contains(import(model), 3, {"iter_0000080", "mp_rank_00"});
  model = fresh("megatron/gpt");
  std::filesystem::copy(data("torch/evil.bin"), model / "mp_rank_00/model_optim_rng.pt",
                        std::filesystem::copy_options::overwrite_existing);
  expect_contains(import(model), 3, {"system", "nothing was run"});
  std::filesystem::copy(data("torch/nested.bin"), model / "mp_rank_00/model_optim_rng.pt",
                        std::filesystem::copy_options::overwrite_existing);
  expect_contains(import(model), 3, {"args"});
  expect_contains(
      quietly(cli::run_import, {.source = (scratch / "nowhere").string(), .target = scratch / "run"}), 2,
      {"nowhere"});
  EXPECT_FALSE(std::filesystem::exists(scratch / "run/checkpoints"));
}

}  // namespace
}  // namespace strata::training
