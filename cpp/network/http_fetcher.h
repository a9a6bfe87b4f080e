#pragma once

#include <memory>

#include "network/fetcher.h"

namespace torchparquet {

// True if this build can fetch by HTTP.
bool HaveHttp();

// The fetcher by HTTP of this process. Throws Error(kNotSupported) without HTTP.
std::shared_ptr<Fetcher> ProcessFetcher(const FetchOptions& options);

}  // namespace torchparquet
