// strata plan
#include "base/error.h"
#include "base/json.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "plan/claims.h"

namespace strata::cli {
namespace {

struct PlanOptions {
  bool check_claims = false;
  bool json = false;
};

int check_published_claims(bool json) {
  const std::vector<planning::CheckedClaim> claims = planning::check_claims(planning::builtin_catalogue());
  if (json) {
    print_out("{}\n", dump_json(planning::json_of(claims)));
  } else {
    print_out("{}", to_text(claims));
  }
  return 0;
}

int run_plan(const PlanOptions& options) {
  if (options.check_claims) return check_published_claims(options.json);
  throw ConfigError(
      "[strata plan] found no --check-claims, the only task of this version; layouts are not yet ranked");
}

}  // namespace

void add_plan(Verb root) {
  auto options = std::make_shared<PlanOptions>();
  Verb verb =
      root.verb("plan", "Recompute published claims about training runs", "strata plan --check-claims");
  verb.flag("--check-claims", options->check_claims, "Print what published claims are off by");
  verb.json(options->json);
  verb.action([options] { return run_plan(*options); });
}

}  // namespace strata::cli
