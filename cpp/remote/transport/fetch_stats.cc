#include "remote/transport/fetch_stats.h"

namespace torchparquet {

FetchStats operator-(const FetchStats& now, const FetchStats& before) {
  return {.num_requests = now.num_requests - before.num_requests,
          .num_retries = now.num_retries - before.num_retries,
          .num_hedges = now.num_hedges - before.num_hedges,
          .num_hedges_won = now.num_hedges_won - before.num_hedges_won,
          .bytes_received = now.bytes_received - before.bytes_received,
          .bytes_wasted = now.bytes_wasted - before.bytes_wasted,
          .num_connections = now.num_connections - before.num_connections,
          .concurrency = now.concurrency,
          .first_byte_time = now.first_byte_time - before.first_byte_time};
}

}  // namespace torchparquet
