#include <fmt/ranges.h>

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/version.h"
#include "data/build/finish.h"
#include "observe/chart.h"
#include "observe/markup.h"
#include "observe/run_page_assets.h"

namespace strata::data {
namespace {

using observe::escape_markup;

constexpr const char* kStyle = R"css(
table.num td:not(:first-child),table.num th:not(:first-child){text-align:right;font-variant-numeric:tabular-nums}
.share{display:inline-block;width:120px;height:10px;border-radius:5px;background:var(--line);overflow:hidden;vertical-align:middle}
.share i{display:block;height:100%;background:var(--c0)}
details{margin:6px 0}summary{cursor:pointer}
details pre{margin:6px 0 10px 14px;padding:8px 12px;border-left:3px solid var(--line)}
.bars{display:grid;grid-template-columns:repeat(auto-fill,minmax(300px,1fr));gap:16px}
.bars svg{display:block;width:100%;height:auto}.bars text{fill:var(--muted);font:11px system-ui,sans-serif}
.bars rect{fill:var(--c0)}.bars rect.out{fill:var(--c1)}.bars line{stroke:var(--bad);stroke-width:1.5}
.card{margin-bottom:16px}
)css";

std::string percent(int64_t part, int64_t whole) {
  return whole == 0 ? "–"
                    : fmt::format("{:.1f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string share_bar(int64_t part, int64_t whole) {
  const double width = whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  return fmt::format("<span class=\"share\"><i style=\"width:{:.1f}%\"></i></span>", width);
}

std::string row_name(const BuildJob& job, size_t row) {
  return row == 0 ? "read" : job.recipe.stages[row - 1].kind;
}

std::string tile(const std::string& name, const std::string& value) {
  return fmt::format("<div class=\"card tile\"><span class=\"muted small\">{}</span><b>{}</b></div>\n", name,
                     value);
}

std::string tiles(const BuildJob& job, const BuildStats& stats) {
  const int64_t in = stats.rows[0].documents_in, out = stats.rows.back().documents_out;
  std::string html = "<section class=\"tiles\">\n";
  html += tile("documents in", human_count(static_cast<double>(in)));
  html += tile("documents kept", human_count(static_cast<double>(out)));
  html += tile("kept", percent(out, in));
  html += tile("files read", human_bytes(static_cast<double>(stats.stored_bytes)));
  html += tile("text read", human_bytes(static_cast<double>(stats.rows[0].bytes_in)));
  html += tile("text kept", human_bytes(static_cast<double>(stats.rows.back().bytes_out)));
  if (job.tokenizer) {
    html += tile("tokens", human_count(static_cast<double>(stats.tokens)));
    if (stats.tokens > 0) {
      html += tile("bytes per token", fmt::format("{:.2f}", static_cast<double>(stats.rows.back().bytes_out) /
                                                                static_cast<double>(stats.tokens)));
    }
  }
  return html + "</section>\n";
}

std::string pipeline_table(const BuildJob& job, const BuildStats& stats) {
  std::string html =
      "<div class=\"card scroll\"><h2>What each stage kept</h2><table "
      "class=\"num\"><tr><th>stage</th><th>documents "
      "in</th><th>dropped</th><th></th><th>text in</th><th>text out</th></tr>\n";
  for (size_t row = 0; row < stats.rows.size(); ++row) {
    const RowStats& s = stats.rows[row];
    const int64_t dropped = s.documents_in - s.documents_out;
    html += fmt::format("<tr><td>{}</td><td>{}</td><td>{} ({})</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                        escape_markup(row_name(job, row)), s.documents_in, dropped,
                        percent(dropped, s.documents_in), share_bar(dropped, s.documents_in),
                        human_bytes(static_cast<double>(s.bytes_in)),
                        human_bytes(static_cast<double>(s.bytes_out)));
  }
  return html + "</table></div>\n";
}

std::string source_table(const BuildJob& job, const BuildStats& stats) {
  std::string html =
      "<div class=\"card scroll\"><h2>Sources</h2><table "
      "class=\"num\"><tr><th>source</th><th>weight</th><th>documents "
      "in</th><th>kept</th><th>text kept</th><th>tokens</th></tr>\n";
  for (size_t s = 0; s < stats.sources.size(); ++s) {
    const BuildStats::Kept& kept = stats.sources[s];
    html += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{} ({})</td><td>{}</td><td>{}</td></tr>\n",
                        escape_markup(job.recipe.sources[s].name), job.recipe.sources[s].weight,
                        kept.documents_in, kept.documents, percent(kept.documents, kept.documents_in),
                        human_bytes(static_cast<double>(kept.bytes)),
                        job.tokenizer ? human_count(static_cast<double>(kept.tokens)) : "–");
  }
  return html + "</table></div>\n";
}

// What texts spell out of special tokens.
std::string special_card(const BuildJob& job, const BuildStats& stats) {
  if (stats.special.empty()) return "";
  static constexpr const char* kBecame[] = {"the token itself", "plain letters", "refused"};
  std::string html = fmt::format(
      "<div class=\"card\"><h2>Special tokens spelled out in texts</h2>\n<table "
      "class=\"num\"><tr><th>token</th>"
      "<th>times</th><th>taken as</th></tr>\n");
  for (const auto& [name, count] : stats.special) {
    html += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td></tr>\n", escape_markup(name), count,
                        kBecame[static_cast<size_t>(job.recipe.tokens->special_in_text)]);
  }
  return html + "</table></div>\n";
}

// Bars from `counts`, with a mark at `mark` (0 to 1 of the width; negative: none).
std::string bars(const std::string& title, std::span<const int64_t> counts, const std::string& low,
                 const std::string& high, double mark, const std::string& mark_text) {
  const int64_t most = std::max<int64_t>(1, *std::max_element(counts.begin(), counts.end()));
  const double step = 300.0 / static_cast<double>(counts.size());
  std::string svg =
      fmt::format("<div><b class=\"small\">{}</b><svg viewBox=\"0 0 300 92\">", escape_markup(title));
  for (size_t b = 0; b < counts.size(); ++b) {
    if (counts[b] == 0) continue;
    const double height = std::max(1.0, 64.0 * static_cast<double>(counts[b]) / static_cast<double>(most));
    svg += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\"><title>{}</title></rect>",
        static_cast<double>(b) * step, 70 - height, step * 0.9, height, counts[b]);
  }
  if (mark >= 0 && mark <= 1) {
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"2\" y2=\"72\"/><text x=\"{1:.1f}\" y=\"11\" "
        "text-anchor=\"{2}\">{3}</text>",
        mark * 300, mark * 300 + (mark < 0.7 ? 4 : -4), mark < 0.7 ? "start" : "end",
        escape_markup(mark_text));
  }
  return svg + fmt::format(
                   "<text x=\"0\" y=\"86\">{}</text><text x=\"300\" y=\"86\" text-anchor=\"end\">{}</text>"
                   "</svg></div>\n",
                   escape_markup(low), escape_markup(high));
}

std::string lengths(const BuildStats& stats) {
  // Only the part of the axis that holds something.
  const auto used = [](const LengthHistogram& h) {
    size_t last = 0;
    for (size_t b = 0; b < LengthHistogram::kBins; ++b)
      if (h.bins[b] > 0) last = b + 1;
    return last;
  };
  const size_t count = std::max<size_t>(1, std::max(used(stats.lengths_in), used(stats.lengths_out)));
  const std::string high = human_bytes(static_cast<double>(uint64_t{1} << count));
  return "<div class=\"card\"><h2>Length of documents</h2><div class=\"bars\">" +
         bars("read", std::span(stats.lengths_in.bins).first(count), "1 B", high, -1, "") +
         bars("kept", std::span(stats.lengths_out.bins).first(count), "1 B", high, -1, "") +
         "</div><p class=\"muted small\">bytes; each range is twice the previous one</p></div>\n";
}

std::string examples(const DropReason& drop) {
  std::string html;
  for (const DropExample& e : drop.examples) {
    html += fmt::format("<pre>{} · {}:{}{}\n{}</pre>\n", escape_markup(e.id), escape_markup(e.file), e.line,
                        e.detail.empty() ? "" : " · " + escape_markup(e.detail), escape_markup(e.text));
  }
  return html;
}

std::string histograms(const StageStats& stage) {
  std::string html;
  for (size_t m = 0; m < stage.metrics().size(); ++m) {
    const MetricSpec& metric = stage.metrics()[m];
    const double mark = (metric.threshold - metric.low) / (metric.high - metric.low);
    html += bars(metric.name, stage.histograms()[m].bins, fmt::format("{:g}", metric.low),
                 fmt::format("{:g}", metric.high), mark,
                 fmt::format("{} {:g}", metric.keeps_above ? "kept from" : "kept up to", metric.threshold));
  }
  return html.empty() ? "" : "<div class=\"bars\">" + html + "</div>\n";
}

// The largest clusters of a deduplication.
std::string alike(const std::vector<AlikeDocuments>& clusters) {
  if (clusters.empty()) return "";
  std::string html =
      "<table class=\"num\"><tr><th>kept</th><th>documents alike</th><th>among them</th></tr>\n";
  for (const AlikeDocuments& one : clusters) {
    html += fmt::format("<tr><td>{}</td><td>{}</td><td>{}{}</td></tr>\n", escape_markup(one.kept), one.size,
                        escape_markup(fmt::format("{}", fmt::join(one.dropped, ", "))),
                        one.size - 1 > static_cast<int64_t>(one.dropped.size()) ? ", …" : "");
  }
  return html + "</table>\n";
}

std::string stage_card(const BuildJob& job, const BuildStats& stats, size_t row) {
  const RowStats& s = stats.rows[row];
  if (s.dropped.empty() && s.stage.metrics().empty() && s.stage.counters().empty()) return "";
  std::string html = "<div class=\"card\"><h2>" + escape_markup(row_name(job, row)) + "</h2>\n";
  std::vector<std::pair<std::string, const DropReason*>> reasons;
  for (const auto& [reason, drop] : s.dropped) reasons.emplace_back(reason, &drop);
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const auto& a, const auto& b) { return a.second->documents > b.second->documents; });
  for (const auto& [reason, drop] : reasons) {
    html += fmt::format(
        "<details><summary>{} <b>{}</b> · {} · {}</summary>{}</details>\n",
        share_bar(drop->documents, s.documents_in), escape_markup(reason),
        fmt::format("{} documents ({})", drop->documents, percent(drop->documents, s.documents_in)),
        human_bytes(static_cast<double>(drop->bytes)), examples(*drop));
  }
  if (!s.stage.counters().empty()) {
    html += "<table class=\"num\">";
    for (const auto& [name, count] : s.stage.counters())
      html += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", escape_markup(name), count);
    html += "</table>\n";
  }
  return html + alike(s.alike) + histograms(s.stage) + "</div>\n";
}

}  // namespace

std::string report_html(const BuildJob& job, const BuildStats& stats) {
  const std::string name =
      job.recipe.file.empty() ? job.recipe.folder.filename().string() : job.recipe.file.filename().string();
  std::string html =
      "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><title>Data build: " +
      escape_markup(name) + "</title><style>" + observe::chart_style() + observe::kPageStyle + kStyle +
      "</style></head><body><main>\n<header><h1>Data build: " + escape_markup(name) +
      "</h1><span class=\"muted small\">strata " + std::string(program_version()) + "</span></header>\n";
  html += tiles(job, stats) + pipeline_table(job, stats) + source_table(job, stats) +
          special_card(job, stats) + lengths(stats);
  for (size_t row = 0; row < stats.rows.size(); ++row) html += stage_card(job, stats, row);
  return html + "</main></body></html>\n";
}

}  // namespace strata::data
