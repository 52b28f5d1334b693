// The curves of a run: loss.svg, and the charts of the run page.
#pragma once

#include <string>
#include <string_view>

#include "base/file.h"
#include "observe/chart.h"
#include "observe/metrics.h"

namespace strata::observe {

// Training loss (raw faint, smoothed bold) and every "eval/…/loss" as points. x: "step" or a column such as
// "tokens".
Chart loss_chart(const MetricsTable& metrics, std::string_view x, const std::string& title);
// Every "eval/…/acc" and "eval/…/acc_norm", in percent.
Chart task_chart(const MetricsTable& metrics);
// A column over the steps, without a legend.
Chart metric_chart(const MetricsTable& metrics, std::string_view column, const std::string& title);

void write_loss_svg(FileSystem& files, const Path& path, const MetricsTable& metrics,
                    const std::string& title);

}  // namespace strata::observe
