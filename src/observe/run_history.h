// The history of a run from its metrics: running time over all starts, and events.
#pragma once

#include <string>
#include <vector>

#include "observe/metrics.h"

namespace strata::observe {

// Running time in seconds at the end of each of steps(), without the time between a stop and the next start.
// NaN if the metrics have no time.
std::vector<double> running_seconds(const MetricsTable& metrics);
// Running time at `now` (Unix seconds), if the run is running.
double elapsed_seconds(const MetricsTable& metrics, double now);

// A field of an event; NaN or empty if it is missing.
double number_of(const MetricsEvent& event, std::string_view field);
std::string text_of(const MetricsEvent& event, std::string_view field);

// "2026-01-31 12:34:56" (UTC) of an event; empty if its time is unknown.
std::string time_text(const MetricsEvent& event);
// Describes an event: "checkpoint of step 200: 33.1 MB in 0.4 s".
std::string sentence_of(const MetricsEvent& event);

}  // namespace strata::observe
