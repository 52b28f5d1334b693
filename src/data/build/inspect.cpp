#include "data/build/inspect.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokens/megatron_index.h"
#include "data/tokens/token_corpus.h"

namespace strata::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShownBytes = 600;
constexpr int64_t kShownTokens = 64;

// Highlights: colours on a terminal, plain characters in a file.
struct Paint {
  bool color;
  std::string dim(const std::string& text) const { return color ? "\x1b[2m" + text + "\x1b[0m" : text; }
  std::string bold(const std::string& text) const { return color ? "\x1b[1m" + text + "\x1b[0m" : text; }
  // Tokens in alternating colours, or between bars.
  std::string token(const std::string& text, int64_t number) const {
    if (!color) return "|" + text;
    return fmt::format("\x1b[{}m{}\x1b[0m", number % 2 == 0 ? "44;97" : "46;30", text);
  }
};

// Control characters as escapes, so that no text takes over a terminal.
std::string visible(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n' || c == '\t' || (byte >= 0x20 && byte != 0x7f))
      out += c;
    else
      out += fmt::format("\\x{:02x}", byte);
  }
  return out;
}

std::string beginning(std::string_view text) {
  if (text.size() <= kShownBytes) return visible(text);
  return visible(utf8_prefix(text, kShownBytes)) + fmt::format(" … ({} bytes)", text.size());
}

std::string token_line(const Tokenizer& tokenizer, std::span<const int32_t> ids, const Paint& paint) {
  std::string out;
  const auto shown = std::min<size_t>(ids.size(), static_cast<size_t>(kShownTokens));
  for (size_t i = 0; i < shown; ++i) {
    std::string text = visible(tokenizer.decode_text(ids.subspan(i, 1)));
    std::replace(text.begin(), text.end(), '\n', ' ');
    out += paint.token(text, static_cast<int64_t>(i));
  }
  return out + (ids.size() > shown ? paint.dim(fmt::format(" … ({} tokens)", ids.size())) : "");
}

std::string inspect_records(const InspectRequest& request, const std::optional<Tokenizer>& tokenizer) {
  const Paint paint{request.color};
  const auto reader = open_records(request.path, request.path.string(), request.records);
  Document document;
  std::string detail, text;
  Json documents = Json::array();
  std::map<std::string, int64_t> unread;
  int64_t count = 0, bytes = 0;
  for (;;) {
    detail.clear();
    const ReadStatus status = reader->next(document, detail);
    if (status == ReadStatus::kEnd) break;
    if (status != ReadStatus::kDocument) {
      ++unread[std::string(read_reason(status))];
      continue;
    }
    bytes += static_cast<int64_t>(document.text.size());
    if (count++ >= request.limit) continue;
    std::vector<int32_t> ids;
    if (tokenizer) tokenizer->encode(document.text, ids);
    if (request.json) {
      Json one{{"id", document.id},
               {"line", document.line},
               {"bytes", document.text.size()},
               {"text", document.text}};
      if (tokenizer) one["ids"] = ids;
      documents.push_back(std::move(one));
      continue;
    }
    text += paint.bold(visible(document.id)) +
            paint.dim(fmt::format("  line {}, {} bytes", document.line, document.text.size()));
    if (!document.fields.empty()) text += "\n" + paint.dim(beginning(document.fields));
    text += "\n" + (tokenizer ? token_line(*tokenizer, ids, paint) : beginning(document.text)) + "\n\n";
  }
  if (request.json) {
    return dump_json(Json{{"path", request.path.string()},
                          {"documents", count},
                          {"text_bytes", bytes},
                          {"not_read", unread},
                          {"first", documents}},
                     -1, InvalidUtf8::kReplace) +
           "\n";
  }
  text += fmt::format("{}: {} documents, {} of text\n", request.path.string(), count,
                      human_bytes(static_cast<double>(bytes)));
  for (const auto& [reason, n] : unread) text += fmt::format("  {} records not read: {}\n", n, reason);
  return text;
}

std::string inspect_tokens(const InspectRequest& request, const std::optional<Tokenizer>& tokenizer) {
  const Paint paint{request.color};
  TokenFileOptions options;
  if (tokenizer) {
    options.vocab_size = tokenizer->vocab_size();
    options.end_of_text = tokenizer->end_of_text_id();
  }
  const TokenCorpus corpus = open_token_corpus({request.path.string()}, options);
  const std::vector<int64_t> ends = corpus.document_ends();
  Json documents = Json::array();
  std::string text;
  std::vector<int32_t> ids;
  for (size_t d = 0; d < ends.size() && static_cast<int64_t>(d) < request.limit; ++d) {
    const int64_t begin = d == 0 ? 0 : ends[d - 1];
    ids.resize(static_cast<size_t>(
        std::min<int64_t>(ends[d] - begin, request.json ? ends[d] - begin : kShownTokens)));
    corpus.read(begin, static_cast<int64_t>(ids.size()), ids.data());
    if (request.json) {
      Json one{{"begin", begin}, {"tokens", ends[d] - begin}, {"ids", ids}};
      if (tokenizer) one["text"] = tokenizer->decode_text(ids);
      documents.push_back(std::move(one));
      continue;
    }
    text += paint.bold(fmt::format("document {}", d)) +
            paint.dim(fmt::format("  tokens {} to {}", begin, ends[d])) + "\n";
    text += tokenizer ? token_line(*tokenizer, ids, paint) : fmt::format("{}", fmt::join(ids, " "));
    text += "\n\n";
  }
  if (request.json) {
    return dump_json(Json{{"path", request.path.string()},
                          {"tokens", corpus.tokens()},
                          {"documents", ends.size()},
                          {"first", documents}},
                     -1, InvalidUtf8::kReplace) +
           "\n";
  }
  return text +
         fmt::format("{}: {} tokens, {} documents\n", request.path.string(), corpus.tokens(), ends.size());
}

// Describes a Megatron index, with its tokens if their file is next to it.
std::string inspect_index(const InspectRequest& request, const std::optional<Tokenizer>& tokenizer) {
  const MappedFile file(request.path);
  const MegatronIndex index = parse_megatron_index(file.bytes(), request.path.string());
  std::vector<int64_t> ends;
  int64_t begin = 0, shortest = 0, longest = 0;
  for (int64_t d = 0; d < index.documents; ++d) {
    const int64_t length = index.document_end(d) - begin;
    begin = index.document_end(d);
    shortest = d == 0 ? length : std::min(shortest, length);
    longest = std::max(longest, length);
    if (d < request.limit) ends.push_back(begin);
  }
  const Path ids = Path(request.path).replace_extension(".bin");
  std::error_code error;
  const bool pair = std::filesystem::exists(ids, error);
  if (request.json) {
    return dump_json(Json{{"path", request.path.string()},
                          {"dtype", token_type_name(index.type)},
                          {"sequences", index.sequences},
                          {"documents", index.documents},
                          {"tokens", index.tokens},
                          {"shortest", shortest},
                          {"longest", longest},
                          {"first_ends", ends},
                          {"ids", pair ? ids.string() : ""}},
                     -1, InvalidUtf8::kReplace) +
           "\n";
  }
  std::string text =
      fmt::format("{}: Megatron index, {} tokens of {}, {} sequences, {} documents of {} to {} tokens\n",
                  request.path.string(), index.tokens, token_type_name(index.type), index.sequences,
                  index.documents, shortest, longest);
  if (pair) return inspect_tokens(request, tokenizer) + text;
  const Paint paint{request.color};
  for (size_t d = 0; d < ends.size(); ++d)
    text += paint.bold(fmt::format("document {}", d)) +
            paint.dim(fmt::format("  tokens {} to {}", d == 0 ? 0 : ends[d - 1], ends[d])) + "\n";
  return text + fmt::format("there is no {}\n", ids.string());
}

bool is_token_path(const Path& path) {
  const std::string ending = path.extension().string();
  return ending == ".bin" || ending == ".ds";
}

}  // namespace

std::string inspect(const InspectRequest& request) {
  std::optional<Tokenizer> tokenizer;
  if (!request.tokenizer.empty()) tokenizer = Tokenizer::load(request.tokenizer);
  if (request.path.extension() == ".idx") return inspect_index(request, tokenizer);
  return is_token_path(request.path) ? inspect_tokens(request, tokenizer)
                                     : inspect_records(request, tokenizer);
}

}  // namespace strata::data
