#include "interop/gguf_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "data/tokenizer/scanners.h"
#include "data/tokenizer/tokenizer.h"
#include "interop/gguf_model.h"

namespace strata::interop {

nlohmann::json TokenizerJson::part(const char* key) const {
  return json.value(key, nlohmann::json());
}

namespace {

using Json = nlohmann::json;

Json read_json(const Path& path) {
  try {
    return parse_json<Json>(read_file(path));
  } catch (const Json::exception& error) {
    throw DataError("[{}] is not valid JSON: {}", path.string(), error.what());
  }
}

// llama.cpp's name of a split pattern, and whether llama.cpp then keeps a word that is a token whole
// (ignore_merges).
struct Split {
  std::string_view name;
  bool whole_words = false;
};
Split split_of(data::KnownPattern pattern, bool whole_words) {
  switch (pattern) {
    case data::KnownPattern::kGpt2:
      return {"gpt-2"};
    case data::KnownPattern::kCl100k:
      return whole_words ? Split{"llama-bpe", true} : Split{"dbrx"};
    case data::KnownPattern::kQwen2:
      return {"qwen2"};
    case data::KnownPattern::kQwen35:
      return {"qwen35"};
    case data::KnownPattern::kO200k:
      return {"gpt-4o"};
    case data::KnownPattern::kTekken:
      return {"tekken", true};
    default:
      return {};
  }
}

// The split of a byte-level tokenizer.json; without a name if llama.cpp has none. A wrong name would not
// fail: the model would silently get other tokens than it was trained on.
Split split_of(const Json& pre_tokenizer, bool whole_words) {
  std::vector<Json> steps;
  if (pre_tokenizer.is_object() && pre_tokenizer.value("type", "") == "Sequence") {
    steps = pre_tokenizer.value("pretokenizers", std::vector<Json>{});
  } else {
    steps.push_back(pre_tokenizer);
  }
  if (steps.empty() || !steps.back().is_object() || steps.back().value("type", "") != "ByteLevel" ||
      steps.back().value("add_prefix_space", false))
    return {};
  const bool splits = steps.back().value("use_regex", true);
  if (steps.size() == 1) return splits ? Split{"gpt-2"} : Split{};
  if (steps.size() != 2) return {};
  const std::string first = steps[0].value("type", "");
  if (first == "Digits" && splits)
    return steps[0].value("individual_digits", false) ? Split{"smollm"} : Split{};
  if (first != "Split" || splits || !steps[0].contains("pattern")) return {};
  // Two ways to express that the pattern's matches are the words.
  const bool inverted = steps[0].value("invert", false);
  if (steps[0].value("behavior", "") != (inverted ? "Removed" : "Isolated")) return {};
  const auto known = data::recognise_pattern(steps[0]["pattern"].value("Regex", ""));
  return known ? split_of(*known, whole_words) : Split{};
}

using Ranks = std::map<std::pair<std::string, std::string>, size_t>;

bool merges_reach(const std::string& token, const Ranks& ranks) {
  std::vector<std::string> parts;
  for (const char c : token) {
    if (parts.empty() || (c & 0xC0) != 0x80) parts.emplace_back();
    parts.back() += c;
  }
  while (parts.size() > 1) {
    size_t best = 0, best_rank = ranks.size();
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find({parts[i], parts[i + 1]});
      if (found != ranks.end() && found->second < best_rank) best = i, best_rank = found->second;
    }
    if (best_rank == ranks.size()) return false;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  return true;
}

// Whether merging reaches every token, so that ignore_merges makes no difference.
bool merges_reach_all(const Json& bpe) {
  Ranks ranks;
  for (auto& pair : merges_of(bpe)) ranks.emplace(std::move(pair), ranks.size());
  for (const auto& [token, id] : bpe.at("vocab").items()) {
    if (!merges_reach(token, ranks)) return false;
  }
  return true;
}

// llama.cpp does not normalize text before it splits it.
void check_normalizer(const TokenizerJson& tokenizer) {
  const Json normalizer = tokenizer.part("normalizer");
  const bool sequence = normalizer.is_object() && normalizer.value("type", "") == "Sequence";
  const auto steps = sequence               ? normalizer.value("normalizers", std::vector<Json>{})
                     : normalizer.is_null() ? std::vector<Json>{}
                                            : std::vector<Json>{normalizer};
  for (const Json& step : steps) {
    if (step.value("type", "") != "NFC") tokenizer.refuse("this tokenizer's normalizer");
    log_warning(
        "llama.cpp does not normalize text to NFC as this tokenizer does: decomposed text gets other tokens");
  }
}

void add_byte_level_bpe(GgufFields& fields, const TokenizerJson& tokenizer) {
  const Json& bpe = tokenizer.json.at("model");
  const bool whole_words = bpe.value("ignore_merges", false);
  const Split split = split_of(tokenizer.part("pre_tokenizer"), whole_words);
  if (split.name.empty())
    tokenizer.refuse("this tokenizer's split of text, for which llama.cpp has no name,");
  if (split.whole_words != whole_words && !merges_reach_all(bpe))
    tokenizer.refuse(whole_words ? "ignore_merges with this split of text"
                                 : "a split of text with which llama.cpp ignores merges");
  check_normalizer(tokenizer);
  std::vector<std::pair<int64_t, std::string>> tokens;
  for (const auto& [text, id] : bpe.at("vocab").items()) tokens.emplace_back(id.get<int64_t>(), text);
  fields.push_back({"tokenizer.ggml.model", std::string("gpt2")});
  fields.push_back({"tokenizer.ggml.pre", std::string(split.name)});
  add_vocabulary(fields, vocabulary_of(tokenizer, tokens), false);
  std::vector<std::string> merges;
  for (const auto& [left, right] : merges_of(bpe)) merges.push_back(left + " " + right);
  fields.push_back({"tokenizer.ggml.merges", merges});
}

// The special tokens that the tokenizer adds before and after a text.
struct Ends {
  std::vector<int64_t> before, after;
};
Ends ends_of(const TokenizerJson& tokenizer) {
  Ends ends;
  const Json processor = tokenizer.part("post_processor");
  std::vector<Json> steps;
  if (processor.is_object())
    steps = processor.value("type", "") == "Sequence" ? processor.value("processors", steps)
                                                      : std::vector{processor};
  for (const Json& step : steps) {
    const std::string type = step.value("type", "");
    if (type == "TemplateProcessing") {
      bool is_after = false;
      for (const Json& item : step.at("single")) {
        is_after = is_after || item.contains("Sequence");
        if (!item.contains("SpecialToken")) continue;
        for (const Json& id : step.at("special_tokens").at(item["SpecialToken"].at("id")).at("ids"))
          (is_after ? ends.after : ends.before).push_back(id.get<int64_t>());
      }
    } else if (type == "RobertaProcessing" || type == "BertProcessing") {
      ends.before.push_back(step.at("cls").at(1).get<int64_t>());
      ends.after.push_back(step.at("sep").at(1).get<int64_t>());
    } else if (type != "ByteLevel") {
      tokenizer.refuse("a post_processor of type '" + type + "'");
    }
  }
  if (ends.before.size() > 1 || ends.after.size() > 1)
    tokenizer.refuse("a post_processor that adds several special tokens at one end of a text");
  return ends;
}

// llama.cpp guesses a missing one by the kind of tokenizer. It stops at three tokens: "eos", "eot" and "eom".
void add_ends(GgufFields& fields, const TokenizerJson& tokenizer, const models::ModelConfig& model) {
  const Ends ends = ends_of(tokenizer);
  const data::TextEnds declared = data::Tokenizer::load(tokenizer.where).ends();
  const auto add = [&](const std::string& name, int64_t id) {
    fields.push_back({"tokenizer.ggml." + name + "_token_id", static_cast<uint32_t>(id)});
  };
  if (!ends.before.empty())
    add("bos", ends.before.front());
  else if (declared.begin.size() == 1)
    add("bos", declared.begin.front());
  else if (model.bos_id)
    add("bos", *model.bos_id);

  std::vector<int64_t> stops = model.stop_ids();
  if (declared.end && (!declared.end_is_guess || stops.empty())) stops.insert(stops.begin(), *declared.end);
  std::vector<int64_t> known;
  for (const int64_t id : stops) {
    if (id < model.vocab_size && std::find(known.begin(), known.end(), id) == known.end())
      known.push_back(id);
  }
  static constexpr const char* kNames[] = {"eos", "eot", "eom"};
  for (size_t i = 0; i < std::min(known.size(), std::size(kNames)); ++i) add(kNames[i], known[i]);
  if (known.empty())
    log_warning("no file of the model declares an end-of-text token: llama.cpp will guess one");
  if (known.size() > std::size(kNames)) {
    log_warning(
        "the model has {} end-of-text tokens, a GGUF file can name {}: llama.cpp will not stop at the others",
        known.size(), std::size(kNames));
  }
  fields.push_back({"tokenizer.ggml.add_bos_token", !ends.before.empty() || declared.adds_begin});
  fields.push_back({"tokenizer.ggml.add_eos_token", !ends.after.empty()});
}

}  // namespace

void TokenizerJson::refuse(std::string_view what) const {
  throw DataError("[{}] {} cannot be written to a GGUF file; export with --format hf instead", where, what);
}

Vocabulary vocabulary_of(const TokenizerJson& tokenizer,
                         const std::vector<std::pair<int64_t, std::string>>& tokens) {
  constexpr float kOfUnused = -10000, kOfAdded = -1000;
  const int64_t size = tokenizer.vocab_size;
  Vocabulary vocabulary;
  for (int64_t id = 0; id < size; ++id) {
    vocabulary.tokens.push_back(fmt::format("[PAD{}]", id));
    vocabulary.types.push_back(kUnused);
    vocabulary.scores.push_back(kOfUnused);
  }
  const auto put = [&](int64_t id, const std::string& text, TokenType type, float score) {
    if (id < 0 || id >= size)
      throw DataError("[{}] token {} is outside the model's vocabulary of {}", tokenizer.where, id, size);
    const auto at = static_cast<size_t>(id);
    vocabulary.tokens[at] = text;
    vocabulary.types[at] = type;
    vocabulary.scores[at] = score;
  };
  for (const auto& [id, text] : tokens) put(id, text, kNormal, 0);
  for (const Json& added : tokenizer.json.value("added_tokens", Json::array())) {
    // The model has no row for it, so it can never be predicted.
    if (added.at("id").get<int64_t>() >= size) {
      log_warning("{}: left out the added token {}, which is outside the model's vocabulary of {}",
                  tokenizer.where, added.at("content").get<std::string>(), size);
      continue;
    }
    put(added.at("id").get<int64_t>(), added.at("content").get<std::string>(),
        added.value("special", false) ? kControl : kUserDefined, kOfAdded);
  }
  return vocabulary;
}

void add_vocabulary(GgufFields& fields, const Vocabulary& vocabulary, bool scores) {
  fields.push_back({"tokenizer.ggml.tokens", vocabulary.tokens});
  if (scores) fields.push_back({"tokenizer.ggml.scores", vocabulary.scores});
  fields.push_back({"tokenizer.ggml.token_type", vocabulary.types});
}

std::vector<std::pair<std::string, std::string>> merges_of(const Json& bpe) {
  std::vector<std::pair<std::string, std::string>> merges;
  for (const Json& merge : bpe.value("merges", Json::array())) {
    if (merge.is_array()) {
      merges.emplace_back(merge.at(0).get<std::string>(), merge.at(1).get<std::string>());
    } else {
      const auto text = merge.get<std::string>();
      const size_t space = text.find(' ', 1);
      if (space != std::string::npos) merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    }
  }
  return merges;
}

void add_tokenizer(GgufFields& fields, const Path& folder, const models::ModelConfig& model) {
  const Path path = folder / "tokenizer.json", config_path = folder / "tokenizer_config.json";
  if (!std::filesystem::exists(path)) {
    log_warning("{} has no tokenizer.json: the GGUF file will work with token ids only", folder.string());
    fields.push_back({"tokenizer.ggml.model", std::string("no_vocab")});
    return;
  }
  const Json json = read_json(path);
  const TokenizerJson tokenizer{json, path.string(), model.vocab_size};
  try {
    const std::string type = tokenizer.json.at("model").value("type", "");
    if (type == "Unigram") {
      add_unigram(fields, tokenizer);
    } else if (type != "BPE") {
      tokenizer.refuse("a tokenizer that is neither BPE nor unigram");
    } else if (tokenizer.json["model"].value("byte_fallback", false)) {
      add_sentencepiece_bpe(fields, tokenizer);
    } else {
      add_byte_level_bpe(fields, tokenizer);
    }
    add_ends(fields, tokenizer, model);
  } catch (const Json::exception& error) {
    throw DataError("[{}] is not a valid tokenizer.json: {}", path.string(), error.what());
  }
  const Json config = std::filesystem::exists(config_path) ? read_json(config_path) : Json::object();
  if (std::filesystem::exists(folder / "chat_template.jinja")) {
    fields.push_back({"tokenizer.chat_template", read_file(folder / "chat_template.jinja")});
  } else if (config.contains("chat_template") && config["chat_template"].is_string()) {
    fields.push_back({"tokenizer.chat_template", config["chat_template"].get<std::string>()});
  }
}

}  // namespace strata::interop
