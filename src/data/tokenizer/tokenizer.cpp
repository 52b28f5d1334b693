#include "data/tokenizer/tokenizer.h"

#include <mutex>

#include "base/error.h"
#include "base/hash.h"
#include "data/tokenizer/tokenizer_file.h"
#include "data/tokenizer/unicode.h"

namespace strata::data {
namespace {

// Other kinds of model (unigram, word pieces, ranked bytes) become further alternatives.
using Model = std::variant<BpeModel>;

// What one thread needs while it encodes.
struct EncodeScratch {
  BpeScratch model;
  PieceBuffer pieces;
  std::vector<size_t> ends;
  std::vector<AddedTokenPart> raw_parts;
  std::vector<AddedTokenPart> parts;
  std::string normalized;
};

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
  State(std::string file, const JsonObject& json);

  void encode(std::string_view text, bool parse_added_tokens, EncodeScratch& scratch,
              std::vector<int32_t>& out) const;
  void encode_raw(std::string_view text, bool parse_added_tokens, EncodeScratch& scratch,
                  std::vector<int32_t>& out) const;
  void encode_plain(std::string_view text, EncodeScratch& scratch, std::vector<int32_t>& out) const;

  std::string json;
  uint64_t hash = 0;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  PostProcessor post_processor;
  Decoder decoder;
  Model model;
  std::vector<AddedToken> added_tokens;
  AddedTokenFinder raw_finder;
  AddedTokenFinder normalized_finder;
  StringTable tokens;         // model and added tokens
  std::vector<bool> special;  // by id
  StringTable bytes;          // by id, where the decoder is plain byte-level
  mutable ScratchPool pool;
};

namespace {

std::optional<JsonObject> part(const JsonObject& file, std::string_view key) {
  const auto value = file.find(key);
  if (!value) return std::nullopt;
  return JsonObject(*value, file.where(key));
}

}  // namespace

Tokenizer::State::State(std::string file, const JsonObject& json_file)
    : json(std::move(file)),
      hash(hash64(json)),
      normalizer(read_normalizer(part(json_file, "normalizer"))),
      pre_tokenizer(read_pre_tokenizer(part(json_file, "pre_tokenizer"))),
      post_processor(read_post_processor(part(json_file, "post_processor"))),
      decoder(read_decoder(part(json_file, "decoder"))),
      model(BpeModel(read_model(json_file.child("model"), pre_tokenizer.byte_level()))) {
  if (const auto version = json_file.find_text("version"); version && *version != "1.0") {
    refuse(json_file.where("version"), *version, "1.0");
  }
  for (const char* key : {"truncation", "padding"}) {
    if (json_file.find(key)) refuse(json_file.where(key), "not null", "null: texts are encoded whole");
  }
  const StringTable& vocabulary = std::get<BpeModel>(model).vocabulary();
  added_tokens = read_added_tokens(json_file, vocabulary);

  std::vector<const AddedToken*> raw;
  std::vector<const AddedToken*> normalized;
  for (const bool wanted : {true, false}) {  // special tokens first: of equal texts the first one counts
    for (const AddedToken& token : added_tokens) {
      if (token.special == wanted) (token.normalized ? normalized : raw).push_back(&token);
    }
  }
  raw_finder = AddedTokenFinder(raw, normalizer);
  normalized_finder = AddedTokenFinder(normalized, normalizer);

  std::vector<StringTable::Entry> entries;
  for (int32_t id = 0; id < vocabulary.id_end(); ++id) {
    if (vocabulary.has(id)) entries.push_back({vocabulary.text(id), id});
  }
  // A token that is looked for in normalized text is called by its normalized text.
  std::vector<std::string> names;
  names.reserve(added_tokens.size());
  std::string storage;
  for (const AddedToken& token : added_tokens) {
    names.emplace_back(token.normalized ? normalizer.apply(token.content, storage) : token.content);
    entries.push_back({names.back(), token.id});
  }
  tokens = StringTable(entries);
  if (tokens.id_end() == 0) {
    throw DataError("[tokenizer] {} has no tokens; is the file damaged?", json_file.where("model.vocab"));
  }
  special.assign(static_cast<size_t>(tokens.id_end()), false);
  for (const AddedToken& token : added_tokens) {
    if (token.special) special[static_cast<size_t>(token.id)] = true;
  }
  for (const auto* side : {&post_processor.prefix, &post_processor.suffix}) {
    for (const int32_t id : *side) {
      if (!tokens.has(id)) {
        throw DataError("[tokenizer] {} adds the id {}, which is no token", json_file.where("post_processor"),
                        id);
      }
    }
  }
  if (decoder.is_plain_byte_level()) {
    std::vector<std::string> texts;
    texts.reserve(entries.size());
    for (StringTable::Entry& entry : entries) entry.text = texts.emplace_back(byte_level_bytes(entry.text));
    bytes = StringTable(entries);
  }
}

void Tokenizer::State::encode_plain(std::string_view text, EncodeScratch& scratch,
                                    std::vector<int32_t>& out) const {
  const auto& bpe = std::get<BpeModel>(model);
  if (const auto pattern = pre_tokenizer.single_scanner()) {
    constexpr size_t kPiecesAtOnce = 2048;
    for (size_t from = 0; from < text.size();) {
      scratch.ends.clear();
      const size_t end = scan_pieces(*pattern, text, from, kPiecesAtOnce, scratch.ends);
      for (const size_t piece_end : scratch.ends) {
        bpe.encode_piece(text.substr(from, piece_end - from), scratch.model, out);
        from = piece_end;
      }
      from = end;
    }
    return;
  }
  pre_tokenizer.split(text, scratch.pieces);
  for (const Piece& piece : scratch.pieces.pieces) {
    bpe.encode_piece(scratch.pieces.text.substr(piece.begin, piece.end - piece.begin), scratch.model, out);
  }
}

void Tokenizer::State::encode_raw(std::string_view text, bool parse_added_tokens, EncodeScratch& scratch,
                                  std::vector<int32_t>& out) const {
  text = normalizer.apply(text, scratch.normalized);
  if (!parse_added_tokens || normalized_finder.empty()) return encode_plain(text, scratch, out);
  scratch.parts.clear();
  normalized_finder.split(text, scratch.parts);
  for (const AddedTokenPart& part : scratch.parts) {
    if (part.token != nullptr) {
      out.push_back(part.token->id);
    } else {
      encode_plain(part.text, scratch, out);
    }
  }
}

void Tokenizer::State::encode(std::string_view text, bool parse_added_tokens, EncodeScratch& scratch,
                              std::vector<int32_t>& out) const {
  if (!parse_added_tokens || raw_finder.empty()) return encode_raw(text, parse_added_tokens, scratch, out);
  scratch.raw_parts.clear();
  raw_finder.split(text, scratch.raw_parts);
  for (const AddedTokenPart& part : scratch.raw_parts) {
    if (part.token != nullptr) {
      out.push_back(part.token->id);
    } else {
      encode_raw(part.text, parse_added_tokens, scratch, out);
    }
  }
}

namespace {

// What a file that is no JSON seems to be, for the message.
std::string_view guess_kind(std::string_view content) {
  if (content.empty()) return "an empty file";
  if (content[0] == '\n' && content.size() > 8) return "a SentencePiece model, which is not supported yet";
  const size_t line = content.find('\n');
  const std::string_view first = content.substr(0, line);
  const size_t space = first.find(' ');
  const auto is_base64 = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '+' || c == '/' || c == '=';
  };
  if (space != first.npos && space > 0 && space + 1 < first.size() &&
      std::all_of(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(space), is_base64) &&
      first.find_first_not_of("0123456789\r", space + 1) == first.npos) {
    return "a tiktoken rank file, which is not supported yet";
  }
  return "not JSON";
}

}  // namespace

Tokenizer Tokenizer::load(const Path& path) {
  return from_json(read_file(path), path.string());
}

Tokenizer Tokenizer::from_json(std::string_view json, const std::string& source) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  if (const auto error = parser.parse(json.data(), json.size()).get(root)) {
    const size_t start = json.find_first_not_of(" \t\r\n");
    const bool braces = start != json.npos && json[start] == '{';
    throw DataError("[tokenizer] {} is {} ({}), expected a tokenizer.json", source,
                    braces ? "damaged or cut off" : guess_kind(json), simdjson::error_message(error));
  }
  const JsonObject file(root, source + ": ");
  if (!file.find("model") && file.find("config") && file.find("vocab")) {
    throw DataError("[tokenizer] {} is a tekken.json, which is not supported yet; expected a tokenizer.json",
                    source);
  }
  return Tokenizer(std::make_shared<const State>(std::string(json), file));
}

int64_t Tokenizer::vocab_size() const {
  return state_->tokens.id_end();
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

void Tokenizer::encode(std::string_view text, std::vector<int32_t>& out, const EncodeOptions& options) const {
  Lease scratch(state_->pool);
  const PostProcessor& ends = state_->post_processor;
  if (options.add_special_tokens) out.insert(out.end(), ends.prefix.begin(), ends.prefix.end());
  state_->encode(text, options.parse_added_tokens, *scratch, out);
  if (options.add_special_tokens) out.insert(out.end(), ends.suffix.begin(), ends.suffix.end());
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<int32_t> out;
  encode(text, out, options);
  return out;
}

std::string Tokenizer::decode_any(std::span<const int32_t> ids, const DecodeOptions& options,
                                  bool keep_bytes) const {
  const bool plain = state_->decoder.is_plain_byte_level();
  std::string bytes;
  std::vector<std::string> tokens;
  for (const int32_t id : ids) {
    if (!state_->tokens.has(id)) {
      if (options.skip_unknown_ids) continue;
      throw DataError("[tokenizer] found the id {}, which is no token; expected ids from 0 to {}", id,
                      vocab_size() - 1);
    }
    if (options.skip_special && state_->special[static_cast<size_t>(id)]) continue;
    if (plain) {
      bytes += state_->bytes.text(id);
    } else {
      tokens.emplace_back(state_->tokens.text(id));
    }
  }
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

std::optional<int32_t> Tokenizer::end_of_text_id() const {
  static constexpr std::string_view kNames[] = {
      "<|endoftext|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "</s>", "<eos>",
      "[EOS]",         "<|eos|>",         "<|endofdocument|>"};
  for (const std::string_view name : kNames) {
    const auto id = token_to_id(name);
    if (id && is_special(*id)) return id;
  }
  if (!state_->post_processor.suffix.empty()) return state_->post_processor.suffix.back();
  for (const std::string_view name : kNames) {
    if (const auto id = token_to_id(name)) return id;
  }
  return std::nullopt;
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
