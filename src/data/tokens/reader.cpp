#include "data/tokens/reader.h"
#include "base/text.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <stop_token>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "base/thread.h"
#include "data/input/byte_stream.h"
#include "data/input/record_reader.h"
#include "data/input/text_bytes.h"

namespace strata::data {
namespace {

constexpr size_t kReadBytes = 1 << 18;

// Reads the blocks of one file and passes each to `emit`, which returns whether to continue.
void read_blocks(const CorpusFile& file, int64_t index, int64_t block_bytes,
                 FunctionRef<bool(TextBlock&&)> emit) {
  ByteStream stream(file.path, file.compression);
  TextBlock block;
  block.file = index;
  int64_t stored = 0;  // read for the blocks before
  std::string rest;    // the start of a line whose end was not read yet
  bool first = true;
  for (bool ended = false; !ended;) {
    const size_t before = rest.size();
    rest.resize(before + kReadBytes);
    const size_t got = stream.read(rest.data() + before, kReadBytes);
    rest.resize(before + got);
    ended = got < kReadBytes;
    if (std::exchange(first, false)) refuse_packed(file.path, rest);
    if (ended) break;
    if (file.kind == CorpusKind::kText || static_cast<int64_t>(rest.size()) < block_bytes) continue;
    const size_t newline = rest.rfind('\n');
    if (newline == std::string::npos || newline < before) continue;
    block.bytes.assign(rest, 0, newline + 1);
    rest.erase(0, newline + 1);
    const int64_t lines = std::count(block.bytes.begin(), block.bytes.end(), '\n');
    const int64_t first_line = block.first_line;
    block.stored_bytes = stream.stored_bytes() - std::exchange(stored, stream.stored_bytes());
    if (!emit(std::move(block))) return;
    block = {};
    block.file = index;
    block.first_line = first_line + lines;
  }
  if (file.kind == CorpusKind::kText) check_text_file(file.path, rest);
  block.bytes = std::move(rest);
  block.stored_bytes = stream.stored_bytes() - stored;
  block.last = true;
  block.content_hash = stream.content_hash();
  emit(std::move(block));
}

// Hashes the whole file as it is stored.
uint64_t hash_file(const Path& path) {
  ByteStream stream(path, Compression::kNone);
  std::string bytes(kReadBytes, '\0');
  while (stream.read(bytes.data(), bytes.size()) == bytes.size()) {
  }
  return stream.content_hash();
}

// Files of a format that is read from front to back; those of columns are known by the same bytes.
void refuse_packed_records(const CorpusFile& file) {
  const RecordFormat format = find_record_format(file.path);
  if (format == RecordFormat::kParquet || format == RecordFormat::kArrow) return;
  std::string head(kPackedHeadBytes, '\0');
  ByteStream stream(file.path, file.compression);
  head.resize(stream.read(head.data(), head.size()));
  refuse_packed(file.path, head);
}

// Like read_blocks(), for a file in another format: its records as lines {"text":…}.
void read_record_blocks(const CorpusFile& file, int64_t index, const ReaderOptions& options,
                        FunctionRef<bool(TextBlock&&)> emit) {
  RecordOptions record_options;
  record_options.text = options.text_field;
  refuse_packed_records(file);
  const auto reader = open_records(file.path, file.path.string(), record_options);
  TextBlock block;
  block.file = index;
  int64_t stored = 0;
  int64_t lines = 0;
  Document document;
  std::string detail;
  for (;;) {
    const ReadStatus status = reader->next(document, detail);
    if (status == ReadStatus::kEnd) break;
    // What has no text by nature is passed over, as an empty line of jsonl is.
    if (status == ReadStatus::kEmptyText || status == ReadStatus::kNotText) continue;
    if (status != ReadStatus::kDocument) {
      throw DataError("[{}:{}] {}: {}; repair or remove it, or let `strata data build` leave it out",
                      file.path.string(), document.line, read_reason(status), detail);
    }
    block.bytes += "{\"text\":";
    append_json_string(block.bytes, document.text);
    block.bytes += "}\n";
    ++lines;
    if (static_cast<int64_t>(block.bytes.size()) < options.block_bytes) continue;
    block.stored_bytes = reader->bytes_read() - std::exchange(stored, reader->bytes_read());
    const int64_t first_line = block.first_line;
    if (!emit(std::move(block))) return;
    block = {};
    block.file = index;
    block.first_line = first_line + std::exchange(lines, 0);
  }
  block.stored_bytes = reader->bytes_read() - stored;
  block.last = true;
  block.content_hash = hash_file(file.path);
  emit(std::move(block));
}

}  // namespace

// Reading threads claim files in order and queue their blocks a file; the consumer empties the queues in
// order. A thread waits while the budget is spent, unless the consumer waits for that very file.
struct BlockReader::Shared {
  struct FileQueue {
    std::deque<TextBlock> blocks;
    std::exception_ptr error;
    bool done = false;
  };

  Shared(std::vector<CorpusFile> list, const ReaderOptions& reader_options)
      : files(std::move(list)), options(reader_options), queues(files.size()) {}

  bool push(size_t file, TextBlock&& block, const std::stop_token& stop) {
    std::unique_lock lock(mutex);
    const auto size = static_cast<int64_t>(block.bytes.size());
    const bool go = changed.wait(lock, stop, [&] {
      return queued_bytes + size <= options.budget_bytes || (file == current && queues[file].blocks.empty());
    });
    if (!go) return false;
    queued_bytes += size;
    queues[file].blocks.push_back(std::move(block));
    changed.notify_all();
    return true;
  }

  void work(const std::stop_token& stop) {
    for (;;) {
      size_t file;
      {
        std::unique_lock lock(mutex);
        // With many small files the open queues do not limit how far readers run ahead of the consumer.
        if (!changed.wait(lock, stop, [&] {
              return claimed >= files.size() || claimed == current || queued_bytes < options.budget_bytes;
            })) {
          return;
        }
        if (claimed >= files.size()) return;
        file = claimed++;
      }
      std::exception_ptr error;
      try {
        const auto emit = [&](TextBlock&& block) { return push(file, std::move(block), stop); };
        if (files[file].kind == CorpusKind::kRecords) {
          read_record_blocks(files[file], static_cast<int64_t>(file), options, emit);
        } else {
          read_blocks(files[file], static_cast<int64_t>(file), options.block_bytes, emit);
        }
      } catch (...) {
        error = std::current_exception();
      }
      std::lock_guard lock(mutex);
      queues[file].error = std::move(error);  // only the consumer frees it
      queues[file].done = true;
      changed.notify_all();
    }
  }

  const std::vector<CorpusFile> files;
  const ReaderOptions options;
  std::mutex mutex;
  std::condition_variable_any changed;
  std::vector<FileQueue> queues;
  size_t claimed = 0;
  size_t current = 0;
  int64_t queued_bytes = 0;
  std::vector<std::unique_ptr<OwnedThread>> threads;  // last: joined before the members that they use are
                                                      // destroyed
};

BlockReader::BlockReader(std::vector<CorpusFile> files, const ReaderOptions& options)
    : shared_(std::make_unique<Shared>(std::move(files), options)) {
  const int wanted = options.threads > 0 ? options.threads : std::min(4, available_processors());
  const auto count = std::min(static_cast<size_t>(wanted), shared_->files.size());
  for (size_t t = 0; t < count; ++t) {
    shared_->threads.push_back(std::make_unique<OwnedThread>(
        [shared = shared_.get()](const std::stop_token& stop) { shared->work(stop); }));
  }
}

BlockReader::~BlockReader() {
  for (auto& thread : shared_->threads) thread->request_stop();
}

bool BlockReader::next(TextBlock& block) {
  Shared& shared = *shared_;
  std::unique_lock lock(shared.mutex);
  while (shared.current < shared.files.size()) {
    auto& queue = shared.queues[shared.current];
    shared.changed.wait(lock, [&] { return !queue.blocks.empty() || queue.done; });
    if (!queue.blocks.empty()) {
      block = std::move(queue.blocks.front());
      queue.blocks.pop_front();
      shared.queued_bytes -= static_cast<int64_t>(block.bytes.size());
      shared.changed.notify_all();
      return true;
    }
    if (queue.error) std::rethrow_exception(queue.error);
    ++shared.current;
    shared.changed.notify_all();
  }
  return false;
}

void read_documents(const std::vector<CorpusFile>& files, const std::string& text_field,
                    FunctionRef<void(std::string_view text)> document, const ReaderOptions& options) {
  ReaderOptions with_field = options;
  with_field.text_field = text_field;
  BlockReader reader(files, with_field);
  TextBlock block;
  while (reader.next(block)) {
    for_each_document(block, files[static_cast<size_t>(block.file)], text_field,
                      [&](std::string_view text, int64_t) { document(text); });
  }
}

}  // namespace strata::data
