// Copies of the state of all ranks in memory that outlives them (/dev/shm), on another host too if there are
// several: a run whose processes were killed continues from them without reading a checkpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/thread.h"
#include "program/executor.h"
#include "train/copy_exchange.h"
#include "train/copy_files.h"
#include "train/copy_plan.h"
#include "train/due.h"
#include "train/run_inputs.h"
#include "train/run_store.h"

namespace strata::training {

// What a damaged copy is reported as.
struct CopyDamage {
  int64_t step = 0;  // 0: not known
  int64_t rank = 0;
  std::string value;  // its name, or "manifest"
};

// All ranks construct one, and call restore(), take(), drop_after() and remove() at the same points. The
// objects that it gets must outlive it.
class Copies {
 public:
  Copies(FileSystem& files, const Path& run, const RunInputs& inputs, const program::Executor& executor,
         const CopyPlan& plan);
  ~Copies();

  // Before the first take(). Fills weights and states from the newest step of which every rank has an intact
  // copy, if that is at least `at_least`, the step of the newest checkpoint; nullopt, and nothing has changed,
  // if there is none. Copies that are not used are removed, with a warning if they should have served.
  // `why_not`: why this start does not use any; "": it does.
  std::optional<TrainingState> restore(int64_t at_least, std::string_view why_not);
  // What restore() has found, for reports; the same on all ranks.
  const std::vector<CopyDamage>& damage() const { return damage_; }

  bool makes_any() const { return plan_.makes_copies(); }
  // "1.2 GB per rank in /dev/shm, every 20 steps"
  std::string in_words() const;
  bool has_partners() const { return !plan_.partners.empty(); }
  // Whether a copy is due after the next step; "auto" depends on the cost of earlier ones.
  bool is_due(const RunPosition& position) const { return makes_any() && due_.after_next(position); }
  // Copies the state, which is that after the newest step. A file that cannot be written is a warning: the
  // previous copies stay. WorldError if a rank fails.
  void take(const TrainingState& state);
  // Seconds that training has waited for copies since the last call.
  double take_waited();
  // A rollback has undone the steps after this one. Returns when no rank has a copy of them.
  void drop_after(int64_t step);
  // Removes all of them, at the end of the run.
  void remove();
  // Flips a bit in this rank's newest copy: for injected errors. Nothing happens if there is none.
  void flip(uint64_t draw, int bit) const;

 private:
  // A copy that some host has, of some rank's state.
  struct Offer {
    int64_t rank = 0, step = 0;
    int host = 0;  // as in comm::Topology
    auto operator<=>(const Offer&) const = default;
  };
  struct Offers {
    std::vector<Offer> all;
    int64_t newest = 0;      // step
    bool has_files = false;  // of copies, of whatever run; on any host
    std::string obstacle;    // why others are not offered
  };
  Offers gather_offers(bool is_used);
  std::optional<int64_t> newest_complete(const std::vector<Offer>& offers, int64_t at_least) const;
  // The offers of a step that are used, by rank: those of the rank's own host come first.
  std::vector<Offer> sources_of(int64_t step, const std::vector<Offer>& offers) const;
  // The rank that reads a copy: its own, or one of the host that has it.
  int reader_of(const Offer& offer) const;
  FoundCopy own_copy(int64_t step) const;
  // These return the sources that cannot be used, of all ranks. The first checks the checksums; the second
  // sends copies to ranks on other hosts.
  std::set<Offer> find_damaged(const std::vector<Offer>& sources);
  std::set<Offer> fetch(const std::vector<Offer>& sources);
  // `mine`: [[rank, step, host, damaged value or ""], …]
  std::set<Offer> gather_useless(const nlohmann::ordered_json& mine);
  TrainingState upload(const FoundCopy& copy);
  // Removes the copies that are later than the step at which the run starts, and those of other runs.
  void settle(int64_t step);

  // Returns why the copy is not complete; "": it is.
  std::string write(const TrainingState& state);
  void finish_exchange();
  // What all ranks have, and the cost of the newest copy, since the last call.
  void agree();
  void open_slots(const Path& folder);

  FileSystem& files_;
  const Path run_;
  const RunInputs inputs_;
  const program::Executor& executor_;
  CopyPlan plan_;
  const std::vector<const program::Persistent*> values_;
  std::vector<int> host_of_;  // by rank
  int rank_;                  // of this process
  CopyOrigin origin_;
  std::optional<CopySlots> own_;
  std::vector<std::unique_ptr<CopySlots>> held_;  // for ranks on other hosts
  std::vector<CopyDamage> damage_;
  int64_t agreed_ = -1;        // the newest step that all ranks and their partners have; −1: none is known
  double cost_ = 0;            // seconds of the newest copy
  std::vector<double> costs_;  // the newest of the slowest rank
  double waited_ = 0;          // seconds not yet returned by take_waited()
  std::string problem_;        // of this rank's newest copy
  std::string warned_;         // the problem that was logged last
  Due due_;
  std::unique_ptr<CopyExchange> exchange_;
  // Of the exchange in flight; read once the thread has ended.
  std::string exchange_problem_;
  double exchange_seconds_ = 0;  // of its processor
  std::unique_ptr<OwnedThread> thread_;
};

}  // namespace strata::training
