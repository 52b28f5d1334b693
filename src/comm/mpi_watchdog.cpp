#include "comm/mpi_watchdog.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "comm/mpi_module.h"

namespace strata::comm {
namespace {

constexpr auto kTick = std::chrono::milliseconds(50);
// With its header a message stays below the limits of MPI's eager protocols.
constexpr size_t kTextBytes = 3500;

void nap() {
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

}  // namespace

MpiWatchdog::MpiWatchdog(MpiCalls& calls, int rank, int size, const FlightRecorder& recorder,
                         Failure& failure, std::function<void()> failed)
    : calls_(calls),
      rank_(rank),
      size_(size),
      recorder_(recorder),
      failure_(failure),
      failed_(std::move(failed)),
      peers_(static_cast<size_t>(size)),
      last_tick_(monotonic_seconds()) {
  for (Peer& peer : peers_) peer.heard = last_tick_;
  thread_ = std::make_unique<OwnedThread>([this](const std::stop_token& stop) { run(stop); });
}

MpiWatchdog::~MpiWatchdog() {
  thread_.reset();
  for (Sending& sending : sending_) calls_.cancel(sending.request);
}

void MpiWatchdog::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    try {
      const std::lock_guard lock(mutex_);
      tick();
    } catch (const Error& error) {
      // Waiting threads of this rank see the failure; MPI no longer reaches other ranks.
      failure_.set(rank_, exit_code(error.kind()), error.what());
      failed_();
      return;
    }
    std::this_thread::sleep_for(kTick);
  }
}

void MpiWatchdog::tick() {
  const double now = monotonic_seconds();
  // If this thread itself was stopped, it could not receive heartbeats meanwhile.
  if (now - last_tick_ > 1) {
    for (Peer& peer : peers_) peer.heard = now;
  }
  last_tick_ = now;
  receive_all();
  if (now - last_heartbeat_ >= std::min(1.0, silence_limit_ / 4)) {
    last_heartbeat_ = now;
    send((rank_ + 1) % size_, {.kind = kHeartbeat}, recorder_.summary());
  }
  check_silence();
  flush();
}

void MpiWatchdog::send(int to, const Header& header, std::string_view text) {
  // Skip a heartbeat while a message to the same rank is in flight: that rank may not be receiving.
  if (header.kind == kHeartbeat && std::any_of(sending_.begin(), sending_.end(),
                                               [&](const Sending& one) { return one.request.peer == to; })) {
    return;
  }
  const std::string_view fits = utf8_prefix(text, kTextBytes);
  Sending& sending = sending_.emplace_back();
  sending.bytes.resize(sizeof header + fits.size());
  std::memcpy(sending.bytes.data(), &header, sizeof header);
  std::copy(fits.begin(), fits.end(), sending.bytes.begin() + sizeof header);
  sending.request = calls_.send(sending.bytes.data(), std::ssize(sending.bytes), to, kControlTag);
}

void MpiWatchdog::send_all(const Header& header, std::string_view text) {
  for (int other = 0; other < size_; ++other) {
    if (other != rank_) send(other, header, text);
  }
}

bool MpiWatchdog::flush() {
  for (auto at = sending_.begin(); at != sending_.end();) {
    const auto one = at++;
    if (calls_.done(one->request)) sending_.erase(one);
  }
  return sending_.empty();
}

void MpiWatchdog::receive_all() {
  while (const auto arrival = calls_.arrival(kControlTag)) receive(arrival->from, arrival->bytes);
}

void MpiWatchdog::receive(int from, int64_t bytes) {
  std::vector<char> buffer(static_cast<size_t>(bytes));
  MpiRequest request = calls_.receive(buffer.data(), bytes, from, kControlTag);
  const double begun = monotonic_seconds();
  while (!calls_.done(request)) {
    // The sender died while sending.
    if (monotonic_seconds() - begun > 1) return calls_.cancel(request);
    nap();
  }
  Header header;
  STRATA_CHECK(buffer.size() >= sizeof header, "found a control message of {} bytes: expected at least {}",
               bytes, sizeof header);
  std::memcpy(&header, buffer.data(), sizeof header);
  const std::string text(buffer.begin() + sizeof header, buffer.end());
  Peer& peer = peers_[static_cast<size_t>(from)];
  peer.heard = monotonic_seconds();
  switch (header.kind) {
    case kHeartbeat:
      peer.report = text;
      return;
    case kFailure:
      if (failure_.set(from, header.code, text)) failed_();
      return;
    case kQuestion: {
      const auto group = groups_.find(header.group);
      const bool started = group != groups_.end() && *group->second >= header.number;
      return send(from, {.kind = kAnswer, .code = started ? 1 : 0}, recorder_.summary());
    }
    case kAnswer:
      peer.report = text;
      peer.answered = true;
      peer.started = header.code != 0;
      return;
    case kLeave:
      peer.left = true;
      return;
  }
}

void MpiWatchdog::ask(const std::vector<int>& ranks, uint64_t group, uint64_t number) {
  for (const int rank : ranks) {
    Peer& peer = peers_[static_cast<size_t>(rank)];
    peer.answered = peer.started = false;
    if (rank != rank_ && !peer.silent) send(rank, {.kind = kQuestion, .group = group, .number = number}, "");
  }
  const auto answered = [&](int rank) {
    const Peer& peer = peers_[static_cast<size_t>(rank)];
    return rank == rank_ || peer.answered || peer.silent;
  };
  const double begun = monotonic_seconds();
  while (!std::all_of(ranks.begin(), ranks.end(), answered) && monotonic_seconds() - begun < 0.5) {
    nap();
    receive_all();
    flush();
  }
}

std::string MpiWatchdog::report_of(int rank) {
  if (rank == rank_) return recorder_.summary();
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  std::string text = peer.answered ? "" : "does not answer; last known: ";
  return text + (peer.report.empty() ? "nothing" : peer.report);
}

void MpiWatchdog::check_silence() {
  const int before = (rank_ + size_ - 1) % size_;
  Peer& peer = peers_[static_cast<size_t>(before)];
  const double seconds = monotonic_seconds() - peer.heard;
  if (before == rank_ || failure_.failed() || peer.left || seconds < silence_limit_) return;
  peer.silent = true;
  std::vector<int> others;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != before) others.push_back(rank);
  }
  ask(others, 0, 0);
  if (failure_.failed()) return;
  const int missing[] = {before};
  fail_locked(exit_code(ErrorKind::kWorld),
              describe_hang(fmt::format("[comm] rank {} is stopped or gone", before), seconds, others,
                            missing, [&](int rank) { return report_of(rank); }));
}

void MpiWatchdog::fail_hang(std::string_view what, double seconds, uint64_t group, uint64_t number,
                            const std::vector<int>& ranks) {
  const std::lock_guard lock(mutex_);
  if (failure_.failed()) return;
  ask(ranks, group, number);
  if (failure_.failed()) return;
  std::vector<int> waiting, missing;
  for (const int rank : ranks) {
    const bool started = rank == rank_ || peers_[static_cast<size_t>(rank)].started;
    (started ? waiting : missing).push_back(rank);
  }
  // All have started it, so the blocking rank is unknown: report all.
  if (missing.empty()) missing.swap(waiting);
  fail_locked(exit_code(ErrorKind::kWorld),
              describe_hang(what, seconds, waiting, missing, [&](int rank) { return report_of(rank); }));
}

void MpiWatchdog::fail(int code, const std::string& message) {
  const std::lock_guard lock(mutex_);
  fail_locked(code, message);
}

void MpiWatchdog::fail_locked(int code, const std::string& message) {
  if (!failure_.set(rank_, code, message)) return;
  failed_();
  send_all({.kind = kFailure, .code = code}, message);
  const double begun = monotonic_seconds();
  while (!flush() && monotonic_seconds() - begun < 1) nap();
}

void MpiWatchdog::leave() {
  const std::lock_guard lock(mutex_);
  peers_[static_cast<size_t>(rank_)].left = true;
  send_all({.kind = kLeave}, "");
  flush();
}

void MpiWatchdog::add_group(uint64_t group, const std::atomic<uint64_t>& started) {
  const std::lock_guard lock(mutex_);
  groups_[group] = &started;
}

void MpiWatchdog::remove_group(uint64_t group) {
  const std::lock_guard lock(mutex_);
  groups_.erase(group);
}

}  // namespace strata::comm
