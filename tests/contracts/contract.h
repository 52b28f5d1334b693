// Contracts: the effect of every key of RUN.toml and every option of every verb, each checked by an
// independent computation. It is not enough to check that a value is read.
//
// Each file has a table; contract_test.cpp joins the tables and fails for a key or an option without a row.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace strata::contracts {

struct Contract {
  std::string name;  // "optimizer.lr", "data.source.weight"; for options "train --resume", "train RUN.toml"
  void (*check)(const std::string& name);  // may be shared by several rows
};
using Contracts = std::vector<Contract>;

inline std::ostream& operator<<(std::ostream& out, const Contract& contract) {
  return out << contract.name;
}

// Keys.
Contracts parallel_keys();
Contracts run_keys();             // run, log, profile, debug, device, memory
Contracts precision_keys();       // precision
Contracts later_keys();           // keys of later versions and their defaults
Contracts model_keys();           // model
Contracts moe_keys();             // moe
Contracts shared_experts_keys();  // parallel, for models with experts
Contracts tokenizer_keys();       // tokenizer, tokenizer.train
Contracts data_keys();            // data except mixtures
Contracts mixture_keys();         // data.source, data.phase
Contracts training_keys();        // training, schedule
Contracts optimizer_keys();       // optimizer with sub-tables and groups
Contracts keeping_keys();         // checkpoint, eval, eval.set
Contracts recovery_keys();        // recovery, log.alert_command
Contracts corruption_keys();      // recovery.compare_replicas, recovery.recompute_check

// Options.
Contracts training_options();    // init, train, explain, config, presets, bench, doctor, man, completions
Contracts check_options();       // check …
Contracts model_options();       // eval, generate
Contracts checkpoint_options();  // checkpoint …
Contracts tokenizer_options();   // tokenizer …
Contracts data_options();        // data …
Contracts steering_options();    // stop, save, set, branch
Contracts launch_options();      // launch
Contracts simulate_options();    // simulate
Contracts planning_options();    // scale …, plan

}  // namespace strata::contracts
