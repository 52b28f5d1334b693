// config.json files as found in practice: absent and null keys, older and newer spellings, sizes in
// text_config. They must be read as in transformers (tools/golden/make_config_golden.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "models/config_json.h"
#include "models/model.h"

namespace strata::models {
namespace {

using Json = nlohmann::json;

// Keys whose absence has another meaning here, on purpose: texts end with the tokenizer's end-of-text token,
// layers that predict further tokens are present if their weights are, and runs have no dropout unless a file
// has it.
bool is_ours(const std::string& key) {
  return key.ends_with("_token_id") || key == "num_nextn_predict_layers" || key.find("drop") != key.npos ||
         key == "max_window_layers" || key.starts_with("num_sparse_") || key == "qk_head_dim";
}

// Files that transformers reads but whose model it cannot run: windows without a size, groups of experts
// without a number, more key-value heads than heads, and LFM2 without a list of layers.
bool cannot_run(const Json& wanted) {
  const auto is_null = [&](const char* key) { return wanted.contains(key) && wanted[key].is_null(); };
  const auto layers = wanted.find("layer_types");
  const bool windows = layers != wanted.end() && layers->is_array() &&
                       std::find(layers->begin(), layers->end(), "sliding_attention") != layers->end();
  if (windows && (is_null("sliding_window") || wanted.value("use_sliding_window", true) == false))
    return true;
  if (wanted.contains("conv_L_cache") && is_null("layer_types")) return true;
  if (wanted.value("topk_method", Json()) == "group_limited_greedy" &&
      (is_null("n_group") || is_null("topk_group")))
    return true;
  return wanted.contains("kv_lora_rank") && wanted["num_key_value_heads"] != wanted["num_attention_heads"];
}

// Whether both values have the same meaning.
bool are_alike(const std::string& key, const Json& ours, const Json& theirs, const Json& written) {
  if (ours == theirs) return true;
  // Granite's layers have two names each.
  if (key == "layer_types" && ours.size() == theirs.size() &&
      written.value("model_type", "") == "granitemoehybrid") {
    const auto is_alike = [](const Json& a, const Json& b) {
      return (a == "mamba") == (b == "linear_attention");
    };
    return std::equal(ours.begin(), ours.end(), theirs.begin(), is_alike);
  }
  if (key == "time_step_limit" && theirs.is_null()) return ours[0] == 0 && !ours[1].is_number();  // no limits
  // transformers replaces a null number by a default, or fails; a null flag is not set.
  if (theirs.is_null() && (ours.is_number() || ours == false || ours.is_string())) return true;
  if (key == "sliding_window" && theirs == 0) return ours.is_null();
  const auto has = [&](const char* name, const Json& value) {
    return written.contains(name) && written[name] == value;
  };
  if (key == "sliding_window" && has("use_sliding_window", false)) return true;      // has no effect then
  if (key == "mamba_norm_before_gate" && has("mamba_rms_norm", false)) return true;  // has no effect then
  if (key == "n_group" || key == "topk_group") return has("topk_method", "greedy");
  return key == "original_max_position_embeddings" && has("rope_scaling", Json());  // has no effect then
}

Json shown(const Json& value) {
  static const std::map<std::string, std::string> kNames{{"gelu_new", "gelu_tanh"},
                                                         {"gelu_pytorch_tanh", "gelu_tanh"},
                                                         {"gelu_fast", "gelu_tanh"},
                                                         {"swish", "silu"}};
  if (!value.is_string()) return value;
  const auto name = kNames.find(value.get<std::string>());
  return name == kNames.end() ? value : Json(name->second);
}

// Compares a rotation with the keys of `wanted`.
void expect_rope(const ops::RopeScaling& found, const Json& wanted, const std::string& what) {
  Json written;
  nlohmann::ordered_json keys;
  write_rope(keys, found);
  written = parse_json<Json>(dump_json(keys));
  Json flat = written["rope_scaling"].is_null() ? Json{{"rope_type", "default"}} : written["rope_scaling"];
  flat["rope_theta"] = written["rope_theta"];
  for (const auto& [key, value] : wanted.items()) {
    if (!flat.contains(key) && key != "rope_type") continue;
    EXPECT_EQ(flat[key], value) << what << ": rope." << key;
  }
}

void expect_read(const Json& config, const Json& wanted, const std::string& what) {
  ModelConfig model;
  try {
    model = read_config_json(dump_json(config), "config.json");
  } catch (const Error& error) {
    EXPECT_TRUE(cannot_run(wanted)) << what << ": " << error.what();
    return;
  }
  if (cannot_run(wanted)) return;
  const Json written = parse_json<Json>(write_config_json(model, DType::kF32));
  for (const auto& [key, value] : wanted.items()) {
    if (key == "rope") {
      if (model.positions == Positions::kRotary) expect_rope(model.rope, value, what);
    } else if (key == "window_rope") {
      expect_rope(model.window_rope.value_or(model.rope), value, what + " (windows)");
    } else if (key == "partial_rotary_factor") {
      EXPECT_TRUE(value.is_null() || value == model.partial_rotary_factor)
          << what << ": " << dump_json(value);
    } else if (written.contains(key) && !is_ours(key)) {
      EXPECT_TRUE(are_alike(key, shown(written[key]), shown(value), written))
          << what << ": " << key << " is " << dump_json(written[key]) << ", and " << dump_json(value)
          << " in transformers";
    }
  }
}

TEST(ConfigFiles, AreReadAsInTransformers) {
  const Path golden = STRATA_GOLDEN_MODELS;
  const auto rows = parse_json<Json>(read_file(golden / "configs.json"));
  std::map<std::string, Json> bases, wholes;
  size_t read = 0;
  for (const Json& row : rows) {
    if (row.contains("config")) {
      if (!row.contains("refused"))
        expect_read(row["config"], row["expected"], "text_config " + dump_json(row["config"]));
      continue;
    }
    const std::string base = row["base"];
    if (!bases.contains(base)) {
      bases[base] = parse_json<Json>(read_file(golden / base / "config.json"));
      wholes[base] = row["expected"];
    }
    Json config = bases[base];
    if (row.contains("without")) {
      for (const Json& key : row["without"]) config.erase(key.get<std::string>());
    }
    if (row.contains("set")) {
      for (const auto& [key, value] : row["set"].items()) config[key] = value;
    }
    Json change = row;
    change.erase("expected");
    if (row.contains("refused")) {
      // A file that transformers refuses may be read or refused here, but only with a message.
      try {
        read_config_json(dump_json(config), "config.json");
      } catch (const Error& error) {
        EXPECT_NE(error.kind(), ErrorKind::kInternal) << dump_json(change) << ": " << error.what();
      }
      continue;
    }
    Json wanted = wholes[base];
    wanted.update(row["expected"]);
    if (row.contains("gone")) {
      for (const Json& key : row["gone"]) wanted.erase(key.get<std::string>());
    }
    expect_read(config, wanted, dump_json(change));
    ++read;
  }
  EXPECT_GT(read, 500U);
}

}  // namespace
}  // namespace strata::models
