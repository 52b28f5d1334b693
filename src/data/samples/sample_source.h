// The order of training samples: sample i is a pure function of the corpus, the seed and i. Workers, ranks
// and restarts only decide who asks for which i.
//
// A source of N tokens gives n = (N - 1) / T windows an epoch; window w is tokens [w*T, w*T + T], the last of
// them only as a target. Objectives other than the causal one take windows of their own (RowShape) and no
// token behind them. The i-th sample of a source is window P(i mod n) of epoch i / n, where P is a
// permutation keyed by (seed, source, epoch), or the identity with shuffle off. Which source gives a sample
// is the mixture's choice (mixture.h). With best-fit packing the windows are the rows of its plan.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/samples/best_fit.h"
#include "data/samples/fim.h"
#include "data/samples/mixture.h"
#include "data/samples/objective.h"
#include "data/samples/rows.h"
#include "data/samples/skip_ranges.h"
#include "data/tokens/token_corpus.h"

namespace strata::data {

enum class Pack {
  kDocuments,  // attention and loss never cross a document; positions restart
  kStream,     // plain windows
  kBestFit,  // as kDocuments, with whole documents packed into rows (best_fit.h); needs one pass at the start
};

struct SampleSourceSpec {
  std::string name;
  TokenCorpus corpus;
  double weight = 1;
  int64_t max_epochs = 0;  // 0: SampleOptions::epochs decides
  int64_t max_tokens = 0;  // of the whole run, in whole windows, at least one; 0: no limit
};

struct SampleOptions {
  int64_t sequence_length = 0;  // T; of the source where the objective has one
  uint64_t seed = 0;
  bool shuffle = true;
  Pack pack = Pack::kDocuments;
  int64_t epochs = 0;                  // of every source that sets no max_epochs; 0: repeat for ever
  std::vector<SampleRange> skip{};     // of global samples
  std::vector<MixturePhase> phases{};  // weights from later samples on; the specs' weights hold before
  FimOptions fim{};                    // of the causal objective alone
  ObjectiveOptions objective{};
};

// Working memory of one thread that fills batches; reused, so that filling allocates nothing after the first.
struct BatchScratch {
  std::vector<int32_t> ids;
  std::vector<uint8_t> starts;
  std::vector<int32_t> text;     // of fill-in-the-middle
  std::vector<int32_t> lengths;  // of spans
};

class SampleSource {
 public:
  // ConfigError where a source is too short for one window, weights are not usable, or the objective does not
  // go with the other options.
  SampleSource(const std::vector<SampleSourceSpec>& specs, SampleOptions options);

  const SampleOptions& options() const { return options_; }
  const RowShape& shape() const { return shape_; }
  // Trained samples until the data ends; Mixture::kUnbounded where it repeats.
  int64_t total_samples() const { return total_; }
  // Windows of one source, and of all sources together.
  int64_t samples_per_epoch(int64_t source) const { return sources_[static_cast<size_t>(source)].windows; }
  int64_t samples_per_epoch() const;

  struct Place {
    int64_t source;
    int64_t epoch;
    int64_t window;
    int64_t global_sample;  // as data.skip counts
  };
  Place place(int64_t sample) const;
  const SkipRanges& skip() const { return skip_; }
  // How often a source has been read once `trained` samples were, of all sources together.
  double epochs(int64_t source, int64_t trained) const;
  // The share of these samples that the source gave.
  double share(int64_t source, int64_t trained) const;
  // The share of places of a source's rows that stay empty; above 0 with Pack::kBestFit alone.
  double padding(int64_t source) const;

  // Samples [first, first + sequences) in order. Rows past total_samples() are padding. Returns the number of
  // targets that count. Any thread may call this.
  int64_t fill(int64_t first, int64_t sequences, const Batch& out, BatchScratch& scratch) const;

 private:
  struct Source {
    std::string name;
    TokenCorpus corpus;
    int64_t windows;
    uint64_t seed;
    std::optional<BestFitPlan> plan;  // of Pack::kBestFit
  };
  static RowShape checked_shape(const SampleOptions& options);
  static std::vector<Source> make_sources(const std::vector<SampleSourceSpec>& specs,
                                          const SampleOptions& options, const RowShape& shape);
  static Mixture make_mixture(const std::vector<SampleSourceSpec>& specs, const std::vector<Source>& sources,
                              const SampleOptions& options, const RowShape& shape);
  int64_t samples_of(int64_t source, int64_t trained) const;
  // Fill-in-the-middle of ids[0, n), which begin at `begin` of the source's corpus in this epoch.
  void move_middle(const Source& source, int64_t begin, int64_t epoch, int64_t n, int32_t* ids,
                   BatchScratch& scratch) const;
  int64_t fill_window(const Source& source, const Place& at, RowDraws& draws, const Batch& row,
                      BatchScratch& scratch) const;
  int64_t fill_packed(const Source& source, const Place& at, RowDraws& draws, const Batch& row,
                      BatchScratch& scratch) const;

  SampleOptions options_;
  RowShape shape_;
  std::vector<Source> sources_;
  SkipRanges skip_;
  Mixture mixture_;
  int64_t total_ = 0;
};

}  // namespace strata::data
