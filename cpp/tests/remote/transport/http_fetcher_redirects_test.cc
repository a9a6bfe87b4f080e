#include <doctest/doctest.h>

#include <memory>
#include <optional>
#include <string>

#include "caught.h"
#include "recipes/fetching.h"
#include "recipes/origin.h"
#include "remote/transport/http_fetcher.h"
#include "remote/transport/transfer.h"

namespace torchparquet {
namespace {

using testing::Addresses;
using testing::Bytes;
using testing::Caught;
using testing::Expected;
using testing::FetchOf;
using testing::Mentions;
using testing::Origin;
using testing::QuickOptions;
using Request = Origin::Request;

constexpr ByteRange kRange{100, 500};

Origin::Script To(const std::string& url, int64_t status = 302) {
  return [=](const Origin&, const Request&) {
    return Origin::Status(status, {"Location: " + url}, "moved");
  };
}

std::shared_ptr<Addresses> Secret(const std::string& url) {
  return std::make_shared<Addresses>(
      ObjectAddress{.url = url,
                    .headers = {"Authorization: Bearer key",
                                "X-Amz-Security-Token: token", "Cookie: a=b"}});
}

std::optional<Error> Failure(const Origin& origin) {
  HttpFetcher fetcher(QuickOptions());
  const auto fetch = FetchOf(origin, kRange, Secret(origin.url()));
  fetcher.Start(fetch);
  auto error = Caught([&] { Bytes(*fetch); });
  CHECK(fetcher.stats().num_retries == 0);
  return error;
}

TEST_CASE("another host gets the range and the condition, and no secret") {
  for (const int64_t status : {301, 302, 303, 307, 308}) {
    const Origin other(1000);
    // Another port is another host.
    const Origin origin(1000, To(other.url("/there?sig=1"), status));
    HttpFetcher fetcher(QuickOptions());
    const auto fetch = FetchOf(origin, kRange, Secret(origin.url()));
    fetcher.Start(fetch);
    CHECK(Bytes(*fetch) == Expected(other, kRange));
    const Request first = origin.requests().at(0);
    CHECK(first.headers.at("authorization") == "Bearer key");
    CHECK(first.headers.at("x-amz-security-token") == "token");
    CHECK(first.headers.at("cookie") == "a=b");
    const Request second = other.requests().at(0);
    CHECK(second.target == "/there?sig=1");
    CHECK(second.headers.at("range") == "bytes=100-599");
    CHECK(second.headers.at("if-match") == other.etag());
    for (const char* name : {"authorization", "x-amz-security-token", "cookie"}) {
      CHECK_FALSE(second.has(name));
    }
    CHECK(fetcher.stats().num_requests == 2);
  }
}

TEST_CASE("the same host gets the headers again, by paths of any form") {
  const Origin origin(1000, [](const Origin& self, const Request& request) {
    if (request.target == "/object") return Origin::Status(302, {"Location: ../b?c=d"});
    return self.Right(request);
  });
  HttpFetcher fetcher(QuickOptions());
  const auto fetch = FetchOf(origin, kRange, Secret(origin.url()));
  fetcher.Start(fetch);
  CHECK(Bytes(*fetch) == Expected(origin, kRange));
  const Request second = origin.requests().at(1);
  CHECK(second.headers.at("authorization") == "Bearer key");
  CHECK(origin.num_connections() == 1);
}

TEST_CASE("redirects end after five") {
  const Origin origin(1000, [](const Origin& self, const Request& request) {
    if (request.number < 5) return Origin::Status(302, {"Location: /again"});
    return self.Right(request);
  });
  CHECK_FALSE(Failure(origin));
  const Origin circle(1000, To("/again"));
  const auto error = Failure(circle);
  REQUIRE(error);
  CHECK(error->kind() == ErrorKind::kIo);
  CHECK(Mentions(*error, "redirects too often"));
  CHECK(circle.num_requests() == 6);
}

TEST_CASE("other protocols are not followed") {
  for (const char* url : {"file:///etc/passwd", "ftp://127.0.0.1/x",
                          "gopher://127.0.0.1/x", "dict://127.0.0.1/x"}) {
    const auto error = Failure(Origin(1000, To(url)));
    REQUIRE(error);
    CHECK(Mentions(*error, "redirects to another protocol"));
  }
  const auto error = Failure(
      Origin(1000, [](const Origin&, const Request&) { return Origin::Status(302); }));
  REQUIRE(error);
  CHECK(Mentions(*error, "redirects to nowhere"));
}

TEST_CASE("addresses are of HTTP too") {
  const Origin origin(1000);
  HttpFetcher fetcher(QuickOptions());
  for (const char* url :
       {"file:///etc/passwd", "ftp://127.0.0.1/x", "no url at all", ""}) {
    const auto fetch =
        FetchOf(origin, kRange, std::make_shared<Addresses>(ObjectAddress{.url = url}));
    fetcher.Start(fetch);
    const auto error = Caught([&] { Bytes(*fetch); });
    REQUIRE(error);
    CHECK(error->kind() == ErrorKind::kIo);
  }
  CHECK(fetcher.stats().num_retries == 0);
}

TEST_CASE("origins are scheme, host and port") {
  CHECK(OriginOf("http://Example.com/a?b") == "http://example.com:80");
  CHECK(OriginOf("HTTPS://example.com:443/") == "https://example.com:443");
  CHECK(OriginOf("https://user:key@example.com/") == "https://example.com:443");
  CHECK(OriginOf("http://[::1]:8080/x") == "http://[::1]:8080");
  for (const char* url : {"file:///x", "ftp://example.com/", "", "/x"}) {
    CHECK(OriginOf(url).empty());
  }
}

}  // namespace
}  // namespace torchparquet
