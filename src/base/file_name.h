// Names of users' that become names of files.
#pragma once

#include <string>
#include <string_view>

namespace strata {

// Why `name` cannot be the name of a file, or a part of one, in any folder: "is empty", "begins with a
// point", …; "" if it can.
std::string file_name_error(std::string_view name);

}  // namespace strata
