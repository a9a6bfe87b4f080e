#include "remote/http/answer.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace torchparquet {
namespace {

using Kind = Verdict::Kind;

Answer Told(const std::vector<std::string>& lines, const std::string& text = {}) {
  Answer answer;
  for (const std::string& line : lines) answer.AddLine(line + "\r\n");
  answer.AddText(text);
  return answer;
}

Question Asked(const ByteRange& range, int64_t object_bytes = 1000,
               const std::string& etag = "\"a\"") {
  return {.range = range,
          .whole_range = range,
          .object_bytes = object_bytes,
          .etag = etag,
          .has_condition = !etag.empty()};
}

bool Says(const Verdict& verdict, const std::string& text) {
  return verdict.reason.find(text) != std::string::npos;
}

TEST_CASE("the range that was asked for is a body") {
  const Answer answer =
      Told({"HTTP/1.1 206 Partial Content", "content-RANGE:  bytes 100-199/1000 ",
            "Content-Length: 100", "ETag: \"a\""});
  const Verdict verdict = Judge(answer, Asked({100, 100}));
  CHECK(verdict.kind == Kind::kBody);
  CHECK(verdict.num_bytes_before == 0);
  CHECK(verdict.num_bytes_after == 0);
  CHECK(Judge(answer, Asked({100, 100}, -1, "")).kind == Kind::kBody);
}

TEST_CASE("another answer's head is forgotten when the next begins") {
  const Answer answer =
      Told({"HTTP/1.1 103 Early Hints", "ETag: \"b\"", "Retry-After: 9", "",
            "HTTP/1.1 206 Partial Content", "Content-Range: bytes 0-9/*"});
  CHECK(answer.status == 206);
  CHECK(answer.etag.empty());
  CHECK(Judge(answer, Asked({0, 10})).kind == Kind::kBody);
}

TEST_CASE("other ranges are tried again, and another size is another object") {
  const auto judged = [](const std::string& range, const std::string& length = "100") {
    return Judge(
        Told({"HTTP/1.1 206 P", "Content-Range: " + range, "Content-Length: " + length}),
        Asked({100, 100}));
  };
  CHECK(judged("bytes 100-199/1000").kind == Kind::kBody);
  CHECK(judged("bytes 100-199/*").kind == Kind::kBody);
  CHECK(judged("bytes 101-200/1000").kind == Kind::kAgain);
  CHECK(judged("bytes 100-198/1000", "99").kind == Kind::kAgain);
  CHECK(judged("bytes 100-200/1000", "101").kind == Kind::kAgain);
  CHECK(judged("bytes 100-199/1000", "99").kind == Kind::kAgain);
  const Verdict changed = judged("bytes 100-199/1001");
  CHECK(changed.kind == Kind::kFailure);
  CHECK(changed.error == ErrorKind::kChanged);
  CHECK(Says(changed, "changed since the data set was made"));
  for (const char* wrong : {"", "bytes", "bytes 5", "bytes 199-100/1000", "bytes */1000",
                            "items 100-199/1000", "bytes 100-199/1000 x",
                            "bytes -1-199/1000", "bytes 100-99999999999999999999/1000"}) {
    CAPTURE(wrong);
    CHECK(judged(wrong).kind == Kind::kFailure);
  }
}

TEST_CASE("an answer of another ETag is another object") {
  const auto judged = [](const std::string& listed, const std::string& told) {
    return Judge(
        Told({"HTTP/1.1 206 P", "Content-Range: bytes 0-9/1000", "ETag: " + told}),
        Asked({0, 10}, 1000, listed));
  };
  CHECK(judged("\"a\"", "\"a\"").kind == Kind::kBody);
  CHECK(judged("W/\"a\"", "\"a\"").kind == Kind::kBody);
  CHECK(judged("\"a\"", "W/\"a\"").kind == Kind::kBody);
  CHECK(judged("a", "\"a\"").kind == Kind::kBody);
  const Verdict changed = judged("\"a\"", "\"b\"");
  CHECK(changed.kind == Kind::kFailure);
  CHECK(changed.error == ErrorKind::kChanged);
  CHECK(IsStrongETag("\"a\""));
  CHECK_FALSE(IsStrongETag("W/\"a\""));
  CHECK_FALSE(IsStrongETag("a"));
  CHECK_FALSE(IsStrongETag(""));
  CHECK_FALSE(IsStrongETag("\"a\r\nHost: b\""));
}

TEST_CASE("the whole object is a body if little of it is wasted") {
  const auto judged = [](const ByteRange& range, const ByteRange& whole, int64_t object) {
    Question question = Asked(range, object);
    question.whole_range = whole;
    return Judge(Told({"HTTP/1.1 200 OK", "Content-Length: " + std::to_string(object)}),
                 question);
  };
  CHECK(judged({0, 1000}, {0, 1000}, 1000).kind == Kind::kBody);
  const Verdict rest = judged({400, 600'000}, {0, 600'400}, 600'500);
  CHECK(rest.kind == Kind::kBody);
  CHECK(rest.num_bytes_before == 400);
  CHECK(rest.num_bytes_after == 100);
  const Verdict part = judged({0, 1000}, {0, 1000}, 1'000'000);
  CHECK(part.kind == Kind::kFailure);
  CHECK(part.error == ErrorKind::kIo);
  CHECK(Says(part, "ignores ranges"));
  CHECK(Judge(Told({"HTTP/1.1 200 OK", "Content-Length: 999", "ETag: \"a\""}),
              Asked({0, 1000}))
            .error == ErrorKind::kChanged);
  CHECK(
      Judge(Told({"HTTP/1.1 200 OK", "Content-Length: 999"}), Asked({0, 1000}, 1000, ""))
          .error == ErrorKind::kChanged);
  // The message of an error, perhaps, since objects of that store have ETags.
  CHECK(Judge(Told({"HTTP/1.1 200 OK", "Content-Length: 999"}), Asked({0, 1000})).kind ==
        Kind::kAgain);
  // Of unknown length.
  CHECK(Judge(Told({"HTTP/1.1 200 OK"}), Asked({0, 1000})).kind == Kind::kBody);
  CHECK(Judge(Told({"HTTP/1.1 200 OK"}), Asked({0, 1000}, -1)).kind == Kind::kFailure);
}

TEST_CASE("encoded bodies are refused") {
  const auto judged = [](const std::string& encoding) {
    return Judge(Told({"HTTP/1.1 206 P", "Content-Range: bytes 0-9/1000",
                       "Content-Encoding: " + encoding}),
                 Asked({0, 10}));
  };
  CHECK(judged("gzip").kind == Kind::kFailure);
  CHECK(judged("Identity").kind == Kind::kBody);
  CHECK(judged("aws-chunked").kind == Kind::kBody);
}

TEST_CASE("each status has its consequence") {
  const auto judged = [](int status) {
    return Judge(Told({"HTTP/1.1 " + std::to_string(status) + " X"}),
                 Asked({0, 10}, 1000, ""));
  };
  for (const int status : {301, 302, 303, 307, 308}) {
    CHECK(judged(status).kind == Kind::kRedirect);
  }
  for (const int status : {401, 403}) CHECK(judged(status).kind == Kind::kRefused);
  for (const int status : {429, 503}) CHECK(judged(status).kind == Kind::kBusy);
  for (const int status : {408, 500, 501, 502, 504, 599}) {
    CHECK(judged(status).kind == Kind::kAgain);
  }
  for (const int status : {404, 410}) {
    CHECK(judged(status).kind == Kind::kFailure);
    CHECK(judged(status).error == ErrorKind::kFileNotFound);
  }
  for (const int status : {412, 416}) {
    CHECK(judged(status).kind == Kind::kFailure);
    CHECK(judged(status).error == ErrorKind::kChanged);
  }
  for (const int status : {0, 204, 304, 400, 405, 451}) {
    CHECK(judged(status).kind == Kind::kFailure);
    CHECK(judged(status).error == ErrorKind::kIo);
  }
}

TEST_CASE("a store that cannot take a condition is asked without one") {
  for (const char* status : {"400", "501"}) {
    const Answer answer = Told({std::string("HTTP/1.1 ") + status + " X"});
    CHECK(Judge(answer, Asked({0, 10})).kind == Kind::kNoCondition);
    CHECK(Judge(answer, Asked({0, 10}, 1000, "")).kind != Kind::kNoCondition);
  }
}

TEST_CASE("credentials that ended count as refused") {
  const Answer answer =
      Told({"HTTP/1.1 400 Bad Request"},
           "<Error><Code>ExpiredToken</Code><Message>m</Message></Error>");
  CHECK(Judge(answer, Asked({0, 10})).kind == Kind::kRefused);
}

TEST_CASE("a store's message is shown without what it repeats, printable and cut") {
  const Verdict verdict =
      Judge(Told({"HTTP/1.1 403 Forbidden"},
                 "<?xml?><Error><Code>AccessDenied</Code><Message>no \x01\xff</Message>"
                 "<AWSAccessKeyId>SECRET</AWSAccessKeyId></Error>"),
            Asked({0, 10}));
  CHECK(Says(verdict, "HTTP 403 (AccessDenied: no \\x01\\xff)"));
  CHECK_FALSE(Says(verdict, "SECRET"));
  Answer longer = Told({"HTTP/1.1 403 Forbidden"});
  for (int i = 0; i < 100; ++i) longer.AddText(std::string(1000, 'x'));
  CHECK(longer.text.size() <= 4096);
  CHECK(Judge(longer, Asked({0, 10})).reason.size() < 400);
}

TEST_CASE("the request's number at the store is kept") {
  for (const char* name :
       {"x-amz-request-id", "x-ms-request-id", "X-GUploader-UploadID"}) {
    CHECK(Told({"HTTP/1.1 500 X", std::string(name) + ": abc"}).request_id == "abc");
  }
}

}  // namespace
}  // namespace torchparquet
