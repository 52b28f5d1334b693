// Where the entries of a zip archive lie. torch.save stores its entries without compression, so that a tensor
// can be read from its place in the archive; a compressed or encrypted entry is refused.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/function_ref.h"

namespace strata::interop {

struct ZipEntry {
  uint64_t offset = 0;  // of the first byte, from the start of the file
  uint64_t bytes = 0;
};

// By name. DataError naming `where` for what is no such archive, a name that stands twice, and entries that
// reach beyond the file.
std::map<std::string, ZipEntry, std::less<>> read_zip_directory(
    uint64_t file_bytes, const std::string& where, FunctionRef<void(uint64_t, void*, size_t)> read);

}  // namespace strata::interop
