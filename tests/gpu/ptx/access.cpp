#include "ptx/access.h"

#include <fmt/core.h>

namespace strata::gpu_tests {
namespace {

// The shared variable at an offset, or the last one before it.
const SharedVariable* shared_variable(const Kernel& kernel, uint64_t offset) {
  const SharedVariable* found = nullptr;
  for (const SharedVariable& one : kernel.shared) {
    if (one.offset <= offset) found = &one;
  }
  return found;
}

uint64_t shared_variable_bytes(const Warp& warp, const SharedVariable& one) {
  const bool dynamic = warp.kernel->dynamic_shared && &one == &warp.kernel->shared.back();
  return dynamic ? warp.block->launch->dynamic_shared : one.bytes;
}

struct Description {
  std::string name;  // allocation
  std::string text;  // "+16 of `x` (64 bytes)"
};

Description describe(const Warp& warp, const Region& region, uint64_t offset) {
  std::string name = region.name;
  uint64_t size = region.size;
  uint64_t at = offset;
  if (region.space == Space::kShared) {
    if (const SharedVariable* one = shared_variable(*warp.kernel, offset)) {
      name = one->name;
      size = shared_variable_bytes(warp, *one);
      at = offset - one->offset;
    }
  } else if (region.space == Space::kLocal) {
    size = warp.kernel->local_bytes;
    at = size == 0 ? 0 : offset % size;
  }
  return {name, fmt::format("+{} of {} {} ({} bytes)", at, space_name(region.space), name, size)};
}

std::string other_access(const Warp& warp, const Conflict& conflict) {
  const Stamp other = conflict.other;
  const OperationTable::Operation& operation =
      warp.block->launch->operations->at(static_cast<unsigned>(other.operation));
  std::string text = conflict.other_wrote ? "written by " : "read by ";
  if (operation.kernel == nullptr)
    return text + fmt::format("operation \"{}\" on stream {}", operation.name, operation.stream);
  const auto& kernel = *static_cast<const Kernel*>(operation.kernel);
  if (other.operation != warp.base.stamp.operation) {
    text += fmt::format("kernel {} on stream {}, ", kernel.name, operation.stream);
  }
  if (other.several_blocks != 0) {
    text += "several blocks";
  } else {
    const auto block = static_cast<unsigned>(other.block);
    text += fmt::format("block ({},{},{})", block % operation.grid[0],
                        block / operation.grid[0] % operation.grid[1],
                        block / operation.grid[0] / operation.grid[1]);
  }
  if (other.several_warps != 0) {
    text += ", several warps";
  } else if (other.several_blocks == 0) {
    const auto thread = static_cast<unsigned>(other.thread);
    text += fmt::format(", thread ({},{},{})", thread % operation.block[0],
                        thread / operation.block[0] % operation.block[1],
                        thread / operation.block[0] / operation.block[1]);
  }
  return text + fmt::format(" at {}: {}", kernel.place_text(conflict.at), kernel.statement_text(conflict.at));
}

[[noreturn]] void out_of_bounds(const Warp& warp, const Instruction& i, unsigned lane, const Region* region,
                                uint64_t address, unsigned bytes) {
  if (region == nullptr) {
    warp.fail(Fault::kOutOfBounds, i, lane,
              fmt::format("{} bytes at {:#x} are in no allocation", bytes, address), address);
  }
  const Description where = describe(warp, *region, address - region->base);
  warp.fail(Fault::kOutOfBounds, i, lane, fmt::format("{} bytes at {} are out of bounds", bytes, where.text),
            address, where.name);
}

// A region that is a window of a block or thread: addresses are offsets.
Place window(Warp& warp, const Instruction& i, unsigned lane, Region& region, uint64_t offset, uint64_t bias,
             unsigned bytes) {
  if (offset > region.size || region.size - offset < bytes) [[unlikely]] {
    out_of_bounds(warp, i, lane, &region, offset + region.base, bytes);
  }
  return {&region, bias + offset, region.data.data() + bias + offset};
}

void check_shared_variable(Warp& warp, const Instruction& i, unsigned lane, uint64_t offset, unsigned bytes) {
  const SharedVariable* one = shared_variable(*warp.kernel, offset);
  const bool inside = one != nullptr && offset + bytes <= one->offset + shared_variable_bytes(warp, *one);
  if (!inside) out_of_bounds(warp, i, lane, &warp.block->shared, offset, bytes);
}

Place local_place(Warp& warp, const Instruction& i, unsigned lane, uint64_t offset, unsigned bytes) {
  const uint64_t frame = warp.kernel->local_bytes;
  if (offset > frame || frame - offset < bytes) {
    warp.fail(
        Fault::kOutOfBounds, i, lane,
        fmt::format("{} bytes at +{} of local memory ({} bytes) are out of bounds", bytes, offset, frame),
        offset, "local memory");
  }
  const uint64_t at = lane * frame + offset;
  return {&warp.local, at, warp.local.data.data() + at};
}

}  // namespace

Place locate(Warp& warp, const Instruction& i, unsigned lane, Space space, uint64_t address, unsigned bytes) {
  uint64_t offset = address;
  if (space == Space::kGeneric && address < kGlobalBase) {
    if (address - kSharedBase < kWindowBytes) {
      space = Space::kShared;
      offset = address - kSharedBase;
    } else if (address - kLocalBase < kWindowBytes) {
      space = Space::kLocal;
      offset = address - kLocalBase;
    } else if (address - kParamBase < kWindowBytes) {
      space = Space::kParam;
      offset = address - kParamBase;
    }
  }
  if ((address & (bytes - 1)) != 0) [[unlikely]] {
    warp.fail(Fault::kMisaligned, i, lane,
              fmt::format("address {:#x} is not aligned to the {} bytes of the access", address, bytes),
              address);
  }
  switch (space) {
    case Space::kShared: {
      Region& shared = warp.block->shared;
      if (i.address_bytes == 4 && i.space == Space::kShared) offset &= 0xffff'ffff;
      const Place place = window(warp, i, lane, shared, offset, 0, bytes);
      // Bytes between variables are never written, so only writes need this check.
      check_shared_variable(warp, i, lane, offset, bytes);
      return place;
    }
    case Space::kLocal:
      return local_place(warp, i, lane, offset, bytes);
    case Space::kParam:
      return window(warp, i, lane, warp.block->launch->params, offset, 0, bytes);
    default:
      break;
  }
  Region* region = warp.last_region;
  if (region == nullptr || address - region->base >= region->size) {
    region = warp.block->launch->memory->find(address);
    if (region == nullptr) out_of_bounds(warp, i, lane, nullptr, address, bytes);
    warp.last_region = region;
  }
  offset = address - region->base;
  if (offset > region->size || region->size - offset < bytes) [[unlikely]] {
    out_of_bounds(warp, i, lane, region, address, bytes);
  }
  if (region->freed) [[unlikely]] {
    const Description where = describe(warp, *region, offset);
    warp.fail(Fault::kFreed, i, lane, fmt::format("{} bytes at {}, which was freed", bytes, where.text),
              address, where.name);
  }
  if (space == Space::kConst && region->space != Space::kConst) [[unlikely]] {
    warp.fail(Fault::kOutOfBounds, i, lane, fmt::format("address {:#x} is not in constant memory", address),
              address, region->name);
  }
  return {region, offset, region->data.data() + offset};
}

void check_race(Warp& warp, const Instruction& i, unsigned lane, const Place& place, unsigned bytes,
                Access kind) {
  Region& region = *place.region;
  if (region.space == Space::kLocal || region.space == Space::kParam || region.read_only) return;
  Conflict conflict;
  const Actor actor = warp.actor(lane, i);
  const bool ok = kind == Access::kRead ? region.shadow.read(place.offset, bytes, actor, &conflict)
                                        : region.shadow.write(place.offset, bytes, actor, &conflict);
  if (ok) [[likely]]
    return;
  const Description where = describe(warp, region, place.offset);
  const std::string other = other_access(warp, conflict);
  warp.fail(Fault::kRace, i, lane,
            fmt::format("{} {} bytes at {}, {}, without an order between them",
                        kind == Access::kRead ? "reads" : "writes", bytes, where.text, other),
            region.base + place.offset, where.name, other);
}

void check_written(Warp& warp, const Instruction& i, unsigned lane, const Place& place, unsigned bytes) {
  if (place.region->written(place.offset, bytes)) [[likely]]
    return;
  const uint64_t first = place.region->first_unwritten(place.offset, bytes);
  const Description where = describe(warp, *place.region, first);
  if (place.region->space == Space::kShared) {
    for (const Warp& other : *warp.block->warps) {
      for (const AsyncCopy& copy : other.copies) {
        if (first < copy.to || first >= uint64_t{copy.to} + copy.bytes) continue;
        warp.fail(Fault::kPendingCopy, i, lane,
                  fmt::format("reads {} bytes at {} before a wait for the asynchronous copy to them", bytes,
                              where.text),
                  place.region->base + place.offset, where.name,
                  "copied at " + warp.kernel->place_text(copy.at));
      }
    }
  }
  if (!warp.block->launch->checks.unwritten) return;
  warp.fail(Fault::kUnwritten, i, lane,
            fmt::format("reads {} bytes at {}, which were never written", bytes, where.text),
            place.region->base + place.offset, where.name);
}

Place access(Warp& warp, const Instruction& i, unsigned lane, Space space, uint64_t address, unsigned bytes,
             Access kind) {
  const Place place = locate(warp, i, lane, space, address, bytes);
  if (warp.block->launch->checks.races) check_race(warp, i, lane, place, bytes, kind);
  if (kind != Access::kWrite) check_written(warp, i, lane, place, bytes);
  if (kind != Access::kRead) {
    if (place.region->read_only) [[unlikely]] {
      warp.fail(Fault::kReadOnly, i, lane, fmt::format("writes to {}, which is constant", place.region->name),
                address, place.region->name);
    }
    place.region->mark(place.offset, bytes, true);
  }
  return place;
}

}  // namespace strata::gpu_tests
