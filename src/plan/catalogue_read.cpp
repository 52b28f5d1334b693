#include "plan/catalogue_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/suggest.h"
#include "plan/catalogue_schema.h"

namespace strata::planning::detail {
namespace {

using Names = std::vector<std::string>;

const Names& chip_keys() {
  static const Names keys = {"title",  "vendor", "kind", "aliases",   "extends",
                             "source", "mark",   "peak", "achievable"};
  return keys;
}
const Names& cluster_keys() {
  static const Names keys = {"title",         "chip", "extends",      "source", "mark", "devices_per_host",
                             "nics_per_host", "link", "measured_mttf"};
  return keys;
}
const Names& link_keys() {
  static const Names keys = {"size", "topology", "source", "mark"};
  return keys;
}
const Names& region_keys() {
  static const Names keys = {"source", "mark"};
  return keys;
}
Names dtype_names() {
  Names names;
  for (const Precision one : kAllPrecisions) names.emplace_back(to_string(one));
  return names;
}

template <typename Spec, size_t n>
Names with_figures(Names names, const FigureKey<Spec> (&figures)[n]) {
  for (const auto& figure : figures) names.emplace_back(figure.key);
  return names;
}

const std::string* string_in(const ConfigValue& table, std::string_view key) {
  const ConfigValue* found = table.find(key);
  return found ? found->get_if<std::string>() : nullptr;
}

class Reader {
 public:
  explicit Reader(const ConfigValue& document) : document_(document) {}

  Catalogue read() {
    check_keys(document_, "", {"chip", "cluster", "price", "region", "defaults", "use"});
    if (const ConfigValue* defaults = document_.find("defaults"))
      check_keys(*defaults, "defaults", {"chip", "cluster", "link"});
    for (const std::string& name : names_of("chip")) read_chip(name);
    for (const std::string& name : names_of("cluster")) read_cluster(name);
    read_prices();
    read_regions();
    if (!errors_.empty()) throw ConfigError(fmt::format("{}", fmt::join(errors_, "\n")));
    return std::move(out_);
  }

 private:
  void report(const Origin& origin, const std::string& key, const std::string& text) {
    errors_.push_back(fmt::format("[{}] {}: {}", to_string(origin), key, text));
  }
  void mismatch(const ConfigValue& value, const std::string& key, std::string_view expected) {
    std::string found = to_toml(value);
    if (found.size() > 80) found = found.substr(0, 77) + "...";
    report(value.origin, key, fmt::format("found {}, expected {}", found, expected));
  }
  static std::string nearest(std::string_view name, const Names& names) {
    const auto found = nearest_name(name, names);
    return found ? fmt::format("; did you mean \"{}\"?", *found) : "";
  }

  void check_keys(const ConfigValue& table, const std::string& at, const Names& known) {
    const auto* entries = table.get_if<ConfigValue::Table>();
    if (!entries) {
      mismatch(table, at, "a table");
      return;
    }
    for (const ConfigEntry& entry : *entries) {
      if (std::find(known.begin(), known.end(), entry.key) != known.end()) continue;
      report(entry.value.origin, at.empty() ? entry.key : at + "." + entry.key,
             fmt::format("unknown key, expected one of {}{}", fmt::join(known, ", "),
                         nearest(entry.key, known)));
    }
  }

  Names names_of(std::string_view kind) {
    Names names;
    const ConfigValue* sections = document_.find(kind);
    if (!sections) return names;
    const auto* entries = sections->get_if<ConfigValue::Table>();
    if (!entries) mismatch(*sections, std::string(kind), fmt::format("tables such as [{}.NAME]", kind));
    for (const ConfigEntry& entry : entries ? *entries : ConfigValue::Table{}) {
      if (entry.value.is_table()) {
        names.push_back(entry.key);
      } else {
        mismatch(entry.value, fmt::format("{}.{}", kind, entry.key), "a table");
      }
    }
    return names;
  }

  // A section merged over the section that it extends; nullopt after an error. `open`: the sections that led
  // to this one.
  std::optional<ConfigValue> resolved(std::string_view kind, const std::string& name, Names open = {}) {
    const ConfigValue* own = document_.find(kind)->find(name);
    const ConfigValue* extends = own->find("extends");
    if (!extends) return *own;
    const std::string key = fmt::format("{}.{}.extends", kind, name);
    const auto* parent = extends->get_if<std::string>();
    const Names names = names_of(kind);
    if (!parent) {
      mismatch(*extends, key, "a name");
      return std::nullopt;
    }
    if (std::find(names.begin(), names.end(), *parent) == names.end()) {
      report(
          extends->origin, key,
          fmt::format("found \"{}\", expected the name of a {}{}", *parent, kind, nearest(*parent, names)));
      return std::nullopt;
    }
    open.push_back(name);
    if (std::find(open.begin(), open.end(), *parent) != open.end() || open.size() > 32) {
      report(
          extends->origin, key,
          fmt::format("found a cycle {} → {}, expected a chain that ends", fmt::join(open, " → "), *parent));
      return std::nullopt;
    }
    std::optional<ConfigValue> base = resolved(kind, *parent, open);
    if (!base) return std::nullopt;
    auto& entries = std::get<ConfigValue::Table>(base->data);
    std::erase_if(entries, [](const ConfigEntry& entry) {
      return entry.key == "title" || entry.key == "aliases" || entry.key == "extends";
    });
    overlay(*base, *own);
    return base;
  }

  // `section` merged over [defaults.KIND].
  ConfigValue with_defaults(std::string_view kind, ConfigValue section) {
    const ConfigValue* defaults = document_.find("defaults");
    const ConfigValue* own = defaults ? defaults->find(kind) : nullptr;
    if (!own || !own->is_table()) return section;
    ConfigValue out = *own;
    out.origin = section.origin;
    overlay(out, std::move(section));
    return out;
  }

  Figure figure(const ConfigValue& value, const std::string& key, Quantity quantity) {
    Figure out;
    const ConfigValue* number = value.is_table() ? value.find("value") : &value;
    if (value.is_table()) check_keys(value, key, {"value", "source", "mark"});
    if (!number) {
      mismatch(value, key, "a value or { value = …, source = … }");
      return out;
    }
    const std::optional<double> parsed = quantity_of(*number, quantity);
    if (!parsed) {
      mismatch(*number, key, rule_of(quantity).expected);
      return out;
    }
    out.value = *parsed;
    const std::string* source = value.is_table() ? string_in(value, "source") : nullptr;
    if (!source || source->empty() || number->origin.kind != Origin::Kind::kFile) {
      out.source = to_string(number->origin);
      out.evidence = Evidence::kUser;
    } else {
      out.source = *source;
      out.evidence = mark_of(value, key);
    }
    return out;
  }

  Evidence mark_of(const ConfigValue& table, const std::string& key) {
    static constexpr Evidence kAll[] = {Evidence::kRead,      Evidence::kComputed, Evidence::kMeasured,
                                        Evidence::kSecondary, Evidence::kInferred, Evidence::kMemory,
                                        Evidence::kUser};
    const ConfigValue* mark = table.find("mark");
    if (!mark) return Evidence::kRead;
    for (const Evidence evidence : kAll) {
      const auto* text = mark->get_if<std::string>();
      if (text && *text == to_string(evidence)) return evidence;
    }
    mismatch(*mark, key + ".mark", "read, computed, measured, secondary, inferred, memory or user");
    return Evidence::kMemory;
  }

  template <typename Spec, size_t n>
  void read_figures(Spec& spec, const ConfigValue& table, const std::string& at,
                    const FigureKey<Spec> (&figures)[n]) {
    for (const auto& entry : figures) {
      const std::string key = at + "." + std::string(entry.key);
      if (const ConfigValue* found = table.find(entry.key)) {
        spec.*entry.member = figure(*found, key, entry.quantity);
      } else if (entry.required) {
        report(table.origin, key, fmt::format("missing, expected {}", rule_of(entry.quantity).expected));
      }
    }
  }

  std::string text_of(const ConfigValue& table, std::string_view key, const std::string& at,
                      std::string fallback) {
    const ConfigValue* found = table.find(key);
    if (!found) return fallback;
    if (const auto* text = found->get_if<std::string>(); text && !text->empty()) return *text;
    mismatch(*found, at + "." + std::string(key), "text");
    return fallback;
  }

  int64_t count_of(const ConfigValue& table, std::string_view key, const std::string& at, int64_t least,
                   std::optional<int64_t> fallback) {
    const ConfigValue* found = table.find(key);
    const std::string name = at + "." + std::string(key);
    const std::string expected = fmt::format("a whole number from {} to 1000000000", least);
    if (!found) {
      if (!fallback) report(table.origin, name, "missing, expected " + expected);
      return fallback.value_or(least);
    }
    const auto* number = found->get_if<int64_t>();
    if (number && *number >= least && *number <= 1'000'000'000) return *number;
    mismatch(*found, name, expected);
    return least;
  }

  void read_chip(const std::string& name) {
    const std::string at = "chip." + name;
    std::optional<ConfigValue> section = resolved("chip", name);
    if (!section) return;
    const ConfigValue table = with_defaults("chip", std::move(*section));
    check_keys(table, at, with_figures(chip_keys(), kChipFigures));
    ChipSpec chip;
    chip.name = name;
    chip.title = text_of(table, "title", at, name);
    chip.vendor = text_of(table, "vendor", at, "");
    chip.kind = text_of(table, "kind", at, "gpu");
    if (chip.kind != "gpu" && chip.kind != "tpu" && chip.kind != "cpu")
      mismatch(*table.find("kind"), at + ".kind", "gpu, tpu or cpu");
    read_figures(chip, table, at, kChipFigures);
    if (const ConfigValue* aliases = table.find("aliases")) {
      const auto* list = aliases->get_if<ConfigValue::Array>();
      if (!list) mismatch(*aliases, at + ".aliases", "a list of names");
      for (const ConfigValue& alias : list ? *list : ConfigValue::Array{}) {
        const auto* text = alias.get_if<std::string>();
        if (text && !text->empty())
          chip.aliases.push_back(*text);
        else
          mismatch(alias, at + ".aliases", "a name");
      }
    }
    read_dtypes(chip.peak, table, at, "peak", Quantity::kFlops);
    read_dtypes(chip.achievable, table, at, "achievable", Quantity::kFraction);
    const bool has_peak =
        std::any_of(chip.peak.begin(), chip.peak.end(), [](const Figure& f) { return f.value > 0; });
    if (!has_peak) report(table.origin, at + ".peak", "missing, expected the peak of at least one dtype");
    out_.chips.push_back(std::move(chip));
  }

  void read_dtypes(ByPrecision<Figure>& out, const ConfigValue& table, const std::string& at,
                   const std::string& name, Quantity quantity) {
    const ConfigValue* found = table.find(name);
    if (!found) return;
    Names known = dtype_names();
    known.insert(known.end(), {"source", "mark"});
    check_keys(*found, at + "." + name, known);
    for (const Precision precision : kAllPrecisions) {
      const std::string dtype(to_string(precision));
      if (const ConfigValue* value = found->find(dtype))
        out[precision] = figure(*value, fmt::format("{}.{}.{}", at, name, dtype), quantity);
    }
  }

  void read_cluster(const std::string& name) {
    const std::string at = "cluster." + name;
    std::optional<ConfigValue> section = resolved("cluster", name);
    if (!section) return;
    const ConfigValue table = with_defaults("cluster", std::move(*section));
    check_keys(table, at, with_figures(cluster_keys(), kClusterFigures));
    ClusterSpec cluster;
    cluster.name = name;
    cluster.title = text_of(table, "title", at, name);
    cluster.devices_per_host = count_of(table, "devices_per_host", at, 1, std::nullopt);
    cluster.nics_per_host = count_of(table, "nics_per_host", at, 0, 0);
    read_figures(cluster, table, at, kClusterFigures);
    if (cluster.pue.known() && cluster.pue.value < 1)
      mismatch(*table.find("pue"), at + ".pue", "a number of at least 1");
    read_cluster_chip(cluster, table, at);
    read_links(cluster, table, at);
    read_mttf(cluster, table, at);
    out_.clusters.push_back(std::move(cluster));
  }

  void read_cluster_chip(ClusterSpec& cluster, const ConfigValue& table, const std::string& at) {
    const ConfigValue* found = table.find("chip");
    if (!found) {
      report(table.origin, at + ".chip", "missing, expected the name of a chip");
      return;
    }
    const auto* name = found->get_if<std::string>();
    for (const ChipSpec& chip : out_.chips) {
      if (name && chip.name == *name) {
        cluster.chip = chip;
        return;
      }
    }
    const Names names = names_of("chip");
    // A chip with an error is not in the catalogue; its message is enough.
    if (name && std::find(names.begin(), names.end(), *name) != names.end()) return;
    report(found->origin, at + ".chip",
           fmt::format("found {}, expected the name of a chip{}", to_toml(*found),
                       name ? nearest(*name, names) : ""));
  }

  void read_links(ClusterSpec& cluster, const ConfigValue& table, const std::string& at) {
    const ConfigValue* links = table.find("link");
    const auto* entries = links ? links->get_if<ConfigValue::Table>() : nullptr;
    if (!entries) {
      report(links ? links->origin : table.origin, at + ".link",
             "expected tables such as [" + at + ".link.nvlink], one of them with size = \"all\"");
      return;
    }
    for (const ConfigEntry& entry : *entries) {
      const std::string key = at + ".link." + entry.key;
      if (!entry.value.is_table()) {
        mismatch(entry.value, key, "a table with size and bandwidth");
        continue;
      }
      const ConfigValue link = with_defaults("link", entry.value);
      check_keys(link, key, with_figures(link_keys(), kLinkFigures));
      LinkLevel level;
      level.name = entry.key;
      level.size = link_size(link, key);
      const std::string topology = text_of(link, "topology", key, "switch");
      if (topology == "mesh")
        level.topology = Topology::kMesh;
      else if (topology == "torus")
        level.topology = Topology::kTorus;
      else if (topology != "switch")
        mismatch(*link.find("topology"), key + ".topology", "switch, mesh or torus");
      read_figures(level, link, key, kLinkFigures);
      cluster.links.push_back(std::move(level));
    }
    const auto rank = [](const LinkLevel& level) {
      return level.size == LinkLevel::kAll ? INT64_MAX : level.size;
    };
    std::stable_sort(cluster.links.begin(), cluster.links.end(),
                     [&](const LinkLevel& a, const LinkLevel& b) { return rank(a) < rank(b); });
    for (size_t i = 1; i < cluster.links.size(); ++i) {
      if (cluster.links[i].size == cluster.links[i - 1].size) {
        report(links->origin, at + ".link",
               fmt::format("\"{}\" and \"{}\" have the same size, expected one link per size",
                           cluster.links[i - 1].name, cluster.links[i].name));
      }
    }
    if (cluster.links.empty() || cluster.links.back().size != LinkLevel::kAll)
      report(links->origin, at + ".link",
             "found no link between all devices, expected one with size = \"all\"");
  }

  int64_t link_size(const ConfigValue& link, const std::string& key) {
    const ConfigValue* size = link.find("size");
    constexpr std::string_view expected = "the devices of one domain, from 2 to 1000000000, or \"all\"";
    if (!size) {
      report(link.origin, key + ".size", fmt::format("missing, expected {}", expected));
      return 2;
    }
    if (const auto* text = size->get_if<std::string>(); text && *text == "all") return LinkLevel::kAll;
    const auto* number = size->get_if<int64_t>();
    if (number && *number >= 2 && *number <= 1'000'000'000) return *number;
    mismatch(*size, key + ".size", expected);
    return 2;
  }

  void read_mttf(ClusterSpec& cluster, const ConfigValue& table, const std::string& at) {
    const ConfigValue* found = table.find("measured_mttf");
    if (!found) return;
    const std::string key = at + ".measured_mttf";
    const auto* list = found->get_if<ConfigValue::Array>();
    if (!list) mismatch(*found, key, "a list of { devices, mttf }");
    for (const ConfigValue& item : list ? *list : ConfigValue::Array{}) {
      check_keys(item, key, {"devices", "mttf", "source"});
      if (!item.is_table()) continue;
      const ConfigValue* mttf = item.find("mttf");
      const auto seconds = mttf ? quantity_of(*mttf, Quantity::kSeconds) : std::nullopt;
      if (!seconds || *seconds <= 0) {
        mismatch(mttf ? *mttf : item, key + ".mttf", "a time above 0 such as \"8 h\"");
        continue;
      }
      cluster.measured_mttf.push_back({count_of(item, "devices", key, 1, std::nullopt), *seconds,
                                       text_of(item, "source", key, to_string(item.origin))});
    }
    std::stable_sort(cluster.measured_mttf.begin(), cluster.measured_mttf.end(),
                     [](const JobMttf& a, const JobMttf& b) { return a.devices < b.devices; });
  }

  void read_prices() {
    const ConfigValue* prices = document_.find("price");
    if (!prices) return;
    const auto* list = prices->get_if<ConfigValue::Array>();
    if (!list) mismatch(*prices, "price", "tables such as [[price]]");
    for (const ConfigValue& item : list ? *list : ConfigValue::Array{}) {
      check_keys(item, "price",
                 {"chip", "provider", "region", "terms", "usd_per_hour", "date", "source", "mark"});
      if (item.is_table()) read_price(item);
    }
  }

  void read_price(const ConfigValue& item) {
    Price price;
    const std::string chip = text_of(item, "chip", "price", "");
    const Names names = names_of("chip");
    if (std::find(names.begin(), names.end(), chip) == names.end()) {
      report(item.origin, "price.chip",
             fmt::format("found \"{}\", expected the name of a chip{}", chip, nearest(chip, names)));
    }
    price.chip = chip;
    price.provider = text_of(item, "provider", "price", "");
    if (price.provider.empty()) report(item.origin, "price.provider", "missing, expected a name");
    price.region = text_of(item, "region", "price", "");
    price.date = text_of(item, "date", "price", "");
    if (price.date.empty()) report(item.origin, "price.date", "missing, expected a date such as \"2026-01\"");
    const std::string terms = text_of(item, "terms", "price", "on_demand");
    if (terms == "spot")
      price.terms = Terms::kSpot;
    else if (terms == "reserved")
      price.terms = Terms::kReserved;
    else if (terms != "on_demand")
      mismatch(*item.find("terms"), "price.terms", "on_demand, reserved or spot");
    price.source = text_of(item, "source", "price", "");
    price.evidence = price.source.empty() ? Evidence::kUser : mark_of(item, "price");
    if (price.source.empty()) price.source = to_string(item.origin);
    read_dollars(price, item);
    out_.prices.push_back(std::move(price));
  }

  void read_dollars(Price& price, const ConfigValue& item) {
    const ConfigValue* found = item.find("usd_per_hour");
    constexpr std::string_view expected = "dollars per device hour of at least 0, or [low, high]";
    if (!found) {
      report(item.origin, "price.usd_per_hour", fmt::format("missing, expected {}", expected));
      return;
    }
    const auto* pair = found->get_if<ConfigValue::Array>();
    const auto low = pair && pair->size() == 2 ? quantity_of(pair->front(), Quantity::kMoney)
                                               : quantity_of(*found, Quantity::kMoney);
    const auto high = pair && pair->size() == 2 ? quantity_of(pair->back(), Quantity::kMoney) : low;
    if (!low || !high || *low > *high) {
      mismatch(*found, "price.usd_per_hour", expected);
      return;
    }
    price.low = *low;
    price.high = *high;
  }

  void read_regions() {
    for (const std::string& name : names_of("region")) {
      const ConfigValue& table = *document_.find("region")->find(name);
      check_keys(table, "region." + name, with_figures(region_keys(), kRegionFigures));
      Region region;
      region.name = name;
      read_figures(region, table, "region." + name, kRegionFigures);
      out_.regions.push_back(std::move(region));
    }
  }

  const ConfigValue& document_;
  Catalogue out_;
  std::vector<std::string> errors_;
};

}  // namespace

Catalogue read_document(const ConfigValue& document) {
  return Reader(document).read();
}

}  // namespace strata::planning::detail
