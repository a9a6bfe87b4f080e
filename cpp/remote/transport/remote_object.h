#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace torchparquet {

// The address at which an object can be read for a while.
struct ObjectAddress {
  std::string url;
  std::vector<std::string> headers = {};  // "Name: value"; go to the host of `url` only
  // From when on another address is asked for, in seconds since 1970. This one is not yet
  // refused then.
  double renew_at = 0;
  std::string ca_file = {};  // certificates to trust; empty: those that libcurl knows
  std::string remedy = {};   // ends the message if the store refuses the address

  // True if a store cannot tell the two apart.
  bool IsSameAs(const ObjectAddress& other) const {
    return url == other.url && headers == other.headers;
  }
};

// Gives addresses of objects, by number. Thread-safe.
class AddressBook {
 public:
  virtual ~AddressBook() = default;
  // An address that is not to be renewed yet; null if there is none. It is then asked
  // for, and `Fetcher::Wake` is called when it is there.
  virtual std::shared_ptr<const ObjectAddress> Find(int64_t object) = 0;
  // The store refused the address (401 or 403): it is not given again. Returns true if it
  // was to be renewed by now, so that a refusal says nothing of the next one.
  virtual bool Refused(int64_t object, const ObjectAddress& address) = 0;
  // Why no address can be had for the object: a message, empty if there is no reason.
  virtual std::string Failure(int64_t object) const = 0;
  // Addresses that could not be had are asked for again: a later reader may have more
  // luck.
  virtual void ForgetFailures() {}
};

// How patient fetches are.
struct Patience {
  int64_t max_tries = 10;    // of one fetch
  double max_seconds = 180;  // from the first failure of a fetch to its last try
  bool hedges = true;        // slow first bytes are asked for twice
};

// An object of a store, as it was listed.
struct RemoteObject {
  std::string path;  // for messages: s3://bucket/key
  int64_t num_bytes = -1;
  std::string etag = {};  // as listed, with its quotes; empty where there is none
  // Tells its content from all others, for a cache; empty if nothing does.
  std::string identity = {};
  std::optional<Patience> patience = {};             // nothing: as the fetcher was told
  int64_t number = 0;                                // in `addresses`
  std::shared_ptr<AddressBook> addresses = nullptr;  // null where a broker reads
};

}  // namespace torchparquet
