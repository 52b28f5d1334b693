#include "data/token_writer.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"

namespace strata::data {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

Path folder_of(const Path& path) {
  return path.has_parent_path() ? path.parent_path() : Path(".");
}

}  // namespace

TokenWriter::TokenWriter(FileSystem& files, const Path& path, TokenType type)
    : files_(files),
      path_(path),
      type_(type),
      ids_(open(path)),
      ends_(open(Path(path).replace_extension(".documents"))) {
  STRATA_CHECK(type == TokenType::kU16 || type == TokenType::kU32, "token files are written as u16 or u32");
}

TokenWriter::~TokenWriter() {
  if (finished_) return;
  for (Output* output : {&ids_, &ends_}) {
    try {
      output->file.reset();
      files_.remove(output->part);
    } catch (const Error&) {
      // The error that ended the writing is under way already; *.part is no token file to any reader.
    }
  }
}

TokenWriter::Output TokenWriter::open(const Path& path) {
  Output output;
  output.path = path;
  output.part = path;
  output.part += ".part";
  output.file = files_.open_for_writing(output.part);
  output.buffer.reserve(kBufferBytes);
  return output;
}

void TokenWriter::flush(Output& output) {
  output.file->append(output.buffer.data(), output.buffer.size());
  output.buffer.clear();
}

template <typename T>
void TokenWriter::append_as(std::span<const int32_t> ids) {
  while (!ids.empty()) {
    if (ids_.buffer.size() + sizeof(T) > kBufferBytes) flush(ids_);
    const size_t used = ids_.buffer.size();
    const size_t count = std::min(ids.size(), (kBufferBytes - used) / sizeof(T));
    ids_.buffer.resize(used + count * sizeof(T));
    char* at = ids_.buffer.data() + used;
    uint32_t largest = 0;  // a negative id is a large one, too
    for (size_t i = 0; i < count; ++i) {
      largest = std::max(largest, static_cast<uint32_t>(ids[i]));
      const T value = static_cast<T>(ids[i]);
      std::memcpy(at + i * sizeof(T), &value, sizeof(T));
    }
    constexpr uint32_t kLargest = std::min<uint32_t>(std::numeric_limits<T>::max(), INT32_MAX);
    STRATA_CHECK(largest <= kLargest, "id {} in a {} file", static_cast<int32_t>(largest),
                 token_type_name(type_));
    ids = ids.subspan(count);
  }
}

void TokenWriter::append(std::span<const int32_t> ids) {
  if (type_ == TokenType::kU16)
    append_as<uint16_t>(ids);
  else
    append_as<uint32_t>(ids);
  tokens_ += static_cast<int64_t>(ids.size());
}

void TokenWriter::end_document() {
  if (ends_.buffer.size() + 8 > kBufferBytes) flush(ends_);
  const auto end = static_cast<uint64_t>(tokens_);
  const auto* bytes = reinterpret_cast<const char*>(&end);
  ends_.buffer.insert(ends_.buffer.end(), bytes, bytes + 8);
  ++documents_;
}

void TokenWriter::finish(TokenMeta meta, const std::string& more) {
  auto json = more.empty() ? nlohmann::ordered_json::object() : nlohmann::ordered_json::parse(more);
  nlohmann::ordered_json whole;
  whole["dtype"] = token_type_name(type_);
  if (meta.vocab_size > 0) whole["vocab_size"] = meta.vocab_size;
  if (!meta.tokenizer_hash.empty()) whole["tokenizer_hash"] = meta.tokenizer_hash;
  if (meta.end_of_text) whole["end_of_text_id"] = *meta.end_of_text;
  whole["documents"] = documents_;
  whole["tokens"] = tokens_;
  whole.update(json);
  for (Output* output : {&ids_, &ends_}) {
    flush(*output);
    output->file->sync();
    output->file->close();
  }
  // A description of the old content must not stand beside the new one, not even after a power cut.
  const Path meta_path = Path(path_).replace_extension(".json");
  files_.remove(meta_path);
  files_.sync_directory(folder_of(path_));
  for (Output* output : {&ids_, &ends_}) files_.rename(output->part, output->path);
  files_.sync_directory(folder_of(path_));
  // File names are bytes; JSON is not: what is not UTF-8 is replaced.
  write_file_atomically(files_, meta_path,
                        whole.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  finished_ = true;
}

}  // namespace strata::data
