// Files of copies of ranks' states in a folder in memory. Each rank has two, which alternate:
//
//   copy-RRRRR-S.state  the values one after the other, without gaps
//   copy-RRRRR-S.json   the manifest: {"checksum": "…", "copy": {…}}, renamed last
//
// A copy exists exactly when its manifest does. Processes that are killed leave files incomplete, never a
// manifest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"

namespace strata::training {

// What a copy is of. Copies with another one belong to another run, or to one that is not the same any more.
struct CopyOrigin {
  std::string program;  // "strata 1.2"
  std::string run;      // a random number that the run's folder has
  std::string layout;   // digest of the values of this rank and of the layout of the ranks
  int64_t ranks = 1;
  bool operator==(const CopyOrigin&) const = default;
};

struct CopyManifest {
  struct Value {
    std::string name;
    int64_t bytes = 0;
    uint64_t checksum = 0;
  };
  CopyOrigin origin;
  int64_t rank = 0;
  int64_t step = 0;
  std::string state;  // the TrainingState as JSON
  std::vector<Value> values;

  int64_t bytes() const;
};
std::string to_json(const CopyManifest& manifest);
// DataError if the text is not a manifest, or is not the one that was written.
CopyManifest copy_manifest_from_json(const std::string& text, const std::string& where);

// A copy in a folder.
struct FoundCopy {
  Path manifest, data;
  int64_t rank = 0;
  std::optional<CopyManifest> content;  // nullopt: the manifest is damaged
};
// All of them, by rank. Empty if there is no such folder.
std::vector<FoundCopy> list_copies(const Path& folder);
// The newest step of which every rank with complete copies in the folder has one; nullopt: there are none.
std::optional<int64_t> newest_copied_step(const Path& folder);
// Whether it has files of copies, complete or not.
bool has_copies(const Path& folder);
// The name of the first value whose checksum differs, or "manifest"; nullopt: the copy is intact.
std::optional<std::string> damage_of(const FoundCopy& copy);
// Removes all files of copies, complete or not, except the ones listed.
void remove_copies(FileSystem& files, const Path& folder, std::span<const FoundCopy> keep = {});

// The two copies of one rank in a folder. Used by one thread at a time.
class CopySlots {
 public:
  // Takes those that are there.
  CopySlots(FileSystem& files, const Path& folder, int64_t rank);

  int64_t rank() const { return rank_; }
  std::vector<int64_t> steps() const;  // of the complete copies, newest first
  bool has(int64_t step) const;
  // The complete copy of a step, which must be there.
  FoundCopy find(int64_t step) const;

  // Starts a copy of this size in place of the older one; of the newer one if `keep` is the older one's step.
  void begin(int64_t bytes, int64_t keep);
  void write(int64_t offset, const void* bytes, size_t size);
  // Completes it.
  void commit(int64_t step, const std::string& manifest);
  void drop_after(int64_t step);

 private:
  struct Slot {
    Path manifest, data;
    std::optional<int64_t> step;  // nullopt: no complete copy
  };

  FileSystem& files_;
  int64_t rank_;
  Slot slots_[2];
  Slot* open_ = nullptr;  // that is being written
  std::unique_ptr<WritableFile> file_;
};

}  // namespace strata::training
