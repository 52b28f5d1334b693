#include "checkpoint/shared_folder.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <random>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "checkpoint/together.h"
#include "comm/exchange.h"

namespace strata::checkpoint {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

// 128 random bits, so that a file of another run is never mistaken for this one.
std::string random_token() {
  std::random_device random;
  std::array<uint32_t, 4> words{};
  for (uint32_t& word : words) word = random();
  return to_hex(uint64_t{words[0]} << 32 | words[1]) + to_hex(uint64_t{words[2]} << 32 | words[3]);
}

bool holds(const Path& path, const std::string& text) {
  try {
    return read_file(path) == text;
  } catch (const Error&) {  // not visible yet, or not at all
    return false;
  }
}

}  // namespace

void check_shared_folder(comm::Communicator& communicator, FileSystem& files, const Path& folder,
                         double patience) {
  Together ranks(communicator);
  const std::string token = ranks.of_first(ranks.is_first() ? random_token() : "");
  const Path path = folder / (".shared-" + token);
  const std::string host = host_name();
  ranks.first([&] {
    files.create_directories(folder);
    auto file = files.open_for_writing(path);
    file->append(token);
    file->sync();
    file->close();
    files.sync_directory(folder);
  });
  const double begin = monotonic_seconds();
  bool seen = holds(path, token);
  while (!seen && monotonic_seconds() - begin < patience) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    seen = holds(path, token);
  }
  const auto blind = comm::gather_texts(communicator, seen ? "" : host);
  ranks.first([&] { files.remove(path); });
  std::string names;
  for (size_t rank = 0; rank < blind.size(); ++rank) {
    if (!blind[rank].empty())
      names += fmt::format("{}rank {} on {}", names.empty() ? "" : ", ", rank, blind[rank]);
  }
  if (names.empty()) return;
  const std::string writer = ranks.of_first(host);
  throw ConfigError(
      "[{}] is not one folder for all ranks: {} cannot see the file that rank 0 on {} wrote there; choose a "
      "folder on a file system that all hosts share",
      folder.string(), names, writer);
}

}  // namespace strata::checkpoint
