#include "comm/local_world.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "comm/local_communicator.h"

namespace strata::comm {
namespace {

int code_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return exit_code(known.kind());
  } catch (...) {
    return exit_code(ErrorKind::kInternal);
  }
}

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "unknown exception";
  }
}

// A single process.
class SingleProcess final : public World {
 public:
  SingleProcess() : job_(1), world_(job_, 0) {}
  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  std::string_view engine() const override { return world_.engine(); }
  int local_rank() const override { return world_.local_rank(); }
  int local_size() const override { return world_.local_size(); }
  const std::string& host() const override { return world_.host(); }
  Topology hosts() const override { return {}; }
  void configure(const WorldOptions& options) override { world_.configure(options); }
  std::unique_ptr<Communicator> group(std::span<const int> ranks, std::string name,
                                      const Topology& topology) override {
    return world_.group(ranks, std::move(name), topology);
  }
  void barrier() override { world_.barrier(); }
  void doing(std::string_view what) override { world_.doing(what); }
  std::string flight_record() const override { return world_.flight_record(); }
  void fail(int code, std::string_view message) override { world_.fail(code, message); }
  int failed_rank() const override { return world_.failed_rank(); }
  void check() override { world_.check(); }
  [[noreturn]] void abort(int code) override { world_.abort(code); }

 private:
  LocalJob job_;
  LocalWorld world_;
};

}  // namespace

LocalWorld::LocalWorld(LocalJob& job, int rank) : job_(job), own_(job.rank(rank)), rank_(rank) {
  std::vector<int> all(static_cast<size_t>(job.size()));
  std::iota(all.begin(), all.end(), 0);
  // Work between two barriers of the world may take any time.
  options_.wait_limit = std::numeric_limits<double>::infinity();
  everyone_ = group(all, "world", {});
  options_ = {};
}

LocalWorld::~LocalWorld() {
  if (progress_ == nullptr) return;
  progress_->request_stop();
  own_.bell.ring();
  progress_->join();
}

void LocalWorld::configure(const WorldOptions& options) {
  options_ = checked(options);
  if (options_.progress_thread && progress_ == nullptr && size() > 1) {
    progress_ = std::make_unique<OwnedThread>([this](const std::stop_token& stop) { progress(stop); });
  }
}

void LocalWorld::progress(const std::stop_token& stop) {
  try {
    while (!stop.stop_requested() && !job_.failed()) {
      const uint64_t armed = own_.bell.arm();
      own_.advance(nullptr);
      if (!stop.stop_requested()) own_.bell.sleep(armed, std::chrono::milliseconds(100));
      own_.bell.disarm();
    }
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    job_.fail(rank_, code_of(error), message_of(error), error);
  }
}

std::unique_ptr<Communicator> LocalWorld::group(std::span<const int> ranks, std::string name,
                                                const Topology& topology) {
  const int member = member_of(ranks, rank_, size(), name);
  std::vector<int> members(ranks.begin(), ranks.end());
  int occurrence = 0;
  {
    const std::lock_guard lock(mutex_);
    occurrence = made_[fmt::format("{}: {}", name, fmt::join(members, " "))]++;
  }
  auto shared = job_.group(members, name, occurrence, topology, options_.chunk_bytes);
  return std::make_unique<LocalCommunicator>(job_, std::move(shared), member, options_.wait_limit);
}

void LocalWorld::check() {
  if (job_.failed()) job_.throw_failure();
}

void LocalWorld::abort(int code) {
  std::fflush(nullptr);
  // Other threads may still be running, so their state must not be destroyed.
  if (size() > 1) std::_Exit(code);
  std::exit(code);
}

std::unique_ptr<World> single_process_world() {
  return std::make_unique<SingleProcess>();
}

void run_local_ranks(int ranks, const std::function<void(World&)>& body) {
  STRATA_CHECK(ranks >= 1, "{} ranks", ranks);
  if (ranks == 1) return body(*single_process_world());
  LocalJob job(ranks);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(ranks));
  const auto run = [&](int rank) {
    try {
      LocalWorld world(job, rank);
      try {
        body(world);
      } catch (...) {
        const std::exception_ptr error = std::current_exception();
        errors[static_cast<size_t>(rank)] = error;
        job.fail(rank, code_of(error), message_of(error), error);
      }
    } catch (...) {
      const std::exception_ptr error = std::current_exception();
      job.fail(rank, code_of(error), message_of(error), error);
    }
    job.ended(rank);
  };
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  }
  const Failure& failure = job.failure();
  if (!failure.failed()) return;
  if (failure.error() != nullptr) std::rethrow_exception(failure.error());
  // The rank may have called fail() before it threw.
  const std::exception_ptr& own = errors[static_cast<size_t>(failure.rank())];
  if (own != nullptr) std::rethrow_exception(own);
  throw WorldError(failure.message());
}

}  // namespace strata::comm
