#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "caught.h"
#include "recipes/fetching.h"
#include "recipes/origin.h"
#include "remote/transport/http_fetcher.h"

namespace torchparquet {
namespace {

using testing::Addresses;
using testing::Bytes;
using testing::Caught;
using testing::Expected;
using testing::FetchOf;
using testing::Gate;
using testing::Mentions;
using testing::Origin;
using testing::QuickOptions;
using Reply = Origin::Reply;
using Request = Origin::Request;
using End = Origin::Reply::End;

constexpr ByteRange kRange{1000, 200'000};
constexpr int64_t kObjectBytes = 300'000;

// An origin whose first `num_faults` answers are changed by `fault`.
Origin::Script Faulty(int64_t num_faults, std::function<Reply(Reply)> fault) {
  return [=](const Origin& origin, const Request& request) {
    Reply reply = origin.Right(request);
    return request.number < num_faults ? fault(std::move(reply)) : reply;
  };
}

// Reads kRange from an origin. Nothing if that was right, otherwise the error.
struct Read {
  explicit Read(Origin::Script script, const FetchOptions& options = QuickOptions(),
                const std::string& etag = "listed")
      : origin(kObjectBytes, std::move(script)), fetcher(options) {
    fetch = FetchOf(origin, kRange, nullptr, etag);
    fetcher.Start(fetch);
    std::string bytes;
    error = Caught([&] { bytes = Bytes(*fetch); });
    if (!error) CHECK(bytes == Expected(origin, kRange));
    stats = fetcher.stats();
  }
  bool IsError(ErrorKind kind, const std::vector<std::string>& texts) const {
    if (!error || error->kind() != kind) return false;
    for (const std::string& text : texts) {
      CAPTURE(error->what());
      CHECK_MESSAGE(Mentions(*error, text), text);
    }
    return Mentions(*error, "s3://bucket/object");
  }
  std::vector<std::string> ranges() const {
    std::vector<std::string> out;
    for (const Request& request : origin.requests()) {
      out.push_back(request.headers.at("range"));
    }
    return out;
  }

  Origin origin;
  HttpFetcher fetcher;
  std::shared_ptr<Fetch> fetch;
  std::optional<Error> error;
  FetchStats stats;
};

Origin::Script Always(int64_t status, std::vector<std::string> headers = {},
                      std::string body = {}) {
  return [=](const Origin&, const Request&) {
    return Origin::Status(status, headers, body);
  };
}

TEST_CASE("a short body is resumed at the next byte, under the same condition") {
  const Read read(Faulty(2, [](Reply reply) {
    reply.end = End::kClose;
    reply.end_at = 50'000;
    return reply;
  }));
  CHECK_FALSE(read.error);
  CHECK(read.ranges() == std::vector<std::string>{"bytes=1000-200999",
                                                  "bytes=51000-200999",
                                                  "bytes=101000-200999"});
  for (const Request& request : read.origin.requests()) {
    CHECK(request.headers.at("if-match") == read.origin.etag());
  }
  CHECK(read.stats.num_requests == 3);
  CHECK(read.stats.num_retries == 2);
  CHECK(read.stats.bytes_received == kRange.num_bytes);
  CHECK(read.stats.bytes_wasted == 0);
}

TEST_CASE("an object without a listed ETag keeps that of the first answer") {
  const Read read(Faulty(1,
                         [](Reply reply) {
                           reply.end = End::kClose;
                           reply.end_at = 50'000;
                           return reply;
                         }),
                  QuickOptions(), "");
  CHECK_FALSE(read.error);
  const auto requests = read.origin.requests();
  REQUIRE(requests.size() == 2);
  CHECK_FALSE(requests[0].has("if-match"));
  CHECK(requests[1].headers.at("if-match") == read.origin.etag());
}

TEST_CASE("an object that changes while it is read is an error at once") {
  const Read read(
      [](const Origin& origin, const Request& request) {
        Reply reply = origin.Right(request);
        if (request.number == 0) {
          reply.end = End::kClose;
          reply.end_at = 50'000;
        } else {
          // A store that heeds no condition.
          reply.headers[0] = "ETag: \"new\"";
        }
        return reply;
      },
      QuickOptions(), "");
  CHECK(read.IsError(
      ErrorKind::kChanged,
      {"the object changed since the data set was made", "\"new\"", read.origin.etag()}));
  CHECK(read.origin.num_requests() == 2);
  CHECK(read.fetch->num_arrived() == 50'000);
}

TEST_CASE("a connection that is reset or closed is made anew") {
  for (const int64_t end_at : {0, 1, 100'000, 199'999}) {
    for (const End end : {End::kReset, End::kClose}) {
      const Read read(Faulty(3, [=](Reply reply) {
        reply.end = end;
        reply.end_at = end_at;
        return reply;
      }));
      CHECK_FALSE(read.error);
      CHECK(read.stats.num_retries >= 1);
    }
  }
}

TEST_CASE("a store that nobody reaches fails with the tries and the cause") {
  const testing::Port unheard;
  const Origin origin(kObjectBytes);
  HttpFetcher fetcher(QuickOptions());
  const auto fetch = FetchOf(
      origin, kRange, std::make_shared<Addresses>(ObjectAddress{.url = unheard.url()}));
  fetcher.Start(fetch);
  const auto error = Caught([&] { Bytes(*fetch); });
  REQUIRE(error);
  CAPTURE(error->what());
  CHECK(error->kind() == ErrorKind::kIo);
  for (const char* text : {"bytes 1000-200999", "after 5 tries", "the connection failed",
                           "s3://bucket/object"}) {
    CHECK(Mentions(*error, text));
  }
}

TEST_CASE("busy and broken stores are tried again") {
  for (const int64_t status : {408, 429, 500, 502, 503, 504}) {
    const Read read(
        Faulty(3, [=](Reply) { return Origin::Status(status, {}, "<Code>x</Code>"); }));
    CHECK_FALSE(read.error);
    CHECK(read.stats.num_retries == 3);
    // A message leaves the connection usable.
    CHECK(read.origin.num_connections() == 1);
    CHECK(read.stats.bytes_received == kRange.num_bytes);
  }
}

TEST_CASE("a store that stays busy is an error with all that helps") {
  FetchOptions options = QuickOptions();
  options.max_tries = 1;
  const Read read(Always(503, {"x-amz-request-id: R3Q"},
                         "<Error><Code>SlowDown</Code><Message>Reduce</Message></Error>"),
                  options);
  CHECK(read.IsError(ErrorKind::kIo, {"bytes 1000-200999", "after 1 tries", "HTTP 503",
                                      "SlowDown: Reduce", "request id R3Q"}));
  CHECK(read.stats.num_requests == 1);
  CHECK(read.stats.num_retries == 0);
}

TEST_CASE("patience ends with time too") {
  FetchOptions options = QuickOptions();
  options.max_tries = 1'000'000;
  options.max_seconds = 0.3;
  const Read read(Always(503), options);
  CHECK(read.IsError(ErrorKind::kIo, {"HTTP 503"}));
  CHECK(read.stats.num_requests >= 2);
}

TEST_CASE("a store's wish to wait is heeded up to the end of patience") {
  const auto begin = std::chrono::steady_clock::now();
  const Read read(
      Faulty(1, [](Reply) { return Origin::Status(503, {"Retry-After: 1"}); }));
  CHECK_FALSE(read.error);
  CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::seconds(1));

  const std::time_t wanted = std::time(nullptr) + 2;
  const Read dated(Faulty(1, [&](Reply) {
    std::array<char, 40> date{};
    std::tm parts{};
    gmtime_r(&wanted, &parts);
    std::strftime(date.data(), date.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
    return Origin::Status(503, {"Retry-After: " + std::string(date.data())});
  }));
  CHECK_FALSE(dated.error);
  CHECK(std::time(nullptr) >= wanted);

  const Read garbled(
      Faulty(1, [](Reply) { return Origin::Status(503, {"Retry-After: soon"}); }));
  CHECK_FALSE(garbled.error);

  FetchOptions options = QuickOptions();
  options.max_seconds = 0.2;
  const Read longer(
      Faulty(1, [](Reply) { return Origin::Status(429, {"Retry-After: 86400"}); }),
      options);
  CHECK_FALSE(longer.error);
}

TEST_CASE("refusals shrink the number of requests in flight") {
  FetchOptions options = QuickOptions();
  options.max_connections = 32;  // of which a quarter at first
  const Origin origin(1000, [](const Origin& self, const Request& request) {
    return request.number < 9 ? Origin::Status(503, {"Retry-After: 1"})
                              : self.Right(request);
  });
  HttpFetcher fetcher(options);
  std::vector<std::shared_ptr<Fetch>> fetches;
  for (int64_t i = 0; i < 8; ++i) {
    fetches.push_back(FetchOf(origin, {i, 10}));
    fetcher.Start(fetches.back());
  }
  origin.AwaitRequests(9);
  while (fetcher.stats().concurrency == 8) std::this_thread::yield();
  CHECK(fetcher.stats().concurrency < 8);
  for (const auto& fetch : fetches)
    CHECK(Bytes(*fetch) == Expected(origin, fetch->range()));
}

TEST_CASE("an answer that stops is broken off and resumed") {
  FetchOptions options = QuickOptions();
  options.stall_seconds = 1;
  for (const int64_t gate_at : {-1, 0, 70'000}) {
    const Read read(Faulty(1,
                           [=](Reply reply) {
                             reply.gate = std::make_shared<Gate>();
                             reply.gate_at = gate_at;
                             return reply;
                           }),
                    options);
    CHECK_FALSE(read.error);
    CHECK(read.stats.num_retries == 1);
    CHECK(read.ranges().at(1) ==
          "bytes=" + std::to_string(1000 + std::max<int64_t>(gate_at, 0)) + "-200999");
  }
}

TEST_CASE("an answer that drips is broken off and resumed") {
  FetchOptions options = QuickOptions();
  options.stall_seconds = 1;
  const Read read(Faulty(1,
                         [=](Reply reply) {
                           reply.gate = std::make_shared<Gate>();
                           reply.gate_at = 1000;
                           reply.drip_milliseconds = 1;
                           return reply;
                         }),
                  options);
  CHECK_FALSE(read.error);
  CHECK(read.stats.num_retries == 1);
  CHECK(read.stats.bytes_received == kRange.num_bytes);
}

TEST_CASE("a store that always stops is an error that says so") {
  FetchOptions options = QuickOptions();
  options.max_tries = 2;
  options.stall_seconds = 1;
  const Read read(Faulty(100,
                         [](Reply reply) {
                           reply.gate = std::make_shared<Gate>();
                           reply.gate_at = 0;
                           return reply;
                         }),
                  options);
  CHECK(read.IsError(ErrorKind::kIo, {"after 2 tries", "Operation too slow"}));
}

TEST_CASE("a changed or missing object is not tried again") {
  for (const auto& [status, kind] :
       std::vector<std::pair<int64_t, ErrorKind>>{{412, ErrorKind::kChanged},
                                                  {416, ErrorKind::kChanged},
                                                  {404, ErrorKind::kFileNotFound},
                                                  {410, ErrorKind::kFileNotFound},
                                                  {405, ErrorKind::kIo}}) {
    const Read read(Always(status, {"x-ms-request-id: 77"}, "gone\x01"));
    CHECK(read.IsError(kind,
                       {"HTTP " + std::to_string(status), "gone\\x01", "request id 77"}));
    CHECK(read.origin.num_requests() == 1);
  }
  const Read read(nullptr, QuickOptions(), "\"old\"");
  CHECK(read.IsError(ErrorKind::kChanged,
                     {"the object changed since the data set was made"}));
  CHECK(read.origin.num_requests() == 1);
}

TEST_CASE("another ETag or size is a changed object, whatever the store checks") {
  const Read weak(nullptr, QuickOptions(), "W/\"old\"");
  CHECK(weak.IsError(ErrorKind::kChanged, {"the object changed", "W/\"old\""}));
  CHECK(weak.origin.num_requests() == 1);
  const Read longer(Faulty(1, [](Reply reply) {
    reply.headers[1] = "Content-Range: bytes 1000-200999/300001";
    return reply;
  }));
  CHECK(longer.IsError(ErrorKind::kChanged, {"the object changed", "300001"}));
  CHECK(longer.fetch->num_arrived() == 0);
}

TEST_CASE("answers with another range are tried again, and none of their bytes is used") {
  for (const char* range : {"bytes 1001-201000/300000", "bytes 1000-200998/300000",
                            "bytes 0-199999/300000"}) {
    const Read read(Faulty(2, [=](Reply reply) {
      reply.headers[1] = std::string("Content-Range: ") + range;
      reply.body.assign(reply.body.size(), 'x');
      return reply;
    }));
    CHECK_FALSE(read.error);
    CHECK(read.stats.num_retries == 2);
    CHECK(read.stats.bytes_wasted > 0);
  }
  const Read none(Faulty(1, [](Reply reply) {
    reply.headers.pop_back();
    return reply;
  }));
  CHECK(none.IsError(ErrorKind::kIo, {"without a range"}));
}

TEST_CASE("a body without end is cut off") {
  const Read read(Faulty(1, [](Reply reply) {
    reply.tells_length = false;
    reply.body += std::string(2'000'000, 'x');
    return reply;
  }));
  CHECK(read.IsError(ErrorKind::kIo, {"more bytes than asked for"}));
  CHECK(read.fetch->num_arrived() < kRange.num_bytes);
  // The padding after the range was not written.
  CHECK(read.stats.bytes_received < 2'000'000);
}

TEST_CASE("a body of no told length ends with the connection") {
  const Read whole(Faulty(1, [](Reply reply) {
    reply.tells_length = false;
    return reply;
  }));
  CHECK_FALSE(whole.error);
  CHECK(whole.stats.num_requests == 1);
  const Read part(Faulty(1, [](Reply reply) {
    reply.tells_length = false;
    reply.end_at = 1000;
    return reply;
  }));
  CHECK_FALSE(part.error);
  CHECK(part.stats.num_requests == 2);
}

TEST_CASE("the whole object is taken if little of it is wasted, and otherwise refused") {
  const Read part([](const Origin& origin, const Request&) {
    return Origin::Status(200, {}, origin.content());
  });
  CHECK(part.IsError(ErrorKind::kIo, {"the store ignores ranges"}));
  CHECK(part.origin.num_requests() == 1);
  CHECK(part.fetch->num_arrived() == 0);

  const Origin small(70'000, [](const Origin& origin, const Request& request) {
    Reply reply = Origin::Status(200, {}, origin.content());
    reply.end = request.number == 0 ? End::kClose : End::kKeep;
    reply.end_at = request.number == 0 ? 20'000 : -1;
    return reply;
  });
  HttpFetcher fetcher(QuickOptions());
  const auto fetch = FetchOf(small, {10, 69'000});
  fetcher.Start(fetch);
  CHECK(Bytes(*fetch) == Expected(small, {10, 69'000}));
  CHECK(fetcher.stats().bytes_received == 90'000);
  CHECK(fetcher.stats().bytes_wasted == 21'000);
}

TEST_CASE("encoded bodies are refused") {
  const Read read(Faulty(1, [](Reply reply) {
    reply.headers.emplace_back("Content-Encoding: gzip");
    return reply;
  }));
  CHECK(read.IsError(ErrorKind::kIo, {"Content-Encoding 'gzip'"}));
  CHECK(read.origin.num_requests() == 1);
}

TEST_CASE("a store that knows no condition is asked without one, and its ETags count") {
  const auto script = [](const Origin& origin, const Request& request) {
    if (request.has("if-match")) return Origin::Status(501);
    return origin.Right(request);
  };
  Read read(script);
  CHECK_FALSE(read.error);
  CHECK(read.origin.num_requests() == 2);
  const auto next = FetchOf(read.origin, {0, 10});
  read.fetcher.Start(next);
  CHECK(Bytes(*next) == Expected(read.origin, {0, 10}));
  CHECK(read.origin.num_requests() == 3);
  const Read changed(script, QuickOptions(), "\"old\"");
  CHECK(changed.IsError(ErrorKind::kChanged, {"the object changed"}));
}

TEST_CASE("a request that fails without a condition too says nothing about conditions") {
  const auto script = [](const Origin& origin, const Request& request) {
    return request.number < 2 ? Origin::Status(400) : origin.Right(request);
  };
  Read read(script);
  CHECK(read.IsError(ErrorKind::kIo, {"refuses the request", "HTTP 400"}));
  CHECK_FALSE(read.origin.requests().at(1).has("if-match"));
  const auto next = FetchOf(read.origin, {0, 10});
  read.fetcher.Start(next);
  CHECK(Bytes(*next) == Expected(read.origin, {0, 10}));
  CHECK(read.origin.requests().at(2).has("if-match"));
}

TEST_CASE("a refused address is replaced twice, and then is an error") {
  for (const int64_t status : {401, 403}) {
    const Origin origin(kObjectBytes, [=](const Origin& self, const Request& request) {
      if (request.target == "/fresh") return self.Right(request);
      return Origin::Status(status, {"x-amz-request-id: 9"},
                            "<Code>AccessDenied</Code><Message>no</Message>");
    });
    HttpFetcher fetcher(QuickOptions());
    const auto addresses =
        std::make_shared<Addresses>(ObjectAddress{.url = origin.url("/stale")});
    addresses->GiveNext({.url = origin.url("/fresh")});
    const auto fetch = FetchOf(origin, kRange, addresses);
    fetcher.Start(fetch);
    CHECK(Bytes(*fetch) == Expected(origin, kRange));
    CHECK(addresses->num_refused() == 1);
    CHECK(origin.num_requests() == 2);

    const auto refused = std::make_shared<Addresses>(ObjectAddress{.url = origin.url()});
    const auto failing = FetchOf(origin, kRange, refused);
    fetcher.Start(failing);
    const auto error = Caught([&] { Bytes(*failing); });
    REQUIRE(error);
    CAPTURE(error->what());
    CHECK(error->kind() == ErrorKind::kIo);
    for (const char* text :
         {"refuses access", "AccessDenied: no", "request id 9", "s3://bucket/object"}) {
      CHECK(Mentions(*error, text));
    }
    CHECK(refused->num_refused() == 3);
    CHECK(origin.num_requests() == 5);
  }
}

TEST_CASE("an address that has ended and comes again is tried no oftener") {
  const Origin origin(kObjectBytes, [](const Origin&, const Request&) {
    return Origin::Status(403, {}, "<Code>AuthenticationFailed</Code>");
  });
  FetchOptions options = QuickOptions();
  options.max_tries = 10;
  HttpFetcher fetcher(options);
  const auto addresses = std::make_shared<Addresses>(
      ObjectAddress{.url = origin.url("/?se=2020-01-01"), .renew_at = 1});
  const auto fetch = FetchOf(origin, kRange, addresses);
  fetcher.Start(fetch);
  const auto error = Caught([&] { Bytes(*fetch); });
  REQUIRE(error);
  CHECK(Mentions(*error, "refuses access"));
  CHECK(Mentions(*error, "AuthenticationFailed"));
  CHECK(origin.num_requests() == 4);
}

TEST_CASE("faults at random end in the right bytes") {
  const auto script = [](const Origin& origin, const Request& request) {
    Reply reply = origin.Right(request);
    const auto size = std::ssize(reply.body);
    switch (request.number * 7 % 11) {
      case 1:
        return Origin::Status(503);
      case 2:
        reply.end = End::kReset;
        reply.end_at = request.number * 977 % size;
        return reply;
      case 3:
        reply.end = End::kClose;
        reply.end_at = request.number * 311 % size;
        return reply;
      case 4:
        reply.end = End::kClose;  // after a whole answer
        return reply;
      case 5:
        return Origin::Status(500, {}, std::string(100'000, 'x'));
      default:
        return reply;
    }
  };
  const Origin origin(kObjectBytes, script);
  FetchOptions options = QuickOptions();
  options.max_tries = 100;
  HttpFetcher fetcher(options);
  std::vector<std::shared_ptr<Fetch>> fetches;
  for (int64_t i = 0; i < 60; ++i) {
    fetches.push_back(FetchOf(origin, {i * 1000, 100'000 + i * 1000}));
    fetcher.Start(fetches.back());
  }
  for (const auto& fetch : fetches) {
    CHECK(Bytes(*fetch) == Expected(origin, fetch->range()));
  }
  CHECK(fetcher.stats().num_retries > 10);
}

}  // namespace
}  // namespace torchparquet
