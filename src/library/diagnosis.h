// The diagnosis of the run that a command names, in words and as JSON: `strata doctor RUN`.
#pragma once

#include <string>

#include "diagnosis/diagnosis.h"

namespace strata::library {

// A run's folder, given as such or by its name in runs/. ConfigError if there is none.
Path run_folder(const std::string& run);

// `run`: as run_folder() takes it. Changes nothing, and accepts damaged and running runs.
// ConfigError if there is no run.
diagnosis::Diagnosis diagnose_run(const std::string& run);

std::string text_of(const diagnosis::Diagnosis& diagnosis);
// One JSON object on a line: state, step, findings, goodput, ettr, ettr_predicted; null if not known.
std::string json_of(const diagnosis::Diagnosis& diagnosis);

}  // namespace strata::library
