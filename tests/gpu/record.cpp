// gpu_record FILE [CASE…]: records the results of the ops' cases on the PTX executor, through the twin of the driver, and the
// processor's losses of the small models, for `strata doctor --self-test --expected FILE` on a machine with a GPU. CASE: only
// those whose names begin so, without losses. STRATA_GPU_KERNELS is the folder of the kernels' PTX.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "base/error.h"
#include "base/version.h"
#include "device/open/open.h"
#include "plan/csv.h"
#include "self_test/cases.h"
#include "self_test/expected.h"
#include "self_test/small_models.h"
#include "twin/twin.h"

namespace strata {
namespace {

constexpr int kMultiprocessors = 132, kArchitecture = 90;  // of an H100 or H200

// The text of each kernel.
std::map<std::string, std::string> texts_of_kernels() {
  const char* folder = std::getenv("STRATA_GPU_KERNELS");
  if (folder == nullptr) throw ConfigError("set STRATA_GPU_KERNELS to the folder of the kernels' PTX");
  std::map<std::string, std::string> texts;
  const std::regex entry(R"(\.entry (\w+)\()");
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (!file.path().filename().string().ends_with("_sm_80.ptx")) continue;
    const std::string all = read_file(file.path());
    const std::sregex_iterator end;
    for (std::sregex_iterator at(all.begin(), all.end(), entry); at != end;) {
      const auto begin = static_cast<size_t>(at->position());
      const std::string name = (*at)[1];
      ++at;
      texts[name] =
          all.substr(begin, at == end ? std::string::npos : static_cast<size_t>(at->position()) - begin);
    }
  }
  return texts;
}

// Their last bits are the GPU's own (PTX ISA, "Floating Point Instructions").
bool is_approximate(const std::string& text) {
  static const std::regex own(R"(\.approx|\.full|\bex2\.|\blg2\.|\btanh\.)");
  return std::regex_search(text, own);
}

std::map<std::string, std::string> launches(const gpu_tests::Twin& twin) {
  const std::vector<planning::CsvRow> rows = planning::parse_csv(twin.traffic(), "the twin's traffic");
  size_t column = 0;
  while (rows.at(0).at(column).text != "launches") ++column;
  std::map<std::string, std::string> out;
  for (size_t i = 1; i < rows.size(); ++i) out[rows[i].front().text] = rows[i][column].text;
  return out;
}

void record(const std::string& file, const std::set<std::string>& only) {
  const gpu_tests::Twin twin;
  twin.restart(fmt::format("traffic=/dev/null;multiprocessors={};arch={}", kMultiprocessors, kArchitecture));
  const std::map<std::string, std::string> texts = texts_of_kernels();
  const std::shared_ptr<device::Device> gpu = device::open(device::Kind::kCuda);
  self_test::Expected out{.program = std::string(program_version()),
                          .multiprocessors = kMultiprocessors,
                          .architecture = kArchitecture,
                          .cases = {},
                          .curves = {}};
  std::map<std::string, std::string> before;
  for (const device::OpCase& one : self_test::cases_of_ops()) {
    if (!only.empty() && std::none_of(only.begin(), only.end(),
                                      [&](const std::string& begin) { return one.name.starts_with(begin); }))
      continue;
    const auto outputs = self_test::run_as(gpu, one, kMultiprocessors);
    if (!outputs) continue;
    self_test::ExpectedCase& to = out.cases[one.name];
    for (size_t o = 0; o < outputs->size(); ++o) {
      const ops::Tensor& tensor = (*outputs)[o];
      const bool opaque =
          std::find(one.opaque.begin(), one.opaque.end(), static_cast<int>(o)) != one.opaque.end();
      to.outputs.push_back(opaque ? std::vector<uint8_t>{} : self_test::bytes_of(tensor));
    }
    std::map<std::string, std::string> after = launches(twin);
    for (const auto& [kernel, count] : after) {
      if (const auto old = before.find(kernel); old != before.end() && old->second == count) continue;
      const std::string& text = texts.at(kernel);
      to.kernels.push_back(kernel);
      to.approximate = to.approximate || is_approximate(text);
      to.mma = to.mma || text.find("mma.sync") != std::string::npos;
    }
    before = std::move(after);
  }
  if (const std::string violation = twin.violation(); !violation.empty())
    throw InternalError("{}", violation);
  if (only.empty()) {
    const std::shared_ptr<device::Device> processor = device::open(device::Kind::kCpu);
    for (const self_test::SmallModel& model : self_test::small_models())
      out.curves[model.name] = self_test::losses_of(processor, model);
  }
  const std::string bytes = self_test::to_bytes(out);
  write_file_atomically(posix_file_system(), file, bytes);
  const auto count = [&](auto is) {
    return std::count_if(out.cases.begin(), out.cases.end(), [&](const auto& one) { return is(one.second); });
  };
  fmt::print("{} cases, {} with approximate instructions, {} with mma; {} losses; {} bytes\n",
             out.cases.size(), count([](const auto& one) { return one.approximate; }),
             count([](const auto& one) { return one.mma; }), out.curves.size(), bytes.size());
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: gpu_record FILE [CASE...]\n");
    return 2;
  }
  try {
    strata::record(argv[1], {argv + 2, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_record: {}\n", error.what());
    return 1;
  }
  return 0;
}
