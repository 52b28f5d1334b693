#include "data/pipeline/stage_kinds.h"

#include "base/error.h"
#include "data/dedup/bloom.h"
#include "data/dedup/exact.h"
#include "data/dedup/minhash.h"
#include "data/dedup/substring.h"
#include "data/dedup/unit_dedup.h"

namespace strata::data {
namespace {

using dedup::CompareText;

[[noreturn]] void refuse(std::string_view kind, std::string_view name, std::string_view found,
                         std::string_view expected) {
  throw ConfigError("[stage {}] {} is {}, expected {}", kind, name, found, expected);
}

int64_t integer(const StageParameters& parameters, std::string_view kind, const std::string& name,
                int64_t least, int64_t most) {
  const auto value = parameters.get<int64_t>(name);
  if (value < least || value > most) {
    refuse(kind, name, std::to_string(value), fmt::format("a number from {} to {}", least, most));
  }
  return value;
}

double fraction(const StageParameters& parameters, std::string_view kind, const std::string& name) {
  const auto value = parameters.get<double>(name);
  if (!(value >= 0 && value <= 1)) refuse(kind, name, fmt::format("{}", value), "a number from 0 to 1");
  return value;
}

// The place of a value among its alternatives.
size_t choice(const StageParameters& parameters, std::string_view kind, const std::string& name,
              std::initializer_list<std::string_view> values) {
  const auto& value = parameters.get<std::string>(name);
  std::string expected;
  size_t i = 0;
  for (const std::string_view possible : values) {
    if (value == possible) return i;
    expected += fmt::format("{}\"{}\"", i++ == 0 ? "" : " or ", possible);
  }
  refuse(kind, name, fmt::format("\"{}\"", value), expected);
}

WordRule words_of(const StageParameters& parameters, std::string_view kind) {
  return choice(parameters, kind, "words", {"whitespace", "spacy"}) == 0 ? WordRule::kWhitespace
                                                                         : WordRule::kSpacy;
}

const StageParameter kWords{"words", std::string("whitespace"),
                            "what a word is: \"whitespace\", or \"spacy\" as datatrove has it"};

StageKind minhash_kind() {
  return {
      .name = "minhash",
      .help =
          "near-duplicates by MinHash-LSH (datatrove): of a cluster the document with the most words stays",
      .parameters = {{"n_grams", int64_t{5}, "words in a shingle"},
                     {"num_buckets", int64_t{14}, "buckets; two documents that agree in one hang together"},
                     {"hashes_per_bucket", int64_t{8}, "hashes that have to agree in a bucket"},
                     {"seed", int64_t{1}, "of the permutations"},
                     {"hash", std::string("xxhash"), "of a shingle: \"xxhash\" or \"sha1\""},
                     {"precision", int64_t{64}, "bits of a hash: 64 or 32"},
                     {"min_jaccard", 0.0, "above 0: a pair counts only if its exact Jaccard reaches it"},
                     kWords},
      .make = [](const StageParameters& p) -> AnyStage {
        constexpr std::string_view kKind = "minhash";
        dedup::MinhashStageOptions options;
        options.signature.n_grams = integer(p, kKind, "n_grams", 1, 1000);
        options.signature.buckets = integer(p, kKind, "num_buckets", 1, 10000);
        options.signature.hashes_per_bucket = integer(p, kKind, "hashes_per_bucket", 1, 1000);
        options.signature.seed = integer(p, kKind, "seed", 0, 0xFFFFFFFF);
        options.signature.hash = choice(p, kKind, "hash", {"xxhash", "sha1"}) == 0
                                     ? dedup::ShingleHash::kXxhash
                                     : dedup::ShingleHash::kSha1;
        const auto precision = p.get<int64_t>("precision");
        if (precision != 64 && precision != 32)
          refuse(kKind, "precision", std::to_string(precision), "64 or 32");
        options.signature.narrow = precision == 32;
        options.min_jaccard = fraction(p, kKind, "min_jaccard");
        options.signature.words = words_of(p, kKind);
        return dedup::make_minhash_stage(options);
      }};
}

StageKind exact_kind() {
  return {.name = "exact_dedup",
          .help = "documents whose text equals an earlier one's",
          .parameters =
              {{"compare", std::string("raw"),
                "\"raw\": byte for byte; \"simplified\": without case, punctuation, marks and the kind of "
                "white space, numbers as 0"}},
          .make = [](const StageParameters& p) -> AnyStage {
            return dedup::make_exact_stage(choice(p, "exact_dedup", "compare", {"raw", "simplified"}) == 0
                                               ? CompareText::kRaw
                                               : CompareText::kSimplified);
          }};
}

StageKind bloom_kind() {
  return {.name = "bloom_dedup",
          .help = "documents that a Bloom filter has seen before, in the order of the input",
          .parameters = {{"by", std::string("document"),
                          "the lookup key: \"document\" (its text) or \"ngrams\" (of words, as datatrove)"},
                         {"n_grams", int64_t{13}, "words in an n-gram"},
                         {"duplicate_threshold", 0.8,
                          "with n-grams: a larger share of known ones drops the document"},
                         {"false_positive_rate", 1e-6, "of a look-up"},
                         {"expected", int64_t{0},
                          "look-ups that the filter is sized for; 0: as many as there are"},
                         kWords},
          .make = [](const StageParameters& p) -> AnyStage {
            constexpr std::string_view kKind = "bloom_dedup";
            dedup::BloomOptions options;
            options.by_ngrams = choice(p, kKind, "by", {"document", "ngrams"}) == 1;
            options.n_grams = integer(p, kKind, "n_grams", 1, 1000);
            options.duplicate_threshold = fraction(p, kKind, "duplicate_threshold");
            options.false_positive_rate = fraction(p, kKind, "false_positive_rate");
            if (options.false_positive_rate <= 0 || options.false_positive_rate >= 1) {
              refuse(kKind, "false_positive_rate", fmt::format("{}", options.false_positive_rate),
                     "a number between 0 and 1");
            }
            options.expected = integer(p, kKind, "expected", 0, int64_t{1} << 44);
            options.words = words_of(p, kKind);
            return dedup::make_bloom_stage(options);
          }};
}

StageKind unit_kind(dedup::UnitKind unit) {
  const bool lines = unit == dedup::UnitKind::kLine;
  const std::string kind = lines ? "line_dedup" : "paragraph_dedup", of = lines ? "lines" : "paragraphs";
  const std::string min_units = "min_doc_" + of;
  return {.name = kind,
          .help = fmt::format("{} that occurred before are cut out (C4, dolma)", of),
          .parameters =
              {{"compare", std::string("lower"),
                "\"lower\": stripped and in lower case; \"simplified\": also without punctuation and marks"},
               {lines ? "min_line_words" : "min_paragraph_words", int64_t{0},
                "with fewer words they are not compared, and stay"},
               {"min_doc_words", int64_t{50}, "fewest words left in a document that lost something"},
               {min_units, int64_t{lines ? 3 : 1}, fmt::format("fewest {} left in it", of)}},
          .make = [unit, lines, kind, min_units](const StageParameters& p) -> AnyStage {
            constexpr int64_t kMost = int64_t{1} << 32;
            dedup::UnitOptions options;
            options.kind = unit;
            options.compare = choice(p, kind, "compare", {"lower", "simplified"}) == 0
                                  ? dedup::CompareUnit::kLower
                                  : dedup::CompareUnit::kSimplified;
            options.min_unit_words =
                integer(p, kind, lines ? "min_line_words" : "min_paragraph_words", 0, kMost);
            options.min_doc_words = integer(p, kind, "min_doc_words", 0, kMost);
            options.min_doc_units = integer(p, kind, min_units, 0, kMost);
            return dedup::make_unit_stage(options);
          }};
}

StageKind substring_kind() {
  return {
      .name = "substring_dedup",
      .help = "spans that occurred before are cut out, at the bounds of words",
      .parameters = {{"length_threshold", int64_t{100},
                      "bytes that have to be the same (about 50 tokens at two bytes each, as published)"}},
      .make = [](const StageParameters& p) -> AnyStage {
        return dedup::make_substring_stage(integer(p, "substring_dedup", "length_threshold", 16, 65536));
      }};
}

}  // namespace

std::vector<StageKind> dedup_stage_kinds() {
  return {minhash_kind(),
          exact_kind(),
          bloom_kind(),
          unit_kind(dedup::UnitKind::kLine),
          unit_kind(dedup::UnitKind::kParagraph),
          substring_kind()};
}

}  // namespace strata::data
