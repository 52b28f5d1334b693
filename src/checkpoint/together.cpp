#include "checkpoint/together.h"

#include <algorithm>

#include "base/error.h"
#include "comm/exchange.h"

namespace strata::checkpoint {
namespace {

constexpr int64_t kWord = 8;

// An error as text: its kind as a digit, then its message.
std::string packed(const std::exception_ptr& error) {
  const auto text = [](ErrorKind kind, const char* what) {
    return std::string(1, static_cast<char>('0' + static_cast<int>(kind))) + what;
  };
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return text(known.kind(), known.what());
  } catch (const std::exception& other) {
    return text(ErrorKind::kWorld, other.what());
  }
}

[[noreturn]] void throw_packed(const std::string& text, const std::string& who) {
  const std::string message = who + text.substr(1);
  switch (static_cast<ErrorKind>(text[0] - '0')) {
    case ErrorKind::kInternal:
      throw InternalError(message);
    case ErrorKind::kConfig:
      throw ConfigError(message);
    case ErrorKind::kData:
      throw DataError(message);
    case ErrorKind::kDiverged:
      throw DivergedError(message);
    case ErrorKind::kWorld:
      break;
  }
  throw WorldError(message);
}

}  // namespace

std::string Together::of_first(const std::string& text) {
  return alone() ? text : comm::broadcast_text(*communicator_, text);
}

void Together::agree(const std::exception_ptr& mine) {
  if (alone()) {
    if (mine) std::rethrow_exception(mine);
    return;
  }
  const auto failed = comm::gather_values(*communicator_, mine ? 1 : 0);
  const auto first_failed = std::find(failed.begin(), failed.end(), 1);
  if (first_failed == failed.end()) return;
  const auto culprit = static_cast<int>(first_failed - failed.begin());
  const std::string text =
      comm::broadcast_text(*communicator_, rank() == culprit ? packed(mine) : "", culprit);
  const bool everywhere = std::count(failed.begin(), failed.end(), 1) == size();
  throw_packed(text, everywhere ? "" : fmt::format("rank {}: ", culprit));
}

void Together::all(FunctionRef<void()> act) {
  std::exception_ptr error;
  try {
    act();
  } catch (...) {
    error = std::current_exception();
  }
  agree(error);
}

void Together::first(FunctionRef<void()> act) {
  all([&] {
    if (is_first()) act();
  });
}

std::vector<std::vector<uint64_t>> Together::gather(const std::vector<uint64_t>& mine,
                                                    const std::vector<int64_t>& counts) {
  if (!is_first()) {
    if (!mine.empty())
      communicator_->wait(communicator_->send(0, mine.data(), static_cast<int64_t>(mine.size()) * kWord));
    return {};
  }
  std::vector<std::vector<uint64_t>> all{mine};
  for (int from = 1; from < size(); ++from) {
    auto& theirs = all.emplace_back(static_cast<size_t>(counts[static_cast<size_t>(from)]));
    if (!theirs.empty())
      communicator_->wait(
          communicator_->receive(from, theirs.data(), static_cast<int64_t>(theirs.size()) * kWord));
  }
  return all;
}

}  // namespace strata::checkpoint
