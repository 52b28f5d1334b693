#include "data/tokenizer/tokenizer.h"

#include <algorithm>
#include <mutex>

#include "base/error.h"
#include "base/hash.h"
#include "data/tokenizer/base64.h"
#include "data/tokenizer/cut.h"
#include "data/tokenizer/piece_cache.h"
#include "data/tokenizer/tokenizer_file.h"
#include "data/tokenizer/unicode.h"

namespace strata::data {
namespace {

// What one thread needs while it encodes.
struct EncodeScratch {
  PieceCache cache;
  BpeScratch bpe;
  UnigramScratch unigram;
  PieceBuffer pieces;
  std::vector<size_t> ends;
  std::vector<AddedTokenPart> raw_parts;
  std::vector<AddedTokenPart> parts;
  std::string normalized;
};

void encode_piece(const BpeModel& model, std::string_view piece, EncodeScratch& scratch,
                  std::vector<int32_t>& out) {
  model.encode_piece(piece, scratch.bpe, out);
}
void encode_piece(const UnigramModel& model, std::string_view piece, EncodeScratch& scratch,
                  std::vector<int32_t>& out) {
  model.encode_piece(piece, scratch.unigram, out);
}
void encode_piece(const WordPieceModel& model, std::string_view piece, EncodeScratch&,
                  std::vector<int32_t>& out) {
  model.encode_piece(piece, out);
}

// Scratch is lent for one call and comes back warm, cache and all.
class ScratchPool {
 public:
  std::unique_ptr<EncodeScratch> take() {
    {
      std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        auto scratch = std::move(free_.back());
        free_.pop_back();
        return scratch;
      }
    }
    return std::make_unique<EncodeScratch>();
  }
  void give_back(std::unique_ptr<EncodeScratch> scratch) {
    std::lock_guard lock(mutex_);
    free_.push_back(std::move(scratch));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<EncodeScratch>> free_;
};

class Lease {
 public:
  explicit Lease(ScratchPool& pool) : pool_(pool), scratch_(pool.take()) {}
  ~Lease() { pool_.give_back(std::move(scratch_)); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  EncodeScratch& operator*() { return *scratch_; }

 private:
  ScratchPool& pool_;
  std::unique_ptr<EncodeScratch> scratch_;
};

}  // namespace

struct Tokenizer::State {
  State(TokenizerParts parts, std::string content);

  void encode(std::string_view text, const EncodeOptions& options, EncodeScratch& scratch,
              std::vector<int32_t>& out) const;

  std::string json;
  uint64_t hash = 0;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  PostProcessor post_processor;
  Decoder decoder;
  std::optional<SentencePieceDecoder> ids_decoder;
  Model model;
  std::vector<AddedToken> added_tokens;
  AddedTokenFinder raw_finder;
  AddedTokenFinder normalized_finder;
  StringTable tokens;         // model and added tokens
  std::vector<bool> special;  // by id
  StringTable bytes;          // by id, where the decoder is plain byte-level
  bool cuts = false;          // texts may be cut at the places of find_cut
  mutable ScratchPool pool;

 private:
  void encode_raw(std::string_view text, bool at_begin, const EncodeOptions& options, EncodeScratch& scratch,
                  std::vector<int32_t>& out) const;
  void find_whole_words();
  void encode_plain(std::string_view text, bool at_begin, EncodeScratch& scratch,
                    std::vector<int32_t>& out) const;
  template <typename ModelKind>
  void encode_pieces(const ModelKind& kind, std::string_view text, bool at_begin, EncodeScratch& scratch,
                     std::vector<int32_t>& out) const;
};

Tokenizer::State::State(TokenizerParts parts, std::string content)
    : json(parts.json.empty() ? std::move(content) : std::move(parts.json)),
      hash(hash64(json)),
      normalizer(std::move(parts.normalizer)),
      pre_tokenizer(std::move(parts.pre_tokenizer)),
      post_processor(std::move(parts.post_processor)),
      decoder(std::move(parts.decoder)),
      ids_decoder(std::move(parts.ids_decoder)),
      model(std::move(parts.model)),
      added_tokens(std::move(parts.added_tokens)) {
  cuts = std::holds_alternative<BpeModel>(model) && pre_tokenizer.single_scanner() &&
         (normalizer.empty() || normalizer.is_nfc()) &&
         std::none_of(added_tokens.begin(), added_tokens.end(), may_cross_cut);
  const Normalizer none;
  const Normalizer& of_tokens = parts.tokens_are_normalized ? none : normalizer;
  std::vector<const AddedToken*> raw;
  std::vector<const AddedToken*> normalized;
  for (const bool wanted : {true, false}) {  // special tokens first: of equal texts the first one counts
    for (const AddedToken& token : added_tokens) {
      if (token.special == wanted && token.in_text) (token.normalized ? normalized : raw).push_back(&token);
    }
  }
  raw_finder = AddedTokenFinder(raw, of_tokens);
  normalized_finder = AddedTokenFinder(normalized, of_tokens);

  const StringTable& vocabulary =
      std::visit([](const auto& kind) -> const StringTable& { return kind.vocabulary(); }, model);
  std::vector<StringTable::Entry> entries;
  for (int32_t id = 0; id < vocabulary.id_end(); ++id) {
    if (vocabulary.has(id)) entries.push_back({vocabulary.text(id), id});
  }
  // A token that is looked for in normalized text is called by its normalized text.
  std::vector<std::string> names;
  names.reserve(added_tokens.size());
  std::string storage;
  for (const AddedToken& token : added_tokens) {
    names.emplace_back(token.normalized ? of_tokens.apply(token.content, storage) : token.content);
    entries.push_back({names.back(), token.id});
  }
  tokens = StringTable(entries);
  if (tokens.id_end() == 0)
    throw DataError("[tokenizer] {} has no tokens; is the file damaged?", parts.where);
  special.assign(static_cast<size_t>(tokens.id_end()), false);
  for (const AddedToken& token : added_tokens) {
    if (token.special) special[static_cast<size_t>(token.id)] = true;
  }
  for (const auto* side : {&post_processor.prefix, &post_processor.suffix}) {
    for (const int32_t id : *side) {
      if (!tokens.has(id)) {
        throw DataError("[tokenizer] {}post_processor adds the id {}, which is not a token", parts.where, id);
      }
    }
  }
  if (decoder.is_plain_byte_level()) {
    std::vector<std::string> texts;
    texts.reserve(entries.size());
    for (StringTable::Entry& entry : entries) entry.text = texts.emplace_back(byte_level_bytes(entry.text));
    bytes = StringTable(entries);
  }
  find_whole_words();
}

// Special tokens that the model itself would find in a text: taken as text, their letters must be kept apart.
void Tokenizer::State::find_whole_words() {
  const auto in_text = [](const AddedToken& token) { return token.special && token.in_text; };
  if (std::none_of(added_tokens.begin(), added_tokens.end(), in_text)) return;
  Lease scratch(pool);
  std::vector<int32_t> ids;
  std::string storage;
  for (AddedToken& token : added_tokens) {
    if (!in_text(token)) continue;
    ids.clear();
    try {
      encode_plain(normalizer.apply(token.content, storage), false, *scratch, ids);
    } catch (const Error&) {
      continue;  // letters that the model does not know: a text with them is refused as well
    }
    token.is_word_of_model = std::find(ids.begin(), ids.end(), token.id) != ids.end();
  }
}

template <typename ModelKind>
void Tokenizer::State::encode_pieces(const ModelKind& kind, std::string_view text, bool at_begin,
                                     EncodeScratch& scratch, std::vector<int32_t>& out) const {
  // A block of pieces at a time: their places in the cache are on the way while others are worked on.
  constexpr size_t kBlock = 32;
  PieceCache::Key keys[kBlock];
  const auto encode_block = [&](std::span<const std::string_view> block, const char* end) {
    for (size_t i = 0; i < block.size(); ++i) {
      if (block[i].size() > PieceCache::kLongestPiece) continue;
      keys[i] = PieceCache::make_key(block[i], end);
      scratch.cache.prefetch(keys[i]);
    }
    for (size_t i = 0; i < block.size(); ++i) {
      if (block[i].empty()) continue;
      if (block[i].size() > PieceCache::kLongestPiece) {
        encode_piece(kind, block[i], scratch, out);
      } else if (!scratch.cache.append(keys[i], out)) {
        const size_t first = out.size();
        encode_piece(kind, block[i], scratch, out);
        scratch.cache.store(keys[i], std::span(out).subspan(first));
      }
    }
  };
  std::string_view block[kBlock];
  if (const auto pattern = pre_tokenizer.single_scanner()) {
    for (size_t from = 0; from < text.size();) {
      scratch.ends.clear();
      scan_pieces(*pattern, text, from, kBlock, scratch.ends);
      size_t count = 0;
      for (const size_t piece_end : scratch.ends) {
        block[count++] = text.substr(from, piece_end - from);
        from = piece_end;
      }
      encode_block({block, count}, text.data() + text.size());
    }
    return;
  }
  pre_tokenizer.split(text, at_begin, scratch.pieces);
  const std::string_view split = scratch.pieces.text;
  const std::vector<Piece>& pieces = scratch.pieces.pieces;
  for (size_t from = 0; from < pieces.size(); from += kBlock) {
    const size_t count = std::min(kBlock, pieces.size() - from);
    for (size_t i = 0; i < count; ++i) {
      block[i] = split.substr(pieces[from + i].begin, pieces[from + i].end - pieces[from + i].begin);
    }
    encode_block({block, count}, split.data() + split.size());
  }
}

void Tokenizer::State::encode_plain(std::string_view text, bool at_begin, EncodeScratch& scratch,
                                    std::vector<int32_t>& out) const {
  std::visit([&](const auto& kind) { encode_pieces(kind, text, at_begin, scratch, out); }, model);
}

void Tokenizer::State::encode_raw(std::string_view text, bool at_begin, const EncodeOptions& options,
                                  EncodeScratch& scratch, std::vector<int32_t>& out) const {
  text = normalizer.apply(text, scratch.normalized);
  if (!options.parse_added_tokens || normalized_finder.empty())
    return encode_plain(text, at_begin, scratch, out);
  scratch.parts.clear();
  normalized_finder.split(text, scratch.parts, options.special_as_text, options.special);
  for (const AddedTokenPart& part : scratch.parts) {
    if (part.token != nullptr) {
      out.push_back(part.token->id);
    } else {
      encode_plain(part.text, at_begin, scratch, out);
    }
    at_begin = false;
  }
}

void Tokenizer::State::encode(std::string_view text, const EncodeOptions& options, EncodeScratch& scratch,
                              std::vector<int32_t>& out) const {
  if (!options.parse_added_tokens || raw_finder.empty()) return encode_raw(text, true, options, scratch, out);
  scratch.raw_parts.clear();
  raw_finder.split(text, scratch.raw_parts, options.special_as_text, options.special);
  bool at_begin = true;
  for (const AddedTokenPart& part : scratch.raw_parts) {
    if (part.token != nullptr) {
      out.push_back(part.token->id);
    } else {
      encode_raw(part.text, at_begin, options, scratch, out);
    }
    at_begin = false;
  }
}

namespace {

enum class FileKind { kJson, kTiktoken, kSentencePiece, kOther };

// A tiktoken file begins with a line of base64, a space and a number, a SentencePiece model with a field of
// bytes.
FileKind find_kind(std::string_view content) {
  const size_t start = content.find_first_not_of(" \t\r\n");
  if (start != content.npos && content[start] == '{') return FileKind::kJson;
  const std::string_view line = content.substr(0, content.find_first_of("\r\n"));
  const size_t space = line.find(' ');
  if (space != line.npos && space > 0 && space + 1 < line.size() && decode_base64(line.substr(0, space)) &&
      line.find_first_not_of("0123456789", space + 1) == line.npos) {
    return FileKind::kTiktoken;
  }
  return content.size() > 8 && content[0] == '\n' ? FileKind::kSentencePiece : FileKind::kOther;
}

TokenizerParts read_json(std::string_view content, const std::string& source) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  if (const auto error = parser.parse(content.data(), content.size()).get(root)) {
    const std::string_view found = content.empty()                          ? "an empty file"
                                   : find_kind(content) == FileKind::kOther ? "not JSON"
                                                                            : "damaged or cut off";
    throw DataError(
        "[tokenizer] {} is {} ({}), expected a tokenizer.json, a tiktoken rank file, a tekken.json or a "
        "SentencePiece model",
        source, found, simdjson::error_message(error));
  }
  const JsonObject file(root, source + ": ");
  if (!file.find("model") && file.find("config") && file.find("vocab")) return read_tekken_json(file, source);
  return read_tokenizer_parts(file);
}

}  // namespace

Tokenizer Tokenizer::load(const Path& path, std::string_view pattern) {
  const Tokenizer tokenizer = from_content(read_file(path), path.string(), pattern);
  return tokenizer.with_ends(
      declared_ends(tokenizer, path.has_parent_path() ? path.parent_path() : Path(".")));
}

Tokenizer::Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {
  ends_ = std::make_shared<const TextEnds>(declared_ends(*this, {}));
}

Tokenizer Tokenizer::with_ends(TextEnds ends) const {
  Tokenizer out = *this;
  out.ends_ = std::make_shared<const TextEnds>(std::move(ends));
  return out;
}

Tokenizer Tokenizer::from_content(std::string content, const std::string& source, std::string_view pattern) {
  const FileKind kind = find_kind(content);
  if (!pattern.empty() && kind != FileKind::kTiktoken) {
    throw ConfigError(
        "[tokenizer] found the pattern '{}' for {}, which defines how text is split; expected a tiktoken "
        "rank file",
        pattern, source);
  }
  TokenizerParts parts = kind == FileKind::kTiktoken        ? read_tiktoken(content, pattern, source)
                         : kind == FileKind::kSentencePiece ? read_sentencepiece(content, source)
                                                            : read_json(content, source);
  return Tokenizer(std::make_shared<const State>(std::move(parts), std::move(content)));
}

Tokenizer Tokenizer::from_json(std::string_view json, const std::string& source) {
  return Tokenizer(std::make_shared<const State>(read_json(json, source), std::string(json)));
}

int64_t Tokenizer::vocab_size() const {
  return state_->tokens.id_end();
}

int64_t Tokenizer::text_vocab_size() const {
  const StringTable& vocabulary =
      std::visit([](const auto& kind) -> const StringTable& { return kind.vocabulary(); }, state_->model);
  std::vector<bool> added(static_cast<size_t>(vocab_size()));
  for (const AddedToken& token : state_->added_tokens) added[static_cast<size_t>(token.id)] = true;
  int64_t size = vocabulary.id_end();
  while (size > 0 &&
         (added[static_cast<size_t>(size - 1)] || !vocabulary.has(static_cast<int32_t>(size - 1))))
    --size;
  return size;
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  if (const auto id = state_->tokens.find(token)) return id;
  for (const AddedToken& added : state_->added_tokens) {
    if (added.content == token) return added.id;
  }
  return std::nullopt;
}

std::string_view Tokenizer::id_to_token(int32_t id) const {
  return state_->tokens.text(id);
}

bool Tokenizer::is_special(int32_t id) const {
  return state_->tokens.has(id) && state_->special[static_cast<size_t>(id)];
}

bool Tokenizer::is_added(int32_t id) const {
  const auto has_id = [id](const AddedToken& token) { return token.id == id; };
  return std::any_of(state_->added_tokens.begin(), state_->added_tokens.end(), has_id);
}

void Tokenizer::encode(std::string_view text, std::vector<int32_t>& out, const EncodeOptions& options) const {
  Lease scratch(state_->pool);
  const PostProcessor& ends = state_->post_processor;
  if (options.add_special_tokens) out.insert(out.end(), ends.prefix.begin(), ends.prefix.end());
  state_->encode(text, options, *scratch, out);
  if (options.add_special_tokens) out.insert(out.end(), ends.suffix.begin(), ends.suffix.end());
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<int32_t> out;
  encode(text, out, options);
  return out;
}

std::vector<int32_t> Tokenizer::encode_prompt(std::string_view text) const {
  std::vector<int32_t> out;
  if (prefix_ids().empty() && ends_->adds_begin) out = ends_->begin;
  encode(text, out, {.add_special_tokens = true});
  return out;
}

size_t Tokenizer::next_cut(std::string_view text, size_t from) const {
  return state_->cuts ? find_cut(text, from) : text.size();
}

std::string Tokenizer::decode_any(std::span<const int32_t> ids, const DecodeOptions& options,
                                  bool keep_bytes) const {
  const bool plain = state_->decoder.is_plain_byte_level();
  const bool by_ids = state_->ids_decoder.has_value();
  std::vector<int32_t> kept;
  std::string bytes;
  std::vector<std::string> tokens;
  for (const int32_t id : ids) {
    if (!state_->tokens.has(id)) {
      if (options.skip_unknown_ids) continue;
      throw DataError("[tokenizer] found the id {}, which is not a token; expected ids from 0 to {}", id,
                      vocab_size() - 1);
    }
    if (options.skip_special && state_->special[static_cast<size_t>(id)]) continue;
    if (by_ids) {
      kept.push_back(id);
    } else if (plain) {
      bytes += state_->bytes.text(id);
    } else {
      tokens.emplace_back(state_->tokens.text(id));
    }
  }
  if (by_ids) return state_->ids_decoder->decode(kept, keep_bytes);
  if (plain) return keep_bytes ? bytes : replace_invalid_utf8(bytes);
  return state_->decoder.decode(std::move(tokens), keep_bytes);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, const DecodeOptions& options) const {
  return decode_any(ids, options, true);
}

std::string Tokenizer::decode_text(std::span<const int32_t> ids, const DecodeOptions& options) const {
  return decode_any(ids, options, false);
}

std::string Tokenizer::decode_bytes(int32_t id) const {
  return decode(std::span(&id, 1));
}

std::span<const int32_t> Tokenizer::prefix_ids() const {
  return state_->post_processor.prefix;
}

std::span<const int32_t> Tokenizer::suffix_ids() const {
  return state_->post_processor.suffix;
}

uint64_t Tokenizer::hash() const {
  return state_->hash;
}

const std::string& Tokenizer::json() const {
  return state_->json;
}

}  // namespace strata::data
