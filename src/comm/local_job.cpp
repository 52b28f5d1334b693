#include "comm/local_job.h"

#include <unistd.h>

#include <array>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/parallel.h"
#include "comm/local_communicator.h"

namespace strata::comm {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "this host";
}

}  // namespace

void LocalRank::advance(LocalCommunicator* mine) {
  const std::shared_lock lock(communicators_lock);
  for (LocalCommunicator* communicator : communicators) communicator->advance(communicator == mine);
}

LocalGroup::LocalGroup(std::vector<int> group_ranks, std::string group_name, const Topology& group_topology,
                       int64_t chunk)
    : ranks(std::move(group_ranks)),
      name(std::move(group_name)),
      topology(group_topology),
      domains(domains_of(group_topology, static_cast<int>(ranks.size()))),
      chunk_bytes(chunk),
      inboxes(ranks.size()),
      posted(ranks.size()),
      read(ranks.size()) {
  for (Slot& slot : slots) slot.posts.resize(ranks.size());
}

LocalJob::LocalJob(int ranks) : host_(host_name()), spins_(ranks > 1 && available_processors() >= ranks) {
  for (int i = 0; i < ranks; ++i) ranks_.push_back(std::make_unique<LocalRank>());
}

std::shared_ptr<LocalGroup> LocalJob::group(const std::vector<int>& ranks, const std::string& name,
                                            int occurrence, const Topology& topology, int64_t chunk_bytes) {
  std::string key = fmt::format("{}#{}:", name, occurrence);
  for (const int rank : ranks) key += fmt::format(" {}", rank);
  const std::lock_guard lock(groups_mutex_);
  Forming& forming = forming_[key];
  if (forming.group == nullptr) {
    forming.group = std::make_shared<LocalGroup>(ranks, name, topology, chunk_bytes);
  }
  STRATA_CHECK(
      forming.group->topology.domain_of == topology.domain_of && forming.group->chunk_bytes == chunk_bytes,
      "members of group '{}' disagree on its topology or chunk size", name);
  std::shared_ptr<LocalGroup> group = forming.group;
  if (++forming.joined == ranks.size()) forming_.erase(key);
  return group;
}

void LocalJob::ended(int rank) {
  this->rank(rank).ended = true;
  for (const auto& other : ranks_) other->bell.ring();
}

void LocalJob::fail(int rank, int code, std::string_view message, std::exception_ptr error) {
  failure_.set(rank, code, message, std::move(error));
  halted_ = true;
  for (const auto& other : ranks_) other->bell.ring();
}

void LocalJob::halt(int rank, std::string_view message) {
  const std::lock_guard lock(halt_mutex_);
  if (halted_) return;
  halted_at_ = monotonic_seconds();
  halting_rank_ = rank;
  halt_message_ = message;
  halted_ = true;
}

void LocalJob::check_halt() {
  constexpr double kPatience = 1;
  if (failed() || !halted_) return;
  std::unique_lock lock(halt_mutex_);
  if (monotonic_seconds() - halted_at_ < kPatience) return;
  fail(halting_rank_, exit_code(ErrorKind::kWorld), halt_message_);
}

void LocalJob::quiesce() {
  for (const auto& rank : ranks_) {
    while (rank->busy != 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void LocalJob::throw_failure() {
  quiesce();
  throw WorldError(failure_.message());
}

}  // namespace strata::comm
