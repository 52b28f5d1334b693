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

// The kind of a file whose first bytes are not UTF-8 text: packed_kind(), "UTF-16, …", "a binary file, …"; ""
// for one that may be text. As in grep and git, a NUL near the beginning makes a file binary.
std::string problem_of_text(std::string_view content);

// DataError for a file that begins with packed bytes after the compression in its name is undone.
void refuse_packed(const Path& path, std::string_view head);

// Checks a training file, which may hold any bytes: DataError for UTF-16 and for packed bytes, at any place,
// which a model cannot learn from; a warning for other binary files and text that is not UTF-8.
void check_text_file(const Path& path, std::string_view content);

}  // namespace strata::data
