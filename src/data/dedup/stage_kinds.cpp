#include "data/pipeline/stage_kinds.h"

#include "base/error.h"
#include "data/dedup/exact.h"
#include "data/dedup/minhash.h"

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

}  // namespace

std::vector<StageKind> dedup_stage_kinds() {
  return {minhash_kind(), exact_kind()};
}

}  // namespace strata::data
