#include "observe/tensorboard.h"

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstring>

namespace strata::observe {
namespace {

// Castagnoli polynomial 0x1EDC6F41, reflected.
constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1u) != 0 ? 0x82f63b78u : 0u);
    table[i] = value;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = make_crc_table();

void put_little_endian(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

// Protobuf fields: key = number << 3 | wire type (0 varint, 1 eight bytes, 2 length-prefixed, 5 four bytes).
void put_double(std::string& out, int number, double value) {
  put_varint(out, static_cast<uint64_t>(number << 3 | 1));
  put_little_endian(out, std::bit_cast<uint64_t>(value), 8);
}
void put_float(std::string& out, int number, float value) {
  put_varint(out, static_cast<uint64_t>(number << 3 | 5));
  put_little_endian(out, std::bit_cast<uint32_t>(value), 4);
}
void put_integer(std::string& out, int number, int64_t value) {
  put_varint(out, static_cast<uint64_t>(number) << 3);
  put_varint(out, static_cast<uint64_t>(value));
}
void put_bytes(std::string& out, int number, std::string_view bytes) {
  put_varint(out, static_cast<uint64_t>(number << 3 | 2));
  put_varint(out, bytes.size());
  out += bytes;
}

uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
}

std::string framed(std::string_view data) {
  std::string record;
  put_little_endian(record, data.size(), 8);
  put_little_endian(record, masked_crc(record), 4);
  record += data;
  put_little_endian(record, masked_crc(data), 4);
  return record;
}

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) return "localhost";
  return name;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

std::string tensorboard_version_record(double wall) {
  std::string event;
  put_double(event, 1, wall);
  put_bytes(event, 3, "brain.Event:2");
  return framed(event);
}

std::string tensorboard_scalar_record(double wall, int64_t step, std::string_view tag, float value) {
  std::string entry, summary, event;
  put_bytes(entry, 1, tag);
  put_float(entry, 2, value);
  put_bytes(summary, 1, entry);
  put_double(event, 1, wall);
  put_integer(event, 2, step);
  put_bytes(event, 5, summary);
  return framed(event);
}

TensorBoardWriter::TensorBoardWriter(FileSystem& files, const Path& folder, double wall) {
  files.create_directories(folder);
  const std::string base =
      fmt::format("events.out.tfevents.{:010}.{}.{}", static_cast<int64_t>(wall), host_name(), ::getpid());
  int number = 0;
  do {
    path_ = folder / fmt::format("{}.{}", base, number++);
  } while (std::filesystem::exists(path_));
  file_ = files.open_for_writing(path_);
  file_->append(tensorboard_version_record(wall));
}

void TensorBoardWriter::scalars(double wall, int64_t step,
                                std::span<const std::pair<std::string, double>> values) {
  std::string records;
  for (const auto& [tag, value] : values) {
    records += tensorboard_scalar_record(wall, step, tag, static_cast<float>(value));
  }
  file_->append(records);
}

}  // namespace strata::observe
