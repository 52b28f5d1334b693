// Whether all ranks see one folder.
#pragma once

#include "base/file.h"
#include "comm/communicator.h"

namespace strata::checkpoint {

// Rank 0 makes the folder where it is missing and writes a file into it for a moment; all must read that,
// within `patience` seconds, since a network's file system may take a while. ConfigError, on all ranks, that
// names the ranks and hosts that do not; WorldError where rank 0 cannot write.
void check_shared_folder(comm::Communicator& communicator, FileSystem& files, const Path& folder,
                         double patience = 2);

}  // namespace strata::checkpoint
