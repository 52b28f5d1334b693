// data.build: what strata data build has made, as a configuration of training.
#pragma once

#include "base/toml.h"

namespace strata::config {

// Replaces data.build, one folder or a list, by what each folder's sources.toml says: its rows come first in
// data.source, with paths below the folder, and its tokenizer is taken where the configuration names none. A
// row of the configuration with a build's name is laid over that build's row, so that weights and limits can
// be changed; the others follow. ConfigError for a folder without that file, and for builds made with
// different tokenizers.
void lay_builds(ConfigValue& root);

}  // namespace strata::config
