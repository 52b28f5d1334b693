// Files of the kernel under /proc and /sys, which a chroot or a container may lack. Nothing depends on them: their
// readers have defaults, which missing_kernel_files() lists. `root`: the folder in place of "/", for tests.
#pragma once

#include <string>
#include <vector>

#include "base/file.h"

namespace strata {

// The whole file, which reports no size, so it is read to the end. Empty if it cannot be read.
std::string kernel_file(const Path& path);

// The file of the running program.
Path program_path(const Path& root = "/");

// A warning for each kind of file that cannot be read, with the default that is used instead.
std::vector<std::string> missing_kernel_files(const Path& root = "/");

}  // namespace strata
