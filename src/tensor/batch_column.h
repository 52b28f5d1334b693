// The columns of a batch: the one list by which rows are filled from data, graphs read them, and programs get
// them. All are i32; a column has one place for each token of a row, or for each row.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace strata {

enum class Column : uint8_t {
  kEncoderTokens,   // in [0, vocabulary)
  kEncoderKvBegin,  // as kKvBegin, of the encoder's row: equal for places that see each other
  kTokens,          // in [0, vocabulary); of the decoder's row if there is an encoder
  kPositions,       // within the document (or the window), from 0
  kTargets,         // the token to predict; -1: no loss here
  kKvBegin,         // the first place of the same row that this one may attend to
  kCrossKvBegin,    // the kEncoderKvBegin of the encoder's places that it may attend to; -1: none
  kSamples,         // the number of the row's sample, its low 32 bits
};
inline constexpr size_t kColumnCount = 8;

// Something of each column.
template <typename T>
class PerColumn {
 public:
  constexpr T& operator[](Column column) { return entries_[static_cast<size_t>(column)]; }
  constexpr const T& operator[](Column column) const { return entries_[static_cast<size_t>(column)]; }
  constexpr PerColumn() = default;
  constexpr explicit PerColumn(const T& all) { entries_.fill(all); }
  bool operator==(const PerColumn&) const = default;

 private:
  std::array<T, kColumnCount> entries_{};
};

struct ColumnInfo {
  Column column;
  std::string_view name;  // of its value in a graph
  // One entry per token, per token if there is an encoder, per encoder token, per row.
  enum class Places : uint8_t { kToken, kTokenBesideEncoder, kEncoderToken, kRow } places;
  enum class Padding : uint8_t {
    kZero,
    kNone,
    kOwnPlace
  } padding;  // value of padding positions: kNone is -1

  constexpr int32_t padding_at(int64_t place) const {
    return padding == Padding::kOwnPlace ? static_cast<int32_t>(place) : padding == Padding::kNone ? -1 : 0;
  }
};
// All of them, in order.
inline constexpr std::array<ColumnInfo, kColumnCount> kColumns = [] {
  using enum ColumnInfo::Places;
  using enum ColumnInfo::Padding;
  using enum Column;
  return std::array<ColumnInfo, kColumnCount>{{
      {kEncoderTokens, "encoder_tokens", kEncoderToken, kZero},
      {kEncoderKvBegin, "encoder_kv_begin", kEncoderToken, kOwnPlace},
      {kTokens, "tokens", kToken, kZero},
      {kPositions, "positions", kToken, kZero},
      {kTargets, "targets", kToken, kNone},
      {kKvBegin, "kv_begin", kToken, kOwnPlace},
      {kCrossKvBegin, "cross_kv_begin", kTokenBesideEncoder, kNone},
      {kSamples, "samples", kRow, kZero},
  }};
}();
constexpr const ColumnInfo& info(Column column) {
  return kColumns[static_cast<size_t>(column)];
}
static_assert([] {
  for (size_t i = 0; i < kColumnCount; ++i)
    if (kColumns[i].column != static_cast<Column>(i)) return false;
  return true;
}());

// How many places the columns of a row have.
struct RowPlaces {
  int64_t tokens = 0;
  int64_t encoder = 0;  // 0: there is no encoder

  constexpr int64_t of(Column column) const {
    switch (info(column).places) {
      case ColumnInfo::Places::kToken:
        return tokens;
      case ColumnInfo::Places::kTokenBesideEncoder:
        return encoder > 0 ? tokens : 0;
      case ColumnInfo::Places::kEncoderToken:
        return encoder;
      case ColumnInfo::Places::kRow:
        return 1;
    }
    return 0;
  }
};

// Rows of a host's batch, by column: [rows, places].
struct BatchRows {
  PerColumn<const int32_t*> columns;
  RowPlaces places;
};

}  // namespace strata
