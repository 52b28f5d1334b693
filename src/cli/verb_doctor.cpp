// strata doctor: this machine's capabilities and missing parts, or problems of a run.
#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>

#include "base/clock.h"
#include "base/control_group.h"
#include "base/error.h"
#include "base/json.h"
#include "base/kernel_files.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/version.h"
#include "benchmarks/bench_model.h"
#include "cli/build_facts.h"
#include "cli/measured_peaks.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "comm/measure.h"
#include "device/open/open.h"
#include "device/open/tested.h"
#include "hardware/device_spec.h"
#include "library/diagnosis.h"
#include "plan/doctor_file.h"
#include "self_test/self_test.h"

namespace strata::cli {
namespace {

using Json = nlohmann::ordered_json;

struct DoctorOptions {
  std::string run;
  bool quick = false;
  bool json = false;
  bool self_test = false;
  double minutes = 8;
  std::string report, expected;
  bool force = false;
};

// The GPU of this machine, or why there is none that a run can use.
struct Gpu {
  std::shared_ptr<device::Device> device;
  std::string missing;
};
Gpu find_gpu() {
  try {
    return {device::open(device::Kind::kCuda), ""};
  } catch (const WorldError& error) {
    return {nullptr, error.what()};
  }
}

// Whether this machine seems to have an NVIDIA GPU; its driver may be missing.
bool has_gpu_files() {
  std::error_code error;
  return std::filesystem::exists("/dev/nvidiactl", error) || std::filesystem::exists("/dev/nvidia0", error);
}

constexpr const char* kUntested = "not checked yet with this version: strata doctor --self-test";

std::string gpu_text(const Gpu& gpu) {
  const hardware::DeviceSpec& spec = gpu.device->spec();
  return fmt::format("{}, {:.1f} GB, compute capability {}.{}, {}; {}", spec.name,
                     static_cast<double>(spec.memory_bytes) / 1e9, spec.architecture / 10,
                     spec.architecture % 10, spec.library,
                     device::is_tested(*gpu.device) ? "passed its self-test" : kUntested);
}

Json gpu_json(const Gpu& gpu) {
  if (gpu.device == nullptr) return nullptr;
  Json out = parse_json<Json>(hardware::to_json(gpu.device->spec()));
  out["memory_free"] = gpu.device->free_memory();
  out["self_test_passed"] = device::is_tested(*gpu.device);
  return out;
}

// The choice in brackets: "always [madvise] never".
std::string huge_pages() {
  const std::string text = kernel_file("/sys/kernel/mm/transparent_hugepage/enabled");
  const size_t open = text.find('['), close = text.find(']');
  return open == std::string::npos || close == std::string::npos ? "unknown"
                                                                 : text.substr(open + 1, close - open - 1);
}

// Missing or badly configured parts, and their remedies.
std::vector<std::string> advice(const hardware::DeviceSpec& machine, const std::string& mpi, const Gpu& gpu) {
  std::vector<std::string> out = missing_kernel_files();
  if (gpu.device == nullptr && has_gpu_files()) out.push_back("the GPU cannot be used: " + gpu.missing);
  if (!machine.isa.avx2 && !machine.isa.neon)
    out.push_back("the processor has no AVX2 or NEON: plain kernels, slow");
  if (!machine.isa.avx512_bf16 && !machine.isa.amx)
    out.push_back("no bf16 instructions: runs compute in fp32");
  if (huge_pages() == "never") {
    out.push_back(
        "transparent huge pages are off, so the first access to memory is slow: as root, echo madvise > "
        "/sys/kernel/mm/transparent_hugepage/enabled");
  }
  if (mpi.empty())
    out.push_back("no MPI, which several machines will need: apt install openmpi-bin libopenmpi-dev");
  return out;
}

std::string mebibytes(int64_t bytes) {
  return bytes >= 1 << 20 ? fmt::format("{:.0f} MiB", static_cast<double>(bytes) / (1 << 20))
                          : fmt::format("{:.0f} KiB", static_cast<double>(bytes) / 1024);
}

// A limit of a parent may leave less than a lower limit of the process's own group.
std::string memory_limit_text(const ControlGroupLimits& groups) {
  std::string text = fmt::format("{} in {}", human_bytes(static_cast<double>(groups.memory->bytes)),
                                 groups.memory->source.string());
  if (groups.available && groups.available->source != groups.memory->source) {
    text += fmt::format("; {} left by {}", human_bytes(static_cast<double>(groups.available->bytes)),
                        groups.available->source.string());
  }
  return text;
}

// Limits by control groups, affinity and OMP_NUM_THREADS; null if there are none.
Json limits_json() {
  const ProcessorLimit cores = processor_limit();
  const ControlGroupLimits groups = read_control_groups();
  Json out{{"processors", nullptr}, {"cpu_quota", nullptr}, {"memory", nullptr}, {"memory_left", nullptr}};
  if (!cores.source.empty()) out["processors"] = {{"count", cores.processors}, {"source", cores.source}};
  if (groups.cpu)
    out["cpu_quota"] = {{"processors", groups.cpu->processors}, {"source", groups.cpu->source.string()}};
  if (groups.memory)
    out["memory"] = {{"bytes", groups.memory->bytes}, {"source", groups.memory->source.string()}};
  if (groups.available)
    out["memory_left"] = {{"bytes", groups.available->bytes}, {"source", groups.available->source.string()}};
  return out;
}

void print_text(const hardware::DeviceSpec& machine, const std::string& mpi, const Gpu& gpu) {
  const auto row = [](const std::string& name, const std::string& value) {
    print_out(fmt::format("{:<16}{}\n", name, value));
  };
  row("strata", std::string(program_version()));
  row("processor", machine.name);
  const ProcessorLimit cores = processor_limit();
  row("cores", fmt::format("{} that this process may use{}", machine.cores,
                           cores.source.empty() ? "" : ", limited by " + cores.source));
  row("instructions", machine.isa.str());
  row("caches", fmt::format("L1 {}, L2 {} a core; L3 {}", mebibytes(machine.l1_bytes),
                            mebibytes(machine.l2_bytes), mebibytes(machine.l3_bytes)));
  row("memory", fmt::format("{:.1f} GB, {:.1f} GB available", static_cast<double>(machine.memory_bytes) / 1e9,
                            static_cast<double>(available_memory()) / 1e9));
  const ControlGroupLimits groups = read_control_groups();
  if (groups.memory) row("memory limit", memory_limit_text(groups));
  row("huge pages", huge_pages());
  row("devices", gpu.device == nullptr ? "cpu" : "cpu, cuda");
  if (gpu.device != nullptr) row("GPU", gpu_text(gpu));
  row("MPI", mpi.empty() ? "not found" : mpi);
  if (machine.gemm_flops[hardware::Precision::kFp32] > 0) {
    row("matmul peak",
        fmt::format("{:.0f} GFLOP/s fp32, {:.0f} GFLOP/s bf16 ({} threads, {})",
                    machine.gemm_flops[hardware::Precision::kFp32] / 1e9,
                    machine.gemm_flops[hardware::Precision::kBf16] / 1e9, machine.threads, machine.source));
    row("bandwidth", fmt::format("{:.0f} GB/s memory, {:.0f} GB/s cache", machine.memory_bytes_per_s / 1e9,
                                 machine.cache_bytes_per_s / 1e9));
    if (machine.exchange_bytes_per_s > 0)
      row("local ranks", fmt::format("{:.1f} GB/s between two, {:.0f} us to start",
                                     machine.exchange_bytes_per_s / 1e9, machine.exchange_seconds * 1e6));
  } else {
    row("matmul peak", "not measured");
  }
  std::string list;
  const Json found = library_versions();
  for (const auto& [name, version] : found.items()) {
    list += (list.empty() ? "" : ", ") + name + " " + version.get<std::string>();
  }
  row("libraries", list);
  for (const std::string& line : advice(machine, mpi, gpu)) row("note", line);
}

// This host as a cluster of one rank and of two.
Json cluster_json(const hardware::DeviceSpec& machine) {
  std::vector<hardware::DeviceSpec> by_ranks{machine};
  std::vector<planning::MeasuredCollective> collectives;
  if (machine.threads > 1) {
    by_ranks.push_back(benchmarks::measured_rank(2, machine.threads / 2));
    by_ranks.back().memory_bytes /= 2;
    for (const comm::CollectiveTime& one : comm::measure_collectives())
      collectives.push_back({std::string(name_of(one.kind)), one.bytes, one.seconds});
  }
  return planning::doctor_cluster(by_ranks, collectives);
}

// Each part's result as a line of a file, complete on the disk before the next part begins.
class SelfTestReport {
 public:
  explicit SelfTestReport(const std::string& path) : path_(path) {
    if (!path_.empty()) write_file_atomically(posix_file_system(), path_, "");
  }
  void add(const self_test::Part& part) {
    if (path_.empty()) return;
    lines_ += dump_json(self_test::to_json(part)) + "\n";
    write_file_atomically(posix_file_system(), path_, lines_);
  }

 private:
  Path path_;
  std::string lines_;
};

// 0 if the GPU passed, 1 if it did not.
int test_gpu(const DoctorOptions& options) {
  if (!options.report.empty()) check_output_file("--report", options.report, options.force);
  const std::shared_ptr<device::Device> gpu = device::open(device::Kind::kCuda);
  SelfTestReport report(options.report);
  const self_test::Result result =
      self_test::test_device(gpu, {.minutes = options.minutes,
                                   .expected = options.expected,
                                   .program = {},
                                   .finished =
                                       [&](const self_test::Part& part) {
                                         report.add(part);
                                         log_info("{}: {}, {}", part.name, name_of(part.state), part.summary);
                                       },
                                   .progress = [](const std::string& line) { log_info("{}", line); }});
  const bool kept = result.passed() && device::record_tested(posix_file_system(), *gpu);
  if (options.json) {
    Json parts = Json::array();
    for (const self_test::Part& part : result.parts) parts.push_back(self_test::to_json(part));
    print_out(dump_json(Json{{"device", result.device},
                             {"passed", result.passed()},
                             {"parts", parts},
                             {"seconds", result.seconds}}) +
              "\n");
    return result.passed() ? 0 : 1;
  }
  print_out(result.device + "\n");
  for (const self_test::Part& part : result.parts) {
    print_out(fmt::format("{:<8} {:<8} {:>5.0f} s  {}\n", part.name, name_of(part.state), part.seconds,
                          part.summary));
    for (const std::string& failure : part.failures) print_out("  failed: " + failure + "\n");
  }
  if (result.passed()) {
    print_out(fmt::format("passed in {:.0f} s{}\n", result.seconds,
                          kept ? "; device.kind = \"auto\" uses this GPU from now on" : ""));
  } else if (result.failed()) {
    print_out(
        "not passed: do not train on this GPU; please report what failed, with the file of --report or the output of "
        "--json\n");
  } else {
    print_out("not passed: some parts were cut or not run; give it more time with --minutes\n");
  }
  return result.passed() ? 0 : 1;
}

int doctor(const DoctorOptions& options) {
  if (options.self_test) return test_gpu(options);
  if (!options.run.empty()) {
    const diagnosis::Diagnosis found = library::diagnose_run(options.run);
    print_out("{}", options.json ? library::json_of(found) + "\n" : library::text_of(found));
    return 0;
  }
  const hardware::DeviceSpec machine = options.quick ? describe_machine() : measure_machine();
  const std::string mpi = find_program("mpirun").value_or(Path()).string();
  const Gpu gpu = find_gpu();
  if (!options.json) {
    print_text(machine, mpi, gpu);
    return 0;
  }
  Json out = {{"version", program_version()}, {"device", parse_json<Json>(hardware::to_json(machine))}};
  if (!options.quick) out["cluster"] = cluster_json(machine);
  out["memory_available"] = available_memory();
  out["limits"] = limits_json();
  out["huge_pages"] = huge_pages();
  out["gpu"] = gpu_json(gpu);
  out["mpi"] = mpi.empty() ? Json() : Json(mpi);
  out["libraries"] = library_versions();
  out["notes"] = advice(machine, mpi, gpu);
  print_out(dump_json(out) + "\n");
  return 0;
}

}  // namespace

void add_doctor(Verb root) {
  auto options = std::make_shared<DoctorOptions>();
  Verb verb = root.verb("doctor", "Measure this machine and report missing parts, or diagnose a run",
                        "strata doctor runs/shakespeare");
  const Option run =
      verb.option("RUN", options->run, "Diagnose the run in this folder, or of this name in runs/");
  const Option quick =
      verb.flag("--quick", options->quick, "Measure nothing; show earlier measurements").excludes(run);
  const Option test =
      verb.flag("--self-test", options->self_test,
                "Check the GPU: every op, small models and a resumed run, against the processor")
          .excludes(run)
          .excludes(quick);
  verb.option("--minutes", options->minutes,
              "How long the self-test may take; it lists the parts that did not run")
      .needs(test)
      .range(0, 1440)
      .show_default();
  verb.option("--report", options->report,
              "A file for the result of each part, as soon as it is there: JSON, a line each")
      .type_name("FILE")
      .needs(test);
  verb.option(
          "--expected", options->expected,
          "Results of all kernels that were recorded without a GPU, as bench/gpu.sh has them, to compare with")
      .type_name("FILE")
      .needs(test);
  verb.flag("--force", options->force, "Overwrite the file of --report").needs(test);
  verb.json(options->json);
  verb.action([options] { return doctor(*options); });
}

}  // namespace strata::cli
