// sources.toml: what training takes of a build.
#include <fmt/format.h>

#include "base/toml.h"
#include "data/build/finish.h"

namespace strata::data {
namespace {

ConfigValue value(auto plain) {
  return {.data = std::move(plain), .origin = {}};
}

std::string assignment(const char* key, const ConfigValue& to) {
  return fmt::format("{} = {}\n", key, to_toml(to));
}

std::string sources_toml(const BuildJob& job, const BuildStats& stats) {
  const RecipeTokens& tokens = *job.recipe.tokens;
  std::string out =
      "# What training takes of this build: data.build names the folder, in RUN.toml or by `strata train\n"
      "# FOLDER`. Paths start at this file.\n\n[tokenizer]\n";
  out += assignment("path", value(std::string("tokenizer.json")));
  out += assignment("add_bos", value(tokens.add_bos)) + assignment("add_eos", value(tokens.add_eos));
  // The ends of a text by their ids: the files that declare them are not copied.
  const TextEnds& ends = job.tokenizer->ends();
  if (ends.end) out += assignment("eos", value(static_cast<int64_t>(*ends.end)));
  if (ends.begin.size() == 1 && job.tokenizer->prefix_ids().empty())
    out += assignment("bos", value(static_cast<int64_t>(ends.begin.front())));
  for (size_t s = 0; s < job.recipe.sources.size(); ++s) {
    const RecipeSource& source = job.recipe.sources[s];
    const BuildStats::Kept& kept = stats.sources[s];
    out += fmt::format("\n# {}: {} documents, {} tokens\n", to_toml(value(source.name)), kept.documents,
                       kept.tokens);
    if (kept.tokens == 0) continue;  // nothing to train on
    out += "[[data.source]]\n" + assignment("name", value(source.name));
    const std::string file = job.token_output(s).lexically_relative(job.recipe.folder).string();
    out += assignment("path", value(ConfigValue::Array{value(file)}));
    out += assignment("weight", value(source.weight));
    if (source.max_epochs > 0) out += assignment("max_epochs", value(source.max_epochs));
    if (source.max_tokens > 0) out += assignment("max_tokens", value(source.max_tokens));
  }
  return out;
}

void write_where_other(FileSystem& files, const Path& path, const std::string& content) {
  std::error_code error;
  if (std::filesystem::exists(path, error) && read_file(path) == content) return;
  write_file_atomically(files, path, content);
}

}  // namespace

void write_training_sources(const BuildJob& job, const BuildStats& stats) {
  if (!job.tokenizer) return;
  write_where_other(*job.files, job.recipe.folder / kTokenizerFile, job.tokenizer->json());
  write_where_other(*job.files, job.recipe.folder / kSourcesFile, sources_toml(job, stats));
}

}  // namespace strata::data
