#include "device/cuda/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

namespace strata::cuda {

Progress::Progress(const Card& card) : card_(card), done_(card, sizeof(uint32_t)) {
  std::memset(done_.data(), 0, sizeof(uint32_t));
}

Result Progress::starts(const char* instruction, Stream stream) {
  const std::lock_guard lock(mutex_);
  names_[started_ % kKept] = instruction == nullptr ? "" : instruction;
  const uint32_t before = started_++;
  if (before % kEvery != 0) return kSuccess;
  return card_.driver->write_value(stream, reinterpret_cast<Pointer>(done_.data()), before, kWithoutBarrier);
}

std::string Progress::where() const {
  const uint32_t done = std::atomic_ref(*reinterpret_cast<uint32_t*>(done_.data())).load();
  std::vector<std::string> names;
  const std::lock_guard lock(mutex_);
  if (started_ - done > kKept) return "";
  for (uint32_t i = done; i != started_ && i - done < kEvery; ++i) {
    const std::string& name = names_[i % kKept];
    if (!name.empty() && (names.empty() || names.back() != name)) names.push_back(name);
  }
  if (names.empty()) return "";
  if (names.size() == 1) return "; it was computing " + names.front();
  return fmt::format("; it was computing {} or what follows it, up to {}", names.front(), names.back());
}

}  // namespace strata::cuda
