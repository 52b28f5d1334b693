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

constexpr size_t kLargest = 10;     // clusters that the report shows
constexpr size_t kNamed = 5;        // dropped documents of each that it names
constexpr int64_t kListShare = 16;  // of the memory limit, for the list of clusters

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
    char before = '[';
    line += ",\"dropped\":";
    for (const DocumentNumber& dropped : cluster.dropped) {
      line += std::exchange(before, ',');
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
    AlikeDocuments& one = largest.emplace_back();
    one.size = static_cast<int64_t>(cluster.dropped.size()) + 1;
    one.kept = ids(cluster.kept).text;
    for (size_t i = 0; i < std::min(kNamed, cluster.dropped.size()); ++i)
      one.dropped.emplace_back(ids(cluster.dropped[i]).text);
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
  bool listed = true;
  corpus.decide(
      {.records = records, .scratch = scratch, .memory_limit = job.recipe.memory_limit, .files = job.files},
      stats, [&](uint32_t part, std::span<const Decision> decisions) {
        write_decisions(*job.files, job.part_file(phase, part, "decisions"), decisions);
        if (listed) list.add(part, decisions);
        if (listed &&
            list.dropped() > job.recipe.memory_limit / kListShare / dedup::ClusterList::kBytesOfDocument) {
          listed = false;
          list = {};
        }
      });
  job.files->remove_tree(scratch);
  PartIds ids(job, phase);
  const std::string& kind = job.recipe.stages[stage].kind;
  if (!listed) {
    log_warning("{}: there are too many duplicates for build.memory_limit to list them; the audit names each",
                kind);
  }
  if (job.recipe.clusters && listed) {
    write_clusters(job, job.cluster_output(stage), list.largest(static_cast<size_t>(list.dropped())), ids);
  }
  RowStats row;
  row.stage = std::move(stats);
  row.alike = largest_of(list.largest(kLargest), ids);
  write_file_atomically(*job.files, marker, to_json(row));
}

RowStats decided_stats(const BuildJob& job, size_t phase) {
  return row_from_json(read_file(marker_of(job, phase)));
}

}  // namespace strata::data
