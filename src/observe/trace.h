// Timelines for chrome://tracing and ui.perfetto.dev (the Trace Event Format, complete events).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/file.h"

namespace strata::observe {

struct TraceEvent {
  std::string name, category;
  double start_us = 0, duration_us = 0;
  int64_t thread = 0;
};

// process: the name shown above the threads. thread_names[i] names thread i; later threads have no name.
std::string trace_json(std::span<const TraceEvent> events, const std::string& process,
                       std::span<const std::string> thread_names = {});
void write_trace(FileSystem& files, const Path& path, std::span<const TraceEvent> events,
                 const std::string& process, std::span<const std::string> thread_names = {});

}  // namespace strata::observe
