#include "data/input/text_bytes.h"

#include <simdjson.h>

#include "base/error.h"
#include "base/log.h"

namespace strata::data {
namespace {

struct Magic {
  std::string_view bytes;
  std::string_view kind;
  size_t at = 0;
};
using namespace std::string_view_literals;
// Formats whose first bytes no text begins with.
constexpr Magic kMagics[] = {
    {"\x1f\x8b\x08"sv, "gzip data"},
    {"\x1f\x9d"sv, "compress data (.Z)"},
    {"\x28\xb5\x2f\xfd"sv, "zstd data"},
    {"\x04\x22\x4d\x18"sv, "lz4 data"},
    {"\x02\x21\x4c\x18"sv, "lz4 data of the old format (lz4 -l)"},
    {"\xfd"
     "7zXZ\0"sv,
     "xz data"},
    {"\x5d\0\0"sv, "lzma data"},
    {"1AY&SY"sv, "bzip2 data", 4},
    {"PK\x03\x04"sv, "a zip archive"},
    {"PK\x05\x06"sv, "a zip archive"},
    {"7z\xbc\xaf\x27\x1c"sv, "a 7z archive"},
    {"Rar!\x1a\x07"sv, "a rar archive"},
    {"ustar\0"sv, "a tar archive", 257},
    {"ustar  \0"sv, "a tar archive", 257},
    {"PAR1\x15"sv, "a Parquet file"},
    {"ARROW1\0"sv, "an Arrow file"},
    {"Obj\x01"sv, "an Avro file"},
    {"SQLite format 3\0"sv, "an SQLite database"},
    {"\x89HDF\r\n\x1a\n"sv, "an HDF5 file"},
    {"\x93NUMPY"sv, "a NumPy file"},
};
// Those that are looked for within a file, too.
constexpr Magic kInside[] = {
    {"\x1f\x8b\x08"sv, "gzip data"},
    {"\x28\xb5\x2f\xfd"sv, "zstd data"},
    {"\x04\x22\x4d\x18"sv, "lz4 data"},
    {"\xfd"
     "7zXZ\0"sv,
     "xz data"},
    {"PK\x03\x04"sv, "a zip archive"},
    {"7z\xbc\xaf\x27\x1c"sv, "a 7z archive"},
};

[[noreturn]] void refuse_bytes(const Path& path, std::string_view kind, size_t at) {
  throw DataError(
      "[{}] holds {} at byte {}, expected text; unpack it, or give the file the suffix of its format (.gz, "
      ".zst, .lz4, .bz2, .xz, .parquet, …)",
      path.string(), kind, at);
}

bool is_utf16(std::string_view content) {
  return content.starts_with("\xFF\xFE") || content.starts_with("\xFE\xFF");
}

struct PackedBytes {
  std::string_view kind;  // empty: no packed bytes
  size_t at = 0;
};

// At the beginning, or within a text that is none throughout: in one of valid UTF-8 without a NUL there are
// none.
PackedBytes find_packed(std::string_view content) {
  if (const std::string_view kind = packed_kind(content); !kind.empty()) return {kind};
  const bool plain =
      content.find('\0') == content.npos && simdjson::validate_utf8(content.data(), content.size());
  PackedBytes first;
  for (size_t i = 0; i < std::size(kInside) && !plain; ++i) {
    const size_t at = content.find(kInside[i].bytes);
    if (at != content.npos && (first.kind.empty() || at < first.at)) first = {kInside[i].kind, at};
  }
  return first;
}

}  // namespace

std::string_view packed_kind(std::string_view head) {
  for (const Magic& magic : kMagics) {
    if (head.size() >= magic.at && head.substr(magic.at).starts_with(magic.bytes)) return magic.kind;
  }
  // What follows such frames is neither zstd nor lz4 data, or it would have been unpacked.
  if (head.size() >= 8 && (static_cast<uint8_t>(head[0]) & 0xf0) == 0x50 &&
      head.substr(1, 3) == "\x2a\x4d\x18")
    return "zstd or lz4 data";
  return "";
}

void refuse_packed(const Path& path, std::string_view head) {
  if (const std::string_view kind = packed_kind(head); !kind.empty()) refuse_bytes(path, kind, 0);
}

std::string problem_of_text(std::string_view content) {
  constexpr size_t kLooked = 8192;
  const std::string_view head = content.substr(0, kLooked);
  if (is_utf16(head)) return "UTF-16, by its byte order mark";
  if (const PackedBytes packed = find_packed(content); !packed.kind.empty()) {
    return std::string(packed.kind) + (packed.at > 0 ? " at byte " + std::to_string(packed.at) : "");
  }
  if (head.starts_with("%PDF-")) return "a PDF";
  if (const size_t nul = head.find('\0'); nul != head.npos)
    return "a binary file, or UTF-16: byte " + std::to_string(nul) + " is NUL";
  return "";
}

void check_text_file(const Path& path, std::string_view content) {
  if (is_utf16(content)) {
    throw DataError(
        "[{}] is UTF-16, by its byte order mark, expected UTF-8; convert it: iconv -f UTF-16 -t UTF-8",
        path.string());
  }
  if (const PackedBytes packed = find_packed(content); !packed.kind.empty())
    refuse_bytes(path, packed.kind, packed.at);
  const std::string problem = problem_of_text(content);
  if (!problem.empty()) {
    log_warning("{}: is {}, expected text; its bytes are used unchanged", path.string(), problem);
  } else if (!simdjson::validate_utf8(content.data(), content.size())) {
    log_warning("{}: is not UTF-8; its bytes are used unchanged. Convert other encodings with iconv",
                path.string());
  }
}

}  // namespace strata::data
