#include "remote/transport/broker.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace torchparquet {
namespace {

double Now() {
  using Seconds = std::chrono::duration<double>;
  return Seconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

Broker::Broker(int64_t num_objects) : addresses_(static_cast<size_t>(num_objects)) {}

Broker::~Broker() { Close(); }

void Broker::Tell(const std::shared_ptr<Fetcher>& fetcher) {
  const std::lock_guard lock(mutex_);
  fetcher_ = fetcher;
}

std::optional<BrokerRequest> Broker::Next() {
  std::unique_lock lock(mutex_);
  asked_.wait(lock, [&] { return closed_ || !requests_.empty(); });
  if (closed_) return std::nullopt;
  if (requests_.front().fetch != nullptr) {
    in_work_.push_back(requests_.front().fetch);
    ++stats_.num_requests;
  }
  BrokerRequest request = std::move(requests_.front());
  requests_.pop_front();
  return request;
}

void Broker::GiveAddress(const BrokerRequest& request, ObjectAddress address) {
  std::shared_ptr<Fetcher> fetcher;
  {
    const std::lock_guard lock(mutex_);
    Known& known = addresses_[static_cast<size_t>(request.object)];
    known = {.address = std::make_shared<const ObjectAddress>(std::move(address))};
    fetcher = fetcher_.lock();
  }
  if (fetcher != nullptr) fetcher->Wake();
}

void Broker::GiveBytes(const BrokerRequest& request, std::span<const uint8_t> bytes) {
  Fetch& fetch = *request.fetch;
  if (std::ssize(bytes) != fetch.range().num_bytes) {
    throw InvalidArgument("the file system gave another number of bytes than asked for: ",
                          bytes.size(), ", not ", fetch.range().num_bytes);
  }
  {
    // A fetch that was cancelled is gone from here, and its memory may be too.
    const std::lock_guard lock(mutex_);
    stats_.bytes_received += std::ssize(bytes);
    if (std::erase(in_work_, request.fetch) == 0) {
      stats_.bytes_wasted += std::ssize(bytes);
      return;
    }
  }
  try {
    fetch.Prepare();
  } catch (const Error& error) {
    return fetch.Fail(error);
  }
  std::memcpy(fetch.out(), bytes.data(), bytes.size());
  fetch.Arrive(std::ssize(bytes));
}

void Broker::Fail(const BrokerRequest& request, const Error& error) {
  std::shared_ptr<Fetcher> fetcher;
  {
    const std::lock_guard lock(mutex_);
    if (request.kind == BrokerRequest::Kind::kAddress) {
      Known& known = addresses_[static_cast<size_t>(request.object)];
      // A later reader, which waits for this answer, wakes and asks again.
      known = {.failure = known.is_of_before ? std::string() : error.what()};
      fetcher = fetcher_.lock();
    } else {
      std::erase(in_work_, request.fetch);
    }
  }
  if (fetcher != nullptr) fetcher->Wake();
  if (request.fetch != nullptr) request.fetch->Fail(error);
}

void Broker::Close() {
  std::vector<std::shared_ptr<Fetch>> unanswered;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    unanswered = std::exchange(in_work_, {});
    for (const BrokerRequest& request : requests_) {
      if (request.fetch != nullptr) unanswered.push_back(request.fetch);
    }
    requests_.clear();
    asked_.notify_all();
  }
  for (const auto& fetch : unanswered) fetch->Fail(ReaderClosed());
}

void Broker::DoStart(const std::shared_ptr<Fetch>& fetch) {
  {
    const std::lock_guard lock(mutex_);
    if (!closed_) {
      requests_.push_back({.object = fetch->object().number, .fetch = fetch});
      asked_.notify_one();
      return;
    }
  }
  fetch->Fail(ReaderClosed());
}

void Broker::Hurry(const std::shared_ptr<Fetch>& fetch) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(requests_, fetch, &BrokerRequest::fetch);
  if (found != requests_.end()) requests_.splice(requests_.begin(), requests_, found);
}

void Broker::Cancel(const std::shared_ptr<Fetch>& fetch) {
  {
    const std::lock_guard lock(mutex_);
    std::erase(in_work_, fetch);
    requests_.remove_if(
        [&](const BrokerRequest& request) { return request.fetch == fetch; });
  }
  fetch->Fail(ReaderClosed());
}

FetchStats Broker::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

std::shared_ptr<const ObjectAddress> Broker::Find(int64_t object) {
  const std::lock_guard lock(mutex_);
  Known& known = addresses_[static_cast<size_t>(object)];
  if (known.address != nullptr && known.address->renew_at > Now()) return known.address;
  if (known.failure.empty()) Ask(object);
  return nullptr;
}

bool Broker::Refused(int64_t object, const ObjectAddress& address) {
  const std::lock_guard lock(mutex_);
  Known& known = addresses_[static_cast<size_t>(object)];
  // Of several requests that are refused, the first one asks.
  if (known.address != nullptr && known.address->IsSameAs(address)) {
    known.address = nullptr;
    known.was_refused = true;
    Ask(object);
  }
  return address.renew_at <= Now();
}

std::string Broker::Failure(int64_t object) const {
  const std::lock_guard lock(mutex_);
  return addresses_[static_cast<size_t>(object)].failure;
}

void Broker::ForgetFailures() {
  const std::lock_guard lock(mutex_);
  for (Known& known : addresses_) {
    known.failure.clear();
    known.is_of_before = known.is_asked;
  }
}

void Broker::Ask(int64_t object) {
  Known& known = addresses_[static_cast<size_t>(object)];
  if (known.is_asked || closed_) return;
  requests_.push_front({.kind = BrokerRequest::Kind::kAddress,
                        .object = object,
                        .refused = known.was_refused});
  known.is_asked = true;
  asked_.notify_one();
}

}  // namespace torchparquet
