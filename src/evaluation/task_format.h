// Reads evaluation tasks from local jsonl files in the published formats of the data sets: HellaSwag, ARC,
// PIQA (multiple choice) and LAMBADA (last word). Texts are prepared exactly as in lm-evaluation-harness, so
// that a model gets the same questions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"

namespace strata::evaluation {

enum class TaskKind {
  kMultipleChoice,  // which continuation of the context is the most probable: acc, acc_norm
  kLastWord,        // whether the model would generate the one continuation: acc, perplexity
};

// One question. A continuation is a space followed by the choice.
struct TaskItem {
  int64_t line = 0;  // of the file, from 1
  std::string context;
  std::vector<std::string> choices;
  int64_t gold = 0;  // index of the correct choice
};

struct Task {
  std::string name;
  TaskKind kind = TaskKind::kMultipleChoice;
  std::string source;  // the file, for messages
  std::vector<TaskItem> items;
};

// Reads the first `limit` questions (0: all). ConfigError for an unknown task (evaluation/task_names.h) or a
// missing file. DataError, naming file and line, for invalid JSON and for missing or mistyped fields; also
// for a file without questions.
Task read_task(const std::string& name, const Path& path, int64_t limit = 0);

}  // namespace strata::evaluation
