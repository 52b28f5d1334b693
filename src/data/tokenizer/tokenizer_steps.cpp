// The parts of a tokenizer.json other than the model.
#include <functional>

#include "base/error.h"
#include "data/tokenizer/base64.h"
#include "data/tokenizer/tokenizer_file.h"
#include "data/tokenizer/unicode.h"

namespace strata::data {
namespace {

using simdjson::dom::element;

// Calls `read` for the part, or for each part of a (nested) Sequence under `list_key`.
void for_each_part(const JsonObject& json, std::string_view list_key,
                   const std::function<void(const JsonObject&, std::string_view)>& read, int depth = 0) {
  if (depth > 16) throw DataError("[tokenizer] {} nests more than 16 sequences", json.where());
  const std::string_view type = json.text("type");
  if (type != "Sequence") return read(json, type);
  size_t index = 0;
  for (const element part : json.array(list_key)) {
    for_each_part(JsonObject(part, fmt::format("{}[{}]", json.where(list_key), index++)), list_key, read,
                  depth + 1);
  }
}

Pattern read_pattern(const JsonObject& owner) {
  const auto value = owner.find("pattern");
  if (!value) throw DataError("[tokenizer] {} is missing", owner.where("pattern"));
  std::string_view text;
  if (value->get(text) == simdjson::SUCCESS) return LiteralPattern{std::string(text)};
  const JsonObject pattern(*value, owner.where("pattern"));
  if (const auto literal = pattern.find_text("String")) return LiteralPattern{std::string(*literal)};
  if (const auto regex = pattern.find_text("Regex")) {
    try {
      return make_regex_pattern(*regex);
    } catch (const DataError& error) {
      throw DataError("[tokenizer] {}: {}", pattern.where("Regex"), error.what());
    }
  }
  throw DataError("[tokenizer] {} has neither \"Regex\" nor \"String\"", pattern.where());
}

SplitBehaviour read_behaviour(const JsonObject& owner, std::string_view fallback) {
  const std::string_view name = owner.find_text("behavior").value_or(fallback);
  if (name == "Removed") return SplitBehaviour::kRemoved;
  if (name == "Isolated") return SplitBehaviour::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehaviour::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehaviour::kMergedWithNext;
  if (name == "Contiguous") return SplitBehaviour::kContiguous;
  refuse(owner.where("behavior"), name,
         "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

int32_t read_id(element value, const std::string& where) {
  int64_t id = 0;
  if (value.get(id) != simdjson::SUCCESS || id < 0 || id > INT32_MAX) {
    throw DataError("[tokenizer] {} is not a token id", where);
  }
  return static_cast<int32_t>(id);
}

// One piece of a template: a special token's ids, or the text (nothing).
std::optional<std::vector<int32_t>> read_template_item(const JsonObject& item, const JsonObject& specials) {
  if (const auto sequence = item.find("Sequence")) {
    const JsonObject json(*sequence, item.where("Sequence"));
    if (json.text("id") != "A") refuse(json.where("id"), json.text("id"), "A in a template for single texts");
    return std::nullopt;
  }
  const JsonObject special = item.child("SpecialToken");
  const JsonObject entry = specials.child(special.text("id"));
  std::vector<int32_t> ids;
  for (const element id : entry.array("ids")) ids.push_back(read_id(id, entry.where("ids")));
  return ids;
}

PostProcessor read_template(const JsonObject& json) {
  PostProcessor out;
  const JsonObject specials = json.child("special_tokens");
  bool seen_text = false;
  size_t index = 0;
  for (const element element : json.array("single")) {
    const JsonObject item(element, fmt::format("{}[{}]", json.where("single"), index++));
    const auto ids = read_template_item(item, specials);
    if (!ids) {
      if (seen_text) refuse(item.where(), "the text a second time", "the text once");
      seen_text = true;
    } else {
      auto& side = seen_text ? out.suffix : out.prefix;
      side.insert(side.end(), ids->begin(), ids->end());
    }
  }
  if (!seen_text) refuse(json.where("single"), "a template without the text", "one that holds Sequence A");
  return out;
}

// "cls" and "sep" of the Bert and Roberta processors: [token, id].
PostProcessor read_cls_sep(const JsonObject& json) {
  const auto id_of = [&](std::string_view key) {
    const simdjson::dom::array pair = json.array(key);
    if (pair.size() != 2) throw DataError("[tokenizer] {} is not a pair of token and id", json.where(key));
    return read_id(pair.at(1).value(), json.where(key));
  };
  return {{id_of("cls")}, {id_of("sep")}};
}

// The parameters shared by the pre-tokenizer and the decoder of this name.
struct Metaspace {
  std::string replacement;
  MetaspaceStep::Prepend prepend;
};

Metaspace read_metaspace(const JsonObject& json) {
  Metaspace out{std::string(json.text("replacement")), MetaspaceStep::kAlways};
  const std::string_view scheme = json.find_text("prepend_scheme").value_or("always");
  if (scheme == "first") {
    out.prepend = MetaspaceStep::kFirst;
  } else if (scheme == "never") {
    out.prepend = MetaspaceStep::kNever;
  } else if (scheme != "always") {
    refuse(json.where("prepend_scheme"), scheme, "always, first or never");
  }
  if (!json.flag("add_prefix_space", true)) out.prepend = MetaspaceStep::kNever;  // the older key
  if (out.replacement.empty()) {
    throw DataError("[tokenizer] {} is empty, expected a character", json.where("replacement"));
  }
  return out;
}

}  // namespace

Normalizer read_normalizer(const std::optional<JsonObject>& json) {
  std::vector<NormalizerStep> steps;
  if (!json) return {};
  for_each_part(*json, "normalizers", [&](const JsonObject& part, std::string_view type) {
    if (type == "NFC") {
      steps.emplace_back(UnicodeForm{true, false});
    } else if (type == "NFD") {
      steps.emplace_back(UnicodeForm{false, false});
    } else if (type == "NFKC") {
      steps.emplace_back(UnicodeForm{true, true});
    } else if (type == "NFKD") {
      steps.emplace_back(UnicodeForm{false, true});
    } else if (type == "Lowercase") {
      steps.emplace_back(LowercaseStep{});
    } else if (type == "Strip") {
      steps.emplace_back(StripStep{part.flag("strip_left", true), part.flag("strip_right", true)});
    } else if (type == "Prepend") {
      steps.emplace_back(PrependStep{std::string(part.text("prepend"))});
    } else if (type == "Replace") {
      steps.emplace_back(ReplaceStep{read_pattern(part), std::string(part.text("content"))});
    } else if (type == "StripAccents") {
      steps.emplace_back(StripAccentsStep{});
    } else if (type == "Nmt") {
      steps.emplace_back(NmtStep{});
    } else if (type == "BertNormalizer") {
      const bool lowercase = part.flag("lowercase", true);
      steps.emplace_back(BertStep{part.flag("clean_text", true), part.flag("handle_chinese_chars", true),
                                  part.flag("strip_accents", lowercase), lowercase});
    } else if (type == "Precompiled") {
      const auto blob = decode_base64(part.text("precompiled_charsmap"));
      const std::string place = part.where("precompiled_charsmap");
      if (!blob) throw DataError("[tokenizer] {} is not base64", place);
      steps.emplace_back(PrecompiledStep{Charsmap(*blob, place)});
    } else {
      refuse(part.where("type"), type,
             "NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Prepend, Replace, Nmt, BertNormalizer, "
             "Precompiled "
             "or Sequence");
    }
  });
  return Normalizer(std::move(steps));
}

PreTokenizer read_pre_tokenizer(const std::optional<JsonObject>& json) {
  std::vector<PreTokenizerStep> steps;
  if (!json) return {};
  for_each_part(*json, "pretokenizers", [&](const JsonObject& part, std::string_view type) {
    if (type == "ByteLevel") {
      auto& step = steps.emplace_back(std::in_place_type<ByteLevelStep>);
      std::get<ByteLevelStep>(step) = {part.flag("add_prefix_space", true), part.flag("use_regex", true)};
    } else if (type == "Split") {
      steps.emplace_back(SplitStep{read_pattern(part), read_behaviour(part, ""), part.flag("invert", false)});
    } else if (type == "Digits") {
      const bool each = part.flag("individual_digits", false);
      steps.emplace_back(SplitStep{CharacterPattern{is_split_numeric},
                                   each ? SplitBehaviour::kIsolated : SplitBehaviour::kContiguous, false});
    } else if (type == "Punctuation") {
      steps.emplace_back(
          SplitStep{CharacterPattern{is_split_punctuation}, read_behaviour(part, "Isolated"), false});
    } else if (type == "WhitespaceSplit") {
      steps.emplace_back(SplitStep{CharacterPattern{is_white_space}, SplitBehaviour::kRemoved, false});
    } else if (type == "BertPreTokenizer") {
      steps.emplace_back(SplitStep{CharacterPattern{is_white_space}, SplitBehaviour::kRemoved, false});
      steps.emplace_back(SplitStep{CharacterPattern{is_split_punctuation}, SplitBehaviour::kIsolated, false});
    } else if (type == "Whitespace") {  // runs of word characters, and of others
      steps.emplace_back(SplitStep{CharacterPattern{is_white_space}, SplitBehaviour::kRemoved, false});
      steps.emplace_back(
          SplitStep{CharacterPattern{is_added_token_word}, SplitBehaviour::kContiguous, false});
    } else if (type == "CharDelimiterSplit") {
      steps.emplace_back(
          SplitStep{LiteralPattern{std::string(part.text("delimiter"))}, SplitBehaviour::kRemoved, false});
    } else if (type == "Metaspace") {
      const Metaspace metaspace = read_metaspace(part);
      steps.emplace_back(MetaspaceStep{metaspace.replacement, metaspace.prepend, part.flag("split", true)});
    } else {
      refuse(part.where("type"), type,
             "ByteLevel, Split, Digits, Punctuation, Whitespace, WhitespaceSplit, CharDelimiterSplit, "
             "Metaspace, "
             "BertPreTokenizer or Sequence");
    }
  });
  return PreTokenizer(std::move(steps));
}

PostProcessor read_post_processor(const std::optional<JsonObject>& json) {
  PostProcessor out;
  if (!json) return out;
  for_each_part(*json, "processors", [&](const JsonObject& part, std::string_view type) {
    PostProcessor step;
    if (type == "TemplateProcessing") {
      step = read_template(part);
    } else if (type == "RobertaProcessing" || type == "BertProcessing") {
      step = read_cls_sep(part);
    } else if (type != "ByteLevel") {
      refuse(part.where("type"), type,
             "ByteLevel, TemplateProcessing, RobertaProcessing, BertProcessing or Sequence");
    }
    // A later step puts its tokens around the earlier ones.
    out.prefix.insert(out.prefix.begin(), step.prefix.begin(), step.prefix.end());
    out.suffix.insert(out.suffix.end(), step.suffix.begin(), step.suffix.end());
  });
  return out;
}

Decoder read_decoder(const std::optional<JsonObject>& json) {
  if (!json) return {};
  std::vector<DecoderStep> steps;
  for_each_part(*json, "decoders", [&](const JsonObject& part, std::string_view type) {
    if (type == "ByteLevel") {
      steps.emplace_back(ByteLevelDecoder{});
    } else if (type == "ByteFallback") {
      steps.emplace_back(ByteFallbackDecoder{});
    } else if (type == "Fuse") {
      steps.emplace_back(FuseDecoder{});
    } else if (type == "Replace") {
      steps.emplace_back(ReplaceDecoder{read_pattern(part), std::string(part.text("content"))});
    } else if (type == "Strip") {
      const auto count = [&](std::string_view key) {
        const int64_t n = part.number(key);
        if (n < 0) throw DataError("[tokenizer] {} is {}, expected 0 or more", part.where(key), n);
        return static_cast<size_t>(n);
      };
      const std::string content(part.text("content"));
      if (content.empty())
        throw DataError("[tokenizer] {} is empty, expected a character", part.where("content"));
      steps.emplace_back(StripDecoder{content, count("start"), count("stop")});
    } else if (type == "BPEDecoder") {
      steps.emplace_back(SuffixDecoder{std::string(part.text("suffix"))});
    } else if (type == "WordPiece") {
      steps.emplace_back(
          WordPieceDecoder{std::string(part.find_text("prefix").value_or("##")), part.flag("cleanup", true)});
    } else if (type == "Metaspace") {
      const Metaspace metaspace = read_metaspace(part);
      steps.emplace_back(MetaspaceDecoder{metaspace.replacement, metaspace.prepend != MetaspaceStep::kNever});
    } else {
      refuse(part.where("type"), type,
             "ByteLevel, ByteFallback, Fuse, Replace, Strip, BPEDecoder, WordPiece, Metaspace or Sequence");
    }
  });
  return Decoder(std::move(steps));
}

}  // namespace strata::data
