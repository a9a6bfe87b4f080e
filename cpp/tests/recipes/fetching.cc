#include "recipes/fetching.h"

#include <chrono>
#include <thread>
#include <utility>

namespace torchparquet::testing {

void Addresses::Give(ObjectAddress address) {
  const std::lock_guard lock(mutex_);
  address_ = std::make_shared<const ObjectAddress>(std::move(address));
}

void Addresses::GiveNext(ObjectAddress address) {
  const std::lock_guard lock(mutex_);
  next_ = std::make_shared<const ObjectAddress>(std::move(address));
}

void Addresses::Fail(std::string failure) {
  const std::lock_guard lock(mutex_);
  failure_ = std::move(failure);
}

int64_t Addresses::num_refused() const {
  const std::lock_guard lock(mutex_);
  return num_refused_;
}

int64_t Addresses::num_asked() const {
  const std::lock_guard lock(mutex_);
  return num_asked_;
}

std::shared_ptr<const ObjectAddress> Addresses::Find(int64_t /*object*/) {
  const std::lock_guard lock(mutex_);
  ++num_asked_;
  return address_;
}

bool Addresses::Refused(int64_t /*object*/, const ObjectAddress& address) {
  const std::lock_guard lock(mutex_);
  ++num_refused_;
  if (address_ != nullptr && address_->url == address.url && next_ != nullptr) {
    address_ = std::exchange(next_, nullptr);
  }
  return address.renew_at > 0;  // long past
}

std::string Addresses::Failure(int64_t /*object*/) const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::shared_ptr<Fetch> FetchOf(const Origin& origin, const ByteRange& range,
                               std::shared_ptr<AddressBook> addresses,
                               const std::string& etag) {
  if (addresses == nullptr) {
    addresses = std::make_shared<Addresses>(ObjectAddress{.url = origin.url()});
  }
  return std::make_shared<Fetch>(std::make_shared<const RemoteObject>(RemoteObject{
                                     .path = "s3://bucket/object",
                                     .num_bytes = std::ssize(origin.content()),
                                     .etag = etag == "listed" ? origin.etag() : etag,
                                     .addresses = std::move(addresses)}),
                                 range);
}

std::string Bytes(const Fetch& fetch) {
  fetch.Await(fetch.range().num_bytes);
  // The fetch holds bytes, the expected ones are characters.
  return {reinterpret_cast<const char*>(fetch.data()),
          static_cast<size_t>(fetch.range().num_bytes)};
}

bool ArrivesWithin(const Fetch& fetch, int64_t num_bytes, int64_t milliseconds) {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  while (fetch.num_arrived() < num_bytes) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

std::string Expected(const Origin& origin, const ByteRange& range) {
  return origin.content().substr(static_cast<size_t>(range.offset),
                                 static_cast<size_t>(range.num_bytes));
}

FetchOptions QuickOptions() {
  FetchOptions options{{.max_tries = 5, .max_seconds = 60, .hedges = false}};
  options.stall_seconds = 30;
  return options;
}

}  // namespace torchparquet::testing
