// Turns data.build, the folders of finished `strata data build` runs, into training sources.
#pragma once

#include "base/toml.h"

namespace strata::config {

// Replaces data.build (one folder or a list) by the contents of each folder's sources.toml. Its rows are
// placed first in data.source, with paths that include the folder; its tokenizer is used if the configuration
// names none. A [[data.source]] with a build's name overrides that build's row, so users can change weights
// and limits; the other sources follow. Throws ConfigError if a folder has no sources.toml or if builds have
// different tokenizers.
void lay_builds(ConfigValue& root);

}  // namespace strata::config
