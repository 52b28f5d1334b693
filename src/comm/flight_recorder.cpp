#include "comm/flight_recorder.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/text.h"

namespace strata::comm {

template <size_t N>
void FlightRecorder::Text<N>::set(std::string_view text) {
  const std::string_view fits = utf8_prefix(text, N);
  std::copy(fits.begin(), fits.end(), bytes.begin());
  length = fits.size();
}

void FlightRecorder::doing(std::string_view what) {
  const std::lock_guard lock(mutex_);
  doing_.set(what);
}

uint64_t FlightRecorder::started(std::string_view group, uint64_t number, std::string_view label,
                                 int64_t bytes) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[next_ % kEntries];
  entry.number = number;
  entry.group.set(group);
  entry.label.set(label);
  entry.bytes = bytes;
  entry.begun = monotonic_seconds();
  entry.ended = 0;
  return next_++;
}

void FlightRecorder::done(uint64_t entry) {
  const std::lock_guard lock(mutex_);
  if (next_ - entry <= kEntries) entries_[entry % kEntries].ended = monotonic_seconds();
}

std::string FlightRecorder::describe(const Entry& entry) const {
  const double now = monotonic_seconds();
  return fmt::format(
      "{} ({}, number {} of group '{}'), started {:.1f} s ago{}", entry.label.view(),
      human_bytes(static_cast<double>(entry.bytes)), entry.number, entry.group.view(), now - entry.begun,
      entry.ended > 0 ? fmt::format(", done after {:.1f} ms", (entry.ended - entry.begun) * 1e3) : "");
}

std::string FlightRecorder::summary() const {
  const std::lock_guard lock(mutex_);
  std::string text = doing_.length > 0 ? fmt::format("doing {}", doing_.view()) : "no activity recorded";
  if (next_ == 0) return text + "; no collective yet";
  return text + "; last collective: " + describe(entries_[(next_ - 1) % kEntries]);
}

std::string FlightRecorder::text() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (uint64_t i = next_ > kEntries ? next_ - kEntries : 0; i < next_; ++i) {
    text += describe(entries_[i % kEntries]) + '\n';
  }
  return text;
}

namespace {

std::string rank_list(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i == 16) return text + fmt::format(" and {} more", ranks.size() - i);
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  }
  return text;
}

}  // namespace

std::string describe_hang(std::string_view what, double seconds, std::span<const int> waiting,
                          std::span<const int> missing, const std::function<std::string(int)>& report) {
  constexpr int kReports = 8;
  std::string text = fmt::format("{}: {} {} waited {:.1f} s for {}.", what, rank_list(waiting),
                                 waiting.size() == 1 ? "has" : "have", seconds, rank_list(missing));
  int reports = 0;
  for (const auto ranks : {missing, waiting}) {
    for (const int rank : ranks) {
      if (++reports <= kReports) text += fmt::format(" Rank {}: {}.", rank, report(rank));
    }
  }
  return text;
}

}  // namespace strata::comm
