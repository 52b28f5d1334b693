#include "evaluation/task_requests.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"
#include "data/text/characters.h"

namespace strata::evaluation {
namespace {

class Encoder {
 public:
  Encoder(const data::Tokenizer& tokenizer, std::optional<int32_t> prefix)
      : tokenizer_(tokenizer), prefix_(prefix) {
    if (prefix) prefix_text_ = tokenizer.id_to_token(*prefix);
  }

  // Context and continuation; either may be empty.
  std::pair<std::vector<int32_t>, std::vector<int32_t>> pair_of(std::string_view context,
                                                                std::string continuation) const {
    if (context.empty()) {
      std::vector<int32_t> ids = tokenizer_.encode(continuation);
      if (!ids.empty() && prefix_ && ids.front() == *prefix_)
        return {{ids.front()}, {ids.begin() + 1, ids.end()}};
      return {prefix_ids(), std::move(ids)};
    }
    const std::string_view kept = data::strip_right(context);
    continuation.insert(0, context.substr(kept.size()));
    std::vector<int32_t> before = encode(kept);
    const std::vector<int32_t> whole = encode(std::string(kept) + continuation);
    const auto cut = static_cast<std::ptrdiff_t>(std::min(before.size(), whole.size()));
    std::vector<int32_t> after(whole.begin() + cut, whole.end());
    if (before.empty()) before = prefix_ids();
    return {std::move(before), std::move(after)};
  }

 private:
  std::vector<int32_t> prefix_ids() const {
    return prefix_ ? std::vector<int32_t>{*prefix_} : std::vector<int32_t>{};
  }
  // A text that already begins with its begin-of-text token gets no second one.
  std::vector<int32_t> encode(std::string_view text) const {
    const bool spelt = !prefix_text_.empty() && text.starts_with(prefix_text_);
    return tokenizer_.encode(text, {.add_special_tokens = !spelt});
  }

  const data::Tokenizer& tokenizer_;
  std::optional<int32_t> prefix_;
  std::string prefix_text_;
};

}  // namespace

std::optional<int32_t> prefix_token(const data::Tokenizer& tokenizer) {
  const data::TextEnds& ends = tokenizer.ends();
  if (ends.begin_of_tokenizer && !ends.begin.empty()) return ends.begin.front();
  return ends.end;
}

TaskRequests make_requests(const Task& task, const data::Tokenizer& tokenizer, std::optional<int32_t> prefix,
                           int64_t max_length) {
  const Encoder encoder(tokenizer, prefix);
  TaskRequests out;
  for (const TaskItem& item : task.items) {
    for (const std::string& choice : item.choices) {
      auto [context, continuation] = encoder.pair_of(item.context, " " + choice);
      const auto scored = static_cast<int64_t>(continuation.size());
      auto fail = [&](const std::string& what) {
        throw DataError("[{}:{}] the continuation \"{}\" {}", task.source, item.line, choice, what);
      };
      if (context.empty()) fail("has no context, and the tokenizer has no token that begins a text");
      if (scored == 0) fail("adds no token to its context and cannot be scored");
      if (scored > max_length)
        fail(fmt::format("has {} tokens: expected at most {}, the model's limit", scored, max_length));
      TaskRequest request{std::move(context), scored};
      request.ids.insert(request.ids.end(), continuation.begin(), continuation.end());
      if (request.inputs() > max_length) {
        request.ids.erase(request.ids.begin(), request.ids.end() - (max_length + 1));
        ++out.truncated;
      }
      out.longest = std::max(out.longest, request.inputs());
      out.requests.push_back(std::move(request));
    }
  }
  return out;
}

PackedRequests::PackedRequests(const std::vector<TaskRequest>& requests, int64_t row_length)
    : requests_(requests), row_length_(row_length) {
  // Best fit, longest requests first.
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return requests[a].inputs() > requests[b].inputs(); });
  std::multimap<int64_t, size_t> rows_by_space;  // rows by their free positions
  for (const size_t i : order) {
    const int64_t size = requests[i].inputs();
    STRATA_CHECK(size <= row_length, "a request of {} tokens for rows of {}", size, row_length);
    auto found = rows_by_space.lower_bound(size);
    if (found == rows_by_space.end()) {
      rows_.emplace_back();
      found = rows_by_space.emplace(row_length, rows_.size() - 1);
    }
    const auto [left, row] = *found;
    rows_by_space.erase(found);
    rows_[row].push_back({i, row_length - left});
    rows_by_space.emplace(left - size, row);
  }
}

void PackedRequests::fill(int64_t first, int64_t count, const data::Batch& out) const {
  const data::RowShape shape{row_length_, 0, row_length_, 0};
  for (int64_t r = 0; r < count; ++r) {
    const data::Batch row = data::row_of(out, shape, r);
    data::fill_padding(shape, 0, 0, row);
    if (first + r >= rows()) continue;
    for (const Entry& entry : rows_[static_cast<size_t>(first + r)]) {
      const TaskRequest& request = requests_[entry.request];
      for (int64_t i = 0; i < request.inputs(); ++i) {
        const auto at = static_cast<size_t>(i);
        row[Column::kTokens][entry.begin + i] = request.ids[at];
        if (i >= request.inputs() - request.scored)
          row[Column::kTargets][entry.begin + i] = request.ids[at + 1];
        row[Column::kPositions][entry.begin + i] = static_cast<int32_t>(i);
        row[Column::kKvBegin][entry.begin + i] = static_cast<int32_t>(entry.begin);
      }
    }
  }
}

int64_t task_row_length(int64_t longest, int64_t max_positions) {
  constexpr int64_t kGood = 512;  // longer rows do not make attention faster
  const int64_t rounded = (longest + 63) / 64 * 64;
  return std::max(longest, std::min(max_positions, std::max(rounded, kGood)));
}

}  // namespace strata::evaluation
