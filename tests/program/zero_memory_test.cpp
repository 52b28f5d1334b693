// The memory of a rank under ZeRO, computed from the tensors of one rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "fixtures/tiny_program.h"

namespace strata::program {
namespace {

constexpr int64_t kRanks = 4;

int64_t persistent_bytes(const ProgramSet& set, graph::Role role) {
  int64_t bytes = 0;
  for (const Persistent& entry : set.persistent) bytes += entry.role == role ? entry.bytes : 0;
  return bytes;
}

// "layers.3" for "layers.3.mlp.down"; the whole name if it has no number.
std::string layer_of(const std::string& name) {
  for (size_t at = 0; at < name.size();) {
    const size_t end = std::min(name.find('.', at), name.size());
    if (end > at && name.find_first_not_of("0123456789", at) >= end) return name.substr(0, end);
    at = end + 1;
  }
  return name;
}

class ZeroMemory : public testing::TestWithParam<const char*> {
 protected:
  static std::shared_ptr<const ProgramSet> compiled(int64_t ranks, int zero) {
    CompileOptions options = tiny_options("llama3-5m");
    options.model = models::preset(GetParam());
    options.mesh = graph::Mesh::of(1, static_cast<int>(ranks), 1, 1);
    options.zero = zero;
    const bool encoder = options.model.architecture == models::Architecture::kEncoderDecoder;
    return compile({{.kind = Kind::kTrain,
                     .sequences = 1,
                     .sequence_length = 64,
                     .encoder_length = encoder ? int64_t{64} : 0,
                     .micro_batches = 2}},
                   options);
  }
};

// A quarter of weights, gradients and states, and at most two whole layers with their gradients: the current
// one, and the one in transfer.
TEST_P(ZeroMemory, StageThreeHoldsAQuarterAndTheGatheredLayers) {
  const auto one = compiled(1, 0), whole = compiled(kRanks, 0), mine = compiled(kRanks, 3);
  int64_t all = 0, largest_rows = 0;
  std::map<std::string, int64_t> layers;
  for (const graph::Parameter& parameter : one->programs[0].graph.parameters()) {
    const graph::Value& value = one->programs[0].graph.value(parameter.value);
    all += value.bytes();
    layers[layer_of(value.name)] += value.bytes();
    // The shard of each segment is rounded up to whole rows.
    const int64_t parts = std::max<int64_t>(1, std::ssize(value.segments));
    largest_rows += parts * value.bytes() / std::max<int64_t>(1, value.shape[0]);
  }
  for (const auto& [role, copies] :
       {std::pair{graph::Role::kParameter, 1}, {graph::Role::kGradient, 1}, {graph::Role::kState, 2}}) {
    EXPECT_GE(kRanks * persistent_bytes(*mine, role), copies * all) << name_of(role);
    // States include a count of updates besides the elements for each weight.
    EXPECT_LE(persistent_bytes(*mine, role), copies * (all / kRanks + largest_rows) + 64) << name_of(role);
  }
  std::vector<int64_t> sizes;
  for (const auto& [name, bytes] : layers) sizes.push_back(bytes);
  std::sort(sizes.rbegin(), sizes.rend());
  const auto workspace = [](const ProgramSet& set) { return set.arena_bytes - set.workspace_offset; };
  EXPECT_LE(workspace(*mine), workspace(*whole) + 2 * (sizes[0] + sizes[1]));
  const int64_t saved = 4 * all - 4 * (all / kRanks + largest_rows) - 2 * (sizes[0] + sizes[1]);
  if (saved > 0) {
    EXPECT_LE(mine->arena_bytes, whole->arena_bytes - saved);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ZeroMemory, testing::Values("llama3-29m", "gpt2-124m", "t5-small"),
                         [](const auto& preset) {
                           std::string name = preset.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace strata::program
