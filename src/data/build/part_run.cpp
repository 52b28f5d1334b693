#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "base/signals.h"
#include "base/text.h"
#include "data/build/build_stats.h"
#include "data/build/document_file.h"
#include "data/build/job.h"
#include "data/build/part_ids.h"
#include "data/tokens/token_writer.h"

namespace strata::data {
namespace {

constexpr size_t kSnippetBytes = 300;

// The beginning of a text, cut between characters.
std::string snippet(std::string_view text) {
  return std::string(utf8_prefix(text, kSnippetBytes));
}

const DocumentStage& document_stage(const BuildJob& job, size_t stage) {
  return *std::get<std::unique_ptr<DocumentStage>>(job.stages[stage]);
}
const CorpusStage& corpus_stage(const BuildJob& job, size_t stage) {
  return *std::get<std::unique_ptr<CorpusStage>>(job.stages[stage]);
}

class PartRun {
 public:
  PartRun(const BuildJob& job, size_t phase, uint32_t part)
      : job_(job),
        phase_(job.phases[phase]),
        number_(phase),
        part_(part),
        source_(job.plan.parts[part].source),
        last_(!phase_.collects),
        decided_ids_(job, phase == 0 ? 0 : phase - 1) {
    stats_.rows.resize(job.stages.size() + 1);
    stats_.sources.resize(job.recipe.sources.size());
    for (size_t i = 0; i < job.stages.size(); ++i) {
      stats_.rows[i + 1].stage =
          StageStats(std::visit([](const auto& stage) { return stage->metrics(); }, job.stages[i]));
    }
  }

  void run() {
    audit_.emplace(*job_.files, job_.part_file(number_, part_, "audit"));
    if (last_) {
      if (job_.recipe.documents)
        documents_.emplace(*job_.files, job_.document_output(part_), job_.recipe.compression);
      if (job_.tokenizer) {
        tokens_.emplace(*job_.files, job_.token_part(part_), token_type_for(job_.tokenizer->vocab_size()));
      }
    } else {
      spill_.emplace(*job_.files, job_.part_file(number_, part_, "documents"));
      ids_.emplace(*job_.files, job_.part_file(number_, part_, "ids"));
      collector_ =
          corpus_stage(job_, *phase_.collects).collect(*job_.files, job_.part_file(number_, part_, "record"));
    }
    if (number_ == 0)
      read_input();
    else
      read_stored();
    finish();
  }

 private:
  void check_stop() {
    if (++handled_ % 64 == 0 && job_.stop && job_.stop()) throw Interrupted();
  }

  void read_input() {
    for (const PartPiece& piece : job_.plan.parts[part_].pieces) {
      const BuildInput& input = job_.plan.files[static_cast<size_t>(piece.file)];
      const InputFile& file = input.file;
      RecordOptions options = job_.recipe.sources[static_cast<size_t>(source_)].records;
      options.format = file.format;
      hash_piece(piece, file);
      const auto reader = open_records(file.path, input.name, options, piece.range,
                                       job_.lines[static_cast<size_t>(piece.file)].get());
      int64_t seen = 0;
      std::string detail;
      for (;;) {
        detail.clear();
        const ReadStatus status = reader->next(document_, detail);
        job_.progress += reader->bytes_read() - seen;
        stats_.stored_bytes += reader->bytes_read() - seen;
        seen = reader->bytes_read();
        if (status == ReadStatus::kEnd) break;
        check_stop();
        handle_record(status, detail, piece.file);
      }
    }
  }

  // The pages are in memory for the reader afterwards.
  void hash_piece(const PartPiece& piece, const InputFile& file) {
    if (file.size == 0) return;
    const MappedFile map(file.path);
    const auto size = static_cast<int64_t>(map.size());
    const int64_t end = piece.range.end < 0 ? size : std::min(piece.range.end, size);
    const int64_t begin = std::min(piece.range.begin, end);
    stats_.input_hashes[piece.file] =
        hash64(map.text().substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
  }

  void handle_record(ReadStatus status, const std::string& detail, int32_t file) {
    RowStats& row = stats_.rows[0];
    ++row.documents_in;
    ++stats_.sources[static_cast<size_t>(source_)].documents_in;
    if (status != ReadStatus::kDocument) {
      const std::string_view reason = read_reason(status);
      if (job_.recipe.on_error == OnError::kStop) {
        throw DataError("[{}:{}] {}{}{}; mend it, or set build.on_error = \"skip\"", name_of(file),
                        document_.line, reason, detail.empty() ? "" : ": ", detail);
      }
      drop(0, reason, document_.text, file, nullptr, detail);
      return;
    }
    row.bytes_in += static_cast<int64_t>(document_.text.size());
    stats_.lengths_in.record(document_.text.size());
    ++row.documents_out;
    row.bytes_out += static_cast<int64_t>(document_.text.size());
    text_.reset(document_.text);
    run_stages(file);
  }

  void read_stored() {
    DocumentFileReader reader(job_.part_file(number_ - 1, part_, "documents"));
    std::set<std::string> reasons;
    const std::vector<Decision> decisions =
        read_decisions(job_.part_file(number_ - 1, part_, "decisions"), reasons);
    auto next = decisions.begin();
    const size_t row = *phase_.decided + 1;
    StoredDocument stored;
    int64_t seen = 0;
    for (uint32_t n = 0; reader.next(stored); ++n) {
      check_stop();
      job_.progress += reader.bytes_read() - seen;
      seen = reader.bytes_read();
      std::swap(document_, stored.document);
      enter(row, document_.text.size());
      const Decision* decision = nullptr;
      if (next != decisions.end() && next->document == n) decision = &*next++;
      if (decision != nullptr && decision->drop) {
        drop(row, decision->reason, document_.text, stored.file, decision, "");
        continue;
      }
      if (decision != nullptr && !decision->cut.empty()) {
        cut(decision->cut);
        if (document_.text.empty()) {
          drop(row, "empty", document_.text, stored.file, nullptr, "");
          continue;
        }
      }
      leave(row, document_.text.size());
      text_.reset(document_.text);
      run_stages(stored.file);
    }
    if (next != decisions.end()) {
      throw DataError("[{}] decides on documents that are not there; remove the build's work folder",
                      job_.part_file(number_ - 1, part_, "decisions").string());
    }
  }

  void cut(const std::vector<TextSpan>& spans) {
    std::string& text = document_.text;
    size_t to = 0, from = 0;
    for (const TextSpan& span : spans) {
      STRATA_CHECK(span.begin >= from && span.end <= text.size() && span.begin <= span.end,
                   "cut {} to {} of {}", span.begin, span.end, text.size());
      text.replace(to, span.begin - from, text, from, span.begin - from);
      to += span.begin - from;
      from = span.end;
    }
    text.erase(to, from - to);
  }

  void enter(size_t row, size_t bytes) {
    ++stats_.rows[row].documents_in;
    stats_.rows[row].bytes_in += static_cast<int64_t>(bytes);
  }
  void leave(size_t row, size_t bytes) {
    ++stats_.rows[row].documents_out;
    stats_.rows[row].bytes_out += static_cast<int64_t>(bytes);
  }

  void run_stages(int32_t file) {
    for (const size_t stage : phase_.stages) {
      enter(stage + 1, text_.bytes().size());
      const std::string_view reason =
          document_stage(job_, stage).apply(text_, document_, stats_.rows[stage + 1].stage);
      if (!reason.empty()) {
        drop(stage + 1, reason, text_.bytes(), file, nullptr, "");
        return;
      }
      leave(stage + 1, text_.bytes().size());
    }
    keep(file);
  }

  void keep(int32_t file) {
    if (!last_) {
      spill_->append(text_.bytes(), document_, file);
      ids_->append(id());
      collector_->add(text_, document_, stats_.rows[*phase_.collects + 1].stage);
      return;
    }
    stats_.lengths_out.record(text_.bytes().size());
    BuildStats::Kept& kept = stats_.sources[static_cast<size_t>(source_)];
    ++kept.documents;
    kept.bytes += static_cast<int64_t>(text_.bytes().size());
    if (documents_) {
      std::string& out = documents_->buffer();
      out += "{\"id\":";
      append_id(out, id());
      out += ",\"text\":";
      append_json_string(out, text_.bytes());
      if (!document_.fields.empty()) out.append(",").append(document_.fields);
      out += "}\n";
      documents_->flush_if_full();
    }
    if (tokens_) write_tokens(kept, file);
  }

  void write_tokens(BuildStats::Kept& kept, int32_t file) {
    ids_of_text_.clear();
    const TextEncoder& encoder = job_.encoder;
    if (job_.recipe.tokens->add_bos) ids_of_text_ = encoder.begin_of_text;
    const auto place = [&] { return fmt::format("{}:{}", name_of(file), document_.line); };
    encode_document(encoder, text_.bytes(), place, ids_of_text_, special_);
    if (job_.recipe.tokens->add_eos) ids_of_text_.push_back(*encoder.end_of_text);
    tokens_->append(ids_of_text_);
    tokens_->end_document();
    kept.tokens += static_cast<int64_t>(ids_of_text_.size());
    stats_.tokens += static_cast<int64_t>(ids_of_text_.size());
  }

  DocumentId id() const { return {.text = document_.id, .is_json = document_.id_is_json}; }

  const std::string& name_of(int32_t file) const { return job_.plan.files[static_cast<size_t>(file)].name; }

  void drop(size_t row, std::string_view reason, std::string_view text, int32_t file,
            const Decision* decision, const std::string& detail) {
    DropExample example;
    const DropReason* known = nullptr;
    if (const auto found = stats_.rows[row].dropped.find(reason); found != stats_.rows[row].dropped.end())
      known = &found->second;
    if (known == nullptr || known->examples.size() < BuildStats::kExamples)
      example = {document_.id, name_of(file), detail, snippet(text), document_.line};
    stats_.drop(row, reason, static_cast<int64_t>(text.size()), std::move(example));
    std::string& out = audit_->buffer();
    out += "{\"id\":";
    append_id(out, id());
    out += ",\"source\":";
    append_json_string(out, job_.recipe.sources[static_cast<size_t>(source_)].name);
    out += ",\"file\":";
    append_json_string(out, name_of(file));
    fmt::format_to(std::back_inserter(out), ",\"line\":{},\"stage\":\"{}\",\"reason\":\"{}\"", document_.line,
                   row == 0 ? "read" : job_.recipe.stages[row - 1].kind, reason);
    if (decision != nullptr && decision->has_original) {
      out += ",\"duplicate_of\":";
      append_id(out, decided_ids_(decision->original));
    }
    if (!detail.empty()) {
      out += ",\"detail\":";
      append_json_string(out, detail);
    }
    out += "}\n";
    audit_->flush_if_full();
  }

  void finish() {
    if (documents_) documents_->finish();
    if (spill_) spill_->finish();
    if (ids_) ids_->finish();
    if (collector_) collector_->finish();
    stats_.special = named_counts(job_.encoder, special_);
    if (tokens_) tokens_->finish({.type = token_type_for(job_.tokenizer->vocab_size())}, "");
    audit_->finish();
    write_file_atomically(*job_.files, job_.part_file(number_, part_, "json"), stats_.to_json());
  }

  const BuildJob& job_;
  const BuildPhase& phase_;
  size_t number_;
  uint32_t part_;
  int32_t source_;
  bool last_;
  BuildStats stats_;
  Document document_;
  TextView text_;
  int64_t handled_ = 0;
  std::optional<OutputFile> audit_, documents_;
  std::optional<DocumentFileWriter> spill_;
  std::optional<IdFileWriter> ids_;
  std::unique_ptr<PartCollector> collector_;
  std::optional<TokenWriter> tokens_;
  std::vector<int32_t> ids_of_text_;
  SpecialCounts special_;
  PartIds decided_ids_;  // of the phase before
};

}  // namespace

void run_part(const BuildJob& job, size_t phase, uint32_t part) {
  PartRun(job, phase, part).run();
}

}  // namespace strata::data
