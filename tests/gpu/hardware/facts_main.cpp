// gpu_facts FOLDER [KERNELS [DIVISOR]]: measures a GPU and its driver; writes FOLDER/facts.json after every
// section. KERNELS contains PTX and cubins of tests/gpu/kernels/samples.cu, whose loading is timed. Sizes and
// loops are divided by DIVISOR, to try the program without a GPU.
#include <fmt/core.h>

#include <cstdio>
#include <fstream>
#include <iterator>

#include "hardware/facts.h"

namespace strata::gpu_tests::facts {
namespace {

Json attributes() {
  const std::pair<const char*, int> kNames[] = {
      {"multiprocessors", 16},
      {"clock_khz", 13},
      {"memory_clock_khz", 36},
      {"memory_bus_bits", 37},
      {"l2_bytes", 38},
      {"persisting_l2_bytes", 108},
      {"max_threads_per_block", 1},
      {"max_threads_per_multiprocessor", 39},
      {"max_blocks_per_multiprocessor", 106},
      {"registers_per_block", 12},
      {"registers_per_multiprocessor", 82},
      {"shared_bytes_per_block", 8},
      {"shared_bytes_per_block_opt_in", 97},
      {"shared_bytes_per_multiprocessor", 81},
      {"reserved_shared_bytes_per_block", 111},
      {"constant_bytes", 9},
      {"copy_engines", 40},
      {"concurrent_kernels", 31},
      {"unified_addressing", 41},
      {"managed_memory", 83},
      {"concurrent_managed_access", 89},
      {"pageable_memory_access", 88},
      {"host_register", 99},
      {"cooperative_launch", 95},
      {"cluster_launch", 120},
      {"tensor_maps", 127},
      {"memory_pools", 115},
      {"multicast", 132},
      {"ecc", 32},
      {"compute_mode", 20},
      {"stream_priorities", 78},
      {"gpu_direct_rdma", 116},
      {"single_to_double_ratio", 87},
      {"numa_node_of_host", 134},
  };
  const cuda::Card& gpu = gpu_tests::card();
  Json json;
  int version = 0;
  size_t free = 0, total = 0;
  check(driver().driver_version(&version), "cuDriverGetVersion");
  check(driver().memory_info(&free, &total), "cuMemGetInfo");
  json["name"] = gpu.name;
  json["capability"] = gpu.capability;
  json["driver_version"] = version;
  json["memory_bytes"] = total;
  json["memory_free_bytes"] = free;
  for (const auto& [name, number] : kNames) json[name] = gpu.attribute(number);
  return json;
}

std::string file_text(const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Json loading(const std::string& folder) {
  Json json;
  json["method"] =
      "host clock of cuModuleLoadDataEx and then cuModuleGetFunction, median of 3; the driver's own cache "
      "counts unless "
      "CUDA_CACHE_DISABLE=1";
  const auto time = [&](const std::string& name, const std::string& image, const char* kernel) {
    if (image.empty()) return;
    try {
      std::vector<double> loads, functions, unloads;
      for (int n = 0; n < 3; ++n) {
        cuda::Module module = nullptr;
        loads.push_back(host_us([&] { module = load(image); }));
        functions.push_back(host_us([&] { function(module, kernel); }));
        unloads.push_back(host_us([&] { check(driver().unload_module(module), "cuModuleUnload"); }));
      }
      json[name] = {{"bytes", image.size()},
                    {"load_us", median(loads)},
                    {"function_us", median(functions)},
                    {"unload_us", median(unloads)}};
    } catch (const std::exception& error) {
      json[name] = {{"error", error.what()}};
    }
  };
  time("empty_kernel_ptx", std::string(kFactHead) + kEmptyKernel, "nothing");
  time("copy_kernel_ptx", std::string(kFactHead) + kCopyKernel, "copy16");
  for (const char* name :
       {"samples_sm_80.ptx", "samples_sm_90a.ptx", "samples_sm_80.cubin", "samples_sm_90a.cubin"})
    time(name, file_text(folder + "/" + name), "gemm_bf16");
  return json;
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.size() > 3) {
    fmt::print(stderr, "usage: gpu_facts FOLDER [KERNELS [DIVISOR]]\n");
    return 2;
  }
  const Scale scale(arguments.size() > 2 ? std::stoul(arguments[2]) : 1);
  const double open_us = host_us([] { gpu_tests::card().use(); });
  Json all;
  all["open_driver_and_context_us"] = open_us;
  int result = 0;
  const std::string file = arguments[0] + "/facts.json";
  const auto section = [&](const char* name, const std::function<Json()>& measure) {
    double us = 0;
    try {
      us = host_us([&] { all[name] = measure(); });
      all[name]["seconds"] = us / 1e6;
      fmt::print("{}: {:.1f} s\n", name, us / 1e6);
    } catch (const std::exception& error) {
      all[name] = {{"error", error.what()}};
      fmt::print("{}: {}\n", name, error.what());
      result = 1;
    }
    std::fflush(stdout);
    std::ofstream(file) << all.dump(1) << '\n';
  };
  section("card", attributes);
  section("launches", [&] { return launches(scale); });
  section("clocks_and_latency", [&] { return clocks_and_latency(scale); });
  section("device_copies", [&] { return device_copies(scale); });
  section("arithmetic", [&] { return arithmetic(scale); });
  section("host_copies", [&] { return host_copies(scale); });
  section("loading", [&] { return loading(arguments.size() > 1 ? arguments[1] : "."); });
  section("allocation", [&] { return allocation(scale); });
  section("concurrency", [&] { return concurrency(scale); });
  return result;
}

}  // namespace
}  // namespace strata::gpu_tests::facts

int main(int argc, char** argv) {
  try {
    return strata::gpu_tests::facts::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_facts: {}\n", error.what());
    return 1;
  }
}
