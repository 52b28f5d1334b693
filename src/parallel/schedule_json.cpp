#include "parallel/schedule_json.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "parallel/check.h"

namespace strata::parallel {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 4> kKeys = {"schedule", "stages", "microbatches", "ranks"};

// A value as it appears in error messages, shortened.
std::string shown(const Json& value) {
  constexpr size_t kShown = 60;
  const std::string text = dump_json(value, -1, InvalidUtf8::kReplace);
  return text.size() <= kShown ? text : std::string(utf8_prefix(text, kShown)) + "…";
}

class Reader {
 public:
  Reader(const Json& json, const std::string& origin) : json_(json), origin_(origin) {}

  Schedule read() {
    if (!json_.is_object())
      fail("found {}, expected an object with schedule, stages, microbatches and ranks", shown(json_));
    for (const auto& item : json_.items()) {
      if (std::find(kKeys.begin(), kKeys.end(), item.key()) == kKeys.end())
        fail("found the key {}, expected only schedule, stages, microbatches and ranks", shown(item.key()));
    }
    Schedule schedule;
    const Json& name = at("schedule");
    if (!name.is_string()) fail("schedule: found {}, expected a name", shown(name));
    schedule.name = name.get<std::string>();
    schedule.stages = size_of("stages");
    schedule.micro_batches = size_of("microbatches");
    const Json& ranks = at("ranks");
    if (!ranks.is_array() || ranks.empty())
      fail("ranks: found {}, expected a list for each rank", shown(ranks));
    check_size(schedule, ranks);
    schedule.rank_of_stage.assign(static_cast<size_t>(schedule.stages), -1);
    for (const Json& actions : ranks) read_rank(schedule, actions);
    for (size_t stage = 0; stage < schedule.rank_of_stage.size(); ++stage) {
      if (schedule.rank_of_stage[stage] < 0) fail("stage {} has no action on any rank", stage);
    }
    return schedule;
  }

 private:
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw ConfigError("[{}] {}", origin_, fmt::format(format, std::forward<Args>(args)...));
  }

  const Json& at(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end()) fail("the key {} is missing", key);
    return *found;
  }

  static std::optional<int32_t> count_of(const Json& value) {
    if (!value.is_number_unsigned()) return {};
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) return {};
    return static_cast<int32_t>(number);
  }

  int32_t size_of(const char* key) const {
    const auto size = count_of(at(key));
    if (!size || *size == 0) fail("{}: found {}, expected a positive integer", key, shown(at(key)));
    return *size;
  }

  // Called before anything is allocated from the sizes in the file.
  void check_size(const Schedule& schedule, const Json& ranks) const {
    size_t actions = 0;
    for (const Json& of_rank : ranks) actions += of_rank.size();
    const int64_t cells = int64_t{schedule.stages} * schedule.micro_batches;
    if (cells > static_cast<int64_t>(actions)) {
      fail("found {} actions, too few for {} micro-batches in {} stages", actions, schedule.micro_batches,
           schedule.stages);
    }
  }

  void read_rank(Schedule& schedule, const Json& actions) const {
    const auto rank = static_cast<int32_t>(schedule.ranks.size());
    if (!actions.is_array()) fail("rank {}: found {}, expected a list of actions", rank, shown(actions));
    auto& list = schedule.ranks.emplace_back();
    list.reserve(actions.size());
    for (const Json& action : actions) {
      const auto read = action_of(action);
      if (!read) {
        fail(
            "rank {}, action {}: found {}, expected [\"F\"|\"I\"|\"W\"|\"B\", micro-batch, stage] or "
            "[\"FB\", micro-batch, stage, micro-batch, stage]",
            rank, list.size(), shown(action));
      }
      list.push_back(*read);
      place(schedule, read->stage, rank);
      if (read->kind == ActionKind::kForwardBackward) place(schedule, read->backward_stage, rank);
    }
  }

  static std::optional<Action> action_of(const Json& json) {
    if (!json.is_array() || json.size() < 3 || !json[0].is_string()) return {};
    for (int k = 0; k < kActionKinds; ++k) {
      const auto kind = static_cast<ActionKind>(k);
      if (json[0].get_ref<const std::string&>() != letters_of(kind)) continue;
      const bool is_pair = kind == ActionKind::kForwardBackward;
      if (json.size() != (is_pair ? 5 : 3)) return {};
      const auto micro_batch = count_of(json[1]), stage = count_of(json[2]);
      if (!micro_batch || !stage) return {};
      if (!is_pair) return Action{kind, *micro_batch, *stage};
      const auto backward_micro_batch = count_of(json[3]), backward_stage = count_of(json[4]);
      if (!backward_micro_batch || !backward_stage) return {};
      return Action{kind, *micro_batch, *stage, *backward_micro_batch, *backward_stage};
    }
    return {};
  }

  // The first rank with an action of a stage holds it; require_sound() reports any other.
  static void place(Schedule& schedule, int32_t stage, int32_t rank) {
    if (stage >= schedule.stages) return;
    int32_t& holder = schedule.rank_of_stage[static_cast<size_t>(stage)];
    if (holder < 0) holder = rank;
  }

  const Json& json_;
  const std::string& origin_;
};

}  // namespace

std::string to_json(const Schedule& schedule) {
  std::string text = fmt::format(R"({{"schedule":{},"stages":{},"microbatches":{},"ranks":[)",
                                 json_string(schedule.name), schedule.stages, schedule.micro_batches);
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    text += rank > 0 ? ",[" : "[";
    bool is_first = true;
    for (const Action& action : schedule.ranks[rank]) {
      text += fmt::format(R"({}["{}",{},{})", is_first ? "" : ",", letters_of(action.kind),
                          action.micro_batch, action.stage);
      if (action.kind == ActionKind::kForwardBackward)
        text += fmt::format(",{},{}", action.backward_micro_batch, action.backward_stage);
      text += ']';
      is_first = false;
    }
    text += ']';
  }
  return text + "]}";
}

Schedule parse_schedule(std::string_view json, const std::string& origin) {
  Json parsed;
  try {
    parsed = parse_json<Json>(json);
  } catch (const Json::exception& error) {
    throw ConfigError("[{}] invalid JSON: {}", origin, error.what());
  }
  Schedule schedule = Reader(parsed, origin).read();
  require_sound(schedule, origin);
  return schedule;
}

}  // namespace strata::parallel
