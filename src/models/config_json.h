// Reads config.json strictly: a field that changes the computation and is not supported is an error.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/model.h"

namespace strata::models {

class ConfigJson {
 public:
  ConfigJson(const std::string& text, std::string where);

  int64_t integer(const char* key) const;  // a positive integer
  int64_t integer_or(const char* key, int64_t fallback) const;
  int64_t count_or(const char* key, int64_t fallback) const;  // 0 or more
  double real_or(const char* key, double fallback) const;
  bool boolean_or(const char* key, bool fallback) const;  // null is false, as in Python's truth tests
  // The first of a list; `fallback` if the field is absent, nothing if it is null.
  std::optional<int64_t> optional_id(const char* key, std::optional<int64_t> fallback = std::nullopt) const;
  // The rest of such a list; empty for a single id.
  std::vector<int64_t> further_ids(const char* key) const;
  bool flag_or(const char* key, bool fallback) const;  // a boolean, or a count that is 0 or not
  std::string text_or(const char* key, const std::string& fallback) const;
  // The field, if present, must have this value: no other is supported.
  void require_equal(const char* key, const nlohmann::json& wanted) const;
  // A number that may be switched off: `fallback` if the field is absent, 0 if it is null.
  double real_or_none(const char* key, double fallback) const;
  // A list of counts, including 0; empty if the field is absent or null.
  std::vector<int64_t> integers(const char* key) const;
  // A list of numbers; empty if the field is absent or null.
  std::vector<double> reals(const char* key) const;
  bool is_text(const char* key) const;  // a field with a text, such as "auto"
  bool is_null(const char* key) const;  // given as null, which is not the same as absent
  // A list of texts; empty if the field is absent or null.
  std::vector<std::string> texts(const char* key) const;
  // Two numbers, of which transformers writes infinity as {"__float__": "Infinity"}; nothing if absent or null.
  std::optional<std::pair<double, double>> limits(const char* key) const;
  // Throws DataError: the file has `found` in this field, not `expected`.
  [[noreturn]] void reject(const char* key, const std::string& found, const std::string& expected) const;
  // The function with this name in transformers.
  ActivationKind activation(const char* key, const char* fallback) const;
  // rope_theta and rope_scaling of hub files, rope_parameters of transformers 5; `layer_type` picks the entry
  // of a rope_parameters that has one for each. `theta_key`: the base outside of these objects.
  // `original_outside`: original_max_position_embeddings next to them takes precedence over that inside.
  ops::RopeScaling rope(int64_t max_positions, double default_theta = 10000, const char* layer_type = nullptr,
                        const char* theta_key = "rope_theta", bool original_outside = false) const;
  // Whether a base is given anywhere: some classes rotate only then.
  bool rotates() const;
  // partial_rotary_factor inside rope_parameters, or `key` on its own.
  double partial_rotary_factor(double fallback, const char* key = "partial_rotary_factor") const;
  // Sets the layers with a window from layer_types, if it is present and differs from the rule in `window`.
  void read_layer_types(int64_t layers, SlidingWindow& window) const;
  // layer_types, if present, must list for every layer whether it has the window, which it calls `name`.
  void require_layer_types(const char* name, int64_t layers, const SlidingWindow& window) const;
  // Every key for dropout that is not 0.
  std::vector<std::pair<std::string, double>> dropout() const;
  // An object within; nothing if absent or null. Errors name KEY.
  std::optional<ConfigJson> part(const char* key) const;
  bool has(const char* key) const { return find(key) != nullptr; }

 private:
  int64_t id_of(const char* key, const nlohmann::json& field) const;
  const nlohmann::json* find(const char* key) const;  // nullptr: absent or null
  const nlohmann::json* rope_object(const char* layer_type) const;
  std::string where_;
  std::shared_ptr<const nlohmann::json> json_;
};

nlohmann::ordered_json id_json(const std::optional<int64_t>& id);
std::string torch_name_of(DType dtype);  // "bfloat16"
void write_rope(nlohmann::ordered_json& json, const ops::RopeScaling& rope);
// rope_parameters with an entry for each type of layers, in place of the older keys.
void write_rope_of_windows(nlohmann::ordered_json& json, const ops::RopeScaling& full,
                           const ops::RopeScaling& windows);
std::string name_of(ActivationKind kind);  // transformers' name
nlohmann::ordered_json layer_types_json(const ModelConfig& config);

}  // namespace strata::models
