// Standard output, checked: a full disk behind a redirection is an error, a closed pipe is not ours.
#pragma once

#include <string>

namespace strata::cli {

void print_out(const std::string& text);
void flush_out();

}  // namespace strata::cli
