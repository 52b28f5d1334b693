#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "data/tokenizer/scanners.h"
#include "train/gguf_model.h"

namespace strata::train {
namespace {

using Json = nlohmann::json;

// What the format calls the kinds of tokens.
enum TokenType : int32_t { kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5 };

Json read_json(const Path& path) {
  try {
    return Json::parse(read_file(path));
  } catch (const Json::exception& error) {
    throw DataError("[{}] is no JSON: {}", path.string(), error.what());
  }
}

// The name under which llama.cpp knows a split pattern.
std::string_view split_name(data::KnownPattern pattern) {
  switch (pattern) {
    case data::KnownPattern::kGpt2:
      return "gpt-2";
    case data::KnownPattern::kCl100k:
      return "llama-bpe";
    case data::KnownPattern::kQwen2:
      return "qwen2";
    case data::KnownPattern::kO200k:
      return "gpt-4o";
    case data::KnownPattern::kTekken:
      return "tekken";
    default:
      return "";
  }
}

// The split of a byte-level tokenizer.json; empty where llama.cpp has no name for it. One that is wrong would
// not fail: the model would only be given other tokens than it was trained on.
std::string_view split_of(const Json& pre_tokenizer) {
  std::vector<Json> steps;
  if (pre_tokenizer.is_object() && pre_tokenizer.value("type", "") == "Sequence") {
    steps = pre_tokenizer.value("pretokenizers", std::vector<Json>{});
  } else {
    steps.push_back(pre_tokenizer);
  }
  if (steps.empty() || !steps.back().is_object() || steps.back().value("type", "") != "ByteLevel" ||
      steps.back().value("add_prefix_space", false))
    return "";
  const bool splits = steps.back().value("use_regex", true);
  if (steps.size() == 1) return splits ? "gpt-2" : "";
  if (steps.size() != 2) return "";
  const std::string first = steps[0].value("type", "");
  if (first == "Digits" && splits) return steps[0].value("individual_digits", false) ? "smollm" : "";
  if (first != "Split" || splits || !steps[0].contains("pattern")) return "";
  const auto known = data::recognise_pattern(steps[0]["pattern"].value("Regex", ""));
  return known ? split_name(*known) : "";
}

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
};

Vocabulary vocabulary_of(const Json& tokenizer, int64_t size, const std::string& where) {
  Vocabulary vocabulary;
  for (int64_t id = 0; id < size; ++id) {
    vocabulary.tokens.push_back(fmt::format("[PAD{}]", id));
    vocabulary.types.push_back(kUnused);
  }
  const auto put = [&](int64_t id, const std::string& text, TokenType type) {
    if (id < 0 || id >= size)
      throw DataError("[{}] token {} lies beyond the model's vocabulary of {}", where, id, size);
    vocabulary.tokens[static_cast<size_t>(id)] = text;
    vocabulary.types[static_cast<size_t>(id)] = type;
  };
  for (const auto& [text, id] : tokenizer.at("model").at("vocab").items())
    put(id.get<int64_t>(), text, kNormal);
  for (const Json& added : tokenizer.value("added_tokens", Json::array()))
    put(added.at("id").get<int64_t>(), added.at("content").get<std::string>(),
        added.value("special", false) ? kControl : kUserDefined);
  return vocabulary;
}

std::vector<std::string> merges_of(const Json& model) {
  std::vector<std::string> merges;
  for (const Json& merge : model.value("merges", Json::array())) {
    merges.push_back(merge.is_string()
                         ? merge.get<std::string>()
                         : merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>());
  }
  return merges;
}

void add_bpe(checkpoint::GgufFields& fields, const Json& tokenizer, const models::ModelConfig& model,
             const std::string& where) {
  const Json& bpe = tokenizer.at("model");
  const auto refuse = [&](std::string_view what) {
    throw DataError("[{}] {} cannot be written to a GGUF file yet; export with --format hf instead", where,
                    what);
  };
  if (bpe.value("type", "") != "BPE" || bpe.value("byte_fallback", false))
    refuse("a tokenizer that is no byte-level BPE");
  const std::string_view split = split_of(tokenizer.value("pre_tokenizer", Json()));
  if (split.empty()) refuse("the way in which this tokenizer splits text, for which llama.cpp has no name,");
  const Vocabulary vocabulary = vocabulary_of(tokenizer, model.vocab_size, where);
  fields.push_back({"tokenizer.ggml.model", std::string("gpt2")});
  fields.push_back({"tokenizer.ggml.pre", std::string(split)});
  fields.push_back({"tokenizer.ggml.tokens", vocabulary.tokens});
  fields.push_back({"tokenizer.ggml.token_type", vocabulary.types});
  fields.push_back({"tokenizer.ggml.merges", merges_of(bpe)});
}

}  // namespace

void add_tokenizer(checkpoint::GgufFields& fields, const Path& folder, const models::ModelConfig& model) {
  const Path path = folder / "tokenizer.json", config_path = folder / "tokenizer_config.json";
  if (!std::filesystem::exists(path)) {
    log_warning("{} holds no tokenizer.json: the file takes and gives token ids alone", folder.string());
    fields.push_back({"tokenizer.ggml.model", std::string("no_vocab")});
    return;
  }
  try {
    add_bpe(fields, read_json(path), model, path.string());
  } catch (const Json::exception& error) {
    throw DataError("[{}] is no tokenizer.json: {}", path.string(), error.what());
  }
  const Json config = std::filesystem::exists(config_path) ? read_json(config_path) : Json::object();
  if (model.bos_id) fields.push_back({"tokenizer.ggml.bos_token_id", static_cast<uint32_t>(*model.bos_id)});
  if (model.eos_id) fields.push_back({"tokenizer.ggml.eos_token_id", static_cast<uint32_t>(*model.eos_id)});
  for (const char* key : {"add_bos_token", "add_eos_token"}) {
    if (config.contains(key) && config[key].is_boolean())
      fields.push_back({std::string("tokenizer.ggml.") + key, config[key].get<bool>()});
  }
  if (std::filesystem::exists(folder / "chat_template.jinja")) {
    fields.push_back({"tokenizer.chat_template", read_file(folder / "chat_template.jinja")});
  } else if (config.contains("chat_template") && config["chat_template"].is_string()) {
    fields.push_back({"tokenizer.chat_template", config["chat_template"].get<std::string>()});
  }
}

}  // namespace strata::train
