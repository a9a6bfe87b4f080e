#include "remote/transport/fetch_queue.h"

#include <doctest/doctest.h>

#include <vector>

namespace torchparquet {
namespace {

using Job = std::shared_ptr<FetchJob>;
using Time = FetchQueue::Time;
using std::chrono::seconds;

Job JobOf(int64_t order) {
  return std::make_shared<FetchJob>(
      FetchJob{.fetch = nullptr, .retries = RetryPolicy(1, 1), .order = order});
}

std::vector<int64_t> Orders(FetchQueue* queue, Time now) {
  std::vector<int64_t> orders;
  while (const Job job = queue->Next(now)) orders.push_back(job->order);
  return orders;
}

TEST_CASE("fetches begin in order, hurried ones first") {
  FetchQueue queue;
  std::vector<Job> jobs;
  for (int64_t i = 0; i < 6; ++i) jobs.push_back(JobOf(i));
  for (const size_t i : {3, 0, 5, 1, 4, 2}) queue.Add(jobs[i]);
  queue.Hurry(jobs[4]);
  queue.Hurry(jobs[2]);
  queue.Hurry(jobs[4]);
  CHECK(Orders(&queue, Time()) == std::vector<int64_t>{2, 4, 0, 1, 3, 5});
  CHECK_FALSE(queue.has_ready());
}

TEST_CASE("a hurried fetch stays hurried when it comes back") {
  FetchQueue queue;
  const Job late = JobOf(7);
  queue.Hurry(late);
  CHECK(queue.Next(Time()) == nullptr);
  queue.Add(JobOf(1));
  queue.Add(late);
  CHECK(Orders(&queue, Time()) == std::vector<int64_t>{7, 1});
}

TEST_CASE("fetches wait for their time") {
  FetchQueue queue;
  queue.AddAfter(Time(seconds(20)), JobOf(1));
  queue.AddAfter(Time(seconds(10)), JobOf(2));
  CHECK(queue.next_time() == Time(seconds(10)));
  CHECK(Orders(&queue, Time(seconds(9))).empty());
  CHECK(Orders(&queue, Time(seconds(10))) == std::vector<int64_t>{2});
  queue.Add(JobOf(0));
  CHECK(Orders(&queue, Time(seconds(30))) == std::vector<int64_t>{0, 1});
  CHECK_FALSE(queue.next_time());
}

TEST_CASE("fetches without addresses wait until they are woken") {
  FetchQueue queue;
  queue.AddAddressless(JobOf(2));
  queue.AddAddressless(JobOf(1));
  CHECK(Orders(&queue, Time()).empty());
  queue.Wake();
  CHECK(Orders(&queue, Time()) == std::vector<int64_t>{1, 2});
  queue.Wake();
  CHECK_FALSE(queue.has_ready());
}

TEST_CASE("removed fetches are gone, wherever they were") {
  FetchQueue queue;
  const std::vector<Job> jobs = {JobOf(0), JobOf(1), JobOf(2)};
  queue.Add(jobs[0]);
  queue.AddAfter(Time(), jobs[1]);
  queue.AddAddressless(jobs[2]);
  for (const Job& job : jobs) queue.Remove(job);
  queue.Wake();
  CHECK(Orders(&queue, Time(seconds(1))).empty());
}

}  // namespace
}  // namespace torchparquet
