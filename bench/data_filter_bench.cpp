// Speed of the published filters on one jsonl file, in MB/s of text per thread; best of three rounds.
//
//   data_filter_bench FILE.jsonl                  one row per filter, on parsed documents
//   data_filter_bench FILE.jsonl decisions WORDS  one line per document: the decision of each filter, and
//                                                 the hash of C4's output text
//                                                 (bench/peers/filter_peer.py)
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "data/pipeline/stage_kinds.h"

namespace {

using namespace strata::data;
using Clock = std::chrono::steady_clock;

std::vector<std::string> read_texts(const char* path) {
  std::vector<std::string> texts;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    Document record;
    record.fields = line.substr(1, line.rfind('}') - 1);
    texts.push_back(string_field(record, "text"));
  }
  return texts;
}

struct Stage {
  std::unique_ptr<DocumentStage> stage;
  StageStats stats;
};

Stage make(const std::string& kind, const std::string& words) {
  for (const StageKind& known : filter_stage_kinds()) {
    if (known.name != kind) continue;
    std::map<std::string, StageValue> values;
    for (const StageParameter& parameter : known.parameters) values[parameter.name] = parameter.value;
    if (values.contains("words")) values["words"] = words;
    auto stage = std::get<0>(known.make(StageParameters(values, ".")));
    StageStats stats(stage->metrics());
    return {std::move(stage), std::move(stats)};
  }
  throw std::invalid_argument("no stage " + kind);
}

void measure(const std::string& name, const std::vector<std::string>& texts,
             const std::function<bool(TextView&)>& work) {
  double best = 1e30;
  size_t bytes = 0, kept = 0;
  for (int round = 0; round < 3; ++round) {
    TextView view;
    std::string copy;
    bytes = kept = 0;
    const auto start = Clock::now();
    for (const std::string& text : texts) {
      copy.assign(text);
      view.reset(copy);
      kept += work(view);
      bytes += text.size();
    }
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  fmt::print("{:44} {:8.1f} MB/s   kept {} of {}\n", name, static_cast<double>(bytes) / best / 1e6, kept,
             texts.size());
}

const std::vector<std::string> kPublished = {"gopher_repetition", "gopher_quality", "c4_quality",
                                             "fineweb_quality"};

void print_decisions(const std::vector<std::string>& texts, const std::string& words) {
  std::vector<Stage> stages;
  for (const std::string& kind : kPublished) stages.push_back(make(kind, words));
  TextView view;
  for (const std::string& text : texts) {
    std::string line;
    for (Stage& one : stages) {
      std::string copy = text;
      view.reset(copy);
      const std::string_view reason = one.stage->apply(view, {}, one.stats);
      line += reason.empty() ? "kept" : reason;
      line += ' ';
      if (&one == &stages[2])
        line += (reason.empty() ? strata::to_hex(strata::hash64(view.bytes())) : "-") + " ";
    }
    fmt::print("{}\n", line);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && !(argc == 4 && std::string(argv[2]) == "decisions")) {
    fmt::print(stderr, "usage: data_filter_bench FILE.jsonl [decisions whitespace|spacy]\n");
    return 2;
  }
  const std::vector<std::string> texts = read_texts(argv[1]);
  if (argc == 4) {
    print_decisions(texts, argv[3]);
    return 0;
  }
  measure("copy", texts, [](TextView& view) { return !view.bytes().empty(); });
  measure("words at white space", texts,
          [](TextView& view) { return !view.words(WordRule::kWhitespace).empty(); });
  measure("words of spaCy", texts, [](TextView& view) { return !view.words(WordRule::kSpacy).empty(); });
  measure("lines and code points", texts, [](TextView& view) {
    return view.python_lines().size() + view.split_lines().size() > 0 && view.code_points() > 0;
  });
  measure("simplified", texts, [](TextView& view) { return !view.simplified().empty(); });
  const Document document;
  for (const std::string words : {"whitespace", "spacy"}) {
    for (const std::string& kind : kPublished) {
      Stage one = make(kind, words);
      measure(kind + ", " + words, texts,
              [&](TextView& view) { return one.stage->apply(view, document, one.stats).empty(); });
    }
    std::vector<Stage> all;
    for (const std::string& kind : kPublished) all.push_back(make(kind, words));
    measure("all four, " + words, texts, [&](TextView& view) {
      return std::all_of(all.begin(), all.end(),
                         [&](Stage& one) { return one.stage->apply(view, document, one.stats).empty(); });
    });
  }
  for (const StageKind& kind : filter_stage_kinds()) {
    if (std::count(kPublished.begin(), kPublished.end(), kind.name)) continue;
    try {
      Stage one = make(kind.name, "whitespace");
      measure(kind.name, texts,
              [&](TextView& view) { return one.stage->apply(view, document, one.stats).empty(); });
    } catch (const std::exception&) {
      // the stage needs a file of the user
    }
  }
  return 0;
}
