// Tokenizers with special tokens beyond the rows of the model's embedding, as in text-only Gemma 3 models.
#include "base/error.h"
#include "base/json.h"
#include "cli/actions.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/train_bpe.h"
#include "fixtures/temporary_folder.h"
#include "fixtures/tiny_run.h"

namespace strata::training {
namespace {

using nlohmann::json;

// A byte tokenizer with these special tokens from id 256 on.
std::string byte_tokenizer(const std::vector<std::string>& special) {
  data::TrainOptions options;
  options.special_tokens = {special.front()};
  options.vocab_size = 257;
  bool read = false;
  const auto trained = data::train_bpe(
      [&](std::string_view& text) {
        text = " ";
        return !std::exchange(read, true);
      },
      options);
  json file = parse_json<json>(trained.json);
  for (size_t i = 1; i < special.size(); ++i) {
    json token = file["added_tokens"][0];
    token["id"] = 256 + i;
    token["content"] = special[i];
    file["added_tokens"].push_back(token);
  }
  return dump_json(file);
}

class SpecialTokens : public testing::Test {
 protected:
  // A corpus of text whose documents end with `end`.
  config::RunConfig config(const std::string& text, const Sets& sets = {}) const {
    put_file(tiny_.path("corpus.jsonl"), text);
    return tiny_.config(Sets{"data.train=[\"" + tiny_.path("corpus.jsonl").string() + "\"]",
                             "tokenizer.path=\"" + tiny_.path("tokenizer.json").string() + "\"",
                             "model.vocab_size=258", "data.valid_fraction=0", "training.steps=2"} +
                        sets);
  }
  static std::string documents(const std::string& words) {
    std::string text;
    for (int i = 0; i < 40; ++i) text += R"({"text": "some words of a document)" + words + "\"}\n";
    return text;
  }
  void refused(const config::RunConfig& config, ErrorKind kind, const std::vector<std::string>& parts) const {
    data::expect_error(kind, parts, [&] { tiny_.train_with(RunOptions{.config = config}); });
  }

  TinyRun tiny_;
};

TEST_F(SpecialTokens, BeyondTheModelsRowsAreOnlyRefusedInTexts) {
  put_file(tiny_.path("tokenizer.json"), byte_tokenizer({"</s>", "<pad>", "<image_soft_token>", "<video>"}));
  EXPECT_EQ(tiny_.train_with(RunOptions{.config = config(documents(""))}).end, RunEnd::kFinished);
  refused(config(documents(" <image_soft_token>")), ErrorKind::kData, {"258"});
  refused(config(documents(""), {"eval.sample_prompts=[\"a <video>\"]"}), ErrorKind::kData,
          {"eval.sample_prompts", "<video>", "259"});
}

}  // namespace
}  // namespace strata::training
