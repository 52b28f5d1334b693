#include "self_test/expected.h"

#include <zstd.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace strata::self_test {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;
constexpr unsigned long long kMostBytes = 1ull << 30;

std::string unpacked(const Path& file) {
  const std::string packed = read_file(file);
  const unsigned long long size = ZSTD_getFrameContentSize(packed.data(), packed.size());
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN || size > kMostBytes)
    throw DataError(
        "{}: found no results of a GPU's kernels, expected the file that is packed with bench/gpu.sh",
        file.string());
  std::string out(size, '\0');
  const size_t got = ZSTD_decompress(out.data(), out.size(), packed.data(), packed.size());
  if (ZSTD_isError(got) || got != size)
    throw DataError("{} is damaged ({}): unpack the bundle again", file.string(),
                    ZSTD_isError(got) ? ZSTD_getErrorName(got) : "it ends early");
  return out;
}

}  // namespace

std::string to_bytes(const Expected& expected) {
  Json cases = Json::object();
  for (const auto& [name, one] : expected.cases) {
    Json outputs = Json::array();
    for (const std::vector<uint8_t>& bytes : one.outputs) outputs.push_back(Json::binary(bytes));
    cases[name] = {{"kernels", one.kernels},
                   {"approximate", one.approximate},
                   {"mma", one.mma},
                   {"outputs", std::move(outputs)}};
  }
  const std::vector<uint8_t> plain = Json::to_cbor({{"version", kVersion},
                                                    {"program", expected.program},
                                                    {"multiprocessors", expected.multiprocessors},
                                                    {"architecture", expected.architecture},
                                                    {"cases", std::move(cases)},
                                                    {"curves", expected.curves}});
  std::string out(ZSTD_compressBound(plain.size()), '\0');
  const size_t size = ZSTD_compress(out.data(), out.size(), plain.data(), plain.size(), 19);
  if (ZSTD_isError(size)) throw InternalError("zstd: {}", ZSTD_getErrorName(size));
  out.resize(size);
  return out;
}

Expected read_expected(const Path& file) {
  const std::string plain = unpacked(file);
  Expected out;
  try {
    const Json json = Json::from_cbor(plain);
    if (json.at("version").get<int>() != kVersion)
      throw DataError("{}: found version {}, expected {}; use the file of the same bundle as the program",
                      file.string(), json.at("version").dump(), kVersion);
    out.program = json.at("program").get<std::string>();
    out.multiprocessors = json.at("multiprocessors").get<int>();
    out.architecture = json.at("architecture").get<int>();
    for (const auto& [name, one] : json.at("cases").items()) {
      ExpectedCase& to = out.cases[name];
      to.kernels = one.at("kernels").get<std::vector<std::string>>();
      to.approximate = one.at("approximate").get<bool>();
      to.mma = one.at("mma").get<bool>();
      for (const Json& bytes : one.at("outputs")) to.outputs.push_back(bytes.get_binary());
    }
    out.curves = json.at("curves").get<std::map<std::string, std::vector<double>>>();
  } catch (const Json::exception& error) {
    throw DataError("{} has not the results of a GPU's kernels: {}", file.string(), error.what());
  }
  return out;
}

}  // namespace strata::self_test
