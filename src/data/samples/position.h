// The position of a run in its data: the state of the sample order in a checkpoint.
// The order is a pure function of the sample's number as long as nothing changes how windows are cut and
// mixed. If a resume changes that, the new order begins at its first sample, its origin, and every source
// continues from its position: the rest of the current epoch is read first, in the rows it was cut into, so
// that every window of an epoch is trained on once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace strata::data {

// How the tokens of an epoch are cut into rows, and in which order these come.
struct EpochLayout {
  int64_t window = 0;      // places of a row
  int64_t look_ahead = 0;  // tokens read after a row
  bool shuffle = true;
  bool packed = false;  // rows of a best-fit plan
  uint64_t seed = 0;    // of the order
  bool operator==(const EpochLayout&) const = default;
};

struct SourcePosition {
  std::string name;
  int64_t tokens = 0;  // of its corpus
  EpochLayout layout;  // of the current epoch
  int64_t epoch = 0;
  int64_t offset = 0;  // places of the epoch's rows, in their order, that were read
  int64_t read = 0;    // places of all epochs
};

// The beginning of an order of samples.
struct DataOrigin {
  int64_t step = 0;    // steps done before
  int64_t sample = 0;  // the global sample at which it begins
  std::vector<SourcePosition> sources;
};

}  // namespace strata::data
