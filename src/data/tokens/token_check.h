// Ids beyond the vocabulary, found before training starts and not when their sample comes up.
#pragma once

#include <cstdint>

#include "base/file.h"
#include "base/function_ref.h"
#include "data/tokens/token_corpus.h"

namespace strata::data {

// Reads every id of the corpus's files once, on all compute threads, and throws the DataError of
// TokenFile::read (file, position, id, limit) for the first in a file that its vocabulary does not hold.
// Valid files are noted in `record` (JSON: path, size, modification time, vocabulary) and not read again
// while these are unchanged. Files whose type holds no larger id are not read at all. Costs one pass over the
// files: disk speed, at most several GB/s from memory. `check` is called every few hundred MB. Returns the
// number of ids that were read.
int64_t check_token_ids(FileSystem& files, const TokenCorpus& corpus, const Path& record,
                        FunctionRef<void()> check);

}  // namespace strata::data
