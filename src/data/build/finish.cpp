#include "data/build/finish.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/version.h"
#include "data/build/output_file.h"
#include "data/tokens/token_file.h"
#include "data/tokens/token_writer.h"

namespace strata::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kCopyTokens = int64_t{1} << 18;

Json parameters_json(const RecipeStage& stage) {
  Json out = Json::object();
  for (const auto& [name, value] : stage.parameters)
    std::visit([&, key = name](const auto& v) { out[key] = v; }, value);
  return out;
}

Json dropped_json(const BuildJob& job, const BuildStats& stats) {
  Json out = Json::object();
  for (size_t row = 0; row < stats.rows.size(); ++row) {
    const std::string kind = row == 0 ? "read" : job.recipe.stages[row - 1].kind;
    for (const auto& [reason, drop] : stats.rows[row].dropped) {
      // A kind may occur twice.
      int64_t count = drop.documents;
      if (out.contains(kind) && out[kind].contains(reason)) count += out[kind][reason].get<int64_t>();
      out[kind][reason] = count;
    }
  }
  return out;
}

}  // namespace

void assemble_audit(const BuildJob& job, uint32_t part) {
  OutputFile out(*job.files, job.audit_output(part), job.recipe.compression);
  for (size_t phase = 0; phase < job.phases.size(); ++phase) {
    const MappedFile lines(job.part_file(phase, part, "audit"));
    constexpr size_t kChunk = size_t{1} << 20;
    for (size_t at = 0; at < lines.size(); at += kChunk) out.append(lines.text().substr(at, kChunk));
  }
  out.finish();
}

void assemble_tokens(const BuildJob& job, int32_t source) {
  const TokenFormat format = job.recipe.tokens->format;
  const TokenType type = token_type_for(job.tokenizer->vocab_size(), format);
  const Path path = job.token_output(static_cast<size_t>(source));
  job.files->create_directories(path.parent_path());
  TokenWriter out(*job.files, path, type, format);
  std::vector<int32_t> ids(static_cast<size_t>(kCopyTokens));
  for (size_t part = 0; part < job.plan.parts.size(); ++part) {
    if (job.plan.parts[part].source != source) continue;
    const TokenFile file(job.token_part(part), {.vocab_size = job.tokenizer->vocab_size()});
    int64_t begin = 0;
    for (int64_t d = 0; d < file.documents(); ++d) {
      const int64_t end = file.document_end(d);
      while (begin < end) {
        const int64_t count = std::min(kCopyTokens, end - begin);
        file.read(begin, count, ids.data());
        out.append(std::span(ids.data(), static_cast<size_t>(count)));
        begin += count;
      }
      out.end_document();
    }
  }
  out.finish({.type = type,
              .vocab_size = job.tokenizer->vocab_size(),
              .tokenizer_hash = to_hex(job.tokenizer->hash()),
              .tokenizer_name = job.recipe.tokens->tokenizer.filename().string(),
              .end_of_text = job.tokenizer->end_of_text_id()},
             "");
}

std::string manifest_json(const BuildJob& job, const BuildStats& stats, const std::string& identity) {
  Json out;
  out["format"] = "strata data build";
  out["version"] = program_version();
  out["identity"] = identity;
  out["inputs"] = Json::array();
  for (size_t f = 0; f < job.plan.files.size(); ++f) {
    const BuildInput& input = job.plan.files[f];
    const auto hash = stats.input_hashes.find(static_cast<int32_t>(f));
    out["inputs"].push_back({{"source", job.recipe.sources[static_cast<size_t>(input.source)].name},
                             {"path", input.name},
                             {"bytes", input.file.size},
                             {"xxh3", hash == stats.input_hashes.end() ? "" : to_hex(hash->second)}});
  }
  out["stages"] = Json::array();
  for (const RecipeStage& stage : job.recipe.stages)
    out["stages"].push_back({{"kind", stage.kind}, {"parameters", parameters_json(stage)}});
  out["sources"] = Json::array();
  for (size_t s = 0; s < job.recipe.sources.size(); ++s) {
    const RecipeSource& source = job.recipe.sources[s];
    out["sources"].push_back({{"name", source.name},
                              {"weight", source.weight},
                              {"max_epochs", source.max_epochs},
                              {"max_tokens", source.max_tokens},
                              {"documents", stats.sources[s].documents},
                              {"bytes", stats.sources[s].bytes},
                              {"tokens", stats.sources[s].tokens}});
  }
  out["documents_in"] = stats.rows[0].documents_in;
  out["documents_out"] = stats.rows.back().documents_out;
  out["dropped"] = dropped_json(job, stats);
  if (job.tokenizer) {
    out["tokenizer"] = {{"path", job.recipe.tokens->tokenizer.string()},
                        {"hash", to_hex(job.tokenizer->hash())},
                        {"tokens", stats.tokens}};
  }
  out["statistics"] = parse_json<Json>(stats.to_json());
  return dump_json(out, 1, InvalidUtf8::kReplace) + "\n";
}

std::string with_shares(const std::string& manifest, const BuildJob& job) {
  Json out = parse_json<Json>(manifest);
  for (size_t s = 0; s < job.recipe.sources.size() && s < out["sources"].size(); ++s) {
    Json& row = out["sources"][s];
    row["weight"] = job.recipe.sources[s].weight;
    row["max_epochs"] = job.recipe.sources[s].max_epochs;
    row["max_tokens"] = job.recipe.sources[s].max_tokens;
  }
  return dump_json(out, 1, InvalidUtf8::kReplace) + "\n";
}

std::string summary_json(const BuildJob& job, const BuildResult& result) {
  Json out;
  out["documents_in"] = result.stats.rows[0].documents_in;
  out["documents_out"] = result.stats.rows.back().documents_out;
  out["bytes_in"] = result.stats.stored_bytes;
  out["seconds"] = result.seconds;
  if (job.tokenizer) {
    out["tokens"] = result.stats.tokens;
    out["special_in_text"] = result.stats.special;
  }
  out["dropped"] = dropped_json(job, result.stats);
  return dump_json(out, -1, InvalidUtf8::kReplace);
}

namespace {

Json read_manifest(const Path& path) {
  try {
    return parse_json<Json>(read_file(path));
  } catch (const Json::exception& error) {
    throw DataError("[{}] is not the manifest of a data build: {}", path.string(), error.what());
  }
}

}  // namespace

std::string identity_of_manifest(const Path& path) {
  const Json manifest = read_manifest(path);
  return manifest.is_object() ? manifest.value("identity", "") : "";
}

BuildStats stats_of_manifest(const Path& path) {
  const Json manifest = read_manifest(path);
  if (!manifest.contains("statistics"))
    throw DataError("[{}] holds no statistics, expected what a data build wrote", path.string());
  return BuildStats::from_json(dump_json(manifest["statistics"]));
}

}  // namespace strata::data
