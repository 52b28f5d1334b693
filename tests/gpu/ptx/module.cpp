#include "ptx/module.h"

#include <fmt/core.h>

#include <cstring>
#include <stdexcept>

#include "ptx/decoder.h"
#include "ptx/parser.h"

namespace strata::gpu_tests {
namespace {

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line.substr(0, 200));
    begin = end + 1;
  }
  return lines;
}

// Zero unless the text has a value.
void initialize(Region& region, const Variable& variable) {
  std::fill(region.data.begin(), region.data.end(), std::byte{0});
  if (!variable.initial.empty())
    std::memcpy(region.data.data(), variable.initial.data(), variable.initial.size());
  region.mark(0, region.size, true);
}

}  // namespace

Module::Module(std::string_view text, const std::string& file, Memory& memory) : lines_(split_lines(text)) {
  const ModuleSyntax syntax = parse_module(text, file);
  target_ = syntax.target;
  ModuleNames names;
  names.syntax = &syntax;
  names.lines = &lines_;
  std::vector<std::pair<const Variable*, Region*>> placed;
  for (const Variable& variable : syntax.variables) {
    if (variable.space == Space::kShared) {
      names.shared[variable.name] = &variable;
      continue;
    }
    if (variable.space != Space::kGlobal && variable.space != Space::kConst) {
      throw LoadError(
          file, variable.line,
          fmt::format("a .{} variable at module scope is not supported", space_name(variable.space)));
    }
    if (variable.external || !variable.constant_size) {
      throw LoadError(file, variable.line, fmt::format("{} is not defined in this module", variable.name));
    }
    Region& region = memory.allocate(variable.bytes, variable.name, variable.space);
    initialize(region, variable);
    placed.emplace_back(&variable, &region);
    names.variables[variable.name] = {variable.space, region.base, variable.bytes};
    addresses_[variable.name] = region.base;
  }
  for (const auto& [variable, region] : placed) {
    for (const Initializer& one : variable->addresses) {
      const auto found = addresses_.find(one.symbol);
      if (found == addresses_.end())
        throw LoadError(file, variable->line, fmt::format("{} is not a variable", one.symbol));
      const uint64_t value = found->second + static_cast<uint64_t>(one.addend);
      std::memcpy(region->data.data() + one.offset, &value, sizeof value);
    }
    region->read_only = variable->space == Space::kConst;
  }
  for (const FunctionSyntax& function : syntax.functions) {
    const auto [place, fresh] = names.functions.try_emplace(function.name, &function);
    // A declaration may precede the definition.
    if (!fresh && function.has_body) {
      if (place->second->has_body)
        throw LoadError(file, function.line, fmt::format("{} is duplicated", function.name));
      place->second = &function;
    }
  }
  for (const FunctionSyntax& function : syntax.functions) {
    if (function.entry && function.has_body) kernels_.push_back(Decoder(names, function).run());
  }
}

const Kernel& Module::kernel(std::string_view name) const {
  const Kernel* found = nullptr;
  for (const Kernel& one : kernels_) {
    if (one.name == name) return one;
  }
  for (const Kernel& one : kernels_) {
    if (one.name.find(name) == std::string::npos) continue;
    if (found != nullptr) throw std::invalid_argument(fmt::format("several kernel names contain {}", name));
    found = &one;
  }
  if (found == nullptr) throw std::invalid_argument(fmt::format("no kernel is named {}", name));
  return *found;
}

uint64_t Module::address(const std::string& variable) const {
  const auto found = addresses_.find(variable);
  if (found == addresses_.end())
    throw std::invalid_argument(fmt::format("no variable is named {}", variable));
  return found->second;
}

}  // namespace strata::gpu_tests
