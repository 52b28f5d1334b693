// What a user reads when a GPU cannot be opened or fails: the driver's errors are the twin's.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "twin/harness.h"

namespace strata::gpu_tests {
namespace {

namespace fs = std::filesystem;

// The variable until the end of the scope.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    const char* old = std::getenv(name);
    had_ = old != nullptr;
    if (had_) old_ = old;
    value == nullptr ? unsetenv(name) : setenv(name, value, 1);
  }
  ~Variable() { had_ ? setenv(name_, old_.c_str(), 1) : unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  bool had_ = false;
  std::string old_;
};

template <typename F>
std::string error_of(F function) {
  try {
    function();
  } catch (const WorldError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

std::string open_error(const std::string& settings) {
  const Twin twin;
  twin.restart(settings);
  return error_of([] { cuda::open_card(0); });
}

#define EXPECT_HAS(text, part) EXPECT_PRED2(has, text, part)

TEST(CudaDriver, IsMissing) {
  const fs::path none = fs::path(testing::TempDir()) / "no_devices",
                 some = fs::path(testing::TempDir()) / "devices";
  const std::string found = error_of([&] { cuda::load_driver("libcuda_none.so.1", none); });
  EXPECT_HAS(found, "[device.kind] found cuda, but no NVIDIA driver (libcuda_none.so.1: cannot open");
  EXPECT_HAS(found, "install driver 570 or later");
  fs::create_directories(some);
  std::ofstream(some / "nvidiactl") << "";
  EXPECT_HAS(error_of([&] { cuda::load_driver("libcuda_none.so.1", some); }),
             "container without the driver's libraries");
  // Another library in place of the driver: the C library.
  EXPECT_HAS(error_of([] { cuda::load_driver("libc.so.6"); }),
             "without cuDriverGetVersion, expected one of CUDA 12.8");
}

TEST(CudaDriver, IsTooOld) {
  const Twin twin;
  twin.restart("driver=11040");
  EXPECT_HAS(error_of([] { cuda::load_driver(); }),
             "supports CUDA 11.4, expected at least 12.8; update it to 570");
  twin.restart("driver=12080");
  EXPECT_NO_THROW(cuda::load_driver());
}

TEST(CudaDriver, IsTheTwin) {
  const Variable unset("STRATA_TWIN", nullptr);
  EXPECT_HAS(error_of([] { cuda::load_driver(); }), "is the twin that Strata's tests use, not a driver");
  const Variable empty("STRATA_TWIN", "");
  EXPECT_NO_THROW(cuda::load_driver());
}

TEST(CudaDriver, ShowsNoGpu) {
  {
    const Variable unset("CUDA_VISIBLE_DEVICES", nullptr);
    EXPECT_HAS(open_error("cards=0"), "the NVIDIA driver shows no GPU; check that nvidia-smi -L lists one");
  }
  const Variable hidden("CUDA_VISIBLE_DEVICES", "7,0");
  EXPECT_HAS(open_error("cards=2"), "shows no GPU; CUDA_VISIBLE_DEVICES is \"7,0\"");
  const Variable one("CUDA_VISIBLE_DEVICES", "1");
  const Twin twin;
  twin.restart("cards=2");
  EXPECT_EQ(error_of([] { cuda::open_card(1); }),
            "[device.kind] found 1 GPU (0 to 0), expected GPU 1; CUDA_VISIBLE_DEVICES is \"1\"");
  EXPECT_NO_THROW(cuda::open_card(0));
}

TEST(CudaDriver, GpuIsBusyOrTooOld) {
  const std::string busy = open_error("name=NVIDIA H100;fail=cuDevicePrimaryCtxRetain:1:46");
  EXPECT_HAS(busy,
             "[device.kind] NVIDIA H100 cannot be used: CUDA-capable device(s) is/are busy or unavailable "
             "(CUDA_ERROR_DEVICE_UNAVAILABLE, 46); another program has the GPU");
  EXPECT_HAS(open_error("fail=cuDevicePrimaryCtxRetain:1:304"), "NVRM lines in dmesg");
  EXPECT_HAS(open_error("fail=cuInit:1:802"), "start nvidia-fabricmanager");
  EXPECT_HAS(open_error("fail=cuInit:1:803"), "[cuda] cuInit: system has unsupported display driver");
  EXPECT_HAS(open_error("fail=cuInit:1:999"), "Xid");
  EXPECT_EQ(open_error("name=Tesla T4;arch=75"),
            "[device.kind] Tesla T4 has compute capability 7.5, expected at least 8.0 (Ampere); choose cpu");
}

TEST(CudaDriver, MemoryIsHeldByOthers) {
  const TwinCard one("name=NVIDIA H200;memory=4GiB;held=3GiB");
  EXPECT_HAS(
      error_of([&] { one.card().allocate(size_t{2} << 30, "the run"); }),
      "[memory.budget] the run needs 2.15 GB on NVIDIA H200, which has 1.07 GB free of 4.29 GB; set memory.budget = "
      "\"966 MB\" or less, or stop other programs");
  const TwinCard full("memory=1GiB;held=1GiB");
  EXPECT_HAS(error_of([&] { full.card().allocate(1, "the run"); }),
             "stop other programs or choose another GPU");
  const TwinCard broken("fail=cuMemAlloc:1:214");
  EXPECT_HAS(error_of([&] { broken.card().allocate(1, "the run"); }), "uncorrectable ECC error");
}

TEST(CudaDriver, FindsProcessesThatHaveAGpuOpen) {
  const fs::path proc = fs::path(testing::TempDir()) / "proc";
  fs::remove_all(proc);
  const auto add = [&](const std::string& process, const char* name,
                       std::initializer_list<const char*> files) {
    fs::create_directories(proc / process / "fd");
    std::ofstream(proc / process / "comm") << name << "\n";
    int number = 0;
    for (const char* file : files) fs::create_symlink(file, proc / process / "fd" / std::to_string(number++));
  };
  add("4711", "python3", {"/dev/null", "/dev/nvidia1"});
  add("12", "Xorg", {"/dev/nvidiactl", "/dev/nvidia0"});
  add("13", "monitor", {"/dev/nvidiactl", "/dev/nvidia-uvm"});  // no GPU
  add("14", "bash", {"/dev/pts/0"});
  add("self", "ours", {"/dev/nvidia0"});
  add(std::to_string(getpid()), "ours", {"/dev/nvidia0"});
  fs::create_directories(proc / "15");  // without files that may be read
  const auto names = [&](int minor) {
    std::string text;
    for (const cuda::Holder& one : cuda::holders_of_gpu(proc, minor))
      text += std::to_string(one.process) + " " + one.name + ";";
    return text;
  };
  EXPECT_EQ(names(-1), "12 Xorg;4711 python3;");
  EXPECT_EQ(names(1), "4711 python3;");
  EXPECT_EQ(names(10), "");
  EXPECT_TRUE(cuda::holders_of_gpu(proc / "nowhere", -1).empty());
}

TEST(CudaDriver, CodeIsNotForThisGpu) {
  const auto load_error = [](const std::string& settings) {
    const TwinCard one(settings);
    return error_of([&] { one.card().load(kIncrement, "norm"); });
  };
  const std::string older = load_error("name=NVIDIA A100;arch=80;driver=12080;fail=cuModuleLoadDataEx:1:222");
  EXPECT_HAS(
      older,
      "[device.kind] NVIDIA A100 (compute capability 8.0, driver of CUDA 12.8) does not accept the kernels "
      "of norm, PTX 8.0 for sm_80: the provided PTX was compiled with an unsupported toolchain.");
  EXPECT_HAS(older, "the driver is older than the CUDA toolkit that built Strata: update it");
  EXPECT_HAS(load_error("fail=cuModuleLoadDataEx:1:209"), "build Strata with a newer CUDA toolkit");
  EXPECT_HAS(load_error("fail=cuModuleLoadDataEx:1:221"), "libnvidia-ptxjitcompiler.so.1");
  EXPECT_HAS(load_error("fail=cuModuleLoadDataEx:1:719"), "[cuda] norm: unspecified launch failure");
  // The driver's own reason.
  const TwinCard one;
  std::string text = kIncrement;
  text.replace(text.find("sm_80"), 5, "sm_120");
  EXPECT_HAS(error_of([&] { one.card().load(text, "norm"); }), "PTX 8.0 for sm_120");
  EXPECT_HAS(error_of([&] { one.card().load(text, "norm"); }), "SM version specified by .target is sm_120");
}

TEST(CudaDriver, ErrorsSayWhatToDo) {
  const std::pair<int, const char*> kExpected[] = {{2, "lower memory.budget"},
                                                   {4, "Xid"},
                                                   {34, "lib64/stubs"},
                                                   {100, "nvidia-smi -L"},
                                                   {214, "ROW_REMAPPER"},
                                                   {220, "nvidia-smi nvlink"},
                                                   {700, "a kernel failed"},
                                                   {702, "drives a display"},
                                                   {719, "Xid"},
                                                   {804, "cuda-compat"},
                                                   {805, "MPS daemon"},
                                                   {1, "it is a bug in Strata"},
                                                   {12345, "unknown error (12345); it is a bug"}};
  for (const auto& [number, part] : kExpected) {
    const std::string found = error_of([&, number = number] { driver().check(number, "kernel norm"); });
    EXPECT_TRUE(found.starts_with("[cuda] kernel norm: ")) << found;
    EXPECT_HAS(found, part);
  }
  EXPECT_NO_THROW(driver().check(cuda::kSuccess, "nothing"));
}

TEST(CudaDriver, TheTwinFollowsTheEnvironment) {
  const Twin twin;
  twin.follow_environment();
  const Variable first("STRATA_TWIN", "driver=11080;arch=86;name=NVIDIA A10");
  EXPECT_HAS(error_of([] { cuda::load_driver(); }), "supports CUDA 11.8");
  {
    const cuda::Card card = cuda::open_card(0);
    EXPECT_EQ(card.name, "NVIDIA A10");
    EXPECT_EQ(card.capability, 86);
  }
  const Variable second("STRATA_TWIN", "fail=cuDeviceGetName:1:999");
  EXPECT_HAS(error_of([] { cuda::open_card(0); }), "cuDeviceGetName: unknown error");
  EXPECT_NO_THROW(cuda::open_card(0)) << "only the first call fails";
}

TEST(CudaDriver, ThreadsOpenTheirOwnGpus) {
  const Twin twin;
  twin.restart("cards=2");
  // An exception in a thread would end the program.
  const auto work = [](int ordinal) {
    for (int n = 0; n < 20; ++n) {
      const cuda::Card card = cuda::open_card(ordinal);
      card.use();
      EXPECT_EQ(driver().free(card.allocate(4096, "the test")), cuda::kSuccess);
    }
  };
  std::thread first(work, 0), second(work, 1), third(work, 1);
  first.join(), second.join(), third.join();
  EXPECT_EQ(twin.violation(), "");
}

}  // namespace
}  // namespace strata::gpu_tests
