#include "plan/catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/suggest.h"
#include "base/toml.h"
#include "plan/builtin_data.h"
#include "plan/catalogue_read.h"
#include "plan/doctor_file.h"

namespace strata::planning {
namespace {

ConfigValue builtin_document() {
  ConfigValue document;
  document.data = ConfigValue::Table{};
  for (const BuiltinFile& file : builtin_files()) {
    ConfigValue part = parse_toml(file.text, std::string(file.name));
    detail::attach_sources(part);
    detail::overlay(document, std::move(part));
  }
  return document;
}

bool is_cluster_file(const std::string& name_or_file) {
  return name_or_file.ends_with(".toml") || name_or_file.ends_with(".json") ||
         name_or_file.find('/') != std::string::npos;
}

// The cluster that a user's document describes: the one it names with `use`, or its only one.
std::string used_cluster(const ConfigValue& user, const std::string& name) {
  if (const ConfigValue* use = user.find("use")) {
    if (const auto* text = use->get_if<std::string>(); text && !text->empty()) return *text;
    throw ConfigError("[{}] use: found {}, expected the name of a cluster", to_string(use->origin),
                      to_toml(*use));
  }
  std::vector<std::string> names;
  if (const ConfigValue* clusters = user.find("cluster")) {
    if (const auto* entries = clusters->get_if<ConfigValue::Table>()) {
      for (const ConfigEntry& entry : *entries) names.push_back(entry.key);
    }
  }
  if (names.size() == 1) return names.front();
  if (names.empty()) {
    throw ConfigError(
        "[{}] found no cluster, expected one [cluster.NAME], or use = \"NAME\" with a built-in one", name);
  }
  throw ConfigError("[{}] found the clusters {}, expected one, or use = \"NAME\" to choose", name,
                    fmt::join(names, ", "));
}

// Applies one --set: "cluster.link.nvlink.size=4" to the used cluster, "chip.power=650" to its chip.
void apply(ConfigValue& document, const std::string& cluster, const std::string& chip,
           const std::string& set) {
  const auto starts = [&](std::string_view prefix) { return set.rfind(prefix, 0) == 0; };
  if (starts("cluster.")) {
    apply_set(document, fmt::format("cluster.{}.{}", cluster, set.substr(8)));
  } else if (starts("chip.")) {
    apply_set(document, fmt::format("chip.{}.{}", chip, set.substr(5)));
  } else {
    throw ConfigError("[--set] found \"{}\", expected a key that begins with cluster. or chip.", set);
  }
}

Catalogue with_user_document(ConfigValue user, const std::string& name, std::span<const std::string> sets) {
  detail::attach_sources(user);
  ConfigValue document = builtin_document();
  const std::string used = used_cluster(user, name);
  detail::overlay(document, std::move(user));
  if (!sets.empty()) {
    const std::string chip = find_cluster(detail::read_document(document), used).chip.name;
    for (const std::string& set : sets) apply(document, used, chip, set);
  }
  Catalogue catalogue = detail::read_document(document);
  catalogue.used_cluster = find_cluster(catalogue, used).name;
  return catalogue;
}

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  });
}

template <typename Spec>
std::vector<std::string> names_of_all(const std::vector<Spec>& specs) {
  std::vector<std::string> names;
  for (const Spec& spec : specs) names.push_back(spec.name);
  return names;
}

[[noreturn]] void unknown(std::string_view what, std::string_view name, const std::vector<std::string>& names,
                          std::string_view also) {
  std::optional<std::string> nearest = nearest_name(name, names);
  // People leave out the end of a name: "h100" is nearer to "h100-sxm" than to "v100".
  for (const std::string& known : names) {
    if (name.size() < 3 || !same_name(std::string_view(known).substr(0, name.size()), name)) continue;
    nearest = known;
    break;
  }
  throw ConfigError("[{}] found \"{}\", expected one of {}{}{}", what, name, fmt::join(names, ", "), also,
                    nearest ? fmt::format("; did you mean \"{}\"?", *nearest) : "");
}

}  // namespace

std::string_view to_string(Terms terms) {
  static constexpr std::string_view kNames[] = {"on_demand", "reserved", "spot"};
  return kNames[static_cast<size_t>(terms)];
}

Catalogue builtin_catalogue() {
  return detail::read_document(builtin_document());
}

std::vector<std::string> builtin_names(std::string_view table) {
  const std::string begin = fmt::format("\n[{}.", table);
  std::vector<std::string> out;
  for (const BuiltinFile& file : builtin_files()) {
    for (size_t at = file.text.find(begin); at != std::string_view::npos;
         at = file.text.find(begin, at + 1)) {
      const size_t name = at + begin.size();
      const std::string_view rest = file.text.substr(name, file.text.find(']', name) - name);
      if (rest.find('.') == std::string_view::npos) out.emplace_back(rest);  // not a table below it
    }
  }
  return out;
}

namespace {

// A measured host has no figures of a chip to change; its links have.
Catalogue with_doctor_file(const Path& file, std::span<const std::string> sets) {
  for (const std::string& set : sets) {
    if (set.starts_with("chip."))
      throw ConfigError("[--set] found {}, expected cluster.…: {} has a device that was measured", set,
                        file.string());
  }
  const ClusterSpec here = cluster_of_doctor(read_file(file), file.string());
  Catalogue out = parse_catalogue(cluster_file(here), file.string(), sets);
  for (ClusterSpec& cluster : out.clusters) {
    if (cluster.name == here.name) cluster.measured = here.measured;
  }
  return out;
}

}  // namespace

Catalogue read_catalogue(const Path& file, std::span<const std::string> sets) {
  if (file.extension() == ".json") return with_doctor_file(file, sets);
  return with_user_document(read_toml(file), file.string(), sets);
}

Catalogue parse_catalogue(std::string_view text, const std::string& name, std::span<const std::string> sets) {
  ConfigValue document = parse_toml(text, name);
  if (const ConfigValue* include = document.find("include"))
    throw ConfigError("[{}] include: expected none, since this text is not a file",
                      to_string(include->origin));
  return with_user_document(std::move(document), name, sets);
}

const ChipSpec& find_chip(const Catalogue& catalogue, std::string_view name) {
  for (const ChipSpec& chip : catalogue.chips) {
    if (same_name(chip.name, name)) return chip;
  }
  for (const ChipSpec& chip : catalogue.chips) {
    for (const std::string& alias : chip.aliases) {
      if (same_name(alias, name)) return chip;
    }
  }
  unknown("chip", name, names_of_all(catalogue.chips), "");
}

const ClusterSpec& find_cluster(const Catalogue& catalogue, std::string_view name) {
  for (const ClusterSpec& cluster : catalogue.clusters) {
    if (same_name(cluster.name, name)) return cluster;
  }
  unknown("--cluster", name, names_of_all(catalogue.clusters), ", or a file");
}

const Region& find_region(const Catalogue& catalogue, std::string_view name) {
  for (const Region& region : catalogue.regions) {
    if (same_name(region.name, name)) return region;
  }
  unknown("region", name, names_of_all(catalogue.regions), "");
}

Sets split_sets(std::span<const std::string> sets) {
  Sets split;
  for (const std::string& set : sets) {
    const bool is_cluster = set.starts_with("cluster.") || set.starts_with("chip.");
    (is_cluster ? split.cluster : split.run).push_back(set);
  }
  return split;
}

Catalogue catalogue_for(const std::string& name_or_file) {
  return is_cluster_file(name_or_file) ? read_catalogue(name_or_file) : builtin_catalogue();
}

ClusterSpec resolve_cluster(const std::string& name_or_file, std::span<const std::string> sets) {
  if (is_cluster_file(name_or_file)) {
    const Catalogue catalogue = read_catalogue(name_or_file, sets);
    return find_cluster(catalogue, catalogue.used_cluster);
  }
  if (sets.empty()) return find_cluster(builtin_catalogue(), name_or_file);
  const std::string name = find_cluster(builtin_catalogue(), name_or_file).name;
  const Catalogue catalogue = parse_catalogue(fmt::format("use = \"{}\"", name), name, sets);
  return find_cluster(catalogue, name);
}

std::vector<Price> prices_of(const Catalogue& catalogue, std::string_view chip, std::optional<Terms> terms) {
  std::vector<Price> out;
  for (const Price& price : catalogue.prices) {
    if (price.chip == chip && (!terms || price.terms == *terms)) out.push_back(price);
  }
  std::stable_sort(out.begin(), out.end(), [](const Price& a, const Price& b) { return a.low < b.low; });
  return out;
}

}  // namespace strata::planning
