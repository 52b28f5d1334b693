// Reading config.json strictly: a field that changes the mathematics and is not supported is refused by name.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "models/model.h"

namespace strata::models {

class ConfigJson {
 public:
  ConfigJson(const std::string& text, std::string where);

  int64_t integer(const char* key) const;  // a positive integer
  int64_t integer_or(const char* key, int64_t fallback) const;
  double real_or(const char* key, double fallback) const;
  bool boolean_or(const char* key, bool fallback) const;
  std::optional<int64_t> optional_id(const char* key) const;  // the first of a list
  std::string text_or(const char* key, const std::string& fallback) const;
  // The field, where it stands, must have this value: no other is supported.
  void require_equal(const char* key, const nlohmann::json& wanted) const;
  void require_one_of(const char* key, std::initializer_list<const char*> wanted) const;
  // rope_theta and rope_scaling of hub files, rope_parameters of transformers 5.
  ops::RopeScaling rope_scaling() const;

 private:
  const nlohmann::json* find(const char* key) const;  // nullptr: absent or null
  std::string where_;
  nlohmann::json json_;
};

nlohmann::ordered_json id_json(const std::optional<int64_t>& id);
std::string torch_name_of(DType dtype);  // "bfloat16"
void write_rope(nlohmann::ordered_json& json, const ops::RopeScaling& rope);

}  // namespace strata::models
