// The data that kernels move in a model's step, compared with the least, and the committed table of kernels (tools/gpu-table.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>

#include "base/file.h"
#include "device/open/open.h"
#include "fixtures/tiny_program.h"
#include "plan/csv.h"
#include "twin/twin.h"

namespace strata::gpu_tests {
namespace {

using Row = std::map<std::string, std::string>;

// By the first column.
std::map<std::string, Row> rows_of(const std::string& csv) {
  const std::vector<planning::CsvRow> all = planning::parse_csv(csv, "the kernels' table");
  std::map<std::string, Row> rows;
  for (size_t n = 1; n < all.size(); ++n) {
    for (size_t i = 0; i < all[n].size(); ++i) rows[all[n].front().text][all[0][i].text] = all[n][i].text;
  }
  return rows;
}

std::map<std::string, Row> table() {
  return rows_of(read_file(Path(STRATA_GPU_TABLE)));
}

double number(const Row& row, const std::string& column) {
  const auto found = row.find(column);
  return found == row.end() || found->second.empty() ? 0 : std::stod(found->second);
}

// The limit of sectors and passes of tuned kernels, relative to the least. Others, by the beginning of their names, with the
// reason.
constexpr double kMost = 1.1;
constexpr std::pair<const char*, const char*> kAboveLimit[] = {
    {"attention_f32_", "plain tiles: lanes read heads element by element"},
    {"cast_f32_bf16", "stores 8 fp32 elements a lane, 32 bytes apart"},
    {"column_sums_", "a column a lane"},
    {"embedding_backward_", "adds fp32 rows from bf16: vectors of 8 elements are 32 bytes"},
    {"embedding_sort", "a sort within shared memory"},
    {"expert_product_", "plain tiles: 16 elements of each listed row at a time"},
    {"experts_slots", "writes single numbers to the places of a sort"},
    {"layer_norm_backward_weight_bf16", "fp32 sums of 8 columns a lane, once a block"},
    {"qk_norm_backward_weight_bf16", "fp32 sums of 8 columns a lane, once a block"},
    {"rms_norm_backward_weight_bf16", "fp32 sums of 8 columns a lane, once a block"},
    {"rope_f32", "adjacent pairs: a lane reads two vectors side by side, as deepseek3 has them"},
    {"rope_table", "once a program"},
    {"adamw8bit_update", "finds values in a table in shared memory"},
};

void expect_few(const std::string& kernel, const char* what, double to_least) {
  const bool exempt = std::any_of(std::begin(kAboveLimit), std::end(kAboveLimit),
                                  [&](const auto& one) { return kernel.starts_with(one.first); });
  if (exempt) return;
  EXPECT_LE(to_least, kMost) << kernel << ": " << what << " to the least";
}

// Kernels that may spill registers on some architecture, and the most bytes, stored and loaded. The sums of these kernels
// take most of the 255 registers that a thread has, or of the 168 that three blocks a multiprocessor leave.
constexpr std::pair<const char*, int> kSpilling[] = {
    {"attention_backward_keys_128", 60},         {"attention_backward_keys_64", 124},
    {"attention_backward_queries_128", 16},      {"attention_backward_queries_128_capped", 16},
    {"attention_backward_queries_64_capped", 8}, {"attention_forward_128", 88},
    {"attention_forward_128_capped", 16},        {"attention_forward_64", 88},
};

// Kernels that no run of tools/gpu-table.py starts, with what those runs lack.
constexpr const char *kWideHeads = "heads above 128 elements",
                     *kCappedHeads = "capped scores of heads of 96 and 128",
                     *kOtherGemm = "GEMMs of this type and layout", *kUnaligned = "rows of odd widths",
                     *kOtherType = "values of this type";
constexpr std::pair<const char*, const char*> kUnmeasured[] = {
    {"attention_backward_dk_192", kWideHeads},
    {"attention_backward_dk_192_capped", kWideHeads},
    {"attention_backward_dk_256", kWideHeads},
    {"attention_backward_dk_256_capped", kWideHeads},
    {"attention_backward_dv_192", kWideHeads},
    {"attention_backward_dv_192_capped", kWideHeads},
    {"attention_backward_dv_256", kWideHeads},
    {"attention_backward_dv_256_capped", kWideHeads},
    {"attention_backward_keys_128_capped", kCappedHeads},
    {"attention_backward_keys_96_capped", kCappedHeads},
    {"attention_backward_queries_128_capped", kCappedHeads},
    {"attention_backward_queries_192", kWideHeads},
    {"attention_backward_queries_192_capped", kWideHeads},
    {"attention_backward_queries_256", kWideHeads},
    {"attention_backward_queries_256_capped", kWideHeads},
    {"attention_backward_queries_96_capped", kCappedHeads},
    {"attention_f32_backward_keys_256", kWideHeads},
    {"attention_f32_backward_queries_256", kWideHeads},
    {"attention_f32_forward_256", kWideHeads},
    {"attention_forward_128_capped", kCappedHeads},
    {"attention_forward_192", kWideHeads},
    {"attention_forward_192_capped", kWideHeads},
    {"attention_forward_256", kWideHeads},
    {"attention_forward_256_capped", kWideHeads},
    {"attention_forward_96_capped", kCappedHeads},
    {"cross_entropy_bf16_bf16", kOtherType},
    {"cross_entropy_bf16_bf16_any", kOtherType},
    {"fill_bf16", kOtherType},
    {"gemm_nn_any_f32", kOtherGemm},
    {"gemm_nn_f32", kOtherGemm},
    {"gemm_sum_bf16", kOtherGemm},
    {"gemm_sum_f32", kOtherGemm},
    {"gemm_tn_any_bf16", kOtherGemm},
    {"gemm_tn_bf16", kOtherGemm},
    {"qk_norm_backward_input_bf16_any", kUnaligned},
    {"qk_norm_backward_input_f32_any", kUnaligned},
    {"qk_norm_backward_weight_bf16_any", kUnaligned},
    {"qk_norm_backward_weight_f32_any", kUnaligned},
    {"qk_norm_forward_bf16_any", kUnaligned},
    {"qk_norm_forward_f32_any", kUnaligned},
    {"row_parts_2", kUnaligned},
    {"store_cache_rows_bf16_any", kUnaligned},
    {"store_cache_rows_f32_any", kUnaligned},
    {"transpose_bf16", kOtherType},
    {"transpose_f32", kOtherType},
};

template <typename Second, size_t kCount>
const Second* find(const std::pair<const char*, Second> (&table)[kCount], const std::string& kernel) {
  for (const auto& [name, value] : table)
    if (kernel == name) return &value;
  return nullptr;
}

TEST(GpuTable, HasEveryKernel) {
  const std::map<std::string, Row> rows = table();
  ASSERT_FALSE(rows.empty()) << STRATA_GPU_TABLE;
  const std::regex entry(R"(\.entry (\w+)\()");
  std::map<std::string, std::string> compiled;  // kernel to module
  for (const auto& file : std::filesystem::directory_iterator(STRATA_GPU_KERNELS)) {
    const std::string name = file.path().filename().string();
    if (!name.ends_with("_sm_80.ptx")) continue;
    std::ifstream ptx(file.path());
    for (std::string line; std::getline(ptx, line);) {
      std::smatch match;
      if (line.find(".entry") != line.npos && std::regex_search(line, match, entry))
        compiled[match[1]] = name.substr(0, name.size() - std::string("_sm_80.ptx").size());
    }
  }
  ASSERT_FALSE(compiled.empty());
  for (const auto& [kernel, module] : compiled) {
    const auto row = rows.find(kernel);
    if (row == rows.end()) {
      ADD_FAILURE() << kernel << " of " << module << ".cu has no row: run tools/gpu-table.py";
      continue;
    }
    EXPECT_EQ(row->second.at("module"), module) << kernel;
    double spilled = 0;
    for (const char* gpu : {"80", "90a", "100a"}) {
      const std::string of = gpu;
      spilled = std::max(spilled, number(row->second, "spills_" + of));
      EXPECT_GT(number(row->second, "registers_" + of), 0) << kernel;
      EXPECT_GT(number(row->second, "occupancy_" + of), 0) << kernel;
    }
    const int* const allowed = find(kSpilling, kernel);
    EXPECT_LE(spilled, allowed == nullptr ? 0 : *allowed) << kernel << " spills registers";
    const std::string& measured = row->second.at("measured");
    EXPECT_EQ(measured.empty(), find(kUnmeasured, kernel) != nullptr)
        << kernel << ": no run of tools/gpu-table.py starts it, or kUnmeasured names one that runs";
    // Cases of ops have small and odd sizes, so the ends of rows count for much.
    if (measured != "steps") continue;
    expect_few(kernel, "sectors", number(row->second, "sectors_to_least"));
    expect_few(kernel, "passes", number(row->second, "passes_to_least"));
  }
  for (const auto& [kernel, row] : rows)
    EXPECT_TRUE(compiled.contains(kernel)) << kernel << " is not compiled any more: run tools/gpu-table.py";
}

// Sizes that fill tiles: excess then comes from the kernels.
TEST(GpuTable, AStepMovesLittleAboveTheLeast) {
  const Twin twin;
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    twin.restart("traffic=none");
    program::CompileOptions options = program::tiny_options("llama3-5m");
    options.model.vocab_size = 512;
    options.model.hidden_size = 128;
    options.model.layers = 1;
    options.model.heads = 2;
    options.model.kv_heads = 1;
    options.model.head_dim = 64;
    options.model.intermediate_size = 256;
    options.activations = dtype;
    const std::shared_ptr<device::Device> gpu = device::open(device::Kind::kCuda);
    options.target = gpu->target();
    program::Executor executor(
        compile({{.kind = program::Kind::kTrain, .sequences = 1, .sequence_length = 64, .micro_batches = 1}},
                options),
        gpu);
    program::fill_tiny(executor);
    program::write_hyper(executor, {.max_grad_norm = 1, .lr = 1e-2f});
    executor.run_script(0);
    executor.read<double>("loss_sum");
    const std::map<std::string, Row> moved = rows_of(twin.traffic());
    EXPECT_GT(moved.size(), 20u);
    for (const auto& [kernel, row] : moved) {
      SCOPED_TRACE(row.at("most_excess"));
      expect_few(kernel, "sectors", number(row, "sectors") / std::max(1.0, number(row, "least_sectors")));
      expect_few(kernel, "passes", number(row, "passes") / std::max(1.0, number(row, "least_passes")));
    }
  }
}

}  // namespace
}  // namespace strata::gpu_tests
