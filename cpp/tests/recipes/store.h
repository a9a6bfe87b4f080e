#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "files/parquet_file.h"
#include "recipes/reading.h"
#include "remote/transport/fetcher.h"

namespace torchparquet::testing {

// A store that holds the files of a data set: threads bring its bytes, in whatever order
// they find them, a piece at a time.
class Store : public Fetcher {
 public:
  struct Options {
    uint64_t seed = 1;
    int64_t num_threads = 3;
    int64_t piece_bytes = 1'000;
    // Which fetches fail, and how.
    std::function<std::optional<Error>(const Fetch&)> fault = nullptr;
  };
  Store();
  explicit Store(Options options);
  ~Store() override;

  void Hurry(const std::shared_ptr<Fetch>& fetch) override;
  void Cancel(const std::shared_ptr<Fetch>& fetch) override;
  void Wake() override {}
  FetchStats stats() const override;

  // Fetches wait until Release.
  void Stall();
  void Release();
  // The most bytes that were asked for and not brought, at any moment.
  int64_t num_started() const;
  // Waits until `num_fetches` are asked for in all.
  void AwaitStarted(int64_t num_fetches) const;
  std::vector<ByteRange> ranges() const;

 private:
  void DoStart(const std::shared_ptr<Fetch>& fetch) override;
  void Work(uint64_t seed);

  const Options options_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::list<std::shared_ptr<Fetch>> waiting_;
  std::vector<ByteRange> ranges_;
  FetchStats stats_;
  bool is_stalled_ = false;
  bool is_over_ = false;
  std::vector<std::thread> threads_;
};

// The files as objects of the store.
std::vector<PlannedFile> PlannedIn(const std::vector<std::string>& paths,
                                   const std::shared_ptr<Store>& store);
std::vector<PlannedFile> PlannedIn(const DataSet& data,
                                   const std::shared_ptr<Store>& store);

}  // namespace torchparquet::testing
