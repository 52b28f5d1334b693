// Saves and loads through a device whose memory the host cannot address: only upload and download reach it.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/weights.h"
#include "device/cpu/bindings.h"
#include "fixtures/scratch_folder.h"
#include "fixtures/tiny_program.h"
#include "models/parametrization.h"

namespace strata::checkpoint {
namespace {

// Inaccessible pages: its address can be used for arithmetic but not dereferenced.
class HiddenMemory final : public device::Memory {
 public:
  explicit HiddenMemory(int64_t bytes)
      : content_(static_cast<size_t>(bytes)),
        address_(
            ::mmap(nullptr, content_.size(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    EXPECT_NE(address_, MAP_FAILED);
  }
  ~HiddenMemory() override { ::munmap(address_, content_.size()); }
  HiddenMemory(const HiddenMemory&) = delete;
  HiddenMemory& operator=(const HiddenMemory&) = delete;
  int64_t bytes() const override { return std::ssize(content_); }
  std::byte* address() const override { return static_cast<std::byte*>(address_); }
  std::byte* at(int64_t offset, int64_t bytes) {
    EXPECT_TRUE(offset >= 0 && offset + bytes <= std::ssize(content_));
    return content_.data() + offset;
  }
  const std::byte* at(int64_t offset, int64_t bytes) const {
    return const_cast<HiddenMemory*>(this)->at(offset, bytes);
  }

 private:
  std::vector<std::byte> content_;
  void* address_;
};

std::span<const device::Binding> idle_bindings() {
  static const std::vector<device::Binding> table = [] {
    const auto idle = [](const device::BindRequest&) {
      return device::BoundKernel{.run = [](device::Launch&, void*, std::byte* const*) {},
                                 .plan = std::make_shared<const int>(),
                                 .scratch_bytes = 0,
                                 .instantiate = nullptr};
    };
    std::vector<device::Binding> rows;
    for (const device::Binding& row : device::cpu_bindings()) rows.push_back({row.op, idle});
    return rows;
  }();
  return table;
}

struct NoTime final : device::Stopwatch {
  void mark(size_t) override {}
  double at(size_t) override { return 0; }
};

// Computes nothing.
class HidingDevice final : public device::Device {
 public:
  HidingDevice() : Device({spec_of(), idle_bindings()}) {}
  std::unique_ptr<device::Memory> allocate(int64_t bytes) override {
    return std::make_unique<HiddenMemory>(bytes);
  }
  void upload(device::Memory& to, int64_t offset, const void* from, int64_t bytes) override {
    std::memcpy(dynamic_cast<HiddenMemory&>(to).at(offset, bytes), from, static_cast<size_t>(bytes));
  }
  void download(const device::Memory& from, int64_t offset, void* to, int64_t bytes) const override {
    std::memcpy(to, dynamic_cast<const HiddenMemory&>(from).at(offset, bytes), static_cast<size_t>(bytes));
  }
  device::Launch begin_launches() override { return {.threads = 1}; }
  std::unique_ptr<device::Stopwatch> stopwatch(size_t) const override { return std::make_unique<NoTime>(); }

 private:
  static hardware::DeviceSpec spec_of() {
    hardware::DeviceSpec spec;
    spec.name = "a device that hides its memory";
    spec.kind = "hiding";
    spec.threads = 1;
    return spec;
  }
};

program::CompileOptions options_for(const std::string& preset) {
  program::CompileOptions options = program::tiny_options(preset);
  options.model.vocab_size = 9001;  // a table of more than one slice
  if (preset.starts_with("pythia")) options.model.kv_heads = options.model.heads;
  options.rule_of = [](const std::string&, graph::ParameterRole role) {
    const bool matrix = models::is_matrix(role) && !models::is_table(role);
    return optim::one_rule({0.1, 1, matrix ? optim::Optimizer(optim::AdamW8Bit{}) : optim::AdamW{}});
  };
  return options;
}

std::vector<const program::Persistent*> saved_values(const program::ProgramSet& set) {
  std::vector<const program::Persistent*> values;
  for (const program::Persistent& value : set.persistent) {
    if (value.role == graph::Role::kParameter ||
        (value.role == graph::Role::kState && value.name != "updates"))
      values.push_back(&value);
  }
  return values;
}

void fill(const program::Executor& executor) {
  uint64_t counter = 0;
  for (const program::Persistent* value : saved_values(executor.set())) {
    std::vector<uint8_t> bytes(static_cast<size_t>(value->bytes));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(++counter * 0x9e3779b97f4a7c15u >> 40);
    executor.write(value->name, bytes);
  }
}

Path save(const Path& folder, const models::ModelConfig& model, const program::Executor& executor) {
  CheckpointContent content;
  content.model.config_json = "{}";
  content.model.weights = read_only(weight_views(model, executor));
  content.optimizer = read_only(state_views(model, executor));
  return save_checkpoint(posix_file_system(), folder, content).path;
}

class HiddenMemoryTest : public testing::TestWithParam<const char*> {};

// Conv1D weights are transposed, fused projections interleaved.
TEST_P(HiddenMemoryTest, IsSavedAndLoaded) {
  program::CompileOptions options = options_for(GetParam());
  const auto here_device = device::make_cpu_device(compute_threads());
  const program::Executor here(program::compile({program::tiny_request()}, options), here_device);
  const auto device = std::make_shared<HidingDevice>();
  options.target = device->target();
  const auto set = program::compile({program::tiny_request()}, options);
  const program::Executor executor(set, device), other(set, device);
  fill(here);
  fill(executor);
  ScratchFolder folder;
  const Path saved = save(folder / "hidden", options.model, executor);
  const Path plain = save(folder / "plain", options.model, here);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_TRUE(read_file(saved / file) == read_file(plain / file)) << file;

  load_checkpoint(saved, weight_views(options.model, other), state_views(options.model, other));
  const auto values = saved_values(*set);
  EXPECT_GT(values.size(), 20u);
  for (const program::Persistent* value : values)
    EXPECT_TRUE(executor.read_all<char>(value->name) == other.read_all<char>(value->name)) << value->name;
}

INSTANTIATE_TEST_SUITE_P(Presets, HiddenMemoryTest, testing::Values("llama3-5m", "gpt2-124m", "pythia-70m"),
                         [](const auto& one) {
                           const std::string preset = one.param;
                           return preset.substr(0, preset.find('-'));
                         });

}  // namespace
}  // namespace strata::checkpoint
