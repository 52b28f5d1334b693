#include <gtest/gtest.h>

#include "data/input/http_message.h"
#include "data/input/read_records.h"
#include "fixtures/compressed.h"
#include "fixtures/temporary_folder.h"

namespace strata::data {
namespace {

std::string warc_record(const std::string& id, const std::string& text, int64_t length_off_by = 0) {
  const auto length = static_cast<int64_t>(text.size()) + length_off_by;
  return "WARC/1.0\r\nWARC-Type: conversion\r\nWARC-Record-ID: <" + id +
         ">\r\nContent-Type: text/plain\r\nContent-Length: " + std::to_string(length) + "\r\n\r\n" + text +
         "\r\n\r\n";
}

std::vector<std::string> outcome(const std::vector<ReadRecord>& records) {
  std::vector<std::string> all;
  for (const auto& record : records)
    all.push_back(record.document.id + " " + std::string(read_reason(record.status)));
  return all;
}

using Outcome = std::vector<std::string>;

TEST(WarcReader, WrongLengthsAreReportedAndReadingContinues) {
  const TemporaryFolder folder;
  for (const int64_t off_by : {-5, -1, 1, 2, 3, 4, 50, 100000}) {
    const Path path =
        folder.write("a.warc", warc_record("a", "text one") + warc_record("b", "text two", off_by) +
                                   warc_record("c", "text three"));
    EXPECT_EQ(outcome(read_records(path)), (Outcome{"<a> ", "<b> bad_record", "<c> "})) << off_by;
  }
}

// Error pages and redirections come from the server, not the site.
TEST(WarcReader, OnlyResponsesThatSucceededAreDocuments) {
  const TemporaryFolder folder;
  std::string content;
  for (const std::string status : {"200 OK", "404 Not Found", "301 Moved", "203", "500 Oops", "OK"}) {
    const std::string http = "HTTP/1.1 " + status + "\r\nContent-Type: text/html\r\n\r\n<p>A page.</p>";
    content += "WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <" + status.substr(0, 3) +
               ">\r\nContent-Type: application/http\r\nContent-Length: " + std::to_string(http.size()) +
               "\r\n\r\n" + http + "\r\n\r\n";
  }
  const auto records = read_records(folder.write("a.warc", content));
  EXPECT_EQ(outcome(records), (Outcome{"<200> ", "<404> http_status", "<301> http_status", "<203> ",
                                       "<500> http_status", "<OK> http_status"}));
  EXPECT_EQ(records[1].detail, "HTTP status 404");
}

TEST(WarcReader, RubbishBetweenRecords) {
  const TemporaryFolder folder;
  const Path path = folder.write("a.warc", "rubbish\n" + warc_record("a", "one") + "more rubbish\r\n\r\n" +
                                               warc_record("b", "two") + "WARC/1.0\r\nno header\r\n\r\n");
  EXPECT_EQ(outcome(read_records(path)),
            (Outcome{"a.warc:1 bad_record", "<a> bad_record", "<b> ", "a.warc:4 bad_record"}));
}

TEST(WarcReader, EveryEndOfTheFile) {
  const TemporaryFolder folder;
  const std::string whole = warc_record("a", "text one") + warc_record("b", "text two");
  for (size_t size = 0; size <= whole.size(); ++size) {
    const auto records =
        read_records(folder.write("a.wet", whole.substr(0, size)), {.format = RecordFormat::kWarc});
    if (size > 0) {
      ASSERT_FALSE(records.empty()) << size;
    }
    ASSERT_LE(records.size(), 2u) << size;
  }
}

TEST(WarcReader, ADamagedMemberLosesTheRest) {
  const TemporaryFolder folder;
  const std::string first = gzip(warc_record("a", "text one"));
  std::string second = gzip(warc_record("b", "text two"));
  second.resize(second.size() / 2);
  const auto records = read_records(folder.write("a.warc.gz", first + second));
  EXPECT_EQ(outcome(records), (Outcome{"<a> ", "a.warc.gz:2 damaged"}));
}

TEST(HttpMessage, ChunksAndCodings) {
  HttpMessage message;
  std::string detail;
  const auto body = [&](const std::string& header, const std::string& content) -> std::string {
    if (!parse_http("HTTP/1.1 200 OK\r\n" + header + "\r\n" + content, 1 << 20, message, detail))
      return "refused";
    return message.body;
  };
  EXPECT_EQ(body("", "plain"), "plain");
  EXPECT_EQ(body("Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"), "abcde");
  EXPECT_EQ(body("Transfer-Encoding: chunked\r\n", "<html> joined already"), "<html> joined already");
  EXPECT_EQ(body("transfer-encoding: Chunked\r\n", "ff\r\ncut"), "cut");
  EXPECT_EQ(body("Content-Encoding: gzip\r\n", gzip("zipped")), "zipped");
  EXPECT_EQ(body("Content-Encoding: gzip\r\n", "unzipped already"), "unzipped already");
  EXPECT_EQ(body("Content-Encoding: gzip\r\n", gzip("cut short").substr(0, 18)), "refused");
  EXPECT_EQ(body("Content-Encoding: gzip\r\n", gzip(std::string(2 << 20, 'x'))), "refused");
  EXPECT_EQ(body("Content-Encoding: br\r\n", "x"), "refused");
  EXPECT_NE(detail.find("\"br\""), std::string::npos);
  EXPECT_FALSE(parse_http("not http", 100, message, detail));
  EXPECT_FALSE(parse_http("HTTP/1.1 200 OK\r\nno end", 100, message, detail));
  ASSERT_TRUE(parse_http("HTTP/1.0 200\nA: b\n c\nA: d\n\nx", 100, message, detail));
  EXPECT_EQ(header_value(message.header, "a"), "b c");
}

}  // namespace
}  // namespace strata::data
