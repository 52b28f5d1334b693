// Scores a task's requests with a model and sums them up as lm-evaluation-harness does.
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
  double log_likelihood = 0;  // natural, of the whole continuation
  bool greedy = false;        // whether every token of it is the most probable one
};

// The program that scores rows of `row_length` tokens, of which there are `rows`: about 2,048 tokens at once.
program::Request task_program(int64_t row_length, int64_t rows);

// Of program `index`, made by task_program. `done`
// is told the share that is done after each batch; where it returns false the scores are not complete and
// nothing is returned. Where the executor has ranks, all of them call it: each scores its share of the rows,
// and all get all scores; `done` must say the same on all of them.
std::vector<RequestScore> score_requests(program::Executor& executor, size_t index,
                                         const std::vector<TaskRequest>& requests,
                                         const PackedRequests& packed,
                                         const std::function<bool(double)>& done = {});

struct ItemScore {
  int64_t predicted = 0, predicted_norm = 0;  // kMultipleChoice: the choices that acc and acc_norm see
  bool acc = false, acc_norm = false;
};

struct TaskMetric {
  const char* name;  // "acc", "acc_norm", "perplexity"
  double value = 0;
  std::optional<double> standard_error = {};  // needs two items
};

struct TaskScore {
  std::vector<ItemScore> items;
  std::vector<TaskMetric> metrics;
};

// acc: the right choice has the greatest log-likelihood (kLastWord: the word is greedy). acc_norm: of the
// log-likelihoods divided by the choices' lengths in characters. perplexity: exp of minus the mean
// log-likelihood, with the standard error of the mean carried through (the harness resamples instead).
TaskScore sum_up(const Task& task, const std::vector<RequestScore>& scores);

}  // namespace strata::evaluation
