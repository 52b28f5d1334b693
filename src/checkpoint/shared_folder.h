// Checks that all ranks share a folder.
#pragma once

#include "base/file.h"
#include "comm/communicator.h"

namespace strata::checkpoint {

// Rank 0 creates the folder if necessary and writes a temporary file into it, which all ranks must be able to
// read within `patience` seconds (network file systems may be slow). Throws on all ranks: ConfigError with
// the ranks and hosts that cannot read it, WorldError if rank 0 cannot write.
void check_shared_folder(comm::Communicator& communicator, FileSystem& files, const Path& folder,
                         double patience = 2);

}  // namespace strata::checkpoint
