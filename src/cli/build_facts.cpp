#include "cli/build_facts.h"

#include <dnnl.h>
#include <fmt/core.h>

#include <CLI/Version.hpp>

#include "base/version.h"
#include "cli/measured_peaks.h"
#include "data/input/arrow_support.h"
#include "data/tokenizer/train_unigram.h"
#include "device/open/open.h"

namespace strata::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("g++ {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

// The names that STRATA_MAX_CPU_ISA takes; "baseline" is always available.
Json names_of(const hardware::IsaFlags& isa) {
  Json names{"baseline"};
  if (isa == hardware::IsaFlags()) return names;
  const std::string all = isa.str();
  for (size_t begin = 0; begin <= all.size();) {
    const size_t end = std::min(all.find('+', begin), all.size());
    names.push_back(all.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

}  // namespace

Json library_versions() {
  const dnnl_version_t* dnnl = dnnl_version();
  return {{"oneDNN", fmt::format("{}.{}.{}", dnnl->major, dnnl->minor, dnnl->patch)},
          {"Highway", STRATA_HIGHWAY_VERSION},
          {"simdjson", STRATA_SIMDJSON_VERSION},
          {"nlohmann-json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                                        NLOHMANN_JSON_VERSION_PATCH)},
          {"fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
          {"CLI11", CLI11_VERSION}};
}

std::string build_facts_json() {
  return dump_json(Json{{"version", program_version()},
                        {"compiler", compiler()},
                        {"instruction_sets",
                         {{"compiled", names_of(device::compiled_instruction_sets())},
                          {"used", names_of(describe_machine().isa)}}},
                        {"mpi", STRATA_WITH_MPI != 0},
                        {"arrow", data::has_arrow()},
                        {"sentencepiece", data::can_train_unigram()},
                        {"libraries", library_versions()}});
}

}  // namespace strata::cli
