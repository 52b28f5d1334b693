// strata tokenizer train|encode|decode|info
#include <fstream>
#include <functional>
#include <iostream>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/signals.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "data/input/byte_stream.h"
#include "data/input/corpus_files.h"
#include "data/input/record_reader.h"
#include "data/input/text_bytes.h"
#include "data/tokenizer/fertility.h"
#include "data/tokenizer/jsonl.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/train_bpe.h"
#include "data/tokenizer/train_unigram.h"

namespace strata::cli {
namespace {

struct TrainOptions {
  std::vector<std::string> inputs;
  std::string output;
  std::string model = "bpe";
  data::TrainOptions training;
  bool force = false;
  bool json = false;
};

struct TextOptions {
  std::string tokenizer, jsonl, text, pattern;
  std::vector<std::string> inputs;
  bool add_special_tokens = false;
  bool skip_special_tokens = false;
  bool json = false;
};

std::vector<Path> input_files(const std::vector<std::string>& patterns) {
  std::vector<Path> out;
  for (const std::string& pattern : patterns) {
    const std::vector<Path> found =
        pattern == "-" ? std::vector<Path>{data::kStandardInput} : expand_glob(pattern);
    if (found.empty())
      throw ConfigError("[strata tokenizer train] found no files at {}, expected text files", pattern);
    out.insert(out.end(), found.begin(), found.end());
  }
  return out;
}

int train(const TrainOptions& options) {
  check_output_file("strata tokenizer train --output", options.output, options.force);
  const std::vector<Path> files = input_files(options.inputs);
  size_t next = 0;
  MappedFile file;
  std::string content;
  const auto texts = [&](std::string_view& text) {
    if (next == files.size()) return false;
    const Path& path = files[next++];
    if (!data::is_read_once(path) && data::find_compression(path) == data::Compression::kNone) {
      file = MappedFile(path);
      text = file.text();
    } else {
      content = data::ByteStream(data::open_source(path)).read_all();
      text = content;
    }
    data::check_text_file(path, text);
    return true;
  };
  data::TrainedTokenizer trained;
  if (options.model == "unigram") {
    data::TrainedUnigram unigram = data::train_unigram(
        texts,
        {.vocab_size = options.training.vocab_size, .special_tokens = options.training.special_tokens});
    trained = {.json = std::move(unigram.json), .vocab_size = unigram.vocab_size, .bytes = unigram.bytes};
  } else {
    data::TrainOptions training = options.training;
    training.check = [] {
      if (stop_requested()) throw Interrupted();
    };
    trained = data::train_bpe(texts, training);
  }
  write_file_atomically(posix_file_system(), options.output, trained.json);
  if (trained.vocab_size < options.training.vocab_size) {
    log_warning("the text yields no more tokens: {} instead of {}", trained.vocab_size,
                options.training.vocab_size);
  }
  if (options.json) {
    print_out(dump_json(nlohmann::ordered_json{{"output", options.output},
                                               {"vocab_size", trained.vocab_size},
                                               {"merges", trained.merges},
                                               {"bytes", trained.bytes}}) +
              "\n");
  } else {
    print_out(fmt::format("wrote {}: {} tokens from {} bytes of text\n", options.output, trained.vocab_size,
                          trained.bytes));
  }
  return 0;
}

data::Tokenizer load(const TextOptions& options) {
  return data::Tokenizer::load(options.tokenizer, options.pattern);
}

// Lines of `path` through `convert`, to standard output.
int convert_lines(const std::string& path, const std::function<void(std::istream&, std::ostream&)>& convert) {
  if (path == "-") {
    convert(std::cin, std::cout);
  } else {
    if (!std::filesystem::exists(path) || std::filesystem::is_directory(path))
      throw ConfigError(
          "[--jsonl] there is no file {}, expected one with a JSON object per line, or - for standard input",
          path);
    std::ifstream in(path, std::ios::binary);
    if (!in) throw ConfigError("[--jsonl] {} cannot be read", path);
    convert(in, std::cout);
  }
  std::cout.flush();
  if (!std::cout) throw WorldError("[standard output] writing failed; check whether the disk is full");
  return 0;
}

int encode(const TextOptions& options) {
  const data::Tokenizer tokenizer = load(options);
  const data::EncodeOptions how{.add_special_tokens = options.add_special_tokens, .parse_added_tokens = true};
  if (options.jsonl.empty()) {
    print_out(data::ids_to_json(tokenizer.encode(options.text, how)) + "\n");
    return 0;
  }
  return convert_lines(options.jsonl, [&](std::istream& in, std::ostream& out) {
    data::encode_jsonl(tokenizer, in, out, how, options.jsonl);
  });
}

int decode(const TextOptions& options) {
  const data::Tokenizer tokenizer = load(options);
  const data::DecodeOptions how{.skip_special = options.skip_special_tokens, .skip_unknown_ids = false};
  return convert_lines(options.jsonl, [&](std::istream& in, std::ostream& out) {
    data::decode_jsonl(tokenizer, in, out, how, options.jsonl);
  });
}

// The subject of one row of figures.
struct Measured {
  std::string file;
  std::string language;  // of the records that name one
  data::Fertility fertility;
};

// The figures of each file and, for records with a language, of each language in it; then the total.
std::vector<Measured> measure(const data::Tokenizer& tokenizer, const std::vector<std::string>& patterns) {
  constexpr size_t kAtOnce = 256;
  std::vector<Measured> out;
  Measured all{.file = "all", .language = "", .fertility = {}};
  for (const Path& path : data::list_corpus_paths(patterns)) {
    std::map<std::string, data::Fertility> by_language;
    const auto reader = data::open_records(path, path.string(), {});
    std::vector<data::Document> documents(kAtOnce);
    std::vector<data::Fertility> figures(kAtOnce);
    std::string detail;
    for (bool more = true; more;) {
      size_t count = 0;
      while (count < kAtOnce && more) {
        const data::ReadStatus status = reader->next(documents[count], detail);
        more = status != data::ReadStatus::kEnd;
        if (status == data::ReadStatus::kDocument) ++count;
        if (status == data::ReadStatus::kDamaged)
          throw DataError("[strata tokenizer info] {}: {}", path.string(), detail);
      }
      parallel_for(static_cast<int64_t>(count), [&](int64_t i) {
        const auto at = static_cast<size_t>(i);
        figures[at] = data::measure_fertility(tokenizer, documents[at].text);
      });
      for (size_t i = 0; i < count; ++i) {
        std::string language = data::string_field(documents[i], "language");
        if (language.empty()) language = data::string_field(documents[i], "lang");
        by_language[language].add(figures[i]);
      }
    }
    for (const auto& [language, fertility] : by_language) {
      out.push_back({path.string(), language, fertility});
      all.fertility.add(fertility);
    }
  }
  if (out.size() > 1) out.push_back(all);
  return out;
}

nlohmann::ordered_json to_json(const Measured& row) {
  nlohmann::ordered_json out = {{"file", row.file}};
  if (!row.language.empty()) out["language"] = row.language;
  out["documents"] = row.fertility.documents;
  out["bytes"] = row.fertility.bytes;
  out["words"] = row.fertility.words;
  out["tokens"] = row.fertility.tokens;
  out["bytes_per_token"] = row.fertility.bytes_per_token();
  out["tokens_per_word"] = row.fertility.tokens_per_word();
  return out;
}

void print_figures(const std::vector<Measured>& rows) {
  if (rows.empty()) return;
  std::string out = fmt::format("\n{:>12} {:>14} {:>14} {:>12} {:>12}  {}\n", "documents", "bytes", "tokens",
                                "bytes/token", "tokens/word", "file");
  for (const Measured& row : rows) {
    const data::Fertility& of = row.fertility;
    out += fmt::format("{:>12} {:>14} {:>14} {:>12.3f} {:>12.3f}  {}{}{}\n", of.documents, of.bytes,
                       of.tokens, of.bytes_per_token(), of.tokens_per_word(), row.file,
                       row.language.empty() ? "" : ", ", row.language);
  }
  print_out(out);
}

int info(const TextOptions& options) {
  const data::Tokenizer tokenizer = load(options);
  const std::vector<Measured> figures = measure(tokenizer, options.inputs);
  const data::TextEnds& ends = tokenizer.ends();
  for (const std::string& note : ends.notes) log_warning("{}", note);
  std::vector<std::string> special;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.is_special(id)) special.emplace_back(tokenizer.id_to_token(id));
  }
  const std::string hash = fmt::format("{:016x}", tokenizer.hash());
  if (options.json) {
    nlohmann::ordered_json out = {
        {"vocab_size", tokenizer.vocab_size()}, {"special_tokens", special}, {"hash", hash}};
    if (!options.inputs.empty()) {
      out["fertility"] = nlohmann::ordered_json::array();
      for (const Measured& row : figures) out["fertility"].push_back(to_json(row));
    }
    out["end_of_text_id"] = ends.end ? nlohmann::ordered_json(*ends.end) : nlohmann::ordered_json();
    out["end_of_text_from"] = ends.end_from;
    out["begin_of_text_ids"] = ends.begin;
    out["begin_of_text_from"] = ends.begin_from;
    print_out(dump_json(out, -1, InvalidUtf8::kReplace) + "\n");
    return 0;
  }
  std::string names;
  for (const std::string& name : special) names += " " + name;
  std::string begin;
  for (const int32_t id : ends.begin) begin += fmt::format("{} {} ", id, tokenizer.id_to_token(id));
  const std::string end = ends.end ? fmt::format("{} {} ", *ends.end, tokenizer.id_to_token(*ends.end)) : "";
  const auto with_source = [](const std::string& what, const std::string& from) {
    return what.empty() ? "none" : fmt::format("{}(by {})", what, from);
  };
  print_out(
      fmt::format("vocabulary      {} tokens\nbegin of text   {}\nend of text     {}\nspecial tokens "
                  "{}\nhash            {}\n",
                  tokenizer.vocab_size(), with_source(begin, ends.begin_from),
                  with_source(end, ends.end_from), names.empty() ? " none" : names, hash));
  print_figures(figures);
  return 0;
}

void add_tokenizer_file(Verb verb, TextOptions& options) {
  verb.option("--tokenizer", options.tokenizer,
              "tokenizer.json, tiktoken ranks, tekken.json or SentencePiece .model")
      .required()
      .type_name("FILE");
  verb.option("--pattern", options.pattern, "The split of a tiktoken rank file").type_name("NAME");
}

}  // namespace

void add_tokenizer(Verb root) {
  Verb tokenizer =
      root.verb("tokenizer", "Train and use tokenizers",
                "strata tokenizer train --input corpus.txt --vocab-size 8192 --output tokenizer.json");

  auto training = std::make_shared<TrainOptions>();
  Verb train_verb =
      tokenizer.verb("train", "Train a tokenizer on text files",
                     "strata tokenizer train --input corpus/*.txt --vocab-size 8192 --output tokenizer.json");
  train_verb.option("--input", training->inputs, "Text files, folders or globs; - is standard input")
      .required()
      .type_name("FILE");
  train_verb.flag("--force", training->force, kForceHelp);
  train_verb
      .option("--vocab-size", training->training.vocab_size, "Entries, special tokens and bytes included")
      .required()
      .positive()
      .type_name("N");
  train_verb.option("--output", training->output, "The tokenizer.json to write").required().type_name("FILE");
  Option min_frequency = train_verb
                             .option("--min-frequency", training->training.min_frequency,
                                     "Pairs seen less often are not merged (bpe)")
                             .positive()
                             .type_name("N")
                             .show_default();
  train_verb.option("--special", training->training.special_tokens, "Special token; may be repeated")
      .one_each()
      .type_name("TOKEN");
  Option pattern =
      train_verb.option("--pattern", training->training.pattern, "How text is split into words (bpe)")
          .type_name("NAME")
          .show_default();
  train_verb.option("--model", training->model, "bpe, or unigram through SentencePiece's library")
      .one_of({"bpe", "unigram"})
      .show_default();
  train_verb.json(training->json);
  train_verb.action([training, min_frequency, pattern] {
    for (const Option& option : {min_frequency, pattern}) {
      if (training->model == "unigram" && option.given())
        throw ConfigError(
            "[strata tokenizer train] found {} with --model unigram, which has neither splits nor "
            "merges; expected it only with --model bpe; leave it out",
            option.names().front());
    }
    return train(*training);
  });

  auto options = std::make_shared<TextOptions>();
  Verb encode_verb =
      tokenizer.verb("encode", "Convert text to token ids, one {\"ids\":[…]} per line",
                     "strata tokenizer encode --tokenizer tokenizer.json --text \"Hello there\"");
  add_tokenizer_file(encode_verb, *options);
  Option jsonl =
      encode_verb.option("--jsonl", options->jsonl, "One {\"text\": …} per line; - is standard input")
          .type_name("TEXTS.jsonl");
  Option text = encode_verb.option("--text", options->text, "This text").type_name("TEXT").excludes(jsonl);
  encode_verb.flag("--add-special-tokens", options->add_special_tokens,
                   "As the tokenizer's post-processor defines");
  encode_verb.action([options, jsonl, text] {
    if (!jsonl.given() && !text.given())
      throw ConfigError("[strata tokenizer encode] found no text, expected --text TEXT or --jsonl FILE");
    return encode(*options);
  });

  Verb decode_verb = tokenizer.verb("decode", "Convert token ids to text, one {\"text\":…} per line",
                                    "strata tokenizer decode --tokenizer tokenizer.json --jsonl ids.jsonl");
  add_tokenizer_file(decode_verb, *options);
  decode_verb.option("--jsonl", options->jsonl, "One {\"ids\":[…]} per line; - is standard input")
      .required()
      .type_name("IDS.jsonl");
  decode_verb.flag("--skip-special-tokens", options->skip_special_tokens, "Leave special tokens out");
  decode_verb.action([options] { return decode(*options); });

  Verb info_verb = tokenizer.verb("info", "Show a tokenizer's contents and its bytes per token",
                                  "strata tokenizer info --tokenizer tokenizer.json --input corpus/*.jsonl");
  add_tokenizer_file(info_verb, *options);
  info_verb.option("--input", options->inputs, "Texts to measure: bytes per token, tokens per word")
      .type_name("FILE");
  info_verb.json(options->json);
  info_verb.action([options] { return info(*options); });
}

}  // namespace strata::cli
