#include "ptx/shadow.h"

#include <algorithm>
#include <bit>

namespace strata::gpu_tests {

bool Actor::after(Stamp other) const {
  if (other.none()) return true;
  if (other.operation != stamp.operation) return order == nullptr || order->before_current(other.operation);
  if (other.several_blocks != 0 || other.block != stamp.block || clocks == nullptr) return false;
  if (other.several_warps != 0) return barriers > other.clock;
  if (other.thread == stamp.thread && other.several_lanes == 0) return true;
  const unsigned warp = other.warp();
  // The entry of this warp is its current clock; those of others are the clocks that barriers have shown.
  return warp == stamp.warp() ? other.clock < clocks[warp] : other.clock <= clocks[warp];
}

void Shadow::reset(uint64_t bytes) {
  pages_.clear();
  pages_.resize((bytes + kPageBytes - 1) / kPageBytes);
}

void Shadow::clear() {
  for (Page& page : pages_) {
    std::fill(page.cells.begin(), page.cells.end(), Cell{});
    page.others.clear();
  }
}

Shadow::Page& Shadow::page_for(uint64_t offset, uint64_t bytes) {
  Page& page = pages_[offset / kPageBytes];
  if (page.cells.empty()) page.cells.resize(kPageBytes >> page.shift);
  const unsigned alignment = static_cast<unsigned>(std::countr_zero(offset | bytes | 16));
  if (alignment < page.shift) [[unlikely]] {
    const unsigned split = page.shift - alignment;
    std::vector<Cell> finer(kPageBytes >> alignment);
    for (size_t cell = 0; cell < finer.size(); ++cell) finer[cell] = page.cells[cell >> split];
    page.cells = std::move(finer);
    page.shift = alignment;
  }
  return page;
}

template <typename F>
bool Shadow::each_cell(uint64_t offset, uint64_t bytes, F f) {
  while (bytes > 0) {
    const uint64_t here = std::min<uint64_t>(bytes, kPageBytes - offset % kPageBytes);
    Page& page = page_for(offset, here);
    const uint32_t first = static_cast<uint32_t>((offset % kPageBytes) >> page.shift);
    const uint32_t last = static_cast<uint32_t>((offset % kPageBytes + here - 1) >> page.shift);
    for (uint32_t cell = first; cell <= last; ++cell) {
      if (!f(page, cell)) [[unlikely]]
        return false;
    }
    offset += here;
    bytes -= here;
  }
  return true;
}

bool Shadow::read(uint64_t offset, uint64_t bytes, const Actor& actor, Conflict* conflict) {
  return each_cell(offset, bytes,
                   [&](Page& page, uint32_t cell) { return read_cell(page, cell, actor, conflict); });
}

bool Shadow::write(uint64_t offset, uint64_t bytes, const Actor& actor, Conflict* conflict) {
  return each_cell(offset, bytes,
                   [&](Page& page, uint32_t cell) { return write_cell(page, cell, actor, conflict); });
}

inline bool Shadow::read_cell(Page& page, uint32_t index, const Actor& actor, Conflict* conflict) {
  Cell& cell = page.cells[index];
  const Stamp me = actor.stamp;
  if (!actor.after(cell.write) && !(me.strong != 0 && cell.write.strong != 0)) [[unlikely]] {
    *conflict = {cell.write, cell.write_at, true};
    return false;
  }
  if (cell.read == me) return true;
  if (actor.after(cell.read)) {
    cell.read = me;
  } else if (cell.read.operation != me.operation) {
    const uint32_t byte = index << page.shift;
    for (OtherRead& other : page.others) {
      if (other.byte == byte && other.stamp.operation == me.operation) return true;
    }
    // Readers that happened before this one are redundant.
    std::erase_if(page.others,
                  [&](const OtherRead& other) { return other.byte == byte && actor.after(other.stamp); });
    Stamp whole = me;
    whole.several_blocks = 1;
    page.others.push_back({byte, 1u << page.shift, whole, actor.at});
    return true;
  } else if (cell.read.block != me.block || cell.read.several_blocks != 0) {
    cell.read.several_blocks = 1;
    return true;
  } else if (cell.read.warp() == me.warp() && cell.read.several_warps == 0) {
    cell.read.several_lanes = 1;
    cell.read.clock = me.clock;
    return true;
  } else {
    cell.read = me;
    cell.read.several_warps = 1;
    cell.read.clock = std::min(actor.barriers, Stamp::kMaxClock) & Stamp::kMaxClock;
  }
  cell.read_at = actor.at;
  return true;
}

inline bool Shadow::write_cell(Page& page, uint32_t index, const Actor& actor, Conflict* conflict) {
  Cell& cell = page.cells[index];
  const bool strong = actor.stamp.strong != 0;
  if (!actor.after(cell.write) && !(strong && cell.write.strong != 0)) [[unlikely]] {
    *conflict = {cell.write, cell.write_at, true};
    return false;
  }
  if (!actor.after(cell.read) && !(strong && cell.read.strong != 0)) [[unlikely]] {
    *conflict = {cell.read, cell.read_at, false};
    return false;
  }
  if (!page.others.empty()) [[unlikely]] {
    const uint32_t byte = index << page.shift;
    for (const OtherRead& other : page.others) {
      if (byte >= other.byte && byte < other.byte + other.bytes && !actor.after(other.stamp)) {
        *conflict = {other.stamp, other.at, false};
        return false;
      }
    }
    std::erase_if(page.others,
                  [&](const OtherRead& other) { return actor.after(other.stamp) && byte == other.byte; });
  }
  cell.write = actor.stamp;
  cell.write_at = actor.at;
  cell.read = Stamp{};
  return true;
}

}  // namespace strata::gpu_tests
