// The questions of a task as token ids: one request a choice, cut into context and continuation as
// lm-evaluation-harness cuts them, and packed into rows of one fixed length.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/samples/sample_source.h"
#include "data/tokenizer/tokenizer.h"
#include "evaluation/task_format.h"

namespace strata::evaluation {

// The log-probability of ids[size - scored …] given what stands before them is wanted.
struct TaskRequest {
  std::vector<int32_t> ids;
  int64_t scored = 0;
  int64_t inputs() const { return static_cast<int64_t>(ids.size()) - 1; }
};

struct TaskRequests {
  std::vector<TaskRequest> requests;  // item by item, choice by choice
  int64_t longest = 0;                // inputs of the longest
  int64_t truncated = 0;              // requests that lost tokens on the left
};

// The token that stands in for an empty context: what begins a text by the tokenizer's own files, else what
// ends one.
std::optional<int32_t> prefix_token(const data::Tokenizer& tokenizer);

// Of a request only the last `max_length` + 1 tokens are kept. Whole texts are encoded with their context, so
// that the tokens are those of running text; white space at the context's end belongs to the continuation.
// DataError, naming the line, where a continuation has no token of its own or more than max_length.
TaskRequests make_requests(const Task& task, const data::Tokenizer& tokenizer, std::optional<int32_t> prefix,
                           int64_t max_length);

// Several requests a row, each a document of its own.
class PackedRequests {
 public:
  // row_length: at least the longest request's inputs.
  PackedRequests(const std::vector<TaskRequest>& requests, int64_t row_length);

  int64_t rows() const { return static_cast<int64_t>(rows_.size()); }
  int64_t row_length() const { return row_length_; }
  // Rows [first, first + count); those past the end are padding.
  void fill(int64_t first, int64_t count, const data::Batch& out) const;
  // Calls use(request, place of its first scored token in the row) for the requests of a row.
  template <typename Use>
  void for_each(int64_t row, const Use& use) const {
    for (const Piece& piece : rows_[static_cast<size_t>(row)]) {
      const TaskRequest& request = requests_[piece.request];
      use(piece.request, piece.begin + request.inputs() - request.scored);
    }
  }

 private:
  struct Piece {
    size_t request;
    int64_t begin;
  };
  const std::vector<TaskRequest>& requests_;
  int64_t row_length_;
  std::vector<std::vector<Piece>> rows_;
};

// Tokens of a row: room for the longest request, and for several where they are short.
int64_t task_row_length(int64_t longest, int64_t max_positions);

}  // namespace strata::evaluation
