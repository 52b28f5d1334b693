#include "ptx/memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace strata::gpu_tests {
namespace {

constexpr uint64_t kAlignment = 256;
constexpr uint64_t kGap = 65536;
constexpr std::byte kPoison{0xcd};

}  // namespace

Region::Region(std::string name_in, Space space_in, uint64_t base_in, uint64_t bytes)
    : name(std::move(name_in)), space(space_in), base(base_in) {
  reset(bytes);
}

void Region::reset(uint64_t bytes) {
  size = bytes;
  data.assign(bytes, kPoison);
  written_.assign((bytes + 15) / 16, 0);
  shadow.reset(bytes);
}

bool Region::written(uint64_t offset, uint64_t bytes) const {
  if (offset % 16 + bytes <= 16) [[likely]] {
    const unsigned mask = ((1u << bytes) - 1u) << (offset % 16);
    return (written_[offset / 16] & mask) == mask;
  }
  return first_unwritten(offset, bytes) == offset + bytes;
}

uint64_t Region::first_unwritten(uint64_t offset, uint64_t bytes) const {
  for (uint64_t at = offset; at < offset + bytes;) {
    if (at % 16 == 0 && written_[at / 16] == 0xffff) {
      at += 16;
    } else if ((written_[at / 16] >> (at % 16) & 1) != 0) {
      ++at;
    } else {
      return at;
    }
  }
  return offset + bytes;
}

void Region::mark(uint64_t offset, uint64_t bytes, bool now_written) {
  while (bytes > 0) {
    const uint64_t here = std::min<uint64_t>(bytes, 16 - offset % 16);
    const unsigned mask = ((1u << here) - 1u) << (offset % 16);
    uint16_t& word = written_[offset / 16];
    word = static_cast<uint16_t>(now_written ? word | mask : word & ~mask);
    offset += here;
    bytes -= here;
  }
}

Region& Memory::allocate(uint64_t bytes, std::string name, Space space) {
  if (name.empty()) name = fmt::format("allocation {}", regions_.size());
  regions_.push_back(std::make_unique<Region>(std::move(name), space, next_, bytes));
  next_ += (bytes + kAlignment - 1) / kAlignment * kAlignment + kGap;
  allocated_ += bytes;
  return *regions_.back();
}

Region* Memory::find(uint64_t address) const {
  const auto after =
      std::upper_bound(regions_.begin(), regions_.end(), address,
                       [](uint64_t wanted, const auto& region) { return wanted < region->base; });
  return after == regions_.begin() ? nullptr : (after - 1)->get();
}

void Memory::free(uint64_t address) {
  Region* region = find(address);
  if (region == nullptr || region->base != address || region->freed) {
    throw std::invalid_argument(fmt::format("free of {:#x}: not an allocation", address));
  }
  allocated_ -= region->size;
  const uint64_t size = region->size;
  region->reset(0);
  region->size = size;
  region->freed = true;
}

void Memory::clear_shadows() {
  for (const auto& region : regions_) region->shadow.clear();
}

}  // namespace strata::gpu_tests
