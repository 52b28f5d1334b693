#include "evaluation/task_format.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "evaluation/task_names.h"
#include "evaluation/task_text.h"

namespace strata::evaluation {
namespace {

using Json = nlohmann::json;

// A question's fields. Every error names the file, the line and the task.
class Fields {
 public:
  Fields(const Json& json, const std::string& where) : json_(json), where_(where) {}

  [[noreturn]] void fail(const std::string& what) const { throw DataError("[{}] {}", where_, what); }

  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }
  const Json& at(const char* key, const char* expected) const {
    if (!has(key)) fail(fmt::format("found no \"{}\", expected {}", key, expected));
    return json_[key];
  }
  std::string text(const char* key) const {
    const Json& value = at(key, "a text");
    if (!value.is_string()) fail(fmt::format("found {} in \"{}\", expected a text", value.type_name(), key));
    return value.get<std::string>();
  }
  std::vector<std::string> texts(const char* key) const {
    const Json& value = at(key, "a list of texts");
    const bool good =
        value.is_array() && !value.empty() &&
        std::all_of(value.begin(), value.end(), [](const Json& one) { return one.is_string(); });
    if (!good)
      fail(fmt::format("found {} in \"{}\", expected a non-empty list of texts", value.type_name(), key));
    return value.get<std::vector<std::string>>();
  }
  // A number, possibly written as a text.
  int64_t index(const char* key, size_t choices) const {
    const Json& value = at(key, "the index of the correct choice");
    int64_t number = -1;
    if (value.is_number_integer()) number = value.get<int64_t>();
    if (value.is_string()) {
      const auto text = value.get<std::string>();
      if (!text.empty() && text.size() < 4 &&
          std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }))
        number = std::stoll(text);
    }
    if (number < 0 || number >= static_cast<int64_t>(choices)) {
      fail(
          fmt::format("found {} in \"{}\", expected a number from 0 to {} (a test set without answers cannot "
                      "be scored)",
                      dump_json(value), key, choices - 1));
    }
    return number;
  }
  Fields child(const char* key) const {
    const Json& value = at(key, "an object");
    if (!value.is_object())
      fail(fmt::format("found {} in \"{}\", expected an object", value.type_name(), key));
    return {value, where_ + " " + key};
  }
  const Json& json() const { return json_; }
  const std::string& where() const { return where_; }

 private:
  const Json& json_;
  std::string where_;
};

TaskItem hellaswag(const Fields& fields) {
  TaskItem item;
  const std::string activity = fields.text("activity_label");
  const std::string begin = fields.text("ctx_a");
  item.context = without_wikihow_marks(activity + ": " + begin + " " + capitalized(fields.text("ctx_b")));
  for (const std::string& ending : fields.texts("endings"))
    item.choices.push_back(without_wikihow_marks(ending));
  item.gold = fields.index("label", item.choices.size());
  return item;
}

// In the format of Hugging Face's ai2_arc ("choices": {"text": […], "label": […]}) or of the authors
// ("question": {"stem": …, "choices": [{"text": …, "label": …}, …]}).
TaskItem arc(const Fields& fields) {
  TaskItem item;
  std::vector<std::string> labels;
  if (fields.has("question") && fields.json()["question"].is_object()) {
    const Fields question = fields.child("question");
    item.context = question.text("stem");
    const Json& choices = question.at("choices", "a list of choices");
    if (!choices.is_array()) question.fail("found no list in \"choices\", expected a list of choices");
    for (const Json& choice : choices) {
      if (!choice.is_object()) question.fail("found a choice that is not an object, expected text and label");
      const Fields one(choice, question.where() + " choices");
      item.choices.push_back(one.text("text"));
      labels.push_back(one.text("label"));
    }
  } else {
    item.context = fields.text("question");
    const Fields choices = fields.child("choices");
    item.choices = choices.texts("text");
    labels = choices.texts("label");
  }
  if (labels.empty() || labels.size() != item.choices.size())
    fields.fail(
        fmt::format("found {} labels for {} choices, expected one each", labels.size(), item.choices.size()));
  const std::string key = fields.text("answerKey");
  const auto at = std::find(labels.begin(), labels.end(), key);
  if (at == labels.end())
    fields.fail(fmt::format("found the answerKey \"{}\", expected the label of a choice", key));
  item.gold = at - labels.begin();
  item.context = "Question: " + item.context + "\nAnswer:";
  return item;
}

TaskItem piqa(const Fields& fields) {
  TaskItem item;
  item.context = "Question: " + fields.text("goal") + "\nAnswer:";
  item.choices = {fields.text("sol1"), fields.text("sol2")};
  item.gold = fields.index("label", 2);
  return item;
}

TaskItem lambada(const Fields& fields) {
  LastWord parts = split_last_word(fields.text("text"));
  TaskItem item;
  item.context = std::move(parts.before);
  item.choices.push_back(std::move(parts.word));
  return item;
}

struct Format {
  const char* name;
  TaskKind kind;
  TaskItem (*read)(const Fields&);
};
constexpr Format kFormats[] = {
    {"arc_challenge", TaskKind::kMultipleChoice, arc},   {"arc_easy", TaskKind::kMultipleChoice, arc},
    {"hellaswag", TaskKind::kMultipleChoice, hellaswag}, {"lambada_openai", TaskKind::kLastWord, lambada},
    {"lambada_standard", TaskKind::kLastWord, lambada},  {"piqa", TaskKind::kMultipleChoice, piqa}};

}  // namespace

Task read_task(const std::string& name, const Path& path, int64_t limit) {
  if (const std::string error = task_name_error(name); !error.empty())
    throw ConfigError("[{}] {}", path.string(), error);
  const Format& format = *std::find_if(std::begin(kFormats), std::end(kFormats),
                                       [&](const Format& f) { return name == f.name; });
  Task task{name, format.kind, path.string(), {}};
  const MappedFile file(path);
  const std::string_view text = file.text();
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const std::string where = fmt::format("{}:{}", path.string(), number);
    const Json json = parse_json_or_discard<Json>(line);
    if (json.is_discarded()) throw DataError("[{}] is not valid JSON: expected one object per line", where);
    if (!json.is_object()) throw DataError("[{}] found {}, expected an object", where, json.type_name());
    TaskItem item = format.read(Fields(json, where + " " + name));
    item.line = number;
    task.items.push_back(std::move(item));
    if (limit > 0 && static_cast<int64_t>(task.items.size()) == limit) break;
  }
  if (task.items.empty())
    throw DataError("[{}] has no question of {}: expected one JSON object per line", path.string(), name);
  return task;
}

}  // namespace strata::evaluation
