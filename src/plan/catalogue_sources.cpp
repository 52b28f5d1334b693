#include <algorithm>

#include "plan/catalogue_read.h"
#include "plan/catalogue_schema.h"

namespace strata::planning::detail {
namespace {

bool is_figure(const ConfigValue& value) {
  return value.find("value") != nullptr;
}

void put(ConfigValue& table, std::string key, ConfigValue value) {
  std::get<ConfigValue::Table>(table.data).push_back({std::move(key), std::move(value)});
}
ConfigValue text_at(std::string text, const Origin& origin) {
  ConfigValue value;
  value.origin = origin;
  value.data = std::move(text);
  return value;
}

// The source and mark that the figures of a section inherit.
struct SectionSource {
  const ConfigValue* source = nullptr;
  const ConfigValue* mark = nullptr;
};
SectionSource section_source(const ConfigValue& section, SectionSource outer) {
  const ConfigValue* source = section.find("source");
  return source ? SectionSource{source, section.find("mark")} : outer;
}

void attach_to_figure(ConfigValue& figure, SectionSource section) {
  if (!figure.is_table()) {
    ConfigValue table;
    table.origin = figure.origin;
    table.data = ConfigValue::Table{};
    put(table, "value", std::move(figure));
    figure = std::move(table);
  }
  auto& entries = std::get<ConfigValue::Table>(figure.data);
  const ConfigValue* value = figure.find("value");
  const Origin origin = value ? value->origin : figure.origin;
  const auto from_elsewhere = [&](const ConfigEntry& entry) {
    return (entry.key == "source" || entry.key == "mark") && entry.value.origin.file != origin.file;
  };
  entries.erase(std::remove_if(entries.begin(), entries.end(), from_elsewhere), entries.end());
  if (figure.find("source")) return;
  if (section.source && section.source->origin.file == origin.file) {
    put(figure, "source", *section.source);
    if (section.mark && !figure.find("mark")) put(figure, "mark", *section.mark);
  } else {
    put(figure, "source", text_at(to_string(origin), origin));
    if (!figure.find("mark")) put(figure, "mark", text_at("user", origin));
  }
}

template <typename Spec, size_t n>
void attach_to_section(ConfigValue& section, SectionSource source, const FigureKey<Spec> (&figures)[n]) {
  for (const auto& figure : figures) {
    if (ConfigValue* found = section.find(figure.key)) attach_to_figure(*found, source);
  }
}

void attach_to_chip(ConfigValue& chip) {
  const SectionSource source = section_source(chip, {});
  attach_to_section(chip, source, kChipFigures);
  for (const char* name : {"peak", "achievable"}) {
    ConfigValue* table = chip.find(name);
    if (!table || !table->is_table()) continue;
    const SectionSource inner = section_source(*table, source);
    for (const Precision precision : kAllPrecisions) {
      if (ConfigValue* found = table->find(to_string(precision))) attach_to_figure(*found, inner);
    }
  }
}

void attach_to_cluster(ConfigValue& cluster) {
  const SectionSource source = section_source(cluster, {});
  attach_to_section(cluster, source, kClusterFigures);
  ConfigValue* links = cluster.find("link");
  if (!links || !links->is_table()) return;
  for (ConfigEntry& link : std::get<ConfigValue::Table>(links->data)) {
    if (link.value.is_table())
      attach_to_section(link.value, section_source(link.value, source), kLinkFigures);
  }
}

template <typename Attach>
void for_each_section(ConfigValue& document, std::string_view kind, Attach attach) {
  ConfigValue* sections = document.find(kind);
  if (!sections || !sections->is_table()) return;
  for (ConfigEntry& section : std::get<ConfigValue::Table>(sections->data)) {
    if (section.value.is_table()) attach(section.value);
  }
}

}  // namespace

void attach_sources(ConfigValue& document) {
  for_each_section(document, "chip", attach_to_chip);
  for_each_section(document, "cluster", attach_to_cluster);
  for_each_section(document, "region", [](ConfigValue& region) {
    attach_to_section(region, section_source(region, {}), kRegionFigures);
  });
  ConfigValue* defaults = document.find("defaults");
  if (!defaults) return;
  const auto attach = [&](std::string_view kind, auto function) {
    ConfigValue* section = defaults->find(kind);
    if (section && section->is_table()) function(*section);
  };
  attach("chip", attach_to_chip);
  attach("cluster", attach_to_cluster);
  attach("link", [](ConfigValue& link) { attach_to_section(link, section_source(link, {}), kLinkFigures); });
}

void overlay(ConfigValue& base, ConfigValue over) {
  if (!base.is_table() || !over.is_table() || is_figure(base) || is_figure(over)) {
    base = std::move(over);
    return;
  }
  base.origin = over.origin;
  for (ConfigEntry& entry : std::get<ConfigValue::Table>(over.data)) {
    ConfigValue* found = base.find(entry.key);
    if (!found) {
      std::get<ConfigValue::Table>(base.data).push_back(std::move(entry));
    } else if (entry.key == "price" && found->is_array() && entry.value.is_array()) {
      auto& added = std::get<ConfigValue::Array>(entry.value.data);
      for (ConfigValue& item : std::get<ConfigValue::Array>(found->data)) added.push_back(std::move(item));
      *found = std::move(entry.value);
    } else {
      overlay(*found, std::move(entry.value));
    }
  }
}

}  // namespace strata::planning::detail
