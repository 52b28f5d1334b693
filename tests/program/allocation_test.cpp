// Counts allocations between the first and the last instruction of a steady step. The C library's allocation
// functions are replaced for this whole test program. Sanitizers replace them too, so these tests are left
// out of sanitizer builds.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "comm/world.h"
#include "fixtures/tiny_program.h"
#include "kernels/cpu/gemm.h"
#include "models/parametrization.h"
#include "pipeline_model.h"
#include "program/initialize.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)

// Names reserved by the C library.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

namespace {

constexpr size_t kMaxCallers = 4096;
std::atomic<bool> counting{false};
std::atomic<size_t> allocations{0};
std::atomic<int64_t> alive{0};
struct Call {
  void* caller;
  size_t bytes;
};
std::array<Call, kMaxCallers> callers;

void note(void* caller, size_t bytes) {
  if (!counting.load(std::memory_order_relaxed)) return;
  const size_t i = allocations.fetch_add(1);
  ++alive;
  if (i < kMaxCallers) callers[i] = {caller, bytes};
}

}  // namespace

#pragma GCC visibility push(default)  // shared libraries call these too
extern "C" {
void* malloc(size_t bytes) {
  note(__builtin_return_address(0), bytes);
  return __libc_malloc(bytes);
}
void* calloc(size_t n, size_t bytes) {
  note(__builtin_return_address(0), n * bytes);
  return __libc_calloc(n, bytes);
}
void* realloc(void* old, size_t bytes) {
  if (old == nullptr) note(__builtin_return_address(0), bytes);
  return __libc_realloc(old, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  note(__builtin_return_address(0), bytes);
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  note(__builtin_return_address(0), bytes);
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  note(__builtin_return_address(0), bytes);
  *out = __libc_memalign(alignment, bytes);
  return *out == nullptr ? ENOMEM : 0;
}
void free(void* memory) {
  if (memory != nullptr && counting.load(std::memory_order_relaxed)) --alive;
  __libc_free(memory);
}
}

// Attributes an allocation to the caller of new instead of new itself.
void* operator new(size_t bytes) {
  note(__builtin_return_address(0), bytes);
  void* memory = __libc_malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept {
  free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  free(memory);
}
#pragma GCC visibility pop

namespace strata::program {
namespace {

// The program or library file that contains a caller.
std::string module_of(void* caller) {
  Dl_info info{};
  return dladdr(caller, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "?";
}

struct Count {
  size_t ours = 0, libraries = 0;
  int64_t left = 0;    // allocated and not freed
  size_t largest = 0;  // of ours, in bytes
  std::string first_of_ours;
};

template <typename Run>
Count count_allocations(Run run) {
  allocations = 0;
  alive = 0;
  counting = true;
  run();
  counting = false;
  Count count;
  count.left = alive;
  for (size_t i = 0; i < std::min<size_t>(allocations, kMaxCallers); ++i) {
    const std::string module = module_of(callers[i].caller);
    if (module.find("libdnnl") != std::string::npos || module.find("libgomp") != std::string::npos) {
      ++count.libraries;
      continue;
    }
    count.largest = std::max(count.largest, callers[i].bytes);
    if (count.ours++ == 0) {
      Dl_info info{};
      dladdr(callers[i].caller, &info);
      count.first_of_ours = module + " " + (info.dli_sname != nullptr ? info.dli_sname : "");
    }
  }
  return count;
}

TEST(Allocations, TheHookSeesOurs) {
  const Count count = count_allocations([] {
    std::vector<int>* volatile made = new std::vector<int>(100);
    delete made;
  });
  EXPECT_EQ(count.ours, 2u);
  EXPECT_EQ(count.left, 0);
}

Count allocations_of_step(TinyRun& run) {
  return count_allocations([&] { run.executor.run_script(0); });
}

class Allocations : public testing::TestWithParam<std::tuple<const char*, DType>> {};

TEST_P(Allocations, NoneInASteadyStep) {
  CompileOptions options = tiny_options(std::get<0>(GetParam()));
  options.activations = std::get<1>(GetParam());
  TinyRun run(compile({tiny_request(2)}, options));
  run.step();
  run.step();
  const Count count = allocations_of_step(run);
  EXPECT_EQ(count.ours, 0u) << "first: " << count.first_of_ours;
  EXPECT_EQ(count.left, 0) << "libraries free all their allocations";
  RecordProperty("library_allocations", static_cast<int>(count.libraries));
}

INSTANTIATE_TEST_SUITE_P(All, Allocations,
                         testing::Combine(testing::Values("llama3-5m", "gpt2-124m"),
                                          testing::Values(DType::kF32, DType::kBF16)));

TEST(Allocations, NoneOfOursInAnyOptimizer) {
  for (const optim::Optimizer& optimizer : std::initializer_list<optim::Optimizer>{
           optim::Muon{}, optim::Lion{}, optim::Adafactor{}, optim::AdamW8Bit{}}) {
    CompileOptions options = tiny_options("llama3-5m");
    options.rule_of = [&](const std::string&, graph::ParameterRole role) {
      return optim::one_rule({0.1, 1, models::is_matrix(role) ? optimizer : optim::AdamW{}});
    };
    TinyRun run(compile({tiny_request(2)}, options));
    run.step();
    run.step();
    const Count count = allocations_of_step(run);
    EXPECT_EQ(count.ours, 0u) << optim::name_of(optimizer) << ", first: " << count.first_of_ours;
    EXPECT_EQ(count.left, 0);
  }
}

// Nor are there allocations if all three matmuls of a layer call the library's sgemm.
TEST(Allocations, NoneOfOursWithLibraryMatmuls) {
  CompileOptions options = tiny_options("llama3-5m");
  options.model.hidden_size = 256;
  options.model.layers = 1;
  options.model.heads = 4;
  options.model.kv_heads = 2;
  options.model.head_dim = 64;
  options.model.intermediate_size = 1200;
#ifndef STRATA_PLAIN_THREADS
  for (const auto role : {cpu::GemmRole::kForward, cpu::GemmRole::kInputGrad, cpu::GemmRole::kWeightGrad})
    EXPECT_EQ(cpu::plan_gemm({.role = role, .m = 1200, .n = 2400, .k = 256}, options.target.spec).kernel,
              cpu::GemmKernel::kSgemm);
#endif
  Request request = tiny_request(2);
  request.sequences = 20;
  request.sequence_length = 60;
  TinyRun run(compile({request}, options));
  run.step();
  run.step();
  for (int step = 0; step < 3; ++step) {
    const Count count = allocations_of_step(run);
    EXPECT_EQ(count.ours, 0u) << "first: " << count.first_of_ours;
    EXPECT_EQ(count.left, 0) << "the library frees all its allocations";
    RecordProperty("library_allocations", static_cast<int>(count.libraries));
  }
}

// Rows shared by ranks of the context axis, and rows shorter than the program's.
TEST(Allocations, NoneWhileABatchIsUploaded) {
  for (const int64_t ranks : {1, 2}) {
    CompileOptions options = tiny_options("llama3-5m");
    options.mesh = graph::Mesh::of(1, 1, ranks, 1);
    const auto set = compile({tiny_request(2)}, options);
    const Request& request = set->programs[0].request;
    for (const int64_t shorter : {0, 3}) {
      const RowPlaces places{request.sequence_length - shorter, 0};
      std::vector<int32_t> values(static_cast<size_t>(3 * request.sequences * places.tokens));
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i % 7);
      BatchRows rows{.columns = PerColumn<const int32_t*>(values.data()), .places = places};
      std::atomic<bool> counted{false};
      comm::run_local_ranks(static_cast<int>(ranks), [&](comm::World& world) {
        const Ranks mine(world, set->options);
        Executor executor(set, std::make_shared<SpoilingDevice>(set->options.target), mine);
        world.barrier();
        if (world.rank() == 0) {
          const Count count = count_allocations([&] {
            for (int64_t micro = 0; micro < request.micro_batches; ++micro)
              executor.upload_rows(0, rows, micro * request.sequences, micro);
          });
          EXPECT_EQ(count.ours, 0u) << "first: " << count.first_of_ours;
          counted = true;
          counted.notify_all();
        }
        counted.wait(false);  // a barrier allocates the text that describes it
        world.barrier();
      });
    }
  }
}

// Records how much memory an executor requests from its device.
class MeasuringDevice final : public device::HostDevice {
 public:
  explicit MeasuringDevice(int threads) : HostDevice(device::cpu_target(threads)) {}
  std::unique_ptr<device::Memory> allocate(int64_t bytes) override {
    allocated += bytes;
    return HostDevice::allocate(bytes);
  }
  int64_t allocated = 0;
};

struct Plan {
  graph::Mesh mesh;
  int zero = 0;
  const char* schedule = "";  // of a pipeline
  layers::ExpertLayout experts = {};
  optim::Optimizer optimizer = optim::AdamW{};
};

class MemoryOfRanks : public testing::TestWithParam<Plan> {
 protected:
  // One program set per stage of the pipeline axis.
  static std::vector<std::shared_ptr<const ProgramSet>> sets() {
    const bool shares_experts = GetParam().experts.ranks > 1;
    CompileOptions options = tiny_options(shares_experts ? "moe-30m-a10m" : "llama3-5m");
    options.model.layers = 4;
    if (shares_experts) {
      options.model.layers = 2;
      options.model.experts.count = 8;
      options.model.experts.intermediate_size = 16;
    }
    options.experts = GetParam().experts;
    options.mesh = GetParam().mesh;
    options.zero = GetParam().zero;
    if (options.mesh.size(graph::Axis::kTensor) > 1) {
      options.model.kv_heads = options.model.heads;
      options.model.intermediate_size = 96;
    }
    options.rule_of = [](const std::string&, graph::ParameterRole role) {
      return optim::one_rule({0.1, 1, models::is_matrix(role) ? GetParam().optimizer : optim::AdamW{}});
    };
    options.target = device::cpu_target(1);
    const auto places = static_cast<int32_t>(options.mesh.size(graph::Axis::kPipeline));
    if (places == 1) return {compile({tiny_request(2)}, options)};
    const Pipeline pipeline = pipeline_of({GetParam().schedule, places, 4, 1}, options.model);
    std::vector<std::shared_ptr<const ProgramSet>> out;
    for (int32_t place = 0; place < places; ++place)
      out.push_back(compile({tiny_request(4)}, at_place(options, pipeline, place)));
    return out;
  }
};

// Each rank allocates the planned arena and, besides it, no more than a few messages: ranks that are threads
// read each other's buffers in place. All tokens are equal and go to the same experts.
TEST_P(MemoryOfRanks, IsThePlanToTheByte) {
  const auto all = sets();
  const graph::Mesh& mesh = GetParam().mesh;
  constexpr int kWarm = 70;   // enough steps to use each of a group's 64 posts once
  constexpr int kSteps = 10;  // more than the ranks
  Count count;
  comm::run_local_ranks(static_cast<int>(mesh.ranks()), [&](comm::World& world) {
    const auto& set = all[static_cast<size_t>(world.rank()) * all.size() / static_cast<size_t>(mesh.ranks())];
    const Ranks ranks(world, set->options);
    const auto device = std::make_shared<MeasuringDevice>(1);
    Executor executor(set, device, ranks);
    write_coordinates(executor);
    initialize_weights(executor, 1);
    const auto step = [&] {
      write_hyper(executor, {.max_grad_norm = 1, .lr = 1e-2f});
      executor.run_script(0);
    };
    for (int i = 0; i < kWarm; ++i) step();
    EXPECT_EQ(device->allocated, set->arena_bytes);
    EXPECT_EQ(executor.arena_bytes(), set->arena_bytes);
    EXPECT_EQ(ranks.all().staging_bytes(), 0);
    // No rank is inside a step when the first one starts or stops counting.
    const auto steps = [&] {
      world.barrier();
      for (int i = 0; i < kSteps; ++i) step();
      world.barrier();
    };
    world.barrier();
    if (world.rank() == 0) {
      count = count_allocations(steps);
    } else {
      steps();
    }
    world.barrier();
  });
  // Barriers of other ranks may start before the count or end after it.
  EXPECT_LT(std::abs(count.left), kSteps) << "first: " << count.first_of_ours;
  EXPECT_LE(count.largest, 4096u) << "a collective's bookkeeping is small";
}

INSTANTIATE_TEST_SUITE_P(
    All, MemoryOfRanks,
    testing::Values(
        Plan{graph::Mesh::of(2, 1, 1, 1), 0}, Plan{graph::Mesh::of(1, 2, 1, 1), 0, "", {2, 1, 0.5}},
        Plan{graph::Mesh::of(1, 4, 1, 1), 2, "", {4, 1, 0.5, 2}}, Plan{graph::Mesh::of(1, 2, 1, 1), 1},
        Plan{graph::Mesh::of(1, 4, 1, 1), 3}, Plan{graph::Mesh::of(2, 2, 1, 1), 2},
        Plan{graph::Mesh::of(1, 2, 1, 3), 1, "", {}, optim::AdamW8Bit{.min_elements = 256}},
        Plan{graph::Mesh::of(1, 1, 1, 1, 2), 0, "gpipe"}, Plan{graph::Mesh::of(1, 1, 1, 1, 2), 0, "1f1b"},
        Plan{graph::Mesh::of(1, 1, 1, 1, 2), 0, "zb_h1"}, Plan{graph::Mesh::of(1, 1, 1, 1, 2), 0, "zbv"},
        Plan{graph::Mesh::of(1, 1, 1, 1, 2), 0, "v_half"}, Plan{graph::Mesh::of(1, 1, 1, 1, 2), 0, "v_min"},
        Plan{graph::Mesh::of(1, 1, 1, 1, 2), 0, "dualpipev"},
        Plan{graph::Mesh::of(1, 2, 1, 1, 2), 3, "1f1b"}));

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(ResidentMemory, StaysWithin80MBOfTheArena) {
  CompileOptions options = tiny_options("llama3-5m");
  options.model = models::preset("llama3-29m");
  const int64_t before = resident_bytes();
  TinyRun run(compile({{.kind = Kind::kTrain, .sequences = 1, .sequence_length = 64}}, options));
  run.step();
  const int64_t used = resident_bytes() - before;
  const int64_t arena = run.executor.arena_bytes();
  EXPECT_GT(arena, 400'000'000);
  EXPECT_LE(used, arena + 80'000'000);
}

}  // namespace
}  // namespace strata::program

#endif
