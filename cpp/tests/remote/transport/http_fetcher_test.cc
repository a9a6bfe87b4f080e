#include "remote/transport/http_fetcher.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "caught.h"
#include "draws.h"
#include "recipes/fetching.h"
#include "recipes/origin.h"
#include "tried.h"

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
using testing::Throws;

FetchOptions WithThreads(int64_t num_threads) {
  FetchOptions options = QuickOptions();
  options.num_threads = num_threads;
  return options;
}

TEST_CASE("ranges arrive as they are, over connections that are used again") {
  int64_t num_threads = 1;
  SUBCASE("by one thread") {}
  SUBCASE("by three threads") { num_threads = 3; }
  const Origin origin(3'000'000);
  HttpFetcher fetcher(WithThreads(num_threads));
  testing::Draws draws(testing::SeedTried(1));
  std::vector<std::shared_ptr<Fetch>> fetches;
  const int64_t num_ranges = testing::NumTried(200);
  for (int64_t i = 0; i < num_ranges; ++i) {
    const int64_t offset = draws.Below(2'999'999);
    const int64_t most = draws.OneIn(2) ? 100 : 3'000'000 - offset;
    const ByteRange range{offset,
                          1 + draws.Below(std::min<int64_t>(most, 3'000'000 - offset))};
    fetches.push_back(FetchOf(origin, range));
    fetcher.Start(fetches.back());
  }
  int64_t num_bytes = 0;
  for (const auto& fetch : fetches) {
    CHECK(Bytes(*fetch) == Expected(origin, fetch->range()));
    num_bytes += fetch->range().num_bytes;
  }
  const FetchStats stats = fetcher.stats();
  CHECK(stats.num_requests == num_ranges);
  CHECK(stats.num_retries == 0);
  CHECK(stats.num_hedges == 0);
  CHECK(stats.bytes_received == num_bytes);
  CHECK(stats.bytes_wasted == 0);
  CHECK(origin.num_connections() <= QuickOptions().max_connections);
  const int64_t most = QuickOptions().max_connections;
  if (num_threads == 1) {
    CHECK(stats.concurrency == std::min(most, most / 4 + num_ranges));
  } else {
    CHECK(stats.concurrency <= most);
  }
}

TEST_CASE("threads share the fetches and the connections") {
  const auto gate = std::make_shared<Gate>();
  const Origin origin(1000, Origin::Gated(gate));
  FetchOptions options = WithThreads(8);
  options.max_connections = 50;  // so three threads
  HttpFetcher fetcher(options);
  std::mutex mutex;
  std::set<std::thread::id> tellers;
  std::vector<std::shared_ptr<Fetch>> fetches;
  for (int64_t i = 0; i < 60; ++i) {
    fetches.push_back(FetchOf(origin, {i * 10, 10}));
    fetches.back()->OnOver([&] {
      const std::lock_guard lock(mutex);
      tellers.insert(std::this_thread::get_id());
    });
    fetcher.Start(fetches.back());
  }
  // A quarter of the connections of each begin.
  gate->AwaitWaiting(4 + 4 + 4);
  CHECK(origin.num_requests() == 4 + 4 + 4);
  gate->Open();
  for (const auto& fetch : fetches)
    CHECK(Bytes(*fetch) == Expected(origin, fetch->range()));
  fetcher.Stop();
  CHECK(tellers.size() == 3);
  CHECK(tellers.count(std::this_thread::get_id()) == 0);
  CHECK(origin.num_connections() <= 50);
}

TEST_CASE("a request names its range and what the object must be") {
  const Origin origin(1000);
  HttpFetcher fetcher(QuickOptions());
  const auto addresses = std::make_shared<Addresses>(
      ObjectAddress{.url = origin.url("/a/../b%20c?X-Sig=1&y=/../"),
                    .headers = {"Authorization: key"}});
  const auto fetch = FetchOf(origin, {100, 50}, addresses);
  fetcher.Start(fetch);
  CHECK(Bytes(*fetch) == Expected(origin, {100, 50}));
  const Origin::Request request = origin.requests().at(0);
  CHECK(request.target == "/a/../b%20c?X-Sig=1&y=/../");
  CHECK(request.headers.at("range") == "bytes=100-149");
  CHECK(request.headers.at("if-match") == origin.etag());
  CHECK(request.headers.at("accept-encoding") == "identity");
  CHECK(request.headers.at("authorization") == "key");

  // Weak ETags and none make no condition.
  for (const std::string& etag : {"W/" + origin.etag(), std::string()}) {
    const auto other = FetchOf(origin, {0, 10}, nullptr, etag);
    fetcher.Start(other);
    CHECK(Bytes(*other) == Expected(origin, {0, 10}));
    CHECK_FALSE(origin.requests().back().has("if-match"));
  }
}

TEST_CASE("readers see bytes before the whole is there") {
  const auto gate = std::make_shared<Gate>();
  const Origin origin(500'000, [&](const Origin& self, const Origin::Request& request) {
    Origin::Reply reply = self.Right(request);
    reply.gate = gate;
    reply.gate_at = 300'000;
    return reply;
  });
  HttpFetcher fetcher(QuickOptions());
  const auto fetch = FetchOf(origin, {0, 500'000});
  fetcher.Start(fetch);
  fetch->Await(300'000);
  CHECK(fetch->num_arrived() == 300'000);
  CHECK_FALSE(fetch->is_over());
  gate->Open();
  CHECK(Bytes(*fetch) == origin.content());
}

TEST_CASE("fetches begin in order, those that a reader waits for first") {
  const auto gate = std::make_shared<Gate>();
  const Origin origin(1000, Origin::Gated(gate, 0, 0));
  FetchOptions options = QuickOptions();
  options.max_connections = 1;
  HttpFetcher fetcher(options);
  std::vector<std::shared_ptr<Fetch>> fetches;
  for (int64_t i = 0; i < 6; ++i) {
    fetches.push_back(FetchOf(origin, {i * 10, 10}));
    fetcher.Start(fetches.back());
  }
  gate->AwaitWaiting(1);
  fetcher.Hurry(fetches[4]);
  fetcher.Hurry(fetches[5]);
  fetcher.Hurry(fetches[4]);
  fetcher.Cancel(fetches[2]);
  gate->Open();
  for (const size_t i : {0, 1, 3, 4, 5}) {
    CHECK(Bytes(*fetches[i]) == Expected(origin, fetches[i]->range()));
  }
  std::vector<std::string> ranges;
  for (const auto& request : origin.requests()) {
    ranges.push_back(request.headers.at("range"));
  }
  CHECK(ranges == std::vector<std::string>{"bytes=0-9", "bytes=40-49", "bytes=50-59",
                                           "bytes=10-19", "bytes=30-39"});
  CHECK(Throws(ErrorKind::kStopped, [&] { Bytes(*fetches[2]); }));
  CHECK(origin.num_connections() == 1);
}

TEST_CASE("no more requests are in flight than allowed") {
  const auto gate = std::make_shared<Gate>();
  const Origin origin(1000, Origin::Gated(gate));
  FetchOptions options = QuickOptions();
  options.max_connections = 20;  // of which a quarter at first
  HttpFetcher fetcher(options);
  std::vector<std::shared_ptr<Fetch>> fetches;
  for (int64_t i = 0; i < 40; ++i) {
    fetches.push_back(FetchOf(origin, {i, 1}));
    fetcher.Start(fetches.back());
  }
  gate->AwaitWaiting(5);
  CHECK(origin.num_requests() == 5);
  gate->Open();
  for (const auto& fetch : fetches) Bytes(*fetch);
  CHECK(origin.num_connections() <= 20);
}

TEST_CASE("a fetch that is cancelled gives its connection to another") {
  const auto gate = std::make_shared<Gate>();
  const Origin origin(1000, Origin::Gated(gate, 0, 0));
  FetchOptions options = QuickOptions();
  options.max_connections = 1;
  HttpFetcher fetcher(options);
  const auto unwanted = FetchOf(origin, {0, 1000});
  std::atomic<int> num_over = 0;
  unwanted->OnOver([&] { ++num_over; });
  fetcher.Start(unwanted);
  gate->AwaitWaiting(1);
  fetcher.Cancel(unwanted);
  CHECK(unwanted->is_over());
  CHECK(num_over == 1);
  const auto wanted = FetchOf(origin, {0, 10});
  fetcher.Start(wanted);
  CHECK(Bytes(*wanted) == Expected(origin, {0, 10}));
  fetcher.Cancel(unwanted);
  fetcher.Cancel(wanted);
  CHECK(num_over == 1);
  CHECK(unwanted->num_arrived() == 0);
}

TEST_CASE("an empty range needs no request") {
  const Origin origin(1000);
  HttpFetcher fetcher(QuickOptions());
  std::promise<void> over;
  const auto fetch = FetchOf(origin, {0, 0});
  fetch->OnOver([&] { over.set_value(); });
  fetcher.Start(fetch);
  over.get_future().wait();
  CHECK(origin.num_requests() == 0);
}

TEST_CASE("fetches wait for addresses, and fail as those do") {
  const Origin origin(1000);
  HttpFetcher fetcher(WithThreads(2));
  const auto addresses = std::make_shared<Addresses>();
  const auto fetch = FetchOf(origin, {0, 1000}, addresses);
  fetcher.Start(fetch);
  while (addresses->num_asked() == 0) std::this_thread::yield();
  // Woken for another object's address.
  fetcher.Wake();
  while (addresses->num_asked() == 1) std::this_thread::yield();
  addresses->Give({.url = origin.url()});
  fetcher.Wake();
  CHECK(Bytes(*fetch) == origin.content());

  const auto keyless = std::make_shared<Addresses>();
  const auto failing = FetchOf(origin, {0, 1000}, keyless);
  fetcher.Start(failing);
  while (keyless->num_asked() == 0) std::this_thread::yield();
  keyless->Fail("no credentials");
  fetcher.Wake();
  const auto error = Caught([&] { Bytes(*failing); });
  REQUIRE(error);
  CHECK(error->kind() == ErrorKind::kIo);
  CHECK(Mentions(*error, "no credentials"));
  CHECK(Mentions(*error, "s3://bucket/object"));
}

TEST_CASE("an object that only a broker reads is refused") {
  const Origin origin(1000);
  HttpFetcher fetcher(QuickOptions());
  const auto fetch = std::make_shared<Fetch>(
      std::make_shared<const RemoteObject>(RemoteObject{.path = "x"}), ByteRange{0, 1});
  fetcher.Start(fetch);
  CHECK(Throws(ErrorKind::kInternal, [&] { Bytes(*fetch); }));
}

TEST_CASE(
    "a fetcher that ends fails what is in flight, in the queue and without address") {
  const auto gate = std::make_shared<Gate>();
  const Origin origin(1000, Origin::Gated(gate));
  FetchOptions options = QuickOptions();
  options.max_connections = 2;
  std::vector<std::shared_ptr<Fetch>> fetches;
  {
    HttpFetcher fetcher(options);
    fetches.push_back(FetchOf(origin, {0, 10}, std::make_shared<Addresses>()));
    for (int64_t i = 0; i < 5; ++i) fetches.push_back(FetchOf(origin, {i, 10}));
    for (const auto& fetch : fetches) fetcher.Start(fetch);
    gate->AwaitWaiting(2);
  }
  for (const auto& fetch : fetches) {
    CHECK(Throws(ErrorKind::kStopped, [&] { Bytes(*fetch); }));
  }
}

TEST_CASE("a fetcher that was stopped fails new fetches") {
  const Origin origin(1000);
  HttpFetcher fetcher(QuickOptions());
  const auto first = FetchOf(origin, {0, 10});
  fetcher.Start(first);
  Bytes(*first);
  fetcher.Stop();
  fetcher.Stop();
  const auto second = FetchOf(origin, {0, 10});
  fetcher.Start(second);
  CHECK(Throws(ErrorKind::kStopped, [&] { Bytes(*second); }));
  fetcher.Wake();
  fetcher.Hurry(second);
  HttpFetcher unused(QuickOptions());
}

TEST_CASE("the last user may let go on the fetcher's own thread") {
  const Origin origin(1000);
  int64_t num_threads = 1;
  SUBCASE("of one") {}
  SUBCASE("of three") { num_threads = 3; }
  auto fetcher = std::make_shared<HttpFetcher>(WithThreads(num_threads));
  std::promise<void> over;
  const auto first = FetchOf(origin, {0, 10});
  const auto second = FetchOf(origin, {0, 10}, std::make_shared<Addresses>());
  second->OnOver([&] { over.set_value(); });
  HttpFetcher& alive = *fetcher;
  std::promise<void> started;
  first->OnOver([&, held = std::move(fetcher)]() mutable {
    started.get_future().wait();
    held.reset();
  });
  alive.Start(second);
  alive.Start(first);
  started.set_value();
  over.get_future().wait();
  CHECK(Throws(ErrorKind::kStopped, [&] { Bytes(*second); }));
}

TEST_CASE("many threads start, hurry and cancel at once") {
  const Origin origin(100'000);
  HttpFetcher fetcher(WithThreads(3));
  std::atomic<int> num_over = 0;
  {
    std::vector<std::jthread> threads;
    for (uint64_t thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        testing::Draws draws(thread);
        for (int i = 0; i < 100; ++i) {
          const ByteRange range{draws.Below(50'000), 1 + draws.Below(50'000)};
          const auto fetch = FetchOf(origin, range);
          fetch->OnOver([&] { ++num_over; });
          fetcher.Start(fetch);
          if (draws.OneIn(2)) fetcher.Hurry(fetch);
          if (draws.OneIn(3)) {
            fetcher.Cancel(fetch);
            fetcher.Wake();
          } else if (Bytes(*fetch) != Expected(origin, range)) {
            std::abort();
          }
        }
      });
    }
  }
  // A reader may go on before its fetch has told that it is over.
  fetcher.Stop();
  CHECK(num_over == 400);
}

// The connections of this process, by their numbers.
std::vector<int> Connections() {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int number = std::stoi(entry.path().filename());
    sockaddr_storage peer = {};
    socklen_t length = sizeof peer;
    // The interface of sockets takes addresses of any family.
    auto* any = reinterpret_cast<sockaddr*>(&peer);
    // The socket that libcurl wakes itself with has no address of the internet.
    if (getpeername(number, any, &length) == 0 && peer.ss_family == AF_INET) {
      found.push_back(number);
    }
  }
  return found;
}

TEST_CASE("signals go to other threads, and children inherit no connection") {
  const Origin origin(1000);
  const auto gate = std::make_shared<Gate>();
  const Origin slow(1000, Origin::Gated(gate));
  HttpFetcher fetcher(QuickOptions());
  std::promise<std::string> status;
  const auto fetch = FetchOf(origin, {0, 10});
  fetch->OnOver([&] {
    std::ifstream file("/proc/thread-self/status");
    status.set_value({std::istreambuf_iterator<char>(file), {}});
  });
  fetcher.Start(fetch);
  const std::string text = status.get_future().get();
  const size_t at = text.find("SigBlk:\t");
  REQUIRE(at != std::string::npos);
  const uint64_t blocked = std::stoull(text.substr(at + 8, 16), nullptr, 16);
  for (const int signal :
       {SIGINT, SIGTERM, SIGCHLD, SIGPIPE, SIGALRM, SIGPROF, SIGUSR1}) {
    CHECK((blocked >> (signal - 1) & 1) == 1);
  }

  const auto waiting = FetchOf(slow, {0, 10});
  fetcher.Start(waiting);
  gate->AwaitWaiting(1);
  const std::vector<int> connections = Connections();
  for (const int connection : connections) {
    CHECK((fcntl(connection, F_GETFD) & FD_CLOEXEC) != 0);
  }
  CHECK(connections.size() >= 2);
  gate->Open();
  Bytes(*waiting);
}

TEST_CASE("there is one fetcher in a process while it is used") {
  const Origin origin(1000);
  CHECK(HaveHttp());
  const auto first = ProcessFetcher(QuickOptions());
  const auto second = ProcessFetcher({});
  CHECK(first == second);
  const auto fetch = FetchOf(origin, {0, 1000});
  first->Start(fetch);
  CHECK(Bytes(*fetch) == origin.content());
}

TEST_CASE("a process without users has no fetcher") {
  std::weak_ptr<Fetcher> watched = ProcessFetcher(QuickOptions());
  CHECK(watched.expired());
}

// A child of a process with threads cannot begin a thread under ThreadSanitizer.
#ifndef __SANITIZE_THREAD__
// Runs in the child of a fork. Returns true if all was as it should be.
bool ReadsInChild(const Origin& origin, HttpFetcher* inherited,
                  const std::shared_ptr<Fetcher>& shared) {
  const auto refused = FetchOf(origin, {0, 10});
  inherited->Start(refused);
  if (!refused->is_over()) return false;
  inherited->Wake();
  inherited->Hurry(refused);
  inherited->Cancel(refused);
  inherited->Stop();
  if (!Throws(ErrorKind::kStopped, [&] { Bytes(*refused); })) return false;
  const auto own = ProcessFetcher(QuickOptions());
  if (own == shared) return false;
  const auto fetch = FetchOf(origin, {0, 1000});
  own->Start(fetch);
  return Bytes(*fetch) == origin.content();
}

TEST_CASE("a forked child reads by itself, and the parent reads on") {
  const auto gate = std::make_shared<Gate>();
  const Origin origin(1000, Origin::Gated(gate, 0, 0));
  auto fetcher = std::make_unique<HttpFetcher>(QuickOptions());
  const auto shared = ProcessFetcher(QuickOptions());
  const auto fetch = FetchOf(origin, {0, 1000});
  fetcher->Start(fetch);
  gate->AwaitWaiting(1);
  const pid_t child = fork();
  if (child == 0) {
    const bool is_right = ReadsInChild(origin, fetcher.get(), shared);
    const size_t num_connections = Connections().size();
    fetcher.reset();
    _exit(is_right && Connections().size() == num_connections ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  gate->Open();
  CHECK(Bytes(*fetch) == origin.content());
  // The connection of the parent was left alone. The child made one.
  const auto after = FetchOf(origin, {0, 10});
  fetcher->Start(after);
  Bytes(*after);
  CHECK(origin.num_connections() == 2);
}
#endif

}  // namespace
}  // namespace torchparquet
