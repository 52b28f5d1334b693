#include "launch/failure.h"

#include <charconv>

namespace strata::launch {
namespace {

// The text after `mark`; empty: it does not occur.
std::string_view after(std::string_view text, std::string_view mark) {
  const size_t at = text.find(mark);
  return at == std::string_view::npos ? std::string_view() : text.substr(at + mark.size());
}

std::string_view until(std::string_view text, std::string_view mark) {
  return text.substr(0, text.find(mark));
}

std::optional<int64_t> leading_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  return value;
}

std::optional<int64_t> number_after(std::string_view text, std::string_view mark) {
  return leading_number(after(text, mark));
}

std::string_view line_at(std::string_view text, std::string_view mark) {
  return until(after(text, mark), "\n");
}

// "[comm] gather of layer 2, number 51 of group 'shard': ranks 0 and 2 have waited 1800.0 s for rank 1. Rank 1: doing step
// 17, F0; last collective: sum of gradients (16.8 MB, number 50 of group 'shard'), …"
void read_watchdog(std::string_view output, FailureText& to) {
  const std::string_view line = line_at(output, "[comm] ");
  if (line.empty()) return;
  const bool is_gone =
      line.starts_with("rank ") && line.find(" is stopped or gone") != std::string_view::npos;
  if (is_gone) {
    to.missing_rank = number_after(line, "rank ");
  } else {
    to.missing_rank = number_after(line, " s for rank ");
    if (!to.missing_rank) to.missing_rank = number_after(line, " s for ranks ");
    if (!to.missing_rank && line.find(" has ended without it") != std::string_view::npos)
      to.missing_rank = number_after(line, ": rank ");
    if (line.find(", number ") != std::string_view::npos) to.collective = until(line, ", number ");
  }
  if (!to.missing_rank) return;
  const std::string_view report = after(line, "Rank " + std::to_string(*to.missing_rank) + ": doing ");
  to.doing = until(report.substr(0, report.find(". Rank ")), "; last collective: ");
  const std::string_view last = after(report.substr(0, report.find(". Rank ")), "; last collective: ");
  if (to.collective.empty()) to.collective = until(last, " (");
}

}  // namespace

std::optional<int64_t> FailureText::first_rank() const {
  if (missing_rank) return missing_rank;
  if (reporting_rank) return reporting_rank;
  return ended_rank;
}

FailureText failure_in(std::string_view output) {
  FailureText out;
  read_watchdog(output, out);
  out.reporting_rank = number_after(output, "error: rank ");
  // Open MPI: a signal; a non-zero exit; MPICH and Slurm.
  out.ended_rank = number_after(output, "noticed that process rank ");
  if (!out.ended_rank) {
    const std::string_view name = line_at(output, "Process name: [[");
    if (const size_t comma = name.rfind("],"); comma != std::string_view::npos)
      out.ended_rank = leading_number(name.substr(comma + 2));
  }
  if (!out.ended_rank) out.ended_rank = number_after(output, "Abort(1) on node ");
  if (const std::string_view slurm = line_at(output, "srun: error: "); !out.ended_rank && !slurm.empty())
    out.ended_rank = number_after(slurm, ": task ");
  if (const std::string_view slurm = line_at(output, "srun: error: "); !out.ended_rank && !slurm.empty())
    out.ended_rank = number_after(slurm, ": tasks ");
  return out;
}

std::string phase_of_action(std::string_view doing) {
  // "step 17, F0", "step 17, update"
  const std::string_view action = after(doing, ", ");
  if (action.empty()) return "";
  if (action.starts_with("update") || action.starts_with("encode")) return "update";
  switch (action.front()) {
    case 'F':
      return "forward";
    case 'B':
    case 'I':
    case 'W':
      return "backward";
    default:
      return "";
  }
}

}  // namespace strata::launch
