// Maps members of configuration structs to keys. Internal to tables*.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "config/keys.h"
#include "config/names.h"

namespace strata::config {

// The default upper limits of numbers: far beyond every use, and safe to multiply.
inline constexpr auto kMostNumber = static_cast<double>(kMostCount);
inline constexpr auto kMostSeed = static_cast<double>(int64_t{1} << 53);  // exact in every JSON
inline constexpr double kMostSequences = 1 << 20;
inline constexpr double kLeastReal = 1e-37, kMostReal = 1e30;  // for numbers passed to kernels as fp32

template <typename T>
struct FieldType;  // base shape, conversion from and to a TOML value

inline ConfigValue plain(auto value) {
  ConfigValue out;
  out.data = std::move(value);
  return out;
}

inline bool in_range(double value, const ValueShape& shape) {
  return std::isfinite(value) && (!shape.least || value >= *shape.least) &&
         (!shape.most || value <= *shape.most) && (!shape.above || value > *shape.above) &&
         (!shape.below || value < *shape.below);
}

template <>
struct FieldType<bool> {
  static constexpr auto kBase = ValueShape::Base::kBoolean;
  static bool read(const ConfigValue& from, const ValueShape&, bool& to) {
    if (!from.get_if<bool>()) return false;
    to = *from.get_if<bool>();
    return true;
  }
  static ConfigValue write(bool value, const ValueShape&) { return plain(value); }
};

template <>
struct FieldType<int64_t> {
  static constexpr auto kBase = ValueShape::Base::kInteger;
  static bool read(const ConfigValue& from, const ValueShape& shape, int64_t& to) {
    std::optional<int64_t> value;
    if (const auto* integer = from.get_if<int64_t>()) value = *integer;
    // 2e9 is a float in TOML, but users mean an integer.
    if (const auto* number = from.get_if<double>();
        number && shape.counts && std::floor(*number) == *number && std::abs(*number) < 9e15) {
      value = static_cast<int64_t>(*number);
    }
    if (const auto* text = from.get_if<std::string>(); text && shape.counts) value = parse_count(*text);
    if (!value || !in_range(static_cast<double>(*value), shape)) return false;
    to = *value;
    return true;
  }
  static ConfigValue write(int64_t value, const ValueShape&) { return plain(value); }
};

template <>
struct FieldType<double> {
  static constexpr auto kBase = ValueShape::Base::kNumber;
  static bool read(const ConfigValue& from, const ValueShape& shape, double& to) {
    double value = 0;
    if (const auto* number = from.get_if<double>()) {
      value = *number;
    } else if (const auto* integer = from.get_if<int64_t>()) {
      value = static_cast<double>(*integer);
    } else {
      return false;
    }
    if (!in_range(value, shape)) return false;
    to = value;
    return true;
  }
  static ConfigValue write(double value, const ValueShape&) { return plain(value); }
};

template <>
struct FieldType<std::string> {
  static constexpr auto kBase = ValueShape::Base::kString;
  static bool read(const ConfigValue& from, const ValueShape&, std::string& to) {
    const auto* text = from.get_if<std::string>();
    if (!text) return false;
    to = *text;
    return true;
  }
  // Empty means "not given", which TOML cannot express.
  static std::optional<ConfigValue> write(const std::string& value, const ValueShape&) {
    return value.empty() ? std::nullopt : std::optional(plain(value));
  }
};

template <>
struct FieldType<std::vector<std::string>> {
  static constexpr auto kBase = ValueShape::Base::kTexts;
  static bool read(const ConfigValue& from, const ValueShape&, std::vector<std::string>& to) {
    std::vector<std::string> out;
    if (const auto* text = from.get_if<std::string>()) {
      out.push_back(*text);
    } else if (const auto* items = from.get_if<ConfigValue::Array>()) {
      for (const ConfigValue& item : *items) {
        if (!item.get_if<std::string>()) return false;
        out.push_back(*item.get_if<std::string>());
      }
    } else {
      return false;
    }
    to = std::move(out);
    return true;
  }
  static ConfigValue write(const std::vector<std::string>& value, const ValueShape&) {
    ConfigValue::Array items;
    for (const std::string& text : value) items.push_back(plain(text));
    return plain(std::move(items));
  }
};

template <typename T>
requires std::is_enum_v<T>
struct FieldType<T> {
  static constexpr auto kBase = ValueShape::Base::kChoice;
  static bool read(const ConfigValue& from, const ValueShape& shape, T& to) {
    const auto* text = from.get_if<std::string>();
    if (text && std::find(shape.choices.begin(), shape.choices.end(), *text) == shape.choices.end())
      return false;
    const auto value = text ? value_named<T>(*text) : std::nullopt;
    if (value) to = *value;
    return value.has_value();
  }
  static ConfigValue write(T value, const ValueShape&) { return plain(std::string(spelled(value))); }
};

// Values written as strings that may also be plain numbers.
template <typename T, auto kParse, typename FromNumber>
struct TextType {
  static bool read(const ConfigValue& from, const ValueShape&, T& to) {
    std::optional<T> value;
    if (const auto* text = from.get_if<std::string>()) value = kParse(*text);
    if (const auto* number = from.get_if<int64_t>()) value = FromNumber{}(*number);
    if (value) to = *value;
    return value.has_value();
  }
  static ConfigValue write(const T& value, const ValueShape&) { return plain(to_string(value)); }
};

struct BytesFromNumber {
  std::optional<Bytes> operator()(int64_t n) const {
    return n > 0 && n < kMostExact ? std::optional(Bytes{n}) : std::nullopt;
  }
};
struct DurationFromNumber {
  std::optional<Duration> operator()(int64_t n) const {
    return n > 0 && n <= kMostSeconds ? std::optional(Duration{static_cast<double>(n)}) : std::nullopt;
  }
};
struct IntervalFromNumber {
  std::optional<Interval> operator()(int64_t n) const {
    return n > 0 && n <= kMostCount ? std::optional(every_steps(n)) : std::nullopt;
  }
};

template <>
struct FieldType<Bytes> : TextType<Bytes, parse_bytes, BytesFromNumber> {
  static constexpr auto kBase = ValueShape::Base::kBytes;
};
template <>
struct FieldType<Duration> : TextType<Duration, parse_duration, DurationFromNumber> {
  static constexpr auto kBase = ValueShape::Base::kDuration;
};
template <>
struct FieldType<Interval> : TextType<Interval, parse_interval, IntervalFromNumber> {
  static constexpr auto kBase = ValueShape::Base::kInterval;
  static bool read(const ConfigValue& from, const ValueShape& shape, Interval& to) {
    Interval value;
    if (!TextType::read(from, shape, value)) return false;
    if (value.kind == Interval::Kind::kAuto && shape.word != "auto") return false;
    to = value;
    return true;
  }
};

template <>
struct FieldType<std::vector<Range>> {
  static constexpr auto kBase = ValueShape::Base::kRanges;
  static std::optional<Range> one(const ConfigValue& from) {
    if (const auto* text = from.get_if<std::string>()) return parse_range(*text);
    if (const auto* number = from.get_if<int64_t>()) return Range{*number, *number};
    const auto* pair = from.get_if<ConfigValue::Array>();
    if (!pair || pair->size() != 2) return std::nullopt;
    const auto* first = (*pair)[0].get_if<int64_t>();
    const auto* last = (*pair)[1].get_if<int64_t>();
    return first && last ? std::optional(Range{*first, *last}) : std::nullopt;
  }
  static bool read(const ConfigValue& from, const ValueShape&, std::vector<Range>& to) {
    const auto* items = from.get_if<ConfigValue::Array>();
    if (!items) return false;
    std::vector<Range> out;
    for (const ConfigValue& item : *items) {
      const auto range = one(item);
      if (!range || range->first < 0 || range->last < range->first || range->last > kMostCount) return false;
      out.push_back(*range);
    }
    to = std::move(out);
    return true;
  }
  static ConfigValue write(const std::vector<Range>& value, const ValueShape&) {
    ConfigValue::Array items;
    for (const Range& range : value) {
      items.push_back(range.first == range.last
                          ? plain(range.first)
                          : plain(ConfigValue::Array{plain(range.first), plain(range.last)}));
    }
    return plain(std::move(items));
  }
};

template <>
struct FieldType<StageLayers> {
  static constexpr auto kBase = ValueShape::Base::kStageLayers;
  static bool read(const ConfigValue& from, const ValueShape&, StageLayers& to) {
    StageLayers out;
    if (const auto* text = from.get_if<std::string>()) {
      if (text->empty()) return false;
      out.layout = *text;
    } else if (const auto* items = from.get_if<ConfigValue::Array>()) {
      for (const ConfigValue& item : *items) {
        const auto* layers = item.get_if<int64_t>();
        if (!layers || *layers < 0 || *layers > kMostCount) return false;
        out.layers.push_back(*layers);
      }
    } else {
      return false;
    }
    to = std::move(out);
    return true;
  }
  static ConfigValue write(const StageLayers& value, const ValueShape&) {
    if (!value.layout.empty()) return plain(value.layout);
    ConfigValue::Array items;
    for (const int64_t layers : value.layers) items.push_back(plain(layers));
    return plain(std::move(items));
  }
};

template <>
struct FieldType<TokenName> {
  static constexpr auto kBase = ValueShape::Base::kToken;
  static bool read(const ConfigValue& from, const ValueShape&, TokenName& to) {
    TokenName out;
    if (const auto* text = from.get_if<std::string>()) out.text = *text;
    if (const auto* id = from.get_if<int64_t>()) out.id = *id;
    if (out.text.empty() && !(out.id && *out.id >= 0 && *out.id <= std::numeric_limits<int32_t>::max()))
      return false;
    to = std::move(out);
    return true;
  }
  static ConfigValue write(const TokenName& value, const ValueShape&) {
    return value.id ? plain(*value.id) : plain(value.text);
  }
};

template <>
struct FieldType<std::map<std::string, double>> {
  static constexpr auto kBase = ValueShape::Base::kWeights;
  static bool read(const ConfigValue& from, const ValueShape& shape, std::map<std::string, double>& to) {
    const auto* entries = from.get_if<ConfigValue::Table>();
    if (!entries) return false;
    std::map<std::string, double> out;
    for (const ConfigEntry& entry : *entries) {
      if (!FieldType<double>::read(entry.value, shape, out[entry.key])) return false;
    }
    to = std::move(out);
    return true;
  }
  static ConfigValue write(const std::map<std::string, double>& value, const ValueShape&) {
    ConfigValue::Table entries;
    for (const auto& [name, weight] : value) entries.push_back({name, plain(weight)});
    return plain(std::move(entries));
  }
};

template <>
struct FieldType<ConfigValue> {
  static constexpr auto kBase = ValueShape::Base::kFree;
  static bool read(const ConfigValue& from, const ValueShape&, ConfigValue& to) {
    if (!from.is_table()) return false;
    to = from;
    return true;
  }
  static std::optional<ConfigValue> write(const ConfigValue& value, const ValueShape&) {
    return value.get_if<ConfigValue::Table>()->empty() ? std::nullopt : std::optional(value);
  }
};

template <>
struct FieldType<LaterValue> {
  static constexpr auto kBase = ValueShape::Base::kAny;
  static bool read(const ConfigValue& from, const ValueShape&, LaterValue& to) {
    to.value = from;
    return true;
  }
  static ConfigValue write(const LaterValue& value, const ValueShape&) { return value.value; }
};

template <typename T>
struct FieldType<std::optional<T>> {
  static constexpr auto kBase = FieldType<T>::kBase;
  static bool read(const ConfigValue& from, const ValueShape& shape, std::optional<T>& to) {
    T value{};
    if (!FieldType<T>::read(from, shape, value)) return false;
    to = std::move(value);
    return true;
  }
  static std::optional<ConfigValue> write(const std::optional<T>& value, const ValueShape& shape) {
    return value ? std::optional<ConfigValue>(FieldType<T>::write(*value, shape)) : std::nullopt;
  }
};

template <typename T>
struct FieldType<OrWord<T>> {
  static constexpr auto kBase = FieldType<T>::kBase;
  // Enum names have the word "auto".
  static std::string word_of(const ValueShape& shape) { return std::is_enum_v<T> ? "auto" : shape.word; }
  static bool read(const ConfigValue& from, const ValueShape& shape, OrWord<T>& to) {
    if (const auto* text = from.get_if<std::string>(); text && *text == word_of(shape)) {
      to.value.reset();
      return true;
    }
    T value{};
    if (!FieldType<T>::read(from, shape, value)) return false;
    to.value = std::move(value);
    return true;
  }
  static ConfigValue write(const OrWord<T>& value, const ValueShape& shape) {
    return value.value ? FieldType<T>::write(*value.value, shape) : plain(word_of(shape));
  }
};

template <typename T>
inline constexpr bool kIsOptional = false;
template <typename T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
template <typename T>
inline constexpr bool kIsOrWord = false;
template <typename T>
inline constexpr bool kIsOrWord<OrWord<T>> = true;

// The names of an enum that may be left out or to the program.
template <typename T>
struct NamesOf {
  static void add(std::vector<std::string>& choices) {
    if constexpr (std::is_enum_v<T>) {
      for (const Named<T>& one : names_of(T{})) choices.emplace_back(one.name);
    }
  }
};
template <typename T>
struct NamesOf<std::optional<T>> : NamesOf<T> {};
template <typename T>
struct NamesOf<OrWord<T>> {
  static void add(std::vector<std::string>& choices) {
    if (std::is_enum_v<T>) choices.emplace_back("auto");
    NamesOf<T>::add(choices);
  }
};

// Ties a member to its key.
template <typename Table, typename T>
KeySpec key(const char* name, T Table::*member, const char* help, ValueShape shape = {}) {
  shape.base = FieldType<T>::kBase;
  shape.optional = kIsOptional<T> || std::is_same_v<T, std::string> || std::is_same_v<T, ConfigValue>;
  if (shape.base == ValueShape::Base::kChoice) {
    if (shape.choices.empty()) NamesOf<T>::add(shape.choices);
  } else if (kIsOrWord<T> && shape.word.empty()) {
    shape.word = "auto";
  }
  KeySpec out{.name = name,
              .help = help,
              .shape = shape,
              .later = false,
              .former = {},
              .resume = {},
              .path = false,
              .read = {},
              .write = {}};
  out.read = [member, shape](void* table, const ConfigValue& value) {
    return FieldType<T>::read(value, shape, static_cast<Table*>(table)->*member);
  };
  out.write = [member, shape](const void* table) -> std::optional<ConfigValue> {
    return FieldType<T>::write(static_cast<const Table*>(table)->*member, shape);
  };
  return out;
}

inline KeySpec later(KeySpec spec) {
  spec.later = true;
  return spec;
}
inline KeySpec later(KeySpec spec, int64_t former) {
  spec.former = plain(former);
  return later(std::move(spec));
}
inline KeySpec paths(KeySpec spec) {
  spec.path = true;
  return spec;
}
inline KeySpec on_resume(KeySpec spec, ResumeClass resume) {
  spec.resume = resume;
  return spec;
}

inline ValueShape between(double least, double most) {
  return {.least = least, .most = most};
}
inline ValueShape from_to_below(double least, double below) {
  return {.least = least, .below = below};
}
inline ValueShape between_exclusive(double above, double below) {
  return {.above = above, .below = below};
}
// A separate table; `member` holds its keys.
template <typename Table>
TableSpec table(const char* name, ResumeClass resume, Table RunConfig::*member, const char* help,
                std::vector<KeySpec>&& keys) {
  return {.name = name,
          .help = help,
          .resume = resume,
          .keys = std::move(keys),
          .list = false,
          .later = false,
          .count = [](const RunConfig&) { return size_t{1}; },
          .at = [member](RunConfig& config, size_t) -> void* { return &(config.*member); }};
}

template <typename Table, typename Item>
TableSpec list(const char* name, ResumeClass resume, Table RunConfig::*outer,
               std::vector<Item> Table::*member, const char* help, std::vector<KeySpec>&& keys) {
  return {.name = name,
          .help = help,
          .resume = resume,
          .keys = std::move(keys),
          .list = true,
          .later = false,
          .count = [=](const RunConfig& config) { return (config.*outer.*member).size(); },
          .at = [=](RunConfig& config, size_t index) -> void* {
            auto& items = config.*outer.*member;
            if (items.size() <= index) items.resize(index + 1);
            return &items[index];
          }};
}

// Defined in separate files.
std::vector<TableSpec> optimizer_sub_tables();
TableSpec optimizer_table();
TableSpec optimizer_group_table();
TableSpec schedule_table();
TableSpec parallel_table();
TableSpec moe_table();
TableSpec recovery_table();
TableSpec recovery_rule_table();

inline ValueShape above_to(double above, double most) {
  return {.most = most, .above = above};
}
inline ValueShape count_between(double least, double most) {
  return {.least = least, .most = most, .counts = true};
}
inline ValueShape choice(std::vector<std::string> choices, std::vector<std::string> later = {}) {
  return {.choices = std::move(choices), .later = std::move(later)};
}
inline ValueShape word(std::string text, ValueShape shape = {}) {
  shape.word = std::move(text);
  return shape;
}

}  // namespace strata::config
