#include "library/step_sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "config/layout.h"
#include "config/resolve.h"
#include "library/schedule_times.h"
#include "observe/chart.h"
#include "observe/markup.h"
#include "observe/run_page_assets.h"
#include "parallel/draw.h"

namespace strata::library {
namespace {

using graph::Axis;
using observe::escape_markup;
using Json = nlohmann::ordered_json;

struct Part {
  std::string name;
  double value = 0;
};

// A bar of parts, as wide as the largest of all bars.
std::string bar_of(const std::vector<Part>& parts, double whole, const std::string& unit, double scale) {
  std::string out = "<div class=\"stack\">";
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].value <= 0) continue;
    out += fmt::format("<i style=\"width:{:.3f}%;background:{}\" title=\"{}: {:.4g} {}\"></i>",
                       100 * parts[i].value / whole, observe::share_color(i), escape_markup(parts[i].name),
                       parts[i].value / scale, unit);
  }
  return out + "</div>";
}

std::string keys_of(const std::vector<Part>& parts, const std::string& unit, double scale) {
  double total = 0;
  for (const Part& part : parts) total += part.value;
  std::string out = "<div class=\"keys\">";
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].value <= 0) continue;
    out += fmt::format(
        "<span><i class=\"swatch\" style=\"background:{}\"></i>{}<em>{:.4g} {} &middot; {:.1f}%</em></span>\n",
        observe::share_color(i), escape_markup(parts[i].name), parts[i].value / scale, unit,
        100 * parts[i].value / total);
  }
  return out + "</div>";
}

// One bar for each place, and the key of the place with the largest.
std::string bars(const Simulation& step, const std::vector<std::vector<Part>>& places,
                 const std::string& unit, double scale) {
  double whole = 0;
  size_t largest = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    double total = 0;
    for (const Part& part : places[i]) total += part.value;
    if (total > whole) {
      whole = total;
      largest = i;
    }
  }
  std::string out;
  for (size_t i = 0; i < places.size(); ++i) {
    double total = 0;
    for (const Part& part : places[i]) total += part.value;
    out += fmt::format(
        "<div class=\"row\"><span>{}</span>{}<em>{:.4g} {}</em></div>\n",
        places.size() > 1 ? fmt::format("rank {}", step.rank_of(static_cast<int32_t>(i))) : "every rank",
        bar_of(places[i], whole, unit, scale), total / scale, unit);
  }
  if (places.size() > 1)
    out += fmt::format("<p class=\"muted small\">Rank {}, the longest bar:</p>",
                       step.rank_of(static_cast<int32_t>(largest)));
  return out + keys_of(places[largest], unit, scale);
}

// As part of a URI of a picture.
std::string percent_encoded(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                       std::string_view(" -_.:;,/=()'+").find(c) != std::string_view::npos;
    if (plain) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

const char* work_of(Axis axis) {
  switch (axis) {
    case Axis::kPipeline:
      return "layers";
    case Axis::kReplicate:
      return "sequences of a batch";
    case Axis::kShard:
      return "sequences of a batch, and the state (ZeRO)";
    case Axis::kContext:
      return "tokens of a sequence";
    case Axis::kTensor:
      return "rows and columns of weights";
  }
  return "";
}

std::string coordinates_text(const graph::Mesh& mesh, const graph::Coordinates& at) {
  std::string out;
  for (const Axis axis : graph::kAllAxes) {
    if (mesh.size(axis) > 1) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name_of(axis), at[axis]);
  }
  return out;
}

// The hosts of each place, as rows of squares, one for each rank; ranks that work on the same sequences have one colour.
std::string hosts_drawing(const graph::Mesh& mesh, int64_t devices_per_host) {
  constexpr int64_t kPlaces = 16, kDevices = 64;
  constexpr double kCell = 13, kGap = 8, kLeft = 92, kRow = 24;
  const int64_t ranks = mesh.ranks(), places = mesh.size(Axis::kPipeline), each = ranks / places;
  const int64_t shown_places = std::min(places, kPlaces), shown = std::min(each, kDevices);
  const int64_t host = std::max<int64_t>(1, devices_per_host);
  const int64_t gaps = shown / host + 1;
  const double width = kLeft + static_cast<double>(shown) * kCell + static_cast<double>(gaps) * kGap + 60;
  const double height = static_cast<double>(shown_places) * kRow + 8;
  std::string out = fmt::format(
      "<svg class=\"chart\" viewBox=\"0 0 {0:.0f} {1:.0f}\" style=\"max-width:{0:.0f}px\" role=\"img\">\n",
      width, height);
  for (int64_t place = 0; place < shown_places; ++place) {
    const double y = 4 + static_cast<double>(place) * kRow;
    if (places > 1)
      out += fmt::format("<text x=\"4\" y=\"{:.1f}\" font-size=\"11\" fill=\"currentColor\">place {}</text>",
                         y + 13, place);
    for (int64_t i = 0; i < shown; ++i) {
      const int64_t rank = place * each + i;
      const graph::Coordinates at = mesh.coordinates(rank);
      const int64_t batch =
          (at[Axis::kReplicate] * mesh.size(Axis::kShard) + at[Axis::kShard]) * mesh.size(Axis::kContext) +
          at[Axis::kContext];
      const int64_t hosts_before = i / host;
      const double x = kLeft + static_cast<double>(i) * kCell + static_cast<double>(hosts_before) * kGap;
      out += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"16\" rx=\"2\" fill=\"{}\"><title>rank {}: "
          "{}</title></rect>",
          x, y, kCell - 2, observe::share_color(static_cast<size_t>(batch)), rank,
          coordinates_text(mesh, at));
    }
    if (each > shown)
      out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"11\" fill=\"currentColor\">+ {}</text>",
                         width - 52, y + 13, each - shown);
    out += "\n";
  }
  out += "</svg>";
  if (places > shown_places)
    out += fmt::format("<p class=\"muted small\">and {} more places</p>", places - shown_places);
  return out;
}

void add_figure(std::vector<std::vector<std::string>>& rows, const std::string& name,
                const hardware::Figure& figure, double unit, const char* unit_name) {
  if (!figure.known()) return;
  rows.push_back({name, fmt::format("{:.4g} {}", figure.value / unit, unit_name), figure.source,
                  std::string(to_string(figure.evidence))});
}

}  // namespace

std::string time_text(double seconds) {
  return seconds < 1 ? fmt::format("{:.4g} ms", 1e3 * seconds) : fmt::format("{:.4g} s", seconds);
}

std::string section(const Card& card) {
  return fmt::format("<section class=\"card{}\"><h2>{}</h2>{}</section>\n", card.wide ? " wide" : "",
                     escape_markup(card.title), card.content);
}

std::string html_table(const std::vector<std::vector<std::string>>& rows) {
  std::string out = "<div class=\"scroll\"><table>";
  for (size_t i = 0; i < rows.size(); ++i) {
    out += "<tr>";
    for (const std::string& cell : rows[i])
      out += fmt::format("<{0}>{1}</{0}>", i == 0 ? "th" : "td", escape_markup(cell));
    out += "</tr>\n";
  }
  return out + "</table></div>";
}

std::string page_of(const std::string& title, const std::string& subtitle, const std::string& sections) {
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>" +
         escape_markup(title) + "</title>\n<style>" + observe::chart_style() + observe::kPageStyle +
         "</style></head>\n<body><main>\n<header><h1>" + escape_markup(title) +
         "</h1></header>\n<p class=\"muted\">" + escape_markup(subtitle) + "</p>\n<div class=\"grid\">\n" +
         sections + "</div>\n</main></body></html>\n";
}

std::string ranks_section(const Simulation& step, int64_t devices_per_host) {
  const graph::Mesh mesh = config::mesh_of(step.plan().config);
  std::vector<std::vector<std::string>> rows{{"axis", "ranks", "apart", "crosses", "divides"}};
  for (const Axis axis : graph::kAllAxes) {
    const int64_t size = mesh.size(axis);
    if (size == 1) continue;
    graph::Coordinates second{};
    second[axis] = 1;
    const hardware::Group group{size, mesh.rank_at(second)};
    const hardware::LinkLevel* link = hardware::outermost(step.machine().links, group);
    rows.push_back({std::string(name_of(axis)), fmt::format("{}", size), fmt::format("{}", group.stride),
                    link != nullptr ? link->name : "", work_of(axis)});
  }
  const int64_t expert = step.plan().config.parallel.expert;
  if (expert > 1)
    rows.push_back({"expert", fmt::format("{}", expert), "", "", "experts, over ranks of the axes above"});
  std::string content = rows.size() == 1 ? "<p>One rank.</p>" : html_table(rows);
  if (mesh.ranks() > 1) {
    content += hosts_drawing(mesh, devices_per_host);
    content += fmt::format(
        "<p class=\"muted small\">Gaps separate hosts of {}. Ranks of one colour in a row work on the same "
        "sequences.</p>",
        devices_per_host);
  }
  return section({"Ranks on the hosts", content, true});
}

std::string time_section(const Simulation& step) {
  std::vector<std::vector<Part>> places;
  for (const program::PricedRank& rank : step.price().ranks) {
    std::vector<Part> parts{{"kernels", rank.computing}};
    double known = rank.computing + rank.bubble;
    for (const Axis axis : graph::kAllAxes) {
      parts.push_back({fmt::format("waits for the {} axis", name_of(axis)), rank.exposed[axis]});
      known += rank.exposed[axis];
    }
    parts.push_back({"waits for rows of experts", rank.exposed_experts});
    parts.push_back({"waits for other places (bubble)", rank.bubble});
    known += rank.exposed_experts;
    const double rest = step.seconds() - known;
    parts.push_back({"the slowest place is not done", rest > 1e-6 * step.seconds() ? rest : 0});
    places.push_back(std::move(parts));
  }
  const Json mfu = step.json()["mfu"];
  std::vector<std::vector<std::string>> rows{{"MFU counts", "of the dense peak"}};
  for (const auto& [convention, value] : mfu.items())
    rows.push_back({convention, fmt::format("{:.1f} %", 100 * value.get<double>())});
  return section({fmt::format("Where a step's time goes: {}", time_text(step.seconds())),
                  step.seconds() < 1 ? bars(step, places, "ms", 1e-3) : bars(step, places, "s", 1), true}) +
         (rows.size() > 1 ? section({"Model FLOPs utilisation", html_table(rows)}) : "");
}

std::string memory_section(const Simulation& step) {
  const Json all = step.json();
  std::vector<std::vector<Part>> places;
  for (const Json& rank : all["ranks"]) {
    std::vector<Part> parts;
    for (const auto& [category, bytes] : rank["memory"].items())
      parts.push_back({category, bytes.get<double>()});
    places.push_back(std::move(parts));
  }
  const auto budget = static_cast<double>((*step.plan().config.memory.budget).count);
  const auto most = static_cast<double>(step.fullest_bytes());
  return section({fmt::format("Memory of a rank: {:.4g} of {:.4g} GB{}", most / 1e9, budget / 1e9,
                              most > budget ? ", which does not fit" : ""),
                  bars(step, places, "GB", 1e9), true});
}

std::string timeline_section(const Simulation& step) {
  constexpr size_t kMostActions = 6000;
  const parallel::Schedule schedule = schedule_of(*step.places().front());
  size_t actions = 0;
  for (const auto& rank : schedule.ranks) actions += rank.size();
  std::string content;
  if (actions > kMostActions) {
    content = fmt::format(
        "<p>{} actions are too many to draw; strata simulate --trace FILE writes them for ui.perfetto.dev.</p>",
        actions);
  } else {
    const std::string drawing =
        draw_svg(schedule, expected_times(step.places(), step.machine()), {.unit = " ms"});
    content =
        "<div class=\"scroll\"><img alt=\"the actions of each place in time\" src=\"data:image/svg+xml," +
        percent_encoded(drawing) + "\"></div>";
  }
  return section({"Timeline, without the update", content, true});
}

std::string sources_section(const Simulation& step, const hardware::ClusterSpec* cluster) {
  std::vector<std::vector<std::string>> rows{{"figure", "value", "source", "known by"}};
  if (cluster == nullptr) {
    const hardware::DeviceSpec& device = step.machine().device;
    const auto add = [&](const char* name, double value, const char* unit) {
      rows.push_back({name, fmt::format("{:.4g} {}", value, unit), device.source,
                      device.source == "measured" ? device.date : ""});
    };
    add("fp32 GEMM", device.gemm_flops[hardware::Precision::kFp32] / 1e9, "GFLOP/s");
    add("bf16 GEMM", device.gemm_flops[hardware::Precision::kBf16] / 1e9, "GFLOP/s");
    add("memory bandwidth", device.memory_bytes_per_s / 1e9, "GB/s");
    add("between ranks", device.exchange_bytes_per_s / 1e9, "GB/s");
    return section({"Assumptions: " + device.name, html_table(rows), true});
  }
  const hardware::ChipSpec& chip = cluster->chip;
  for (const hardware::Precision precision : hardware::kAllPrecisions) {
    if (chip.peak[precision].value <= 0) continue;
    add_figure(rows, fmt::format("{} peak", to_string(precision)), chip.peak[precision], 1e12, "TFLOP/s");
    add_figure(rows, fmt::format("{} of the peak, large GEMMs", to_string(precision)),
               chip.achievable[precision], 0.01, "%");
  }
  add_figure(rows, "memory", chip.memory, 1e9, "GB");
  add_figure(rows, "memory bandwidth", chip.memory_bandwidth, 1e9, "GB/s");
  add_figure(rows, "of it, streams", chip.memory_achievable, 0.01, "%");
  add_figure(rows, "launch of a kernel", chip.launch, 1e-6, "us");
  for (const hardware::LinkLevel& link : cluster->links) {
    const std::string size =
        link.size == hardware::LinkLevel::kAll ? "all" : fmt::format("{} devices", link.size);
    add_figure(rows, fmt::format("{} ({})", link.name, size), link.bandwidth, 1e9, "GB/s a device");
    add_figure(rows, link.name + ", large messages", link.achievable, 0.01, "%");
    add_figure(rows, link.name + ", start of a collective", link.startup, 1e-6, "us");
    add_figure(rows, link.name + ", a hop", link.latency, 1e-6, "us");
  }
  return section({"Assumptions: " + cluster->title, html_table(rows), true});
}

std::string cost_section(double hours, int64_t devices, const std::vector<planning::Price>& prices) {
  const double device_hours = hours * static_cast<double>(devices);
  if (prices.empty())
    return section(
        {"Cost", fmt::format("<p>{:.4g} device hours. No price of these devices is known; [[price]] in a "
                             "cluster file adds one.</p>",
                             device_hours)});
  std::vector<std::vector<std::string>> rows{{"provider", "terms", "a device hour", "the run", "date"}};
  for (const planning::Price& price : prices) {
    const auto range = [](double low, double high) {
      return low == high ? fmt::format("${:.4g}", low) : fmt::format("${:.4g} to {:.4g}", low, high);
    };
    rows.push_back({price.provider + (price.region.empty() ? "" : ", " + price.region),
                    std::string(to_string(price.terms)), range(price.low, price.high),
                    fmt::format("${}", human_count(price.low * device_hours)), price.date});
  }
  return section(
      {fmt::format("Cost of {} device hours", human_count(device_hours)),
       html_table(rows) +
           "<p class=\"muted small\">Useful hours only: without failures, saves, other runs and idle "
           "devices (strata scale --cluster adds them).</p>",
       true});
}

std::string simulation_page(const Simulation& step, const hardware::ClusterSpec* cluster,
                            const std::vector<planning::Price>& prices) {
  const config::RunConfig& config = step.plan().config;
  const int64_t ranks = config::mesh_of(config).ranks();
  const auto step_tokens =
      static_cast<double>(config.training.global_batch_size * config.training.sequence_length);
  const double steps = config.training.tokens ? static_cast<double>(*config.training.tokens) / step_tokens
                                              : static_cast<double>(config.training.steps);
  const std::string subtitle = fmt::format(
      "A step of {} sequences of {} tokens on {} ranks of {}; 90 % interval {} to {}; {:.0f} steps take {}",
      config.training.global_batch_size, config.training.sequence_length, ranks,
      cluster != nullptr ? cluster->title : step.machine().device.name, time_text(step.low()),
      time_text(step.high()), steps, human_duration(steps * step.seconds()));
  return page_of(fmt::format("Predicted: {} a step", time_text(step.seconds())), subtitle,
                 ranks_section(step, cluster != nullptr ? cluster->devices_per_host : ranks) +
                     time_section(step) + memory_section(step) + timeline_section(step) +
                     (cluster != nullptr ? cost_section(steps * step.seconds() / 3600, ranks, prices) : "") +
                     sources_section(step, cluster));
}

}  // namespace strata::library
