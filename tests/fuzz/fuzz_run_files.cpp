// Any content of a run's files: the diagnosis must accept it and write JSON. The input is the files' content, one
// after the other, separated by NUL.
#include <cstdlib>

#include "diagnosis/diagnosis.h"
#include "fixtures/scratch_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;
  static const ScratchFolder folder;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  for (const char* name : {"metrics.jsonl", "metrics.discarded.jsonl", "layers.jsonl", "experts.jsonl",
                           "ranks.jsonl", "ledger.jsonl", "run.toml"}) {
    const size_t end = std::min(rest.find('\0'), rest.size());
    put_file(folder / name, std::string(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  const diagnosis::Diagnosis found = diagnosis::diagnose(diagnosis::read_evidence(folder.path(), 1.7e9));
  for (const diagnosis::Finding& one : found.findings) {
    if (one.name.empty() || dump_json(one.evidence, -1, InvalidUtf8::kReplace).empty()) std::abort();
  }
  for (const std::optional<double>& share :
       {found.time.goodput(), found.time.ettr(), found.time.ettr_predicted()}) {
    if (share && !(*share >= 0 && *share <= 1)) std::abort();
  }
  return 0;
}
