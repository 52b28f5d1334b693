#include "ptx/violation.h"

#include <fmt/core.h>

#include "ptx/warp.h"

namespace strata::gpu_tests {

const char* fault_name(Fault fault) {
  switch (fault) {
    case Fault::kOutOfBounds:
      return "out of bounds";
    case Fault::kMisaligned:
      return "misaligned";
    case Fault::kUnwritten:
      return "unwritten";
    case Fault::kFreed:
      return "freed";
    case Fault::kReadOnly:
      return "read-only";
    case Fault::kRace:
      return "race";
    case Fault::kPendingCopy:
      return "pending copy";
    case Fault::kBarrier:
      return "barrier";
    case Fault::kMask:
      return "mask";
    case Fault::kDeadlock:
      return "deadlock";
    case Fault::kLimit:
      return "limit";
    case Fault::kTrap:
      return "trap";
    case Fault::kLaunch:
      return "launch";
    case Fault::kHostMemory:
      return "host memory";
  }
  return "";
}

std::string Kernel::statement_text(uint32_t at) const {
  if (at >= locations.size() || lines == nullptr) return "?";
  const auto line = static_cast<size_t>(locations[at].line);
  if (line == 0 || line > lines->size()) return "?";
  std::string text = (*lines)[line - 1];
  text.erase(0, text.find_first_not_of(" \t{"));
  for (char& c : text) {
    if (c == '\t') c = ' ';
  }
  return text;
}

std::string Kernel::place_text(uint32_t at) const {
  if (at >= locations.size()) return file;
  const Location& place = locations[at];
  const auto source = static_cast<size_t>(place.source.file);
  std::string text = fmt::format("{}:{}", file, place.line);
  if (place.source.line > 0 && source < source_files.size())
    text += fmt::format(" ({}:{})", source_files[source], place.source.line);
  return text;
}

void Warp::fail(Fault fault, const Instruction& i, unsigned lane, const std::string& what, uint64_t address,
                const std::string& allocation, const std::string& other) const {
  const uint32_t here = at(i);
  const Location place = here < kernel->locations.size() ? kernel->locations[here] : Location{};
  ViolationDetails details;
  details.fault = fault;
  details.kernel = kernel->name;
  details.line = place.line;
  details.source_line = place.source.line;
  const auto source = static_cast<size_t>(place.source.file);
  if (place.source.line > 0 && source < kernel->source_files.size())
    details.source_file = kernel->source_files[source];
  const unsigned number = thread(lane);
  const unsigned* size = block->launch->block;
  const unsigned id[3] = {number % size[0], number / size[0] % size[1], number / size[0] / size[1]};
  for (size_t axis = 0; axis < 3; ++axis) {
    details.block[axis] = block->id[axis];
    details.thread[axis] = id[axis];
  }
  details.address = address;
  details.allocation = allocation;
  details.other = other;
  const std::string at_address = address != 0 ? fmt::format(", address {:#x}", address) : "";
  throw Violation(
      fmt::format("[{}] {}: {}: {}; kernel {}, block ({},{},{}), thread ({},{},{}){}", fault_name(fault),
                  kernel->place_text(here), kernel->statement_text(here), what, kernel->name, block->id[0],
                  block->id[1], block->id[2], id[0], id[1], id[2], at_address),
      details);
}

}  // namespace strata::gpu_tests
