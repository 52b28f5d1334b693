
#include "base/json.h"
#include "config/keys.h"
#include "config/value_json.h"

namespace strata::config {
namespace {

using Json = nlohmann::ordered_json;

Json bounded(Json out, const ValueShape& shape) {
  if (shape.least) out["minimum"] = *shape.least;
  if (shape.most) out["maximum"] = *shape.most;
  if (shape.above) out["exclusiveMinimum"] = *shape.above;
  if (shape.below) out["exclusiveMaximum"] = *shape.below;
  return out;
}

// The forms that a value may take, each a schema.
std::vector<Json> forms(const ValueShape& shape) {
  using Base = ValueShape::Base;
  const Json text = {{"type", "string"}};
  switch (shape.base) {
    case Base::kBoolean:
      return {{{"type", "boolean"}}};
    case Base::kInteger: {
      std::vector<Json> out = {bounded({{"type", "integer"}}, shape)};
      if (shape.counts) out.push_back({{"type", "string"}, {"pattern", "^[0-9][0-9._]* *[kKMBGT]?$"}});
      return out;
    }
    case Base::kNumber:
      return {bounded({{"type", "number"}}, shape)};
    case Base::kString:
      return {text};
    case Base::kChoice:
      return {{{"enum", shape.choices}}};
    case Base::kTexts:
      return {{{"type", "array"}, {"items", text}}, text};
    case Base::kBytes:
      return {{{"type", "integer"}, {"minimum", 1}},
              {{"type", "string"}, {"pattern", "^[0-9][0-9._]* *([kKMGT]i?)?B?$"}}};
    case Base::kDuration:
      return {{{"type", "integer"}, {"minimum", 1}},
              {{"type", "string"}, {"pattern", "^[0-9][0-9._:]* *[a-z]*$"}}};
    case Base::kInterval:
      return {{{"type", "integer"}, {"minimum", 1}},
              {{"type", "string"}, {"pattern", "^(never|[0-9][0-9._]* *[kKMBGT]? *[a-z]*)$"}}};
    case Base::kStageLayers:
      return {{{"type", "array"}, {"items", {{"type", "integer"}, {"minimum", 0}}}}, {{"type", "string"}}};
    case Base::kToken:
      return {text, {{"type", "integer"}, {"minimum", 0}}};
    case Base::kRanges:
      return {
          {{"type", "array"},
           {"items",
            {{"anyOf",
              {{{"type", "integer"}, {"minimum", 0}},
               {{"type", "string"}},
               {{"type", "array"}, {"items", {{"type", "integer"}}}, {"minItems", 2}, {"maxItems", 2}}}}}}}};
    case Base::kRamp:
      return {{{"type", "array"},
               {"items",
                {{"type", "array"},
                 {"items", {{"type", {"integer", "number", "string"}}}},
                 {"minItems", 2},
                 {"maxItems", 2}}}}};
    case Base::kWeights:
      return {{{"type", "object"}, {"additionalProperties", bounded({{"type", "number"}}, shape)}}};
    case Base::kFree:
      return {{{"type", "object"}}};
    case Base::kAny:
      return {{{"type", {"boolean", "integer", "number", "string", "array", "object"}}}};
  }
  return {};
}

Json key_schema(const KeySpec& spec, const std::optional<ConfigValue>& standard, bool later) {
  std::vector<Json> all = forms(spec.shape);
  if (!spec.shape.word.empty()) all.push_back({{"const", spec.shape.word}});
  Json out = all.size() == 1 ? all[0] : Json{{"anyOf", all}};
  out["description"] = later ? "Not yet: " + spec.help : spec.help;
  if (standard) out["default"] = to_json(*standard);
  return out;
}

Json table_schema(const TableSpec& table) {
  RunConfig defaults;
  const void* object = table.at(defaults, 0);
  Json properties = Json::object();
  for (const KeySpec& spec : table.keys) {
    properties[spec.name] = key_schema(spec, spec.write(object), spec.later || table.later);
  }
  return {{"type", "object"},
          {"description", table.help},
          {"properties", properties},
          {"additionalProperties", false}};
}

}  // namespace

std::string config_schema() {
  Json root = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
               {"title", "RUN.toml, the configuration of a run of strata"},
               {"type", "object"},
               {"properties",
                {{"include",
                  {{"description", "Files that this one builds on; paths start at this file's folder."},
                   {"type", "array"},
                   {"items", {{"type", "string"}}}}}}},
               {"additionalProperties", false}};
  for (const TableSpec& table : run_tables()) {
    Json schema = table_schema(table);
    if (table.list) schema = {{"type", "array"}, {"items", schema}};
    const size_t dot = table.name.find('.');
    if (dot == std::string::npos) {
      root["properties"][table.name] = schema;
    } else {
      root["properties"][table.name.substr(0, dot)]["properties"][table.name.substr(dot + 1)] = schema;
    }
  }
  return dump_json(root, 2);
}

}  // namespace strata::config
