// The text model within a vision-language model (tools/golden/make_pictures_golden.py).
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/actions.h"
#include "fixtures/golden_model.h"
#include "fixtures/scratch_folder.h"
#include "fixtures/temporary_folder.h"
#include "fixtures/tiny_run.h"

namespace strata::training {
namespace {

using namespace golden;
using nlohmann::json;

const Path& folder() {
  static const Path path = Path(STRATA_TEST_DATA) / "checkpoint/llama4-pictures";
  return path;
}

TEST(TextPart, HasTheLogitsOfTheWholeModel) {
  const Golden golden(folder().string());
  EXPECT_EQ(golden.model.family->name, "llama4");
  EXPECT_EQ(golden.model.rope.kind, ops::RopeScaling::Kind::kLlama3);
  EXPECT_LT(logits_error(golden), 1e-4);
}

TEST(TextPart, LogsOmittedTensors) {
  set_log_level(LogLevel::kInfo);
  const Golden golden(folder().string());
  testing::internal::CaptureStderr();
  const auto weights = checkpoint::open_weights(golden.folder, golden.model);
  const std::string logged = testing::internal::GetCapturedStderr();
  EXPECT_NE(logged.find("26 vision tensors are ignored (vision_model.*, multi_modal_projector.*)"),
            std::string::npos)
      << logged;
}

TEST(TextPart, IsExportedWithoutTheVisionPart) {
  set_log_level(LogLevel::kInfo);
  ScratchFolder scratch;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  cli::run_export({.source = folder().string(), .target = scratch / "out", .dtype = "fp32"});
  testing::internal::GetCapturedStdout();
  EXPECT_NE(testing::internal::GetCapturedStderr().find("are ignored"), std::string::npos);
  const json config = parse_json<json>(checkpoint::read_config_json(scratch / "out"));
  EXPECT_EQ(config["model_type"], "llama4_text");
  EXPECT_FALSE(config.contains("vision_config"));
  const auto out = checkpoint::open_tensors(scratch / "out");
  for (const auto& [name, entry] : out.tensors)
    EXPECT_TRUE(name.starts_with("model.") || name == "lm_head.weight") << name;
  EXPECT_EQ(out.tensors.size(), 45U);
}

TEST(TextPart, OtherFilesAreRefused) {
  const auto refused = [](const json& config, const std::vector<std::string>& parts) {
    data::expect_error(ErrorKind::kData, parts,
                       [&] { models::read_config_json(dump_json(config), "config.json"); });
  };
  const json good = parse_json<json>(checkpoint::read_config_json(folder()));
  json bad = good;
  bad.erase("text_config");
  refused(bad, {"\"llama4\"", "no object \"text_config\"", "llama4_text"});
  bad = good;
  bad["text_config"]["hidden_size"] = "wide";
  refused(bad, {"config.json: text_config", "hidden_size"});
  // A tensor of neither part.
  ScratchFolder scratch;
  std::filesystem::copy(folder(), scratch / "model");
  std::string file = read_file(scratch / "model" / "model.safetensors");
  const std::string name = "vision_model.class_embedding";
  file.replace(file.find(name), name.size(), "hidden_model.class_embedding");
  put_file(scratch / "model" / "model.safetensors", file);
  data::expect_error(ErrorKind::kData, {"hidden_model.class_embedding", "unexpected"}, [&] {
    checkpoint::open_weights(scratch / "model", models::read_config_json(dump_json(good), "config.json"));
  });
}

// Writes a model directory with a golden model's tensors under other names and one vision tensor.
void put_renamed(const Path& folder, const std::string& golden, const json& config,
                 const std::function<std::string(const std::string&)>& name, const std::string& picture) {
  const checkpoint::TensorSource source = checkpoint::open_tensors(Path(STRATA_GOLDEN_MODELS) / golden);
  std::vector<std::vector<std::byte>> memory;
  checkpoint::ModelFiles files;
  files.config_json = dump_json(config);
  files.dtype = DType::kF32;
  for (const auto& [tensor, entry] : source.tensors) {
    memory.emplace_back(entry.tensor->bytes);
    entry.file->read(*entry.tensor, 0, memory.back().data(), memory.back().size());
    files.weights.push_back(
        {name(tensor), entry.tensor->shape, DType::kF32, checkpoint::in_memory(memory.back().data())});
  }
  memory.emplace_back(16);
  files.weights.push_back({picture, Shape{4}, DType::kF32, checkpoint::in_memory(memory.back().data())});
  checkpoint::write_hf_directory(posix_file_system(), folder, files);
}

// The published names, and those that transformers has written since 4.52.
TEST(TextPart, OfOtherFamiliesAndInBothSpellings) {
  set_log_level(LogLevel::kError);
  for (const auto& [whole, golden] : {std::pair{"gemma3", "gemma3"}, {"mistral3", "mistral"}}) {
    const json text = parse_json<json>(read_file(Path(STRATA_GOLDEN_MODELS) / golden / "config.json"));
    const json config{{"model_type", whole}, {"text_config", text}, {"vision_config", {{"hidden_size", 16}}}};
    ScratchFolder scratch;
    put_renamed(
        scratch / "old", golden, config, [](const std::string& name) { return "language_model." + name; },
        "vision_tower.x.weight");
    put_renamed(
        scratch / "new", golden, config,
        [](const std::string& name) {
          return name.starts_with("model.") ? "model.language_model." + name.substr(6) : name;
        },
        "model.multi_modal_projector.x.weight");
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    cli::run_import({.source = (Path(STRATA_GOLDEN_MODELS) / golden).string(), .target = scratch / "plain"});
    for (const char* spelling : {"old", "new"}) {
      cli::run_import(
          {.source = (scratch / spelling).string(), .target = scratch / (std::string(spelling) + "-run")});
      EXPECT_EQ(bits_of(scratch / (std::string(spelling) + "-run"), 0), bits_of(scratch / "plain", 0))
          << whole << ", " << spelling;
    }
    testing::internal::GetCapturedStdout();
    testing::internal::GetCapturedStderr();
  }
  data::expect_error(ErrorKind::kData, {"llava", "gemma3"}, [&] {
    models::read_config_json(R"({"model_type":"llava","text_config":{"model_type":"llama"}})", "config.json");
  });
}

}  // namespace
}  // namespace strata::training
