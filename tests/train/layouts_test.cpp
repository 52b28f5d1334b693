// The table of docs/parallelism.md: every layout on threads and on processes, in fp32 and bf16, compared with
// one rank, for a Llama, a GPT-2, a T5 and a Gemma 3 with windows. Sizes are indivisible by the number of
// ranks unless the layout requires it. Each figure is the worst of the four models. `make test` runs a subset
// that covers each pair of layout, engine, dtype and model, except layouts with models; with STRATA_ALL_LAYOUTS the
// program runs all of them, and STRATA_WRITE_LAYOUTS="date, commit" writes the table.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <tuple>

#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "fixtures/tiny_run.h"

namespace strata::training {
namespace {

struct Layout {
  std::string name;
  int ranks = 1;
  Sets parallel = {};      // keys of [parallel]
  Sets sizes = {};         // of model and batch that its degrees require, also for one rank
  bool by_mpirun = false;  // also run as processes
  int batch = 7;
  // Whether ranks hold partial sums of one rank's sum, so bf16 rounds more than once.
  bool rounds = false;
};

Layout zero(const char* name, int replicate, int shard, int stage) {
  return {
      name,
      replicate * shard,
      {fmt::format("replicate={}", replicate), fmt::format("shard={}", shard), fmt::format("zero={}", stage)},
      {},
      true};
}

// For families with grouped key-value heads.
constexpr const char* kFewerHeads = "model.num_key_value_heads=3";

// Degrees of the axes, in the order of the mesh.
struct Degrees {
  int pipeline = 1, replicate = 1, shard = 1, context = 1, tensor = 1;
};
Layout mesh(const char* name, const Degrees& at, const Sets& more = {}, bool by_mpirun = false) {
  Layout layout{name,
                at.pipeline * at.replicate * at.shard * at.context * at.tensor,
                {fmt::format("pipeline={}", at.pipeline), fmt::format("replicate={}", at.replicate),
                 fmt::format("shard={}", at.shard), fmt::format("context={}", at.context),
                 fmt::format("tensor={}", at.tensor)},
                {},
                by_mpirun};
  layout.parallel = layout.parallel + more;
  layout.rounds = true;
  // Widths and heads must divide; key-value heads may be fewer than ranks.
  if (at.tensor > 2) layout.sizes = {"model.intermediate_size=48"};
  if (at.tensor == 3) {
    layout.sizes = layout.sizes + Sets{"model.hidden_size=48", "model.num_attention_heads=6"};
    layout.sizes.emplace_back(kFewerHeads);
  }
  if (at.tensor == 3 || at.context == 3) layout.sizes.emplace_back("training.sequence_length=18");
  return layout;
}
Layout schedule(const std::string& name, int stages = 1) {
  Layout layout = mesh("", {.pipeline = 2}, {"schedule=" + name, fmt::format("virtual_stages={}", stages)});
  layout.name = "pipeline 2, " + name;
  if (stages > 1) layout.batch = 8;
  return layout;
}

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> kAll{
      zero("data 2", 2, 1, 0), zero("data 4", 4, 1, 0), zero("data 4, axis shard", 1, 4, 0),
      zero("ZeRO-1 on 2", 1, 2, 1), zero("ZeRO-1 on 3", 1, 3, 1), zero("ZeRO-1 on 4", 1, 4, 1),
      zero("ZeRO-2 on 2", 1, 2, 2), zero("ZeRO-2 on 3", 1, 3, 2), zero("ZeRO-2 on 4", 1, 4, 2),
      zero("ZeRO-3 on 2", 1, 2, 3), zero("ZeRO-3 on 3", 1, 3, 3), zero("ZeRO-3 on 4", 1, 4, 3),
      zero("2 × ZeRO-1 on 2", 2, 2, 1), zero("2 × ZeRO-2 on 2", 2, 2, 2), zero("2 × ZeRO-3 on 2", 2, 2, 3),
      zero("2 × ZeRO-1 on 4", 2, 4, 1), zero("2 × ZeRO-3 on 4", 2, 4, 3), zero("4 × ZeRO-2 on 2", 4, 2, 2),
      zero("4 × ZeRO-3 on 2", 4, 2, 3),
      // Single axes.
      mesh("tensor 2", {.tensor = 2}, {}, true),
      mesh("tensor 2, whole rows", {.tensor = 2}, {"sequence=false"}), mesh("tensor 3", {.tensor = 3}),
      mesh("tensor 4", {.tensor = 4}), mesh("context 2", {.context = 2}, {}, true),
      mesh("context 2, Ulysses", {.context = 2}, {"context_kind=ulysses"}), mesh("context 3", {.context = 3}),
      mesh("context 4", {.context = 4}), mesh("pipeline 2", {.pipeline = 2}, {}, true),
      mesh("pipeline 3", {.pipeline = 3}), mesh("pipeline 4", {.pipeline = 4}), schedule("gpipe"),
      schedule("interleaved", 2), schedule("zb_h1"), schedule("interleaved_zb", 2), schedule("zbv"),
      schedule("v_half"), schedule("v_min"), schedule("dualpipev"),
      // Pairs.
      mesh("data 2 × tensor 2", {.replicate = 2, .tensor = 2}),
      mesh("ZeRO-3 on 2 × tensor 2", {.shard = 2, .tensor = 2}, {"zero=3"}, true),
      mesh("data 2 × context 2", {.replicate = 2, .context = 2}),
      mesh("ZeRO-2 on 2 × context 2", {.shard = 2, .context = 2}, {"zero=2"}),
      mesh("context 2 × tensor 2", {.context = 2, .tensor = 2}),
      mesh("data 2 × pipeline 2", {.pipeline = 2, .replicate = 2}),
      mesh("ZeRO-3 on 2 × pipeline 2", {.pipeline = 2, .shard = 2}, {"zero=3"}),
      mesh("context 2 × pipeline 2", {.pipeline = 2, .context = 2}),
      mesh("tensor 2 × pipeline 2", {.pipeline = 2, .tensor = 2}, {"schedule=zbv"}, true),
      // Three axes on eight ranks: every pair of axes, ZeRO's stages and schedules.
      mesh("ZeRO-3 on 2 × tensor 2 × pipeline 2", {.pipeline = 2, .shard = 2, .tensor = 2}, {"zero=3"}),
      mesh("ZeRO-2 on 2 × context 2 × pipeline 2", {.pipeline = 2, .shard = 2, .context = 2},
           {"zero=2", "schedule=zb_h1"}),
      mesh("ZeRO-1 on 2 × context 2 × tensor 2", {.shard = 2, .context = 2, .tensor = 2}, {"zero=1"}),
      mesh("data 2 × tensor 2 × pipeline 2", {.pipeline = 2, .replicate = 2, .tensor = 2},
           {"schedule=gpipe"}),
      mesh("context 2 × tensor 2 × pipeline 2", {.pipeline = 2, .context = 2, .tensor = 2}, {"schedule=zbv"}),
      mesh("2 × ZeRO-3 on 2 × pipeline 2", {.pipeline = 2, .replicate = 2, .shard = 2}, {"zero=3"}),
      mesh("2 × ZeRO-2 on 2 × tensor 2", {.replicate = 2, .shard = 2, .tensor = 2}, {"zero=2"}),
      mesh("data 2 × context 2 × pipeline 2", {.pipeline = 2, .replicate = 2, .context = 2})};
  return kAll;
}
const Layout& one_rank() {
  static const Layout kOne{"one rank"};
  return kOne;
}
constexpr const char* kModels[] = {"llama3", "gpt2", "t5", "gemma3"};
constexpr const char* kEngines[] = {"local", "mpi"};
constexpr const char* kDtypes[] = {"fp32", "bf16"};

// A place in the table, by index.
struct Cell {
  size_t layout, engine, dtype, model;
};

// The subset of `make test`: with each layout every engine and dtype, and two models.
bool is_in_subset(const Cell& cell) {
  if (cell.model / 2 != cell.layout / 4 % 2) return false;
  const size_t engine = layouts()[cell.layout].by_mpirun ? (cell.layout + cell.model) % 2 : 0;
  return cell.engine == engine && cell.dtype == (cell.layout / 2 + cell.model) % 2;
}

std::vector<Cell> cells(bool all) {
  std::vector<Cell> out;
  for (size_t layout = 0; layout < layouts().size(); ++layout)
    for (size_t engine = 0; engine < (layouts()[layout].by_mpirun ? 2 : 1); ++engine)
      for (size_t dtype = 0; dtype < 2; ++dtype)
        for (size_t model = 0; model < std::size(kModels); ++model)
          if (const Cell cell{layout, engine, dtype, model}; all || is_in_subset(cell)) out.push_back(cell);
  return out;
}

using Tensors = std::map<std::string, std::vector<float>>;

struct Run {
  std::vector<double> losses, first_samples;
  // First moments after one step: 0.1 times the clipped gradients.
  Tensors moments;
};

class Lab {
 public:
  Lab() {
    std::string text;
    for (int i = 0; i < 300; ++i)
      text += "the cat number " + std::to_string(i * 7919 % 100) + " sat on the mat.\n";
    put_file(tiny_.path("corpus.txt"), text);
  }

  // A run of one step and, for a curve, another of 30 steps. If the ranks fail, so does the test, and the
  // result is empty.
  std::optional<Run> run(const Cell& cell, const Layout& layout, const Sets& sets, bool curve) {
    const std::string name = "run-" + std::to_string(++runs_);
    const auto first = train(cell, layout, sets, 1, name + "-first");
    if (!first) return std::nullopt;
    Run run{values(name + "-first", "loss"), values(name + "-first", "first_sample"),
            moments(name + "-first")};
    std::filesystem::remove_all(tiny_.folder(name + "-first"));
    if (!curve) return run;
    if (!train(cell, layout, sets, 30, name)) return std::nullopt;
    run.losses = values(name, "loss");
    run.first_samples = values(name, "first_sample");
    std::filesystem::remove_all(tiny_.folder(name));
    return run;
  }

  static Sets batch_of(int64_t sequences, int64_t micro_batch) {
    return {"training.global_batch_size=" + std::to_string(sequences),
            "training.micro_batch_size=" + std::to_string(micro_batch)};
  }
  // The run of one rank, cached by its parameters.
  const Run* baseline(const Cell& cell, const Sets& sets, bool curve) {
    std::string key = fmt::format("{} {} {}", cell.dtype, cell.model, curve);
    for (const std::string& set : sets) key += " " + set;
    auto& known = baselines_[key];
    if (!known) known = run({cell.layout, 0, cell.dtype, cell.model}, one_rank(), sets, curve);
    return known ? &*known : nullptr;
  }

 private:
  static bool has_fewer_heads(const std::string& model) { return model == "llama3" || model == "gemma3"; }

  std::string toml(const std::string& model, const std::string& name) const {
    std::string text = tiny_.toml(name);
    const auto put = [&](const std::string& from, const std::string& to) {
      text.replace(text.find(from), from.size(), to);
    };
    put("intermediate_size = 48", "intermediate_size = 46");
    put("\"llama3\"", "\"" + model + "\"");
    if (!has_fewer_heads(model)) put("num_key_value_heads = 2\n", "");
    if (model == "gemma3") text += "[model.override]\nsliding_window = 7\n";
    if (model == "t5") {
      put("vocab_size = 300", "vocab_size = 421");
      put("train.bin", "corpus.txt");
    } else {
      put("vocab_size = 300", "vocab_size = 301");
    }
    return text;
  }

  std::optional<bool> train(const Cell& cell, const Layout& layout, const Sets& sets, int64_t steps,
                            const std::string& name) {
    const Path file = tiny_.path(name + ".toml");
    put_file(file, toml(kModels[cell.model], name));
    std::string line;
    const bool processes = cell.engine == 1 && layout.ranks > 1;
#ifdef STRATA_MPIRUN
    if (processes)
      line = fmt::format(
          "{} --allow-run-as-root --oversubscribe --mca btl_vader_single_copy_mechanism none -n {} ",
          STRATA_MPIRUN, layout.ranks);
#endif
    line += fmt::format("\"{}\" train {}", STRATA_PROGRAM, file.string());
    if (!processes) line += fmt::format(" --ranks {}", layout.ranks);
    Sets all{fmt::format("training.steps={}", steps), "checkpoint.interval='never'",
             fmt::format("precision.compute='{}'", kDtypes[cell.dtype])};
    for (const std::string& set : layout.parallel) all.push_back("parallel." + set);
    all = all + sets;
    if (!has_fewer_heads(kModels[cell.model])) std::erase(all, kFewerHeads);
    for (const std::string& set : all) line += " --set \"" + set + "\"";
    const int status = std::system((line + " > " + tiny_.path("output").string() + " 2>&1").c_str());
    if (status == 0) return true;
    ADD_FAILURE() << line << "\n" << read_file(tiny_.path("output"));
    return std::nullopt;
  }

  std::vector<double> values(const std::string& name, const char* key) const {
    std::vector<double> out;
    std::istringstream lines(read_file(tiny_.folder(name) / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const auto json = parse_json<nlohmann::json>(line);
      if (json.contains("step")) out.push_back(json.at(key));
    }
    return out;
  }

  Tensors moments(const std::string& name) const {
    const checkpoint::SafetensorsFile file(tiny_.folder(name) / "checkpoints" / "step-00000001" /
                                           "optimizer.safetensors");
    Tensors out;
    for (const TensorInfo& tensor : file.tensors()) {
      if (!tensor.name.starts_with("m/")) continue;
      std::vector<float>& values = out[tensor.name];
      values.resize(static_cast<size_t>(tensor.shape.elements()));
      file.read(tensor, 0, values.data(), values.size() * sizeof(float));
    }
    return out;
  }

  TinyRun tiny_;
  int runs_ = 0;
  std::map<std::string, std::optional<Run>> baselines_;
};

double norm(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i)
    sum += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
  return std::sqrt(sum);
}

// The largest distance of a tensor, relative to its norm.
double furthest(const Tensors& wanted, const Tensors& found) {
  EXPECT_EQ(wanted.size(), found.size());
  double most = 0;
  for (const auto& [name, values] : wanted) {
    const auto other = found.find(name);
    if (other == found.end() || other->second.size() != values.size()) {
      ADD_FAILURE() << name << " is missing or has another size";
      continue;
    }
    most = std::max(most, distance(values, other->second) / std::max(norm(values), 1e-30));
  }
  return most;
}

double whole_distance(const Tensors& wanted, const Tensors& found) {
  double sum = 0;
  for (const auto& [name, values] : wanted) sum += std::pow(distance(values, found.at(name)), 2);
  return std::sqrt(sum);
}

double relative(double wanted, double found) {
  return std::abs(found - wanted) / std::abs(wanted);
}

struct Figures {
  double loss = 0, gradients = 0, curve = 0;
  void raise(const Figures& other) {
    loss = std::max(loss, other.loss);
    gradients = std::max(gradients, other.gradients);
    curve = std::max(curve, other.curve);
  }
};

constexpr double kFirst = 1e-5, kCurve = 1e-3;  // fp32, relative
constexpr double kOwn = 2;                      // bf16, relative to the difference of one rank

// fp32 with a batch of seven: some ranks have one sequence more, or none.
std::optional<Figures> in_fp32(Lab& lab, const Cell& cell) {
  const Layout& layout = layouts()[cell.layout];
  const Sets sets = Lab::batch_of(layout.batch, 1) + layout.sizes;
  const Run* const one = lab.baseline(cell, sets, true);
  const auto many = lab.run(cell, layout, sets, true);
  if (one == nullptr || !many) return std::nullopt;
  EXPECT_EQ(many->first_samples, one->first_samples);
  EXPECT_EQ(many->losses.size(), one->losses.size());
  Figures figures{.loss = relative(one->losses[0], many->losses[0]),
                  .gradients = furthest(one->moments, many->moments)};
  for (size_t i = 0; i < std::min(one->losses.size(), many->losses.size()); ++i)
    figures.curve = std::max(figures.curve, relative(one->losses[i], many->losses[i]));
  EXPECT_LE(figures.loss, kFirst);
  EXPECT_LE(figures.gradients, kFirst);
  EXPECT_LE(figures.curve, kCurve);
  return figures;
}

// bf16, for layouts that round more than once: their distance from one rank in fp32, relative to the distance
// of one rank in bf16.
std::optional<Figures> rounded_in_bf16(Lab& lab, const Cell& cell) {
  const Layout& layout = layouts()[cell.layout];
  const Sets sets = Lab::batch_of(8, 1) + layout.sizes;
  const Run* const exact = lab.baseline({cell.layout, cell.engine, 0, cell.model}, sets, false);
  const Run* const one = lab.baseline(cell, sets, false);
  const auto many = lab.run(cell, layout, sets, false);
  if (exact == nullptr || one == nullptr || !many) return std::nullopt;
  EXPECT_EQ(many->first_samples, one->first_samples);
  furthest(one->moments, many->moments);  // the same tensors
  const double own = whole_distance(exact->moments, one->moments);
  const Figures figures{.loss = std::abs(many->losses[0] - exact->losses[0]),
                        .gradients = whole_distance(exact->moments, many->moments) / own};
  EXPECT_GT(own, 0);
  // In a single number rounding errors may cancel by chance: allow a quarter of bf16's epsilon in addition.
  EXPECT_LE(figures.loss, kOwn * std::abs(one->losses[0] - exact->losses[0]) + 1e-3 * exact->losses[0]);
  EXPECT_LE(figures.gradients, kOwn);
  return figures;
}

// bf16: relative to the difference that halving the micro-batch makes on one rank.
std::optional<Figures> in_bf16(Lab& lab, const Cell& cell) {
  const Layout& layout = layouts()[cell.layout];
  if (layout.rounds) return rounded_in_bf16(lab, cell);
  const Run* const one = lab.baseline(cell, Lab::batch_of(8, 2) + layout.sizes, false);
  const Run* const halved = lab.baseline(cell, Lab::batch_of(8, 1) + layout.sizes, false);
  const auto many = lab.run(cell, layout, Lab::batch_of(8, 1) + layout.sizes, false);
  if (one == nullptr || halved == nullptr || !many) return std::nullopt;
  EXPECT_EQ(many->first_samples, one->first_samples);
  furthest(one->moments, many->moments);  // the same tensors
  const double own_loss = std::abs(halved->losses[0] - one->losses[0]);
  const double own = whole_distance(one->moments, halved->moments);
  const Figures figures{.loss = std::abs(many->losses[0] - one->losses[0]),
                        .gradients = whole_distance(one->moments, many->moments) / own};
  EXPECT_GT(own, 0);
  EXPECT_LE(figures.loss, kOwn * own_loss + 1e-6 * one->losses[0]);
  EXPECT_LE(figures.gradients, kOwn);
  return figures;
}

#ifdef STRATA_ALL_LAYOUTS
constexpr bool kAll = true;
#else
constexpr bool kAll = false;
#endif
constexpr const char* kWrites = "STRATA_WRITE_LAYOUTS";
constexpr const char* kBegin = "<!-- The table: written by the tests. -->\n";
constexpr const char* kEnd = "<!-- The end of the table. -->\n";

std::string row_begin(size_t layout, size_t engine) {
  return fmt::format("| {} | {} |", layouts()[layout].name, kEngines[engine]);
}

class Layouts : public testing::TestWithParam<size_t> {
 protected:
  using Table = std::map<std::tuple<size_t, size_t, size_t>, Figures>;  // by layout, engine, dtype

  static void SetUpTestSuite() {
    lab_ = std::make_unique<Lab>();
    table_ = std::make_unique<Table>();
  }
  static void TearDownTestSuite() {
    if (kAll && std::getenv(kWrites) != nullptr) write_table();
    lab_.reset();
    table_.reset();
  }

  static bool can_run(size_t engine) {
#ifdef STRATA_MPIRUN
    static const bool starts = std::system((std::string(STRATA_MPIRUN) +
                                            " --allow-run-as-root --oversubscribe -n 2 true > /dev/null 2>&1")
                                               .c_str()) == 0;
    return engine == 0 || starts;
#else
    return engine == 0;
#endif
  }

  // The value of STRATA_WRITE_LAYOUTS is printed above the table.
  static void write_table() {
    const Path path = STRATA_PARALLELISM_PAGE;
    const std::string text = read_file(path);
    const size_t begin = text.find(kBegin), end = text.find(kEnd);
    ASSERT_TRUE(begin != text.npos && end != text.npos) << path;
    std::string table = fmt::format(
        "\n{3}\n\n| layout | engine | loss < {0:g} | gradients < {0:g} | 30 steps < {1:g} | bf16 gradients < "
        "{2:g} "
        "|\n"
        "| --- | --- | --- | --- | --- | --- |\n",
        kFirst, kCurve, kOwn, std::getenv(kWrites));
    for (size_t layout = 0; layout < layouts().size(); ++layout) {
      for (size_t engine = 0; engine < 2; ++engine) {
        if (!table_->contains({layout, engine, 0})) continue;
        const Figures& fp32 = table_->at({layout, engine, 0});
        table += fmt::format("{} {:.0e} | {:.0e} | {:.0e} | {:.2f} |\n", row_begin(layout, engine), fp32.loss,
                             fp32.gradients, fp32.curve, table_->at({layout, engine, 1}).gradients);
      }
    }
    write_file_atomically(posix_file_system(), path,
                          text.substr(0, begin) + kBegin + table + "\n" + text.substr(end));
  }

  static inline std::unique_ptr<Lab> lab_;
  static inline std::unique_ptr<Table> table_;
};

TEST_P(Layouts, TrainAsOneRank) {
  for (const Cell& cell : cells(kAll)) {
    if (cell.layout != GetParam() || !can_run(cell.engine)) continue;
    SCOPED_TRACE(fmt::format("{}, {}, {}, {}", layouts()[cell.layout].name, kEngines[cell.engine],
                             kDtypes[cell.dtype], kModels[cell.model]));
    const auto figures = cell.dtype == 0 ? in_fp32(*lab_, cell) : in_bf16(*lab_, cell);
    if (figures) (*table_)[{cell.layout, cell.engine, cell.dtype}].raise(*figures);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Layouts, testing::Range(size_t{0}, layouts().size()), [](const auto& layout) {
  std::string name = layouts()[layout.param].name;
  std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
  return name + "_" + std::to_string(layout.param);
});

TEST(LayoutsPage, HasARowForEachLayoutAndEngine) {
  if (std::getenv(kWrites) != nullptr) GTEST_SKIP() << "it is being written";
  const std::string text = read_file(STRATA_PARALLELISM_PAGE);
  for (size_t layout = 0; layout < layouts().size(); ++layout)
    for (size_t engine = 0; engine < (layouts()[layout].by_mpirun ? 2 : 1); ++engine)
      EXPECT_NE(text.find(row_begin(layout, engine)), std::string::npos)
          << row_begin(layout, engine)
          << ": STRATA_WRITE_LAYOUTS=\"date, commit\" build/release/bin/train_layouts_tests writes it";
}

// --- Decisions over whole tensors or batches that a layout shards

struct Feature {
  std::string name;
  int ranks = 1;
  Sets sets = {}, parallel = {};
};

const Sets k8Bit{"optimizer.name=adamw8bit", "optimizer.adamw8bit.min_elements=256", "optimizer.lr=3e-3",
                 "model.intermediate_size=46"};
const Sets kExperts{"model.family=qwen3-moe", "model.override.num_experts=8",
                    "model.override.num_experts_per_tok=2", "model.override.moe_intermediate_size=16",
                    "optimizer.lr=3e-3"};
const Sets kCapacity = kExperts + Sets{"moe.capacity_factor=0.7"};
const Sets kGreatest = kCapacity + Sets{"moe.drop=probability", "model.allow_leaking_routing=true"};
const Sets kOverBatch = kCapacity + Sets{"moe.capacity_over=micro_batch", "moe.min_capacity=3",
                                         "model.allow_leaking_routing=true"};
const Sets kNoise = kExperts + Sets{"moe.jitter=0.3"};
const Sets kMixtral{"model.family=mixtral", "model.override.num_local_experts=4",
                    "model.override.router_jitter_noise=0.2", "optimizer.lr=3e-3"};

Sets on(std::initializer_list<const char*> keys) {
  Sets sets{"training.micro_batch_size=2"};
  for (const char* key : keys) sets.push_back(std::string("parallel.") + key);
  return sets;
}

const std::vector<Feature>& features() {
  static const std::vector<Feature> kFeatures{
      {"adamw8bit_tensor2", 2, k8Bit, on({"tensor=2"})},
      {"adamw8bit_tensor2_whole_rows", 2, k8Bit, on({"tensor=2", "sequence=false"})},
      {"adamw8bit_zero1_2_tensor2", 4, k8Bit, on({"shard=2", "tensor=2", "zero=1"})},
      {"adamw8bit_zero3_2_tensor2", 4, k8Bit, on({"shard=2", "tensor=2", "zero=3"})},
      {"adamw8bit_zero2_3_tensor2", 6, k8Bit, on({"shard=3", "tensor=2", "zero=2"})},
      {"adamw8bit_tensor2_pipeline2", 4, k8Bit, on({"tensor=2", "pipeline=2"})},
      {"adamw8bit_experts_tensor2", 2, k8Bit + kExperts, on({"tensor=2"})},
      {"capacity_context2", 2, kCapacity, on({"context=2"})},
      {"capacity_context2_ring", 2, kCapacity, on({"context=2", "context_kind=ring"})},
      {"capacity_context2_ulysses", 2, kCapacity, on({"context=2", "context_kind=ulysses"})},
      {"capacity_zero2_2_context2_tensor2", 8, kCapacity, on({"shard=2", "context=2", "tensor=2", "zero=2"})},
      {"capacity_context2_pipeline2", 4, kCapacity, on({"context=2", "pipeline=2"})},
      {"capacity_context2_expert4", 4, kCapacity, on({"context=2", "shard=2", "expert=4"})},
      {"capacity_by_probability_context2", 2, kGreatest, on({"context=2"})},
      {"capacity_over_micro_batch_context2", 2, kOverBatch, on({"context=2"})},
      {"jitter_tensor2", 2, kNoise, on({"tensor=2"})},
      {"jitter_context2", 2, kNoise, on({"context=2"})},
      {"jitter_zero3_2_context2_tensor2", 8, kNoise, on({"shard=2", "context=2", "tensor=2", "zero=3"})},
      {"jitter_pipeline2", 2, kNoise, on({"pipeline=2"})},
      {"jitter_expert2", 2, kNoise, on({"expert=2"})},
      {"jitter_mixtral_context2_tensor2", 4, kMixtral, on({"context=2", "tensor=2"})}};
  return kFeatures;
}

class Features : public testing::TestWithParam<size_t> {};

// 30 steps; then the same with the first half on the layout's ranks and the rest, from their checkpoint, on
// two.
TEST_P(Features, TrainAsOneRankAndResumeInAnotherLayout) {
  const Feature& feature = features()[GetParam()];
  const TinyRun tiny;
  const Sets sets =
      feature.sets + Sets{"training.steps=30", "training.micro_batch_size=2", "checkpoint.interval=never"};
  tiny.train(sets, "one");
  tiny.train_ranks(tiny.config(sets + feature.parallel, "ranks"), feature.ranks);
  tiny.train_ranks(tiny.config(sets + feature.parallel, "moved"), feature.ranks, 15);
  tiny.train_ranks(tiny.config(sets + on({"shard=2", "zero=0"}), "moved"), 2);
  const auto one = values_of(tiny.folder("one"), "loss");
  ASSERT_EQ(one.size(), 30U);
  for (const char* name : {"ranks", "moved"}) {
    const auto many = values_of(tiny.folder(name), "loss");
    ASSERT_EQ(many.size(), one.size()) << name;
    EXPECT_LE(relative(one[0], many[0]), kFirst) << name;
    for (size_t i = 0; i < one.size(); ++i) EXPECT_LE(relative(one[i], many[i]), kCurve) << name << ", " << i;
  }
  // Checkpoints do not depend on the layout: the same tensors with the same shapes.
  const auto shapes = [&](const char* name) {
    const checkpoint::SafetensorsFile file(tiny.folder(name) /
                                           "checkpoints/step-00000030/optimizer.safetensors");
    std::map<std::string, Shape> found;
    for (const TensorInfo& tensor : file.tensors()) found[tensor.name] = tensor.shape;
    return found;
  };
  EXPECT_EQ(shapes("ranks"), shapes("one"));
}

INSTANTIATE_TEST_SUITE_P(All, Features, testing::Range(size_t{0}, features().size()),
                         [](const auto& one) { return features()[one.param].name; });

// The subset of `make test` covers every pair, except layouts with models.
TEST(LayoutsSubset, HasEveryPair) {
  using Pair = std::tuple<int, size_t, size_t>;
  const auto pairs_of = [](const std::vector<Cell>& all) {
    std::set<Pair> pairs;
    for (const Cell& cell : all) {
      const size_t values[] = {cell.layout, cell.engine, cell.dtype, cell.model};
      for (int a = 0; a < 4; ++a)
        for (int b = a + 1; b < (a == 0 ? 3 : 4); ++b) pairs.insert({4 * a + b, values[a], values[b]});
    }
    return pairs;
  };
  EXPECT_EQ(pairs_of(cells(false)), pairs_of(cells(true)));
}

}  // namespace
}  // namespace strata::training
