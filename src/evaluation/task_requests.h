// The questions of a task as token ids: one request per choice, split into context and continuation like
// lm-evaluation-harness, and packed into rows of one fixed length.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/samples/sample_source.h"
#include "data/tokenizer/tokenizer.h"
#include "evaluation/task_format.h"

namespace strata::evaluation {

// Asks for the log-probability of the last `scored` ids given the ids before them.
struct TaskRequest {
  std::vector<int32_t> ids;
  int64_t scored = 0;
  int64_t inputs() const { return static_cast<int64_t>(ids.size()) - 1; }
};

struct TaskRequests {
  std::vector<TaskRequest> requests;  // by item, then by choice
  int64_t longest = 0;                // inputs of the longest request
  int64_t truncated = 0;              // requests truncated on the left
};

// The token that replaces an empty context: the tokenizer's begin-of-text token if its files declare one,
// else its end-of-text token.
std::optional<int32_t> prefix_token(const data::Tokenizer& tokenizer);

// Keeps only the last `max_length` + 1 tokens of a request. Context and continuation are encoded together, so
// that the tokens are those of running text; white space at the context's end belongs to the continuation.
// DataError, naming the line, if a continuation adds no token or has more than max_length tokens.
TaskRequests make_requests(const Task& task, const data::Tokenizer& tokenizer, std::optional<int32_t> prefix,
                           int64_t max_length);

// Several requests per row, each a separate document.
class PackedRequests {
 public:
  // row_length: at least the longest request's inputs.
  PackedRequests(const std::vector<TaskRequest>& requests, int64_t row_length);

  int64_t rows() const { return static_cast<int64_t>(rows_.size()); }
  int64_t row_length() const { return row_length_; }
  // Rows [first, first + count); those past the end are padding.
  void fill(int64_t first, int64_t count, const data::Batch& out) const;
  // Calls use(request, position of its first scored target in the row) for the requests of a row.
  template <typename Use>
  void for_each(int64_t row, const Use& use) const {
    for (const Entry& entry : rows_[static_cast<size_t>(row)]) {
      const TaskRequest& request = requests_[entry.request];
      use(entry.request, entry.begin + request.inputs() - request.scored);
    }
  }

 private:
  struct Entry {
    size_t request;
    int64_t begin;
  };
  const std::vector<TaskRequest>& requests_;
  int64_t row_length_;
  std::vector<std::vector<Entry>> rows_;
};

// Tokens per row: enough for the longest request, and for several short ones.
int64_t task_row_length(int64_t longest, int64_t max_positions);

}  // namespace strata::evaluation
