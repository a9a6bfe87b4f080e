#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "caught.h"
#include "recipes/fetching.h"
#include "recipes/origin.h"
#include "remote/transport/http_fetcher.h"

namespace torchparquet {
namespace {

using testing::ArrivesWithin;
using testing::Bytes;
using testing::Expected;
using testing::FetchOf;
using testing::Gate;
using testing::Origin;
using testing::QuickOptions;
using Reply = Origin::Reply;
using Request = Origin::Request;

constexpr int64_t kObjectBytes = 100'000;

FetchOptions HedgingOptions() {
  FetchOptions options = QuickOptions();
  options.hedges = true;
  // Longer than a busy machine holds up a store that answers at once.
  options.min_hedge_seconds = 0.3;
  return options;
}

// Lets the fetcher learn how quick the store is, and save some second requests.
void Learn(const Origin& origin, HttpFetcher* fetcher, int64_t num_requests) {
  for (int64_t i = 0; i < num_requests; ++i) {
    const auto fetch = FetchOf(origin, {i, 10});
    fetcher->Start(fetch);
    Bytes(*fetch);
  }
}

TEST_CASE("a slow first byte is asked for again, and the quicker one wins") {
  const auto both = std::make_shared<Gate>();
  const auto gate = std::make_shared<Gate>();
  const Origin origin(kObjectBytes, [&](const Origin& self, const Request& request) {
    Reply reply = self.Right(request);
    if (request.number < 2) reply.gate = both;
    if (request.number == 60) reply.gate = gate;
    return reply;
  });
  HttpFetcher fetcher(HedgingOptions());
  // One connection more than is needed.
  const auto one = FetchOf(origin, {0, 10});
  const auto other = FetchOf(origin, {0, 10});
  fetcher.Start(one);
  fetcher.Start(other);
  both->AwaitWaiting(2);
  both->Open();
  Bytes(*one);
  Bytes(*other);
  Learn(origin, &fetcher, 58);
  CHECK(fetcher.stats().num_hedges == 0);
  const auto fetch = FetchOf(origin, {0, kObjectBytes});
  fetcher.Start(fetch);
  CHECK(Bytes(*fetch) == origin.content());
  const FetchStats stats = fetcher.stats();
  CHECK(stats.num_hedges == 1);
  CHECK(stats.num_hedges_won == 1);
  CHECK(stats.num_requests == 62);
  CHECK(stats.num_retries == 0);
  const auto requests = origin.requests();
  REQUIRE(requests.size() == 62);
  CHECK(requests[61].headers.at("range") == requests[60].headers.at("range"));
  // On a new connection, though there is one that is free.
  CHECK(requests[61].connection == 2);
  CHECK(origin.num_connections() == 3);
}

TEST_CASE("the first request may still win") {
  const auto first = std::make_shared<Gate>();
  const auto second = std::make_shared<Gate>();
  const Origin origin(kObjectBytes, [&](const Origin& self, const Request& request) {
    Reply reply = self.Right(request);
    if (request.number == 60) reply.gate = first;
    if (request.number == 61) reply.gate = second;
    return reply;
  });
  HttpFetcher fetcher(HedgingOptions());
  Learn(origin, &fetcher, 60);
  const auto fetch = FetchOf(origin, {0, kObjectBytes});
  fetcher.Start(fetch);
  second->AwaitWaiting(1);
  first->Open();
  CHECK(Bytes(*fetch) == origin.content());
  CHECK(fetcher.stats().num_hedges == 1);
  CHECK(fetcher.stats().num_hedges_won == 0);
}

TEST_CASE("what comes of the loser later is not used") {
  const auto first = std::make_shared<Gate>();
  const auto second = std::make_shared<Gate>();
  const Origin origin(kObjectBytes, [&](const Origin& self, const Request& request) {
    Reply reply = self.Right(request);
    if (request.number == 60) reply.gate = first;
    if (request.number == 61) {
      reply.gate = second;
      reply.gate_at = 40'000;
    }
    return reply;
  });
  HttpFetcher fetcher(HedgingOptions());
  Learn(origin, &fetcher, 60);
  const auto fetch = FetchOf(origin, {0, kObjectBytes});
  fetcher.Start(fetch);
  fetch->Await(40'000);
  first->Open();
  CHECK_FALSE(ArrivesWithin(*fetch, kObjectBytes, 200));
  CHECK(fetch->num_arrived() == 40'000);
  second->Open();
  CHECK(Bytes(*fetch) == origin.content());
}

TEST_CASE("a second request that fails leaves the first alone, and the other way round") {
  for (const int64_t failing : {60, 61}) {
    const auto gate = std::make_shared<Gate>();
    const auto failure = std::make_shared<Gate>();
    const Origin origin(kObjectBytes, [&](const Origin& self, const Request& request) {
      Reply reply = self.Right(request);
      if (request.number == failing) {
        reply = Origin::Status(500);
        reply.gate = failure;
      } else if (request.number >= 60) {
        reply.gate = gate;
      }
      return reply;
    });
    HttpFetcher fetcher(HedgingOptions());
    Learn(origin, &fetcher, 60);
    const auto fetch = FetchOf(origin, {0, kObjectBytes});
    fetcher.Start(fetch);
    gate->AwaitWaiting(1);
    failure->AwaitWaiting(1);
    failure->Open();
    CHECK_FALSE(ArrivesWithin(*fetch, 1, 200));
    gate->Open();
    CHECK(Bytes(*fetch) == origin.content());
    // The one that is left may be asked for twice again, but not as a retry.
    CHECK(fetcher.stats().num_retries == 0);
  }
}

TEST_CASE("a winner that breaks off is resumed") {
  const auto gate = std::make_shared<Gate>();
  const Origin origin(kObjectBytes, [&](const Origin& self, const Request& request) {
    Reply reply = self.Right(request);
    if (request.number == 60) reply.gate = gate;
    if (request.number == 61) {
      reply.end = Reply::End::kClose;
      reply.end_at = 40'000;
    }
    return reply;
  });
  HttpFetcher fetcher(HedgingOptions());
  Learn(origin, &fetcher, 60);
  const auto fetch = FetchOf(origin, {0, kObjectBytes});
  fetcher.Start(fetch);
  CHECK(Bytes(*fetch) == origin.content());
  CHECK(origin.requests().at(62).headers.at("range") == "bytes=40000-99999");
}

TEST_CASE("a store that is slow as a whole is not asked twice") {
  const auto gate = std::make_shared<Gate>();
  const Origin origin(kObjectBytes, Origin::Gated(gate, 200));
  HttpFetcher fetcher(HedgingOptions());
  Learn(origin, &fetcher, 200);
  std::vector<std::shared_ptr<Fetch>> fetches;
  for (int64_t i = 0; i < 8; ++i) {
    fetches.push_back(FetchOf(origin, {i, 10}));
    fetcher.Start(fetches.back());
  }
  gate->AwaitWaiting(8);
  // Longer than any first byte may take.
  CHECK_FALSE(ArrivesWithin(*fetches[0], 10, 500));
  const int64_t num_hedges = fetcher.stats().num_hedges;
  gate->Open();
  for (const auto& fetch : fetches)
    CHECK(Bytes(*fetch) == Expected(origin, fetch->range()));
  CHECK(num_hedges <= 2);
}

TEST_CASE("no request is sent twice without leave") {
  const auto gate = std::make_shared<Gate>();
  const Origin origin(kObjectBytes, Origin::Gated(gate, 60, 60));
  HttpFetcher fetcher(QuickOptions());
  Learn(origin, &fetcher, 60);
  const auto fetch = FetchOf(origin, {0, 10});
  fetcher.Start(fetch);
  gate->AwaitWaiting(1);
  CHECK_FALSE(ArrivesWithin(*fetch, 10, 300));
  gate->Open();
  Bytes(*fetch);
  CHECK(fetcher.stats().num_hedges == 0);
}

TEST_CASE("a fetch with two requests can be cancelled") {
  const auto gate = std::make_shared<Gate>();
  const Origin origin(kObjectBytes, Origin::Gated(gate, 60, 61));
  HttpFetcher fetcher(HedgingOptions());
  Learn(origin, &fetcher, 60);
  const auto fetch = FetchOf(origin, {0, kObjectBytes});
  fetcher.Start(fetch);
  gate->AwaitWaiting(2);
  fetcher.Cancel(fetch);
  Learn(origin, &fetcher, 5);
  CHECK(testing::Throws(ErrorKind::kStopped, [&] { Bytes(*fetch); }));
}

}  // namespace
}  // namespace torchparquet
