// Reads a Catalogue from the TOML of catalogue files.
#pragma once

#include <string>
#include <vector>

#include "base/toml.h"
#include "plan/catalogue.h"

namespace strata::planning::detail {

// Turns each figure into a table { value, source, mark }. A figure without a source gets the source and mark
// of its section if both are in the same file, else its position in the file and the mark "user".
void attach_sources(ConfigValue& document);

// Overrides `base` with `over`. Tables are merged, but a figure replaces a figure together with its source;
// prices of `over` precede those of `base`.
void overlay(ConfigValue& base, ConfigValue over);

// The catalogue of a document with sources. ConfigError with all errors.
Catalogue read_document(const ConfigValue& document);

}  // namespace strata::planning::detail
