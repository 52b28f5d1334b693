#include "base/toml.h"

#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/error.h"

namespace strata {
namespace {

ConfigValue convert(const toml::node& node, const std::string& name) {
  ConfigValue out;
  const auto line = static_cast<int64_t>(node.source().begin.line);
  out.origin = {.kind = Origin::Kind::kFile, .file = name, .line = line, .text = {}};
  if (const auto* table = node.as_table()) {
    ConfigValue::Table entries;
    for (const auto& [key, value] : *table) {
      entries.push_back({std::string(key.str()), convert(value, name)});
      // A value's line is that of its key: a list may begin below it.
      if (key.source().begin.line > 0 && !value.is_table() && !value.is_array_of_tables()) {
        entries.back().value.origin.line = static_cast<int64_t>(key.source().begin.line);
      }
    }
    // toml++ sorts by name; the order of the text is the one that people read.
    std::stable_sort(entries.begin(), entries.end(), [](const ConfigEntry& a, const ConfigEntry& b) {
      return a.value.origin.line < b.value.origin.line;
    });
    out.data = std::move(entries);
  } else if (const auto* array = node.as_array()) {
    ConfigValue::Array items;
    for (const auto& item : *array) items.push_back(convert(item, name));
    out.data = std::move(items);
  } else if (const auto* text = node.as_string()) {
    out.data = text->get();
  } else if (const auto* integer = node.as_integer()) {
    out.data = integer->get();
  } else if (const auto* number = node.as_floating_point()) {
    out.data = number->get();
  } else if (const auto* boolean = node.as_boolean()) {
    out.data = boolean->get();
  } else {
    throw ConfigError("[{}:{}] found a date or time, expected a string, number, list or table; quote it",
                      name, line);
  }
  return out;
}

// Parts of a dotted key; the parser and all that walks its tree recurse as deep.
constexpr size_t kMostParts = 32;

bool is_key_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

// Refuses a.b.c… of more parts before the parser sees it. Dots in prose are separated by several words.
void refuse_deep_keys(std::string_view text, const std::string& name) {
  size_t parts = 0;
  bool in_part = false, part_ended = false;
  const auto restart = [&] {
    parts = 0;
    in_part = part_ended = false;
  };
  const auto take = [&] {
    if (part_ended) parts = 0;
    in_part = true;
    part_ended = false;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_key_char(c)) {
      take();
    } else if (c == '.' && in_part) {
      in_part = part_ended = false;
      if (++parts < kMostParts) continue;
      throw ConfigError(
          "[{}:{}] found a key with more than {} parts, expected a dotted one such as training.steps", name,
          1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(i), '\n'), kMostParts);
    } else if (c == ' ' || c == '\t') {
      part_ended = in_part;
    } else if (c == '"' || c == '\'') {  // a quoted part
      size_t end = i + 1;
      while (end < text.size() && text[end] != c && text[end] != '\n')
        end += text[end] == '\\' && c == '"' ? 2 : 1;
      if (end < text.size() && text[end] == c)
        take();
      else
        restart();
      i = std::min(end, text.size() - 1);
    } else {
      restart();
    }
  }
}

// What a configuration may hold with all that it includes: far more than any needs, and read within a second.
constexpr size_t kMostIncludes = 200;
constexpr uint64_t kMostBytes = uint64_t{2} << 20;

struct Reading {
  std::vector<Path> open;  // the files on the way here, for cycles
  size_t files = 0;        // read so far, each as often as it is included
  uint64_t bytes = 0;
};

std::string read_within(const Path& path, Reading& reading) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  // A device may have no end.
  if (std::filesystem::is_character_file(status) || std::filesystem::is_block_file(status))
    throw ConfigError("[{}] is a device, expected a TOML file", path.string());
  const auto size = std::filesystem::file_size(path, error);
  if (!error) reading.bytes += size;
  if (reading.bytes > kMostBytes) {
    throw ConfigError(
        "[{}] makes a configuration of {} bytes, its includes among them, expected at most {}; is it one?",
        path.string(), reading.bytes, kMostBytes);
  }
  if (++reading.files > kMostIncludes) {
    throw ConfigError("[{}] is include number {} of {}, expected at most {}; include each file once",
                      path.string(), reading.files,
                      reading.open.empty() ? path.string() : reading.open.front().string(), kMostIncludes);
  }
  return read_file(path);
}

// Reads `path` and the files that it includes.
ConfigValue read_with_includes(const Path& path, Reading& reading) {
  std::vector<Path>& open = reading.open;
  std::error_code ignored;
  const Path whole = std::filesystem::weakly_canonical(path, ignored);
  if (std::find(open.begin(), open.end(), whole) != open.end()) {
    std::string way;
    for (const Path& file : open) way += file.string() + " → ";
    throw ConfigError("[include] found a cycle: {}{}; remove one of these includes", way, whole.string());
  }
  ConfigValue own = parse_toml(read_within(path, reading), path.string());
  auto& entries = std::get<ConfigValue::Table>(own.data);
  const auto include = std::find_if(entries.begin(), entries.end(),
                                    [](const ConfigEntry& entry) { return entry.key == "include"; });
  if (include == entries.end()) return own;

  ConfigValue list = std::move(include->value);
  entries.erase(include);
  if (list.get_if<std::string>()) {
    ConfigValue one = std::move(list);
    list = ConfigValue{};
    list.origin = one.origin;
    list.data = ConfigValue::Array{std::move(one)};
  }
  ConfigValue out;
  out.origin = own.origin;
  out.data = ConfigValue::Table{};
  const auto* files = list.get_if<ConfigValue::Array>();
  open.push_back(whole);
  for (const ConfigValue& file : files ? *files : ConfigValue::Array{list}) {
    const auto* name = file.get_if<std::string>();
    if (!name) {
      throw ConfigError("[{}] include: found {}, expected a list of file names", to_string(file.origin),
                        to_toml(file));
    }
    const Path target = path.parent_path() / *name;
    if (!std::filesystem::exists(target, ignored)) {
      throw ConfigError("[{}] include: there is no file {}; paths start at the folder of the including file",
                        to_string(file.origin), target.string());
    }
    merge(out, read_with_includes(target, reading));
  }
  open.pop_back();
  merge(out, std::move(own));
  return out;
}

// The right side of --set as TOML; nothing if it is not a TOML value.
std::optional<ConfigValue> parse_set_value(std::string_view text) {
  // A line break could smuggle in further keys.
  if (text.find('\n') != std::string_view::npos) return std::nullopt;
  try {
    ConfigValue parsed = parse_toml("value = " + std::string(text), "--set");
    return std::move(std::get<ConfigValue::Table>(parsed.data).at(0).value);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

void set_origins(ConfigValue& value, const Origin& origin) {
  value.origin = origin;
  if (auto* items = std::get_if<ConfigValue::Array>(&value.data)) {
    for (ConfigValue& item : *items) set_origins(item, origin);
  } else if (auto* entries = std::get_if<ConfigValue::Table>(&value.data)) {
    for (ConfigEntry& entry : *entries) set_origins(entry.value, origin);
  }
}

std::vector<std::string> split_key(std::string_view key, std::string_view assignment) {
  std::vector<std::string> parts(1);
  for (const char c : key) {
    if (c == '.') {
      parts.emplace_back();
    } else if (c != ' ') {
      parts.back().push_back(c);
    }
  }
  if (parts.size() > kMostParts)
    throw ConfigError("[--set] found a key with {} parts, expected a dotted one such as training.steps",
                      parts.size());
  for (const std::string& part : parts) {
    if (part.empty()) {
      throw ConfigError(
          "[--set] found \"{}\", expected KEY=VALUE with a dotted KEY such as training.steps=200",
          assignment);
    }
  }
  return parts;
}

// The value under `part` of `value`, made where a table lacks it.
ConfigValue& descend(ConfigValue& value, const std::string& part, const Origin& origin) {
  if (auto* items = std::get_if<ConfigValue::Array>(&value.data)) {
    size_t index = 0;
    const auto [end, failed] = std::from_chars(part.data(), part.data() + part.size(), index);
    if (failed != std::errc() || end != part.data() + part.size() || index >= items->size()) {
      throw ConfigError("[--set {}] found \"{}\", expected a number below {}, the length of that list",
                        origin.text, part, items->size());
    }
    return (*items)[index];
  }
  if (ConfigValue* found = value.find(part)) return *found;
  auto* entries = std::get_if<ConfigValue::Table>(&value.data);
  if (!entries) {
    throw ConfigError("[--set {}] \"{}\" is below {} ({}), which is not a table", origin.text, part,
                      to_toml(value), to_string(value.origin));
  }
  ConfigValue table;
  table.origin = origin;
  table.data = ConfigValue::Table{};
  entries->push_back({part, std::move(table)});
  return entries->back().value;
}

std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\r':
        out += "\\r";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          out += fmt::format("\\u{:04X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
        } else {
          out.push_back(c);
        }
    }
  }
  return out + "\"";
}

std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  // TOML distinguishes integers from floats by the point or the exponent.
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

std::string to_string(const Origin& origin) {
  switch (origin.kind) {
    case Origin::Kind::kDefault:
      return "default";
    case Origin::Kind::kFile:
      return fmt::format("{}:{}", origin.file, origin.line);
    case Origin::Kind::kSet:
      return "--set " + origin.text;
    case Origin::Kind::kArgument:
      return "argument " + origin.text;
  }
  return "";
}

const ConfigValue* ConfigValue::find(std::string_view key) const {
  if (const auto* entries = std::get_if<Table>(&data)) {
    for (const ConfigEntry& entry : *entries) {
      if (entry.key == key) return &entry.value;
    }
  }
  return nullptr;
}

ConfigValue* ConfigValue::find(std::string_view key) {
  return const_cast<ConfigValue*>(static_cast<const ConfigValue*>(this)->find(key));
}

bool same_value(const ConfigValue& a, const ConfigValue& b) {
  if (a.data.index() != b.data.index()) return false;
  if (const auto* left = a.get_if<ConfigValue::Array>()) {
    const auto& right = std::get<ConfigValue::Array>(b.data);
    return std::equal(left->begin(), left->end(), right.begin(), right.end(), same_value);
  }
  if (const auto* left = a.get_if<ConfigValue::Table>()) {
    if (left->size() != std::get<ConfigValue::Table>(b.data).size()) return false;
    return std::all_of(left->begin(), left->end(), [&](const ConfigEntry& entry) {
      const ConfigValue* other = b.find(entry.key);
      return other && same_value(entry.value, *other);
    });
  }
  return to_toml(a) == to_toml(b);
}

ConfigValue parse_toml(std::string_view text, const std::string& name) {
  refuse_deep_keys(text, name);
  try {
    return convert(toml::parse(text, name), name);
  } catch (const toml::parse_error& error) {
    throw ConfigError("[{}:{}] this is not TOML: {}", name, error.source().begin.line, error.description());
  }
}

ConfigValue read_toml(const Path& path) {
  Reading reading;
  return read_with_includes(path, reading);
}

void merge(ConfigValue& base, ConfigValue over) {
  if (!base.is_table() || !over.is_table()) {
    base = std::move(over);
    return;
  }
  for (ConfigEntry& entry : std::get<ConfigValue::Table>(over.data)) {
    if (ConfigValue* found = base.find(entry.key)) {
      merge(*found, std::move(entry.value));
    } else {
      std::get<ConfigValue::Table>(base.data).push_back(std::move(entry));
    }
  }
}

void apply_set(ConfigValue& root, std::string_view assignment, Origin::Kind kind) {
  const size_t equals = assignment.find('=');
  const std::string_view key = assignment.substr(0, equals);
  const std::vector<std::string> parts = split_key(key, assignment);
  if (equals == std::string_view::npos) {
    throw ConfigError("[--set] found \"{}\", expected KEY=VALUE such as training.steps=200", assignment);
  }
  const std::string_view right = assignment.substr(equals + 1);
  const Origin origin{.kind = kind, .file = {}, .line = 0, .text = std::string(key)};
  std::optional<ConfigValue> value = parse_set_value(right);
  if (!value) {
    if (!right.empty() && std::string_view("[{\"'").find(right.front()) != std::string_view::npos) {
      throw ConfigError("[--set {}] found {}, which begins like a TOML list, table or string but is none",
                        key, right);
    }
    value.emplace();
    value->data = std::string(right);
  }
  set_origins(*value, origin);
  ConfigValue* at = &root;
  for (const std::string& part : parts) at = &descend(*at, part, origin);
  *at = std::move(*value);
}

std::string toml_key(std::string_view key) {
  const bool bare = !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
  return bare ? std::string(key) : toml_string(key);
}

std::string to_toml(const ConfigValue& value) {
  if (const auto* boolean = value.get_if<bool>()) return *boolean ? "true" : "false";
  if (const auto* integer = value.get_if<int64_t>()) return fmt::format("{}", *integer);
  if (const auto* number = value.get_if<double>()) return number_text(*number);
  if (const auto* text = value.get_if<std::string>()) return toml_string(*text);
  std::string out;
  if (const auto* items = value.get_if<ConfigValue::Array>()) {
    for (const ConfigValue& item : *items) out += (out.empty() ? "" : ", ") + to_toml(item);
    return "[" + out + "]";
  }
  for (const ConfigEntry& entry : std::get<ConfigValue::Table>(value.data)) {
    out += (out.empty() ? "" : ", ") + toml_key(entry.key) + " = " + to_toml(entry.value);
  }
  return out.empty() ? "{}" : "{ " + out + " }";
}

}  // namespace strata
