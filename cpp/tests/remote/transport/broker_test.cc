#include "remote/transport/broker.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "base/process_owned.h"
#include "caught.h"

namespace torchparquet {
namespace {

using testing::Caught;
using testing::Throws;

std::shared_ptr<Fetch> FetchOf(int64_t object, int64_t num_bytes) {
  return std::make_shared<Fetch>(
      std::make_shared<const RemoteObject>(
          RemoteObject{.path = "memory://x", .num_bytes = 1'000, .number = object}),
      ByteRange{0, num_bytes});
}

TEST_CASE("threads answer fetches in their order, those in a hurry first") {
  Broker broker(3);
  const auto first = FetchOf(0, 3);
  const auto second = FetchOf(1, 4);
  const auto third = FetchOf(2, 5);
  for (const auto& fetch : {first, second, third}) broker.Start(fetch);
  broker.Hurry(third);
  std::vector<int64_t> order;
  for (int i = 0; i < 3; ++i) {
    const auto request = broker.Next();
    REQUIRE(request);
    order.push_back(request->object);
    std::vector<uint8_t> bytes(static_cast<size_t>(request->fetch->range().num_bytes));
    std::iota(bytes.begin(), bytes.end(), static_cast<uint8_t>(request->object));
    broker.GiveBytes(*request, bytes);
  }
  CHECK(order == std::vector<int64_t>{2, 0, 1});
  third->Await(5);
  CHECK(third->data()[4] == 6);
  CHECK(broker.stats().bytes_received == 12);
}

TEST_CASE("an address that could not be had is asked for again by a later reader") {
  Broker broker(1);
  CHECK(broker.Find(0) == nullptr);
  broker.Fail(*broker.Next(), Error(ErrorKind::kIo, "no credentials"));
  CHECK(broker.Find(0) == nullptr);
  CHECK(broker.Failure(0) == "no credentials");
  broker.ForgetFailures();
  CHECK(broker.Failure(0).empty());
  CHECK(broker.Find(0) == nullptr);
  broker.GiveAddress(*broker.Next(), {.url = "http://a", .renew_at = HUGE_VAL});
  REQUIRE(broker.Find(0) != nullptr);
  CHECK(broker.Find(0)->url == "http://a");
}

TEST_CASE("an address that an earlier reader asked for fails no later one") {
  Broker broker(1);
  CHECK(broker.Find(0) == nullptr);
  const auto of_before = broker.Next();
  broker.ForgetFailures();
  CHECK(broker.Find(0) == nullptr);  // waits for the same answer
  broker.Fail(*of_before, Error(ErrorKind::kIo, "no credentials"));
  CHECK(broker.Failure(0).empty());
  CHECK(broker.Find(0) == nullptr);
  broker.Fail(*broker.Next(), Error(ErrorKind::kIo, "none again"));
  CHECK(broker.Failure(0) == "none again");
}

TEST_CASE("a forked child frees no broker that threads of its parent wait for") {
  auto broker = MakeProcessOwned<Broker>(1);
  std::atomic<bool> waits = false;
  std::thread waiter([&] {
    waits = true;
    CHECK_FALSE(broker->Next());
  });
  while (!waits) std::this_thread::yield();
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(30);
    broker.reset();
    _exit(0);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  broker->Close();
  waiter.join();
}

TEST_CASE("an answer of another length is refused, and the fetch can still fail") {
  Broker broker(1);
  const auto fetch = FetchOf(0, 3);
  broker.Start(fetch);
  const auto request = broker.Next();
  const std::vector<uint8_t> bytes(4);
  CHECK(Throws(ErrorKind::kInvalidArgument, [&] { broker.GiveBytes(*request, bytes); }));
  CHECK_FALSE(fetch->is_over());
  broker.Fail(*request, Error(ErrorKind::kIo, "too long"));
  CHECK(Throws(ErrorKind::kIo, [&] { fetch->Await(1); }));
  CHECK(Throws(ErrorKind::kIo, [&] { fetch->Await(1); }));
}

TEST_CASE("what is cancelled is neither asked for nor answered") {
  Broker broker(2);
  const auto waiting = FetchOf(0, 3);
  const auto in_work = FetchOf(1, 3);
  broker.Start(in_work);
  const auto request = broker.Next();
  broker.Start(waiting);
  broker.Cancel(waiting);
  broker.Cancel(in_work);
  for (const auto& fetch : {waiting, in_work}) {
    CHECK(Throws(ErrorKind::kStopped, [&] { fetch->Await(1); }));
  }
  broker.GiveBytes(*request, std::vector<uint8_t>(3));
  CHECK(in_work->num_arrived() == 0);
  CHECK(broker.stats().bytes_wasted == 3);
}

TEST_CASE("closing ends every wait, on both sides") {
  Broker broker(2);
  const auto waiting = FetchOf(0, 3);
  const auto in_work = FetchOf(1, 3);
  broker.Start(in_work);
  CHECK(broker.Next());
  broker.Start(waiting);
  std::thread reader([&] { CHECK(Caught([&] { waiting->Await(3); })); });
  broker.Close();
  reader.join();
  CHECK(Throws(ErrorKind::kStopped, [&] { in_work->Await(1); }));
  CHECK_FALSE(broker.Next());
  const auto late = FetchOf(0, 3);
  broker.Start(late);
  CHECK(Throws(ErrorKind::kStopped, [&] { late->Await(1); }));
}

TEST_CASE("an address is asked for once, and again when it is refused or old") {
  Broker broker(1);
  CHECK(broker.Find(0) == nullptr);
  CHECK(broker.Find(0) == nullptr);
  auto request = broker.Next();
  REQUIRE(request);
  CHECK(request->kind == BrokerRequest::Kind::kAddress);
  CHECK_FALSE(request->refused);
  broker.GiveAddress(*request, {.url = "http://a", .headers = {}, .renew_at = INFINITY});
  const auto first = broker.Find(0);
  REQUIRE(first != nullptr);
  CHECK(first->url == "http://a");
  CHECK_FALSE(broker.Refused(0, *first));
  CHECK_FALSE(broker.Refused(0, *first));  // by another request
  CHECK(broker.Find(0) == nullptr);
  request = broker.Next();
  CHECK(request->refused);
  broker.GiveAddress(*request, {.url = "http://b", .headers = {}, .renew_at = INFINITY});
  broker.Refused(0, *first);  // late
  CHECK(broker.Find(0)->url == "http://b");
  broker.Refused(0, *broker.Find(0));
  request = broker.Next();
  broker.GiveAddress(*request, {.url = "http://c", .headers = {}, .renew_at = 1});
  CHECK(broker.Find(0) == nullptr);
  CHECK(broker.Next()->kind == BrokerRequest::Kind::kAddress);
  // It was in use for longer than its time.
  CHECK(broker.Refused(0, {.url = "http://c", .headers = {}, .renew_at = 1}));
}

TEST_CASE("a reason for which there is no address is told") {
  Broker broker(2);
  CHECK(broker.Find(1) == nullptr);
  broker.Fail(*broker.Next(), Error(ErrorKind::kIo, "no key"));
  CHECK(broker.Find(1) == nullptr);
  CHECK(broker.Failure(1) == "no key");
  CHECK(broker.Failure(0).empty());
}

}  // namespace
}  // namespace torchparquet
