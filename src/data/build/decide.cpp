#include "data/build/decide.h"

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "data/build/document_file.h"
#include "data/build/part_ids.h"
#include "data/dedup/cluster_list.h"

namespace strata::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kReportedClusters = 10;  // clusters in the report
constexpr size_t kReportedDropped = 5;    // dropped documents that the report lists per cluster
constexpr int64_t kListFraction = 16;     // the cluster list may take 1/16 of the memory limit

Path marker_of(const BuildJob& job, size_t phase) {
  return job.phase_folder(phase) / "decided.json";
}

void write_clusters(const BuildJob& job, const Path& path, const std::vector<dedup::Cluster>& clusters,
                    PartIds& ids) {
  OutputFile out(*job.files, path, job.recipe.compression);
  for (const dedup::Cluster& cluster : clusters) {
    std::string& line = out.buffer();
    line += fmt::format("{{\"size\":{},\"kept\":", cluster.dropped.size() + 1);
    append_id(line, ids(cluster.kept));
    char separator = '[';
    line += ",\"dropped\":";
    for (const DocumentNumber& dropped : cluster.dropped) {
      line += std::exchange(separator, ',');
      append_id(line, ids(dropped));
    }
    line += "]}\n";
    out.flush_if_full();
  }
  out.finish();
}

std::vector<AlikeDocuments> largest_of(const std::vector<dedup::Cluster>& clusters, PartIds& ids) {
  std::vector<AlikeDocuments> largest;
  for (const dedup::Cluster& cluster : clusters) {
    AlikeDocuments& entry = largest.emplace_back();
    entry.size = static_cast<int64_t>(cluster.dropped.size()) + 1;
    entry.kept = ids(cluster.kept).text;
    for (size_t i = 0; i < std::min(kReportedDropped, cluster.dropped.size()); ++i)
      entry.dropped.emplace_back(ids(cluster.dropped[i]).text);
  }
  return largest;
}

}  // namespace

void decide(const BuildJob& job, size_t phase) {
  const Path marker = marker_of(job, phase);
  std::error_code error;
  if (std::filesystem::exists(marker, error)) return;
  const size_t stage = *job.phases[phase].collects;
  const auto& corpus = *std::get<std::unique_ptr<CorpusStage>>(job.stages[stage]);
  std::vector<Path> records;
  for (size_t part = 0; part < job.plan.parts.size(); ++part)
    records.push_back(job.part_file(phase, part, "record"));
  const Path scratch = job.phase_folder(phase) / "scratch";
  job.files->remove_tree(scratch);
  job.files->create_directories(scratch);
  StageStats stats(corpus.metrics());
  dedup::ClusterList list;
  bool list_fits = true;
  corpus.decide(
      {.records = records, .scratch = scratch, .memory_limit = job.recipe.memory_limit, .files = job.files},
      stats, [&](uint32_t part, std::span<const Decision> decisions) {
        write_decisions(*job.files, job.part_file(phase, part, "decisions"), decisions);
        if (list_fits) list.add(part, decisions);
        if (list_fits &&
            list.dropped() > job.recipe.memory_limit / kListFraction / dedup::ClusterList::kBytesOfDocument) {
          list_fits = false;
          list = {};
        }
      });
  job.files->remove_tree(scratch);
  PartIds ids(job, phase);
  const std::string& kind = job.recipe.stages[stage].kind;
  if (!list_fits) {
    log_warning(
        "{}: too many duplicates to list clusters within build.memory_limit; the audit lists each one", kind);
  }
  if (job.recipe.clusters && list_fits) {
    write_clusters(job, job.cluster_output(stage), list.largest(static_cast<size_t>(list.dropped())), ids);
  }
  RowStats row;
  row.stage = std::move(stats);
  row.alike = largest_of(list.largest(kReportedClusters), ids);
  write_file_atomically(*job.files, marker, to_json(row));
}

RowStats decided_stats(const BuildJob& job, size_t phase) {
  return row_from_json(read_file(marker_of(job, phase)));
}

}  // namespace strata::data
