#include "observe/plot.h"

#include <algorithm>

namespace strata::observe {
namespace {

std::vector<double> x_values(const MetricsTable& metrics, std::string_view x) {
  if (x == "step") return {metrics.steps().begin(), metrics.steps().end()};
  const auto column = metrics.column(x);
  return {column.begin(), column.end()};
}

size_t smoothing_window(size_t points) {
  return std::clamp<size_t>(points / 40, 5, 1000);
}

std::vector<double> copy_of(std::span<const double> values) {
  return {values.begin(), values.end()};
}

}  // namespace

Chart loss_chart(const MetricsTable& metrics, std::string_view x, const std::string& title) {
  Chart chart{.title = title, .x_label = std::string(x), .lines = {}};
  const std::vector<double> xs = x_values(metrics, x);
  const std::span<const double> loss = metrics.column("loss");
  constexpr size_t kEnoughToSmooth = 20;
  if (loss.size() < kEnoughToSmooth) {
    chart.lines.push_back({"training", xs, copy_of(loss), 0, ChartLine::Look::kLine});
  } else {
    chart.lines.push_back({"", xs, copy_of(loss), 0, ChartLine::Look::kFaint});
    chart.lines.push_back(
        {"training", xs, smoothed(loss, smoothing_window(loss.size())), 0, ChartLine::Look::kLine});
  }
  if (const MetricsTable::Undone& undone = metrics.undone(); x == "step" && !undone.steps.empty())
    chart.lines.push_back({"undone", undone.steps, undone.loss, 3, ChartLine::Look::kLine});
  int color = 1;
  for (const std::string& name : metrics.names()) {
    if (!name.starts_with("eval/") || !name.ends_with("/loss")) continue;
    const std::string set = name.substr(5, name.size() - 10);
    chart.lines.push_back({set, xs, copy_of(metrics.column(name)), color, ChartLine::Look::kDots});
    color = color == 3 ? 1 : color + 1;
  }
  return chart;
}

Chart task_chart(const MetricsTable& metrics) {
  Chart chart{.title = "Tasks, %", .x_label = "step", .lines = {}, .width = 540, .height = 230};
  int color = 1;
  for (const std::string& name : metrics.names()) {
    if (!name.starts_with("eval/") || !(name.ends_with("/acc") || name.ends_with("/acc_norm"))) continue;
    std::vector<double> percent = copy_of(metrics.column(name));
    for (double& y : percent) y *= 100;
    chart.lines.push_back(
        {name.substr(5), x_values(metrics, "step"), std::move(percent), color, ChartLine::Look::kDots});
    color = color == 3 ? 1 : color + 1;
  }
  return chart;
}

Chart metric_chart(const MetricsTable& metrics, std::string_view column, const std::string& title) {
  Chart chart{.title = title, .x_label = "step", .lines = {}, .width = 540, .height = 230};
  const std::span<const double> values = metrics.column(column);
  chart.lines.push_back({"", x_values(metrics, "step"), copy_of(values), 0, ChartLine::Look::kLine});
  return chart;
}

void write_loss_svg(FileSystem& files, const Path& path, const MetricsTable& metrics,
                    const std::string& title) {
  write_file_atomically(files, path, draw_chart(loss_chart(metrics, "step", title), /*standalone=*/true));
}

}  // namespace strata::observe
