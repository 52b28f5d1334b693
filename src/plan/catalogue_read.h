// How the TOML of catalogue files becomes a Catalogue.
#pragma once

#include <string>
#include <vector>

#include "base/toml.h"
#include "plan/catalogue.h"

namespace strata::plan::detail {

// Writes each figure as a table { value, source, mark }: with the source and mark of its section where it has
// none and both are written in the same file, else with its place in the file and the mark "user".
void attach_sources(ConfigValue& document);

// Lays `over` on `base`. Tables merge, but a figure replaces a figure, its source included; prices of `over`
// precede those of `base`.
void overlay(ConfigValue& base, ConfigValue over);

// The catalogue of a document with sources. ConfigError with all faults.
Catalogue read_document(const ConfigValue& document);

}  // namespace strata::plan::detail
