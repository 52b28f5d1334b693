#include "data/tokens/token_writer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace strata::data {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

Path folder_of(const Path& path) {
  return path.has_parent_path() ? path.parent_path() : Path(".");
}

Path with_suffix(Path path, const char* suffix) {
  path += suffix;
  return path;
}

// The table of documents; of Megatron only what its index is made from at the end.
Path ends_path(const Path& path, TokenFormat format) {
  return format == TokenFormat::kDatatrove ? with_suffix(path, ".index")
                                           : Path(path).replace_extension(".documents");
}

}  // namespace

std::string_view token_format_name(TokenFormat format) {
  static constexpr std::string_view kNames[] = {"strata", "megatron", "datatrove"};
  return kNames[static_cast<size_t>(format)];
}

std::string_view token_format_extension(TokenFormat format) {
  return format == TokenFormat::kDatatrove ? ".ds" : ".bin";
}

TokenType token_type_for(int64_t vocab_size, TokenFormat format) {
  if (format != TokenFormat::kMegatron) return token_type_for(vocab_size);
  return vocab_size < 65500 ? TokenType::kU16 : TokenType::kI32;
}

// As the humanize package: metric(count, unit="T").
std::string datatrove_count(int64_t tokens) {
  constexpr std::string_view kPrefixes = "kMGTPE";
  const int exponent =
      tokens == 0 ? 0 : static_cast<int>(std::floor(std::log10(static_cast<double>(tokens))));
  int bucket = exponent / 3;
  double value = static_cast<double>(tokens) / std::pow(10.0, 3 * bucket);
  int digits = 2 - exponent % 3;
  std::string text = fmt::format("{:.{}f}", value, digits);
  // 9.999 is 10.0 and 999.9 is 1.00 k: one digit before the point more.
  if (std::stod(text) >= std::pow(10.0, exponent % 3 + 1)) {
    const int next = exponent + 1;
    value /= std::pow(10.0, 3 * (next / 3 - bucket));
    bucket = next / 3;
    digits = 2 - next % 3;
    text = fmt::format("{:.{}f}", value, digits);
  }
  return text + " " + (bucket > 0 ? std::string(1, kPrefixes[static_cast<size_t>(bucket - 1)]) : "") + "T";
}

TokenWriter::TokenWriter(FileSystem& files, const Path& path, TokenType type, TokenFormat format)
    : files_(files),
      path_(path),
      type_(type),
      format_(format),
      ids_(open(path)),
      ends_(open(ends_path(path, format))) {
  STRATA_CHECK(type == TokenType::kU16 || type == TokenType::kU32 || type == TokenType::kI32,
               "token files are written as u16, u32 or i32");
}

TokenWriter::~TokenWriter() {
  if (finished_) return;
  ids_.file.reset();
  ends_.file.reset();
  for (const Path& part :
       {ids_.part, ends_.part, with_suffix(Path(path_).replace_extension(".idx"), ".part")}) {
    try {
      files_.remove(part);
    } catch (const Error&) {
      // The error that ended the writing is already propagating; no reader takes *.part for a token file.
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
  if (format_ == TokenFormat::kMegatron && tokens_ - document_begin_ > kLongestMegatronDocument) {
    throw DataError(
        "[{}] document {} has {} tokens; a Megatron index holds up to {}; cut it, or write another format",
        path_.string(), documents_, tokens_ - document_begin_, kLongestMegatronDocument);
  }
  document_begin_ = tokens_;
  if (ends_.buffer.size() + 8 > kBufferBytes) flush(ends_);
  const auto end = static_cast<uint64_t>(tokens_);
  const auto* bytes = reinterpret_cast<const char*>(&end);
  ends_.buffer.insert(ends_.buffer.end(), bytes, bytes + 8);
  ++documents_;
}

// The .idx file from the ends of documents. A document without tokens has no sequence, as with Megatron's own
// writer.
void TokenWriter::write_index() {
  const MappedFile table(ends_.part);
  const auto end_of = [&](int64_t d) {
    int64_t end = 0;
    if (d >= 0) std::memcpy(&end, table.bytes().data() + 8 * d, 8);
    return end;
  };
  int64_t sequences = 0;
  for (int64_t d = 0; d < documents_; ++d) sequences += end_of(d) > end_of(d - 1) ? 1 : 0;

  Output index = open(Path(path_).replace_extension(".idx"));
  const auto put = [&](const auto& value) {
    const auto* bytes = reinterpret_cast<const char*>(&value);
    if (index.buffer.size() + sizeof value > kBufferBytes) flush(index);
    index.buffer.insert(index.buffer.end(), bytes, bytes + sizeof value);
  };
  for (const char c : {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'}) put(c);
  put(uint64_t{1});
  put(type_ == TokenType::kU16 ? uint8_t{8} : uint8_t{4});
  put(static_cast<uint64_t>(sequences));
  put(static_cast<uint64_t>(documents_ + 1));
  for (int64_t d = 0; d < documents_; ++d) {
    if (end_of(d) > end_of(d - 1)) put(static_cast<int32_t>(end_of(d) - end_of(d - 1)));
  }
  for (int64_t d = 0; d < documents_; ++d) {
    if (end_of(d) > end_of(d - 1)) put(end_of(d - 1) * token_bytes(type_));
  }
  put(int64_t{0});
  int64_t sequence = 0;
  for (int64_t d = 0; d < documents_; ++d) {
    sequence += end_of(d) > end_of(d - 1) ? 1 : 0;
    put(sequence);
  }
  flush(index);
  index.file->sync();
  index.file->close();
}

// The ids and their table first, then the file that describes them: a description of the old content must not
// be next to the new one, not even after a power cut.
void TokenWriter::put_in_place(const Path& description, const std::string& content) {
  files_.remove(description);
  files_.sync_directory(folder_of(path_));
  for (Output* output : {&ids_, &ends_}) files_.rename(output->part, output->path);
  files_.sync_directory(folder_of(path_));
  write_file_atomically(files_, description, content);
}

void TokenWriter::finish(TokenMeta meta, const std::string& more) {
  for (Output* output : {&ids_, &ends_}) {
    flush(*output);
    output->file->sync();
    output->file->close();
  }
  if (format_ == TokenFormat::kMegatron) {
    write_index();
    const Path index = Path(path_).replace_extension(".idx");
    files_.remove(ends_.part);
    files_.remove(index);
    files_.sync_directory(folder_of(path_));
    files_.rename(ids_.part, ids_.path);
    files_.sync_directory(folder_of(path_));
    files_.rename(with_suffix(index, ".part"), index);
    files_.sync_directory(folder_of(path_));
  } else if (format_ == TokenFormat::kDatatrove) {
    put_in_place(with_suffix(path_, ".metadata"),
                 fmt::format("{}|{}\n{}\n{}", meta.tokenizer_name, token_bytes(type_), tokens_,
                             datatrove_count(tokens_)));
  } else {
    nlohmann::ordered_json whole;
    whole["dtype"] = token_type_name(type_);
    if (meta.vocab_size > 0) whole["vocab_size"] = meta.vocab_size;
    if (!meta.tokenizer_hash.empty()) whole["tokenizer_hash"] = meta.tokenizer_hash;
    if (meta.end_of_text) whole["end_of_text_id"] = *meta.end_of_text;
    whole["documents"] = documents_;
    whole["tokens"] = tokens_;
    if (!more.empty()) whole.update(parse_json<nlohmann::ordered_json>(more));
    // File names are bytes; JSON is UTF-8: invalid bytes are replaced.
    put_in_place(Path(path_).replace_extension(".json"), dump_json(whole, 2, InvalidUtf8::kReplace) + "\n");
  }
  finished_ = true;
}

}  // namespace strata::data
