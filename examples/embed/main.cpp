// A program that embeds Strata: reads texts, trains a small model on them, generates from it and saves a copy.
//
//   embed TEXT FOLDER [STEPS]
//
// Build it with CMake (find_package(Strata)) or with
//   c++ -std=c++20 main.cpp $(pkg-config --cflags --libs strata) -o embed
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "strata/strata.h"

namespace {

namespace fs = std::filesystem;

// A recipe for a data build: lines with fewer than three words go, documents that occur twice stay once.
std::string write_recipe(const std::string& text, const fs::path& folder) {
  const fs::path path = folder / "recipe.toml";
  std::ofstream(path) << "[build]\nfolder = \"" << (folder / "data").string() << "\"\n"
                      << "[[source]]\nname = \"text\"\npath = [\"" << text << "\"]\n"
                      << "[[stage]]\nkind = \"exact_dedup\"\n";
  return path.string();
}

strata::Config small_run(const std::string& text, const fs::path& folder, const std::string& steps) {
  return strata::Config::parse(
      R"(
    [model]
    family = "llama"
    hidden_size = 64
    intermediate_size = 192
    num_hidden_layers = 2
    num_attention_heads = 4
    vocab_size = 512
    max_position_embeddings = 64
    [data]
    valid_fraction = 0.1
    [training]
    sequence_length = 64
    global_batch_size = 8
    [optimizer]
    lr = 3e-3
    [schedule]
    warmup_steps = 5
    [eval]
    interval = 20
    [log]
    interval_steps = 10
  )",
      {"data.train=[\"" + text + "\"]", "run.folder=\"" + (folder / "run").string() + "\"",
       "training.steps=" + steps});
}

strata::TrainResult train(const strata::Config& config) {
  const strata::Plan plan = strata::plan(config);
  std::printf("%.1f million parameters, %.0f MB, %.1f s expected\n",
              1e-6 * static_cast<double>(plan.parameters()), 1e-6 * static_cast<double>(plan.memory().bytes),
              plan.time().run_seconds);
  strata::TrainCallbacks callbacks;
  callbacks.step = [](const strata::StepReport& report) {
    if (report.step % 10 == 0)
      std::printf("step %lld: loss %.3f\n", static_cast<long long>(report.step), report.loss.value_or(0));
    for (const auto& [name, value] : report.evaluations) std::printf("  %s %.3f\n", name.c_str(), value);
  };
  callbacks.log = [](strata::LogLevel level, std::string_view line) {
    if (level != strata::LogLevel::kInfo)
      std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
  };
  return strata::train(plan, callbacks);
}

void use(const std::string& run, const std::string& text) {
  strata::Model model = strata::Model::open(run);
  const strata::EvalReport loss = model.evaluate_text(text);
  std::printf("%lld parameters, loss %.3f on %lld tokens\n", static_cast<long long>(model.parameters()),
              loss.loss, static_cast<long long>(loss.tokens));
  const auto prompt = model.encode("The ");
  const std::vector<float> logits = model.logits(prompt);
  std::size_t best = 0;
  for (std::size_t id = 1; id < logits.size(); ++id)
    if (logits[id] > logits[best]) best = id;
  const std::int32_t next = static_cast<std::int32_t>(best);
  std::printf("after \"The \": \"%s\"\n", model.decode({&next, 1}).c_str());
  const strata::Generation made = model.generate("The ", {.max_tokens = 30, .temperature = 0.8});
  std::printf("The %s\n", made.text.c_str());
}

int run(const std::string& text, const fs::path& folder, const std::string& steps) {
  fs::create_directories(folder);
  const strata::BuildReport data = strata::build_data(write_recipe(text, folder));
  std::printf("%lld documents read, %lld kept\n", static_cast<long long>(data.documents_read),
              static_cast<long long>(data.documents_kept));
  const strata::TrainResult result = train(small_run(text, folder, steps));
  use(result.folder, text);
  // The trained model is a Hugging Face directory that can be moved as it is.
  fs::copy(fs::path(result.folder) / "final", folder / "model",
           fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  std::printf("saved %s\n", (folder / "model").c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: embed TEXT FOLDER [STEPS]\n");
    return 2;
  }
  try {
    return run(argv[1], argv[2], argc > 3 ? argv[3] : "60");
  } catch (const strata::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return strata::exit_code(error.kind());
  }
}
