// A build as its parts see it: the recipe made ready to run, the phases of its stages, and the paths of its
// files.
// A phase reads every part once. Stages that decide on a document by itself run as documents stream by; a
// CorpusStage ends a phase, since it must have seen all parts before it can decide, and its decisions are
// applied at the beginning of the next.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/build/part_plan.h"
#include "data/build/recipe.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokens/tokenize.h"

namespace strata::data {

struct BuildPhase {
  std::optional<size_t> decided;   // the CorpusStage whose decisions are applied first
  std::vector<size_t> stages;      // DocumentStages, in order
  std::optional<size_t> collects;  // the CorpusStage that ends the phase; none: this is the last phase
};

struct BuildJob {
  Recipe recipe;
  PartPlan plan;
  std::vector<AnyStage> stages;
  std::vector<BuildPhase> phases;
  std::optional<Tokenizer> tokenizer;  // with the recipe's text ends
  TextEncoder encoder;                 // of it
  FileSystem* files = nullptr;
  std::function<bool()> stop;
  std::vector<std::unique_ptr<LineIndex>> lines;  // by file; of files that are read in ranges

  // Stored bytes, or bytes of stored documents, that the current phase has read.
  mutable std::atomic<int64_t> progress{0};

  Path work() const { return recipe.folder / "work"; }
  Path phase_folder(size_t phase) const;
  Path part_file(size_t phase, size_t part, const char* suffix) const;  // work/phase-0/part-00012.SUFFIX
  Path document_output(size_t part) const;                              // documents/part-00012.jsonl
  Path audit_output(size_t part) const;
  Path cluster_output(size_t stage) const;  // clusters/02-minhash.jsonl
  Path token_part(size_t part) const;
  Path token_output(size_t source) const;  // tokens/SOURCE.bin or .ds

 private:
  Path output(const char* kind, const std::string& name) const;
};

// Reads the tokenizer, makes the stages and cuts the input; nothing is written. ConfigError, DataError.
std::unique_ptr<BuildJob> make_job(Recipe recipe, FileSystem& files, std::function<bool()> stop,
                                   int64_t part_bytes = kPartBytes);

// Runs one whole part in one phase: its files have their final names when this returns, the statistics last.
// Throws Interrupted when `stop` is set.
void run_part(const BuildJob& job, size_t phase, uint32_t part);

}  // namespace strata::data
