#include "checkpoint/tensor_files.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/hash.h"
#include "checkpoint/elements.h"
#include "checkpoint/regions.h"

namespace strata::checkpoint {
namespace {

// Rounds between two exchanges of errors.
constexpr int64_t kRoundsTogether = 16;
// Alignment of blocks in memory, so that direct I/O can write them without a copy.
constexpr size_t kPageBytes = 4096;

// Refuses finite values that would silently become infinite in fp16 (above 65,504).
void check_range(const TensorView& tensor, int64_t first, const void* before, const void* after, int64_t n) {
  const int64_t bad = first_not_finite(after, DType::kF16, n);
  if (bad >= 0 && first_not_finite(before, tensor.memory_dtype, n) < 0)
    throw DataError("[{}] element {} is too large for fp16; choose bf16 or fp32", tensor.name, first + bad);
}

// Reads regions of this rank's memory in the dtype of a file.
class RegionSource {
 public:
  explicit RegionSource(const BlockPlan& plan) : plan_(plan) {}

  void read(size_t file, const BlockPlan::Transfer& transfer, std::byte* to, int64_t to_pitch) {
    const TensorView& view = *transfer.part;
    const DType dtype = plan_.dtype(file, transfer.tensor);
    if (view_ != &view) {
      copier_.emplace(view);
      view_ = &view;
    }
    const Region& region = transfer.region;
    if (dtype == view.memory_dtype) return copier_->read(region, to, to_pitch);
    unconverted_.resize(std::max(
        unconverted_.size(), static_cast<size_t>(region.rows * region.columns * size_of(view.memory_dtype))));
    copier_->read(region, unconverted_.data(), region.columns);
    convert_rows(to, dtype, to_pitch, unconverted_.data(), view.memory_dtype, region.columns, region.rows,
                 region.columns);
    if (dtype != DType::kF16) return;
    for (int64_t row = 0; row < region.rows; ++row)
      check_range(view, region.in_file + row * region.file_pitch,
                  unconverted_.data() + row * region.columns * size_of(view.memory_dtype),
                  to + row * to_pitch * 2, region.columns);
  }

 private:
  const BlockPlan& plan_;
  const TensorView* view_ = nullptr;
  std::optional<RegionCopier> copier_;
  std::vector<std::byte> unconverted_;
};

// Writes the blocks that a plan assigns to this rank and sends the other ranks their elements.
class Writer {
 public:
  Writer(FileSystem& files, const Path& folder, std::span<const TensorFileContent> contents,
         const BlockPlan& plan, Together& ranks, int64_t block_bytes)
      : files_(files),
        folder_(folder),
        contents_(contents),
        plan_(plan),
        ranks_(ranks),
        mine_(plan.blocks_of(ranks.rank())),
        source_(plan),
        memory_(mine_.begin < mine_.end ? static_cast<size_t>(block_bytes) + kPageBytes : 0),
        block_(at_a_page(memory_)) {
    if (ranks.alone()) return;
    for (auto& round : rounds_) round.arriving = Buffer(static_cast<size_t>(block_bytes));
    for (auto& buffer : outgoing_) buffer.bytes = Buffer(static_cast<size_t>(block_bytes));
  }

  // Returns the checksums of this rank's tensor ranges, in the order of the plan.
  std::vector<uint64_t> run(const std::function<void()>& all_read) {
    const int64_t rounds = plan_.rounds();
    int64_t written = 0;
    for (int64_t round = 0; round < rounds; ++round) {
      start(round);
      // Write the blocks of the previous round while those of this one are in flight.
      const bool looks = (round + 1) % kRoundsTogether == 0 || round + 1 == rounds;
      while (written < (looks ? round + 1 : round)) write(written++);
      if (!looks) continue;
      for (SendBuffer& buffer : outgoing_) wait_sent(buffer);
      ranks_.agree(error_);  // nothing is in flight now
    }
    if (all_read) all_read();
    attempt([&] { close(); });
    ranks_.agree(error_);
    return std::move(checksums_);
  }

 private:
  // Not zeroed, so that a small model touches only a few pages; every byte is written before it is read.
  struct Buffer {
    Buffer() = default;
    explicit Buffer(size_t bytes) : size(bytes), data(std::make_unique_for_overwrite<std::byte[]>(bytes)) {}
    size_t size = 0;
    std::unique_ptr<std::byte[]> data;
  };
  struct Arrival {
    int from = 0;
    size_t at = 0;
    comm::Ticket ticket;
  };
  struct Round {
    Buffer arriving;
    std::vector<Arrival> arrivals;
  };
  struct SendBuffer {
    Buffer bytes;
    size_t used = 0;
    std::vector<comm::Ticket> tickets;
  };

  static std::byte* at_a_page(const Buffer& memory) {
    void* at = memory.data.get();
    size_t space = memory.size;
    return static_cast<std::byte*>(std::align(kPageBytes, std::min(space, size_t{1}), at, space));
  }

  // Keeps an error until the next exchange of errors; until then this rank continues to send and receive, so
  // that the others do not wait forever.
  template <typename Act>
  void attempt(Act act) {
    if (error_) return;
    try {
      act();
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  // Posts the receives for this rank in a round and sends the other ranks the elements of their blocks.
  void start(int64_t round) {
    if (ranks_.alone()) return;
    if (const int64_t index = mine_.begin + round; index < mine_.end) {
      Round& into = rounds_[static_cast<size_t>(round % 2)];
      const auto block = plan_.block(index);
      size_t at = 0;
      for (int from = 0; from < ranks_.size(); ++from) {
        if (from == ranks_.rank()) continue;
        const int64_t bytes = plan_.transfer_bytes(block, from, ranks_.rank());
        if (bytes == 0) continue;
        into.arrivals.push_back(
            {from, at, ranks_.communicator().receive(from, into.arriving.data.get() + at, bytes)});
        at += static_cast<size_t>(bytes);
      }
    }
    for (int step = 1; step < ranks_.size(); ++step) {  // not all to the same rank first
      const int to = (ranks_.rank() + step) % ranks_.size();
      const auto theirs = plan_.blocks_of(to);
      if (theirs.begin + round < theirs.end) send(plan_.block(theirs.begin + round), to);
    }
  }

  void send(const BlockPlan::Block& block, int to) {
    const auto bytes = static_cast<size_t>(plan_.transfer_bytes(block, ranks_.rank(), to));
    if (bytes == 0) return;
    if (outgoing_[current_].used + bytes > outgoing_[current_].bytes.size) {
      current_ = 1 - current_;
      wait_sent(outgoing_[current_]);
    }
    SendBuffer& buffer = outgoing_[current_];
    std::byte* const begin = buffer.bytes.data.get() + buffer.used;
    attempt([&] {
      std::byte* at = begin;
      plan_.for_each_transfer(block, ranks_.rank(), to, [&](const BlockPlan::Transfer& transfer) {
        source_.read(block.file, transfer, at, transfer.region.columns);
        at += transfer.region.rows * transfer.region.columns *
              size_of(plan_.dtype(block.file, transfer.tensor));
      });
    });
    buffer.tickets.push_back(ranks_.communicator().send(to, begin, static_cast<int64_t>(bytes)));
    buffer.used += bytes;
  }

  void wait_sent(SendBuffer& buffer) {
    for (const comm::Ticket ticket : buffer.tickets) ranks_.communicator().wait(ticket);
    buffer.tickets.clear();
    buffer.used = 0;
  }

  // Assembles and writes the block of this rank in a round.
  void write(int64_t round) {
    const int64_t index = mine_.begin + round;
    if (index >= mine_.end) return;
    Round& from = rounds_[static_cast<size_t>(round % 2)];
    for (const Arrival& arrival : from.arrivals) ranks_.communicator().wait(arrival.ticket);
    attempt([&] {
      const auto block = plan_.block(index);
      const std::string& head = plan_.layout(block.file).head;
      if (block.offset < head.size())
        std::memcpy(block_, head.data() + block.offset, std::min(block.bytes, head.size() - block.offset));
      plan_.for_each_transfer(block, ranks_.rank(), ranks_.rank(), [&](const BlockPlan::Transfer& transfer) {
        source_.read(block.file, transfer, block_ + transfer.in_block, transfer.region.file_pitch);
      });
      for (const Arrival& arrival : from.arrivals)
        unpack(block, arrival.from, from.arriving.data.get() + arrival.at);
      for (const auto& range : plan_.tensor_ranges(block))
        checksums_.push_back(
            hash64(block_ + range.in_block,
                   static_cast<size_t>(range.count * size_of(plan_.dtype(block.file, range.tensor)))));
      store(block);
    });
    from.arrivals.clear();
  }

  void unpack(const BlockPlan::Block& block, int from, const std::byte* at) {
    plan_.for_each_transfer(block, from, ranks_.rank(), [&](const BlockPlan::Transfer& transfer) {
      const int64_t width = size_of(plan_.dtype(block.file, transfer.tensor));
      const int64_t bytes = transfer.region.columns * width;
      const bool even = transfer.region.columns == transfer.region.file_pitch;
      const int64_t runs = even ? 1 : transfer.region.rows, run = even ? transfer.region.rows * bytes : bytes;
      for (int64_t row = 0; row < runs; ++row, at += run)
        std::memcpy(block_ + transfer.in_block + row * transfer.region.file_pitch * width, at,
                    static_cast<size_t>(run));
    });
  }

  void store(const BlockPlan::Block& block) {
    if (!file_ || open_file_ != block.file) {
      close();
      const Path path = folder_ / contents_[block.file].name;
      file_ = ranks_.alone() ? files_.open_for_writing(path) : files_.open_for_update(path);
      open_file_ = block.file;
    }
    file_->write_at(block.offset, block_, static_cast<size_t>(block.bytes));
  }

  void close() {
    if (!file_) return;
    file_->sync();
    file_->close();
    file_.reset();
  }

  FileSystem& files_;
  const Path& folder_;
  std::span<const TensorFileContent> contents_;
  const BlockPlan& plan_;
  Together& ranks_;
  BlockPlan::BlockRange mine_;
  RegionSource source_;
  Buffer memory_;
  std::byte* block_;  // in memory_, aligned
  std::array<Round, 2> rounds_;
  std::array<SendBuffer, 2> outgoing_;
  size_t current_ = 0;
  std::unique_ptr<WritableFile> file_;
  size_t open_file_ = 0;
  std::vector<uint64_t> checksums_;
  std::exception_ptr error_;
};

// The files without the checksums of their tensors.
std::vector<StoredFile> stored_files(std::span<const TensorFileContent> contents, const BlockPlan& plan,
                                     int64_t block_bytes) {
  std::vector<StoredFile> stored;
  for (size_t i = 0; i < contents.size(); ++i) {
    const SafetensorsPlan& layout = plan.layout(i);
    StoredFile& file = stored.emplace_back(StoredFile{
        contents[i].name, layout.file_bytes, hash64(layout.head), {}, static_cast<uint64_t>(block_bytes)});
    for (const TensorView& tensor : contents[i].tensors) file.tensors.push_back({tensor.name, {}});
  }
  return stored;
}

}  // namespace

uint64_t stored_bytes(const TensorView& tensor, std::optional<DType> float_dtype) {
  return static_cast<uint64_t>(bytes_of(tensor.stored_dtype(float_dtype), tensor.shape.elements()));
}

std::vector<StoredFile> write_tensor_files(FileSystem& files, const Path& folder,
                                           std::span<const TensorFileContent> contents, Together& ranks,
                                           const std::function<void()>& all_read, int64_t block_bytes) {
  const BlockPlan plan(contents, ranks.size(), block_bytes);
  const auto mine = Writer(files, folder, contents, plan, ranks, block_bytes).run(all_read);
  std::vector<int64_t> counts(static_cast<size_t>(ranks.size()), 0);
  const auto each_range = [&](FunctionRef<void(size_t rank, size_t file, size_t tensor)> each) {
    for (int rank = 0; rank < ranks.size(); ++rank) {
      const auto blocks = plan.blocks_of(rank);
      for (int64_t index = blocks.begin; index < blocks.end; ++index) {
        const auto block = plan.block(index);
        for (const auto& range : plan.tensor_ranges(block))
          each(static_cast<size_t>(rank), block.file, range.tensor);
      }
    }
  };
  auto stored = stored_files(contents, plan, block_bytes);
  if (ranks.is_first()) each_range([&](size_t rank, size_t, size_t) { ++counts[rank]; });
  const auto checksums = ranks.gather(mine, counts);
  ranks.first([&] {
    std::vector<size_t> next(checksums.size(), 0);
    each_range([&](size_t rank, size_t file, size_t tensor) {
      stored[file].tensors[tensor].checksums.push_back(checksums[rank][next[rank]++]);
    });
    for (const StoredFile& file : stored) check_written(folder / file.name, file.bytes);
  });
  return stored;
}

StoredFile write_tensor_file(FileSystem& files, const Path& path, std::span<const TensorView> tensors,
                             std::optional<DType> float_dtype,
                             const std::map<std::string, std::string>& metadata) {
  const TensorFileContent content{
      path.filename().string(), {tensors.begin(), tensors.end()}, float_dtype, metadata};
  Together alone;
  return write_tensor_files(files, path.parent_path(), {&content, 1}, alone).front();
}

}  // namespace strata::checkpoint
