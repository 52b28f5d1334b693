#include "data/build/job.h"

#include "base/error.h"
#include "data/tokens/text_encoder.h"

namespace strata::data {

Path BuildJob::phase_folder(size_t phase) const {
  return work() / fmt::format("phase-{}", phase);
}
Path BuildJob::part_file(size_t phase, size_t part, const char* suffix) const {
  return phase_folder(phase) / fmt::format("part-{:05}.{}", part, suffix);
}
Path BuildJob::document_output(size_t part) const {
  return output("documents", fmt::format("part-{:05}", part));
}
Path BuildJob::audit_output(size_t part) const {
  return output("audit", fmt::format("part-{:05}", part));
}
Path BuildJob::cluster_output(size_t stage) const {
  return output("clusters", fmt::format("{:02}-{}", stage + 1, recipe.stages[stage].kind));
}
Path BuildJob::output(const char* kind, const std::string& name) const {
  return recipe.folder / kind /
         (name + ".jsonl" + (recipe.compression.empty() ? "" : "." + recipe.compression));
}

Path BuildJob::token_part(size_t part) const {
  return phase_folder(phases.size() - 1) / fmt::format("tokens-{:05}.bin", part);
}

Path BuildJob::token_output(size_t source) const {
  return recipe.folder / "tokens" /
         (recipe.sources[source].name + std::string(token_format_extension(recipe.tokens->format)));
}

namespace {

int32_t id_of(const RecipeToken& token, const char* key, const Tokenizer& tokenizer, const Path& path) {
  if (token.id) {
    const auto id = static_cast<int32_t>(*token.id);
    if (id < tokenizer.vocab_size() && !tokenizer.id_to_token(id).empty()) return id;
    throw ConfigError("[output.tokens] {} = {} is not a token of {}; expected an id from 0 to {}", key, id,
                      path.string(), tokenizer.vocab_size() - 1);
  }
  if (const auto id = tokenizer.token_to_id(token.text)) return *id;
  throw ConfigError("[output.tokens] {} = \"{}\" is not a token of {}; name one of its tokens, or an id", key,
                    token.text, path.string());
}

// The recipe's text ends override those that the tokenizer's files declare.
Tokenizer with_ends_of(const RecipeTokens& tokens, const Tokenizer& tokenizer) {
  TextEnds ends = tokenizer.ends();
  if (tokens.eos.given()) {
    ends.end = id_of(tokens.eos, "eos", tokenizer, tokens.tokenizer);
    ends.end_from = "output.tokens.eos";
    ends.end_is_guess = false;
    ends.notes.clear();
  }
  if (tokens.bos.given()) {
    ends.begin = {id_of(tokens.bos, "bos", tokenizer, tokens.tokenizer)};
    ends.begin_from = "output.tokens.bos";
    ends.begin_of_tokenizer = true;
  }
  return tokenizer.with_ends(std::move(ends));
}

}  // namespace

std::unique_ptr<BuildJob> make_job(Recipe recipe, FileSystem& files, std::function<bool()> stop,
                                   int64_t part_bytes) {
  auto job = std::make_unique<BuildJob>();
  job->recipe = std::move(recipe);
  job->files = &files;
  job->stop = std::move(stop);
  job->phases.emplace_back();
  for (size_t i = 0; i < job->recipe.stages.size(); ++i) {
    job->stages.push_back(make_stage(job->recipe.stages[i], job->recipe.base));
    if (std::holds_alternative<std::unique_ptr<DocumentStage>>(job->stages.back())) {
      job->phases.back().stages.push_back(i);
    } else {
      job->phases.back().collects = i;
      job->phases.push_back({.decided = i, .stages = {}, .collects = {}});
    }
  }
  if (job->recipe.tokens) {
    const RecipeTokens& tokens = *job->recipe.tokens;
    job->tokenizer = with_ends_of(tokens, Tokenizer::load(tokens.tokenizer));
    if (tokens.add_eos && !job->tokenizer->end_of_text_id()) {
      throw ConfigError(
          "[output.tokens] {} has no end-of-text token; set add_eos = false, or name the token as eos",
          tokens.tokenizer.string());
    }
    if (tokens.add_bos && job->tokenizer->ends().begin.empty()) {
      throw ConfigError(
          "[output.tokens] {} has no begin-of-text token; set add_bos = false, or name the token as bos",
          tokens.tokenizer.string());
    }
    job->encoder = text_encoder(*job->tokenizer, tokens.special_in_text);
  }
  job->plan = plan_parts(job->recipe, part_bytes);
  job->lines.resize(job->plan.files.size());
  for (const BuildPart& part : job->plan.parts) {
    for (const PartPiece& piece : part.pieces) {
      auto& lines = job->lines[static_cast<size_t>(piece.file)];
      if (!piece.range.whole() && !lines)
        lines = std::make_unique<LineIndex>(job->plan.files[static_cast<size_t>(piece.file)].file.path);
    }
  }
  return job;
}

}  // namespace strata::data
