// RECIPE.toml: the input of a data build, its stages and its output (docs/data.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/toml.h"
#include "data/input/record_reader.h"
#include "data/pipeline/stage_kinds.h"
#include "data/tokenizer/special_tokens.h"
#include "data/tokens/token_writer.h"

namespace strata::data {

struct RecipeSource {
  std::string name;
  std::vector<std::string> paths;  // files, folders, globs; absolute, or from the working folder
  RecordOptions records;
  // For the mixture; passed on to training in sources.toml.
  double weight = 1;
  int64_t max_epochs = 0;  // 0: not limited
  int64_t max_tokens = 0;  // 0: not limited
};

struct RecipeStage {
  std::string kind;
  std::map<std::string, StageValue> parameters;  // every one, defaults filled in
};

struct RecipeToken {
  std::string text = {};
  std::optional<int64_t> id = {};
  bool given() const { return id || !text.empty(); }
};

struct RecipeTokens {
  Path tokenizer;
  bool add_bos = false;
  bool add_eos = true;
  // The beginning and end of a text, by a token's text or its id ("": as the tokenizer's files declare).
  RecipeToken bos = {}, eos = {};
  SpecialInText special_in_text = SpecialInText::kToken;
  TokenFormat format = TokenFormat::kStrata;
};

enum class OnError { kSkip, kStop };

struct Recipe {
  Path file;        // "" if it was made from a command line
  Path base;        // where relative paths start
  Path folder;      // of everything that the build writes
  int workers = 0;  // threads; 0: enough for all cores
  OnError on_error = OnError::kSkip;
  int64_t memory_limit = 0;  // bytes; 0: auto
  std::vector<RecipeSource> sources;
  std::vector<RecipeStage> stages;
  bool documents = true;
  std::string compression;  // of the documents and the audit: "", "gz" or "zst"
  bool audit = true;
  bool clusters = false;  // the clusters that each deduplication found, in separate files
  std::optional<RecipeTokens> tokens;
};

// The tree of a recipe, for read_recipe: the file with `sets` laid over it.
ConfigValue read_recipe_tree(const Path& path, const std::vector<std::string>& sets);

// ConfigError that lists every error with file, line and the nearest valid name.
Recipe read_recipe(const ConfigValue& tree, const Path& path);

// All kinds of stages that this build has.
const std::vector<StageKind>& stage_kinds();

// The stage, ready to run.
AnyStage make_stage(const RecipeStage& stage, const Path& base);

// A short text that names everything which the documents and audits of a build depend on, inputs aside.
std::string recipe_identity(const Recipe& recipe);

}  // namespace strata::data
