// TensorBoard event files: scalars only. Format: length-prefixed protobuf records with masked CRC-32C.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/file.h"

namespace strata::observe {

uint32_t crc32c(std::string_view bytes);

// One record of the file, with its length and checksums. wall: Unix seconds.
std::string tensorboard_version_record(double wall);
std::string tensorboard_scalar_record(double wall, int64_t step, std::string_view tag, float value);

// Writes a new file FOLDER/events.out.tfevents.TIME.HOST.PID.N. A resumed run opens another one, as readers
// expect.
class TensorBoardWriter {
 public:
  TensorBoardWriter(FileSystem& files, const Path& folder, double wall);
  void scalars(double wall, int64_t step, std::span<const std::pair<std::string, double>> values);
  const Path& path() const { return path_; }

 private:
  Path path_;
  std::unique_ptr<WritableFile> file_;
};

}  // namespace strata::observe
