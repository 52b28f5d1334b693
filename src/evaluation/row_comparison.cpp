#include "evaluation/row_comparison.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/hash.h"

namespace strata::evaluation {
namespace {

// Elements of a row as numbers.
std::vector<double> numbers_of(const std::byte* bytes, int64_t size, DType dtype) {
  std::vector<double> out(static_cast<size_t>(size / size_of(dtype)));
  if (dtype == DType::kI32) {
    for (size_t i = 0; i < out.size(); ++i) {
      int32_t number = 0;
      std::memcpy(&number, bytes + i * sizeof number, sizeof number);
      out[i] = number;
    }
  } else {
    convert(out.data(), DType::kF64, bytes, dtype, std::ssize(out));
  }
  return out;
}

bool has_numbers(DType dtype) {
  return dtype == DType::kI32 || dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 ||
         dtype == DType::kF64;
}

// NaN and infinite differences count as the largest number.
double finite(double value) {
  return std::isfinite(value) ? value : std::numeric_limits<double>::max();
}

}  // namespace

void RowObserver::instruction(size_t program, const program::Action& action, size_t index, double, double) {
  if (program != program_) return;
  const program::Program& own = executor_.program(program);
  const program::Instruction& instruction = own.list_of(action)[index];
  for (const TokenRows& result : rows_.by_node[static_cast<size_t>(instruction.node)]) {
    if (!wants(result, action)) continue;
    const int64_t size = own.graph.value(result.value).bytes();
    bytes_.resize(static_cast<size_t>(size));
    executor_.download_operand(program, action, instruction, result.operand, bytes_.data(), size);
    see(result, action, bytes_);
  }
}

RowObserver::Place RowObserver::place_of(const Probe& probe, const TokenRows& result,
                                         const program::Action& action, int64_t row) const {
  const ProgramRows::Map& map = rows_.maps[result.rows];
  const program::Request& request = executor_.program(program_).request;
  const int64_t length = map.of_encoder ? request.encoder_length : request.sequence_length;
  const int64_t whole = map.rows[static_cast<size_t>(row)];
  Place place{whole / length, whole % length};
  if (map.of_encoder) return place;
  const int64_t sequences = request.sequences * executor_.set().options.mesh.batch_ranks();
  const int64_t at = (action.micro_batch * sequences + place.sequence) * length + place.row;
  place.may_move = probe.may_move[static_cast<size_t>(at)] != 0;
  return place;
}

void MovedRows::begin_second_run(const Probe& probe) {
  probe_ = &probe;
  next_ = 0;
}

void MovedRows::see(const TokenRows& result, const program::Action& action,
                    const std::vector<std::byte>& bytes) {
  const auto rows = std::ssize(bytes) / result.row_bytes;
  for (int64_t row = 0; row < rows; ++row) {
    const uint64_t hash =
        hash64(bytes.data() + row * result.row_bytes, static_cast<size_t>(result.row_bytes));
    if (probe_ == nullptr) {
      hashes_.push_back(hash);
      continue;
    }
    STRATA_CHECK(next_ < hashes_.size(), "the second run has more than the {} rows of the first",
                 hashes_.size());
    if (hashes_[next_++] == hash) continue;
    const Place place = place_of(*probe_, result, action, row);
    if (!place.may_move)
      moved_.try_emplace(result.value, Movement{action.micro_batch, place.sequence, place.row});
  }
}

bool MeasuredRows::wants(const TokenRows& result, const program::Action& action) const {
  const auto found = found_.find(result.value);
  return found != found_.end() && found->second.micro_batch == action.micro_batch;
}

void MeasuredRows::see(const TokenRows& result, const program::Action& action,
                       const std::vector<std::byte>& bytes) {
  if (probe_ == nullptr) {
    kept_[result.value] = bytes;
    return;
  }
  const DType dtype = executor_.program(program_).graph.value(result.value).dtype;
  Movement& movement = found_.at(result.value);
  const std::vector<std::byte>& before = kept_.at(result.value);
  for (int64_t at = 0, row = 0; at < std::ssize(bytes); at += result.row_bytes, ++row) {
    const auto size = static_cast<size_t>(result.row_bytes);
    const bool moved = std::memcmp(before.data() + at, bytes.data() + at, size) != 0;
    if (!moved || !has_numbers(dtype) || place_of(*probe_, result, action, row).may_move) continue;
    const auto a = numbers_of(before.data() + at, result.row_bytes, dtype);
    const auto b = numbers_of(bytes.data() + at, result.row_bytes, dtype);
    for (size_t i = 0; i < a.size(); ++i) {
      // Compares bits: -0 and 0 differ.
      if (std::bit_cast<uint64_t>(a[i]) != std::bit_cast<uint64_t>(b[i]))
        movement.largest = std::max(movement.largest, finite(std::abs(a[i] - b[i])));
    }
  }
}

}  // namespace strata::evaluation
