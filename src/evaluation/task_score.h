// Scores a task's requests with a model and computes its metrics like lm-evaluation-harness.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "evaluation/task_requests.h"
#include "program/executor.h"

namespace strata::evaluation {

struct RequestScore {
  double log_likelihood = 0;  // of the whole continuation, natural logarithm
  bool greedy = false;        // whether each of its tokens is the most probable one
};

// The program that scores `rows` rows of `row_length` tokens, in batches of about 2,048 tokens.
program::Request task_program(int64_t row_length, int64_t rows);

// Scores requests with program `index`, compiled from task_program. `done` is called after each batch with
// the fraction done; if it returns false, scoring stops and the result is empty. All ranks of the executor
// must call it: each scores its share of the rows, and all get all scores; `done` must return the same on all
// of them.
std::vector<RequestScore> score_requests(program::Executor& executor, size_t index,
                                         const std::vector<TaskRequest>& requests,
                                         const PackedRequests& packed,
                                         const std::function<bool(double)>& done = {});

struct ItemScore {
  int64_t predicted = 0, predicted_norm = 0;  // kMultipleChoice: the predictions for acc and acc_norm
  bool acc = false, acc_norm = false;
};

struct TaskMetric {
  const char* name;  // "acc", "acc_norm", "perplexity"
  double value = 0;
  std::optional<double> standard_error = {};  // from two items on
};

struct TaskScore {
  std::vector<ItemScore> items;
  std::vector<TaskMetric> metrics;
};

// acc: the correct choice has the highest log-likelihood (kLastWord: the word is greedy). acc_norm: the same
// after dividing log-likelihoods by the choices' lengths in characters. perplexity: exp of minus the mean
// log-likelihood, with the propagated standard error of the mean (the harness uses bootstrap instead).
TaskScore sum_up(const Task& task, const std::vector<RequestScore>& scores);

}  // namespace strata::evaluation
