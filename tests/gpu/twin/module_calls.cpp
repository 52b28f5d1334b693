// Calls that load PTX and launch kernels.
#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "twin/state.h"

namespace strata::twin {

using cuda::Function;
using cuda::JitOption;
using cuda::Stream;
using gpu_tests::Kernel;

namespace {

// With STRATA_PTXAS set to nvcc's assembler: its errors for the text; empty if it accepts the text.
std::string assembler_errors(const std::string& text) {
  const char* assembler = std::getenv("STRATA_PTXAS");
  if (assembler == nullptr) return {};
  const char* folder = std::getenv("TMPDIR");
  const std::string file = fmt::format("{}/twin_{:x}_{}.ptx", folder == nullptr ? "/tmp" : folder,
                                       reinterpret_cast<uintptr_t>(&process()), new_handle());
  std::ofstream(file) << text;
  const std::string command =
      fmt::format("{} -arch=sm_90a -o /dev/null {} >{}.log 2>&1", assembler, file, file);
  const int status = std::system(command.c_str());
  std::ifstream log(file + ".log");
  std::string words{std::istreambuf_iterator<char>(log), {}};
  std::remove(file.c_str());
  std::remove((file + ".log").c_str());
  return status == 0 ? std::string() : words;
}

// The word after a directive, such as "9.0" of ".version 9.0".
std::string word_after(const std::string& text, const char* directive) {
  const size_t at = text.find(directive);
  if (at == std::string::npos) return {};
  const size_t begin = text.find_first_not_of(" \t", at + std::strlen(directive));
  return text.substr(begin, text.find_first_of(" \t\r\n,", begin) - begin);
}

struct Refusal {
  Result number = cuda::kSuccess;
  std::string why;
};

// The driver's checks before it compiles.
Refusal check_image(const Settings& settings, const char* image) {
  constexpr char kElf[] = {0x7f, 'E', 'L', 'F'}, kFatbin[] = {0x50, '\xed', 0x55, '\xba'};
  if (std::memcmp(image, kElf, sizeof kElf) == 0 || std::memcmp(image, kFatbin, sizeof kFatbin) == 0)
    return {kNoBinary, "machine code: the twin executes PTX only"};
  const std::string text = image;
  const std::string version = word_after(text, ".version"), target = word_after(text, ".target");
  if (version.empty()) return {kInvalidImage, "no .version: not PTX"};
  unsigned major = 0, minor = 0, architecture = 0;
  std::sscanf(version.c_str(), "%u.%u", &major, &minor);
  if (static_cast<int>(major * 10 + minor) > settings.ptx_version())
    return {kUnsupportedPtx, fmt::format("Unsupported .version {}; current version is '{}.{}'", version,
                                         settings.ptx_version() / 10, settings.ptx_version() % 10)};
  std::sscanf(target.c_str(), "sm_%u", &architecture);
  const bool exact = !target.empty() && target.back() >= 'a';
  const auto card = static_cast<unsigned>(settings.architecture);
  if (architecture > card || (exact && architecture != card))
    return {kNoBinary, fmt::format("SM version specified by .target is {}, the GPU has sm_{}", target, card)};
  return {};
}

// Fills the caller's log and its size, whatever the order of options.
void write_log(unsigned options, const JitOption* names, void** values, const std::string& text) {
  void** log = nullptr;
  void** size = nullptr;
  for (unsigned n = 0; n < options; ++n) {
    if (names[n] == cuda::kErrorLog) log = &values[n];
    if (names[n] == cuda::kErrorLogBytes) size = &values[n];
  }
  if (log == nullptr || size == nullptr) return;
  const auto capacity = static_cast<size_t>(reinterpret_cast<uintptr_t>(*size));
  const int whole = std::snprintf(static_cast<char*>(*log), capacity, "%s", text.c_str());
  *size = reinterpret_cast<void*>(std::min(static_cast<size_t>(whole), capacity));
}

void check_shape(const LoadedFunction& function, const gpu_tests::LaunchShape& shape) {
  const Kernel& kernel = *function.kernel;
  const gpu_tests::Extent &grid = shape.grid, &block = shape.block;
  require(grid.count() > 0 && block.count() > 0, kInvalidValue);
  require(grid.x <= 0x7fffffff && grid.y <= 65535 && grid.z <= 65535, kInvalidValue);
  require(block.x <= 1024 && block.y <= 1024 && block.z <= 64 && block.count() <= 1024, kInvalidValue);
  const uint64_t most = uint64_t{kernel.max_threads[0]} * kernel.max_threads[1] * kernel.max_threads[2];
  require(most == 0 || block.count() <= most, kInvalidValue);
  for (size_t axis = 0; axis < 3; ++axis)
    require(kernel.required_threads[axis] == 0 || block[axis] == kernel.required_threads[axis],
            kInvalidValue);
  require(shape.shared_bytes <= function.dynamic_limit, kInvalidValue);
}

}  // namespace

extern "C" {
// NOLINTBEGIN(readability-identifier-naming): the names of the driver's symbols

Result cuModuleLoadDataEx(cuda::Module* module, const void* image, unsigned options, JitOption* names,
                          void** values) {
  return call("cuModuleLoadDataEx", Needs::kHealthyContext, [&](State& all, Card& card) {
    require(
        module != nullptr && image != nullptr && (options == 0 || (names != nullptr && values != nullptr)),
        kInvalidValue);
    Refusal refusal = check_image(all.settings, static_cast<const char*>(image));
    if (refusal.number == cuda::kSuccess) {
      std::string text = static_cast<const char*>(image);
      refusal.why = assembler_errors(text);
      try {
        all.used_edits.resize(all.settings.edits.size());
        for (size_t n = 0; n < all.settings.edits.size(); ++n)
          if (apply_edit(all.settings.edits[n], text)) all.used_edits[n] = true;
        if (refusal.why.empty()) {
          const uintptr_t handle = new_handle();
          all.modules.add({&card, &card.device.load(text, "module.ptx")}, handle);
          *module = reinterpret_cast<cuda::Module>(handle);
        }
      } catch (const std::exception& error) {
        refusal.why = error.what();
      }
      if (!refusal.why.empty()) refusal.number = kInvalidPtx;
    }
    write_log(options, names, values, refusal.why);
    require(refusal.number == cuda::kSuccess, refusal.number);
  });
}
Result cuModuleUnload(cuda::Module module) {
  return call("cuModuleUnload", Needs::kHealthyContext, [&](State& all, Card& card) {
    require(all.modules.at(module).card == &card, kInvalidHandle);
    card.device.synchronize();
    all.functions.remove_if(
        [&](const LoadedFunction& one) { return one.module == reinterpret_cast<uintptr_t>(module); });
    all.modules.remove(module);
  });
}
Result cuModuleGetFunction(Function* function, cuda::Module module, const char* name) {
  return call("cuModuleGetFunction", Needs::kHealthyContext, [&](State& all, Card& card) {
    const LoadedModule& loaded = all.modules.at(module);
    require(name != nullptr, kInvalidValue);
    for (const Kernel& kernel : loaded.module->kernels()) {
      if (kernel.name != name) continue;
      // Without the attribute, static and dynamic memory together have 48 KiB.
      const uint64_t limit = 48 * 1024 - std::min<uint64_t>(48 * 1024, kernel.shared_used);
      *function = reinterpret_cast<Function>(
          all.functions.add({&card, reinterpret_cast<uintptr_t>(module), &kernel, limit}, new_handle()));
      return;
    }
    throw Rejection{kNotFound};
  });
}
Result cuFuncSetAttribute(Function function, int attribute, int value) {
  return call("cuFuncSetAttribute", Needs::kHealthyContext, [&](State& all, Card&) {
    LoadedFunction& loaded = all.functions.at(function);
    require(attribute == cuda::kMaxDynamicSharedBytes, kInvalidValue);
    require(value >= 0 &&
                static_cast<uint64_t>(value) + loaded.kernel->shared_used <= all.settings.shared_limit(),
            kInvalidValue);
    loaded.dynamic_limit = static_cast<uint64_t>(value);
  });
}
Result cuLaunchKernel(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                      unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream,
                      void** arguments, void** extra) {
  return call("cuLaunchKernel", Needs::kHealthyContext, [&](State& all, Card& card) {
    const LoadedFunction& loaded = all.functions.at(function);
    require(loaded.card == &card, kInvalidHandle);
    const Kernel& kernel = *loaded.kernel;
    const gpu_tests::LaunchShape shape{.grid = {grid_x, grid_y, grid_z},
                                       .block = {block_x, block_y, block_z},
                                       .shared_bytes = shared_bytes,
                                       .stream = all.stream_of(card, stream)};
    check_shape(loaded, shape);
    require(extra == nullptr, kNotSupported);
    require(arguments != nullptr || kernel.params.empty(), kInvalidValue);
    std::vector<std::byte> bytes(kernel.param_bytes);
    for (size_t n = 0; n < kernel.params.size(); ++n) {
      require(arguments[n] != nullptr, kInvalidValue);
      std::memcpy(bytes.data() + kernel.params[n].offset, arguments[n], kernel.params[n].bytes);
    }
    inject(all, card, shape.stream, "cuLaunchKernel");
    card.device.launch_raw(kernel, shape, std::move(bytes));
  });
}
// NOLINTEND(readability-identifier-naming)

}  // extern "C"

}  // namespace strata::twin
