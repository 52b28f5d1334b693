// Ranks that are threads of one process.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/thread.h"
#include "comm/local_job.h"

namespace strata::comm {

class LocalWorld final : public World {
 public:
  // `job` must outlive it. With one rank the engine is "single".
  LocalWorld(LocalJob& job, int rank);
  ~LocalWorld() override;
  LocalWorld(const LocalWorld&) = delete;
  LocalWorld& operator=(const LocalWorld&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return job_.size(); }
  std::string_view engine() const override { return size() == 1 ? "single" : "local"; }
  int local_rank() const override { return rank_; }
  int local_size() const override { return job_.size(); }
  const std::string& host() const override { return job_.host(); }
  Topology hosts() const override { return {}; }
  void configure(const WorldOptions& options) override;
  std::unique_ptr<Communicator> group(std::span<const int> ranks, std::string name,
                                      const Topology& topology) override;
  void barrier() override { everyone_->barrier(); }
  void doing(std::string_view what) override { own_.recorder.doing(what); }
  std::string flight_record() const override { return own_.recorder.text(); }
  void fail(int code, std::string_view message) override { job_.fail(rank_, code, message); }
  int failed_rank() const override { return job_.failure().rank_if_failed(); }
  void lose_next() override { own_.loses_next = true; }
  void check() override;
  [[noreturn]] void abort(int code) override;

 private:
  void progress(const std::stop_token& stop);

  LocalJob& job_;
  LocalRank& own_;
  const int rank_;
  WorldOptions options_;
  std::mutex mutex_;                 // guards `made_`
  std::map<std::string, int> made_;  // number of groups with the same ranks and name
  std::unique_ptr<Communicator> everyone_;
  std::unique_ptr<OwnedThread> progress_;
};

}  // namespace strata::comm
