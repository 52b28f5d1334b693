#include "data/tokens/tokenize.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/parallel.h"
#include "data/input/corpus_files.h"
#include "data/tokens/reader.h"
#include "data/tokens/token_file.h"
#include "data/tokens/token_writer.h"

namespace strata::data {
namespace {

constexpr int kFormatVersion = 2;               // raised when the same inputs would give other bytes
constexpr size_t kPartBytes = size_t{1} << 18;  // of a long text
constexpr int64_t kPartsOfThread = 4;

// Text processed per turn: some parts for each thread, and little enough that a signal, which is checked in
// between, is answered in a fraction of a second on a slow machine too. No result depends on it.
int64_t turn_bytes() {
  return compute_threads() * kPartsOfThread * static_cast<int64_t>(kPartBytes);
}

// What identifies the inputs, without their content and with it.
struct InputState {
  uint64_t stat_hash = 0;  // of sizes and modification times
  int64_t bytes = 0;
};

InputState stat_inputs(const std::vector<Path>& paths) {
  InputState state;
  Hasher hasher;
  for (const Path& path : paths) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) {
      throw ConfigError("[{}] cannot be read: {}; check the path and its permissions", path.string(),
                        std::strerror(errno));
    }
    const int64_t facts[3] = {info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
    hasher.update(facts, sizeof facts);
    state.bytes += info.st_size;
  }
  state.stat_hash = hasher.digest();
  return state;
}

std::string cache_key(const std::vector<Path>& paths, const TextEncoder& encoder,
                      const TokenizeOptions& options) {
  nlohmann::json key;
  key["version"] = kFormatVersion;
  key["tokenizer"] = encoder.hash;
  key["add_bos"] = options.add_bos;
  key["add_eos"] = options.add_eos;
  key["text_field"] = options.text_field;
  key["begin_of_text"] = options.add_bos ? encoder.begin_of_text : std::vector<int32_t>();
  key["end_of_text"] = encoder.end_of_text.value_or(-1);
  key["special_in_text"] = static_cast<int>(encoder.special_in_text);
  key["id_limit"] = encoder.id_limit;
  Hasher hasher;
  hasher.update(key.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
  for (const Path& path : paths) {
    hasher.update(std::filesystem::absolute(path).lexically_normal().string());
    hasher.update("\0", 1);
  }
  return to_hex(hasher.digest());
}

// Hash over the contents of all inputs, in order.
class ContentHash {
 public:
  void add(uint64_t content_hash) { hasher_.update(&content_hash, sizeof content_hash); }
  std::string digest() const { return to_hex(hasher_.digest()); }

 private:
  Hasher hasher_;
};

std::string hash_contents(const std::vector<Path>& paths) {
  std::vector<uint64_t> hashes(paths.size());
  parallel_for(static_cast<int64_t>(paths.size()), [&](int64_t i) {
    const MappedFile file(paths[static_cast<size_t>(i)]);
    hashes[static_cast<size_t>(i)] = hash64(file.text());
  });
  ContentHash all;
  for (const uint64_t hash : hashes) all.add(hash);
  return all.digest();
}

class Cache {
 public:
  Cache(FileSystem& files, const Path& folder, const std::vector<Path>& inputs, const std::string& key)
      : files_(files), inputs_(inputs), path_(folder / ("tokens-" + key + ".bin")) {}

  const Path& path() const { return path_; }

  // The cached result, if it belongs to the unchanged inputs.
  std::optional<TokenizeResult> find() const {
    const Path meta_path = Path(path_).replace_extension(".json");
    std::error_code error;
    if (!std::filesystem::exists(meta_path, error) || !std::filesystem::exists(path_, error))
      return std::nullopt;
    try {
      auto meta = parse_json<nlohmann::ordered_json>(read_file(meta_path));
      const InputState now = stat_inputs(inputs_);
      if (meta.at("inputs_bytes") != now.bytes) return std::nullopt;
      if (meta.at("inputs_stat") != to_hex(now.stat_hash)) {
        if (meta.at("inputs_content") != hash_contents(inputs_)) return std::nullopt;
        meta["inputs_stat"] = to_hex(now.stat_hash);
        write_file_atomically(files_, meta_path, dump_json(meta, 2) + "\n");
      }
      const TokenFile file(path_);  // checks the sizes against each other
      if (!file.has_documents()) return std::nullopt;
      if (!is_as_made(meta_path, meta)) {
        log_warning("{} was changed since it was made; it is made again", path_.string());
        return std::nullopt;
      }
      return TokenizeResult{path_, true, file.documents(), file.tokens(),
                            meta.at("special_in_text").get<std::map<std::string, int64_t>>()};
    } catch (const nlohmann::json::exception&) {
      return std::nullopt;  // the file was altered: make it again
    } catch (const DataError&) {
      return std::nullopt;
    }
  }

  // Notes in the finished file's .json what its bytes are.
  void note_content() const {
    const Path meta_path = Path(path_).replace_extension(".json");
    auto meta = parse_json<nlohmann::ordered_json>(read_file(meta_path));
    meta["tokens_content"] = hash_contents(outputs());
    meta["tokens_stat"] = to_hex(stat_inputs(outputs()).stat_hash);
    write_file_atomically(files_, meta_path, dump_json(meta, 2) + "\n");
  }

  // Waits for another process that makes the same file.
  FileLock lock(FunctionRef<void(const TokenizeProgress&)> progress) const {
    Path lock_path = path_;
    lock_path.replace_extension(".lock");
    for (bool reported = false;;) {
      try {
        return FileLock(lock_path);
      } catch (const ConfigError&) {
        if (!std::exchange(reported, true))
          log_info("another process makes {}; waiting for it", path_.string());
        progress({});
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    }
  }

 private:
  std::vector<Path> outputs() const { return {path_, Path(path_).replace_extension(".documents")}; }

  // Read again only if size or time show a change. Older files do not record them.
  bool is_as_made(const Path& meta_path, nlohmann::ordered_json& meta) const {
    if (!meta.contains("tokens_content")) return true;
    const std::string stat = to_hex(stat_inputs(outputs()).stat_hash);
    if (meta.at("tokens_stat") == stat) return true;
    if (meta.at("tokens_content") != hash_contents(outputs())) return false;
    meta["tokens_stat"] = stat;
    write_file_atomically(files_, meta_path, dump_json(meta, 2) + "\n");
    return true;
  }

  FileSystem& files_;
  const std::vector<Path>& inputs_;
  Path path_;
};

// What one task encodes: a block, or bytes [begin, end) of a block that is one long text.
struct Part {
  const TextBlock* block;
  size_t begin, end;
  bool whole() const { return begin == 0 && end == block->bytes.size(); }
};

// The ids of one part's documents, and where each that ends in it ends among them.
struct EncodedPart {
  std::vector<int32_t> ids;
  std::vector<size_t> ends;
  SpecialCounts special;
  std::exception_ptr error;
};

class Build {
 public:
  Build(const std::vector<CorpusFile>& inputs, const TextEncoder& encoder, const TokenizeOptions& options,
        TokenWriter& writer, FunctionRef<void(const TokenizeProgress&)> progress)
      : inputs_(inputs), encoder_(encoder), options_(options), writer_(writer), progress_(progress) {}

  const SpecialCounts& special() const { return special_; }

  // Writes all documents; returns the hash over the inputs' contents.
  std::string run(int64_t bytes_total) {
    done_.bytes_total = bytes_total;
    BlockReader reader(inputs_, {.text_field = options_.text_field});
    ContentHash contents;
    std::vector<TextBlock> batch;
    bool more = true;
    while (more) {
      batch.clear();
      int64_t bytes = 0;
      while (bytes < turn_bytes_) {
        TextBlock block;
        more = reader.next(block);
        if (!more) break;
        if (block.last) contents.add(block.content_hash);
        bytes += static_cast<int64_t>(block.bytes.size());
        batch.push_back(std::move(block));
      }
      encode(batch);
    }
    progress_(done_);
    return contents.digest();
  }

 private:
  // In turns of about turn_bytes_, so that a long text neither holds all its ids in memory nor keeps silent.
  void encode(const std::vector<TextBlock>& batch) {
    std::vector<Part> turn;
    int64_t bytes = 0;
    auto flush = [&] {
      if (turn.empty()) return;
      encode(turn);
      turn.clear();
      bytes = 0;
    };
    for (const TextBlock& block : batch) {
      size_t begin = 0;
      do {
        const size_t end = end_of_part(block, begin);
        turn.push_back({&block, begin, end});
        bytes += static_cast<int64_t>(end - begin);
        begin = end;
        if (bytes >= turn_bytes_) flush();
      } while (begin < block.bytes.size());
    }
    flush();
  }

  size_t end_of_part(const TextBlock& block, size_t begin) const {
    const size_t size = block.bytes.size();
    const bool text = inputs_[static_cast<size_t>(block.file)].kind == CorpusKind::kText;
    if (!text || !encoder_.next_cut || size - begin < 2 * kPartBytes) return size;
    return encoder_.next_cut(block.bytes, begin + kPartBytes);
  }

  void encode(const std::vector<Part>& parts) {
    std::vector<EncodedPart> encoded(parts.size());
    parallel_for(static_cast<int64_t>(parts.size()), [&](int64_t i) {
      EncodedPart& out = encoded[static_cast<size_t>(i)];
      try {
        encode_part(parts[static_cast<size_t>(i)], out);
      } catch (...) {
        out.error = std::current_exception();
      }
    });
    for (size_t i = 0; i < parts.size(); ++i) {
      write(encoded[i]);
      count_bytes(parts[i]);
    }
    done_.documents = writer_.documents();
    done_.tokens = writer_.tokens();
    progress_(done_);
  }

  void write(const EncodedPart& part) {
    // The first in order, so that the same error is reported regardless of threads.
    if (part.error) std::rethrow_exception(part.error);
    for (const auto& [id, count] : part.special) special_[id] += count;
    const std::span<const int32_t> ids = part.ids;
    size_t begin = 0;
    for (const size_t end : part.ends) {
      writer_.append(ids.subspan(begin, end - begin));
      writer_.end_document();
      begin = end;
    }
    if (begin < ids.size()) writer_.append(ids.subspan(begin));
  }

  // Parts of a block share its stored bytes, which may be fewer, so that the sum is exact.
  void count_bytes(const Part& part) {
    const double size = static_cast<double>(std::max<size_t>(1, part.block->bytes.size()));
    const auto share = [&](size_t at) {
      return at == part.block->bytes.size()
                 ? part.block->stored_bytes
                 : static_cast<int64_t>(static_cast<double>(part.block->stored_bytes) *
                                        static_cast<double>(at) / size);
    };
    done_.bytes_done += share(part.end) - (part.begin == 0 ? 0 : share(part.begin));
  }

  void encode_part(const Part& part, EncodedPart& out) const {
    if (!part.whole()) return encode_cut(part, out);
    const CorpusFile& file = inputs_[static_cast<size_t>(part.block->file)];
    for_each_document(*part.block, file, options_.text_field, [&](std::string_view text, int64_t line) {
      begin_document(out);
      const auto place = [&] { return file.path.string() + (line > 0 ? ":" + std::to_string(line) : ""); };
      encode_document(encoder_, text, place, out.ids, out.special);
      end_document(out);
    });
  }

  void encode_cut(const Part& part, EncodedPart& out) const {
    const std::string_view text = part.block->bytes;
    if (part.begin == 0) begin_document(out);
    const auto place = [&] { return inputs_[static_cast<size_t>(part.block->file)].path.string(); };
    encode_document(encoder_, text.substr(part.begin, part.end - part.begin), place, out.ids, out.special);
    if (part.end == text.size()) end_document(out);
  }

  void begin_document(EncodedPart& out) const {
    if (!options_.add_bos) return;
    out.ids.insert(out.ids.end(), encoder_.begin_of_text.begin(), encoder_.begin_of_text.end());
  }
  void end_document(EncodedPart& out) const {
    if (options_.add_eos) out.ids.push_back(*encoder_.end_of_text);
    out.ends.push_back(out.ids.size());
  }

  const std::vector<CorpusFile>& inputs_;
  const TextEncoder& encoder_;
  const TokenizeOptions& options_;
  TokenWriter& writer_;
  FunctionRef<void(const TokenizeProgress&)> progress_;
  TokenizeProgress done_;
  SpecialCounts special_;
  const int64_t turn_bytes_ = turn_bytes();
};

void check_options(const TextEncoder& encoder, const TokenizeOptions& options) {
  if (options.add_eos && !encoder.end_of_text) {
    throw ConfigError(
        "[tokenizer.add_eos] is true, and the tokenizer has no end-of-text token; set it to false, name the "
        "token "
        "as tokenizer.eos, or use a tokenizer that has one");
  }
  if (options.add_bos && encoder.begin_of_text.empty()) {
    throw ConfigError(
        "[tokenizer.add_bos] is true, and the tokenizer has no begin-of-text token; set it to false, name "
        "the token "
        "as tokenizer.bos, or use a tokenizer that has one");
  }
}

}  // namespace

void encode_document(const TextEncoder& encoder, std::string_view text, FunctionRef<std::string()> place,
                     std::vector<int32_t>& ids, SpecialCounts& special) {
  const size_t first = ids.size();
  if (encoder.special_in_text == SpecialInText::kRefuse) {
    SpecialCounts found;
    encoder.encode(text, ids, found);
    if (!found.empty()) {
      throw DataError(
          "[{}] spells out the special token {}, and special_in_text is \"refuse\"; take it out of the text, "
          "or set "
          "special_in_text to \"text\" (plain letters) or \"token\"",
          place(), encoder.token(found.begin()->first));
    }
  } else {
    encoder.encode(text, ids, special);
  }
  if (encoder.id_limit == 0) return;
  for (size_t i = first; i < ids.size(); ++i) {
    if (ids[i] < encoder.id_limit) continue;
    throw DataError(
        "[{}] holds the token {} (id {}), and the model's vocabulary ends at {}; take it out of the text, or "
        "set "
        "special_in_text = \"text\" if it is a special token",
        place(), encoder.token(ids[i]), ids[i], encoder.id_limit);
  }
}

std::map<std::string, int64_t> named_counts(const TextEncoder& encoder, const SpecialCounts& special) {
  std::map<std::string, int64_t> out;
  for (const auto& [id, count] : special) out[encoder.token(id)] += count;
  return out;
}

std::string to_string(const std::map<std::string, int64_t>& special) {
  constexpr size_t kShown = 8;
  std::vector<std::pair<int64_t, std::string>> sorted;
  for (const auto& [name, count] : special) sorted.emplace_back(-count, name);
  std::sort(sorted.begin(), sorted.end());
  std::string out;
  for (size_t i = 0; i < std::min(kShown, sorted.size()); ++i) {
    const int64_t count = -sorted[i].first;
    out += fmt::format("{}{} {} time{}", i > 0 ? ", " : "", sorted[i].second, count, count == 1 ? "" : "s");
  }
  return out + (sorted.size() > kShown ? fmt::format(" and {} more", sorted.size() - kShown) : "");
}

TokenizeResult tokenize_corpus(FileSystem& files, const std::vector<std::string>& inputs,
                               const TextEncoder& encoder, const TokenizeOptions& options,
                               const Path& cache_folder,
                               FunctionRef<void(const TokenizeProgress&)> progress) {
  check_options(encoder, options);
  const std::vector<Path> paths = list_corpus_paths(inputs);
  const Cache cache(files, cache_folder, paths, cache_key(paths, encoder, options));
  if (auto found = cache.find()) return *found;

  files.create_directories(cache_folder);
  const FileLock lock = cache.lock(progress);
  if (auto found = cache.find()) return *found;

  std::vector<CorpusFile> corpus;
  for (const Path& path : paths) {
    corpus.push_back(classify_corpus_file(path));
    if (corpus.back().kind == CorpusKind::kTokens) {
      throw ConfigError("[{}] is a token file among texts; name either texts or token files in one source",
                        path.string());
    }
  }
  // Before the first byte is read: a file that changes on the way is then seen as changed the next time.
  const InputState state = stat_inputs(paths);
  TokenWriter writer(files, cache.path(), token_type_for(encoder.vocab_size));
  nlohmann::ordered_json more;
  Build build(corpus, encoder, options, writer, progress);
  more["inputs_content"] = build.run(state.bytes);
  const auto special = named_counts(encoder, build.special());
  if (writer.tokens() == 0) {
    throw DataError(
        "[{}] holds no text: {} files, {} bytes, no document with a token in it; give files with text",
        inputs.front(), paths.size(), state.bytes);
  }
  more["inputs_files"] = paths.size();
  more["inputs_bytes"] = state.bytes;
  more["inputs_stat"] = to_hex(state.stat_hash);
  more["add_bos"] = options.add_bos;
  more["add_eos"] = options.add_eos;
  more["special_in_text"] = special;
  TokenMeta meta;
  meta.vocab_size =
      encoder.id_limit > 0 ? std::min(encoder.id_limit, encoder.vocab_size) : encoder.vocab_size;
  meta.tokenizer_hash = encoder.hash;
  meta.end_of_text = encoder.end_of_text;
  writer.finish(std::move(meta), dump_json(more, -1, InvalidUtf8::kReplace));
  cache.note_content();
  return {cache.path(), false, writer.documents(), writer.tokens(), special};
}

}  // namespace strata::data
