#include "ptx/traffic.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

namespace strata::gpu_tests {
namespace {

constexpr uint64_t kSectorBytes = 32, kBanks = 32, kBankBytes = 4;

struct Moved {
  uint64_t is = 0, least = 0;
};

// `recent`: of loads, else nullptr.
Moved sectors_of(const std::array<uint64_t, kLanes>& at, uint32_t lanes, unsigned bytes,
                 RecentSectors* recent) {
  // Sector and the bytes of it that are used. An access is aligned to its size, a power of two up to 32.
  std::vector<std::pair<uint64_t, uint32_t>> used;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) == 0) continue;
    const auto first = static_cast<unsigned>(at[lane] % kSectorBytes);
    used.emplace_back(at[lane] / kSectorBytes, (bytes == 32 ? ~0u : (1u << bytes) - 1) << first);
  }
  std::sort(used.begin(), used.end());
  Moved moved;
  uint64_t total = 0;
  for (size_t n = 0; n < used.size();) {
    uint32_t mask = 0;
    const uint64_t sector = used[n].first;
    for (; n < used.size() && used[n].first == sector; ++n) mask |= used[n].second;
    if (recent == nullptr || !recent->use(sector, mask)) ++moved.is;
    total += static_cast<uint64_t>(std::popcount(mask));
  }
  moved.least = (total + kSectorBytes - 1) / kSectorBytes;
  return moved;
}

Moved passes_of(const std::array<uint64_t, kLanes>& at, uint32_t lanes, unsigned bytes) {
  const unsigned group = bytes <= 4 ? kLanes : std::max(1u, kLanes * 4 / bytes);
  Moved moved;
  for (unsigned begin = 0; begin < kLanes; begin += group) {
    std::vector<uint64_t> words;
    for (unsigned lane = begin; lane < begin + group; ++lane) {
      if ((lanes >> lane & 1) == 0) continue;
      for (uint64_t byte = 0; byte < bytes; byte += kBankBytes)
        words.push_back((at[lane] + byte) / kBankBytes);
    }
    if (words.empty()) continue;
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    std::array<uint64_t, kBanks> of_bank{};
    for (const uint64_t word : words) ++of_bank[word % kBanks];
    moved.is += *std::max_element(of_bank.begin(), of_bank.end());
    moved.least += (words.size() + kBanks - 1) / kBanks;
  }
  return moved;
}

}  // namespace

bool RecentSectors::use(uint64_t sector, uint32_t& mask) {
  const auto found =
      std::find_if(sectors_.begin(), sectors_.end(), [&](const Sector& one) { return one.number == sector; });
  if (found == sectors_.end()) {
    sectors_[next_++ % kKept] = {sector, mask};
    return false;
  }
  const uint32_t fresh = mask & ~found->used;
  found->used |= mask;
  mask = fresh;
  return true;
}

void AccessTally::count() {
  if (warp_.recent == nullptr) warp_.recent = std::make_shared<RecentSectors>();
  const Moved global =
      sectors_of(global_at_, global_lanes_, bytes_, kind_ == Access::kRead ? warp_.recent.get() : nullptr);
  const Moved shared = passes_of(shared_at_, shared_lanes_, bytes_);
  to_->sectors += global.is;
  to_->least_sectors += global.least;
  to_->passes += shared.is;
  to_->least_passes += shared.least;
  if (global.is > global.least || shared.is > shared.least) {
    auto& excess = to_->excess[warp_.at(instruction_)];
    excess[0] += global.is - global.least;
    excess[1] += shared.is - shared.least;
  }
}

std::string traffic_csv(const TrafficByKernel& kernels) {
  std::string text =
      "kernel,launches,threads,shared_bytes,sectors,least_sectors,passes,least_passes,most_excess\n";
  for (const auto& [name, one] : kernels) {
    const auto worst = std::max_element(
        one.excess.begin(), one.excess.end(),
        [](const auto& a, const auto& b) { return a.second[0] + a.second[1] < b.second[0] + b.second[1]; });
    std::string place;
    if (worst != one.excess.end())
      place = fmt::format("{}: {} sectors and {} passes", one.kernel->place_text(worst->first),
                          worst->second[0], worst->second[1]);
    std::replace(place.begin(), place.end(), ',', ';');
    text += fmt::format("{},{},{},{},{},{},{},{},{}\n", name, one.launches, one.threads, one.shared_bytes,
                        one.sectors, one.least_sectors, one.passes, one.least_passes, place);
  }
  return text;
}

}  // namespace strata::gpu_tests
