#include "data/tokenizer/text_ends.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include "base/error.h"
#include "base/json.h"
#include "data/tokenizer/tokenizer.h"

namespace strata::data {
namespace {

using EndsJson = nlohmann::json;

// A JSON object of a folder; null if the file is missing. A file that is not an object is noted: the
// tokenizer works without it.
EndsJson read_object(const Path& folder, const char* name, std::vector<std::string>& notes) {
  std::error_code error;
  if (folder.empty() || !std::filesystem::is_regular_file(folder / name, error)) return nullptr;
  EndsJson object = parse_json_or_discard<EndsJson>(read_file(folder / name));
  if (object.is_object()) return object;
  notes.push_back(
      fmt::format("{} is not a JSON object: its text ends are ignored", (folder / name).string()));
  return nullptr;
}

class Declarations {
 public:
  Declarations(const Tokenizer& tokenizer, const Path& folder)
      : tokenizer_(tokenizer),
        tokenizer_config_(read_object(folder, "tokenizer_config.json", notes_)),
        special_map_(read_object(folder, "special_tokens_map.json", notes_)),
        config_(read_object(folder, "config.json", notes_)),
        generation_(read_object(folder, "generation_config.json", notes_)) {}

  TextEnds ends() {
    TextEnds out;
    find_end(out);
    find_begin(out);
    out.notes = std::move(notes_);
    return out;
  }

 private:
  // The token that a file names, as a text or as an object with "content".
  std::optional<int32_t> named(const EndsJson& file, const char* file_name, const char* key) {
    if (!file.is_object() || !file.contains(key)) return std::nullopt;
    const EndsJson* value = &file[key];
    if (value->is_object() && value->contains("content")) value = &(*value)["content"];
    if (!value->is_string()) return std::nullopt;
    const auto text = value->get<std::string>();
    const auto id = tokenizer_.token_to_id(text);
    if (!id) {
      notes_.push_back(
          fmt::format("{} names the {} \"{}\", which the tokenizer does not have", file_name, key, text));
    }
    return id;
  }

  // The added tokens whose ids a file lists, in its order.
  std::vector<int32_t> listed(const EndsJson& file, const char* key) const {
    if (!file.is_object()) return {};
    const EndsJson* value = file.contains(key) ? &file[key] : nullptr;
    if (value == nullptr && file.contains("text_config") && file["text_config"].is_object() &&
        file["text_config"].contains(key))
      value = &file["text_config"][key];
    if (value == nullptr) return {};
    std::vector<int32_t> ids;
    for (const EndsJson& id : value->is_array() ? *value : EndsJson::array({*value})) {
      if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= tokenizer_.vocab_size())
        continue;
      if (tokenizer_.is_added(id.get<int32_t>())) ids.push_back(id.get<int32_t>());
    }
    return ids;
  }

  void find_end(TextEnds& out) {
    const auto take = [&](std::optional<int32_t> id, const char* from) {
      if (out.end || !id) return;
      out.end = id;
      out.end_from = from;
    };
    take(named(tokenizer_config_, "tokenizer_config.json", "eos_token"), "tokenizer_config.json");
    if (!out.end)
      take(named(special_map_, "special_tokens_map.json", "eos_token"), "special_tokens_map.json");
    for (const auto& [file, name] : {std::pair<const EndsJson&, const char*>{config_, "config.json"},
                                     {generation_, "generation_config.json"}}) {
      const std::vector<int32_t> ids = listed(file, "eos_token_id");
      if (ids.empty()) continue;
      if (out.end && std::find(ids.begin(), ids.end(), *out.end) == ids.end()) {
        notes_.push_back(fmt::format("{} ends a text with {}, and {} with {}; {} is taken", out.end_from,
                                     tokenizer_.id_to_token(*out.end), name,
                                     tokenizer_.id_to_token(ids.front()), tokenizer_.id_to_token(*out.end)));
      }
      take(ids.front(), name);
    }
    if (!tokenizer_.suffix_ids().empty()) take(tokenizer_.suffix_ids().back(), "the tokenizer's template");
    if (!out.end)
      take(named(tokenizer_config_, "tokenizer_config.json", "sep_token"), "tokenizer_config.json");
    out.end_is_guess = !out.end;
    take(by_name(), "its name");
  }

  std::optional<int32_t> by_name() const {
    static constexpr std::string_view kNames[] = {
        "<|endoftext|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "</s>", "<eos>",
        "[EOS]",         "<|eos|>",         "<|endofdocument|>"};
    for (const bool special : {true, false}) {
      for (const std::string_view name : kNames) {
        const auto id = tokenizer_.token_to_id(name);
        if (id && (!special || tokenizer_.is_special(*id))) return id;
      }
    }
    return std::nullopt;
  }

  void find_begin(TextEnds& out) {
    const auto prefix = tokenizer_.prefix_ids();
    if (!prefix.empty()) {
      out.begin.assign(prefix.begin(), prefix.end());
      out.begin_from = "the tokenizer's template";
      out.begin_of_tokenizer = true;
      if (adds_begin() == false) {
        notes_.push_back(fmt::format(
            "tokenizer_config.json has add_bos_token = false, and the template of tokenizer.json begins a "
            "text with {}; the template is followed",
            tokenizer_.id_to_token(prefix.front())));
      }
      return;
    }
    const auto take = [&](std::optional<int32_t> id, const char* from, bool of_tokenizer) {
      if (!out.begin.empty() || !id) return;
      out.begin = {*id};
      out.begin_from = from;
      out.begin_of_tokenizer = of_tokenizer;
    };
    take(named(tokenizer_config_, "tokenizer_config.json", "bos_token"), "tokenizer_config.json", true);
    const bool none = tokenizer_config_.is_object() && tokenizer_config_.contains("bos_token") &&
                      tokenizer_config_["bos_token"].is_null();
    if (out.begin.empty() && !none) {
      take(named(special_map_, "special_tokens_map.json", "bos_token"), "special_tokens_map.json", true);
      for (const auto& [file, name] : {std::pair<const EndsJson&, const char*>{config_, "config.json"},
                                       {generation_, "generation_config.json"}}) {
        if (const auto ids = listed(file, "bos_token_id"); !ids.empty()) take(ids.front(), name, false);
      }
    }
    if (out.begin.empty())
      take(named(tokenizer_config_, "tokenizer_config.json", "cls_token"), "tokenizer_config.json", true);
    out.adds_begin = !out.begin.empty() && adds_begin() == true;
  }

  // The value of add_bos_token, if present.
  std::optional<bool> adds_begin() const {
    if (!tokenizer_config_.is_object()) return std::nullopt;
    const EndsJson adds = tokenizer_config_.value("add_bos_token", EndsJson());
    return adds.is_boolean() ? std::optional(adds.get<bool>()) : std::nullopt;
  }

  const Tokenizer& tokenizer_;
  std::vector<std::string> notes_;
  EndsJson tokenizer_config_, special_map_, config_, generation_;
};

std::string names_of(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  std::string out;
  for (const int32_t id : ids) out += (out.empty() ? "" : " ") + std::string(tokenizer.id_to_token(id));
  return out;
}

}  // namespace

TextEnds declared_ends(const Tokenizer& tokenizer, const Path& folder) {
  return Declarations(tokenizer, folder).ends();
}

std::vector<int64_t> generation_ends(const Path& folder) {
  const Path path = folder / "generation_config.json";
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};
  const auto object = parse_json_or_discard<EndsJson>(read_file(path));
  if (!object.is_object()) throw DataError("[{}] is not a JSON object. Repair or remove it", path.string());
  const EndsJson ids = object.value("eos_token_id", EndsJson());
  std::vector<int64_t> out;
  for (const EndsJson& id : ids.is_array() ? ids : EndsJson::array({ids})) {
    if (id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() <= INT32_MAX &&
        std::find(out.begin(), out.end(), id.get<int64_t>()) == out.end())
      out.push_back(id.get<int64_t>());
  }
  return out;
}

std::string template_difference(const Tokenizer& tokenizer, bool add_bos, bool add_eos,
                                std::string_view table) {
  const auto prefix = tokenizer.prefix_ids(), suffix = tokenizer.suffix_ids();
  if (!prefix.empty() && !add_bos) {
    return fmt::format(
        "the tokenizer's template begins a text with {}, and documents begin without it; {}.add_bos = true "
        "follows "
        "the template",
        names_of(tokenizer, prefix), table);
  }
  if (!suffix.empty() && !add_eos) {
    return fmt::format(
        "the tokenizer's template ends a text with {}, and documents end without it; {}.add_eos = true "
        "follows the "
        "template",
        names_of(tokenizer, suffix), table);
  }
  return "";
}

}  // namespace strata::data
