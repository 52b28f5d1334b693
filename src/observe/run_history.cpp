#include "observe/run_history.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/clock.h"

namespace strata::observe {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

const MetricValue* field_of(const MetricsEvent& event, std::string_view name) {
  for (const MetricField& field : event.fields)
    if (field.name == name) return &field.value;
  return nullptr;
}

// A start or resume of the run: its time, and the running time before it.
struct Start {
  double time = 0;
  double before = 0;
};

std::vector<Start> starts_of(const MetricsTable& metrics) {
  std::vector<Start> starts;
  for (const MetricsEvent& event : metrics.events()) {
    const double time = number_of(event, "time");
    if ((event.event == "start" || event.event == "resume") && std::isfinite(time))
      starts.push_back({time, 0});
  }
  std::sort(starts.begin(), starts.end(), [](const Start& a, const Start& b) { return a.time < b.time; });
  // A start lasted until its last recorded time.
  std::vector<double> times(metrics.column("time").begin(), metrics.column("time").end());
  for (const MetricsEvent& event : metrics.events()) times.push_back(number_of(event, "time"));
  std::erase_if(times, [](double time) { return !std::isfinite(time); });
  std::sort(times.begin(), times.end());
  for (size_t i = 1; i < starts.size(); ++i) {
    const auto next = std::lower_bound(times.begin(), times.end(), starts[i].time);
    const double last = next == times.begin() ? starts[i - 1].time : *(next - 1);
    starts[i].before = starts[i - 1].before + std::max(0.0, last - starts[i - 1].time);
  }
  return starts;
}

double at_time(const std::vector<Start>& starts, double time) {
  const auto next = std::upper_bound(starts.begin(), starts.end(), time,
                                     [](double t, const Start& start) { return t < start.time; });
  return next == starts.begin() ? kUnknown : (next - 1)->before + time - (next - 1)->time;
}

std::string bytes_field(const MetricsEvent& event, const char* name) {
  const double bytes = number_of(event, name);
  return std::isfinite(bytes) ? human_bytes(bytes) : "";
}

// The fields of an event of another kind.
std::string field_list(const MetricsEvent& event) {
  std::string text;
  for (const auto& [name, value] : event.fields) {
    if (name == "time") continue;
    text += (text.empty() ? "" : ", ") + name + " ";
    if (const auto* number = std::get_if<double>(&value)) {
      text += fmt::format("{:.4g}", *number);
    } else {
      std::visit([&](const auto& held) { text += fmt::format("{}", held); }, value);
    }
  }
  return text;
}

std::string start_sentence(const MetricsEvent& event, const char* words) {
  std::string out = words;
  const double parameters = number_of(event, "parameters");
  if (std::isfinite(parameters)) out += fmt::format(", {} parameters", human_count(parameters));
  if (const std::string arena = bytes_field(event, "arena_bytes"); !arena.empty())
    out += fmt::format(", {} of memory planned", arena);
  if (const std::string program = text_of(event, "program"); !program.empty())
    out += fmt::format(" ({})", program);
  return out;
}

}  // namespace

double number_of(const MetricsEvent& event, std::string_view field) {
  const MetricValue* value = field_of(event, field);
  if (value == nullptr) return kUnknown;
  if (const auto* number = std::get_if<double>(value)) return *number;
  if (const auto* integer = std::get_if<int64_t>(value)) return static_cast<double>(*integer);
  return kUnknown;
}

std::string text_of(const MetricsEvent& event, std::string_view field) {
  const MetricValue* value = field_of(event, field);
  const auto* text = value != nullptr ? std::get_if<std::string>(value) : nullptr;
  return text != nullptr ? *text : "";
}

std::vector<double> running_seconds(const MetricsTable& metrics) {
  const std::vector<Start> starts = starts_of(metrics);
  const std::span<const double> times = metrics.column("time");
  std::vector<double> out(metrics.steps().size(), kUnknown);
  for (size_t i = 0; i < times.size(); ++i)
    if (std::isfinite(times[i])) out[i] = at_time(starts, times[i]);
  return out;
}

double elapsed_seconds(const MetricsTable& metrics, double now) {
  return at_time(starts_of(metrics), now);
}

std::string time_text(const MetricsEvent& event) {
  // Clocks and other tools can write any number; years beyond 9999 are not shown.
  constexpr double kEnd = 253'402'300'800;
  const double time = number_of(event, "time");
  if (!(time >= 0 && time < kEnd)) return "";
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::gmtime(static_cast<std::time_t>(time)));
}

std::string sentence_of(const MetricsEvent& event) {
  const std::string& kind = event.event;
  if (kind == "start") return start_sentence(event, "run started");
  if (kind == "resume")
    return start_sentence(event, fmt::format("resumed after step {}", event.at_step).c_str());
  if (kind == "save") {
    return fmt::format("checkpoint of step {}: {} in {:.1f} s", event.at_step, bytes_field(event, "bytes"),
                       number_of(event, "seconds"));
  }
  if (kind == "changed" || kind == "steered") {
    const auto shown = [&](const char* field) {
      const std::string text = text_of(event, field);
      return text.empty() ? std::string("unset") : text;
    };
    const std::string by = text_of(event, "by");
    return fmt::format("{}: {} → {}{}", text_of(event, "key"), shown("before"), shown("after"),
                       by.empty() ? "" : fmt::format(" (by {})", by));
  }
  if (kind == "branch")
    return fmt::format("branched from step {} of {}", event.at_step, text_of(event, "from"));
  if (kind == "reordered")
    return fmt::format("data order restarts at sample {:.0f}", number_of(event, "first_sample"));
  if (kind == "interrupt") return "stopped by the user; saved";
  if (kind == "time_limit") return "stopped by its time limit; saved";
  if (kind == "finish") return fmt::format("all {} steps are done", event.at_step);
  if (kind == "routing_collapse") {
    const std::string layers = text_of(event, "layers");
    return fmt::format(
        "routing has collapsed in layer{} {}: layer {} uses {:.1f} of {:.0f} experts, and {:.0f} have no "
        "token; a larger moe.aux_coef or moe.bias_rate, or a smaller optimizer.lr, may help "
        "(docs/experts.md)",
        layers.find(',') == layers.npos ? "" : "s", layers, number_of(event, "layer"),
        number_of(event, "experts_in_use"), number_of(event, "experts"), number_of(event, "dead_experts"));
  }
  if (kind == "diverged") {
    return fmt::format("loss {} and gradient norm {} are not finite", number_of(event, "loss"),
                       number_of(event, "grad_norm"));
  }
  return field_list(event);
}

}  // namespace strata::observe
