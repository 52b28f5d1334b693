// Evaluation tasks as lm-evaluation-harness asks them, read from local jsonl files in the formats that the
// data sets are published in: HellaSwag, ARC, PIQA (multiple choice) and LAMBADA (the last word). What the
// harness does to the texts is done here, byte for byte, so that both ask a model the same question.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"

namespace strata::evaluation {

enum class TaskKind {
  kMultipleChoice,  // which continuation of the context is the most probable: acc, acc_norm
  kLastWord,        // whether the one continuation is what the model would say: acc, perplexity
};

// One question. A continuation is its choice with a space before it.
struct TaskItem {
  int64_t line = 0;  // of the file, from 1
  std::string context;
  std::vector<std::string> choices;
  int64_t gold = 0;  // which choice is right
};

struct Task {
  std::string name;
  TaskKind kind = TaskKind::kMultipleChoice;
  std::string source;  // the file, for messages
  std::vector<TaskItem> items;
};

// Reads the first `limit` questions (0: all). ConfigError for a task that
// evaluation/task_names.h does not know, or a missing file; DataError
// naming file and line for what is not JSON, lacks a field or holds another type than the format says, and
// for a file without a question.
Task read_task(const std::string& name, const Path& path, int64_t limit = 0);

}  // namespace strata::evaluation
