// strata init [PRESET] [--data PATH]
#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "config/resolve.h"
#include "config/run_config.h"
#include "device/open/open.h"
#include "library/run_inputs.h"
#include "models/model.h"

namespace strata::cli {
namespace {

struct InitOptions {
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

// Steps of a first run, at most three passes: text that is read more often teaches little.
int64_t steps_for(const std::string& data, int64_t step_tokens) {
  const int64_t bytes = library::corpus_bytes({data});
  return std::min(library::first_run_steps(bytes, step_tokens),
                  std::max<int64_t>(1, 3 * (bytes / 4) / step_tokens));
}

int init(const InitOptions& options) {
  const Path output = options.output;
  check_output_file("strata init --output", output, options.force);
  if (!options.data.empty() && expand_glob(options.data).empty()) {
    throw ConfigError("[strata init --data] found no files at {}, expected a file, folder or glob",
                      options.data);
  }
  const hardware::DeviceSpec machine = device::open(device::Kind::kCpu)->spec();
  const std::string preset =
      options.preset.empty() ? std::string(models::preset_for_machine(machine.cores, machine.memory_bytes))
                             : options.preset;
  const models::ModelConfig model = models::preset(preset);
  const int64_t length = std::min<int64_t>(512, model.max_sequence_length());
  const int64_t batch = machine.cores >= 8 ? 64 : 16;
  const std::string data = options.data.empty() ? "corpus/*.txt" : options.data;
  const std::vector<std::string> arguments = {
      "model.preset=" + quoted(preset),
      "data.train=[" + quoted(data) + "]",
      fmt::format("training.sequence_length={}", length),
      fmt::format("training.global_batch_size={}", batch),
      fmt::format("training.steps={}", options.data.empty() ? 1000 : steps_for(options.data, length * batch)),
      "optimizer.lr=0.001",
      "schedule.warmup_steps=\"auto\""};
  const config::RunConfig config = config::read_run_config("", {}, arguments);
  const config::IssueHook hooks[] = {config::check_model};
  config::require_valid(config, hooks);
  const std::string heading = fmt::format(
      "A run of Strata, sized to this machine ({} cores, {:.0f} GB). Commented lines show the "
      "defaults. Start it with: strata train {}",
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
  auto options = std::make_shared<InitOptions>();
  Verb verb = root.verb("init", "Write a commented RUN.toml sized to this machine",
                        "strata init llama3-29m --data corpus/");
  verb.option("PRESET", options->preset, "The model; default: one that suits this machine")
      .suggest(preset_names());
  verb.option("--data", options->data, "File, folder or glob to train on").type_name("PATH");
  verb.option("--output,-o", options->output, "The file to write").type_name("FILE").show_default();
  verb.flag("--force", options->force, kForceHelp);
  verb.action([options] { return init(*options); });
}

}  // namespace strata::cli
