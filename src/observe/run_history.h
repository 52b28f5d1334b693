// What the metrics of a run tell about its course: how long it ran, over all its starts, and what happened.
#pragma once

#include <string>
#include <vector>

#include "observe/metrics.h"

namespace strata::observe {

// Seconds that the run had been running when each step ended: the time between a stop and the next start does
// not count. One for each of steps(); NaN where the metrics hold no times.
std::vector<double> running_seconds(const MetricsTable& metrics);
// The same at `now` (unix seconds), in the run's last start.
double elapsed_seconds(const MetricsTable& metrics, double now);

// The field of an event; NaN, or empty, where it has none.
double number_of(const MetricsEvent& event, std::string_view field);
std::string text_of(const MetricsEvent& event, std::string_view field);

// "2026-01-31 12:34:56" (UTC) of an event; empty where its time is not known.
std::string time_text(const MetricsEvent& event);
// An event in words: "checkpoint of step 200: 33.1 MB in 0.4 s".
std::string sentence_of(const MetricsEvent& event);

}  // namespace strata::observe
