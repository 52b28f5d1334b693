// strata eval --experts
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "base/json.h"
#include "base/signals.h"
#include "cli/eval_task.h"
#include "cli/output.h"
#include "cli/share_done.h"
#include "config/resolve.h"
#include "evaluation/routing.h"
#include "library/evaluation.h"

namespace strata::cli {
namespace {

using Json = nlohmann::ordered_json;
using Counts = std::vector<int64_t>;

struct Source {
  std::string name;
  data::TokenCorpus corpus;
};

// Data sources of the run that --model belongs to.
std::vector<Source> sources_of_run(const library::Evaluation& setup) {
  const inference::ModelRuntime& runtime = setup.runtime();
  const auto& tokenizer = setup.tokenizer();
  std::optional<config::RunConfig> stored;
  // RUN/checkpoints/step-00000200, or RUN/final.
  for (const Path& folder : {runtime.folder.parent_path(), runtime.folder.parent_path().parent_path()})
    if (!stored) stored = config::read_stored_config(folder);
  if (!stored) {
    throw ConfigError(
        "[eval --experts] {} does not belong to a run with data sources; give --tokens FILE or "
        "--text FILE, once for each source",
        runtime.folder.string());
  }
  std::vector<Source> sources;
  const config::RunData data = config::resolve_data(*stored, runtime.model, tokenizer ? &*tokenizer : nullptr,
                                                    posix_file_system(), [] {
                                                      if (stop_requested()) throw Interrupted();
                                                    });
  for (const data::SampleSourceSpec& source : data.sources) sources.push_back({source.name, source.corpus});
  return sources;
}

std::vector<Source> sources_of(const library::Evaluation& setup, const EvalOptions& options) {
  if (options.tokens.empty() && options.text.empty()) return sources_of_run(setup);
  std::vector<Source> sources;
  for (const std::string& name : options.tokens) sources.push_back({name, setup.open_tokens(name).corpus});
  for (const std::string& name : options.text) sources.push_back({name, setup.open_text(name).corpus});
  return sources;
}

// Results per source, and counts per layer by source.
struct Report {
  std::vector<std::string> names;
  std::vector<evaluation::RoutingResult> sources;
  bool drops = false;  // experts have a limited capacity

  size_t layers() const { return sources.front().layers.size(); }
  int64_t layer(size_t i) const { return sources.front().layers[i].layer; }
  std::vector<Counts> by_source(size_t i) const {
    std::vector<Counts> counts;
    for (const auto& source : sources) counts.push_back(source.layers[i].tokens);
    return counts;
  }
  Counts all(size_t i) const {
    Counts sum(sources.front().layers[i].tokens.size());
    for (const Counts& counts : by_source(i))
      std::transform(sum.begin(), sum.end(), counts.begin(), sum.begin(), std::plus<>());
    return sum;
  }
  // The share of a layer's token–expert pairs, over all sources, that exceeded the capacity.
  double dropped(size_t i) const {
    int64_t dropped = 0, all = 0;
    for (const auto& source : sources) {
      dropped += source.dropped[i];
      all += source.dropped[i];
      for (const int64_t count : source.layers[i].tokens) all += count;
    }
    return all > 0 ? static_cast<double>(dropped) / static_cast<double>(all) : 0;
  }
  std::vector<evaluation::LayerCounts> layer_counts() const {
    std::vector<evaluation::LayerCounts> counts;
    for (const auto& source : sources) counts.push_back(source.layers);
    return counts;
  }
  int64_t tokens() const {
    int64_t tokens = 0;
    for (const auto& source : sources) tokens += source.loss.tokens;
    return tokens;
  }
};

std::vector<double> shares_of(const Counts& counts) {
  double all = 0;
  for (const int64_t count : counts) all += static_cast<double>(count);
  std::vector<double> shares;
  for (const int64_t count : counts) shares.push_back(all > 0 ? static_cast<double>(count) / all : 0);
  return shares;
}

// For each source the most characteristic expert: the greatest term share · log (share / mean share) of the
// mutual information of a token's expert and its source.
struct OwnExpert {
  size_t expert = 0;
  double share = 0, over_mean = 0, tells = 0;
};
std::vector<OwnExpert> own_experts(const std::vector<Counts>& sources) {
  std::vector<std::vector<double>> shares;
  for (const Counts& counts : sources) shares.push_back(shares_of(counts));
  std::vector<OwnExpert> own(sources.size());
  for (size_t expert = 0; expert < shares.front().size(); ++expert) {
    double mean = 0;
    for (const auto& source : shares) mean += source[expert] / static_cast<double>(shares.size());
    for (size_t s = 0; s < shares.size(); ++s) {
      const double share = shares[s][expert];
      const double tells = share > 0 ? share * std::log(share / mean) : 0;
      if (tells > own[s].tells) own[s] = {expert, share, share / mean, tells};
    }
  }
  return own;
}

Json json_of(const Report& report) {
  Json sources = Json::array(), layers = Json::array();
  for (size_t s = 0; s < report.names.size(); ++s) {
    sources.push_back({{"name", report.names[s]},
                       {"tokens", report.sources[s].loss.tokens},
                       {"loss", report.sources[s].loss.loss()}});
  }
  double max_vio = 0, entropy = 0;
  int64_t dead = 0;
  const auto count = static_cast<double>(report.layers());
  for (size_t i = 0; i < report.layers(); ++i) {
    const Counts all = report.all(i);
    const observe::ExpertSpread spread = observe::spread_of(all);
    Json layer{{"layer", report.layer(i)},        {"shares", shares_of(all)},
               {"max_vio", spread.max_violation}, {"entropy", spread.entropy},
               {"experts_in_use", spread.in_use}, {"dead_experts", spread.dead}};
    if (report.drops) layer["dropped"] = report.dropped(i);
    max_vio = std::max(max_vio, spread.max_violation);
    entropy += spread.entropy / count;
    dead += spread.dead;
    if (report.names.size() > 1) {
      const auto found = evaluation::specialisation_of(report.by_source(i));
      layer["specialisation"] = found.share;
      layer["information_bits"] = found.information;
      for (const Counts& counts : report.by_source(i)) layer["shares_by_source"].push_back(shares_of(counts));
    }
    layers.push_back(std::move(layer));
  }
  Json json{{"tokens", report.tokens()}, {"max_vio", max_vio}, {"entropy", entropy},
            {"dead_experts", dead},      {"sources", sources}, {"layers", layers}};
  if (report.names.size() > 1)
    json["specialisation"] = evaluation::mean_specialisation(report.layer_counts());
  return json;
}

// Percent of a layer's token–expert pairs, several per line.
std::string table_of_shares(const Report& report) {
  constexpr size_t kInARow = 16;
  std::string text;
  for (size_t i = 0; i < report.layers(); ++i) {
    const std::vector<double> shares = shares_of(report.all(i));
    for (size_t first = 0; first < shares.size(); first += kInARow) {
      text += first == 0 ? fmt::format("{:>6}", report.layer(i)) : std::string(6, ' ');
      text += fmt::format("  {:>4}:", first);
      for (size_t e = first; e < std::min(shares.size(), first + kInARow); ++e)
        text += fmt::format(" {:5.1f}", 100 * shares[e]);
      text += "\n";
    }
  }
  return text;
}

std::string text_of(const Report& report) {
  std::string text;
  for (size_t s = 0; s < report.names.size(); ++s) {
    text += fmt::format("{}: {} tokens, loss {:.4f}\n", report.names[s], report.sources[s].loss.tokens,
                        report.sources[s].loss.loss());
  }
  text += "\n layer  MaxVio  entropy  in use  dead  busiest expert\n";
  for (size_t i = 0; i < report.layers(); ++i) {
    const Counts all = report.all(i);
    const observe::ExpertSpread spread = observe::spread_of(all);
    const auto busiest = std::max_element(all.begin(), all.end()) - all.begin();
    text += fmt::format("{:>6}  {:>6.2f}  {:>7.3f}  {:>6.1f}  {:>4}  {} ({:.1f} %)", report.layer(i),
                        spread.max_violation, spread.entropy, spread.in_use, spread.dead, busiest,
                        100 * shares_of(all)[static_cast<size_t>(busiest)]);
    text += report.drops ? fmt::format("; {:.2f} % dropped\n", 100 * report.dropped(i)) : "\n";
  }
  text += "\nshares of a layer's tokens, in %\n layer  from expert\n" + table_of_shares(report);
  if (report.names.size() < 2) return text;
  text +=
      "\nspecialisation by source (0: all use experts alike, 1: no two use the same), and for each source its "
      "most characteristic expert, with its share there\n layer\n";
  for (size_t i = 0; i < report.layers(); ++i) {
    const std::vector<Counts> sources = report.by_source(i);
    text += fmt::format("{:>6}  {:.4f}", report.layer(i), evaluation::specialisation_of(sources).share);
    const std::vector<OwnExpert> own = own_experts(sources);
    for (size_t s = 0; s < own.size(); ++s)
      text += fmt::format("  {}: {} ({:.1f} %, {:.2f} × the mean)", report.names[s], own[s].expert,
                          100 * own[s].share, own[s].over_mean);
    text += "\n";
  }
  return text;
}

}  // namespace

int run_experts_evaluation(const EvalOptions& options) {
  inference::ModelRuntime runtime = inference::open_model(options.model);
  library::Evaluation setup(runtime, config::config_of_sets(options.sets),
                            {.sequence_length = options.sequence_length, .stride = options.stride});
  if (runtime.model.experts.count == 0) {
    throw ConfigError("[eval --experts] {} has no experts ({})", runtime.folder.string(),
                      runtime.model.family->name);
  }
  catch_stop_signals();
  const std::vector<Source> sources = sources_of(setup, options);
  std::vector<data::EvalWindows> windows;
  int64_t most = 0, done_windows = 0, all_windows = 0;
  for (const Source& source : sources) {
    windows.push_back(setup.windows(source.corpus, options.max_tokens));
    most = std::max(most, windows.back().windows());
    all_windows += windows.back().windows();
  }
  setup.load(windows.front(), most);
  Report report;
  report.drops = runtime.model.experts.capacity.bounds();
  {
    ShareDone show;
    for (size_t s = 0; s < sources.size(); ++s) {
      const auto own = static_cast<double>(windows[s].windows());
      report.names.push_back(sources[s].name);
      report.sources.push_back(
          evaluation::evaluate_routing(*runtime.executor, 0, windows[s], [&](double done) {
            show((static_cast<double>(done_windows) + done * own) / static_cast<double>(all_windows));
            return !stop_requested();
          }));
      if (stop_requested()) return stop_exit_code();
      library::require_targets(report.sources.back().loss, sources[s].name);
      done_windows += windows[s].windows();
    }
  }
  if (options.json) {
    print_out("{}\n", dump_json(json_of(report)));
  } else {
    print_out("{}", text_of(report));
  }
  return 0;
}

}  // namespace strata::cli
