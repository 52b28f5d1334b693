// Contracts of the options of `strata data`, checked by the documents, audits and ids that it writes.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/json.h"
#include "base/log.h"
#include "contracts/contract.h"
#include "contracts/options.h"
#include "data/tokenizer/tokenizer.h"

namespace strata::contracts {
namespace {

struct Texts : Desk {
  Texts() { write_texts(); }
  // The ids of the documents in an output.
  std::vector<std::string> kept(const std::string& folder, const char* field = "id") const {
    std::vector<std::string> ids;
    for (const json& line : lines(folder + "/documents/part-00000.jsonl")) ids.push_back(line[field]);
    return ids;
  }
  // All files of an output except its lock, and the report and manifest, which contain times.
  std::map<std::string, std::string> files(const std::string& folder) const {
    std::map<std::string, std::string> out;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path(folder))) {
      const std::string name = entry.path().lexically_relative(path(folder));
      if (entry.is_regular_file() && name != ".lock" && name != "report.html" && name != "manifest.json")
        out[name] = read_file(entry.path());
    }
    return out;
  }
};
constexpr const char* kRecipe =
    "[build]\nfolder = \"built\"\n[[source]]\nname = \"cats\"\npath = \"corpus.jsonl\"\n[[stage]]\nkind = "
    "\"exact_dedup\"\n";

// Each text occurs three times in the thirty documents; the first ten documents are kept.
void build(const std::string&) {
  const Texts desk;
  desk.put("recipe.toml", kRecipe);
  const json result = desk.object("data build recipe.toml --json");
  EXPECT_EQ(result["documents_in"], 30);
  EXPECT_EQ(result["documents_out"], 10);
  EXPECT_EQ(result["bytes_in"], desk.read("corpus.jsonl").size());
  EXPECT_EQ(result["dropped"], parse_json<json>(R"({"exact_dedup": {"exact_duplicate": 20}})"));
  EXPECT_EQ(desk.kept("built"),
            (std::vector<std::string>{"d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8", "d9"}));
  EXPECT_EQ(desk.lines("built/audit/part-00000.jsonl").size(), 20u);
  const std::string text = desk.strata("data build recipe.toml --set build.folder=\"again\"").out;
  EXPECT_TRUE(has(text, "30 documents in, 10 kept")) << text;
  desk.refused("data build nowhere.toml");
}

void build_set(const std::string&) {
  const Texts desk;
  desk.put("recipe.toml", kRecipe);
  const json result = desk.object(
      "data build recipe.toml --json --set build.folder=\"other\" --set stage.0.kind=\"minhash\"");
  EXPECT_EQ(result["dropped"]["minhash"]["near_duplicate"], 29) << "all are nearly the same";
  EXPECT_TRUE(desk.exists("other/documents") && !desk.exists("built"));
  EXPECT_TRUE(has(desk.refused("data build recipe.toml --set stage.0.kinds=\"minhash\""), "kind"));
}

void overwrite(const std::string& name) {
  const Texts desk;
  std::string command;
  if (has(name, "build")) {
    desk.put("recipe.toml", kRecipe);
    command = "data build recipe.toml --set build.folder=\"out\"";
  } else if (has(name, "tokenize")) {
    command = "data tokenize corpus.jsonl --tokenizer tokenizer.json -o out";
  } else {
    command = "data dedup corpus.jsonl -o out --stage exact_dedup";
    if (has(name, "filter")) command = "data filter corpus.jsonl -o out --stage normalize";
  }
  desk.object(command + " --json");
  const auto before = desk.files("out");
  // The same command again does nothing; another recipe is rejected, or overwrites the output.
  desk.object(command + " --json");
  const std::string other = command + " --set output.audit=false";
  EXPECT_TRUE(has(desk.refused(other), "--force"));
  EXPECT_EQ(desk.files("out"), before);
  desk.object(other + " --overwrite --json");
  EXPECT_FALSE(desk.exists("out/audit"));
}

// A list of duplicates that does not fit is not written; nothing else changes.
void memory_limit(const std::string& name) {
  const Texts desk;
  std::string command = "data dedup corpus.jsonl --stage exact_dedup";
  if (has(name, "build")) {
    desk.put("recipe.toml", kRecipe);
    command = "data build recipe.toml";
  } else if (has(name, "filter")) {
    command = "data filter corpus.jsonl --stage exact_dedup";
  } else if (has(name, "tokenize")) {
    command =
        "data tokenize corpus.jsonl --tokenizer tokenizer.json --set stage=[{kind=\"exact_dedup\"}] --set "
        "output.documents=true";
  }
  command += " --set output.clusters=true --set build.folder=";
  const bool takes_output = !has(name, "build");
  const auto run = [&](const std::string& folder, const std::string& limit) {
    const std::string output = takes_output ? " -o unused" : "";
    EXPECT_EQ(desk.object(command + "\"" + folder + "\"" + output + " --json --memory-limit " +
                          limit)["documents_out"],
              10);
    return desk.files(folder);
  };
  auto roomy = run("roomy", "1GiB");
  const auto tight = run("tight", "1KiB");
  EXPECT_EQ(std::erase_if(roomy, [](const auto& file) { return file.first.starts_with("clusters/"); }), 1u);
  EXPECT_EQ(roomy, tight);
  EXPECT_TRUE(
      has(desk.refused(command + "\"x\"" + (takes_output ? " -o unused" : "") + " --memory-limit much"),
          "--memory-limit"));
}

// The common arguments of the verbs without a recipe.
std::string command_of(const std::string& name) {
  if (has(name, "filter")) return "data filter --stage simple --set stage.0.min_length=8 ";
  if (has(name, "dedup")) return "data dedup --stage exact_dedup ";
  return "data tokenize --tokenizer tokenizer.json --set output.documents=true ";
}

void input(const std::string& name) {
  const Texts desk;
  desk.put("more.jsonl", "{\"id\": \"m\", \"text\": \"another document\"}\n");
  const std::string command = command_of(name) + "--json -o ";
  EXPECT_EQ(desk.object(command + "one corpus.jsonl")["documents_in"], 30);
  EXPECT_EQ(desk.object(command + "two corpus.jsonl more.jsonl")["documents_in"], 31);
  EXPECT_EQ(desk.object(command + "glob m*.jsonl")["documents_in"], 1);
  EXPECT_EQ(desk.kept("glob"), std::vector<std::string>{"m"});
  EXPECT_TRUE(has(desk.refused(command + "none nowhere.jsonl"), "nowhere"));
}

void output(const std::string& name) {
  const Texts desk;
  desk.object(command_of(name) + "--json corpus.jsonl --output here");
  EXPECT_TRUE(desk.exists("here/documents/part-00000.jsonl") && desk.exists("here/report.html"));
  desk.refused(command_of(name) + "corpus.jsonl");
}

// The fields of a record's text and id.
void fields(const std::string& name) {
  const Texts desk;
  desk.object(command_of(name) + "--json corpus.jsonl -o named --text body --id key --set stage=[]");
  const auto documents = desk.lines("named/documents/part-00000.jsonl");
  ASSERT_EQ(documents.size(), 30u);
  EXPECT_EQ(documents[3]["id"], "k3");
  EXPECT_EQ(documents[3]["text"], "body 3");
  EXPECT_EQ(dump_json(documents[3]), R"({"id":"k3","text":"body 3"})")
      << "fields with these names are replaced";
  EXPECT_FALSE(has(desk.read("named/documents/part-00000.jsonl"), "d3"));
  desk.put("table.csv", "id,text,body\nd1,one,first\n");
  desk.object(command_of(name) + "--json table.csv -o table --text body --set stage=[]");
  EXPECT_EQ(dump_json(desk.lines("table/documents/part-00000.jsonl")[0]), R"({"id":"d1","text":"first"})");
  desk.object(command_of(name) + "--json corpus.jsonl -o usual --set stage=[]");
  EXPECT_EQ(desk.lines("usual/documents/part-00000.jsonl")[3]["id"], "d3");
}

void workers(const std::string& name) {
  const Texts desk;
  desk.object(command_of(name) + "--json corpus.jsonl -o one --workers 1");
  desk.object(command_of(name) + "--json corpus.jsonl -o three --workers 3");
  EXPECT_EQ(desk.files("one"), desk.files("three"));
  desk.refused(command_of(name) + "corpus.jsonl -o x --workers -1");
}

void short_set(const std::string& name) {
  const Texts desk;
  const json usual = desk.object(command_of(name) + "--json corpus.jsonl -o usual");
  EXPECT_EQ(desk.object(
                command_of(name) +
                "--json corpus.jsonl -o none --set stage=[{kind=\"simple\",max_length=5}]")["documents_out"],
            0);
  EXPECT_GT(usual["documents_out"], 0);
  EXPECT_TRUE(has(desk.refused(command_of(name) + "corpus.jsonl -o x --set stages=[]"), "stage"));
}

void short_json(const std::string& name) {
  const Texts desk;
  const json result = desk.object(command_of(name) + "--json corpus.jsonl -o out");
  EXPECT_EQ(result["documents_out"], desk.kept("out").size());
  EXPECT_EQ(result["bytes_in"], desk.read("corpus.jsonl").size());
  EXPECT_TRUE(has(desk.strata(command_of(name) + "corpus.jsonl -o text").out, "30 documents in"));
}

void filter_stage(const std::string&) {
  const Texts desk;
  desk.put("mixed.jsonl",
           "{\"id\": \"a\", \"text\": \"short\"}\n{\"id\": \"b\", \"text\": \"MAIL me at a.b@example.org  "
           "now\"}\n");
  const json result = desk.object(
      "data filter mixed.jsonl -o out --json --stage pii --stage simple --set stage.1.min_length=8");
  EXPECT_EQ(result["dropped"], parse_json<json>(R"({"simple": {"too_short": 1}})"));
  const auto documents = desk.lines("out/documents/part-00000.jsonl");
  ASSERT_EQ(documents.size(), 1u);
  EXPECT_FALSE(has(documents[0]["text"], "a.b@example.org"));
  EXPECT_TRUE(has(desk.refused("data filter mixed.jsonl -o x --stage simpel"), "simple"));
  desk.refused("data filter mixed.jsonl -o x");
}

void dedup_stage(const std::string&) {
  const Texts desk;
  EXPECT_EQ(desk.object("data dedup corpus.jsonl -o near --json")["dropped"],
            parse_json<json>(R"({"minhash": {"near_duplicate": 29}})"))
      << "the default";
  EXPECT_EQ(desk.object("data dedup corpus.jsonl -o exact --json --stage exact_dedup")["documents_out"], 10);
  const json both = desk.object("data dedup corpus.jsonl -o both --json --stage exact_dedup --stage minhash");
  EXPECT_EQ(both["dropped"]["exact_dedup"]["exact_duplicate"], 20);
  EXPECT_EQ(both["dropped"]["minhash"]["near_duplicate"], 9);
}

std::vector<int32_t> expected_ids(const Desk& desk) {
  const auto tokenizer = data::Tokenizer::load(desk.path("tokenizer.json"));
  std::vector<int32_t> ids;
  for (const json& line : desk.lines("corpus.jsonl")) {
    tokenizer.encode(line["text"].get<std::string>(), ids);
    ids.push_back(0);
  }
  return ids;
}
std::vector<int32_t> u16_in(const std::string& bytes) {
  std::vector<uint16_t> ids(bytes.size() / 2);
  std::memcpy(ids.data(), bytes.data(), ids.size() * 2);
  return {ids.begin(), ids.end()};
}

// An output without documents is an error.
void nothing_kept(const Desk& desk) {
  desk.put("bad.jsonl", "[\n{\"text\": \"a\"},\n{\"text\": \"b\"},\n]\n");
  const Outcome none = desk.strata("data tokenize bad.jsonl --tokenizer tokenizer.json -o none");
  EXPECT_EQ(none.code, 3);
  EXPECT_TRUE(has(none.err, "no document remains of 4 records")) << none.err;
  EXPECT_TRUE(has(none.err, "invalid_json")) << none.err;
  EXPECT_TRUE(has(none.err, "bad.jsonl:1")) << none.err;
  EXPECT_TRUE(has(none.err, "jq -c '.[]'")) << none.err;
  desk.put("empty.jsonl", "\n\n");
  const Outcome empty = desk.strata("data tokenize empty.jsonl --tokenizer tokenizer.json -o empty --json");
  EXPECT_EQ(empty.code, 3);
  EXPECT_EQ(empty.parsed()["documents_out"], 0);
  EXPECT_TRUE(has(empty.err, "no document remains")) << empty.err;
  // A filter may drop everything; that is only a warning.
  set_log_level(LogLevel::kWarning);
  const Outcome filtered = desk.strata("data filter bad.jsonl -o filtered --stage normalize");
  EXPECT_EQ(filtered.code, 0);
  EXPECT_TRUE(has(filtered.err, "no document remains")) << filtered.err;
  // The last line of an array is a valid record.
  desk.put("array.jsonl", "[\n{\"text\": \"a\"},\n{\"text\": \"b\"}\n]\n");
  const Outcome array = desk.strata("data tokenize array.jsonl --tokenizer tokenizer.json -o array");
  EXPECT_EQ(array.code, 0);
  EXPECT_TRUE(has(array.err, "array.jsonl:1") && has(array.err, "jq -c '.[]'")) << array.err;
  set_log_level(LogLevel::kError);
}

// The tests parse each format.
void format(const std::string&) {
  const Texts desk;
  const auto wanted = expected_ids(desk);
  const json result = desk.object("data tokenize corpus.jsonl --tokenizer tokenizer.json -o own --json");
  EXPECT_EQ(result["tokens"], wanted.size());
  EXPECT_EQ(u16_in(desk.read("own/tokens/input.bin")), wanted);
  const json meta = parse_json<json>(desk.read("own/tokens/input.json"));
  EXPECT_EQ(meta["vocab_size"], 280);
  EXPECT_EQ(meta["end_of_text_id"], 0);
  EXPECT_EQ(desk.read("own/tokenizer.json"), desk.read("tokenizer.json"));

  desk.object("data tokenize corpus.jsonl --tokenizer tokenizer.json -o mega --format megatron --json");
  EXPECT_EQ(u16_in(desk.read("mega/tokens/input.bin")), wanted);
  const std::string index = desk.read("mega/tokens/input.idx");
  EXPECT_EQ(index.substr(0, 9), std::string("MMIDIDX\0\0", 9));
  uint64_t sequences = 0;
  std::memcpy(&sequences, index.data() + 9 + 8 + 1, 8);
  EXPECT_EQ(sequences, 30u);

  desk.object("data tokenize corpus.jsonl --tokenizer tokenizer.json -o trove --format datatrove --json");
  EXPECT_EQ(u16_in(desk.read("trove/tokens/input.ds")), wanted);
  const std::string ends = desk.read("trove/tokens/input.ds.index");
  ASSERT_EQ(ends.size(), 30u * 8);
  uint64_t last = 0;
  std::memcpy(&last, ends.data() + 29 * 8, 8);
  EXPECT_EQ(last, wanted.size());
  nothing_kept(desk);
  desk.refused("data tokenize corpus.jsonl --tokenizer tokenizer.json -o x --format nemo");
  desk.refused("data tokenize corpus.jsonl --tokenizer nowhere.json -o x");
  desk.refused("data tokenize corpus.jsonl -o x");
}

void inspect(const std::string&) {
  const Texts desk;
  const json result = desk.object("data inspect corpus.jsonl --json");
  EXPECT_EQ(result["documents"], 30);
  int64_t bytes = 0;
  for (const json& line : desk.lines("corpus.jsonl")) bytes += std::ssize(line["text"].get<std::string>());
  EXPECT_EQ(result["text_bytes"], bytes);
  EXPECT_EQ(result["first"].size(), 5u);
  EXPECT_EQ(result["first"][2]["id"], "d2");
  EXPECT_EQ(desk.object("data inspect corpus.jsonl --json --limit 2")["first"].size(), 2u);
  const json named = desk.object("data inspect corpus.jsonl --json --limit 1 --text body --id key");
  EXPECT_EQ(named["first"][0]["id"], "k0");
  EXPECT_EQ(named["first"][0]["text"], "body 0");
  EXPECT_TRUE(has(desk.strata("data inspect corpus.jsonl --limit 1").out, "the cat number 0"));
  desk.refused("data inspect nowhere.jsonl");
  desk.refused("data inspect corpus.jsonl --limit 0");
}

void inspect_tokens(const std::string&) {
  const Texts desk;
  const auto wanted = expected_ids(desk);
  const size_t first = static_cast<size_t>(std::find(wanted.begin(), wanted.end(), 0) - wanted.begin()) + 1;
  const json text = desk.object("data inspect corpus.jsonl --json --limit 1 --tokenizer tokenizer.json");
  EXPECT_EQ(text["first"][0]["ids"].get<std::vector<int32_t>>(),
            std::vector<int32_t>(wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(first) - 1));
  desk.object("data tokenize corpus.jsonl --tokenizer tokenizer.json -o out --json");
  const json tokens =
      desk.object("data inspect out/tokens/input.bin --json --limit 1 --tokenizer tokenizer.json");
  EXPECT_EQ(tokens["tokens"], wanted.size());
  EXPECT_EQ(tokens["documents"], 30);
  EXPECT_EQ(tokens["first"][0]["tokens"], first);
  EXPECT_TRUE(has(tokens["first"][0]["text"], "the cat number 0 sat on the mat"));
  EXPECT_FALSE(
      desk.object("data inspect out/tokens/input.bin --json --limit 1")["first"][0].contains("text"));
}

// Two steps of two samples of 16 tokens; the texts are encoded again here.
void find(const std::string&) {
  const Desk desk;
  desk.train();
  const data::Tokenizer tokenizer = data::Tokenizer::load(desk.path("tokenizer.json"));
  const std::vector<json> texts = desk.lines("corpus.jsonl");
  const auto lines = [&](const std::string& words) { return desk.strata("data find run " + words).lines(); };
  std::vector<json> of_steps;
  for (const int64_t step : {1, 2}) {
    std::map<int64_t, int64_t> tokens;  // by sample
    for (const json& line : lines("--json --step " + std::to_string(step))) {
      EXPECT_EQ(line["step"], step);
      EXPECT_EQ(line["source"], "train");
      EXPECT_TRUE(has(line["file"], "corpus.jsonl"));
      const auto document = line["document"].get<size_t>();
      ASSERT_LT(document, texts.size());
      EXPECT_EQ(line["id"], texts[document]["id"]);
      EXPECT_EQ(line["trained"], true);
      std::vector<int32_t> ids;
      tokenizer.encode(texts[document]["text"].get<std::string>(), ids);
      EXPECT_LE(line["first_token"].get<int64_t>() + line["tokens"].get<int64_t>(), std::ssize(ids) + 1);
      tokens[line["sample"].get<int64_t>()] += line["tokens"].get<int64_t>();
      of_steps.push_back(line);
    }
    EXPECT_EQ(tokens, (std::map<int64_t, int64_t>{{2 * step - 2, 16}, {2 * step - 1, 16}}));
  }
  const json& first = of_steps.front();
  std::vector<json> expected;
  for (const json& line : of_steps)
    if (line["id"] == first["id"]) expected.push_back(line);
  EXPECT_EQ(lines("--json --document " + first["id"].get<std::string>()), expected);
  EXPECT_EQ(lines("--json --document corpus.jsonl:" + dump_json(first["document"])), expected);
  EXPECT_TRUE(has(desk.strata("data find run --step 1").out, "step 1  sample 0  train: "));
  // Token files of a data build have the ids of its documents.
  desk.object(
      "data tokenize corpus.jsonl --tokenizer tokenizer.json -o built --set output.documents=true --json");
  std::string toml = desk.read("run.toml");
  const std::string train = "train = [\"corpus.jsonl\"]";
  desk.put("built.toml", toml.replace(toml.find(train), train.size(), "build = \"built\""));
  EXPECT_EQ(desk.strata("train built.toml --set run.folder=\"other\"").code, 0);
  const std::vector<json> built = desk.strata("data find other --step 1 --json").lines();
  EXPECT_GE(built.size(), 2u);
  for (const json& line : built) {
    EXPECT_TRUE(has(line["file"], "built/tokens/input.bin"));
    EXPECT_EQ(line["id"], texts[line["document"].get<size_t>()]["id"]);
  }
  EXPECT_TRUE(has(desk.refused("data find run --step 3"), "ends with step 2"));
  EXPECT_TRUE(has(desk.refused("data find run --document d99"), "d99"));
  desk.refused("data find run");
  desk.refused("data find run --step 1 --document d1");
  desk.refused("data find run --step 0");
  desk.refused("data find nowhere --step 1");
}

}  // namespace

Contracts data_options() {
  Contracts rows{{"data build RECIPE.toml", build},
                 {"data build --set", build_set},
                 {"data build --memory-limit", memory_limit},
                 {"data build --overwrite", overwrite},
                 {"data build --json", build},
                 {"data inspect PATH", inspect},
                 {"data inspect --limit", inspect},
                 {"data inspect --tokenizer", inspect_tokens},
                 {"data inspect --text", inspect},
                 {"data inspect --id", inspect},
                 {"data inspect --json", inspect},
                 {"data find RUN", find},
                 {"data find --step", find},
                 {"data find --document", find},
                 {"data find --json", find},
                 {"data filter --stage", filter_stage},
                 {"data dedup --stage", dedup_stage},
                 {"data tokenize --tokenizer", format},
                 {"data tokenize --format", format}};
  for (const char* verb : {"data filter ", "data dedup ", "data tokenize "}) {
    for (const Contract& shared :
         {Contract{"INPUT", input}, Contract{"--output", output}, Contract{"--text", fields},
          Contract{"--id", fields}, Contract{"--workers", workers}, Contract{"--set", short_set},
          Contract{"--memory-limit", memory_limit}, Contract{"--overwrite", overwrite},
          Contract{"--json", short_json}})
      rows.push_back({verb + shared.name, shared.check});
  }
  return rows;
}

}  // namespace strata::contracts
