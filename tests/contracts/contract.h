// Contracts: what every key of RUN.toml and every option of every verb does, each shown by a computation of
// the test's own. A row whose check only found that a value is read would be none.
//
// A table is a file; contract_test.cpp joins them and fails for a key or an option without a row.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace strata::contracts {

struct Contract {
  std::string name;  // "optimizer.lr", "data.source.weight"; of an option "train --resume", "train RUN.toml"
  void (*check)(const std::string& name);  // several rows may share one that shows them together
};
using Contracts = std::vector<Contract>;

inline std::ostream& operator<<(std::ostream& out, const Contract& contract) {
  return out << contract.name;
}

// Of keys.
Contracts parallel_keys();
Contracts run_keys();             // run, log, profile, debug, device, memory, precision
Contracts later_keys();           // what is not there yet, and its defaults
Contracts model_keys();           // model
Contracts moe_keys();             // moe
Contracts shared_experts_keys();  // parallel, of models with experts
Contracts tokenizer_keys();       // tokenizer, tokenizer.train
Contracts data_keys();            // data but for its mixtures
Contracts mixture_keys();         // data.source, data.phase
Contracts training_keys();        // training, schedule
Contracts optimizer_keys();       // optimizer with its sub-tables and groups
Contracts keeping_keys();         // checkpoint, eval, eval.set

// Of options.
Contracts training_options();    // init, train, explain, config, presets, bench, doctor, man, completions
Contracts check_options();       // check …
Contracts model_options();       // eval, generate
Contracts checkpoint_options();  // checkpoint …
Contracts tokenizer_options();   // tokenizer …
Contracts data_options();        // data …

}  // namespace strata::contracts
