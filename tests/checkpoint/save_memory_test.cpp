// A save needs little memory besides the tensors, whatever it converts or transposes.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "checkpoint/checkpoint.h"
#include "comm/world.h"
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

// Not inlined: otherwise the compiler warns about a mismatch of malloc and delete.
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
  EXPECT_GT(peak - before, 1'000'000) << "no allocation was recorded";
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

// Two ranks that hold half of each tensor exchange it through a few blocks; neither ever has both halves.
TEST(SaveMemory, EachRankNeedsAFewBlocks) {
  constexpr int64_t kRows = 2048, kColumns = 4096;  // 16 MB of f32 on each rank, six times
  constexpr int64_t kTensors = 6;
  ScratchFolder scratch;
  std::atomic<int64_t> before{0};
  comm::run_local_ranks(2, [&](comm::World& world) {
    const int ranks[] = {0, 1};
    const auto group = world.group(ranks, "checkpoints");
    const std::vector<float> half(kRows / 2 * kColumns, 1.5f);
    graph::Value value;
    value.shape = {kRows, kColumns};
    value.placements = {{graph::Axis::kShard, graph::Placement::sharded(0)}};
    const auto split = std::make_shared<const Split>(Split::of(value, graph::Mesh::of(1, 2, 1, 1), 0, kRows));
    CheckpointContent content;
    content.model.config_json = "{}";
    content.model.dtype = DType::kF32;
    for (int64_t i = 0; i < kTensors; ++i)
      content.model.weights.push_back({"t" + std::to_string(i),
                                       {kRows, kColumns},
                                       DType::kF32,
                                       in_memory(half.data()),
                                       false,
                                       {},
                                       0,
                                       split});
    group->barrier();
    if (world.rank() == 0) {
      before = live.load();
      peak = live.load();
    }
    group->barrier();
    FaultyFileSystem without_sync;
    save_checkpoint(without_sync, scratch.path(), content, *group);
    group->barrier();
    if (world.rank() == 0) {
      EXPECT_GT(peak - before, 2 * 2 * kBlockBytes) << "no allocation was recorded";
      EXPECT_LT(peak - before, 2 * (kStagingBlocks + 1) * kBlockBytes);
    }
    group->barrier();
  });
}

}  // namespace
}  // namespace strata::checkpoint
