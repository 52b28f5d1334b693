// Calls that concern the driver, GPUs and contexts; control by tests.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "twin/state.h"

namespace strata::twin {

using cuda::Context;
using cuda::DeviceOrdinal;

namespace {

// Of device attributes, by the numbers of cuda.h. Sizes are those of an H200 (hardware/h200.json).
Result attribute(const Settings& settings, int number, int* value) {
  switch (number) {
    case 1:  // threads of a block
    case 2:  // x
    case 3:  // y
      *value = 1024;
      return cuda::kSuccess;
    case 4:  // z
      *value = 64;
      return cuda::kSuccess;
    case 5:  // blocks of a grid, x
      *value = 0x7fffffff;
      return cuda::kSuccess;
    case 6:
    case 7:
      *value = 65535;
      return cuda::kSuccess;
    case 8:  // shared memory of a block
      *value = 48 * 1024;
      return cuda::kSuccess;
    case 9:  // constant memory
      *value = 64 * 1024;
      return cuda::kSuccess;
    case 10:  // lanes of a warp
      *value = 32;
      return cuda::kSuccess;
    case 12:  // registers of a block
    case 82:  // of a multiprocessor
      *value = 65536;
      return cuda::kSuccess;
    case 13:  // kHz
      *value = 1'980'000;
      return cuda::kSuccess;
    case cuda::kMultiprocessors:
      *value = settings.multiprocessors;
      return cuda::kSuccess;
    case 31:   // concurrent kernels
    case 41:   // unified addressing
    case 83:   // managed memory
    case 95:   // cooperative launch
    case 99:   // registers memory of the host
    case 115:  // memory pools
      *value = 1;
      return cuda::kSuccess;
    case 20:   // compute mode
    case 32:   // ECC
    case 78:   // priorities
    case 88:   // reads pageable memory
    case 89:   // managed memory at the same time
    case 116:  // direct RDMA
    case 120:  // clusters
    case 127:  // tensor maps
    case 132:  // multicast
      *value = 0;
      return cuda::kSuccess;
    case 36:  // kHz of the memory
      *value = 3'201'000;
      return cuda::kSuccess;
    case 37:  // bits of its bus
      *value = 6016;
      return cuda::kSuccess;
    case 38:  // L2
      *value = 62'914'560;
      return cuda::kSuccess;
    case 108:  // of it persisting
      *value = 39'321'600;
      return cuda::kSuccess;
    case 39:  // threads of a multiprocessor
      *value = 2048;
      return cuda::kSuccess;
    case 106:  // blocks of a multiprocessor
      *value = 32;
      return cuda::kSuccess;
    case 40:  // copy engines
      *value = 3;
      return cuda::kSuccess;
    case cuda::kCapabilityMajor:
      *value = settings.architecture / 10;
      return cuda::kSuccess;
    case cuda::kCapabilityMinor:
      *value = settings.architecture % 10;
      return cuda::kSuccess;
    case 81:  // shared memory of a multiprocessor
      *value = static_cast<int>(settings.shared_limit() + 1024);
      return cuda::kSuccess;
    case 97:  // of a block, if it asks for it
      *value = static_cast<int>(settings.shared_limit());
      return cuda::kSuccess;
    case 111:  // reserved of a block
      *value = 1024;
      return cuda::kSuccess;
    case 87:  // fp32 operations for one of fp64
      *value = 2;
      return cuda::kSuccess;
    case 134:  // NUMA node of the host: none
      *value = -1;
      return cuda::kSuccess;
    default:
      return kInvalidValue;
  }
}

// Planted faults that had no effect, joined by semicolons.
std::string unused(State& all) {
  std::string text;
  const auto note = [&](const std::string& setting) { text += (text.empty() ? "" : ";") + setting; };
  all.used_faults.resize(all.settings.faults.size());
  all.used_edits.resize(all.settings.edits.size());
  for (size_t n = 0; n < all.used_faults.size(); ++n)
    if (!all.used_faults[n]) note(all.settings.faults[n].text);
  for (size_t n = 0; n < all.used_edits.size(); ++n)
    if (!all.used_edits[n]) note(all.settings.edits[n].text);
  return text;
}

// Of the first GPU.
void write_traffic(const State& all) {
  std::FILE* file = all.cards.empty() ? nullptr : std::fopen(all.settings.traffic.c_str(), "w");
  const std::string text = file == nullptr ? "" : gpu_tests::traffic_csv(all.cards.front()->device.traffic());
  bool good = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr) good = std::fclose(file) == 0 && good;
  if (!good) std::fprintf(stderr, "twin of the CUDA driver: cannot write %s\n", all.settings.traffic.c_str());
}

void report_at_exit() {
  const std::lock_guard lock(process().mutex);
  if (process().controlled || process().state == nullptr) return;
  State& all = *process().state;
  if (!all.settings.traffic.empty()) write_traffic(all);
  // A program that was to meet a fault and did not: its success means nothing.
  const std::string text = unused(all);
  if (!text.empty()) std::fprintf(stderr, "twin of the CUDA driver: had no effect: %s\n", text.c_str());
}

std::string environment() {
  const char* variable = std::getenv("STRATA_TWIN");
  return variable == nullptr ? "" : variable;
}

}  // namespace

extern "C" {
// NOLINTBEGIN(readability-identifier-naming): the names of the driver's symbols

// A program that finds this symbol knows that it has no GPU.
extern const char strata_twin[];
const char strata_twin[] = "the twin of NVIDIA's driver, which executes PTX on the CPU";

// Null settings: those of the environment, as without a test. Returns null or an error's text.
const char* strata_twin_restart(const char* settings) {
  static std::string error;
  const std::lock_guard lock(process().mutex);
  try {
    process().state = settings == nullptr ? nullptr : std::make_unique<State>(settings);
    process().controlled = settings != nullptr;
    process().environment.reset();
    return nullptr;
  } catch (const std::exception& one) {
    error = one.what();
    return error.c_str();
  }
}
const char* strata_twin_violation() {
  const std::lock_guard lock(process().mutex);
  return state().violation.c_str();
}
const char* strata_twin_unused() {
  static std::string text;
  const std::lock_guard lock(process().mutex);
  text = unused(state());
  return text.c_str();
}
const char* strata_twin_traffic() {
  static std::string text;
  const std::lock_guard lock(process().mutex);
  text = state().cards.empty() ? "" : gpu_tests::traffic_csv(state().cards.front()->device.traffic());
  return text.c_str();
}
uint64_t strata_twin_calls(const char* name) {
  const std::lock_guard lock(process().mutex);
  return state().calls[name];
}

Result cuInit(unsigned flags) {
  if (flags != 0) return kInvalidValue;
  {
    const std::lock_guard lock(process().mutex);
    Process& all = process();
    const std::string text = environment();
    if (!all.controlled && text != all.environment) {
      try {
        all.state = std::make_unique<State>(text);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return kInvalidValue;
      }
      all.environment = text;
      static const int kRegistered = std::atexit(report_at_exit);
      (void)kRegistered;
    }
  }
  return call("cuInit", Needs::kNothing, [](State& all) {
    if (!all.initialized) all.initialize();
    all.initialized = !all.cards.empty();
    require(all.initialized, kNoDevice);
  });
}
Result cuDriverGetVersion(int* version) {
  return call("cuDriverGetVersion", Needs::kNothing, [&](State& all) {
    // Before cuInit, too.
    *version = (process().controlled ? all.settings : Settings::parse(environment())).driver_version;
  });
}
Result cuGetErrorName(Result number, const char** name) {
  const Error* error = find_error(number);
  *name = error == nullptr ? nullptr : error->name;
  return error == nullptr ? kInvalidValue : cuda::kSuccess;
}
Result cuGetErrorString(Result number, const char** text) {
  const Error* error = find_error(number);
  *text = error == nullptr ? nullptr : error->text;
  return error == nullptr ? kInvalidValue : cuda::kSuccess;
}

Result cuDeviceGetCount(int* count) {
  return call("cuDeviceGetCount", Needs::kInit,
              [&](State& all) { *count = static_cast<int>(all.cards.size()); });
}
Result cuDeviceGet(DeviceOrdinal* device, int ordinal) {
  return call("cuDeviceGet", Needs::kInit, [&](State& all) { *device = all.card_at(ordinal).ordinal; });
}
Result cuDeviceGetName(char* name, int bytes, DeviceOrdinal device) {
  return call("cuDeviceGetName", Needs::kInit, [&](State& all) {
    all.card_at(device);
    require(name != nullptr && bytes > 0, kInvalidValue);
    std::snprintf(name, static_cast<size_t>(bytes), "%s", all.settings.name.c_str());
  });
}
Result cuDeviceGetUuid_v2(unsigned char* uuid, DeviceOrdinal device) {
  return call("cuDeviceGetUuid", Needs::kInit, [&](State& all) {
    const int ordinal = all.card_at(device).ordinal;
    for (int n = 0; n < 16; ++n) uuid[n] = static_cast<unsigned char>(0x10 * n + ordinal);
  });
}
Result cuDeviceGetPCIBusId(char* text, int bytes, DeviceOrdinal device) {
  return call("cuDeviceGetPCIBusId", Needs::kInit, [&](State& all) {
    const int ordinal = all.card_at(device).ordinal;
    require(text != nullptr && bytes >= 13, kInvalidValue);
    std::snprintf(text, static_cast<size_t>(bytes), "0000:%02x:00.0", static_cast<unsigned>(ordinal) + 1);
  });
}
Result cuDeviceGetAttribute(int* value, int number, DeviceOrdinal device) {
  return call("cuDeviceGetAttribute", Needs::kInit, [&](State& all) {
    all.card_at(device);
    const Result result = attribute(all.settings, number, value);
    require(result == cuda::kSuccess, result);
  });
}
Result cuDeviceTotalMem_v2(size_t* bytes, DeviceOrdinal device) {
  return call("cuDeviceTotalMem", Needs::kInit, [&](State& all) { *bytes = all.card_at(device).memory; });
}

Result cuDevicePrimaryCtxRetain(Context* context, DeviceOrdinal device) {
  return call("cuDevicePrimaryCtxRetain", Needs::kInit, [&](State& all) {
    Card& card = all.card_at(device);
    if (card.context == 0) {
      card.context = new_handle();
      all.contexts.emplace(card.context, &card);
    }
    *context = reinterpret_cast<Context>(card.context);
  });
}
Result cuCtxSetCurrent(Context context) {
  return call("cuCtxSetCurrent", Needs::kInit, [&](State& all) {
    const auto handle = reinterpret_cast<uintptr_t>(context);
    require(handle == 0 || all.contexts.count(handle) == 1, kInvalidContext);
    current_context() = handle;
  });
}
Result cuCtxSynchronize() {
  return call("cuCtxSynchronize", Needs::kHealthyContext,
              [](State&, Card& card) { card.device.synchronize(); });
}
// NOLINTEND(readability-identifier-naming)

}  // extern "C"

}  // namespace strata::twin
