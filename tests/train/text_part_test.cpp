// The text model of one of texts and pictures (tools/golden/make_pictures_golden.py).
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/actions.h"
#include "fixtures/golden_model.h"
#include "fixtures/scratch_folder.h"
#include "fixtures/temporary_folder.h"

namespace strata::train {
namespace {

using namespace golden;
using nlohmann::json;

const Path& folder() {
  static const Path path = Path(STRATA_TEST_DATA) / "checkpoint/llama4-pictures";
  return path;
}

TEST(TextPart, GivesTheLogitsOfTheWhole) {
  const Golden golden(folder().string());
  EXPECT_EQ(golden.model.family->name, "llama4");
  EXPECT_EQ(golden.model.rope.kind, ops::RopeScaling::Kind::kLlama3);
  EXPECT_LT(logits_error(golden), 1e-4);
}

TEST(TextPart, SaysWhatIsLeftOut) {
  set_log_level(LogLevel::kInfo);
  const Golden golden(folder().string());
  testing::internal::CaptureStderr();
  const auto weights = checkpoint::open_weights(golden.folder, golden.model);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("what sees pictures is left out (26 tensors, vision_model.*, multi_modal_projector.*)"),
            std::string::npos)
      << said;
}

TEST(TextPart, IsExportedByItself) {
  set_log_level(LogLevel::kInfo);
  ScratchFolder scratch;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  cli::run_export({.source = folder().string(), .target = scratch / "out", .dtype = "fp32"});
  testing::internal::GetCapturedStdout();
  EXPECT_NE(testing::internal::GetCapturedStderr().find("left out"), std::string::npos);
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
  // A tensor that is of neither part.
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

}  // namespace
}  // namespace strata::train
