// strata checkpoint export: the files that it writes, and refusals before it writes anything.
#include <cmath>
#include <filesystem>
#include <functional>

#include "base/error.h"
#include "checkpoint/huggingface.h"
#include "checkpoint/weights.h"
#include "cli/actions.h"
#include "fixtures/tiny_run.h"

namespace strata::training {
namespace {

// A golden model whose tensors a test can edit before writing them.
struct EditableModel {
  std::map<std::string, std::vector<float>> values;
  std::map<std::string, Shape> shapes;
  checkpoint::ModelFiles files;

  explicit EditableModel(const std::string& name) {
    const Path folder = Path(STRATA_GOLDEN_MODELS) / name;
    const auto source = checkpoint::open_tensors(folder);
    for (const auto& [tensor, entry] : source.tensors) {
      auto& memory = values[tensor];
      memory.resize(entry.tensor->bytes / 4);
      entry.file->read(*entry.tensor, 0, memory.data(), entry.tensor->bytes);
      shapes.emplace(tensor, entry.tensor->shape);
    }
    files.config_json = checkpoint::read_config_json(folder);
    files.dtype = DType::kF32;
  }
  void write(const Path& folder) {
    files.weights.clear();
    for (const auto& [tensor, memory] : values)
      files.weights.push_back({tensor, shapes.at(tensor), DType::kF32, checkpoint::in_memory(memory.data())});
    checkpoint::write_hf_directory(posix_file_system(), folder, files);
  }
};

struct Refusal {
  int code = 0;
  std::string message;
};
Refusal export_of(const cli::ConvertOptions& options) {
  set_log_level(LogLevel::kError);
  testing::internal::CaptureStdout();
  Refusal refusal;
  try {
    cli::run_export(options);
  } catch (const Error& error) {
    refusal = {exit_code(error.kind()), error.what()};
  }
  testing::internal::GetCapturedStdout();
  return refusal;
}

std::string values_of(const Path& folder, const std::string& name, DType dtype = DType::kF32) {
  const auto source = checkpoint::open_tensors(folder);
  const auto& entry = source.tensors.at(name);
  EXPECT_EQ(entry.tensor->dtype, dtype);
  std::string bytes(entry.tensor->bytes, '\0');
  entry.file->read(*entry.tensor, 0, bytes.data(), bytes.size());
  return bytes;
}

TEST(Export, KeepsEveryBitInShardsOfTheRequestedSize) {
  for (const char* name : {"llama-untied", "gpt2"}) {
    ScratchFolder scratch;
    EditableModel model(name);
    const Path out = scratch / "out";
    ASSERT_EQ(export_of({.source = (Path(STRATA_GOLDEN_MODELS) / name).string(),
                         .target = out,
                         .dtype = "fp32",
                         .max_shard_size = "30 kB"})
                  .message,
              "");
    const auto source = checkpoint::open_tensors(out);
    EXPECT_GT(source.files.size(), 3u);
    EXPECT_EQ(source.tensors.size(), model.values.size());
    for (const auto& file : source.files) {
      uint64_t bytes = 0;
      for (const auto& tensor : file->tensors()) bytes += tensor.bytes;
      EXPECT_TRUE(bytes <= 30'000 || file->tensors().size() == 1) << bytes;
    }
    for (const auto& [tensor, memory] : model.values)
      EXPECT_EQ(values_of(out, tensor),
                std::string(reinterpret_cast<const char*>(memory.data()), memory.size() * 4));
    EXPECT_TRUE(std::filesystem::exists(out / "generation_config.json"));
  }
}

TEST(Export, ConvertsTypes) {
  ScratchFolder scratch;
  const EditableModel model("llama-tied");
  const std::string source = (Path(STRATA_GOLDEN_MODELS) / "llama-tied").string();
  const std::string tensor = "model.layers.1.self_attn.k_proj.weight";
  const auto& floats = model.values.at(tensor);
  for (const auto& [word, dtype] : {std::pair{"bf16", DType::kBF16}, std::pair{"fp16", DType::kF16}}) {
    ASSERT_EQ(export_of({.source = source, .target = scratch / word, .dtype = word}).message, "");
    std::vector<uint16_t> expected(floats.size());
    convert(expected.data(), dtype, floats.data(), DType::kF32, static_cast<int64_t>(floats.size()));
    EXPECT_EQ(values_of(scratch / word, tensor, dtype),
              std::string(reinterpret_cast<const char*>(expected.data()), expected.size() * 2));
    // And back: fp16 and bf16 values are exact in fp32.
    ASSERT_EQ(
        export_of(
            {.source = (scratch / word).string(), .target = scratch / "back", .dtype = "fp32", .force = true})
            .message,
        "");
    std::vector<float> back(floats.size());
    convert(back.data(), DType::kF32, expected.data(), dtype, static_cast<int64_t>(back.size()));
    EXPECT_EQ(values_of(scratch / "back", tensor),
              std::string(reinterpret_cast<const char*>(back.data()), back.size() * 4));
  }
}

// The source has pickled shards with a tied copy and a rotary table, which are not written.
TEST(Export, WritesOnlyTheTensorsOfTheModel) {
  ScratchFolder scratch;
  ASSERT_EQ(export_of({.source = std::string(STRATA_TEST_DATA) + "/checkpoint/torch/llama-tied",
                       .target = scratch / "out",
                       .dtype = "fp32"})
                .message,
            "");
  const auto ours = checkpoint::open_tensors(scratch / "out");
  const EditableModel model("llama-tied");
  ASSERT_EQ(ours.tensors.size(), model.values.size());
  for (const auto& [tensor, memory] : model.values)
    EXPECT_EQ(values_of(scratch / "out", tensor),
              std::string(reinterpret_cast<const char*>(memory.data()), memory.size() * 4));
}

// The names in BERT's first files, and in files of the class without a head.
TEST(Export, ReadsTheNamesOfOldFiles) {
  ScratchFolder scratch;
  EditableModel model("bert");
  model.write(scratch / "new");
  std::map<std::string, std::string> names;
  for (const auto& [name, memory] : model.values) {
    std::string old = name.starts_with("bert.") ? name.substr(5) : name;
    for (const auto& [today, before] :
         {std::pair{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}}) {
      if (old.ends_with(today)) old.replace(old.size() - std::string_view(today).size(), old.npos, before);
    }
    if (old != name) names[name] = old;
  }
  ASSERT_GT(names.size(), 10u);
  for (const auto& [name, old] : names) {
    model.values[old] = std::move(model.values[name]);
    model.shapes.emplace(old, model.shapes.at(name));
    model.values.erase(name);
  }
  model.values["pooler.dense.weight"] = {1};
  model.shapes.emplace("pooler.dense.weight", Shape{1});
  model.write(scratch / "old");
  for (const char* folder : {"new", "old"}) {
    ASSERT_EQ(
        export_of(
            {.source = (scratch / folder).string(), .target = scratch / folder / "out", .dtype = "fp32"})
            .message,
        "");
  }
  EXPECT_TRUE(read_file(scratch / "new/out/model.safetensors") ==
              read_file(scratch / "old/out/model.safetensors"));
}

TEST(Export, RefusesBeforeItWrites) {
  const std::string norm = "model.layers.0.input_layernorm.weight";
  struct Case {
    std::function<void(EditableModel&)> edit;
    cli::ConvertOptions options;
    std::vector<std::string> parts;  // of the message
    int code = 3;
  };
  const std::vector<Case> cases{
      {[&](auto& model) { model.values[norm][7] = NAN; }, {}, {norm, "NaN", "element 7"}},
      {[&](auto& model) { model.values[norm][7] = -INFINITY; }, {}, {norm, "element 7"}},
      {[&](auto& model) { model.values.erase(norm); }, {}, {"1 missing", norm}},
      {[&](auto& model) {
         model.values["model.layers.9.mlp.up_proj.weight"] = {1.0f};
         model.shapes["model.layers.9.mlp.up_proj.weight"] = {1};
       },
       {},
       {"1 unexpected", "model.layers.9.mlp.up_proj.weight", "nearest"}},
      {[&](auto& model) {
         model.shapes[norm] = {15, 2};
       },
       {},
       {norm, "[15, 2]", "expected [30]"}},
      {[&](auto& model) {
         model.values["lm_head.weight"] = model.values["model.embed_tokens.weight"];
         model.shapes["lm_head.weight"] = model.shapes["model.embed_tokens.weight"];
         model.values["lm_head.weight"][3] += 1;
       },
       {},
       {"lm_head.weight", "tie_word_embeddings"}},
      {[&](auto& model) { model.values[norm][7] = 1e5f; }, {.dtype = "fp16"}, {norm, "element 7", "fp16"}},
      {[&](auto& model) { model.files.config_json = "{\"model_type\": \"lama\"}"; }, {}, {"lama", "llama"}},
      {[](auto&) {}, {.max_shard_size = "many"}, {"--max-shard-size", "many"}, 2},
      {[](auto&) {}, {.dtype = "int8"}, {"--dtype", "int8"}, 2}};
  for (const Case& each : cases) {
    ScratchFolder scratch;
    EditableModel model("llama-tied");
    each.edit(model);
    model.write(scratch / "model");
    cli::ConvertOptions options = each.options;
    options.source = (scratch / "model").string();
    options.target = scratch / "new/out";
    const Refusal refusal = export_of(options);
    EXPECT_EQ(refusal.code, each.code) << refusal.message;
    for (const auto& part : each.parts)
      EXPECT_NE(refusal.message.find(part), std::string::npos) << refusal.message;
    EXPECT_FALSE(std::filesystem::exists(options.target));
    const auto left = std::filesystem::exists(scratch / "new")
                          ? std::distance(std::filesystem::directory_iterator(scratch / "new"), {})
                          : 0;
    EXPECT_EQ(left, 0) << "partial output was left";
  }
}

TEST(Export, CanSkipTheCheckOfValues) {
  ScratchFolder scratch;
  EditableModel model("llama-tied");
  model.values["model.norm.weight"][0] = NAN;
  model.write(scratch / "model");
  EXPECT_EQ(
      export_of({.source = (scratch / "model").string(), .target = scratch / "out", .skip_values = true})
          .message,
      "");
}

TEST(Export, WritesAModelCardForARun) {
  const TinyRun tiny;
  tiny.train();
  const std::string card = read_file(tiny.folder() / "final/README.md");
  for (const char* part :
       {"---\nlicense:", "| steps | 6 |", "| training tokens | 768 |", "train.bin", "```toml"})
    EXPECT_NE(card.find(part), std::string::npos) << card;
  const Path checkpoint = tiny.folder() / "checkpoints/step-00000004";
  ASSERT_EQ(export_of({.source = checkpoint.string(), .target = tiny.path("out")}).message, "");
  EXPECT_NE(read_file(tiny.path("out") / "README.md").find("| steps | 4 |"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(tiny.path("out") / "manifest.json"));

  // A second export copies the folder's own files.
  put_file(tiny.path("out") / "special_tokens_map.json", "{\"eos_token\": \"<|end|>\"}");
  put_file(tiny.path("out") / "generation_config.json", "{\"top_k\": 7}");
  ASSERT_EQ(export_of({.source = tiny.path("out").string(), .target = tiny.path("again")}).message, "");
  for (const char* name : {"README.md", "special_tokens_map.json", "generation_config.json"})
    EXPECT_EQ(read_file(tiny.path("again") / name), read_file(tiny.path("out") / name));
  cli::ConvertOptions again{.source = tiny.folder().string() + "@latest", .target = tiny.path("again")};
  EXPECT_EQ(export_of(again).code, 2);  // it exists
  again.force = true;
  EXPECT_EQ(export_of(again).code, 0);
}

}  // namespace
}  // namespace strata::training
