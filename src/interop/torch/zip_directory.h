// Reads the directory of a zip archive. torch.save does not compress entries, so tensors can be read in
// place; a compressed or encrypted entry is a DataError.
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

// Entries by name. DataError naming `where` for an invalid archive, a repeated name, and entries that extend
// beyond the file.
std::map<std::string, ZipEntry, std::less<>> read_zip_directory(
    uint64_t file_bytes, const std::string& where, FunctionRef<void(uint64_t, void*, size_t)> read);

}  // namespace strata::interop
