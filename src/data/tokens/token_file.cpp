#include "data/tokens/token_file.h"

#include <charconv>
#include <cstring>
#include <limits>
#include <system_error>

#include "base/error.h"
#include "data/tokens/token_meta.h"

namespace strata::data {
namespace {

bool file_exists(const Path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

Path with_suffix(Path path, const char* suffix) {
  path += suffix;
  return path;
}

}  // namespace

TokenFile::TokenFile(const Path& path, const TokenFileOptions& options)
    : name_(path.string()),
      data_(path),
      ids_(data_.bytes()),
      end_of_text_(options.end_of_text),
      end_begins_(options.end_begins) {
  limit_ = options.vocab_size;
  const Path index_path = Path(path).replace_extension(".idx");
  if (path.extension() == ".ds") {
    open_datatrove(path, options);
  } else if (file_exists(index_path)) {
    open_megatron(index_path);
  } else {
    open_headerless(path, options);
  }
  if (limit_ <= 0) limit_ = int64_t{1} << 31;
}

TokenFile::TokenFile(std::string name, std::vector<int32_t> ids, const TokenFileOptions& options)
    : name_(std::move(name)),
      own_(std::move(ids)),
      ids_(std::as_bytes(std::span(own_))),
      type_(TokenType::kU32),
      tokens_(static_cast<int64_t>(own_.size())),
      limit_(options.vocab_size > 0 ? options.vocab_size : int64_t{1} << 31),
      end_of_text_(options.end_of_text),
      end_begins_(options.end_begins) {}

void TokenFile::set_type_from(const TokenFileOptions& options) {
  if (options.vocab_size <= 0) {
    throw ConfigError(
        "[{}] has ids of unknown width. Put a .json file with \"dtype\" next to it, or name "
        "the model or tokenizer whose vocabulary decides it",
        name_);
  }
  type_ = token_type_for(options.vocab_size);
}

void TokenFile::count_tokens() {
  const auto size = static_cast<int64_t>(ids_.size());
  const int64_t width = token_bytes(type_);
  if (size % width != 0) {
    throw DataError(
        "[{}] has {} bytes, not a multiple of the {} that each {} id takes; the file was cut short, "
        "or has another dtype",
        name_, size, width, token_type_name(type_));
  }
  tokens_ = size / width;
}

void TokenFile::open_headerless(const Path& path, const TokenFileOptions& options) {
  const Path meta_path = Path(path).replace_extension(".json");
  std::optional<int64_t> documents, tokens;
  if (file_exists(meta_path)) {
    const TokenMeta meta = read_token_meta(meta_path);
    // A hash of another length is another tool's and cannot be compared.
    if (!meta.tokenizer_hash.empty() && meta.tokenizer_hash.size() == options.tokenizer_hash.size() &&
        meta.tokenizer_hash != options.tokenizer_hash) {
      throw DataError(
          "[{}] was made with the tokenizer {}, and this run uses {}; tokenize the text again or name "
          "the tokenizer that made the file",
          name_, meta.tokenizer_hash, options.tokenizer_hash);
    }
    if (meta.type)
      type_ = *meta.type;
    else if (meta.vocab_size > 0)
      type_ = token_type_for(meta.vocab_size);
    else
      set_type_from(options);
    if (limit_ <= 0) limit_ = meta.vocab_size;
    tokenizer_hash_ = meta.tokenizer_hash;
    declared_vocab_ = meta.vocab_size;
    if (meta.end_of_text) end_of_text_ = meta.end_of_text;
    documents = meta.documents;
    tokens = meta.tokens;
  } else {
    set_type_from(options);
  }
  count_tokens();
  if (tokens && *tokens != tokens_) {
    throw DataError("[{}] holds {} tokens: {} declares {}. One of the two was cut short or replaced", name_,
                    tokens_, meta_path.string(), *tokens);
  }
  const Path ends_path = Path(path).replace_extension(".documents");
  if (file_exists(ends_path)) open_ends(ends_path);
  if (documents && has_documents() && *documents != documents_) {
    throw DataError("[{}] lists {} documents: {} declares {}. One of the two was cut short or replaced",
                    ends_path.string(), documents_, meta_path.string(), *documents);
  }
}

void TokenFile::open_megatron(const Path& index_path) {
  table_data_ = MappedFile(index_path);
  megatron_ = parse_megatron_index(table_data_.bytes(), index_path.string());
  type_ = megatron_.type;
  count_tokens();
  if (tokens_ != megatron_.tokens) {
    throw DataError(
        "[{}] holds {} tokens: {} declares {}. The two do not belong together, or one was cut short", name_,
        tokens_, index_path.string(), megatron_.tokens);
  }
  documents_ = megatron_.documents;
  if (documents_ > 0) table_ = Table::kMegatron;
}

void TokenFile::open_datatrove(const Path& path, const TokenFileOptions& options) {
  // First line "tokenizer|token size", second the token count.
  const Path meta_path = with_suffix(path, ".metadata");
  std::optional<int64_t> tokens;
  bool sized = false;
  if (file_exists(meta_path)) {
    const std::string text = read_file(meta_path);
    const size_t first_end = text.find('\n');
    const std::string first = text.substr(0, first_end);
    const size_t bar = first.rfind('|');
    if (bar != std::string::npos) {
      tokenizer_name_ = first.substr(0, bar);
      const std::string size = first.substr(bar + 1);
      if (size != "2" && size != "4") {
        throw DataError("[{}] declares {} bytes per token: expected 2 or 4", meta_path.string(), size);
      }
      type_ = size == "2" ? TokenType::kU16 : TokenType::kU32;
      sized = true;
    }
    int64_t count = 0;
    if (first_end != std::string::npos &&
        std::from_chars(text.data() + first_end + 1, text.data() + text.size(), count).ec == std::errc()) {
      tokens = count;
    }
  }
  if (!sized) set_type_from(options);
  count_tokens();
  if (tokens && *tokens != tokens_) {
    throw DataError("[{}] holds {} tokens: {} declares {}. One of the two was cut short or replaced", name_,
                    tokens_, meta_path.string(), *tokens);
  }
  const Path ends_path = with_suffix(path, ".index");
  if (file_exists(ends_path)) open_ends(ends_path);
}

void TokenFile::open_ends(const Path& path) {
  table_data_ = MappedFile(path);
  if (table_data_.size() % 8 != 0) {
    throw DataError("[{}] has {} bytes, not a multiple of 8; the document table was cut short", path.string(),
                    table_data_.size());
  }
  table_ = Table::kEnds;
  documents_ = static_cast<int64_t>(table_data_.size() / 8);
  int64_t previous = 0;
  for (int64_t d = 0; d < documents_; ++d) {
    const int64_t end = document_end(d);
    if (end < previous || end > tokens_) {
      throw DataError(
          "[{}] document {} ends at token {}; expected {} to {}; the table is damaged or belongs to "
          "another file",
          path.string(), d, end, previous, tokens_);
    }
    previous = end;
  }
  if (previous != tokens_) {
    throw DataError(
        "[{}] the last document ends at token {} of {}; the table is damaged or belongs to another "
        "file",
        path.string(), previous, tokens_);
  }
}

void TokenFile::read(int64_t begin, int64_t n, int32_t* out) const {
  STRATA_CHECK(begin >= 0 && n >= 0 && begin + n <= tokens_, "{}: tokens {} + {} of {}", name_, begin, n,
               tokens_);
  int64_t found = 0;
  const std::byte* from = ids_.data() + begin * token_bytes(type_);
  const int64_t bad = convert_tokens(type_, from, n, limit_, out, &found);
  if (bad >= 0) {
    throw DataError(
        "[{}] token {} is {}; expected 0 to {} (the vocabulary). The file was made with another "
        "tokenizer, has another dtype than {}, or is damaged",
        name_, begin + bad, found, limit_ - 1, token_type_name(type_));
  }
}

int64_t TokenFile::document_end(int64_t d) const {
  if (table_ == Table::kMegatron) return megatron_.document_end(d);
  int64_t end;
  std::memcpy(&end, table_data_.bytes().data() + 8 * d, 8);
  return end;
}

int64_t TokenFile::first_document_ending_after(int64_t position) const {
  int64_t low = 0, high = documents_;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (document_end(middle) > position)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

}  // namespace strata::data
