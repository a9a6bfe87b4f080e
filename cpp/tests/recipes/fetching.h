#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "recipes/origin.h"
#include "remote/transport/fetch.h"
#include "remote/transport/fetcher.h"
#include "remote/transport/remote_object.h"

namespace torchparquet::testing {

// An address book that a test writes. An address that was refused is not given again.
class Addresses : public AddressBook {
 public:
  Addresses() = default;
  explicit Addresses(ObjectAddress address) { Give(std::move(address)); }

  // The address that is given from now on.
  void Give(ObjectAddress address);
  // Given after the last one is refused.
  void GiveNext(ObjectAddress address);
  void Fail(std::string failure);
  int64_t num_refused() const;
  int64_t num_asked() const;

  std::shared_ptr<const ObjectAddress> Find(int64_t object) override;
  bool Refused(int64_t object, const ObjectAddress& address) override;
  std::string Failure(int64_t object) const override;

 private:
  mutable std::mutex mutex_;  // guards all below
  std::shared_ptr<const ObjectAddress> address_;
  std::shared_ptr<const ObjectAddress> next_;
  std::string failure_;
  int64_t num_refused_ = 0;
  int64_t num_asked_ = 0;
};

// A fetch of an origin's object.
std::shared_ptr<Fetch> FetchOf(const Origin& origin, const ByteRange& range,
                               std::shared_ptr<AddressBook> addresses = nullptr,
                               const std::string& etag = "listed");

// The bytes of a fetch, when all are there. Throws its Error.
std::string Bytes(const Fetch& fetch);
// True if that many bytes arrive in this time.
bool ArrivesWithin(const Fetch& fetch, int64_t num_bytes, int64_t milliseconds);
// The bytes that they should be.
std::string Expected(const Origin& origin, const ByteRange& range);

// Patience for tests: quick retries, no hedges.
FetchOptions QuickOptions();

}  // namespace torchparquet::testing
