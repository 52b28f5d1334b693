#include "interop/model_card.h"

#include <algorithm>
#include <filesystem>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"

namespace strata::interop {
namespace {

using Json = nlohmann::ordered_json;

// Files that are copied with a model: transformers' tokenizer files, and others.
constexpr const char* kKept[] = {"generation_config.json",
                                 "tokenizer.json",
                                 "tokenizer_config.json",
                                 "special_tokens_map.json",
                                 "added_tokens.json",
                                 "vocab.json",
                                 "merges.txt",
                                 "tokenizer.model",
                                 "vocab.txt",
                                 "spiece.model",
                                 "chat_template.jinja",
                                 "chat_template.json",
                                 "README.md"};

bool writes_text(const models::ModelConfig& model) {
  return model.architecture != models::Architecture::kEncoder;
}

std::string generation_config(const models::ModelConfig& model) {
  Json json = Json::object();
  if (model.bos_id) json["bos_token_id"] = *model.bos_id;
  if (model.start_id) json["decoder_start_token_id"] = *model.start_id;
  if (const std::vector<int64_t> ends = model.stop_ids(); ends.size() == 1)
    json["eos_token_id"] = ends.front();
  else if (!ends.empty())
    json["eos_token_id"] = ends;
  if (model.start_id && model.pad_id) json["pad_token_id"] = *model.pad_id;
  return dump_json(json, 2) + "\n";
}

// The first of the names that the tokenizer has.
std::string name_among(const data::Tokenizer& tokenizer, std::initializer_list<const char*> names) {
  const auto found =
      std::find_if(names.begin(), names.end(), [&](const char* name) { return tokenizer.token_to_id(name); });
  return found == names.end() ? "" : *found;
}

std::string tokenizer_config(const models::ModelConfig& model, const data::Tokenizer& tokenizer) {
  const data::TextEnds& ends = tokenizer.ends();
  const std::string end_of_text = ends.end ? std::string(tokenizer.id_to_token(*ends.end)) : "";
  Json json;
  const auto put = [&](const char* key, const std::string& token) {
    if (!token.empty()) json[key] = token;
  };
  json["tokenizer_class"] = "PreTrainedTokenizerFast";
  json["clean_up_tokenization_spaces"] = false;
  json["model_max_length"] = model.max_positions;
  switch (model.architecture) {
    case models::Architecture::kDecoder:
      put("eos_token", end_of_text);
      if (ends.begin.size() == 1)
        put("bos_token", std::string(tokenizer.id_to_token(ends.begin.front())));
      else if (ends.begin.empty())
        json["bos_token"] = nullptr;  // whatever config.json has
      if (ends.adds_begin) json["add_bos_token"] = true;
      break;
    case models::Architecture::kEncoder:
      if (!ends.begin.empty()) put("cls_token", std::string(tokenizer.id_to_token(ends.begin.front())));
      put("sep_token", end_of_text);
      put("pad_token", name_among(tokenizer, {"[PAD]", "<pad>"}));
      put("unk_token", name_among(tokenizer, {"[UNK]", "<unk>"}));
      put("mask_token", name_among(tokenizer, {"[MASK]", "<mask>"}));
      break;
    case models::Architecture::kEncoderDecoder:
      put("eos_token", end_of_text);
      put("pad_token", name_among(tokenizer, {"<pad>", "[PAD]"}));
      put("unk_token", name_among(tokenizer, {"<unk>", "[UNK]"}));
      json["model_input_names"] = {"input_ids", "attention_mask"};
      break;
  }
  return dump_json(json, 2) + "\n";
}

const char* hub_task(const models::ModelConfig& model) {
  switch (model.architecture) {
    case models::Architecture::kDecoder:
      break;
    case models::Architecture::kEncoder:
      return "fill-mask";
    case models::Architecture::kEncoderDecoder:
      return "text2text-generation";
  }
  return "text-generation";
}

}  // namespace

std::vector<checkpoint::NamedFile> companion_files(const models::ModelConfig& model,
                                                   const data::Tokenizer* tokenizer) {
  std::vector<checkpoint::NamedFile> files;
  if (writes_text(model)) files.push_back({"generation_config.json", generation_config(model)});
  if (tokenizer == nullptr) return files;
  files.push_back({"tokenizer.json", tokenizer->json()});
  files.push_back({"tokenizer_config.json", tokenizer_config(model, *tokenizer)});
  return files;
}

std::vector<checkpoint::NamedFile> companion_files_of(const Path& folder, const models::ModelConfig& model) {
  std::vector<checkpoint::NamedFile> files;
  std::error_code error;
  for (const char* name : kKept) {
    if (std::filesystem::is_regular_file(folder / name, error))
      files.push_back({name, read_file(folder / name)});
  }
  const auto has = [&](std::string_view name) {
    return std::any_of(files.begin(), files.end(), [&](const auto& file) { return file.name == name; });
  };
  if (writes_text(model) && !has("generation_config.json"))
    files.push_back({"generation_config.json", generation_config(model)});
  if (has("tokenizer.json") && !has("tokenizer_config.json")) {
    const auto tokenizer = data::Tokenizer::load(folder / "tokenizer.json");
    files.push_back({"tokenizer_config.json", tokenizer_config(model, tokenizer)});
  }
  return files;
}

std::string model_card(const models::ModelConfig& model, const TrainingFacts& facts) {
  std::string text = fmt::format(R"(---
license: unknown  # name one before publishing: https://hf.co/docs/hub/repositories-licenses
library_name: transformers
pipeline_tag: {}
tags:
- pretrained
- strata
---

)",
                                 hub_task(model));
  text += fmt::format("# {}\n\n", facts.run.empty() ? "A pretrained model" : facts.run);
  text += "Pretrained with Strata. No licence has been chosen yet.\n\n";
  if (!facts.leaks.empty()) {
    text +=
        "**Its routing leaks: during training, tokens saw tokens that they had to predict. Its losses are "
        "too low and cannot be compared with other models'.**\n\n";
    for (const std::string& leak : facts.leaks) text += fmt::format("- {}\n", leak);
    text += "\n";
  }
  text += "| | |\n| --- | --- |\n";
  const auto row = [&](std::string_view what, const std::string& value) {
    if (!value.empty()) text += fmt::format("| {} | {} |\n", what, value);
  };
  row("architecture", fmt::format("{} ({} layers, width {}, {} heads)", model.family->model_type,
                                  models::layers_of(model), model.hidden_size, model.heads));
  row("parameters", std::to_string(models::parameter_count(model)));
  row("vocabulary", std::to_string(model.vocab_size));
  row("longest sequence", std::to_string(model.max_positions));
  row("training data", facts.data);
  row("training tokens", std::to_string(facts.tokens));
  row("steps", std::to_string(facts.steps));
  if (facts.health.loss) row("training loss at the end", fmt::format("{:.4f}", *facts.health.loss));
  for (const auto& [metric, value] : facts.health.metrics) row(metric, fmt::format("{:.4f}", value));
  row("seed", std::to_string(facts.seed));
  row("program", facts.program);
  if (!facts.run_toml.empty())
    text += "\n## Configuration\n\nAs resolved by the run:\n\n```toml\n" + facts.run_toml + "```\n";
  return text;
}

}  // namespace strata::interop
