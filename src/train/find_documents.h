// Which documents a step of a run was trained on, and which steps were trained on a document: strata data find.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/file.h"
#include "base/function_ref.h"
#include "train/run_documents.h"

namespace strata::training {

struct FindOptions {
  Path run;
  std::optional<int64_t> step = {};  // of the run; unset: all steps with `document`
  std::string document = {};         // as RunDocuments::select() takes it
  FileSystem* files = nullptr;       // nullptr: the real file system
};

struct FoundDocument {
  int64_t step = 0;
  bool is_trained = false;  // otherwise planned
  SampleDocument what;
};

struct FindResult {
  int64_t first_step = 1;  // whose samples are known
  std::string why;         // that is not 1
  int64_t made = 0, last_step = 0;
  bool is_held_out = false;  // the document is in no training set
};

// Calls `found` in the order of steps and samples. The steps are those that the run made, as they remain after
// rollbacks and resumes, and those planned. ConfigError for a step that is neither, for a document that does
// not exist and for a folder without a run; DataError if files have changed.
FindResult find_documents(const FindOptions& options, FunctionRef<void(const FoundDocument&)> found);

}  // namespace strata::training
