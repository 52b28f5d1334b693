#include "ptx/opcodes.h"

#include <array>
#include <map>
#include <utility>

namespace strata::gpu_tests {
namespace {

std::map<std::string_view, const Opcode*> collect() {
  std::map<std::string_view, const Opcode*> table;
  for (const auto& list :
       {integer_opcodes(), bit_opcodes(), floating_opcodes(), special_function_opcodes(),
        conversion_opcodes(), selection_opcodes(), move_opcodes(), memory_opcodes(), atomic_opcodes(),
        warp_opcodes(), matrix_opcodes(), async_opcodes(), barrier_opcodes()}) {
    for (const Opcode& one : list) table.emplace(one.name, &one);
  }
  return table;
}

constexpr std::array<std::pair<std::string_view, std::string_view>, 22> kRefused = {{
    {"wgmma", "warpgroup matrix instructions"},
    {"tcgen05", "tensor memory"},
    {"mbarrier", "mbarrier objects"},
    {"mapa", "clusters"},
    {"getctarank", "clusters"},
    {"clusterlaunchcontrol", "clusters"},
    {"griddepcontrol", "programmatic dependent launches"},
    {"setmaxnreg", "register reallocation"},
    {"tensormap", "tensor maps (TMA)"},
    {"multimem", "multicast memory"},
    {"st_bulk", "bulk stores"},
    {"wmma", "wmma fragments: use mma.sync"},
    {"tex", "textures"},
    {"tld4", "textures"},
    {"txq", "textures"},
    {"suld", "surfaces"},
    {"sust", "surfaces"},
    {"sured", "surfaces"},
    {"suq", "surfaces"},
    {"stacksave", "variable stack frames"},
    {"stackrestore", "variable stack frames"},
    {"alloca", "variable stack frames"},
}};

}  // namespace

const Opcode* find_opcode(std::string_view name) {
  static const std::map<std::string_view, const Opcode*> kTable = collect();
  const auto found = kTable.find(name);
  return found == kTable.end() ? nullptr : found->second;
}

std::string_view refusal(std::string_view name) {
  for (const auto& [opcode, reason] : kRefused) {
    if (opcode == name) return reason;
  }
  return {};
}

}  // namespace strata::gpu_tests
