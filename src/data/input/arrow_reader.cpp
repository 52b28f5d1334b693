// Parquet and Arrow IPC through Apache Arrow, a batch of rows at a time.
#include <arrow/api.h>
#include <arrow/ipc/reader.h>
#include <fmt/format.h>
#include <parquet/arrow/reader.h>
#include <parquet/properties.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "data/input/arrow_storage.h"
#include "data/input/arrow_support.h"
#include "data/input/record_readers.h"

namespace strata::data {
namespace {

constexpr int64_t kRowsAtOnce = 256;
constexpr int64_t kColumnBuffer = int64_t{1} << 20;
constexpr int kNoColumn = -1;

// What reading throws away: nothing that a caller sees.
template <typename T>
T get(arrow::Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().message());
  return std::move(result).ValueUnsafe();
}

void check(const arrow::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

// The string of a row, of any of the types that hold strings; false for other types.
bool string_at(const arrow::Array& array, int64_t row, std::string_view& value) {
  switch (array.type_id()) {
    case arrow::Type::STRING:
    case arrow::Type::BINARY:
      value = static_cast<const arrow::BinaryArray&>(array).GetView(row);
      return true;
    case arrow::Type::LARGE_STRING:
    case arrow::Type::LARGE_BINARY:
      value = static_cast<const arrow::LargeBinaryArray&>(array).GetView(row);
      return true;
    case arrow::Type::STRING_VIEW:
    case arrow::Type::BINARY_VIEW:
      value = static_cast<const arrow::BinaryViewArray&>(array).GetView(row);
      return true;
    case arrow::Type::DICTIONARY: {
      const auto& coded = static_cast<const arrow::DictionaryArray&>(array);
      return string_at(*coded.dictionary(), coded.GetValueIndex(row), value);
    }
    default:
      return false;
  }
}

bool is_null(const arrow::Array& array, int64_t row) {
  if (array.IsNull(row)) return true;
  if (array.type_id() != arrow::Type::DICTIONARY) return false;
  const auto& coded = static_cast<const arrow::DictionaryArray&>(array);
  return coded.dictionary()->IsNull(coded.GetValueIndex(row));
}

void append_float(std::string& json, double value) {
  if (std::isfinite(value)) {
    fmt::format_to(std::back_inserter(json), "{}", value);
  } else {
    json += "null";  // JSON has no other
  }
}

void append_json(std::string& json, const arrow::Array& array, int64_t row);

void append_list(std::string& json, const arrow::Array& values) {
  json += '[';
  for (int64_t i = 0; i < values.length(); ++i) {
    if (i > 0) json += ',';
    append_json(json, values, i);
  }
  json += ']';
}

void append_json(std::string& json, const arrow::Array& array, int64_t row) {
  if (is_null(array, row)) {
    json += "null";
    return;
  }
  const auto integer = [&](auto value) { fmt::format_to(std::back_inserter(json), "{}", value); };
  std::string_view text;
  if (string_at(array, row, text)) {
    append_json_string(json, simdjson::validate_utf8(text.data(), text.size()) ? text : "");
    return;
  }
  switch (array.type_id()) {
    case arrow::Type::BOOL:
      json += static_cast<const arrow::BooleanArray&>(array).Value(row) ? "true" : "false";
      return;
    case arrow::Type::INT8:
      return integer(static_cast<int>(static_cast<const arrow::Int8Array&>(array).Value(row)));
    case arrow::Type::UINT8:
      return integer(static_cast<int>(static_cast<const arrow::UInt8Array&>(array).Value(row)));
    case arrow::Type::INT16:
      return integer(static_cast<const arrow::Int16Array&>(array).Value(row));
    case arrow::Type::UINT16:
      return integer(static_cast<const arrow::UInt16Array&>(array).Value(row));
    case arrow::Type::INT32:
      return integer(static_cast<const arrow::Int32Array&>(array).Value(row));
    case arrow::Type::UINT32:
      return integer(static_cast<const arrow::UInt32Array&>(array).Value(row));
    case arrow::Type::INT64:
      return integer(static_cast<const arrow::Int64Array&>(array).Value(row));
    case arrow::Type::UINT64:
      return integer(static_cast<const arrow::UInt64Array&>(array).Value(row));
    case arrow::Type::FLOAT:
      return append_float(json, static_cast<double>(static_cast<const arrow::FloatArray&>(array).Value(row)));
    case arrow::Type::DOUBLE:
      return append_float(json, static_cast<const arrow::DoubleArray&>(array).Value(row));
    case arrow::Type::LIST:
      return append_list(json, *static_cast<const arrow::ListArray&>(array).value_slice(row));
    case arrow::Type::LARGE_LIST:
      return append_list(json, *static_cast<const arrow::LargeListArray&>(array).value_slice(row));
    case arrow::Type::FIXED_SIZE_LIST:
      return append_list(json, *static_cast<const arrow::FixedSizeListArray&>(array).value_slice(row));
    case arrow::Type::STRUCT: {
      const auto& fields = static_cast<const arrow::StructArray&>(array);
      json += '{';
      for (int i = 0; i < fields.num_fields(); ++i) {
        if (i > 0) json += ',';
        append_json_string(json, fields.type()->field(i)->name());
        json += ':';
        append_json(json, *fields.field(i), row);
      }
      json += '}';
      return;
    }
    default:
      // Dates, times, decimals and rare types: as Arrow writes them.
      append_json_string(json, get(array.GetScalar(row))->ToString());
  }
}

// Batches of rows, from whichever format.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual std::shared_ptr<arrow::RecordBatch> next() = 0;  // null at the end
  virtual double share_read() const = 0;                   // of the file, from 0 to 1
};

class ParquetBatches final : public BatchSource {
 public:
  explicit ParquetBatches(std::shared_ptr<arrow::io::RandomAccessFile> file) {
    parquet::ReaderProperties properties = parquet::default_reader_properties();
    properties.enable_buffered_stream();  // or whole column chunks would be in memory
    properties.set_buffer_size(kColumnBuffer);
    parquet::ArrowReaderProperties arrow_properties;
    arrow_properties.set_batch_size(kRowsAtOnce);
    arrow_properties.set_use_threads(false);
    arrow_properties.set_pre_buffer(false);
    parquet::arrow::FileReaderBuilder builder;
    check(builder.Open(std::move(file), properties));
    builder.properties(arrow_properties);
    reader_ = get(builder.Build());
    batches_ = get(reader_->GetRecordBatchReader());
  }
  std::shared_ptr<arrow::RecordBatch> next() override {
    auto batch = get(batches_->Next());
    if (batch != nullptr) rows_ += batch->num_rows();
    return batch;
  }
  double share_read() const override {
    const auto rows = static_cast<double>(reader_->parquet_reader()->metadata()->num_rows());
    return rows > 0 ? static_cast<double>(rows_) / rows : 1;
  }

 private:
  int64_t rows_ = 0;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::unique_ptr<arrow::RecordBatchReader> batches_;
};

class IpcFileBatches final : public BatchSource {
 public:
  explicit IpcFileBatches(std::shared_ptr<arrow::io::RandomAccessFile> file)
      : reader_(get(arrow::ipc::RecordBatchFileReader::Open(std::move(file)))) {}
  std::shared_ptr<arrow::RecordBatch> next() override {
    if (next_ == reader_->num_record_batches()) return nullptr;
    return get(reader_->ReadRecordBatch(next_++));
  }
  double share_read() const override {
    return static_cast<double>(next_) / std::max(1, reader_->num_record_batches());
  }

 private:
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> reader_;
  int next_ = 0;
};

class IpcStreamBatches final : public BatchSource {
 public:
  explicit IpcStreamBatches(const std::shared_ptr<arrow::io::RandomAccessFile>& file)
      : file_(file), reader_(get(arrow::ipc::RecordBatchStreamReader::Open(file))) {}
  std::shared_ptr<arrow::RecordBatch> next() override { return get(reader_->Next()); }
  double share_read() const override {
    const double size = static_cast<double>(file_->GetSize().ValueOr(1));
    return static_cast<double>(file_->Tell().ValueOr(0)) / std::max(1.0, size);
  }

 private:
  std::shared_ptr<arrow::io::RandomAccessFile> file_;
  std::shared_ptr<arrow::RecordBatchReader> reader_;
};

class ArrowReader final : public RecordReader {
 public:
  ArrowReader(std::shared_ptr<arrow::io::RandomAccessFile> file, bool parquet, const std::string& name,
              const RecordOptions& options)
      : file_(std::move(file)), parquet_(parquet), name_(name), options_(options) {}

  ReadStatus next(Document& document, std::string& detail) override {
    document.clear();
    if (ended_) return ReadStatus::kEnd;
    try {
      while (batch_ == nullptr || row_ == batch_->num_rows()) {
        if (!next_batch()) {
          ended_ = true;
          return ReadStatus::kEnd;
        }
      }
      ++number_;
      const ReadStatus status = take_row(document, detail, row_++);
      place_record(document, name_, number_);
      return status;
    } catch (const std::exception& error) {  // Arrow's own, or a status that is none of success
      ended_ = true;
      batch_ = nullptr;
      document.clear();
      detail = fmt::format("{}: {}", parquet_ ? "Parquet" : "Arrow IPC", error.what());
      if (!simdjson::validate_utf8(detail.data(), detail.size())) detail = "a damaged file";
      place_record(document, name_, number_ + 1);
      return ReadStatus::kDamaged;
    }
  }

  // Arrow reads columns here and there: what counts is how far it got.
  int64_t bytes_read() const override {
    if (source_ == nullptr) return 0;
    return static_cast<int64_t>(source_->share_read() * static_cast<double>(file_->GetSize().ValueOr(0)));
  }

 private:
  bool next_batch() {
    if (source_ == nullptr) {
      if (parquet_) {
        source_ = std::make_unique<ParquetBatches>(file_);
      } else {
        const auto head = get(file_->ReadAt(0, 6));
        check(file_->Seek(0));
        if (std::string_view(*head) == "ARROW1") {
          source_ = std::make_unique<IpcFileBatches>(file_);
        } else {
          source_ = std::make_unique<IpcStreamBatches>(file_);
        }
      }
    }
    batch_ = source_->next();
    row_ = 0;
    if (batch_ == nullptr) return false;
    check(batch_->ValidateFull());
    text_column_ = batch_->schema()->GetFieldIndex(options_.text);
    id_column_ = batch_->schema()->GetFieldIndex(options_.id);
    return true;
  }

  void take_id(Document& document, int64_t row) {
    if (id_column_ == kNoColumn || is_null(*batch_->column(id_column_), row)) return;
    const arrow::Array& ids = *batch_->column(id_column_);
    std::string_view id;
    if (!string_at(ids, row, id)) {
      append_json(document.id, ids, row);
      document.id_is_json = true;
    } else if (simdjson::validate_utf8(id.data(), id.size())) {
      document.id = id;
    }
  }

  ReadStatus take_row(Document& document, std::string& detail, int64_t row) {
    take_id(document, row);
    if (text_column_ == kNoColumn) {
      detail = fmt::format("no column \"{}\" but {}", options_.text,
                           fmt::join(batch_->schema()->field_names(), ", "));
      return ReadStatus::kNoText;
    }
    const arrow::Array& texts = *batch_->column(text_column_);
    if (is_null(texts, row)) {
      detail = fmt::format("null under \"{}\"", options_.text);
      return ReadStatus::kNullText;
    }
    std::string_view text;
    if (!string_at(texts, row, text)) {
      detail = fmt::format("{} under \"{}\"; expected a string", texts.type()->ToString(), options_.text);
      return ReadStatus::kTextNotAString;
    }
    document.text = text;
    for (int i = 0; i < batch_->num_columns(); ++i) {
      if (i == text_column_ || i == id_column_ || is_own_name(batch_->schema()->field(i)->name())) continue;
      if (!document.fields.empty()) document.fields += ',';
      append_json_string(document.fields, batch_->schema()->field(i)->name());
      document.fields += ':';
      append_json(document.fields, *batch_->column(i), row);
    }
    return check_text(document, detail);
  }

  std::shared_ptr<arrow::io::RandomAccessFile> file_;
  bool parquet_;
  std::string name_;
  RecordOptions options_;
  std::unique_ptr<BatchSource> source_;
  std::shared_ptr<arrow::RecordBatch> batch_;
  int64_t row_ = 0;
  int64_t number_ = 0;
  int text_column_ = kNoColumn;
  int id_column_ = kNoColumn;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<RecordReader> read_parquet(const Path& path, const std::string& name,
                                           const RecordOptions& options) {
  return std::make_unique<ArrowReader>(open_random_access(path), true, name, options);
}

std::unique_ptr<RecordReader> read_arrow(const Path& path, const std::string& name,
                                         const RecordOptions& options) {
  return std::make_unique<ArrowReader>(open_random_access(path), false, name, options);
}

}  // namespace strata::data
