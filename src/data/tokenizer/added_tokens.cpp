#include "data/tokenizer/added_tokens.h"

#include <algorithm>
#include <cstring>

#include "data/tokenizer/unicode.h"

namespace strata::data {
namespace {

// The last code point that ends at `end` (> 0).
CodePoint code_point_before(std::string_view text, size_t end) {
  for (size_t size = std::min<size_t>(4, end); size > 1; --size) {
    const CodePoint c = decode_code_point(text.data() + end - size, text.data() + end);
    if (c.size == size) return c;
  }
  return decode_code_point(text.data() + end - 1, text.data() + end);
}

CodePoint code_point_at(std::string_view text, size_t at) {
  return decode_code_point(text.data() + at, text.data() + text.size());
}

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && is_added_token_word(code_point_before(text, begin).value)) return false;
  return end == text.size() || !is_added_token_word(code_point_at(text, end).value);
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(const std::vector<const AddedToken*>& tokens,
                                   const Normalizer& normalizer) {
  roots_.fill(-1);
  std::string storage;
  for (const AddedToken* token : tokens) {
    std::string_view content = token->content;
    if (token->normalized) content = normalizer.apply(content, storage);
    if (content.empty()) continue;
    int32_t* link = &roots_[static_cast<uint8_t>(content[0])];
    int32_t node = *link;
    for (size_t i = 0; i < content.size(); ++i) {
      const auto byte = static_cast<uint8_t>(content[i]);
      if (i > 0) {
        const int32_t parent = node;
        node = child(parent, byte);
        if (node < 0) {
          node = static_cast<int32_t>(nodes_.size());
          nodes_.push_back({byte, -1, nodes_[static_cast<size_t>(parent)].first_child, nullptr});
          nodes_[static_cast<size_t>(parent)].first_child = node;
        }
      } else if (node < 0) {
        node = *link = static_cast<int32_t>(nodes_.size());
        nodes_.push_back({.byte = byte});
      }
    }
    Node& last = nodes_[static_cast<size_t>(node)];
    if (last.token == nullptr) last.token = token;  // of equal texts the first one counts
  }
  const auto starts = std::count_if(roots_.begin(), roots_.end(), [](int32_t node) { return node >= 0; });
  if (starts == 1) {
    single_start_ = static_cast<int>(
        std::find_if(roots_.begin(), roots_.end(), [](int32_t node) { return node >= 0; }) - roots_.begin());
  }
}

int32_t AddedTokenFinder::child(int32_t node, uint8_t byte) const {
  int32_t at = nodes_[static_cast<size_t>(node)].first_child;
  while (at >= 0 && nodes_[static_cast<size_t>(at)].byte != byte)
    at = nodes_[static_cast<size_t>(at)].next_sibling;
  return at;
}

size_t AddedTokenFinder::next_start(std::string_view text, size_t from) const {
  if (single_start_ >= 0) {
    const void* hit = std::memchr(text.data() + from, single_start_, text.size() - from);
    return hit == nullptr ? text.size() : static_cast<size_t>(static_cast<const char*>(hit) - text.data());
  }
  while (from < text.size() && roots_[static_cast<uint8_t>(text[from])] < 0) ++from;
  return from;
}

const AddedToken* AddedTokenFinder::longest_at(std::string_view text, size_t at, size_t& size) const {
  const AddedToken* found = nullptr;
  int32_t node = roots_[static_cast<uint8_t>(text[at])];
  for (size_t next = at + 1; node >= 0; ++next) {
    if (const AddedToken* token = nodes_[static_cast<size_t>(node)].token) {
      found = token;
      size = next - at;
    }
    if (next == text.size()) break;
    node = child(node, static_cast<uint8_t>(text[next]));
  }
  return found;
}

void AddedTokenFinder::split(std::string_view text, std::vector<AddedTokenPart>& out, bool special_as_text,
                             SpecialCounts* special) const {
  size_t done = 0;  // end of the last part
  size_t from = 0;
  while (!nodes_.empty() && (from = next_start(text, from)) < text.size()) {
    size_t size = 0;
    const AddedToken* token = longest_at(text, from, size);
    if (token == nullptr) {
      ++from;
      continue;
    }
    size_t begin = from;
    size_t end = from + size;
    from = end;  // stripped white space may still belong to the next match, as in the reference
    if (token->single_word && !stands_alone(text, begin, end)) continue;
    if (token->special && special != nullptr) ++(*special)[token->id];
    if (token->special && special_as_text) {
      const size_t cut = begin + code_point_at(text, begin).size;
      if (!token->is_word_of_model || cut <= done) continue;
      out.push_back({nullptr, text.substr(done, cut - done)});
      done = cut;
      continue;
    }
    if (token->lstrip) {
      while (begin > done) {
        const CodePoint c = code_point_before(text, begin);
        if (!is_white_space(c.value)) break;
        begin = std::max(done, begin - c.size);
      }
    }
    if (token->rstrip) {
      while (end < text.size()) {
        const CodePoint c = code_point_at(text, end);
        if (!is_white_space(c.value)) break;
        end += c.size;
      }
    }
    if (done < begin) out.push_back({nullptr, text.substr(done, begin - done)});
    out.push_back({token, text.substr(begin, end - begin)});
    done = end;
  }
  if (done < text.size()) out.push_back({nullptr, text.substr(done)});
}

}  // namespace strata::data
