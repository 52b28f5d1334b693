// Which faults of debug.inject a run has had: the files RUN/injected/NNN.json, which outlive the process.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "config/inject.h"

namespace strata::training {

// Every rank has one and calls add() and undo_after() at the same points, so that all have the same marks and
// numbers. Not thread-safe. WorldError for disk errors.
class InjectedMarks {
 public:
  struct Mark {
    std::string entry;
    int64_t step = 0;                    // at which it began to act
    int64_t last_step = 0;               // in which it acts
    std::optional<int64_t> undone = {};  // a rollback has undone the steps after this one
    // Whether it belongs to the history of the run at this step.
    bool acts(int64_t at) const { return step <= at && at <= last_step && at <= undone.value_or(at); }
  };

  // Reads the files; no rank may add a mark before all have read them.
  InjectedMarks(FileSystem& files, const Path& run);

  // The mark of a fault, by its entry; nullptr: the run has not had it.
  const Mark* find(std::string_view entry) const;
  // Adds a mark. If `writes`, its file is durable when this returns; one rank writes it.
  void add(const config::Fault& fault, int64_t step, bool writes);
  // Marks as undone what faults did after `step`.
  void undo_after(int64_t step, bool writes);

 private:
  struct Numbered {
    int64_t number;
    Mark mark;
  };
  void write(const Numbered& one);

  FileSystem& files_;
  Path folder_;
  std::vector<Numbered> marks_;
  int64_t next_ = 1;
};

}  // namespace strata::training
