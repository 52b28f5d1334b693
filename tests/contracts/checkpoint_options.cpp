// Contracts of the options of `strata checkpoint`: the tests read the files.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/json.h"
#include "contracts/contract.h"
#include "contracts/options.h"

namespace strata::contracts {
namespace {

struct Trained : Desk {
  Trained() { train(); }
};
const std::string kSecond = "run/checkpoints/step-00000002";

void inspect(const std::string&) {
  const Trained desk;
  const json found = desk.object("checkpoint inspect run --json");
  EXPECT_TRUE(has(found["path"], "step-00000002"));
  EXPECT_EQ(found["step"], 2);
  // Two layers of width 32, and two moments of each weight.
  const int64_t parameters = 300 * 32 + 32 + 2 * (2 * 32 + 64 * 32 + 32 * 32 + 3 * 32 * 48);
  EXPECT_EQ(found["parameters"], parameters);
  EXPECT_EQ(found["bytes"], 3 * 4 * parameters);
  EXPECT_EQ(found["tensors"].size(), 3u * 20);
  EXPECT_EQ(desk.object("checkpoint inspect run/checkpoints/step-00000001 --json")["step"], 1);
  EXPECT_EQ(desk.object("checkpoint inspect run/final --json")["bytes"], 2 * parameters) << "bf16";
  const std::string text = desk.strata("checkpoint inspect run").out;
  EXPECT_TRUE(has(text, "step 2") && has(text, "model.layers.1.mlp.down_proj.weight"));
  desk.refused("checkpoint inspect nowhere");
}

void verify(const std::string&) {
  const Trained desk;
  EXPECT_EQ(desk.object("checkpoint verify run --json")["whole"], true);
  // Flip one bit.
  std::string bytes = desk.read(kSecond + "/model.safetensors");
  bytes[bytes.size() - 7] = static_cast<char>(bytes[bytes.size() - 7] ^ 1);
  desk.put(kSecond + "/model.safetensors", bytes);
  const Outcome damaged = desk.strata("checkpoint verify " + kSecond + " --json");
  EXPECT_EQ(damaged.code, 3);
  EXPECT_EQ(damaged.parsed()["whole"], false);
  EXPECT_EQ(damaged.parsed()["faults"].at(0)["file"], "model.safetensors");
  EXPECT_TRUE(has(desk.strata("checkpoint verify " + kSecond).out, "model.safetensors"));
  EXPECT_EQ(desk.object("checkpoint verify run/checkpoints/step-00000001 --json")["whole"], true);
}

void diff(const std::string&) {
  const Trained desk;
  const json found = desk.object("checkpoint diff run/checkpoints/step-00000001 " + kSecond + " --json");
  const auto first = tensors_in(desk.path("run/checkpoints/step-00000001")),
             second = tensors_in(desk.path(kSecond));
  int seen = 0;
  for (const json& one : found["different"]) {
    const std::string name = one["name"];
    if (!first.contains(name)) continue;
    double most = 0;
    int64_t differing = 0;
    for (size_t i = 0; i < first.at(name).values.size(); ++i) {
      const double apart = std::abs(first.at(name).values[i] - second.at(name).values[i]);
      most = std::max(most, apart);
      differing += apart > 0;
    }
    EXPECT_EQ(one["differing"], differing) << name;
    EXPECT_NEAR(one["max_abs"].get<double>(), most, 1e-6) << name;
    ++seen;
  }
  EXPECT_EQ(seen, 20);
  const json none = desk.object("checkpoint diff run " + kSecond + " --json");
  EXPECT_EQ(none["equal"], none["tensors"]);
  EXPECT_TRUE(none["different"].empty());
  EXPECT_EQ(desk.object("checkpoint diff run/final run --json")["different"][0]["kind"],
            "only in the second");
  EXPECT_TRUE(has(desk.strata("checkpoint diff run " + kSecond).out, "60 of 60"));
}

// A run of eight steps that keeps all checkpoints.
struct Long : Desk {
  Long() {
    write_texts();
    write_run();
    training::put_tokens(path("held.bin"), training::tiny_tokens(60, 99));
    const Outcome made = strata(
        "train run.toml --set training.steps=8 --set checkpoint.keep_last=99 --set eval.interval=1 --set "
        "eval.sample_tokens=0 --set eval.set=[{name=\"other\",path=\"held.bin\"}]");
    EXPECT_EQ(made.code, 0) << made.err;
  }
  std::vector<int64_t> left(const std::string& words) const {
    std::filesystem::remove_all(path("copy"));
    std::filesystem::copy(path("run"), path("copy"), std::filesystem::copy_options::recursive);
    const Outcome pruned = strata("checkpoint prune copy " + words);
    EXPECT_EQ(pruned.code, 0) << words << pruned.err;
    return Seen{.result = {}, .folder = path("copy"), .steps = {}, .events = {}}.checkpoints();
  }
  std::vector<double> losses() const {
    std::vector<double> out;
    for (const json& line : lines("run/metrics.jsonl")) {
      if (line.contains("eval/valid/loss")) out.push_back(line["eval/valid/loss"]);
    }
    return out;
  }
};
using Steps = std::vector<int64_t>;

void prune(const std::string&) {
  const Long desk;
  EXPECT_EQ(desk.left(""), (Steps{1, 2, 3, 4, 5, 6, 7, 8})) << "as the run keeps them";
  EXPECT_EQ(desk.left("--keep-last 1"), Steps{8});
  EXPECT_EQ(desk.left("--keep-last 2 --keep-every 3"), (Steps{3, 6, 7, 8}));
  const auto losses = desk.losses();
  ASSERT_EQ(losses.size(), 8u);
  Steps best{1, 2, 3, 4, 5, 6, 7, 8};
  std::sort(best.begin(), best.end(), [&](int64_t a, int64_t b) {
    return losses[static_cast<size_t>(a) - 1] < losses[static_cast<size_t>(b) - 1];
  });
  std::set<int64_t> wanted{8, best[0], best[1], best[2]};
  EXPECT_EQ(desk.left("--keep-last 1 --keep-best 3"), Steps(wanted.begin(), wanted.end()));
  desk.refused("checkpoint prune nowhere");
  desk.refused("checkpoint prune run --keep-last 0");
}

// Keeps the checkpoint with the lowest value of the metric in its manifest.
void best_metric(const std::string&) {
  const Long desk;
  std::vector<double> values;
  for (int64_t step = 1; step <= 8; ++step) {
    const Path manifest = desk.path("run/checkpoints/step-0000000" + std::to_string(step) + "/manifest.json");
    values.push_back(parse_json<json>(read_file(manifest)).at("health").at("metrics").at("eval/other/loss"));
  }
  const int64_t best = std::min_element(values.begin(), values.end()) - values.begin() + 1;
  std::set<int64_t> wanted{8, best};
  EXPECT_EQ(desk.left("--keep-last 1 --keep-best 1 --best-metric eval/other/loss"),
            Steps(wanted.begin(), wanted.end()));
}

void prune_json(const std::string&) {
  const Trained desk;
  const json removed = desk.object("checkpoint prune run --keep-last 1 --json")["removed"];
  ASSERT_EQ(removed.size(), 1u);
  EXPECT_TRUE(has(removed[0], "step-00000001"));
  EXPECT_FALSE(desk.exists("run/checkpoints/step-00000001"));
  EXPECT_EQ(desk.strata("checkpoint prune run --keep-last 1").out, "0 removed\n");
}

// A checkpoint that a run set aside when it resumed from an earlier one.
void discarded(const std::string&) {
  const Trained desk;
  ASSERT_EQ(
      desk.strata(
              "train run.toml --resume run/checkpoints/step-00000001 --set training.steps=3 --accept-changes")
          .code,
      0);
  const std::string aside = kSecond + ".discarded";
  ASSERT_TRUE(desk.exists(aside));
  EXPECT_EQ(desk.strata("checkpoint prune run").code, 0);
  EXPECT_TRUE(desk.exists(aside)) << "the newest of them is kept";
  EXPECT_EQ(desk.strata("checkpoint prune run --discarded").code, 0);
  EXPECT_FALSE(desk.exists(aside));
  EXPECT_TRUE(desk.exists("run/checkpoints/step-00000003"));
}

void exported(const std::string&) {
  const Trained desk;
  const auto weights = tensors_in(desk.path(kSecond));
  const std::map<std::string, double> parts{{"bf16", 1.0 / 256}, {"fp16", 1.0 / 2048}, {"fp32", 0}};
  for (const auto& [dtype, part] : parts) {
    const json result = desk.object("checkpoint export run out-" + dtype + " --json --dtype " + dtype);
    EXPECT_EQ(result["dtype"], dtype);
    const auto found = tensors_in(desk.path("out-" + dtype));
    ASSERT_EQ(found.size(), weights.size());
    for (const auto& [name, tensor] : found) {
      EXPECT_EQ(tensor.dtype, dtype == "bf16" ? "BF16" : dtype == "fp16" ? "F16" : "F32");
      for (size_t i = 0; i < tensor.values.size(); ++i) {
        const double value = weights.at(name).values[i];
        ASSERT_NEAR(tensor.values[i], value, part * std::abs(value) + (part > 0 ? 1e-7 : 0)) << name;
      }
    }
  }
  EXPECT_EQ(desk.read("out-bf16/tokenizer.json"), desk.read("tokenizer.json"));
  EXPECT_EQ(
      desk.object("checkpoint export run/checkpoints/step-00000001 first --dtype fp32 --json")["parameters"],
      25120);
  EXPECT_TRUE(same(tensors_in(desk.path("first")), tensors_in(desk.path("run/checkpoints/step-00000001"))));
  desk.refused("checkpoint export nowhere out");
  desk.refused("checkpoint export run out --dtype fp8");
  // Attention and feed-forward in blocks; three digits remain.
  desk.object("checkpoint export run out-fp8 --json --dtype fp8_block");
  EXPECT_EQ(json::parse(desk.read("out-fp8/config.json"))["quantization_config"]["quant_method"], "fp8");
  desk.object("checkpoint import out-fp8 from-fp8 --json");
  double worst = 0;
  for (const auto& [name, tensor] : tensors_in(desk.path("from-fp8/checkpoints/step-00000000"))) {
    double greatest = 0;
    for (const double value : tensor.values) greatest = std::max(greatest, std::abs(value));
    for (size_t i = 0; i < tensor.values.size(); ++i)
      worst = std::max(worst, std::abs(tensor.values[i] - weights.at(name).values[i]) / greatest);
  }
  EXPECT_GT(worst, 1.0 / 256) << "nothing was rounded to fp8";
  EXPECT_LT(worst, 1.0 / 16);
  EXPECT_TRUE(has(desk.refused("checkpoint export run out-mxfp4 --dtype mxfp4"), "no experts in tensors"));
  EXPECT_TRUE(
      has(desk.refused("checkpoint export run x.gguf --format gguf --dtype fp8_block"), "for a GGUF file"));
}

void max_shard_size(const std::string&) {
  const Trained desk;
  ASSERT_EQ(desk.strata("checkpoint export run out --dtype fp32 --max-shard-size 20KB").code, 0);
  const json index = parse_json<json>(desk.read("out/model.safetensors.index.json"));
  std::map<std::string, int64_t> bytes, tensors;
  const auto found = tensors_in(desk.path("out"));
  for (const auto& [name, file] : index["weight_map"].items()) {
    bytes[file] += found.at(name).shape.elements() * 4;
    ++tensors[file];
  }
  EXPECT_GE(bytes.size(), 4u);
  for (const auto& [file, size] : bytes) EXPECT_TRUE(size <= 20000 || tensors[file] == 1) << file;
  EXPECT_TRUE(same(found, tensors_in(desk.path(kSecond))));
  EXPECT_TRUE(has(desk.refused("checkpoint export run other --max-shard-size big"), "--max-shard-size"));
}

void export_format(const std::string&) {
  const Trained desk;
  desk.object("checkpoint export run model.gguf --format gguf --json");
  const std::string gguf = desk.read("model.gguf");
  EXPECT_EQ(gguf.substr(0, 4), "GGUF");
  uint64_t count = 0;
  std::memcpy(&count, gguf.data() + 8, 8);
  EXPECT_EQ(count, 20u) << "tensors";
  EXPECT_TRUE(has(gguf, "blk.1.ffn_down.weight") && has(gguf, "llama.block_count"));
  desk.object("checkpoint export run model --format hf --json");
  EXPECT_TRUE(desk.exists("model/model.safetensors") && desk.exists("model/config.json"));
  desk.refused("checkpoint export run x --format onnx");
}

void export_force(const std::string&) {
  const Trained desk;
  desk.object("checkpoint export run out --dtype fp32 --json");
  const std::string before = desk.read("out/model.safetensors");
  EXPECT_TRUE(has(desk.refused("checkpoint export run out --dtype bf16"), "--force"));
  EXPECT_EQ(desk.read("out/model.safetensors"), before);
  desk.object("checkpoint export run out --dtype bf16 --json --force");
  EXPECT_LT(desk.read("out/model.safetensors").size(), before.size());
}

// A weight that is NaN is an error, unless values are not checked.
void skip_values(const std::string&) {
  const Trained desk;
  desk.object("checkpoint export run whole --dtype fp32 --json");
  std::string bytes = desk.read("whole/model.safetensors");
  const float nan = std::nanf("");
  std::memcpy(bytes.data() + bytes.size() - 4, &nan, 4);
  desk.put("whole/model.safetensors", bytes);
  const Outcome refused = desk.strata("checkpoint export whole out --dtype fp32");
  EXPECT_EQ(refused.code, 3);
  EXPECT_FALSE(desk.exists("out"));
  desk.object("checkpoint export whole out --dtype fp32 --skip-values --json");
  int not_numbers = 0;
  for (const auto& [name, tensor] : tensors_in(desk.path("out")))
    for (const double value : tensor.values) not_numbers += std::isnan(value) ? 1 : 0;
  EXPECT_EQ(not_numbers, 1);
}

void imported(const std::string&) {
  const Trained desk;
  desk.object("checkpoint export run model --dtype fp32 --json");
  const json result = desk.object("checkpoint import model second --json");
  EXPECT_EQ(result["path"], "second");
  EXPECT_EQ(result["parameters"], 25120);
  EXPECT_EQ(result["dtype"], "fp32") << "the dtype of weights in a checkpoint";
  EXPECT_TRUE(
      same(tensors_in(desk.path("second/checkpoints/step-00000000")), tensors_in(desk.path(kSecond))));
  // The run continues from it.
  EXPECT_EQ(desk.object("train run.toml --set run.folder=\"second\" --json")["step"], 2);
  EXPECT_TRUE(has(desk.refused("checkpoint import model second"), "contains a run"));
  EXPECT_EQ(desk.object("checkpoint import model third --format hf --json")["parameters"], 25120);
  EXPECT_FALSE(has(desk.strata("checkpoint import model fourth").out, "{"));
  EXPECT_NE(desk.strata("checkpoint import model fifth --format megatron").code, 0)
      << "not a Megatron-LM checkpoint";
}

// The FFNs of the tiny Llama have a width of 48.
void upcycle(const std::string&) {
  const Trained desk;
  const auto made = [&](const std::string& options, const std::string& out) {
    const json result = desk.object("checkpoint upcycle run/final " + out + " --json " + options);
    EXPECT_EQ(result["path"], out);
    json config = parse_json<json>(desk.read(out + "/config.json"));
    EXPECT_EQ(config["model_type"], "mixtral");
    return config;
  };
  const json usual = made("", "a");
  EXPECT_EQ(usual["num_local_experts"], 8);
  EXPECT_EQ(usual["num_experts_per_tok"], 2);
  EXPECT_EQ(usual["intermediate_size"], 48);
  const json fine = made("--experts 12 --top-k 6 --granularity 3 --dtype fp32", "b");
  EXPECT_EQ(fine["num_local_experts"], 12);
  EXPECT_EQ(fine["num_experts_per_tok"], 6);
  EXPECT_EQ(fine["intermediate_size"], 16);
  const std::string gate = "model.layers.0.block_sparse_moe.experts.4.w1.weight";
  const auto of = [&](const char* out) { return tensors_in(desk.path(out)).at(gate); };
  EXPECT_EQ(of("b").dtype, "F32");
  EXPECT_EQ(of("a").dtype, "BF16");
  // Expert 4 is part 1 of copy 1: the second third of the dense rows.
  const auto dense = tensors_in(desk.path("run/final")).at("model.layers.0.mlp.gate_proj.weight").values;
  EXPECT_EQ(of("b").values, std::vector<double>(dense.begin() + 16 * 32, dense.begin() + 32 * 32));
  made("--noise 0.1", "c");
  made("--noise 0.1 --seed 2", "d");
  made("--fresh 0.25", "e");
  EXPECT_NE(of("c").values, of("a").values);
  EXPECT_NE(of("c").values, of("d").values);
  int moved = 0;
  const auto plain = of("a").values, fresh = of("e").values;
  for (size_t i = 0; i < plain.size(); ++i) moved += plain[i] != fresh[i];
  EXPECT_NEAR(moved, 12 * 32, 4);
  ASSERT_EQ(desk.strata("checkpoint upcycle run/final f --max-shard-size 20KB").code, 0);
  EXPECT_TRUE(desk.exists("f/model.safetensors.index.json"));
  EXPECT_TRUE(has(desk.refused("checkpoint upcycle run/final a"), "--force"));
  made("--force", "a");
  desk.refused("checkpoint upcycle nowhere g");
  EXPECT_TRUE(has(desk.refused("checkpoint upcycle run/final g --top-k 9"), "--top-k"));
}

// The golden DeepSeek-V3 of two layers: 14 numbers of a query's latent, 6 dimensions rotate, 64 positions.
void add_indexer(const std::string&) {
  const Desk desk;
  const std::string dense = STRATA_SOURCE "/tests/models/golden/deepseek-v3 ";
  const auto made = [&](const std::string& options, const std::string& out) {
    const json result = desk.object("checkpoint add-indexer " + dense + out + " --json " + options);
    EXPECT_EQ(result["path"], out);
    json config = parse_json<json>(desk.read(out + "/config.json"));
    EXPECT_EQ(config["model_type"], "deepseek_v32");
    return config;
  };
  const json usual = made("--top-k 8", "a");
  EXPECT_EQ(usual["index_topk"], 8);
  EXPECT_EQ(usual["index_n_heads"], 64);
  EXPECT_EQ(usual["index_head_dim"], 128);
  const std::string small = "--top-k 8 --heads 3 --size 10 --dtype fp32";
  const json sized = made(small, "b");
  EXPECT_EQ(sized["index_n_heads"], 3);
  EXPECT_EQ(sized["index_head_dim"], 10);
  const auto queries = [&](const char* out) {
    return tensors_in(desk.path(out)).at("model.layers.1.self_attn.indexer.wq_b.weight");
  };
  EXPECT_EQ(queries("a").dtype, "BF16");
  EXPECT_EQ(queries("b").dtype, "F32");
  EXPECT_EQ(queries("b").shape, (Shape{30, 14}));
  double squares = 0;
  for (const double x : queries("b").values) squares += x * x;
  EXPECT_NEAR(std::sqrt(squares / 420), 0.02, 0.003);
  made(small + " --seed 2", "c");
  EXPECT_NE(queries("c").values, queries("b").values);
  made(small + " --seed 1", "d");
  EXPECT_EQ(queries("d").values, queries("b").values);
  ASSERT_EQ(desk.strata("checkpoint add-indexer " + dense + "e --top-k 8 --max-shard-size 20KB").code, 0);
  EXPECT_TRUE(desk.exists("e/model.safetensors.index.json"));
  EXPECT_TRUE(has(desk.refused("checkpoint add-indexer " + dense + "a --top-k 8"), "--force"));
  made("--top-k 8 --force", "a");
  EXPECT_TRUE(has(desk.refused("checkpoint add-indexer " + dense + "f"), "index_topk is 2048"));
}

}  // namespace

Contracts checkpoint_options() {
  return {{"checkpoint add-indexer DENSE", add_indexer},
          {"checkpoint add-indexer OUT", add_indexer},
          {"checkpoint add-indexer --top-k", add_indexer},
          {"checkpoint add-indexer --heads", add_indexer},
          {"checkpoint add-indexer --size", add_indexer},
          {"checkpoint add-indexer --seed", add_indexer},
          {"checkpoint add-indexer --dtype", add_indexer},
          {"checkpoint add-indexer --max-shard-size", add_indexer},
          {"checkpoint add-indexer --force", add_indexer},
          {"checkpoint add-indexer --json", add_indexer},
          {"checkpoint upcycle DENSE", upcycle},
          {"checkpoint upcycle OUT", upcycle},
          {"checkpoint upcycle --experts", upcycle},
          {"checkpoint upcycle --top-k", upcycle},
          {"checkpoint upcycle --granularity", upcycle},
          {"checkpoint upcycle --noise", upcycle},
          {"checkpoint upcycle --fresh", upcycle},
          {"checkpoint upcycle --seed", upcycle},
          {"checkpoint upcycle --dtype", upcycle},
          {"checkpoint upcycle --max-shard-size", upcycle},
          {"checkpoint upcycle --force", upcycle},
          {"checkpoint upcycle --json", upcycle},
          {"checkpoint inspect DIR", inspect},
          {"checkpoint inspect --json", inspect},
          {"checkpoint verify DIR", verify},
          {"checkpoint verify --json", verify},
          {"checkpoint diff FIRST", diff},
          {"checkpoint diff SECOND", diff},
          {"checkpoint diff --json", diff},
          {"checkpoint prune RUN", prune},
          {"checkpoint prune --keep-last", prune},
          {"checkpoint prune --keep-every", prune},
          {"checkpoint prune --keep-best", prune},
          {"checkpoint prune --best-metric", best_metric},
          {"checkpoint prune --discarded", discarded},
          {"checkpoint prune --json", prune_json},
          {"checkpoint export SOURCE", exported},
          {"checkpoint export TARGET", exported},
          {"checkpoint export --format", export_format},
          {"checkpoint export --dtype", exported},
          {"checkpoint export --max-shard-size", max_shard_size},
          {"checkpoint export --skip-values", skip_values},
          {"checkpoint export --json", exported},
          {"checkpoint export --force", export_force},
          {"checkpoint import SOURCE", imported},
          {"checkpoint import TARGET", imported},
          {"checkpoint import --format", imported},
          {"checkpoint import --json", imported}};
}

}  // namespace strata::contracts
