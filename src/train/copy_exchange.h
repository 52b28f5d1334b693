// Sends copies of ranks' states to the folders of other ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/world.h"
#include "train/copy_files.h"

namespace strata::training {

// One copy that this rank sends, or receives.
struct CopyMessage {
  bool sends = false;
  int peer = 0;                // the other rank
  CopySlots* slots = nullptr;  // from which it is read; in which it is stored
};

// All ranks construct one. Used by one thread at a time.
class CopyExchange {
 public:
  explicit CopyExchange(comm::World& world);

  // Returns when this rank has sent and received its copies of `step`. All ranks call it, with at most one
  // message from each rank to each other one. A copy that the sender does not have is not stored. Returns
  // the first error of a file; throws WorldError if a rank fails. `keep` as in CopySlots::begin().
  std::string run(int64_t step, int64_t keep, const std::vector<CopyMessage>& messages);

 private:
  struct Link {
    CopyMessage message;
    // Bytes of the manifest and of the values; -1: the sender has no such copy.
    struct Size {
      int64_t manifest = -1, data = 0;
    } size;
    std::string manifest;
    std::optional<ReadableFile> file;
    std::vector<std::byte> chunk;
    int64_t done = 0;
    bool fails = false;  // its files cannot be written any more
  };
  struct Buffer {
    void* bytes = nullptr;
    int64_t size = 0;
  };
  // One message of each link whose buffer is not empty.
  template <typename BufferOf>
  void pass(const BufferOf& buffer_of);

  std::vector<Link> links_;  // until the communicator is gone: it may still use the buffers after an error
  std::unique_ptr<comm::Communicator> group_;
};

}  // namespace strata::training
