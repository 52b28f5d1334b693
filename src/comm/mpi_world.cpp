#include "comm/mpi_world.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "comm/exchange.h"
#include "comm/mpi_module.h"

namespace strata::comm {
namespace {

// Time in which all running ranks learn of a failure: several ticks of their watchdogs.
constexpr auto kNotificationTime = std::chrono::milliseconds(400);
// Time for the launcher to forward the output of ranks; it drops the rest once a rank aborts.
constexpr auto kOutputTime = std::chrono::milliseconds(600);
// Time that other ranks wait for the rank that reports the reason.
constexpr auto kReportTime = std::chrono::seconds(5);

}  // namespace

bool BackOff::pause() {
  const int turns = spins_ ? 500 : 20;
  if (++turns_ <= turns) {
    // Yielding so briefly does not help a rank with its own core.
    if (!spins_) ::sched_yield();
    return true;
  }
  std::this_thread::sleep_for(std::chrono::microseconds(20 * std::min(turns_ - turns, 25)));
  return false;
}

MpiWorld::MpiWorld(int rank, int size) {
  int level = 0, flag = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  if (rank_ != rank || size_ != size) {
    const std::string text = fmt::format(
        "[mpi] the launcher has rank {} of {}, MPI has rank {} of {}: launcher and library belong to different "
        "MPIs. Start with the mpirun of the MPI that this program was built with, or rebuild with the "
        "launcher's (docs/parallelism.md)",
        rank, size, rank_, size_);
    MPI_Finalize();
    throw ConfigError(text);
  }
  if (level < MPI_THREAD_SERIALIZED) {
    MPI_Finalize();
    throw WorldError("[mpi] found thread level {}: expected at least MPI_THREAD_SERIALIZED ({})", level,
                     MPI_THREAD_SERIALIZED);
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int* upper = nullptr;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&upper), &flag);
  last_tag_ = flag != 0 ? *upper : 32767;
  watchdog_ =
      std::make_unique<MpiWatchdog>(calls_, rank_, size_, recorder_, failure_, [this] { bell_.ring(); });
  find_hosts();
}

// Ranks with the same host name share a host, whatever launched them.
void MpiWorld::find_hosts() {
  std::array<char, 256> name{};
  host_ =
      ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : fmt::format("host of rank {}", rank_);
  std::vector<int> all(static_cast<size_t>(size_));
  std::iota(all.begin(), all.end(), 0);
  // Work between two barriers of the world may take any time.
  options_.wait_limit = std::numeric_limits<double>::infinity();
  everyone_ = group(all, "world", {});
  options_ = {};
  const std::vector<std::string> hosts = gather_texts(*everyone_, host_);
  local_rank_ = static_cast<int>(std::count(hosts.begin(), hosts.begin() + rank_, host_));
  local_size_ = static_cast<int>(std::count(hosts.begin(), hosts.end(), host_));
  spins_ = available_processors() >= local_size_;
  for (const std::string& host : hosts)
    hosts_.domain_of.push_back(static_cast<int>(std::find(hosts.begin(), hosts.end(), host) - hosts.begin()));
}

MpiWorld::~MpiWorld() {
  if (std::uncaught_exceptions() > 0 && !failure_.failed()) {
    fail(exit_code(ErrorKind::kInternal),
         fmt::format("[comm] rank {} ended with an error that it did not report", rank_));
  }
  if (failure_.failed()) abort(failure_.code());
  closing_ = true;
  try {
    watchdog_->leave();
    everyone_->barrier();
  } catch (const Error&) {
    // The failure is recorded.
  }
  if (failure_.failed()) abort(failure_.code());
  progress_.reset();
  everyone_.reset();
  watchdog_.reset();
  MPI_Finalize();
}

void MpiWorld::configure(const WorldOptions& options) {
  options_ = checked(options);
  constexpr int64_t kLargest = 1 << 30;  // MPI counts in int
  options_.chunk_bytes = std::min(options_.chunk_bytes, kLargest);
  watchdog_->set_silence_limit(options_.silence_limit);
  if (options_.progress_thread && progress_ == nullptr) {
    progress_ = std::make_unique<OwnedThread>([this](const std::stop_token& stop) { progress(stop); });
  }
}

void MpiWorld::progress(const std::stop_token& stop) {
  BackOff back_off(spins_);
  while (!stop.stop_requested() && !failure_.failed()) {
    const uint64_t armed = bell_.arm();
    if (advance(nullptr)) {
      back_off.reset();
    } else if (busy()) {
      back_off.pause();
    } else {
      bell_.sleep(armed, std::chrono::milliseconds(100));
    }
    bell_.disarm();
  }
}

bool MpiWorld::advance(MpiCommunicator* mine) {
  const std::shared_lock lock(communicators_lock_);
  bool moved = false;
  for (MpiCommunicator* communicator : communicators_)
    moved = communicator->advance(communicator == mine) || moved;
  return moved;
}

bool MpiWorld::busy() {
  const std::shared_lock lock(communicators_lock_);
  return std::any_of(communicators_.begin(), communicators_.end(),
                     [](MpiCommunicator* communicator) { return communicator->busy(); });
}

void MpiWorld::add(MpiCommunicator& communicator, uint64_t id, const std::atomic<uint64_t>& started) {
  watchdog_->add_group(id, started);
  const std::unique_lock lock(communicators_lock_);
  communicators_.push_back(&communicator);
}

void MpiWorld::remove(MpiCommunicator& communicator, uint64_t id) {
  watchdog_->remove_group(id);
  const std::unique_lock lock(communicators_lock_);
  std::erase(communicators_, &communicator);
}

std::unique_ptr<Communicator> MpiWorld::group(std::span<const int> ranks, std::string name,
                                              const Topology& topology) {
  const int member = member_of(ranks, rank_, size_, name);
  std::vector<int> members(ranks.begin(), ranks.end());
  const std::string description = fmt::format("{}: {} by {}, {}", name, fmt::join(members, " "),
                                              fmt::join(topology.domain_of, " "), options_.chunk_bytes);
  const std::lock_guard lock(groups_mutex_);
  const uint64_t id = agree(members, hash64(description), name);
  const int64_t first_tag = kFirstGroupTag + static_cast<int64_t>(id) * MpiCommunicator::kTags;
  if (first_tag + MpiCommunicator::kTags > last_tag_) {
    throw WorldError("[mpi] group '{}' exceeds the tags of this MPI (up to {})", name, last_tag_);
  }
  return std::make_unique<MpiCommunicator>(*this, std::move(members), std::move(name), topology, member, id,
                                           static_cast<int>(first_tag), options_);
}

uint64_t MpiWorld::agree(const std::vector<int>& ranks, uint64_t description, const std::string& name) {
  struct Agreement {
    uint64_t id, description;
  };
  if (ranks.front() == rank_) {
    // Unique: rank r uses the ids that are r modulo size_.
    const Agreement agreement{
        .id = groups_led_++ * static_cast<uint64_t>(size_) + static_cast<uint64_t>(rank_),
        .description = description};
    std::vector<MpiRequest> requests;
    for (const int other : ranks) {
      if (other != rank_) requests.push_back(calls_.send(&agreement, sizeof agreement, other, kSetupTag));
    }
    for (MpiRequest& request : requests) wait_for(request);
    return agreement.id;
  }
  Agreement agreement{};
  MpiRequest request = calls_.receive(&agreement, sizeof agreement, ranks.front(), kSetupTag);
  wait_for(request);
  STRATA_CHECK(agreement.description == description,
               "ranks {} and {} create different groups; rank {} creates '{}'", ranks.front(), rank_, rank_,
               name);
  return agreement.id;
}

void MpiWorld::wait_for(MpiRequest& request) {
  BackOff back_off(spins_);
  while (!calls_.done(request)) {
    check();
    // Collectives of other groups may block the first member.
    advance(nullptr);
    back_off.pause();
  }
}

void MpiWorld::settle() {
  std::call_once(settled_, [this] {
    std::this_thread::sleep_for(kNotificationTime);
    calls_.close();
  });
}

void MpiWorld::fail(int code, std::string_view message) {
  watchdog_->fail(code, std::string(message));
  settle();
}

void MpiWorld::check() {
  if (!failure_.failed()) return;
  settle();
  throw WorldError(failure_.message());
}

void MpiWorld::abort(int code) {
  if (failure_.failed()) {
    code = failure_.code();
    settle();
    std::fflush(nullptr);
    // The first rank that aborts ends all. That should be the rank that reports the reason, if it gets here.
    std::this_thread::sleep_for(kOutputTime);
    if (failure_.rank() != rank_) std::this_thread::sleep_for(kReportTime);
  }
  std::fflush(nullptr);
  MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

}  // namespace strata::comm
