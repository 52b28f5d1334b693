// strata replay: repeats a step of a run bit for bit.
#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/actions.h"
#include "cli/documents_json.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "train/replay.h"

namespace strata::cli {
namespace {

using Json = nlohmann::ordered_json;

Json value_json(const std::optional<training::ReplayedValue>& value) {
  if (!value) return nullptr;
  Json documents = Json::array();
  for (const training::SampleDocument& document : value->documents)
    documents.push_back(document_json(document));
  return {{"instruction", value->instruction},
          {"tensor", value->tensor},
          {"layer", value->layer ? Json(*value->layer) : Json()},
          {"rank", value->rank},
          {"documents", std::move(documents)}};
}

std::string value_text(const training::ReplayedValue& value) {
  constexpr size_t kShown = 8;
  std::string text =
      fmt::format("{} ({}) on rank {}, which worked on", value.instruction, value.tensor, value.rank);
  for (size_t i = 0; i < std::min(kShown, value.documents.size()); ++i)
    text += fmt::format("\n  sample {}  {}", value.documents[i].sample, document_text(value.documents[i]));
  if (value.documents.size() > kShown)
    text += fmt::format("\n  and {} more", value.documents.size() - kShown);
  return text;
}

int print_replay(const training::Replay& replay, bool json) {
  if (json) {
    print_out("{}\n", dump_json(Json{{"step", replay.step},
                                     {"same", replay.same},
                                     {"first_difference", value_json(replay.first_difference)},
                                     {"first_nonfinite", value_json(replay.first_nonfinite)}},
                                -1, InvalidUtf8::kReplace));
    return replay.same ? 0 : 3;
  }
  print_out("step {}: {}\n", replay.step,
            replay.same ? "the same loss, gradient norm and weights as the run recorded"
                        : "loss, gradient norm or weights differ from those that the run recorded");
  if (replay.first_difference) {
    print_out("this machine computes unreliably: two executions differ first in {}\n",
              value_text(*replay.first_difference));
  } else if (!replay.same) {
    print_out("two executions here agree: the difference comes from another machine or version\n");
  }
  if (replay.first_nonfinite)
    print_out("the first NaN or infinity is in {}\n", value_text(*replay.first_nonfinite));
  return replay.same ? 0 : 3;
}

}  // namespace

int run_replay(const ReplayOptions& options) {
  const Path run = options.run;
  const int64_t ranks = options.ranks.value_or(training::ranks_of_run(run));
  return print_replay(
      training::replay_on_threads({.run = run, .step = options.step}, static_cast<int>(ranks)), options.json);
}

void add_replay(Verb root) {
  auto options = std::make_shared<ReplayOptions>();
  Verb verb =
      root.verb("replay", "Repeat a step of a run bit for bit, and compare it with the record of the run",
                "strata replay runs/my --step 1200");
  verb.option("RUN", options->run, "The folder of the run, which is not changed").required();
  verb.option("--step", options->step, "The step to repeat").type_name("N").required().positive();
  verb.option("--ranks", options->ranks,
              "Ranks, as threads of this process; by default as many as the run had")
      .type_name("N");
  verb.json(options->json);
  verb.action([options] { return run_replay(*options); });
}

}  // namespace strata::cli
