// Whether bytes that are to be a text are one.
#pragma once

#include <string>
#include <string_view>

#include "base/file.h"

namespace strata::data {

// Bytes that packed_kind() looks at.
inline constexpr size_t kPackedHeadBytes = 264;

// What first bytes like these hold instead of text: "gzip data", "a zip archive", "a Parquet file", …; "" for
// none that is known. These are bytes that some program has yet to unpack.
std::string_view packed_kind(std::string_view head);

// What the first bytes of a file tell that is no text in UTF-8: packed_kind(), "UTF-16, …", "a binary file,
// …"; "" for one that may be. As grep and git do, a NUL near the beginning makes a file binary.
std::string fault_of_text(std::string_view content);

// DataError for a file that begins with packed bytes, once what its name says is unpacked.
void refuse_packed(const Path& path, std::string_view head);

// Of a file to train on, which any bytes may be: DataError for UTF-16 and for packed bytes, wherever they
// begin, which teach nobody to read; a warning for another binary file and for what is not UTF-8.
void check_text_file(const Path& path, std::string_view content);

}  // namespace strata::data
