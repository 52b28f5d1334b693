#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <fstream>

#include "base/clock.h"
#include "base/error.h"

namespace strata::cuda {
namespace {

namespace fs = std::filesystem;

constexpr int kOldestVersion = 12080;  // CUDA 12.8, whose drivers start at 570.26 (its release notes)

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// Advice to the user for errors, by their numbers in cuda.h.
struct Advice {
  Result first, last;
  const char* text;
};
constexpr const char* kHardware =
    "the GPU or its driver failed: look for Xid lines in dmesg, then restart the run, which resumes at its last "
    "checkpoint; if it happens again, reset the GPU or restart the machine";
constexpr const char* kKernel =
    "a kernel failed: restart the run, which resumes at its last checkpoint; if it happens again on this GPU and on "
    "another, it is a bug in Strata: report it";
constexpr Advice kAdvice[] = {
    {2, 2, "lower memory.budget, or stop other programs that use the GPU (nvidia-smi lists them)"},
    {3, 4, kHardware},
    {34, 34, "libcuda.so.1 is the CUDA toolkit's stub: remove lib64/stubs from LD_LIBRARY_PATH"},
    {46, 46,
     "another program has the GPU, or its compute mode forbids programs: stop that program (nvidia-smi lists them), or "
     "set the mode with nvidia-smi -c DEFAULT"},
    {100, 102, "check that nvidia-smi -L lists the GPU and that CUDA_VISIBLE_DEVICES does not hide it"},
    {209, 209, "this build has no code for this GPU: build Strata with a newer CUDA toolkit"},
    {214, 214,
     "the GPU's memory has an error that cannot be corrected: restart the run; if it happens again, "
     "nvidia-smi -q -d ECC,ROW_REMAPPER shows whether the GPU has to be replaced"},
    {218, 218, "update the driver; if it happens again, it is a bug in Strata: report it"},
    {220, 220, "a link between GPUs failed: nvidia-smi nvlink -e shows which one"},
    {221, 221, "install libnvidia-ptxjitcompiler.so.1, which is part of the driver"},
    {222, 222, "the driver is older than the CUDA toolkit that built Strata: update it"},
    {223, 223, "unset CUDA_DISABLE_PTX_JIT"},
    {226, 226, kHardware},
    {304, 304, "look for NVRM lines in dmesg; in a container, check that it may use /dev/nvidia*"},
    {700, 701, kKernel},
    {702, 702,
     "a kernel ran longer than the system allows, as on a GPU that also drives a display: use another GPU, or run "
     "without a display"},
    {710, 718, kKernel},
    {719, 719, kHardware},
    {802, 802, "the system is not ready: start nvidia-fabricmanager if the GPUs are linked by NVSwitch"},
    {803, 803, "the driver was updated while it was loaded: restart the machine"},
    {804, 804,
     "remove the CUDA compatibility libraries (cuda-compat) from LD_LIBRARY_PATH, or update the driver"},
    {805, 810, "check that the MPS daemon runs (nvidia-cuda-mps-control), or stop it"},
    {999, 999, kHardware},
};
const char* advice_for(Result result) {
  for (const Advice& one : kAdvice)
    if (result >= one.first && result <= one.last) return one.text;
  return "it is a bug in Strata: report it";
}

std::string describe(const Driver& driver, Result result) {
  const char *name = nullptr, *text = nullptr;
  driver.error_name(result, &name);
  driver.error_text(result, &text);
  return fmt::format("{} ({}{})", text == nullptr ? "unknown error" : text,
                     name == nullptr ? "" : std::string(name) + ", ", result);
}

// The variable as a clause, empty if it is not set.
std::string visible_devices() {
  const char* value = std::getenv("CUDA_VISIBLE_DEVICES");
  return value == nullptr ? std::string() : fmt::format("; CUDA_VISIBLE_DEVICES is \"{}\"", value);
}

const Driver& the_driver() {
  static const Driver kDriver = load_driver();
  return kDriver;
}

// The number in /dev/nvidiaN, which need not be the ordinal; -1 if it cannot be known.
int minor_of(const Card& card) {
  std::array<char, 32> bus{};
  if (card.driver->device_bus_id(bus.data(), bus.size(), card.device) != kSuccess) return -1;
  std::string folder = bus.data();
  std::transform(folder.begin(), folder.end(), folder.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::ifstream file("/proc/driver/nvidia/gpus/" + folder + "/information");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("Device Minor:")) return std::atoi(line.c_str() + line.find(':') + 1);
  return -1;
}

// The programs that have the GPU open, as a clause; empty if none is known.
std::string holder_list(const Card& card) {
  const std::string users = users_of(card);
  return users.empty() ? users : "; in use by " + users;
}

// The word after a directive of PTX.
std::string_view word_after(std::string_view ptx, std::string_view directive) {
  const size_t at = ptx.find(directive);
  if (at == ptx.npos) return "?";
  const size_t begin = std::min(ptx.find_first_not_of(" \t", at + directive.size()), ptx.size());
  return ptx.substr(begin, std::min(ptx.find_first_of(" \t\r\n,", begin), ptx.size()) - begin);
}

}  // namespace

Driver load_driver(const char* library_name, const fs::path& devices) {
  void* library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const std::string why = dlerror();
    std::error_code ignored;
    const bool has_devices =
        fs::exists(devices / "nvidiactl", ignored) || fs::exists(devices / "nvidia0", ignored);
    throw WorldError(
        "[device.kind] found cuda, but no NVIDIA driver ({}); {}, or choose cpu", why,
        has_devices
            ? fmt::format(
                  "{} has GPUs, so this is probably a container without the driver's libraries: start "
                  "it with --gpus all (NVIDIA Container Toolkit)",
                  devices.string())
            : "install driver 570 or later (CUDA 12.8; nvidia.com/drivers, or your system's nvidia-driver; start a "
              "container with --gpus all)");
  }
  if (dlsym(library, "strata_twin") != nullptr && std::getenv("STRATA_TWIN") == nullptr)
    throw WorldError(
        "[device.kind] libcuda.so.1 is the twin that Strata's tests use, not a driver; remove its folder from "
        "LD_LIBRARY_PATH (found \"{}\"), or set STRATA_TWIN to use it",
        std::getenv("LD_LIBRARY_PATH") == nullptr ? "" : std::getenv("LD_LIBRARY_PATH"));
  Driver driver;
  const auto find = [&]<typename F>(F& member, const char* name) {
    void* symbol = dlsym(library, name);
    if (symbol == nullptr)
      throw WorldError(
          "[device.kind] found an NVIDIA driver (libcuda.so.1) without {}, expected one of CUDA {} or later; update it",
          name, version_text(kOldestVersion));
    member = reinterpret_cast<F>(symbol);
  };
  // An older driver may lack other symbols: its version is the clearer message.
  find(driver.driver_version, "cuDriverGetVersion");
  int version = 0;
  if (driver.driver_version(&version) == kSuccess && version < kOldestVersion)
    throw WorldError(
        "[device.kind] the NVIDIA driver supports CUDA {}, expected at least {}; update it to 570 or later, or choose "
        "cpu",
        version_text(version), version_text(kOldestVersion));
  find(driver.init, "cuInit");
  find(driver.error_name, "cuGetErrorName");
  find(driver.error_text, "cuGetErrorString");
  find(driver.device_count, "cuDeviceGetCount");
  find(driver.device, "cuDeviceGet");
  find(driver.device_name, "cuDeviceGetName");
  find(driver.device_attribute, "cuDeviceGetAttribute");
  find(driver.device_memory, "cuDeviceTotalMem_v2");
  find(driver.device_uuid, "cuDeviceGetUuid_v2");
  find(driver.device_bus_id, "cuDeviceGetPCIBusId");
  find(driver.retain_context, "cuDevicePrimaryCtxRetain");
  find(driver.set_context, "cuCtxSetCurrent");
  find(driver.synchronize, "cuCtxSynchronize");
  find(driver.load_module, "cuModuleLoadDataEx");
  find(driver.unload_module, "cuModuleUnload");
  find(driver.function, "cuModuleGetFunction");
  find(driver.set_function_attribute, "cuFuncSetAttribute");
  find(driver.launch, "cuLaunchKernel");
  find(driver.allocate, "cuMemAlloc_v2");
  find(driver.free, "cuMemFree_v2");
  find(driver.memory_info, "cuMemGetInfo_v2");
  find(driver.allocate_async, "cuMemAllocAsync");
  find(driver.free_async, "cuMemFreeAsync");
  find(driver.allocate_host, "cuMemHostAlloc");
  find(driver.free_host, "cuMemFreeHost");
  find(driver.copy_to_device_async, "cuMemcpyHtoDAsync_v2");
  find(driver.copy_to_host_async, "cuMemcpyDtoHAsync_v2");
  find(driver.copy_async, "cuMemcpyDtoDAsync_v2");
  find(driver.fill_async, "cuMemsetD8Async");
  find(driver.create_stream, "cuStreamCreate");
  find(driver.destroy_stream, "cuStreamDestroy_v2");
  find(driver.synchronize_stream, "cuStreamSynchronize");
  find(driver.query_stream, "cuStreamQuery");
  find(driver.wait_event, "cuStreamWaitEvent");
  find(driver.write_value, "cuStreamWriteValue32_v2");
  find(driver.create_event, "cuEventCreate");
  find(driver.destroy_event, "cuEventDestroy_v2");
  find(driver.record_event, "cuEventRecord");
  find(driver.synchronize_event, "cuEventSynchronize");
  find(driver.query_event, "cuEventQuery");
  find(driver.elapsed, "cuEventElapsedTime");
  return driver;
}

Card open_card(int ordinal) {
  Card card;
  card.driver = &the_driver();
  const Driver& driver = *card.driver;
  const Result started = driver.init(0);
  int count = 0;
  if (started == kSuccess) driver.check(driver.device_count(&count), "cuDeviceGetCount");
  if (started == kNoDevice || (started == kSuccess && count == 0))
    throw WorldError(
        "[device.kind] found cuda, but the NVIDIA driver shows no GPU{}; check that nvidia-smi -L lists one, or choose "
        "cpu",
        visible_devices());
  driver.check(started, "cuInit");
  if (ordinal < 0 || ordinal >= count)
    throw WorldError("[device.kind] found {} GPU{} (0 to {}), expected GPU {}{}", count,
                     count == 1 ? "" : "s", count - 1, ordinal, visible_devices());
  driver.check(driver.device(&card.device, ordinal), "cuDeviceGet");
  char name[256] = "";
  driver.check(driver.device_name(name, sizeof name, card.device), "cuDeviceGetName");
  card.name = name;
  card.capability = card.attribute(kCapabilityMajor) * 10 + card.attribute(kCapabilityMinor);
  if (card.capability < kOldestCapability)
    throw WorldError(
        "[device.kind] {} has compute capability {}.{}, expected at least {}.{} (Ampere); choose cpu",
        card.name, card.capability / 10, card.capability % 10, kOldestCapability / 10,
        kOldestCapability % 10);
  const Result retained = driver.retain_context(&card.context, card.device);
  if (retained != kSuccess)
    throw WorldError("[device.kind] {} cannot be used: {}; {}{}", card.name, describe(driver, retained),
                     advice_for(retained), holder_list(card));
  return card;
}

void Driver::check(Result result, const char* what) const {
  if (result != kSuccess)
    throw WorldError("[cuda] {}: {}; {}", what, describe(*this, result), advice_for(result));
}

int Card::attribute(int number) const {
  int value = 0;
  driver->check(driver->device_attribute(&value, number, device), "cuDeviceGetAttribute");
  return value;
}

void Card::use() const {
  driver->check(driver->set_context(context), "cuCtxSetCurrent");
}

Pointer Card::allocate(size_t bytes, const char* what) const {
  Pointer address = 0;
  const Result result = driver->allocate(&address, bytes);
  if (result == kSuccess) return address;
  if (result != kOutOfMemory) driver->check(result, "cuMemAlloc");
  size_t free = 0, total = 0;
  driver->check(driver->memory_info(&free, &total), "cuMemGetInfo");
  // Nine tenths, as for the automatic budget (config/choose.cpp): kernels and their stacks need memory too.
  const double fits = 0.9 * static_cast<double>(free);
  const std::string advice =
      fits < 1e6
          ? "stop other programs or choose another GPU"
          : fmt::format("set memory.budget = \"{}\" or less, or stop other programs", human_bytes(fits));
  throw WorldError("[memory.budget] {} needs {} on {}, which has {} free of {}; {}{}", what,
                   human_bytes(static_cast<double>(bytes)), name, human_bytes(static_cast<double>(free)),
                   human_bytes(static_cast<double>(total)), advice, holder_list(*this));
}

Module Card::load(std::string_view ptx, const char* what) const {
  std::array<char, 8192> log{};
  std::array<JitOption, 2> options = {kErrorLog, kErrorLogBytes};
  std::array<void*, 2> values = {log.data(),
                                 reinterpret_cast<void*>(log.size())};  // NOLINT(performance-no-int-to-ptr)
  Module module = nullptr;
  const Result result = driver->load_module(&module, ptx.data(), 2, options.data(), values.data());
  if (result == kSuccess) return module;
  // Errors of an earlier kernel come here, too.
  constexpr Result kOfCode[] = {kInvalidImage, kNoBinary, 218, 221, 222, 223, 300};
  if (std::find(std::begin(kOfCode), std::end(kOfCode), result) == std::end(kOfCode))
    driver->check(result, what);
  int version = 0;
  driver->check(driver->driver_version(&version), "cuDriverGetVersion");
  std::string reason = log.data();
  reason.erase(reason.find_last_not_of(" \n") + 1);
  throw WorldError(
      "[device.kind] {} (compute capability {}.{}, driver of CUDA {}) does not accept the kernels of {}, PTX {} for {}: "
      "{}; {}{}{}",
      name, capability / 10, capability % 10, version_text(version), what, word_after(ptx, ".version"),
      word_after(ptx, ".target"), describe(*driver, result), advice_for(result), reason.empty() ? "" : "\n",
      reason);
}

std::string users_of(const Card& card) {
  std::string text;
  const std::vector<Holder> holders = holders_of_gpu("/proc", minor_of(card));
  constexpr size_t kShown = 3;
  for (size_t n = 0; n < std::min(kShown, holders.size()); ++n)
    text += fmt::format("{}{} ({})", n == 0 ? "" : ", ", holders[n].name, holders[n].process);
  if (holders.size() > kShown) text += fmt::format(" and {} more", holders.size() - kShown);
  return text;
}

std::vector<Holder> holders_of_gpu(const fs::path& proc, int minor) {
  std::vector<Holder> holders;
  const std::string wanted = minor < 0 ? "" : fmt::format("/dev/nvidia{}", minor);
  const auto is_gpu = [&](const std::string& target) {
    constexpr std::string_view kPrefix = "/dev/nvidia";
    return wanted.empty() ? target.starts_with(kPrefix) && target.size() > kPrefix.size() &&
                                std::isdigit(static_cast<unsigned char>(target[kPrefix.size()])) != 0
                          : target == wanted;
  };
  // Processes come and go, and those of other users cannot be read: every failure is skipped.
  std::error_code error;
  for (fs::directory_iterator process(proc, error), end; !error && process != end; process.increment(error)) {
    const std::string folder = process->path().filename().string();
    int number = 0;
    if (std::from_chars(folder.data(), folder.data() + folder.size(), number).ptr !=
            folder.data() + folder.size() ||
        number == getpid())
      continue;
    std::error_code skipped;
    bool holds = false;
    for (fs::directory_iterator file(process->path() / "fd", skipped); !holds && !skipped && file != end;
         file.increment(skipped)) {
      std::error_code unread;
      holds = is_gpu(fs::read_symlink(file->path(), unread).string());
    }
    if (!holds) continue;
    Holder one{number, "?"};
    std::ifstream name(process->path() / "comm");
    std::getline(name, one.name);
    holders.push_back(std::move(one));
  }
  std::sort(holders.begin(), holders.end(),
            [](const Holder& a, const Holder& b) { return a.process < b.process; });
  return holders;
}

}  // namespace strata::cuda
