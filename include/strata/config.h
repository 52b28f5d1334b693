// Configurations of runs: the keys of RUN.toml.
//
// Threads: a Config is an immutable value; threads may share and copy it. Ownership: it owns all that it holds. Errors:
// kConfig for a missing file, bad TOML, unknown keys, impossible values and combinations, all in one message; kData for
// a model's config.json that cannot be read. Stability: keys and their meaning are those of docs/configuration.md; a
// key is never renamed, and never changes its meaning, within 0.x.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "strata/error.h"

namespace strata {

// "0.1.0", as `strata --version` prints it.
STRATA_API const char* version();

class STRATA_API Config {
 public:
  // From the text of a RUN.toml, without includes. `sets` are KEY=VALUE, with values in TOML, and override it. Relative
  // paths start at the current directory. `name` stands for the file in messages.
  static Config parse(std::string_view toml, const std::vector<std::string>& sets = {},
                      const std::string& name = "config");
  // From a RUN.toml, or from the folder of a run, as that was configured.
  static Config read(const std::string& path, const std::vector<std::string>& sets = {});
  // For a first run on these texts, or on these folders of data builds: a model and a number of steps that suit their
  // size, as `strata train TEXT` chooses them.
  static Config for_texts(const std::vector<std::string>& paths, const std::vector<std::string>& sets = {});

  // This configuration with more `sets`.
  Config with(const std::vector<std::string>& sets) const;

  // The value of a key ("training.steps"), in TOML; empty if the key has none. kConfig for an unknown key.
  std::string get(std::string_view key) const;
  // Every key with its value, as a RUN.toml.
  std::string toml() const;
  // Settings that are allowed but probably unintended, a line each.
  std::vector<std::string> warnings() const;

  struct Impl;  // internal
  explicit Config(std::shared_ptr<const Impl> impl);
  const Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace strata
