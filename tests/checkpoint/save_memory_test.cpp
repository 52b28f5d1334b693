// A save takes little memory beside the tensors themselves, whatever it converts or transposes.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "checkpoint/checkpoint.h"
#include "fixtures/faulty_file_system.h"
#include "fixtures/scratch_folder.h"

namespace {

std::atomic<int64_t> live{0}, peak{0};

[[gnu::noinline]] void* count_in(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  const int64_t now = live += static_cast<int64_t>(malloc_usable_size(memory));
  int64_t before = peak.load();
  while (now > before && !peak.compare_exchange_weak(before, now)) {
  }
  return memory;
}

// Kept out of line: inlined, the compiler takes the pair of malloc and delete for a mistake.
[[gnu::noinline]] void count_out(void* memory) {
  if (memory != nullptr) live -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

void* operator new(size_t size) {
  return count_in(std::malloc(std::max<size_t>(size, 1)));
}
void* operator new[](size_t size) {
  return count_in(std::malloc(std::max<size_t>(size, 1)));
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  void* const memory = std::malloc(std::max<size_t>(size, 1));
  return memory == nullptr ? nullptr : count_in(memory);
}
void* operator new[](size_t size, const std::nothrow_t& how) noexcept {
  return operator new(size, how);
}
void operator delete(void* memory) noexcept {
  count_out(memory);
}
void operator delete[](void* memory) noexcept {
  count_out(memory);
}
void operator delete(void* memory, size_t) noexcept {
  count_out(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  count_out(memory);
}

namespace strata::checkpoint {
namespace {

TEST(SaveMemory, StaysBelowSixteenMegabytes) {
  constexpr int64_t kRows = 2048, kColumns = 4096;  // 32 MB of f32
  const std::vector<float> values(kRows * kColumns, 1.5f);
  std::vector<float> plain(kRows * kColumns), transposed_back(kRows * kColumns);
  CheckpointContent content;
  content.model.config_json = "{}";
  for (const bool transposed : {false, true})
    content.model.weights.push_back(
        {transposed ? "b" : "a", {kRows, kColumns}, DType::kF32, in_memory(values.data()), transposed});
  content.model.dtype = DType::kBF16;
  content.optimizer.push_back({"m/a", {kRows, kColumns}, DType::kF32, in_memory(values.data())});

  ScratchFolder scratch;
  FaultyFileSystem without_sync;
  const int64_t before = live;
  peak = before;
  const Path path = save_checkpoint(without_sync, scratch.path(), content).path;
  EXPECT_GT(peak - before, 1'000'000) << "nothing was counted";
  EXPECT_LT(peak - before, 16'000'000);

  const std::vector<MutableTensorView> weights{
      {"a", {kRows, kColumns}, DType::kF32, in_memory(plain.data())},
      {"b", {kRows, kColumns}, DType::kF32, in_memory(transposed_back.data()), true}};
  const int64_t before_load = live;
  peak = before_load;
  load_checkpoint(path, weights);
  EXPECT_LT(peak - before_load, 24'000'000);
  EXPECT_EQ(plain, values);
  EXPECT_EQ(transposed_back, values);
}

}  // namespace
}  // namespace strata::checkpoint
