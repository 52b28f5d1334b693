// The order of training samples: sample i is a pure function of the corpus, the seed and i. Workers, ranks
// and restarts only decide who asks for which i.
// A source of N tokens yields n = (N - 1) / T windows an epoch; window w is tokens [w*T, w*T + T], the last
// of them only as a target. Objectives other than the causal one take windows of a different shape (RowShape)
// and no token after them. The i-th sample of a source is window P(i mod n) of epoch i / n, where P is a
// permutation keyed by (seed, source, epoch), or the identity with shuffle off. The mixture chooses the
// source of a sample (mixture.h). With best-fit packing the windows are the rows of its plan.
// Samples have two numbers: the global one, used by data.skip and reported in metrics as first_sample, and
// the one that counts only those that are trained on.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/samples/best_fit.h"
#include "data/samples/epoch_rest.h"
#include "data/samples/fim.h"
#include "data/samples/mixture.h"
#include "data/samples/objective.h"
#include "data/samples/position.h"
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
  std::vector<MixturePhase> phases{};  // weights from later global samples on; the specs' hold before
  FimOptions fim{};                    // only for the causal objective
  ObjectiveOptions objective{};
  DataOrigin origin{};  // where this order begins; samples before it are not asked for
};

// Working memory of one thread that fills batches; reused, so that filling allocates nothing after the first.
struct BatchScratch {
  std::vector<int32_t> ids;
  std::vector<uint8_t> starts;
  std::vector<int32_t> text;     // of fill-in-the-middle
  std::vector<int32_t> lengths;  // of spans
  std::vector<BestFitPlan::Piece> pieces, documents;
};

class SampleSource {
 public:
  // ConfigError if a source is too short for one window, weights are not usable, or the objective does not
  // fit the other options.
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
    int64_t global_sample;
    bool rest = false;  // `window` counts the rows of the rest of an epoch (epoch_rest.h)
  };
  Place place(int64_t sample) const;
  // The text ranges of a row, in the order of its places, with one token for each place that holds text. The
  // token after a range that is only predicted is not in it. `out` is reused.
  void text_of(const Place& at, std::vector<BestFitPlan::Piece>& out) const;
  const SkipRanges& skip() const { return skip_; }
  // How often a source has been read once `trained` samples were, of all sources together.
  double epochs(int64_t source, int64_t trained) const;
  // The share of these samples that come from the source.
  double share(int64_t source, int64_t trained) const;
  // The position of every source after the global samples before `sample`.
  std::vector<SourcePosition> positions(int64_t sample) const;
  // Names all that decides which text a sample is, but for the origin: two sources with the same origin and
  // fingerprint have the same order.
  std::string fingerprint() const;
  // The share of places of a source's rows that stay empty; above 0 only with Pack::kBestFit.
  double padding(int64_t source) const;
  // The share of the places of all sources' rows that hold text, by the weights that the data begin with.
  double filled() const { return filled_; }
  // Tokens that samples [first, first + sequences) are trained on: sequence_length for a whole row, fewer
  // where places stay empty, none past total_samples(). Reads no text.
  int64_t tokens(int64_t first, int64_t sequences) const;
  // Whether any row of any source has a target. Reads rows until one has.
  bool has_targets() const;

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
    // At the origin: the current epoch, how many of its rows were read, or its rest if these were other rows,
    // and the places read before.
    int64_t first_epoch = 0, begun = 0;
    std::optional<EpochRest> rest{};
    EpochLayout rest_layout{};
    int64_t read = 0;

    int64_t rest_rows() const { return rest ? rest->rows() : 0; }
    int64_t rows_until(int64_t epoch) const;  // from the origin to the end of this many epochs
  };
  // Row `index` of a source, counted from the origin: its epoch and its number there, before shuffling.
  struct EpochRow {
    int64_t epoch;
    int64_t row;
    bool rest;
  };
  static EpochRow epoch_row(const Source& source, int64_t index);
  EpochLayout layout_of(const Source& source) const;
  void go_on(Source& source, const SourcePosition& at) const;
  SourcePosition position(int64_t source, int64_t given) const;
  static RowShape checked_shape(const SampleOptions& options);
  std::vector<Source> make_sources(const std::vector<SampleSourceSpec>& specs) const;
  Mixture make_mixture(const std::vector<SampleSourceSpec>& specs);
  // Rows read from a source since the origin, after `trained` samples of the whole run.
  int64_t given(int64_t source, int64_t trained) const;
  // Fill-in-the-middle of ids[0, n), which begin at `begin` of the source's corpus in this epoch.
  void move_middle(const Source& source, int64_t begin, int64_t epoch, int64_t n, int32_t* ids,
                   BatchScratch& scratch) const;
  int64_t fill_window(const Source& source, const Place& at, RowDraws& draws, const Batch& row,
                      BatchScratch& scratch) const;
  int64_t fill_rest(const Source& source, const Place& at, RowDraws& draws, const Batch& row,
                    BatchScratch& scratch) const;
  // Consecutive text ranges that do not attend to each other.
  int64_t fill_pieces(const Source& source, int64_t epoch, std::span<const BestFitPlan::Piece> pieces,
                      RowDraws& draws, const Batch& row, BatchScratch& scratch) const;

  SampleOptions options_;
  RowShape shape_;
  std::vector<Source> sources_;
  SkipRanges skip_;
  std::string order_;  // mixture and limits, for the fingerprint
  Mixture mixture_;
  int64_t total_ = 0;
  double filled_ = 1;
};

}  // namespace strata::data
