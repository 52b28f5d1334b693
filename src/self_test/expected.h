// The results of the ops' cases on the PTX executor, and the processor's losses of the small models, recorded
// without a GPU (tests/gpu/record.cpp) for machines that have one.
//
// The file is an object in CBOR (RFC 8949), compressed by zstd: "version" (1), "program" (its version), "multiprocessors" and
// "architecture" (of the GPU that was imitated: they choose kernels and the sums of mma), "cases" and "curves". A case has "kernels" (names),
// "approximate" (whether one of them has instructions whose last bits PTX does not define), "mma" (whether one adds by
// mma, whose sums differ between architectures) and "outputs" (bytes in the order of the op's outputs; empty for one that is absent or opaque).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/file.h"

namespace strata::self_test {

struct ExpectedCase {
  std::vector<std::string> kernels;
  bool approximate = false;
  bool mma = false;
  std::vector<std::vector<uint8_t>> outputs;
};

struct Expected {
  std::string program;
  int multiprocessors = 0;
  int architecture = 0;
  std::map<std::string, ExpectedCase> cases;          // by the case's name
  std::map<std::string, std::vector<double>> curves;  // losses by the model's name
};

std::string to_bytes(const Expected& expected);
// DataError for another file or version.
Expected read_expected(const Path& file);

}  // namespace strata::self_test
