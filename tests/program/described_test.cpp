// Programs for devices that are only described.
#include "device/described/bindings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "fixtures/tiny_program.h"
#include "graph/reshard.h"
#include "hardware/cluster_spec.h"
#include "program/price.h"

namespace strata::program {
namespace {

TEST(DescribedDevice, HasARowForEveryOp) {
  std::map<const graph::OpDef*, int> rows;
  for (const device::Binding& row : device::described_bindings()) ++rows[row.op];
  for (const graph::OpDef* op : graph::all_ops()) {
    if (op->has_kernel()) {
      EXPECT_EQ(rows[op], 1) << op->name << ": src/device/described/bindings.cpp";
    }
  }
}

// A made-up accelerator.
hardware::DeviceSpec accelerator() {
  hardware::DeviceSpec device;
  device.name = "an accelerator";
  device.kind = "gpu";
  device.cores = device.threads = 1;
  device.gemm_flops[hardware::Precision::kBf16] = 500e12;
  device.gemm_flops[hardware::Precision::kFp32] = 50e12;
  device.memory_bytes_per_s = 2e12;
  device.launch_seconds = 5e-6;
  return device;
}

int64_t bytes_of(const ProgramSet& set, graph::Role role) {
  int64_t bytes = 0;
  for (const Persistent& one : set.persistent)
    if (one.role == role) bytes += one.bytes;
  return bytes;
}

TEST(DescribedDevice, HoldsABf16CopyOfEachMatrixThatIsMultiplied) {
  CompileOptions options = tiny_options("llama3-5m");
  options.target = device::described_target(accelerator());
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    options.activations = dtype;
    const auto set = compile({tiny_request(2)}, options);
    const models::ModelConfig& model = options.model;
    const int64_t matrices =
        model.layers * (model.hidden_size * (2 * model.q_width() + 2 * model.kv_width()) +
                        3 * model.hidden_size * model.intermediate_size) +
        model.vocab_size * model.hidden_size;
    const int64_t expected = dtype == DType::kBF16 ? 2 * matrices : 0;
    const int64_t found = bytes_of(*set, graph::Role::kEncoded);
    EXPECT_GE(found, expected);
    EXPECT_LE(found, expected + 64 * 8 * model.layers) << "alignment of each value";
    if (dtype != DType::kBF16) continue;
    // The update writes them.
    for (const Instruction& one : set->programs[0].segment(Segment::kEncode, true))
      ADD_FAILURE() << set->programs[0].node_of(one).op->name << " after each update";
  }
}

TEST(DescribedDevice, IsPricedWithItsLaunches) {
  CompileOptions options = tiny_options("llama3-5m");
  options.target = device::described_target(accelerator());
  options.activations = DType::kBF16;
  const std::shared_ptr<const ProgramSet> places[] = {compile({tiny_request(2)}, options)};
  const StepPrice price = price_step(places, 0, accelerator());
  size_t instructions = 0;
  for (const Action& action : places[0]->programs[0].script)
    instructions += places[0]->programs[0].list_of(action).size();
  // Kernels of a tiny model take less time than their launch.
  EXPECT_NEAR(price.seconds, 5e-6 * static_cast<double>(instructions), 1e-9);
}

}  // namespace
}  // namespace strata::program
