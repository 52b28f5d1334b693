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

void Progress::starts(const char* instruction, Stream stream) {
  if (started_ % kEvery == 0) {
    card_.driver->check(
        card_.driver->write_value(stream, reinterpret_cast<Pointer>(done_.data()), started_, kWithoutBarrier),
        "cuStreamWriteValue32");
  }
  names_[started_ % kKept] = instruction;
  ++started_;
}

std::string Progress::where() const {
  uint32_t done = 0;
  done = std::atomic_ref(*reinterpret_cast<uint32_t*>(done_.data())).load();
  std::vector<std::string> names;
  if (started_ - done > kKept) return "";
  for (uint32_t i = done; i != started_ && i - done < kEvery; ++i) {
    const char* const name = names_[i % kKept];
    if (name != nullptr && (names.empty() || names.back() != name)) names.emplace_back(name);
  }
  if (names.empty()) return "";
  if (names.size() == 1) return "; it was computing " + names.front();
  return fmt::format("; it was computing {} or what follows it, up to {}", names.front(), names.back());
}

}  // namespace strata::cuda
