#include "data/build/document_file.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace strata::data {
namespace {

struct DocumentHead {
  uint32_t text = 0, id = 0, fields = 0, id_is_json = 0;
  int32_t file = 0;
  int64_t line = 0;
};

[[noreturn]] void damaged(const std::string& name) {
  throw DataError("[{}] is cut short or damaged; remove the build's work folder and build again", name);
}

template <typename T>
void append_raw(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Values and texts out of a mapped file, checked against its end.
class Cursor {
 public:
  Cursor(std::string_view bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {}
  bool at_end() const { return at_ == bytes_.size(); }
  template <typename T>
  T take() {
    T value;
    std::memcpy(&value, text(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view text(size_t size) {
    if (bytes_.size() - at_ < size) damaged(name_);
    const std::string_view out = bytes_.substr(at_, size);
    at_ += size;
    return out;
  }

 private:
  std::string_view bytes_;
  std::string name_;
  size_t at_ = 0;
};

}  // namespace

void DocumentFileWriter::append(std::string_view text, const Document& document, int32_t file) {
  const DocumentHead head{static_cast<uint32_t>(text.size()),
                          static_cast<uint32_t>(document.id.size()),
                          static_cast<uint32_t>(document.fields.size()),
                          document.id_is_json ? 1u : 0u,
                          file,
                          document.line};
  std::string& out = out_.buffer();
  append_raw(out, head);
  out.append(text).append(document.id).append(document.fields);
  out_.flush_if_full();
}

DocumentFileReader::DocumentFileReader(const Path& path) : file_(path) {}

void DocumentFileReader::need(size_t bytes) {
  if (end_ - begin_ >= bytes) return;
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  const size_t wanted = std::max<size_t>(bytes, size_t{1} << 20);
  if (buffer_.size() < wanted) buffer_.resize(wanted);
  const auto count = static_cast<size_t>(std::min<uint64_t>(buffer_.size() - end_, file_.size() - offset_));
  file_.read_at(offset_, buffer_.data() + end_, count);
  offset_ += count;
  end_ += count;
  if (end_ < bytes) damaged(file_.path().string());
}

bool DocumentFileReader::next(StoredDocument& out) {
  if (begin_ == end_ && offset_ == file_.size()) return false;
  DocumentHead head;
  need(sizeof head);
  std::memcpy(&head, buffer_.data() + begin_, sizeof head);
  begin_ += sizeof head;
  need(size_t{head.text} + head.id + head.fields);
  const char* at = buffer_.data() + begin_;
  out.document.text.assign(at, head.text);
  out.document.id.assign(at + head.text, head.id);
  out.document.fields.assign(at + head.text + head.id, head.fields);
  out.document.id_is_json = head.id_is_json != 0;
  out.document.line = head.line;
  out.file = head.file;
  begin_ += size_t{head.text} + head.id + head.fields;
  return true;
}

void append_id(std::string& json, const DocumentId& id) {
  if (id.is_json)
    json += id.text;
  else
    append_json_string(json, id.text);
}

// A byte for the kind, then the id.
void IdFileWriter::append(const DocumentId& id) {
  out_.append(id.is_json ? "j" : "s");
  out_.append(id.text);
  size_ += 1 + id.text.size();
  ends_.push_back(size_);
}

// The ids, then the end of each, then their number.
void IdFileWriter::finish() {
  for (const uint64_t end : ends_) append_raw(out_.buffer(), end);
  append_raw(out_.buffer(), static_cast<uint64_t>(ends_.size()));
  out_.finish();
}

IdFile::IdFile(const Path& path) : name_(path.string()), file_(path) {
  if (file_.size() < 8) damaged(name_);
  std::memcpy(&count_, file_.text().data() + file_.size() - 8, 8);
  if (count_ > (file_.size() - 8) / 8) damaged(name_);
}

DocumentId IdFile::operator[](uint32_t document) const {
  if (document >= count_) damaged(name_);
  const char* ends = file_.text().data() + file_.size() - 8 - 8 * count_;
  uint64_t begin = 0, end = 0;
  if (document > 0) std::memcpy(&begin, ends + 8 * (uint64_t{document} - 1), 8);
  std::memcpy(&end, ends + 8 * uint64_t{document}, 8);
  if (begin >= end || end > file_.size() - 8 - 8 * count_) damaged(name_);
  const std::string_view id = file_.text().substr(begin, end - begin);
  return {.text = id.substr(1), .is_json = id.front() == 'j'};
}

void write_decisions(FileSystem& files, const Path& path, std::span<const Decision> decisions) {
  OutputFile out(files, path);
  for (const Decision& decision : decisions) {
    std::string& to = out.buffer();
    append_raw(to, decision.document);
    append_raw(to, static_cast<uint8_t>(decision.drop));
    append_raw(to, static_cast<uint8_t>(decision.has_original));
    append_raw(to, static_cast<uint16_t>(decision.reason.size()));
    append_raw(to, decision.original.part);
    append_raw(to, decision.original.document);
    append_raw(to, static_cast<uint32_t>(decision.cut.size()));
    to.append(decision.reason);
    for (const TextSpan& span : decision.cut) append_raw(to, span);
    out.flush_if_full();
  }
  out.finish();
}

std::vector<Decision> read_decisions(const Path& path, std::set<std::string>& reasons) {
  const MappedFile file(path);
  Cursor in(file.text(), path.string());
  std::vector<Decision> out;
  while (!in.at_end()) {
    Decision decision;
    decision.document = in.take<uint32_t>();
    decision.drop = in.take<uint8_t>() != 0;
    decision.has_original = in.take<uint8_t>() != 0;
    const auto reason_size = in.take<uint16_t>();
    decision.original.part = in.take<uint32_t>();
    decision.original.document = in.take<uint32_t>();
    const auto cuts = in.take<uint32_t>();
    decision.reason = *reasons.emplace(in.text(reason_size)).first;
    for (uint32_t i = 0; i < cuts; ++i) decision.cut.push_back(in.take<TextSpan>());
    out.push_back(std::move(decision));
  }
  return out;
}

}  // namespace strata::data
