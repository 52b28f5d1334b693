#include "diagnosis/diagnosis.h"

namespace strata::diagnosis {

std::vector<FindingKind> finding_kinds() {
  std::vector<FindingKind> all;
  for (const auto& kinds : {state_findings(), loss_findings(), update_findings(), model_findings(),
                            time_findings(), folder_findings()})
    all.insert(all.end(), kinds.begin(), kinds.end());
  return all;
}

Diagnosis diagnose(const Evidence& evidence) {
  const Case at(evidence);
  Diagnosis out{.folder = evidence.folder,
                .state = at.state,
                .step = at.step,
                .all_steps = at.all_steps,
                .findings = {},
                .time = at.time};
  for (const FindingKind& kind : finding_kinds()) {
    if (std::optional<Found> found = kind.find(at))
      out.findings.push_back({std::move(*found), std::string(kind.name)});
  }
  return out;
}

}  // namespace strata::diagnosis
