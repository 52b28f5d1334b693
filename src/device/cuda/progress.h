// Which kernel a queue has come to, so that an error that arrives later can name the instruction.
#pragma once

#include <array>
#include <mutex>
#include <string>

#include "device/cuda/resources.h"

namespace strata::cuda {

// starts() is called by the thread that starts kernels; where() by any.
class Progress {
 public:
  explicit Progress(const Card& card);

  // A kernel of this instruction (nullptr: not known) is being started. Now and then makes the GPU write how far it has come; returns the
  // driver's result.
  Result starts(const char* instruction, Stream stream);
  // "; it was computing …" with the instructions of which one failed; empty if none is known.
  std::string where() const;

 private:
  // The GPU writes after this many kernels: a write costs the host as much as a fifth of a launch, which would be
  // too much after each.
  static constexpr uint32_t kEvery = 8;
  static constexpr uint32_t kKept = 1024;  // names of the newest kernels

  const Card& card_;
  PinnedMemory done_;         // one number, written by the GPU: kernels before it are done
  mutable std::mutex mutex_;  // of what follows
  uint32_t started_ = 0;
  std::array<std::string, kKept> names_;  // copies: an error may arrive when what started the kernel is gone
};

}  // namespace strata::cuda
