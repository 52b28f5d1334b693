// SentencePiece tokenizers. llama.cpp's handling is fixed except for a few keys, so everything else must
// match SentencePiece.
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "base/json.h"
#include "data/tokenizer/base64.h"
#include "interop/gguf_tokenizer.h"

namespace strata::interop {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kSpace = "\u2581";

bool is(const Json& part, std::string_view type) {
  return part.is_object() && part.value("type", "") == type;
}

// The steps of a Sequence; one step for any other value, none for null.
std::vector<Json> steps_of(const Json& part, const char* list) {
  if (part.is_null()) return {};
  return is(part, "Sequence") ? part.value(list, std::vector<Json>{}) : std::vector<Json>{part};
}

// Whether a Replace turns spaces into ▁.
bool escapes_spaces(const Json& step) {
  return is(step, "Replace") && step.value("pattern", Json()) == Json{{"String", " "}} &&
         step.value("content", "") == kSpace;
}

struct Metaspace {
  bool prepends = false, splits = false;
};
std::optional<Metaspace> metaspace_of(const Json& step) {
  if (!is(step, "Metaspace") || step.value("replacement", std::string(kSpace)) != kSpace) return std::nullopt;
  // Files from before 2024 have a flag instead of the scheme.
  const std::string scheme =
      step.value("prepend_scheme", step.value("add_prefix_space", true) ? "always" : "never");
  return Metaspace{scheme != "never", step.value("split", true)};
}

// If words are split before each ▁, no token may have one inside.
void check_split(const TokenizerJson& tokenizer, const Vocabulary& vocabulary, bool splits) {
  if (!splits) return;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.types[id] == kNormal && vocabulary.tokens[id].find(kSpace, 1) != std::string::npos)
      tokenizer.refuse("a vocabulary with tokens across the word boundaries of its Metaspace");
  }
}

// Whether the tokenizer prepends a space to each text, as Llama 2, Mistral and Gemma files express it.
bool prepends_space(const TokenizerJson& tokenizer, const Vocabulary& vocabulary) {
  const auto normalizer = steps_of(tokenizer.part("normalizer"), "normalizers");
  const auto splitter = steps_of(tokenizer.part("pre_tokenizer"), "pretokenizers");
  if (normalizer.empty() && splitter.size() == 1) {
    if (const auto metaspace = metaspace_of(splitter[0])) {
      check_split(tokenizer, vocabulary, metaspace->splits);
      return metaspace->prepends;
    }
  }
  // Gemma's split at spaces has no effect: they are already ▁.
  const bool whole = splitter.empty() || (splitter.size() == 1 && is(splitter[0], "Split") &&
                                          splitter[0].value("pattern", Json()) == Json{{"String", " "}});
  if (whole && normalizer.size() == 1 && escapes_spaces(normalizer[0])) return false;
  if (whole && normalizer.size() == 2 && is(normalizer[0], "Prepend") &&
      normalizer[0].value("prepend", "") == kSpace && escapes_spaces(normalizer[1]))
    return true;
  tokenizer.refuse("a normalizer or pre-tokenizer other than SentencePiece's");
}

// llama.cpp merges neighbours whose concatenation is a token, highest score first; tokenizer.json lists
// pairs. Both agree if the pairs are all the ways to form each token and are grouped by token. Returns the
// tokens in the order of their pairs.
std::vector<std::string> tokens_by_rank(const TokenizerJson& tokenizer, const std::set<std::string>& normal) {
  std::vector<std::string> order;
  std::map<std::string, std::set<size_t>> cuts;  // by token: where its pairs split it
  for (const auto& [left, right] : merges_of(tokenizer.json.at("model"))) {
    const std::string token = left + right;
    auto& of_token = cuts[token];
    if (!of_token.empty() && order.back() != token)
      tokenizer.refuse("merges that form one token at two ranks");
    if (of_token.empty()) order.push_back(token);
    of_token.insert(left.size());
  }
  for (const std::string& token : normal) {
    const auto known = cuts.find(token);
    for (size_t cut = 1; cut < token.size(); ++cut) {
      if ((token[cut] & 0xC0) == 0x80 || (known != cuts.end() && known->second.contains(cut))) continue;
      if (normal.contains(token.substr(0, cut)) && normal.contains(token.substr(cut)))
        tokenizer.refuse("merges that leave out a pair of tokens whose concatenation is a token");
    }
  }
  return order;
}

std::optional<uint32_t> unknown_of(const Json& model) {
  const auto text = model.find("unk_token");
  if (text == model.end() || !text->is_string()) return std::nullopt;
  const auto id = model.at("vocab").find(text->get<std::string>());
  return id == model.at("vocab").end() ? std::nullopt : std::optional(id->get<uint32_t>());
}

bool is_byte(const std::string& token) {
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with(">") &&
         token.find_first_not_of("0123456789ABCDEF", 3) == 5;
}

}  // namespace

void add_sentencepiece_bpe(GgufFields& fields, const TokenizerJson& tokenizer) {
  const Json& model = tokenizer.json.at("model");
  std::vector<std::pair<int64_t, std::string>> tokens;
  for (const auto& [text, id] : model.at("vocab").items()) tokens.emplace_back(id.get<int64_t>(), text);
  Vocabulary vocabulary = vocabulary_of(tokenizer, tokens);
  std::set<std::string> normal;
  size_t bytes = 0;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.types[id] != kNormal) continue;
    if (is_byte(vocabulary.tokens[id])) {
      vocabulary.types[id] = kByte;
      ++bytes;
    } else {
      normal.insert(vocabulary.tokens[id]);
    }
  }
  if (bytes != 256) tokenizer.refuse("a byte fallback without a token for each byte");
  const auto unknown = unknown_of(model);
  if (unknown && *unknown < vocabulary.types.size()) vocabulary.types[*unknown] = kUnknown;
  // SentencePiece's BPE scores: 0, -1, -2, …; single characters, which no merge forms, come last.
  std::map<std::string, float> scores;
  for (const std::string& token : tokens_by_rank(tokenizer, normal))
    scores.emplace(token, -static_cast<float>(scores.size()));
  auto next = static_cast<float>(scores.size());
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.types[id] != kNormal) continue;
    const auto found = scores.find(vocabulary.tokens[id]);
    vocabulary.scores[id] = found != scores.end() ? found->second : -next++;
  }
  fields.push_back({"tokenizer.ggml.model", std::string("llama")});
  fields.push_back({"tokenizer.ggml.pre", std::string("default")});
  add_vocabulary(fields, vocabulary, true);
  fields.push_back({"tokenizer.ggml.add_space_prefix", prepends_space(tokenizer, vocabulary)});
  if (unknown) fields.push_back({"tokenizer.ggml.unknown_token_id", *unknown});
}

void add_unigram(GgufFields& fields, const TokenizerJson& tokenizer) {
  const Json& model = tokenizer.json.at("model");
  if (model.value("byte_fallback", false))
    tokenizer.refuse("a unigram tokenizer with byte fallback, which llama.cpp does not support,");
  if (!model.contains("unk_id") || !model["unk_id"].is_number_unsigned())
    tokenizer.refuse("a unigram tokenizer without an unknown token");
  const auto unknown = model["unk_id"].get<uint32_t>();
  const Json& entries = model.at("vocab");
  std::vector<std::pair<int64_t, std::string>> tokens;
  for (const Json& entry : entries)
    tokens.emplace_back(static_cast<int64_t>(tokens.size()), entry.at(0).get<std::string>());
  Vocabulary vocabulary = vocabulary_of(tokenizer, tokens);
  for (size_t id = 0; id < entries.size(); ++id) {
    if (vocabulary.types[id] == kNormal) vocabulary.scores[id] = entries[id].at(1).get<float>();
  }
  if (unknown < vocabulary.types.size()) vocabulary.types[unknown] = kUnknown;

  std::vector<uint8_t> charsmap;
  bool merges_spaces = false;
  for (const Json& step : steps_of(tokenizer.part("normalizer"), "normalizers")) {
    if (is(step, "Precompiled") && charsmap.empty() && !merges_spaces) {
      const auto bytes = data::decode_base64(step.value("precompiled_charsmap", ""));
      if (!bytes) tokenizer.refuse("a precompiled_charsmap that is not base64");
      charsmap.assign(bytes->begin(), bytes->end());
    } else if (is(step, "Replace") && step.value("pattern", Json()) == Json{{"Regex", " {2,}"}} &&
               (step.value("content", "") == " " || step.value("content", "") == kSpace)) {
      merges_spaces = true;
    } else {
      tokenizer.refuse("the normalizer of this unigram tokenizer");
    }
  }
  auto splitter = steps_of(tokenizer.part("pre_tokenizer"), "pretokenizers");
  // WhitespaceSplit treats all white space as spaces; so must SentencePiece's normalization rules.
  if (splitter.size() == 2 && is(splitter[0], "WhitespaceSplit") && !charsmap.empty()) {
    merges_spaces = true;
    splitter.erase(splitter.begin());
  }
  const auto metaspace = splitter.size() == 1 ? metaspace_of(splitter[0]) : std::nullopt;
  if (!metaspace) tokenizer.refuse("the pre-tokenizer of this unigram tokenizer");
  check_split(tokenizer, vocabulary, metaspace->splits);

  fields.push_back({"tokenizer.ggml.model", std::string("t5")});
  fields.push_back({"tokenizer.ggml.pre", std::string("default")});
  add_vocabulary(fields, vocabulary, true);
  fields.push_back({"tokenizer.ggml.add_space_prefix", metaspace->prepends});
  fields.push_back({"tokenizer.ggml.remove_extra_whitespaces", merges_spaces});
  if (!charsmap.empty()) fields.push_back({"tokenizer.ggml.precompiled_charsmap", charsmap});
  fields.push_back({"tokenizer.ggml.unknown_token_id", unknown});
}

}  // namespace strata::interop
