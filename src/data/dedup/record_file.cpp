#include "data/dedup/record_file.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"

namespace strata::data::dedup {
namespace {

constexpr char kMagic[8] = {'S', 'T', 'R', 'D', 'E', 'D', 'U', 'P'};
constexpr uint64_t kEnd = ~uint64_t{0};

struct BlockHead {
  uint64_t bytes, documents, hash;
};

uint64_t hash_of(uint64_t bytes, uint64_t documents, const void* payload) {
  const uint64_t seed_of[2] = {bytes, documents};
  return hash64(payload, bytes, hash64(seed_of, sizeof(seed_of)));
}

uint64_t hash_of_end(uint64_t documents, uint64_t tag) {
  const uint64_t values[3] = {kEnd, documents, tag};
  return hash64(values, sizeof(values));
}

[[noreturn]] void fail(const Path& path, std::string_view what) {
  throw DataError("[{}] {}: expected an intact record file of this stage. Remove it and build its part again",
                  path.string(), what);
}

}  // namespace

RecordWriter::RecordWriter(FileSystem& files, Path path, uint64_t tag)
    : files_(files), path_(std::move(path)), temporary_(path_.string() + ".tmp"), tag_(tag) {
  file_ = files_.open_for_writing(temporary_);
  file_->append(kMagic, sizeof(kMagic));
  file_->append(&tag_, sizeof(tag_));
}

RecordWriter::~RecordWriter() {
  if (!file_) return;
  try {
    file_.reset();
    files_.remove(temporary_);
  } catch (const Error&) {
    // An error is on its way already; the file has a temporary name.
  }
}

void RecordWriter::column(const void* bytes, size_t size) {
  if (size > 0) payload_.append(static_cast<const char*>(bytes), size);
  payload_.append((8 - size % 8) % 8, '\0');
}

void RecordWriter::end_block(uint64_t documents) {
  const BlockHead head{payload_.size(), documents, hash_of(payload_.size(), documents, payload_.data())};
  file_->append(&head, sizeof(head));
  file_->append(payload_);
  payload_.clear();
  documents_ += documents;
}

void RecordWriter::finish() {
  const BlockHead end{kEnd, documents_, hash_of_end(documents_, tag_)};
  file_->append(&end, sizeof(end));
  file_->sync();
  file_->close();
  files_.rename(temporary_, path_);
  files_.sync_directory(path_.has_parent_path() ? path_.parent_path() : Path("."));
  file_.reset();
}

std::span<const std::byte> BlockCursor::take(uint64_t values, size_t size) {
  if (values > rest_.size() / size) fail("a block is too short");
  const size_t bytes = values * size;
  const auto taken = rest_.first(bytes);
  rest_ = rest_.subspan(std::min(rest_.size(), (bytes + 7) / 8 * 8));
  return taken;
}

void BlockCursor::fail(std::string_view what) const {
  dedup::fail(*path_, what);
}

RecordFile::RecordFile(const Path& path, uint64_t tag, bool verify) : path_(path), file_(path) {
  std::span<const std::byte> rest = file_.bytes();
  if (rest.size() < sizeof(kMagic) + sizeof(tag) || std::memcmp(rest.data(), kMagic, sizeof(kMagic)) != 0) {
    fail(path_, "its beginning is another");
  }
  uint64_t found;
  std::memcpy(&found, rest.data() + sizeof(kMagic), sizeof(found));
  if (found != tag) fail(path_, "it was written with other parameters");
  rest = rest.subspan(sizeof(kMagic) + sizeof(tag));
  while (true) {
    BlockHead head;
    if (rest.size() < sizeof(head)) fail(path_, "it ends too early");
    std::memcpy(&head, rest.data(), sizeof(head));
    rest = rest.subspan(sizeof(head));
    if (head.bytes == kEnd) {
      const bool whole = head.documents == documents_ && head.hash == hash_of_end(documents_, tag);
      if (!whole || !rest.empty()) fail(path_, "its end is another");
      return;
    }
    if (head.bytes > rest.size() || head.bytes % 8 != 0) fail(path_, "it ends too early");
    const Block block{head.documents, rest.first(head.bytes)};
    if (verify && head.hash != hash_of(head.bytes, head.documents, block.payload.data())) {
      fail(path_, "a block was altered");
    }
    documents_ += head.documents;
    blocks_.push_back(block);
    rest = rest.subspan(head.bytes);
  }
}

Records::Records(const DecideContext& context, uint64_t tag) : paths_(context.records), tag_(tag), first_{0} {
  for (const Path& path : paths_) {
    const RecordFile file(path, tag, true);
    if (file.documents() >= uint64_t{1} << 32) fail(path, "it has 2^32 documents or more");
    first_.push_back(first_.back() + file.documents());
  }
}

DocumentNumber Records::number(uint64_t document) const {
  const auto after = std::upper_bound(first_.begin(), first_.end(), document);
  const auto part = static_cast<uint32_t>(after - first_.begin() - 1);
  return {part, static_cast<uint32_t>(document - first_[part])};
}

void Records::for_each_block(FunctionRef<void(const RecordFile::Block&, BlockCursor, uint64_t)> use) const {
  for (uint32_t part = 0; part < parts(); ++part) {
    const RecordFile file = open(part);
    uint64_t first = first_[part];
    for (const RecordFile::Block& block : file.blocks()) {
      use(block, file.cursor(block), first);
      first += block.documents;
    }
    if (first != first_[part + 1]) fail(paths_[part], "it changed while it was read");
  }
}

uint64_t record_tag(std::string_view description) {
  return hash64(description, 1);  // the seed is the format's version
}

}  // namespace strata::data::dedup
