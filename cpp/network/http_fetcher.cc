#include "network/http_fetcher.h"

#include "errors.h"

namespace torchparquet {

bool HaveHttp() { return false; }

std::shared_ptr<Fetcher> ProcessFetcher(const FetchOptions& /*options*/) {
  throw Error(ErrorKind::kNotSupported, "this build of torchparquet has no libcurl");
}

}  // namespace torchparquet
