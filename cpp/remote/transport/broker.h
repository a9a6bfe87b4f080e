#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/errors.h"
#include "remote/transport/fetcher.h"
#include "remote/transport/remote_object.h"

namespace torchparquet {

// Something that only the store's own library can do.
struct BrokerRequest {
  enum class Kind { kAddress, kBytes };

  Kind kind = Kind::kBytes;
  int64_t object = 0;
  bool refused = false;                    // kAddress: the store refused the last one
  std::shared_ptr<Fetch> fetch = nullptr;  // kBytes
};

// Hands requests to threads that call the store's library, in Python: for addresses, and
// for the bytes of stores that sign none. Everything but Next and the answers is called
// by threads that never take the GIL. Thread-safe.
class Broker : public Fetcher, public AddressBook {
 public:
  explicit Broker(int64_t num_objects);
  ~Broker() override;

  // The fetcher that is told of new addresses.
  void Tell(const std::shared_ptr<Fetcher>& fetcher);

  // For the threads that answer.

  // Waits for a request. Nothing once closed.
  std::optional<BrokerRequest> Next();
  void GiveAddress(const BrokerRequest& request, ObjectAddress address);
  // Throws Error(kInvalidArgument) for another number of bytes than asked for.
  void GiveBytes(const BrokerRequest& request, std::span<const uint8_t> bytes);
  void Fail(const BrokerRequest& request, const Error& error);
  // Ends all waits. Fetches that were not answered fail. Idempotent.
  void Close();

  // Fetcher.
  void Hurry(const std::shared_ptr<Fetch>& fetch) override;
  void Cancel(const std::shared_ptr<Fetch>& fetch) override;
  void Wake() override {}
  FetchStats stats() const override;
  bool is_http() const override { return false; }

  // AddressBook.
  std::shared_ptr<const ObjectAddress> Find(int64_t object) override;
  bool Refused(int64_t object, const ObjectAddress& address) override;
  std::string Failure(int64_t object) const override;
  void ForgetFailures() override;

 private:
  struct Known {
    std::shared_ptr<const ObjectAddress> address = nullptr;
    bool is_asked = false;
    bool was_refused = false;
    bool is_of_before = false;  // asked for before failures were forgotten
    std::string failure = {};
  };

  void DoStart(const std::shared_ptr<Fetch>& fetch) override;
  void Ask(int64_t object);

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable asked_;
  std::list<BrokerRequest> requests_;
  std::vector<std::shared_ptr<Fetch>> in_work_;
  std::vector<Known> addresses_;  // by object
  std::weak_ptr<Fetcher> fetcher_;
  FetchStats stats_;
  bool closed_ = false;
};

}  // namespace torchparquet
