// In place of http_fetcher.cc in builds without libcurl.

#include "base/errors.h"
#include "remote/transport/http_fetcher.h"

namespace torchparquet {

class Reactor {};

bool HaveHttp() { return false; }

HttpFetcher::HttpFetcher(const FetchOptions& /*options*/) : pid_(0) {
  throw Error(ErrorKind::kNotSupported, "this build of torchparquet has no libcurl");
}

HttpFetcher::~HttpFetcher() = default;
void HttpFetcher::Stop() {}
void HttpFetcher::DoStart(const std::shared_ptr<Fetch>& /*fetch*/) {}
void HttpFetcher::Hurry(const std::shared_ptr<Fetch>& /*fetch*/) {}
void HttpFetcher::Cancel(const std::shared_ptr<Fetch>& /*fetch*/) {}
void HttpFetcher::Wake() {}
FetchStats HttpFetcher::stats() const { return {}; }

std::shared_ptr<Fetcher> ProcessFetcher(const FetchOptions& options) {
  return std::make_shared<HttpFetcher>(options);
}

}  // namespace torchparquet
