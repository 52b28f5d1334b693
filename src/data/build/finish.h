// What a build makes of its finished parts: audits, token files, manifest, report.
#pragma once

#include "data/build/build_stats.h"
#include "data/build/engine.h"
#include "data/build/job.h"

namespace strata::data {

// Writes audit/part-*.jsonl from the documents that the phases dropped, in the order of phases.
void assemble_audit(const BuildJob& job, uint32_t part);

// The token file of one source, in the recipe's format, from its parts in order.
void assemble_tokens(const BuildJob& job, int32_t source);

// sources.toml, the rows of [[data.source]] for the build's token files, with their share from the recipe,
// and tokenizer.json next to it: the input of a run with `data.build = "OUT"`. Not written for a recipe
// without output.tokens. Files with this content already are not touched.
inline constexpr const char* kSourcesFile = "sources.toml";
inline constexpr const char* kTokenizerFile = "tokenizer.json";
void write_training_sources(const BuildJob& job, const BuildStats& stats);

// manifest.json: inputs with their hashes, parameters, counts. Nothing in it depends on time or machine. It
// is written last: if it exists, the build is complete.
std::string manifest_json(const BuildJob& job, const BuildStats& stats, const std::string& identity);

// What `--json` prints at the end.
std::string summary_json(const BuildJob& job, const BuildResult& result);

// The manifest with the shares of the recipe's current mixture: they change no byte of the result.
std::string with_shares(const std::string& manifest, const BuildJob& job);

// The identity that a manifest holds; "" if it is not ours.
std::string identity_of_manifest(const Path& path);
BuildStats stats_of_manifest(const Path& path);

// report.html, self-contained.
std::string report_html(const BuildJob& job, const BuildStats& stats);

}  // namespace strata::data
