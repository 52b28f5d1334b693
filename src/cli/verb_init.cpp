// strata init [PRESET] [--data PATH]
#include "base/error.h"
#include "base/log.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "config/run_config.h"
#include "hardware/device_spec.h"
#include "models/model.h"

namespace strata::cli {
namespace {

struct Options {
  std::string preset;
  std::string data;
  std::string output = "RUN.toml";
  bool force = false;
};

std::string quoted(const std::string& text) {
  ConfigValue value;
  value.data = text;
  return to_toml(value);
}

int init(const Options& options) {
  const Path output = options.output;
  refuse_existing("strata init --output", output, options.force);
  if (!options.data.empty() && expand_glob(options.data).empty()) {
    throw ConfigError("[strata init --data] found no files at {}, expected a file, folder or glob",
                      options.data);
  }
  const hardware::DeviceSpec machine = hardware::detect_cpu(0);
  const std::string preset =
      options.preset.empty() ? std::string(models::preset_for_machine(machine.cores, machine.memory_bytes))
                             : options.preset;
  const std::string data = options.data.empty() ? "corpus/*.txt" : options.data;
  const std::vector<std::string> arguments = {
      "model.preset=" + quoted(preset),
      "data.train=[" + quoted(data) + "]",
      "training.sequence_length=512",
      machine.cores >= 8 ? "training.global_batch_size=64" : "training.global_batch_size=16",
      "training.steps=1000",
      "optimizer.lr=0.001",
      "schedule.warmup_steps=100"};
  const config::RunConfig config = config::read_run_config("", {}, arguments);
  config::require_valid(config);
  const std::string heading = fmt::format(
      "A run of Strata, sized to this machine ({} cores, {:.0f} GB). Lines in comments show what holds "
      "without "
      "them. Start it with: strata train {}",
      machine.cores, static_cast<double>(machine.memory_bytes) / 1e9, output.string());
  write_file_atomically(posix_file_system(), output, config::commented_toml(config, heading));
  print_out(fmt::format("wrote {}: {} on {}\nnext: strata train {}\n", output.string(), preset, data,
                        output.string()));
  if (options.data.empty())
    log_info("put text under corpus/ first, or edit data.train in {}", output.string());
  return 0;
}

}  // namespace

void add_init(Verb root) {
  auto options = std::make_shared<Options>();
  Verb verb = root.verb("init", "Write a commented RUN.toml sized to this machine",
                        "strata init llama3-29m --data corpus/");
  verb.option("PRESET", options->preset, "The model; left out: one that suits this machine");
  verb.option("--data", options->data, "File, folder or glob to train on").type_name("PATH");
  verb.option("--output,-o", options->output, "The file to write").type_name("FILE").show_default();
  verb.flag("--force", options->force, kForceHelp);
  verb.action([options] { return init(*options); });
}

}  // namespace strata::cli
