#include "data/tokens/token_corpus.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/random.h"
#include "data/input/corpus_files.h"

namespace strata::data {

namespace {

// Whether a file's table begins a document at this token.
bool begins_document(const TokenFile& file, int64_t position) {
  if (position == 0) return true;
  const int64_t d = file.first_document_ending_after(position - 1);
  return d < file.documents() && file.document_end(d) == position;
}

// Whether the token before `position` ends a text, if one id both begins and ends texts and no table decides:
// in a row of such ids every second one begins a text, and so does the first of a file.
bool ends_before(const TokenFile& file, int64_t position, int32_t mark) {
  int64_t run = position;
  for (int32_t id = mark; run > 0; --run) {
    file.read(run - 1, 1, &id);
    if (id != mark) break;
  }
  const int64_t length = position - run;
  return length > 0 && (length % 2 == 0) == (run == 0);
}

// starts[j + 1] = 1 where token `first` + j of the file ends a text; `starts` has the table's marks. An id
// that begins a document by itself does not end it, too.
void mark_ends_of_text(const TokenFile& file, int64_t first, int64_t count, const int32_t* ids,
                       uint8_t* starts) {
  const int32_t mark = *file.end_of_text();
  if (file.has_documents()) {
    // Backwards, so that at j only the table's marks have been set.
    for (int64_t j = count - 2; j >= 0; --j) {
      if (ids[j] != mark || starts[j + 1] != 0) continue;
      if (j > 0 ? starts[j] == 0 : !begins_document(file, first)) starts[j + 1] = 1;
    }
    return;
  }
  bool ended = file.end_begins() && (first == 0 || ends_before(file, first, mark));
  for (int64_t j = 0; j + 1 < count; ++j) {
    const bool is_mark = ids[j] == mark;
    ended = is_mark && !(file.end_begins() && ended);
    if (ended) starts[j + 1] = 1;
  }
}

}  // namespace

TokenCorpus::TokenCorpus(std::vector<TokenSegment> segments) {
  int64_t total = 0;
  for (auto& segment : segments) {
    if (segment.tokens <= 0) continue;
    STRATA_CHECK(segment.begin >= 0 && segment.begin + segment.tokens <= segment.file->tokens(),
                 "segment {} + {} of {} tokens", segment.begin, segment.tokens, segment.file->tokens());
    starts_.push_back(total);
    total += segment.tokens;
    segments_.push_back(std::move(segment));
  }
  starts_.push_back(total);
}

size_t TokenCorpus::segment_of(int64_t position) const {
  return static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), position) - starts_.begin()) -
         1;
}

void TokenCorpus::for_each_part(
    int64_t begin, int64_t n,
    FunctionRef<void(const TokenSegment&, int64_t first, int64_t count)> part) const {
  STRATA_CHECK(begin >= 0 && n >= 0 && begin + n <= tokens(), "tokens {} + {} of {}", begin, n, tokens());
  if (n == 0) return;
  for (size_t s = segment_of(begin); n > 0; ++s) {
    const int64_t inside = begin - starts_[s];
    const int64_t count = std::min(n, segments_[s].tokens - inside);
    part(segments_[s], segments_[s].begin + inside, count);
    begin += count;
    n -= count;
  }
}

void TokenCorpus::read(int64_t begin, int64_t n, int32_t* out) const {
  for_each_part(begin, n, [&](const TokenSegment& segment, int64_t first, int64_t count) {
    segment.file->read(first, count, out);
    out += count;
  });
}

void TokenCorpus::mark_document_starts(int64_t begin, int64_t n, const int32_t* ids, uint8_t* starts) const {
  if (n == 0) return;  // the arrays may be null
  std::memset(starts, 0, static_cast<size_t>(n));
  if (n == 1) return;
  size_t s = segment_of(begin);
  for (int64_t at = 0; at < n; ++s) {
    const TokenSegment& segment = segments_[s];
    const TokenFile& file = *segment.file;
    if (at > 0) starts[at] = 1;
    const int64_t inside = begin + at - starts_[s];
    const int64_t count = std::min(n - at, segment.tokens - inside);
    const int64_t first = segment.begin + inside;  // in the file
    for (int64_t d = file.first_document_ending_after(first); d < file.documents(); ++d) {
      const int64_t end = file.document_end(d) - first;
      if (end >= count) break;
      starts[at + end] = 1;
    }
    if (file.end_of_text()) mark_ends_of_text(file, first, count, ids + at, starts + at);
    at += count;
  }
}

std::vector<int64_t> TokenCorpus::document_ends() const {
  constexpr int64_t kChunk = 1 << 16;
  std::vector<int64_t> ends;
  std::vector<int32_t> ids(kChunk + 1);
  std::vector<uint8_t> starts(kChunk + 1);
  // Chunks overlap by one token: the first mark of a range is never set.
  for (int64_t begin = 0; begin + 1 < tokens(); begin += kChunk) {
    const int64_t count = std::min(kChunk + 1, tokens() - begin);
    read(begin, count, ids.data());
    mark_document_starts(begin, count, ids.data(), starts.data());
    for (int64_t j = 1; j < count; ++j) {
      if (starts[static_cast<size_t>(j)] != 0) ends.push_back(begin + j);
    }
  }
  if (tokens() > 0) ends.push_back(tokens());
  return ends;
}

TokenCorpus open_token_corpus(const std::vector<std::string>& patterns, const TokenFileOptions& options) {
  std::vector<TokenSegment> segments;
  for (const CorpusFile& input : find_corpus_files(patterns)) {
    if (input.kind != CorpusKind::kTokens) {
      throw ConfigError(
          "[{}] is not a token file; expected a .bin file, a .bin/.idx pair or a .ds file; tokenize "
          "the text first",
          input.path.string());
    }
    auto file = std::make_shared<const TokenFile>(input.path, options);
    const int64_t tokens = file->tokens();
    segments.push_back({std::move(file), 0, tokens});
  }
  TokenCorpus corpus(std::move(segments));
  if (corpus.tokens() == 0) {
    throw DataError("[{}] holds no tokens; give files that hold some",
                    patterns.empty() ? "" : patterns.front());
  }
  return corpus;
}

namespace {

// The segments that hold corpus positions [begin, end).
void append_range(const TokenCorpus& corpus, int64_t begin, int64_t end, std::vector<TokenSegment>& out) {
  int64_t start = 0;
  for (const TokenSegment& segment : corpus.segments()) {
    const int64_t from = std::max(begin, start), to = std::min(end, start + segment.tokens);
    if (from < to) out.push_back({segment.file, segment.begin + from - start, to - from});
    start += segment.tokens;
  }
}

// Cuts the corpus at `ends`: documents whose mark is set go to valid. Neighbours that go the same way become
// one segment.
CorpusSplit cut_at_documents(const TokenCorpus& corpus, const std::vector<int64_t>& ends,
                             const std::vector<bool>& held_out) {
  std::vector<TokenSegment> parts[2];
  int64_t segment_start = 0;
  size_t d = 0;
  int64_t document_start = 0;
  for (const TokenSegment& segment : corpus.segments()) {
    const int64_t segment_end = segment_start + segment.tokens;
    while (d < ends.size() && ends[d] <= segment_end) {
      auto& part = parts[held_out[d] ? 1 : 0];
      const int64_t from = segment.begin + document_start - segment_start;
      const int64_t count = ends[d] - document_start;
      const bool joins =
          !part.empty() && part.back().file == segment.file && part.back().begin + part.back().tokens == from;
      if (joins)
        part.back().tokens += count;
      else
        part.push_back({segment.file, from, count});
      document_start = ends[d++];
    }
    segment_start = segment_end;
  }
  return {TokenCorpus(std::move(parts[0])), TokenCorpus(std::move(parts[1]))};
}

}  // namespace

CorpusSplit split_corpus(const TokenCorpus& corpus, double fraction, uint64_t seed) {
  constexpr int64_t kEnoughDocuments = 100;
  if (!(fraction > 0 && fraction < 1)) {
    throw ConfigError("[data.valid_fraction] is {}; expected a number between 0 and 1, such as 0.01",
                      fraction);
  }
  const std::vector<int64_t> ends = corpus.document_ends();
  const auto documents = static_cast<int64_t>(ends.size());
  auto share = [&](int64_t whole) {
    return std::clamp<int64_t>(std::llround(fraction * static_cast<double>(whole)), 1, whole - 1);
  };
  if (documents >= kEnoughDocuments) {
    const int64_t count = share(documents);
    constexpr uint64_t kHeldOut = ~uint64_t{0};  // an epoch that no training order reaches
    const Permutation order(static_cast<uint64_t>(documents), seed, kHeldOut);
    std::vector<bool> held_out(ends.size());
    for (int64_t i = 0; i < count; ++i) held_out[order(static_cast<uint64_t>(i))] = true;
    return cut_at_documents(corpus, ends, held_out);
  }
  if (corpus.tokens() < 2) throw DataError("[data.valid_fraction] one token cannot be split; add more text");
  // A single token predicts nothing.
  const int64_t held = std::min(std::max<int64_t>(2, share(corpus.tokens())), corpus.tokens() - 1);
  const int64_t cut = corpus.tokens() - held;
  std::vector<TokenSegment> train, valid;
  append_range(corpus, 0, cut, train);
  append_range(corpus, cut, corpus.tokens(), valid);
  return {TokenCorpus(std::move(train)), TokenCorpus(std::move(valid))};
}

}  // namespace strata::data
