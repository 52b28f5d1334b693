#include "data/dedup/scratch_array.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace strata::data::dedup {

ScratchBytes::ScratchBytes(const Scratch& scratch, std::string_view name, uint64_t bytes) : bytes_(bytes) {
  if (bytes <= 4096 || static_cast<int64_t>(bytes) <= scratch.memory) {
    owned_ = std::make_unique<std::byte[]>(bytes);
    data_ = owned_.get();
    return;
  }
  // Written out with zeros first: a full disk is an error here, and no signal later.
  const Path path = scratch.folder / name;
  const std::vector<char> zeros(std::min<uint64_t>(bytes, 1 << 20));
  const auto file = scratch.files->open_for_writing(path);
  for (uint64_t at = 0; at < bytes; at += zeros.size()) {
    file->append(zeros.data(), std::min<uint64_t>(zeros.size(), bytes - at));
  }
  file->close();
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  void* address = MAP_FAILED;
  if (descriptor >= 0) {
    address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    ::close(descriptor);
  }
  if (address == MAP_FAILED) {
    throw WorldError("[{}] cannot map {} bytes: {}", path.string(), bytes, std::strerror(errno));
  }
  scratch.files->remove(path);  // the mapping keeps it
  data_ = static_cast<std::byte*>(address);
  mapped_ = true;
}

ScratchBytes::~ScratchBytes() {
  if (mapped_) ::munmap(data_, bytes_);
}

}  // namespace strata::data::dedup
