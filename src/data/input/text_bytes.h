// Whether bytes that are to be a text are one.
#pragma once

#include <string>
#include <string_view>

#include "base/file.h"

namespace strata::data {

// What the first bytes of a file tell that is no text in UTF-8: "UTF-16, …", "a binary file, …"; "" for one
// that may be. As grep and git do, a NUL near the beginning makes a file binary.
std::string fault_of_text(std::string_view content);

// Of a file to train on, which any bytes may be: DataError for UTF-16, whose bytes teach nobody to read; a
// warning for a binary file and for what is not UTF-8.
void check_text_file(const Path& path, std::string_view content);

}  // namespace strata::data
