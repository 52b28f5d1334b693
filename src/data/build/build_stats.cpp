#include "data/build/build_stats.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/json.h"

namespace strata::data {
namespace {

using Json = nlohmann::ordered_json;

Json to_value(const RowStats& row) {
  Json dropped = Json::object();
  for (const auto& [reason, drop] : row.dropped) {
    Json examples = Json::array();
    for (const DropExample& e : drop.examples)
      examples.push_back(
          {{"id", e.id}, {"file", e.file}, {"line", e.line}, {"detail", e.detail}, {"text", e.text}});
    dropped[reason] = {
        {"documents", drop.documents}, {"bytes", drop.bytes}, {"examples", std::move(examples)}};
  }
  Json alike = Json::array();
  for (const AlikeDocuments& one : row.alike)
    alike.push_back({{"size", one.size}, {"kept", one.kept}, {"dropped", one.dropped}});
  return {{"documents_in", row.documents_in}, {"documents_out", row.documents_out},
          {"bytes_in", row.bytes_in},         {"bytes_out", row.bytes_out},
          {"dropped", std::move(dropped)},    {"stage", parse_json<Json>(row.stage.to_json())},
          {"clusters", std::move(alike)}};
}

RowStats row_of(const Json& in) {
  RowStats row;
  in.at("documents_in").get_to(row.documents_in);
  in.at("documents_out").get_to(row.documents_out);
  in.at("bytes_in").get_to(row.bytes_in);
  in.at("bytes_out").get_to(row.bytes_out);
  for (const auto& [reason, drop] : in.at("dropped").items()) {
    DropReason& to = row.dropped[reason];
    drop.at("documents").get_to(to.documents);
    drop.at("bytes").get_to(to.bytes);
    for (const Json& e : drop.at("examples")) {
      to.examples.push_back({e.at("id").get<std::string>(), e.at("file").get<std::string>(),
                             e.at("detail").get<std::string>(), e.at("text").get<std::string>(),
                             e.at("line").get<int64_t>()});
    }
  }
  row.stage = StageStats::from_json(dump_json(in.at("stage")));
  for (const Json& one : in.at("clusters")) {
    row.alike.push_back({one.at("size").get<int64_t>(), one.at("kept").get<std::string>(),
                         one.at("dropped").get<std::vector<std::string>>()});
  }
  return row;
}

// `read` makes a T of what a build wrote.
template <typename T>
T parsed(std::string_view text, T (*read)(const Json&)) {
  try {
    return read(parse_json<Json>(text));
  } catch (const Json::exception& error) {
    throw DataError(
        "[build statistics] found {}, expected what a build wrote; remove the build's work folder",
        error.what());
  }
}

// Snippets are cut at characters and readers refuse bad UTF-8, but ids and details may hold anything.
std::string dumped(const Json& json) {
  return dump_json(json, -1, InvalidUtf8::kReplace);
}

BuildStats stats_of(const Json& in) {
  BuildStats out;
  in.at("stored_bytes").get_to(out.stored_bytes);
  in.at("tokens").get_to(out.tokens);
  if (in.contains("special_in_text")) in.at("special_in_text").get_to(out.special);
  for (const Json& row : in.at("rows")) out.rows.push_back(row_of(row));
  in.at("lengths_in").get_to(out.lengths_in.bins);
  in.at("lengths_out").get_to(out.lengths_out.bins);
  for (const Json& kept : in.at("sources")) {
    out.sources.push_back({kept.at("documents_in").get<int64_t>(), kept.at("documents").get<int64_t>(),
                           kept.at("bytes").get<int64_t>(), kept.at("tokens").get<int64_t>()});
  }
  for (const Json& pair : in.at("input_hashes"))
    out.input_hashes.emplace(pair.at(0).get<int32_t>(), pair.at(1).get<uint64_t>());
  return out;
}

}  // namespace

std::string to_json(const RowStats& row) {
  return dumped(to_value(row));
}
RowStats row_from_json(std::string_view json) {
  return parsed(json, row_of);
}

void LengthHistogram::record(size_t bytes) {
  const size_t bin = bytes == 0 ? 0 : static_cast<size_t>(std::bit_width(bytes)) - 1;
  ++bins[std::min(bin, kBins - 1)];
}

void BuildStats::drop(size_t row, std::string_view reason, int64_t bytes, DropExample&& example) {
  auto found = rows[row].dropped.find(reason);
  if (found == rows[row].dropped.end()) found = rows[row].dropped.emplace(reason, DropReason{}).first;
  ++found->second.documents;
  found->second.bytes += bytes;
  if (found->second.examples.size() < kExamples) found->second.examples.push_back(std::move(example));
}

void BuildStats::add(const BuildStats& other) {
  stored_bytes += other.stored_bytes;
  tokens += other.tokens;
  for (const auto& [name, count] : other.special) special[name] += count;
  rows.resize(std::max(rows.size(), other.rows.size()));
  for (size_t r = 0; r < other.rows.size(); ++r) {
    RowStats& to = rows[r];
    const RowStats& from = other.rows[r];
    to.documents_in += from.documents_in;
    to.documents_out += from.documents_out;
    to.bytes_in += from.bytes_in;
    to.bytes_out += from.bytes_out;
    for (const auto& [reason, drop] : from.dropped) {
      DropReason& sum = to.dropped[reason];
      sum.documents += drop.documents;
      sum.bytes += drop.bytes;
      for (const DropExample& example : drop.examples)
        if (sum.examples.size() < kExamples) sum.examples.push_back(example);
    }
    to.stage.add(from.stage);
    to.alike.insert(to.alike.end(), from.alike.begin(), from.alike.end());
  }
  for (size_t b = 0; b < LengthHistogram::kBins; ++b) {
    lengths_in.bins[b] += other.lengths_in.bins[b];
    lengths_out.bins[b] += other.lengths_out.bins[b];
  }
  sources.resize(std::max(sources.size(), other.sources.size()));
  for (size_t s = 0; s < other.sources.size(); ++s) {
    sources[s].documents_in += other.sources[s].documents_in;
    sources[s].documents += other.sources[s].documents;
    sources[s].bytes += other.sources[s].bytes;
    sources[s].tokens += other.sources[s].tokens;
  }
  // The chunks of a file are in order: its hash is the hash of their hashes in that order.
  for (const auto& [file, hash] : other.input_hashes) {
    const auto [at, is_new] = input_hashes.emplace(file, hash);
    if (!is_new) at->second = at->second * 0x9E3779B97F4A7C15u + hash;
  }
}

std::string BuildStats::to_json() const {
  Json out;
  out["stored_bytes"] = stored_bytes;
  out["tokens"] = tokens;
  out["special_in_text"] = special;
  out["rows"] = Json::array();
  for (const RowStats& row : rows) out["rows"].push_back(to_value(row));
  out["lengths_in"] = lengths_in.bins;
  out["lengths_out"] = lengths_out.bins;
  out["sources"] = Json::array();
  for (const Kept& kept : sources) {
    out["sources"].push_back({{"documents_in", kept.documents_in},
                              {"documents", kept.documents},
                              {"bytes", kept.bytes},
                              {"tokens", kept.tokens}});
  }
  out["input_hashes"] = Json::array();
  for (const auto& [file, hash] : input_hashes) out["input_hashes"].push_back({file, hash});
  return dumped(out);
}

BuildStats BuildStats::from_json(std::string_view text) {
  return parsed(text, stats_of);
}

}  // namespace strata::data
