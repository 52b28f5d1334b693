#include "plan/stack_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/hash.h"
#include "base/suggest.h"
#include "base/toml.h"
#include "plan/builtin_data.h"

namespace strata::planning {
namespace {

constexpr std::pair<std::string_view, double StackProfile::*> kStackNumbers[] = {
    {"weight_bytes", &StackProfile::weight_bytes},
    {"gradient_bytes", &StackProfile::gradient_bytes},
    {"optimizer_bytes", &StackProfile::optimizer_bytes},
    {"reduce_bytes", &StackProfile::reduce_bytes},
    {"selective_matmuls", &StackProfile::selective_matmuls},
    {"selective_elementwise", &StackProfile::selective_elementwise},
    {"selective_attention", &StackProfile::selective_attention},
    {"selective_kept", &StackProfile::selective_kept},
    {"logit_bytes", &StackProfile::logit_bytes},
    {"tensor_exposed", &StackProfile::tensor_exposed},
    {"data_exposed", &StackProfile::data_exposed},
    {"pipeline_exposed", &StackProfile::pipeline_exposed},
    {"memory_unit", &StackProfile::memory_unit},
    {"reserved_bytes", &StackProfile::reserved_bytes},
};
constexpr std::pair<std::string_view, int64_t StackProfile::*> kStackCounts[] = {
    {"reduce_messages", &StackProfile::reduce_messages},
    {"gather_messages", &StackProfile::gather_messages},
    {"stages_if_unknown", &StackProfile::stages_if_unknown},
};
constexpr std::pair<std::string_view, bool StackProfile::*> kStackFlags[] = {
    {"compiled", &StackProfile::compiled},
    {"shards_optimizer", &StackProfile::shards_optimizer},
    {"keeps_gathered", &StackProfile::keeps_gathered},
    {"keeps_outputs", &StackProfile::keeps_outputs},
    {"dropout", &StackProfile::dropout},
    {"overlaps_gathers", &StackProfile::overlaps_gathers},
    {"local_batch", &StackProfile::local_batch},
    {"recomputes_to_fit", &StackProfile::recomputes_to_fit},
};
constexpr std::string_view kKernels[] = {"scores", "flash-1", "flash-2", "tuned"};
constexpr std::string_view kRecomputes[] = {"none", "selective", "full"};

[[noreturn]] void wrong(const ConfigValue& value, std::string_view key, std::string_view expected) {
  throw ConfigError("[{}] {}: found {}, expected {}", to_string(value.origin), key, to_toml(value), expected);
}

double number_in(const ConfigValue& value, std::string_view key) {
  const auto* real = value.get_if<double>();
  const auto* whole = value.get_if<int64_t>();
  const double number = real ? *real : whole ? static_cast<double>(*whole) : -1;
  if (number < 0) wrong(value, key, "a number from 0");
  return number;
}

const std::string& text_in(const ConfigValue& value, std::string_view key) {
  const auto* text = value.get_if<std::string>();
  if (!text) wrong(value, key, "text");
  return *text;
}

template <size_t n>
size_t choice_in(const ConfigValue& value, std::string_view key, const std::string_view (&choices)[n]) {
  const auto found = std::find(std::begin(choices), std::end(choices), text_in(value, key));
  if (found == std::end(choices)) wrong(value, key, fmt::format("one of {}", fmt::join(choices, ", ")));
  return static_cast<size_t>(found - std::begin(choices));
}

void read_stack_entry(StackProfile& stack, const ConfigEntry& entry) {
  const ConfigValue& value = entry.value;
  for (const auto& [key, member] : kStackNumbers) {
    if (entry.key == key) {
      stack.*member = number_in(value, key);
      return;
    }
  }
  for (const auto& [key, member] : kStackCounts) {
    if (entry.key == key) {
      stack.*member = static_cast<int64_t>(number_in(value, key));
      return;
    }
  }
  for (const auto& [key, member] : kStackFlags) {
    if (entry.key != key) continue;
    const bool* flag = value.get_if<bool>();
    if (!flag) wrong(value, key, "true or false");
    stack.*member = *flag;
    return;
  }
  if (entry.key == "like") {
    stack.like = text_in(value, entry.key);
  } else if (entry.key == "source") {
    stack.source = text_in(value, entry.key);
  } else if (entry.key == "on") {
    if (!value.is_table()) wrong(value, entry.key, "{ FAMILY = STACK, … }");
    for (const ConfigEntry& family : std::get<ConfigValue::Table>(value.data))
      stack.on.emplace_back(family.key, text_in(family.value, family.key));
  } else if (entry.key == "logit_bytes_on") {
    if (!value.is_table()) wrong(value, entry.key, "{ CHIP = BYTES, … }");
    for (const ConfigEntry& chip : std::get<ConfigValue::Table>(value.data))
      stack.logit_bytes_on.emplace_back(chip.key, number_in(chip.value, chip.key));
  } else if (entry.key == "attention") {
    stack.attention = static_cast<AttentionKernel>(choice_in(value, entry.key, kKernels));
  } else if (entry.key == "default_recompute") {
    stack.default_recompute = static_cast<Recompute>(choice_in(value, entry.key, kRecomputes));
  } else {
    wrong(value, entry.key, "a key of stack profiles");
  }
}

ChipFamily read_family(const ConfigEntry& section) {
  ChipFamily family;
  family.name = section.key;
  for (const ConfigEntry& entry : std::get<ConfigValue::Table>(section.value.data)) {
    if (entry.key == "chips") {
      const auto* chips = entry.value.get_if<ConfigValue::Array>();
      if (!chips) wrong(entry.value, entry.key, "a list of chips");
      for (const ConfigValue& chip : *chips) family.chips.push_back(text_in(chip, entry.key));
    } else if (entry.key == "reference") {
      family.reference = number_in(entry.value, entry.key);
    } else if (entry.key != "source" && entry.key != "mark") {
      family.attention[choice_in({.data = entry.key, .origin = entry.value.origin}, entry.key, kKernels)] =
          number_in(entry.value, entry.key);
    }
  }
  return family;
}

const ConfigValue::Table& sections_of(const ConfigValue& document, std::string_view kind) {
  static const ConfigValue::Table none;
  const ConfigValue* found = document.find(kind);
  if (!found) return none;
  if (!found->is_table()) wrong(*found, kind, "tables");
  for (const ConfigEntry& entry : std::get<ConfigValue::Table>(found->data)) {
    if (!entry.value.is_table()) wrong(entry.value, entry.key, "a table");
  }
  return std::get<ConfigValue::Table>(found->data);
}

double number_at(const ConfigValue& table, std::string_view key) {
  const ConfigValue* found = table.find(key);
  if (!found) wrong(table, key, "this key");
  return number_in(*found, key);
}

Fitted fitted_at(const ConfigValue& table, std::string_view key) {
  return {.value = number_at(table, key), .rows = static_cast<int64_t>(number_at(table, "rows"))};
}

void read_fitted(Profiles& out, const ConfigValue& document) {
  for (const ConfigEntry& section : sections_of(document, "family")) {
    for (ChipFamily& family : out.families) {
      if (family.name == section.key) family.gemm = fitted_at(section.value, "gemm");
    }
  }
  for (const ConfigEntry& section : sections_of(document, "stack")) {
    for (StackProfile& stack : out.stacks) {
      if (stack.name != section.key && stack.like != section.key) continue;
      stack.efficiency = fitted_at(section.value, "efficiency");
      stack.fixed = fitted_at(section.value, "fixed_seconds");
    }
  }
  for (const ConfigEntry& section : sections_of(document, "interval")) {
    out.intervals.push_back({.stack = section.key,
                             .step = number_at(section.value, "step"),
                             .rows = static_cast<int64_t>(number_at(section.value, "rows"))});
  }
  const ConfigValue* all = document.find("all");
  if (!all) return;
  out.elementwise = number_at(*all, "elementwise");
  out.unknown_stack = number_at(*all, "unknown_stack");
  out.unknown_chip = number_at(*all, "unknown_chip");
  if (const ConfigValue* on = all->find("fitted_on")) out.fitted_on = text_in(*on, "fitted_on");
  if (const ConfigValue* rows = all->find("rows")) {
    const auto* hashes = rows->get_if<ConfigValue::Array>();
    if (!hashes) wrong(*rows, "rows", "a list of hashes");
    for (const ConfigValue& hash : *hashes) {
      const std::string& text = text_in(hash, "rows");
      uint64_t value = 0;
      const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
      if (failed != std::errc() || end != text.data() + text.size()) wrong(hash, "rows", "16 hex digits");
      out.fit_rows.push_back(value);
    }
  }
}

}  // namespace

std::string_view to_string(AttentionKernel kernel) {
  return kKernels[static_cast<size_t>(kernel)];
}

const StackProfile& Profiles::stack(std::string_view name) const {
  std::vector<std::string> names;
  for (const StackProfile& profile : stacks) {
    if (profile.name == name) return profile;
    names.push_back(profile.name);
  }
  const auto near = nearest_name(name, names);
  throw ConfigError("[stack] found \"{}\", expected one of {}{}", name, fmt::join(names, ", "),
                    near ? fmt::format("; did you mean \"{}\"?", *near) : "");
}

const StackProfile& Profiles::stack_on(std::string_view name, std::string_view chip) const {
  const StackProfile& profile = stack(name);
  const ChipFamily* family = family_of(chip);
  for (const auto& [of, other] : profile.on) {
    if (family && family->name == of) return stack(other);
  }
  return profile;
}

const ChipFamily* Profiles::family_of(std::string_view chip) const {
  for (const ChipFamily& family : families) {
    if (std::find(family.chips.begin(), family.chips.end(), chip) != family.chips.end()) return &family;
  }
  return nullptr;
}

Profiles parse_profiles(std::string_view stacks, std::string_view fitted) {
  const ConfigValue document = parse_toml(stacks, "data/planning/stacks.toml");
  Profiles out;
  for (const ConfigEntry& section : sections_of(document, "family"))
    out.families.push_back(read_family(section));
  for (const ConfigEntry& section : sections_of(document, "stack")) {
    StackProfile stack;
    stack.name = section.key;
    for (const ConfigEntry& entry : std::get<ConfigValue::Table>(section.value.data))
      read_stack_entry(stack, entry);
    out.stacks.push_back(std::move(stack));
  }
  for (const StackProfile& stack : out.stacks) {
    if (!stack.like.empty()) out.stack(stack.like);
    for (const auto& other : stack.on) out.stack(other.second);
  }
  if (!fitted.empty()) read_fitted(out, parse_toml(fitted, "data/planning/fitted.toml"));
  return out;
}

double Profiles::interval_width(const StackProfile* stack, const ChipFamily* family) const {
  double width = unknown_stack;
  for (const StackInterval& interval : intervals) {
    if (stack != nullptr && interval.stack == stack->name) width = interval.step;
  }
  const bool measured = family != nullptr && family->gemm.rows > 0;
  return measured ? width : std::hypot(width, unknown_chip);
}

Profiles builtin_profiles() {
  return parse_profiles(builtin_file("data/planning/stacks.toml"), builtin_file("data/planning/fitted.toml"));
}

std::string fitted_file(const Profiles& profiles) {
  std::string out = fmt::format(
      "# Constants fitted on published runs by bench/plan_fit, which writes this file. Do not edit it.\n"
      "\n[all]\nfitted_on = \"{}\"\nelementwise = {:.4f}\nunknown_stack = {:.4f}\nunknown_chip = {:.4f}\n",
      profiles.fitted_on, profiles.elementwise, profiles.unknown_stack, profiles.unknown_chip);
  std::vector<std::string> rows;
  for (const uint64_t hash : profiles.fit_rows) rows.push_back(fmt::format("\"{}\"", to_hex(hash)));
  out += fmt::format("# Hashes of the inputs of the rows in the fit.\nrows = [\n  {},\n]\n",
                     fmt::join(rows, ",\n  "));
  for (const ChipFamily& family : profiles.families)
    out += fmt::format("\n[family.{}]\ngemm = {:.4f}\nrows = {}\n", family.name, family.gemm.value,
                       family.gemm.rows);
  for (const StackProfile& stack : profiles.stacks) {
    if (!stack.like.empty()) continue;
    out += fmt::format("\n[stack.{}]\nefficiency = {:.4f}\nfixed_seconds = {:.4f}\nrows = {}\n", stack.name,
                       stack.efficiency.value, stack.fixed.value, stack.efficiency.rows);
  }
  for (const StackInterval& interval : profiles.intervals)
    out += fmt::format("\n[interval.{}]\nstep = {:.4f}\nrows = {}\n", toml_key(interval.stack), interval.step,
                       interval.rows);
  return out;
}

}  // namespace strata::planning
