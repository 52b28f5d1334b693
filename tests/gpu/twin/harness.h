// A GPU of the twin for tests: the driver's calls, memory, and small kernels. Each restarts the twin.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "device/cuda/driver.h"
#include "twin/twin.h"

namespace strata::gpu_tests {

namespace cuda = strata::cuda;

inline const cuda::Driver& driver() {
  static const cuda::Driver kDriver = cuda::load_driver();
  return kDriver;
}

// A kernel that adds one to words: out[i] = in[i] + 1 for the threads of one block.
inline const std::string kIncrement = R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry increment(.param .u64 out, .param .u64 in)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [in];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
  ld.global.u32 %r2, [%rd5];
  add.s32 %r2, %r2, 1;
  st.global.u32 [%rd4], %r2;
  ret;
}
)";

class TwinCard {
 public:
  explicit TwinCard(const std::string& settings = "") {
    twin_.restart(settings);
    card_ = cuda::open_card(0);
    card_.use();
  }
  const Twin& twin() const { return twin_; }
  const cuda::Card& card() const { return card_; }

  cuda::Pointer allocate(size_t bytes) const {
    cuda::Pointer address = 0;
    EXPECT_EQ(driver().allocate(&address, bytes), cuda::kSuccess);
    return address;
  }
  cuda::Stream stream() const {
    cuda::Stream stream = nullptr;
    EXPECT_EQ(driver().create_stream(&stream, cuda::kNonBlockingStream), cuda::kSuccess);
    return stream;
  }
  cuda::Event event(unsigned flags = cuda::kEventWithoutTiming) const {
    cuda::Event event = nullptr;
    EXPECT_EQ(driver().create_event(&event, flags), cuda::kSuccess);
    return event;
  }
  uint32_t* pinned(size_t words) const {
    void* memory = nullptr;
    EXPECT_EQ(driver().allocate_host(&memory, 4 * words, 0), cuda::kSuccess);
    return static_cast<uint32_t*>(memory);
  }
  cuda::Module load(const std::string& text) const { return card_.load(text, "the test"); }
  cuda::Function function(const std::string& text, const char* name) const {
    cuda::Function function = nullptr;
    EXPECT_EQ(driver().function(&function, load(text), name), cuda::kSuccess);
    return function;
  }
  // One block of `increment`.
  cuda::Result increment(cuda::Function function, cuda::Pointer out, cuda::Pointer in, unsigned threads,
                         cuda::Stream stream) const {
    void* arguments[] = {&out, &in};
    return driver().launch(function, 1, 1, 1, threads, 1, 1, 0, stream, arguments, nullptr);
  }
  // Through pageable memory, then waits.
  void write(cuda::Pointer to, const std::vector<uint32_t>& words, cuda::Stream stream) const {
    EXPECT_EQ(driver().copy_to_device_async(to, words.data(), 4 * words.size(), stream), cuda::kSuccess);
    EXPECT_EQ(driver().synchronize_stream(stream), cuda::kSuccess);
  }
  std::vector<uint32_t> read(cuda::Pointer from, size_t words, cuda::Stream stream) const {
    std::vector<uint32_t> values(words);
    EXPECT_EQ(driver().copy_to_host_async(values.data(), from, 4 * words, stream), cuda::kSuccess);
    return values;
  }

 private:
  Twin twin_;
  cuda::Card card_;
};

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace strata::gpu_tests
