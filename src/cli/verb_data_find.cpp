// strata data find: the documents that a step of a run was trained on, and the steps of a document.
#include <fmt/core.h>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/documents_json.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "train/find_documents.h"

namespace strata::cli {
namespace {

using Json = nlohmann::ordered_json;

struct FindOptions {
  std::string run;
  std::optional<int64_t> step;
  std::string document;
  bool json = false;
};

void print_found(const training::FoundDocument& found, bool json) {
  if (json) {
    Json line{{"step", found.step}};
    line.update(document_json(found.what));
    line["trained"] = found.is_trained;
    print_out("{}\n", dump_json(line, -1, InvalidUtf8::kReplace));
    return;
  }
  print_out("step {}{}  sample {}  {}\n", found.step, found.is_trained ? "" : " (planned)", found.what.sample,
            document_text(found.what));
}

int find(const FindOptions& options) {
  if (options.step.has_value() != options.document.empty())
    throw ConfigError("[strata data find] found {}, expected one of --step and --document",
                      options.step ? "both" : "neither");
  int64_t lines = 0;
  const training::FindResult result =
      training::find_documents({.run = options.run, .step = options.step, .document = options.document},
                               [&](const training::FoundDocument& found) {
                                 ++lines;
                                 print_found(found, options.json);
                               });
  if (!result.why.empty()) log_warning("{}", result.why);
  if (options.step) return 0;
  if (result.is_held_out) {
    log_info("{} is held out for evaluations: no step is trained on it", options.document);
  } else if (lines == 0) {
    log_info("no step up to {} is trained on {}", result.last_step, options.document);
  }
  return 0;
}

}  // namespace

void add_data_find(Verb data) {
  auto options = std::make_shared<FindOptions>();
  Verb verb =
      data.verb("find", "Show the documents that a step of a run was trained on, or the steps of a document",
                "strata data find runs/my --step 1200");
  verb.option("RUN", options->run, "The folder of the run, which is not changed").required();
  verb.option("--step", options->step, "A step that the run has made or has planned")
      .type_name("N")
      .positive();
  verb.option(
          "--document", options->document,
          "A document by its id, or FILE:NUMBER with its number in the file, from 0; shows every step and "
          "sample with it, up to the planned end of the run")
      .type_name("ID");
  verb.json(options->json);
  verb.action([options] { return find(*options); });
}

}  // namespace strata::cli
