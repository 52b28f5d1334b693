#include "config/tokenizer_ends.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "config/resolve.h"
#include "data/tokens/text_encoder.h"

namespace strata::config {
namespace {

int32_t id_of(const TokenName& name, const char* key, const data::Tokenizer& tokenizer,
              const std::string& where) {
  if (name.id) {
    const auto id = static_cast<int32_t>(*name.id);
    if (id < tokenizer.vocab_size() && !tokenizer.id_to_token(id).empty()) return id;
    throw ConfigError("[tokenizer.{}] found the id {}, which is not a token of {}; expected one from 0 to {}",
                      key, id, where, tokenizer.vocab_size() - 1);
  }
  if (const auto id = tokenizer.token_to_id(name.text)) return *id;
  std::string special;
  for (int32_t id = 0; id < tokenizer.vocab_size() && special.size() < 200; ++id) {
    if (tokenizer.is_special(id)) special += " " + std::string(tokenizer.id_to_token(id));
  }
  throw ConfigError(
      "[tokenizer.{}] found \"{}\", which is not a token of {}; its special tokens are{}; name one, or an id",
      key, name.text, where, special.empty() ? " none" : special);
}

}  // namespace

data::Tokenizer with_configured_ends(const RunConfig& config, const data::Tokenizer& tokenizer,
                                     const std::string& where) {
  data::TextEnds ends = tokenizer.ends();
  if (!config.model.from.empty() && (ends.end_is_guess || ends.begin.empty())) {
    const data::TextEnds of_model = data::declared_ends(tokenizer, model_folder(config));
    if (ends.end_is_guess && !of_model.end_is_guess) {
      ends.end = of_model.end;
      ends.end_from = of_model.end_from;
      ends.end_is_guess = false;
    }
    if (ends.begin.empty()) {
      ends.begin = of_model.begin;
      ends.begin_from = of_model.begin_from;
      ends.begin_of_tokenizer = of_model.begin_of_tokenizer;
    }
  }
  if (!config.tokenizer.eos.is_word()) {
    ends.end = id_of(*config.tokenizer.eos, "eos", tokenizer, where);
    ends.end_from = "tokenizer.eos";
    ends.end_is_guess = false;
    ends.notes.clear();
  }
  if (!config.tokenizer.bos.is_word()) {
    ends.begin = {id_of(*config.tokenizer.bos, "bos", tokenizer, where)};
    ends.begin_from = "tokenizer.bos";
    ends.begin_of_tokenizer = true;
  }
  // Later users of the model should begin texts as the run does.
  if (config.tokenizer.add_bos && tokenizer.prefix_ids().empty()) ends.adds_begin = ends.begin.size() == 1;
  return tokenizer.with_ends(std::move(ends));
}

data::TokenFileOptions token_file_options(const RunConfig& config, const models::ModelConfig& model,
                                          const data::Tokenizer* tokenizer) {
  data::TokenFileOptions options{.vocab_size = model.vocab_size};
  if (tokenizer != nullptr) {
    options.end_of_text = tokenizer->ends().end;
    options.end_begins = config.tokenizer.add_bos && tokenizer->ends().same_token();
    options.tokenizer_hash = to_hex(tokenizer->hash());
    return options;
  }
  const auto id = [&](const Auto<TokenName>& name, const char* key) -> std::optional<int32_t> {
    if (name.is_word()) return std::nullopt;
    if (name.value->id) return static_cast<int32_t>(*name.value->id);
    throw ConfigError(
        "[tokenizer.{}] found \"{}\" for token files without a tokenizer, expected the token's id; give it, or "
        "set tokenizer.path",
        key, name.value->text);
  };
  options.end_of_text = id(config.tokenizer.eos, "eos");
  options.end_begins = config.tokenizer.add_bos && options.end_of_text &&
                       id(config.tokenizer.bos, "bos") == options.end_of_text;
  return options;
}

data::TextEncoder encoder_of_texts(const RunConfig& config, const models::ModelConfig& model,
                                   const data::Tokenizer& tokenizer) {
  data::TextEncoder encoder = data::text_encoder(tokenizer, config.tokenizer.special_in_text);
  if (tokenizer.vocab_size() > model.vocab_size) encoder.id_limit = model.vocab_size;
  const auto check = [&](int32_t id, const char* key, const char* verb) {
    if (id < model.vocab_size) return;
    throw ConfigError(
        "[tokenizer.{}] texts {} with {} (id {}), but the model's vocabulary has {} entries; name a token within "
        "it, or set tokenizer.add_{} = false",
        key, verb, tokenizer.id_to_token(id), id, model.vocab_size, key);
  };
  if (config.tokenizer.add_eos && encoder.end_of_text) check(*encoder.end_of_text, "eos", "end");
  if (config.tokenizer.add_bos) {
    for (const int32_t id : encoder.begin_of_text) check(id, "bos", "begin");
  }
  return encoder;
}

void report_ends(const RunConfig& config, const data::Tokenizer& tokenizer) {
  for (const std::string& note : tokenizer.ends().notes) log_warning("tokenizer: {}", note);
  const std::string difference =
      data::template_difference(tokenizer, config.tokenizer.add_bos, config.tokenizer.add_eos, "tokenizer");
  if (difference.empty()) return;
  // Weights that were trained with the template lack the tokens that it adds.
  if (!config.model.from.empty() && config.model.init == ModelInit::kWeights)
    log_warning("{}", difference);
  else
    log_info("{}", difference);
}

void report_special(const RunConfig& config, const std::map<std::string, int64_t>& special,
                    const std::string& key) {
  if (special.empty()) return;
  const std::string counts = data::to_string(special);
  if (config.tokenizer.special_in_text == data::SpecialInText::kText) {
    log_info("tokens: texts of {} spell out special tokens ({}), which are encoded as plain text", key,
             counts);
    return;
  }
  log_warning(
      "tokens: texts of {} spell out special tokens ({}), which are encoded as these tokens; to encode them as "
      "plain text, set tokenizer.special_in_text = \"text\"",
      key, counts);
}

std::vector<int32_t> sample_prompt(const RunConfig& config, const data::Tokenizer& tokenizer,
                                   std::string_view prompt, bool whole) {
  if (whole) return tokenizer.encode_prompt(prompt);
  std::vector<int32_t> ids;
  if (config.tokenizer.add_bos) ids = tokenizer.ends().begin;
  tokenizer.encode(prompt, ids);
  return ids;
}

void check_vocabulary(const RunConfig& config, const data::Tokenizer& tokenizer,
                      const models::ModelConfig& model, const std::string& where) {
  if (tokenizer.vocab_size() <= model.vocab_size) return;
  if (tokenizer.text_vocab_size() > model.vocab_size) {
    throw ConfigError("[{}] has {} tokens, but the model's vocabulary has {}; {}", where,
                      tokenizer.vocab_size(), model.vocab_size,
                      config.model.from.empty()
                          ? "raise model.override.vocab_size or choose a smaller tokenizer"
                          : "use the model's own tokenizer, or a smaller one");
  }
  std::string beyond;
  int64_t count = 0;
  for (auto id = static_cast<int32_t>(model.vocab_size); id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.id_to_token(id).empty()) continue;
    if (++count <= 5) beyond += (beyond.empty() ? "" : " ") + std::string(tokenizer.id_to_token(id));
  }
  log_warning(
      "{}: {} added tokens are beyond the model's vocabulary of {} ({}{}); a text that contains one is rejected",
      where, count, model.vocab_size, beyond, count > 5 ? " …" : "");
}

void require_rows(std::span<const int32_t> ids, const data::Tokenizer& tokenizer,
                  const models::ModelConfig& model, const std::string& where) {
  const auto bad = std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return id >= model.vocab_size; });
  if (bad == ids.end()) return;
  throw DataError(
      "[{}] contains {} (id {}), but the model's vocabulary has {} entries; remove it from the text", where,
      tokenizer.id_to_token(*bad), *bad, model.vocab_size);
}

}  // namespace strata::config
