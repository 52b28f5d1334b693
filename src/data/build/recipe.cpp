#include "data/build/recipe.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/file_name.h"
#include "base/quantity.h"
#include "base/suggest.h"
#include "data/input/input_files.h"

namespace strata::data {
namespace {

// Collects errors, so that all of them are reported together.
class TableReader {
 public:
  TableReader(const ConfigValue& table, std::string where, std::vector<std::string>& errors)
      : table_(table), where_(std::move(where)), errors_(errors) {
    if (!table.is_table()) error(table, "found a plain value, expected a table");
  }

  // Every key that was not asked for is unknown.
  void finish() {
    if (!table_.is_table()) return;
    for (const auto& entry : std::get<ConfigValue::Table>(table_.data)) {
      if (known_.count(entry.key)) continue;
      const std::vector<std::string> names(known_.begin(), known_.end());
      const auto near = nearest_name(entry.key, names);
      error(entry.value,
            "unknown key \"" + entry.key + "\"" + (near ? "; did you mean \"" + *near + "\"?" : ""));
    }
  }

  const ConfigValue* find(const std::string& key) {
    known_.insert(key);
    return table_.is_table() ? table_.find(key) : nullptr;
  }
  template <typename T>
  T get(const std::string& key, T fallback, const char* expected) {
    const ConfigValue* value = find(key);
    if (value == nullptr) return fallback;
    if (const T* held = value->get_if<T>()) return *held;
    if constexpr (std::is_same_v<T, double>) {
      if (const int64_t* whole = value->get_if<int64_t>()) return static_cast<double>(*whole);
    }
    error(*value, fmt::format("{} is {}, expected {}", key, to_toml(*value), expected));
    return fallback;
  }
  bool flag(const std::string& key, bool fallback) { return get<bool>(key, fallback, "true or false"); }
  std::string text(const std::string& key, const std::string& fallback) {
    return get<std::string>(key, fallback, "a text");
  }
  // One of `choices`; the index of the first if the value is not one of them.
  size_t choice(const std::string& key, const std::vector<std::string>& choices) {
    const std::string value = text(key, choices[0]);
    const auto at = std::find(choices.begin(), choices.end(), value);
    if (at != choices.end()) return static_cast<size_t>(at - choices.begin());
    const auto near = nearest_name(value, choices);
    error(*find(key), fmt::format("{} = \"{}\" is not known, expected one of {}{}", key, value,
                                  fmt::join(choices, ", "), near ? "; did you mean " + *near + "?" : ""));
    return 0;
  }
  std::vector<std::string> texts(const std::string& key) {
    const ConfigValue* value = find(key);
    if (value == nullptr) return {};
    if (const auto* one = value->get_if<std::string>()) return {*one};
    std::vector<std::string> out;
    if (const auto* list = value->get_if<ConfigValue::Array>()) {
      for (const ConfigValue& element : *list) {
        if (const auto* one = element.get_if<std::string>()) out.push_back(*one);
      }
      if (out.size() == list->size()) return out;
    }
    error(*value, fmt::format("{} is {}, expected a text or a list of texts", key, to_toml(*value)));
    return {};
  }

  void error(const ConfigValue& at, const std::string& what) {
    errors_.push_back(fmt::format("[{}] {}: {}", to_string(at.origin), where_, what));
  }
  void missing(const std::string& what) { error(table_, what); }

 private:
  const ConfigValue& table_;
  std::string where_;
  std::vector<std::string>& errors_;
  std::set<std::string> known_;
};

// Relative to the recipe; URIs of object stores and "-" are not changed.
std::string placed(const Path& base, const std::string& path) {
  if (path == "-" || path.find("://") != std::string::npos) return path;
  return (base / path).lexically_normal().string();
}

RecipeSource read_source(const ConfigValue& table, const std::string& where, const Path& base,
                         std::vector<std::string>& errors) {
  TableReader reader(table, where, errors);
  RecipeSource source;
  source.name = reader.text("name", "");
  for (const std::string& path : reader.texts("path")) source.paths.push_back(placed(base, path));
  const std::vector<std::string> formats = format_names();
  source.records.format = parse_format(formats[reader.choice("format", formats)]);
  source.records.text = reader.text("text", "text");
  source.records.id = reader.text("id", "id");
  source.weight = reader.get<double>("weight", 1.0, "a number");
  source.max_epochs = reader.get<int64_t>("max_epochs", 0, "a whole number");
  source.max_tokens = reader.get<int64_t>("max_tokens", 0, "a whole number");
  if (const std::string problem = file_name_error(source.name); !problem.empty()) {
    const ConfigValue* name = reader.find("name");
    reader.error(name ? *name : table,
                 fmt::format("name {} {}, and is to be the name of a file; expected one such as "
                             "\"web\"",
                             name ? to_toml(*name) : "", problem));
  }
  if (source.paths.empty()) reader.missing("has no path");
  if (!(source.weight >= 0) || std::isinf(source.weight))
    reader.missing("weight must be a number that is not negative");
  if (source.max_epochs < 0) reader.missing("max_epochs must not be negative");
  if (source.max_tokens < 0) reader.missing("max_tokens must not be negative");
  reader.finish();
  return source;
}

// The value of a stage's parameter, in the type of its default; another type is an error.
StageValue read_parameter(TableReader& reader, const StageParameter& parameter) {
  return std::visit(
      [&](const auto& fallback) -> StageValue {
        using T = std::decay_t<decltype(fallback)>;
        if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          return reader.find(parameter.name) == nullptr ? fallback : reader.texts(parameter.name);
        } else {
          const char* expected = std::is_same_v<T, bool>      ? "true or false"
                                 : std::is_same_v<T, int64_t> ? "a whole number"
                                 : std::is_same_v<T, double>  ? "a number"
                                                              : "a text";
          return reader.get<T>(parameter.name, fallback, expected);
        }
      },
      parameter.value);
}

RecipeStage read_stage(const ConfigValue& table, const std::string& where, std::vector<std::string>& errors) {
  TableReader reader(table, where, errors);
  RecipeStage stage;
  stage.kind = reader.text("kind", "");
  const auto& kinds = stage_kinds();
  const auto kind =
      std::find_if(kinds.begin(), kinds.end(), [&](const StageKind& k) { return k.name == stage.kind; });
  if (kind == kinds.end()) {
    std::vector<std::string> names;
    for (const StageKind& k : kinds) names.push_back(k.name);
    const auto near = nearest_name(stage.kind, names);
    reader.missing(fmt::format("kind \"{}\" is not known{}; known are {}", stage.kind,
                               near ? ", did you mean " + *near + "?" : "", fmt::join(names, ", ")));
    return stage;
  }
  for (const StageParameter& parameter : kind->parameters)
    stage.parameters[parameter.name] = read_parameter(reader, parameter);
  reader.finish();
  return stage;
}

// "8GiB", "500 MB", or bytes.
int64_t read_size(TableReader& reader, const std::string& key) {
  const ConfigValue* value = reader.find(key);
  if (value == nullptr) return 0;
  if (const int64_t* bytes = value->get_if<int64_t>(); bytes != nullptr && *bytes > 0) return *bytes;
  if (const auto* text = value->get_if<std::string>()) {
    if (*text == "auto") return 0;
    if (const auto bytes = parse_byte_size(*text); bytes && *bytes > 0) return *bytes;
  }
  reader.error(*value,
               fmt::format("{} is {}, expected a size like \"8GiB\", or \"auto\"", key, to_toml(*value)));
  return 0;
}

// A token or its id; "auto", the default, selects the one declared by the tokenizer's files.
RecipeToken read_token(TableReader& reader, const std::string& key) {
  RecipeToken token;
  const ConfigValue* value = reader.find(key);
  if (value == nullptr) return token;
  if (const int64_t* id = value->get_if<int64_t>(); id != nullptr && *id >= 0 && *id < INT32_MAX) {
    token.id = *id;
  } else if (const auto* text = value->get_if<std::string>(); text != nullptr && !text->empty()) {
    if (*text != "auto") token.text = *text;
  } else {
    reader.error(*value,
                 fmt::format("{} is {}, expected a token, its id, or \"auto\"", key, to_toml(*value)));
  }
  return token;
}

void read_list(const ConfigValue& tree, const char* key, std::vector<std::string>& errors,
               FunctionRef<void(const ConfigValue&, const std::string&)> element) {
  const ConfigValue* list = tree.find(key);
  if (list == nullptr) return;
  const auto* array = list->get_if<ConfigValue::Array>();
  if (array == nullptr) {
    errors.push_back(
        fmt::format("[{}] {} is not a list of tables; write [[{}]]", to_string(list->origin), key, key));
    return;
  }
  for (size_t i = 0; i < array->size(); ++i) element((*array)[i], fmt::format("{}.{}", key, i));
}

}  // namespace

const std::vector<StageKind>& stage_kinds() {
  static const std::vector<StageKind> kinds = [] {
    std::vector<StageKind> all = filter_stage_kinds();
    for (StageKind& kind : dedup_stage_kinds()) all.push_back(std::move(kind));
    return all;
  }();
  return kinds;
}

ConfigValue read_recipe_tree(const Path& path, const std::vector<std::string>& sets) {
  ConfigValue tree = read_toml(path);
  for (const std::string& set : sets) apply_set(tree, set);
  return tree;
}

Recipe read_recipe(const ConfigValue& tree, const Path& path) {
  std::vector<std::string> errors;
  Recipe recipe;
  recipe.file = path;
  recipe.base = path.has_parent_path() ? path.parent_path() : Path(".");
  TableReader root(tree, "recipe", errors);
  static const ConfigValue kEmpty{.data = ConfigValue::Table(), .origin = {}};

  const ConfigValue* build = root.find("build");
  TableReader build_reader(build ? *build : kEmpty, "build", errors);
  const std::string folder = build_reader.text("folder", "out");
  if (folder.empty())
    build_reader.missing("folder is empty; expected the folder to write, \".\" for this one");
  recipe.folder = placed(recipe.base, folder);
  recipe.workers = static_cast<int>(build_reader.get<int64_t>("workers", 0, "a whole number"));
  recipe.on_error = static_cast<OnError>(build_reader.choice("on_error", {"skip", "stop"}));
  recipe.memory_limit = read_size(build_reader, "memory_limit");
  if (recipe.workers < 0) build_reader.missing("workers must not be negative");
  build_reader.finish();

  root.find("source");
  read_list(tree, "source", errors, [&](const ConfigValue& table, const std::string& where) {
    recipe.sources.push_back(read_source(table, where, recipe.base, errors));
  });
  if (recipe.sources.empty()) errors.push_back("[" + path.string() + "] names no [[source]]");
  std::set<std::string> names;
  for (const RecipeSource& source : recipe.sources) {
    if (!source.name.empty() && !names.insert(source.name).second)
      errors.push_back("[" + path.string() + "] two sources are called " + source.name);
  }
  root.find("stage");
  read_list(tree, "stage", errors, [&](const ConfigValue& table, const std::string& where) {
    recipe.stages.push_back(read_stage(table, where, errors));
  });

  const ConfigValue* output = root.find("output");
  TableReader output_reader(output ? *output : kEmpty, "output", errors);
  recipe.documents = output_reader.flag("documents", true);
  recipe.audit = output_reader.flag("audit", true);
  recipe.clusters = output_reader.flag("clusters", false);
  static const std::vector<std::string> kCompressions = {"none", "gz", "zst"};
  const size_t compression = output_reader.choice("compression", kCompressions);
  recipe.compression = compression == 0 ? "" : kCompressions[compression];
  if (const ConfigValue* tokens = output_reader.find("tokens")) {
    TableReader tokens_reader(*tokens, "output.tokens", errors);
    RecipeTokens wanted;
    const std::string tokenizer = tokens_reader.text("tokenizer", "");
    if (tokenizer.empty()) tokens_reader.missing("names no tokenizer");
    wanted.tokenizer = placed(recipe.base, tokenizer);
    wanted.add_bos = tokens_reader.flag("add_bos", false);
    wanted.add_eos = tokens_reader.flag("add_eos", true);
    wanted.bos = read_token(tokens_reader, "bos");
    wanted.eos = read_token(tokens_reader, "eos");
    wanted.special_in_text =
        static_cast<SpecialInText>(tokens_reader.choice("special_in_text", {"token", "text", "refuse"}));
    std::vector<std::string> formats;
    for (const auto format : {TokenFormat::kStrata, TokenFormat::kMegatron, TokenFormat::kDatatrove})
      formats.emplace_back(token_format_name(format));
    wanted.format = static_cast<TokenFormat>(tokens_reader.choice("format", formats));
    tokens_reader.finish();
    recipe.tokens = wanted;
  }
  output_reader.finish();
  root.finish();
  if (!errors.empty()) throw ConfigError("{}", fmt::join(errors, "\n"));
  return recipe;
}

AnyStage make_stage(const RecipeStage& stage, const Path& base) {
  for (const StageKind& kind : stage_kinds())
    if (kind.name == stage.kind) return kind.make(StageParameters(stage.parameters, base));
  throw InternalError("stage kind {}", stage.kind);
}

std::string recipe_identity(const Recipe& recipe) {
  std::string out = fmt::format("on_error={}\n", static_cast<int>(recipe.on_error));
  for (const RecipeSource& source : recipe.sources) {
    out += fmt::format("source {} format={} text={} id={}\n", source.name,
                       static_cast<int>(source.records.format), source.records.text, source.records.id);
  }
  for (const RecipeStage& stage : recipe.stages) {
    out += "stage " + stage.kind;
    for (const auto& [name, value] : stage.parameters) {
      out += " " + name + "=" +
             std::visit(
                 [](const auto& v) {
                   using T = std::decay_t<decltype(v)>;
                   if constexpr (std::is_same_v<T, std::vector<std::string>>)
                     return fmt::format("[{}]", fmt::join(v, ","));
                   else
                     return fmt::format("{}", v);
                 },
                 value);
    }
    out += "\n";
  }
  return out;
}

}  // namespace strata::data
